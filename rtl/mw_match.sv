// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Decides what happens to each packet of a lane: looks its positions up among the events,
// counts iterations at the positions that an event names, and gives one verdict a packet,
// in order.
//
// The way of a packet: FIFO, look-ups in the exact table and, for TCP data, in the page
// table of every 256 bytes that it covers, one of each a cycle; hits, one a cycle, count in
// the state of their slot and choose a clause; rules, which were tried meanwhile, follow with
// the action of each that fires; the actions of a packet are joined.
//
// It never holds up the lane: when the FIFO is three quarters full packets pass without
// look-up, when half as many packets as it may hold wait they pass rules untried, and their
// record says so.
module mw_match
  import mw_pkg::*;
#(
    parameter bit LANE = 1'b0,  // 0: A to B, 1: B to A
    parameter int unsigned SLOTS_LOG2 = 16,  // event slots, log2, 1 to 22
    parameter int unsigned EXACT_ROWS_LOG2 = 15,  // rows of a way, log2
    parameter int unsigned PAGE_ROWS_LOG2 = 15,  // rows of a way, log2
    parameter int unsigned ACTIONS_LOG2 = 8,  // action programs, log2, 1 to 16
    parameter int unsigned RULES = 64,  // a power of two, 2 to 1024
    parameter int unsigned INFLIGHT_LOG2 = 8  // packets between input and verdict, log2, from 3
) (
    input  logic                    clk,
    input  logic                    rst,
    input  logic                    clear,           // forget positions, slots and their state
    output logic                    clear_busy,      // at it; packets pass without look-up
    input  logic     [        16:0] kinds_enable,    // bit k: look up kind k; bit 16: byte pages
    input  logic                    in_valid,
    input  header_t                 in_hdr,
    input  track_t                  in_trk,
    output logic                    out_valid,
    output verdict_t                out_verdict,
    input  logic     [Triggers-1:0] triggers,        // those that are armed
    output logic     [Triggers-1:0] trigger_arm,     // pulses, from events that fired
    output logic     [Triggers-1:0] trigger_disarm,
    input  tbl_req_t                tbl_req,
    output logic                    tbl_ack,
    output logic     [    TblW-1:0] tbl_rdata,
    output logic                    cnt_unmatched,   // one pulse a packet or position
    output logic                    cnt_bind_full,
    output logic                    cnt_malformed,
    output logic                    busy
);
  if (SLOTS_LOG2 < 1 || SLOTS_LOG2 > RuleSlotBit || ACTIONS_LOG2 < 1 || ACTIONS_LOG2 > 16 ||
      INFLIGHT_LOG2 < 3) begin : g_bad
    $fatal(1, "mw_match: parameter out of range");
  end

  localparam int unsigned Ways = 4;
  localparam int unsigned ExactRowW = 1 + $bits(exact_value_t) + $bits(exact_key_t);
  localparam int unsigned PageRowW = 1 + $bits(page_value_t) + $bits(page_key_t);
  localparam int unsigned ExactIndexW = EXACT_ROWS_LOG2 + $clog2(Ways);
  localparam int unsigned PageIndexW = PAGE_ROWS_LOG2 + $clog2(Ways);

  // What is known of the verdict before any look-up.
  typedef struct packed {
    logic [63:0] stamp;
    layout_t     layout;
    record_t     rec;
  } pass_t;

  // The look-ups that a packet wants.
  localparam int unsigned WantKind = 0;
  localparam int unsigned WantAny = 1;
  localparam int unsigned WantFin = 2;
  typedef struct packed {
    logic [31:0]      packet_id;
    logic [ConnW-1:0] conn;
    logic [2:0]       want;
    logic [2:0]       one;        // the first of them
    logic             last;       // one look-up is all
    kind_e            kind;
    logic [31:0]      pos_kind;
    logic [31:0]      pos_any;
    logic [31:0]      pos_fin;
    logic             ruled;      // rules are tried
    logic             pages;      // from the first byte's page to the last byte's
    logic [47:0]      first;
    logic [8:0]       more;       // pages behind the first one's
    logic [7:0]       to;         // the last byte in the last of them
  } seek_t;

  // ---- in
  localparam int unsigned Reserve = 1 << (INFLIGHT_LOG2 - 2);
  pass_t pass_in, pass;
  seek_t seek_in, seek;
  logic seek_valid, seek_pop, pass_pop;
  logic [INFLIGHT_LOG2:0] seek_free, pass_free;
  logic rules_active, rules_room, rules_busy, rules_clear_busy;
  logic [16:0] data_end;
  assign data_end = 17'(in_hdr.payload_offset) + 17'(in_hdr.payload_len);

  always_comb begin
    pass_in = '0;
    seek_in = '0;
    if (in_valid) begin
      seek_in.packet_id = in_hdr.packet_id;
      seek_in.conn = in_trk.conn;
      // read requests are numbered with data: one key names both
      seek_in.kind = in_trk.kind == KindReadRequest ? KindData : in_trk.kind;
      seek_in.ruled = rules_active && !clear_busy;
      seek_in.pos_kind = in_trk.pos_kind;
      seek_in.pos_any = in_trk.pos_any;
      seek_in.pos_fin = in_trk.pos_fin;
      seek_in.first = in_trk.rel;
      {seek_in.more, seek_in.to} = 17'(in_trk.rel[7:0]) + 17'(in_hdr.payload_len) - 17'd1;
      if (in_trk.conn != ConnNone) begin
        automatic logic tcp_data = in_hdr.proto == ProtoTcp && in_trk.kinds[KindData];
        seek_in.want[WantAny] = kinds_enable[5'(KindAny)];
        // TCP data has a number only when it is new
        seek_in.want[WantKind] = kinds_enable[5'(seek_in.kind)] &&
            !(in_hdr.proto == ProtoTcp && in_trk.kind == KindData && !in_trk.is_new);
        seek_in.want[WantFin] = kinds_enable[5'(KindFin)] && in_trk.kinds[KindFin] &&
            in_trk.kind == KindData;
        // data by number may be bound to a page
        seek_in.pages = tcp_data && (kinds_enable[16] || kinds_enable[5'(KindData)]);
      end
      pass_in.stamp = in_hdr.stamp;
      pass_in.layout = '{
          is_ip: in_hdr.is_ip && !in_hdr.malformed,
          is_ip6: in_hdr.is_ip6,
          proto: in_hdr.proto,
          malformed: in_hdr.malformed,
          l3_offset: in_hdr.l3_offset,
          l4_offset: in_hdr.l4_offset,
          payload_offset: in_hdr.payload_offset,
          data_end: data_end > 17'(MaxFrame) ? 14'(MaxFrame) : data_end[13:0]
      };
      pass_in.rec.slot = SlotNone;
      pass_in.rec.tcp_flags = in_hdr.flags;
      pass_in.rec.f2 = in_hdr.f2;
      pass_in.rec.f1 = in_hdr.f1;
      pass_in.rec.f0 = in_hdr.f0;
      pass_in.rec.payload_len = in_hdr.payload_len;
      pass_in.rec.conn = in_trk.conn;
      pass_in.rec.packet_id = in_hdr.packet_id;
      pass_in.rec.malformed = in_hdr.malformed;
      pass_in.rec.is_ip6 = in_hdr.is_ip6;
      pass_in.rec.below = in_trk.below;
      pass_in.rec.kind = in_trk.kind;
      pass_in.rec.proto = in_hdr.proto;
      pass_in.rec.lane = LANE;
      if (seek_free <= (INFLIGHT_LOG2 + 1)'(Reserve) || (seek_in.ruled && !rules_room)) begin
        pass_in.rec.unmatched = seek_in.want != '0 || seek_in.pages || seek_in.ruled;
        seek_in.want = '0;
        seek_in.pages = 1'b0;
        seek_in.ruled = 1'b0;
      end
      seek_in.one  = 3'(lowest(8'(seek_in.want)));
      seek_in.last = seek_in.want == seek_in.one && (!seek_in.pages || seek_in.more == '0);
    end
  end

  mw_fifo #(
      .WIDTH($bits(pass_t)),
      .DEPTH_LOG2(INFLIGHT_LOG2)
  ) pass_fifo (
      .clk,
      .rst,
      .in_valid,
      .in_ready(),
      .in_data(pass_in),
      .out_valid(),
      .out_ready(pass_pop),
      .out_data(pass),
      .free(pass_free)
  );
  mw_fifo #(
      .WIDTH($bits(seek_t)),
      .DEPTH_LOG2(INFLIGHT_LOG2)
  ) seek_fifo (
      .clk,
      .rst,
      .in_valid,
      .in_ready(),
      .in_data(seek_in),
      .out_valid(seek_valid),
      .out_ready(seek_pop),
      .out_data(seek),
      .free(seek_free)
  );

  // ---- look up: one key of each table a cycle, the packet's own position first
  localparam int unsigned FoundLog2 = 5;
  localparam int unsigned Flight = 6;  // cycles from look-up to result
  logic [FoundLog2:0] found_free;

  logic begun;  // the head has been looked up in part
  logic [2:0] want, want_left, want_rest, one, one_left, one_next;
  logic pages, pages_left, page_last, last_left;
  logic [39:0] page, page_next;
  logic [8:0] more, more_left;
  logic issue, issue_last;
  logic exact_slot, page_slot, token_slot;  // the host's turn
  exact_key_t exact_key;

  always_comb begin
    want  = '0;
    pages = 1'b0;
    if (!clear_busy) begin
      want  = begun ? want_left : seek.want;
      pages = begun ? pages_left : seek.pages;
    end
    one = begun ? one_left : seek.one;
    want_rest = want & ~one;
    one_next = 3'(lowest(8'(want_rest)));
    page = begun ? page_next : seek.first[47:8];
    more = begun ? more_left : seek.more;
    page_last = more == '0;
    issue = seek_valid && !exact_slot && !page_slot && found_free > (FoundLog2 + 1)'(Flight);
    issue_last = clear_busy || (begun ? last_left : seek.last);
    seek_pop = issue && issue_last;
    exact_key.conn = seek.conn;
    exact_key.kind = seek.kind;
    exact_key.position = seek.pos_kind;
    if (one[WantAny]) begin
      exact_key.kind = KindAny;
      exact_key.position = seek.pos_any;
    end
    if (one[WantFin]) begin
      exact_key.kind = KindFin;
      exact_key.position = seek.pos_fin;
    end
  end

  // What travels beside the tables.
  typedef struct packed {
    logic [31:0]      packet_id;
    logic             last;       // of the packet
    logic             ruled;      // rules follow
    logic             own;        // the packet's own position was asked for
    logic [7:0] from;             // bytes of the page that the packet covers
    logic [7:0]       to;
  } beside_t;
  logic [Flight:1] beside_valid;
  beside_t [Flight:1] beside;

  page_key_t page_key;
  logic page_valid, page_host;

  always_ff @(posedge clk) begin
    if (issue) begin
      want_left <= want_rest;
      one_left <= one_next;
      pages_left <= pages && !page_last;
      last_left <= want_rest == one_next && (!pages || page_last || more == 9'd1);
      page_next <= page + 1'b1;
      more_left <= more - 1'b1;
      page_key.conn <= seek.conn;
      page_key.page <= page;
    end
    if (issue || beside_valid != '0) begin
      automatic
      beside_t
      b = '{
          packet_id: seek.packet_id,
          last: issue_last,
          ruled: issue_last && seek.ruled,
          own: one[WantKind],
          from : begun ? '0 : seek.first[7:0],
          to: page_last ? seek.to : '1
      };
      beside <= {beside[Flight-1:1], b};
      beside_valid <= {beside_valid[Flight-1:1], issue};
    end
    if (issue) begun <= !issue_last;
    page_valid <= (issue && pages) || page_slot;
    page_host  <= page_slot;
    if (rst) begin
      begun <= 1'b0;
      beside_valid <= '0;
      page_valid <= 1'b0;
      page_host <= 1'b0;
    end
  end

  // The page table lies one cycle behind the exact one: it decides about an insert when the
  // exact table has answered.
  typedef enum logic [1:0] {
    HostIdle,
    HostSlot,
    HostWait,
    HostAck
  } host_e;
  host_e host_state;
  logic host_mine, rule_slot;
  tbl_req_t host;  // the request at work
  logic clear_tables, exact_busy, page_busy;
  logic exact_valid, exact_hit, exact_host_done, page_out_valid, page_host_done, page_full;
  exact_value_t exact_value;
  page_value_t bind_value;
  logic [ExactRowW-1:0] exact_row;
  logic [PageRowW-1:0] page_row;
  logic [Ways-1:0] page_match;
  logic [$bits(page_value_t)-1:0] page_value[Ways];

  mw_hash_table #(
      .KEY_W($bits(exact_key_t)),
      .VAL_W($bits(exact_value_t)),
      .ROWS_LOG2(EXACT_ROWS_LOG2),
      .WAYS(Ways)
  ) exact (
      .clk,
      .rst,
      .clear(clear_tables),
      .busy(exact_busy),
      .in_valid((issue && want != '0) || exact_slot),
      .in_host(exact_slot),
      .in_key(exact_key),
      .in_tagged(1'b0),
      .in_tag(1'b0),
      .host_write(host.write),
      .host_index(host.index[ExactIndexW-1:0]),
      .host_row(host.wdata[ExactRowW-1:0]),
      .ins_allow(1'b0),
      .ins_value('0),
      .out_valid(exact_valid),
      .out_host(exact_host_done),
      .out_row(exact_row),
      .out_key(),
      .out_hit(exact_hit),
      .out_inserted(),
      .out_full(),
      .out_value(exact_value),
      .out_match(),
      .out_values()
  );

  assign bind_value = '{offset: beside[Flight-1].from, slot: exact_value.slot};

  mw_hash_table #(
      .KEY_W($bits(page_key_t)),
      .VAL_W($bits(page_value_t)),
      .ROWS_LOG2(PAGE_ROWS_LOG2),
      .WAYS(Ways),
      .INSERT(1'b1),
      .MULTI(1'b1)
  ) page_table (
      .clk,
      .rst,
      .clear(clear_tables),
      .busy(page_busy),
      .in_valid(page_valid),
      .in_host(page_host),
      .in_key(page_key),
      .in_tagged(1'b0),
      .in_tag(1'b0),
      .host_write(host.write),
      .host_index(host.index[PageIndexW-1:0]),
      .host_row(host.wdata[PageRowW-1:0]),
      .ins_allow(exact_valid && exact_hit && exact_value.bind_page && beside[Flight-1].own),
      .ins_value(bind_value),
      .out_valid(page_out_valid),
      .out_host(page_host_done),
      .out_row(page_row),
      .out_key(),
      .out_hit(),
      .out_inserted(),
      .out_full(page_full),
      .out_value(),
      .out_match(page_match),
      .out_values(page_value)
  );

  // ---- found: the exact hit and up to one of each way of the page table
  typedef struct packed {
    logic [31:0]              packet_id;
    logic                     last;
    logic                     ruled;
    logic [Ways:0]            hits;
    logic [Ways:0][SlotW-1:0] slots;
  } found_t;
  found_t found_in, found;
  logic found_push, found_valid, found_pop;
  logic exact_q_hit;
  logic [SlotW-1:0] exact_q_slot;

  always_ff @(posedge clk) begin
    exact_q_hit <= exact_valid && exact_hit;
    if (exact_valid) exact_q_slot <= exact_value.slot;
    cnt_bind_full <= !rst && page_out_valid && page_full;
  end

  always_comb begin
    found_in = '0;
    if (beside_valid[Flight]) begin
      found_in.packet_id = beside[Flight].packet_id;
      found_in.last = beside[Flight].last;
      found_in.ruled = beside[Flight].ruled;
      found_in.hits[0] = exact_q_hit;
      found_in.slots[0] = exact_q_slot;
      for (int n = 0; n < int'(Ways); n++) begin
        automatic page_value_t v = page_value_t'(page_value[n]);
        found_in.hits[n+1] = page_out_valid && page_match[n] &&
            v.offset >= beside[Flight].from && v.offset <= beside[Flight].to;
        found_in.slots[n+1] = v.slot;
      end
    end
    found_push = found_in.last || found_in.hits != '0;
  end

  mw_fifo #(
      .WIDTH($bits(found_t)),
      .DEPTH_LOG2(FoundLog2)
  ) found_fifo (
      .clk,
      .rst,
      .in_valid(found_push),
      .in_ready(),
      .in_data(found_in),
      .out_valid(found_valid),
      .out_ready(found_pop),
      .out_data(found),
      .free(found_free)
  );

  // ---- rules
  logic rule_valid, rule_pop, rule_fires, rule_last, rule_untried, rule_ack;
  logic [$clog2(RULES)-1:0] rule;
  logic [ACTIONS_LOG2-1:0] rule_action;
  logic [7:0] rule_seen;
  logic [TblW-1:0] rule_rdata;

  mw_rules #(
      .LANE(LANE),
      .RULES(RULES),
      .ACTIONS_LOG2(ACTIONS_LOG2),
      .INFLIGHT_LOG2(INFLIGHT_LOG2)
  ) rules (
      .clk,
      .rst,
      .clear(clear_tables),
      .clear_busy(rules_clear_busy),
      .triggers,
      .hurry(pass_free <= (INFLIGHT_LOG2 + 1)'(1 << (INFLIGHT_LOG2 - 1))),
      .active(rules_active),
      .room(rules_room),
      .in_valid(in_valid && seek_in.ruled),
      .in_hdr,
      .in_trk,
      .out_valid(rule_valid),
      .out_ready(rule_pop),
      .out_fires(rule_fires),
      .out_last(rule_last),
      .out_untried(rule_untried),
      .out_rule(rule),
      .out_action(rule_action),
      .out_seen(rule_seen),
      .tbl_valid(host_state == HostWait && rule_slot),
      .tbl_req(host),
      .tbl_ack(rule_ack),
      .tbl_rdata(rule_rdata),
      .busy(rules_busy)
  );

  // ---- tokens: a hit each, or the end of a packet without one, or a slot for the host
  typedef struct packed {
    logic                    host;
    logic                    hit;
    logic                    rule;       // a rule that fires
    logic                    last;
    logic                    untried;    // with last: the packet passed rules untried
    logic [SlotW-1:0]        slot;
    logic [31:0]             packet_id;
    logic [ACTIONS_LOG2-1:0] action;     // of the rule
    logic [7:0]              iteration;
  } token_t;
  logic found_begun, rules_turn, rules_next;
  logic [Ways:0] hits, hits_one, hits_left, hits_rest;
  token_t t0;
  logic   t0_valid;

  always_comb begin
    hits = '0;
    hits_one = '0;
    t0 = '0;
    t0_valid = token_slot;
    found_pop = 1'b0;
    rule_pop = 1'b0;
    rules_next = 1'b0;
    if (token_slot) begin
      t0.host = 1'b1;
      t0.slot = SlotW'(host.index);
    end else if (found_valid) begin
      hits = found_begun ? hits_left : found.hits;
      t0.packet_id = found.packet_id;
      if (rules_turn || (found.ruled && hits == '0)) begin
        t0_valid = rule_valid;
        rule_pop = rule_valid;
        t0.hit = rule_fires;
        t0.rule = rule_fires;
        t0.last = rule_last;
        t0.untried = rule_untried;
        t0.slot = SlotW'(rule);
        t0.slot[RuleSlotBit] = 1'b1;
        t0.action = rule_action;
        t0.iteration = rule_seen;
        found_pop = rule_valid && rule_last;
      end else begin
        t0_valid = 1'b1;
        hits_one = (Ways + 1)'(lowest(8'(hits)));
        for (int n = 0; n <= int'(Ways); n++) if (hits_one[n]) t0.slot = found.slots[n];
        t0.hit = hits != '0;
        if (hits == hits_one) begin
          // a result that does not fire is the last: the packet can end with this hit
          rule_pop   = found.ruled && rule_valid && !rule_fires;
          rules_next = found.ruled && !rule_pop;
          found_pop  = !rules_next;
          t0.last    = found.last && !rules_next;
          t0.untried = rule_pop && rule_untried;
        end
      end
    end
    hits_rest = hits & ~hits_one;
  end

  always_ff @(posedge clk) begin
    if (t0_valid && !t0.host) begin
      hits_left   <= hits_rest;
      found_begun <= !found_pop;
      rules_turn  <= !found_pop && (rules_turn || rules_next);
    end
    if (rst) begin
      found_begun <= 1'b0;
      rules_turn  <= 1'b0;
    end
  end

  // ---- count and choose a clause
  logic clearing_slots;
  logic [SLOTS_LOG2-1:0] clear_slot;
  logic slot_rd, slot_wr;
  slot_t slot_read, slot;
  logic t0_slot;  // an exact event
  assign t0_slot = t0.hit && !t0.rule;
  assign slot_rd = t0_slot || (t0.host && host.tbl == TblSlot && !host.write);
  assign slot_wr = t0.host && host.tbl == TblSlot && host.write;

  mw_ram #(
      .WIDTH($bits(slot_t)),
      .ROWS_LOG2(SLOTS_LOG2)
  ) slots (
      .clk,
      .wr_en  (slot_wr || clearing_slots),
      .wr_row (clearing_slots ? clear_slot : t0.slot[SLOTS_LOG2-1:0]),
      .wr_data(clearing_slots ? '0 : slot_t'(host.wdata[$bits(slot_t)-1:0])),
      .rd_en  (slot_rd),
      .rd_row (t0.slot[SLOTS_LOG2-1:0]),
      .rd_data(slot_read)
  );

  logic   [6:1] t_valid;
  token_t [6:1] t;

  // Each slot counts once a packet; a repeat is read along, and no hit from t2 on.
  localparam int unsigned Counted = 4;  // slots remembered
  logic [Counted-1:0] counted_valid;
  logic [SlotW-1:0] counted[Counted];
  logic t1_hit;
  always_comb begin
    t1_hit = t[1].hit;
    for (int n = 0; n < int'(Counted); n++)
    if (counted_valid[n] && counted[n] == t[1].slot) t1_hit = 1'b0;
  end
  always_ff @(posedge clk) begin
    if (t_valid[1] && !t[1].host) begin
      if (t1_hit && !t[1].rule) begin
        counted[0] <= t[1].slot;
        for (int n = 1; n < int'(Counted); n++) counted[n] <= counted[n-1];
        counted_valid <= {counted_valid[Counted-2:0], 1'b1};
      end
      if (t[1].last) counted_valid <= '0;
    end
    if (rst) counted_valid <= '0;
  end

  slot_state_t state, state_next;
  logic state_busy, state_valid, state_update;

  mw_rmw_ram #(
      .WIDTH($bits(slot_state_t)),
      .ROWS_LOG2(SLOTS_LOG2)
  ) states (
      .clk,
      .rst,
      .clear(clear_tables),
      .busy(state_busy),
      .in_valid(t0_slot || (t0.host && host.tbl == TblState)),
      .in_row(t0.slot[SLOTS_LOG2-1:0]),
      .out_valid(state_valid),
      .out_data(state),
      .upd_valid(state_update),
      .upd_data(state_next)
  );

  logic fires, t4_fires, t5_fires, t6_fires;
  logic [ACTIONS_LOG2-1:0] fires_action;
  logic [ACTIONS_LOG2-1:0] t4_action;
  logic [7:0] iteration, t4_iteration, t5_iteration, t6_iteration;
  // Times that the position was seen before, at which a clause is carried out.
  typedef struct packed {
    logic       open;     // no trigger guards it, or one that is armed
    logic [7:0] least;
    logic [7:0] below;
    logic       endless;
  } range_t;
  range_t [Clauses-1:0] range;

  always_comb begin
    automatic logic [7:0] seen;
    fires = 1'b0;
    fires_action = '0;
    iteration = '0;
    state_next = state;
    state_update = 1'b0;
    if (t_valid[3] && t[3].host && host.tbl == TblState && host.write) begin
      state_next   = slot_state_t'(host.wdata[$bits(slot_state_t)-1:0]);
      state_update = 1'b1;
    end
    if (t_valid[3] && t[3].rule) begin
      fires = 1'b1;
      fires_action = t[3].action;
      iteration = t[3].iteration;
    end else if (t_valid[3] && t[3].hit) begin
      state_update = 1'b1;
      seen = state.seen[23:8] != '0 ? '1 : state.seen[7:0];
      if (state.seen != '1) state_next.seen = state.seen + 1'b1;
      iteration = seen >= 8'd254 ? 8'd255 : seen + 1'b1;
      for (int n = int'(Clauses) - 1; n >= 0; n--)
      if (range[n].open && seen >= range[n].least && (range[n].endless || seen < range[n].below)) begin
        fires = 1'b1;
        fires_action = slot.clause[n].action[ACTIONS_LOG2-1:0];
      end
      if (fires) begin
        if (state.fired != '1) state_next.fired = state.fired + 1'b1;
        state_next.last_packet_id = t[3].packet_id;
      end
    end
  end

  always_ff @(posedge clk) begin
    if (t0_valid || t_valid != '0) begin
      t6_fires <= t5_fires;
      t6_iteration <= t5_iteration;
      t5_fires <= t4_fires;
      t5_iteration <= t4_iteration;
      if (t_valid[3]) begin
        t4_fires <= fires;
        t4_action <= t[3].host ? host.index[ACTIONS_LOG2-1:0] : fires_action;
        t4_iteration <= iteration;
      end
      if (t_valid[2]) begin
        for (int n = 0; n < int'(Clauses); n++) begin
          automatic clause_range_t r = slot_read.clause[n].range;
          range[n].open <= r.valid && (!r.guarded || triggers[r.trigger]);
          range[n].least <= r.first == '0 ? '0 : r.first - 1'b1;
          range[n].below <= r.last;
          // the iteration stays at 255, so a range up to 255 has no end
          range[n].endless <= r.last == '1;
        end
        slot <= slot_read;
      end
      t <= {t[5:1], t0};
      t[2].hit <= t1_hit;
      t_valid <= {t_valid[5:1], t0_valid};
    end
    if (rst) t_valid <= '0;
  end

  action_t action_read;
  logic action_rd, action_wr;
  assign action_rd = t_valid[4] && (t4_fires || (t[4].host && !host.write));
  assign action_wr = t_valid[4] && t[4].host && host.write && host.tbl == TblAction;
  mw_ram #(
      .WIDTH($bits(action_t)),
      .ROWS_LOG2(ACTIONS_LOG2)
  ) actions (
      .clk,
      .wr_en  (action_wr),
      .wr_row (t4_action),
      .wr_data(action_t'(host.wdata[$bits(action_t)-1:0])),
      .rd_en  (action_rd),
      .rd_row (t4_action),
      .rd_data(action_read)
  );

  // ---- join what a packet's slots ask for
  typedef struct packed {
    action_t          action;
    logic             hit;
    logic             fired;
    logic             multi;
    logic [SlotW-1:0] slot;
    logic [7:0]       iteration;
  } joined_t;
  joined_t so_far;
  logic t6_packet;
  assign t6_packet = t_valid[6] && !t[6].host;
  assign pass_pop  = t6_packet && t[6].last;

  always_ff @(posedge clk) begin
    if (t6_packet) begin
      automatic joined_t joined = so_far;
      if (t[6].hit) begin
        joined.hit   = 1'b1;
        joined.multi = so_far.hit;
        joined.fired = so_far.fired || t6_fires;
        // the first that acts, or else the first that was hit
        if (!so_far.hit || (t6_fires && !so_far.fired)) begin
          joined.slot = t[6].slot;
          joined.iteration = t6_iteration;
        end
        if (t6_fires) joined.action = join_actions(so_far.action, action_read);
      end
      so_far <= t[6].last ? '0 : joined;
      if (t[6].last) begin
        automatic done_t done = asked(joined.action);
        out_verdict.stamp <= pass.stamp;
        out_verdict.action <= joined.action;
        out_verdict.touched <= done != '0;
        out_verdict.layout <= pass.layout;
        out_verdict.rec <= pass.rec;
        out_verdict.rec.unmatched <= pass.rec.unmatched || t[6].untried;
        out_verdict.rec.done <= done;
        if (joined.hit) begin
          out_verdict.rec.slot <= joined.slot;
          out_verdict.rec.iteration <= joined.iteration;
          out_verdict.rec.multi <= joined.multi;
        end
      end
    end
    if (rst) so_far <= '0;
  end

  always_ff @(posedge clk) begin
    // every event that fires works its own trigger
    if (t6_packet || |trigger_arm || |trigger_disarm) begin
      automatic logic fired = t6_packet && t6_fires;
      trigger_arm <= fired && action_read.arm ? Triggers'(1) << action_read.arm_trigger : '0;
      trigger_disarm <= fired && action_read.disarm ? Triggers'(1) << action_read.disarm_trigger
                                                    : '0;
    end
    if (rst) begin
      trigger_arm <= '0;
      trigger_disarm <= '0;
    end
    out_valid <= pass_pop && !rst;
    cnt_unmatched <= pass_pop && (pass.rec.unmatched || t[6].untried) && !rst;
    cnt_malformed <= pass_pop && pass.rec.malformed && !rst;
  end

  // ---- the host's accesses: a slot of the look-ups, or a token
  slot_state_t host_count;
  slot_t host_slot;
  assign host_mine = tbl_req.tbl == TblAction || (tbl_req.lane == LANE &&
      (tbl_req.tbl inside {TblExact, TblPage, TblSlot, TblState, TblRule, TblRuleState}));
  assign exact_slot = host_state == HostSlot && host.tbl == TblExact;
  assign page_slot = host_state == HostSlot && host.tbl == TblPage;
  assign rule_slot = host.tbl == TblRule || host.tbl == TblRuleState;
  assign token_slot = host_state == HostSlot && !exact_slot && !page_slot && !rule_slot;
  assign tbl_ack = host_state == HostAck && (host.tbl != TblAction || !LANE);

  always_ff @(posedge clk) begin
    if (state_valid && t[3].host) host_count <= state;
    if (t_valid[3] && t[3].host) host_slot <= slot;
    if (host_state != HostIdle || (tbl_req.valid && host_mine && !clear_busy))
      unique case (host_state)
        HostIdle: host_state <= HostSlot;
        HostSlot: host_state <= HostWait;
        HostWait:
        if (exact_host_done || page_host_done || rule_ack || (t_valid[6] && t[6].host)) begin
          host_state <= HostAck;
          unique case (host.tbl)
            TblExact: tbl_rdata <= TblW'(exact_row);
            TblPage: tbl_rdata <= TblW'(page_row);
            TblSlot: tbl_rdata <= TblW'(host_slot);
            TblState: tbl_rdata <= TblW'(host_count);
            TblRule, TblRuleState: tbl_rdata <= rule_rdata;
            default: tbl_rdata <= TblW'(action_read);
          endcase
        end
        default:  host_state <= HostIdle;
      endcase
    if (rst) host_state <= HostIdle;
  end
  always_ff @(posedge clk) if (host_state == HostIdle && tbl_req.valid) host <= tbl_req;

  // ---- clear: let what is in flight come to rest, then empty the tables
  localparam int unsigned DrainW = 8;  // a full `found` FIFO of five hits each, and the pipeline
  typedef enum logic [1:0] {
    ClearIdle,
    ClearDrain,
    ClearStart,
    ClearWalk
  } clear_e;
  clear_e clear_state;
  logic [DrainW-1:0] drain;
  assign clear_busy   = clear_state != ClearIdle;
  assign clear_tables = clear_state == ClearStart;

  always_ff @(posedge clk) begin
    if (clear || clear_busy) begin
      if (clearing_slots) clear_slot <= clear_slot + 1'b1;
      unique case (clear_state)
        ClearIdle: clear_state <= ClearDrain;
        ClearDrain: begin
          if (&drain) clear_state <= ClearStart;
          drain <= rules_busy ? '0 : drain + 1'b1;
        end
        ClearStart: clear_state <= ClearWalk;
        ClearWalk:
        if (!exact_busy && !page_busy && !state_busy && !clearing_slots && !rules_clear_busy)
          clear_state <= ClearIdle;
      endcase
      clearing_slots <= clear_tables || (clearing_slots && !(&clear_slot));
    end
    if (rst) begin
      clear_state <= ClearIdle;
      drain <= '0;
      clearing_slots <= 1'b0;
      clear_slot <= '0;
    end
  end

  assign busy = !pass_free[INFLIGHT_LOG2] || out_valid || host_state != HostIdle || clear_busy ||
      |trigger_arm || |trigger_disarm;
endmodule
