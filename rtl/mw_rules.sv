// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Rules of a lane: each is compared with every packet, by connection, kind, position, and
// whether the packet is new. Of those that a packet passes, one a clock is counted, tried
// (every n-th, a chance, at most so many times), and given out with its action if it fires.
//
// The way of a packet: two stages that compare it with all rules (s0: which of its positions
// each is about; s1: whether it is in the range), a FIFO for the rules that it passed, and one
// pipeline for these, the lowest first. Each packet gives at least one result, the last with
// `out_last`, in the packets' order. The host's accesses go the same way, so a packet is judged
// by the whole of a rule as it was, or as it became.
//
// A decision by chance is Threefry of {seed, connection, lane, kind} and {position, again},
// so it is a function of seed and identity alone. A chain of bursts draws with the rule's
// own count instead, and so does the same for the same sequence of packets.
module mw_rules
  import mw_pkg::*;
#(
    parameter bit LANE = 1'b0,  // 0: A to B, 1: B to A
    parameter int unsigned RULES = 64,  // a power of two, 2 to 1024
    parameter int unsigned ACTIONS_LOG2 = 8,  // action programs, log2, 1 to 16
    parameter int unsigned INFLIGHT_LOG2 = 8,  // packets that wait, log2, from 3
    localparam int unsigned RuleW = $clog2(RULES)
) (
    input logic clk,
    input logic rst,
    input logic clear,  // disable all rules, forget their state
    output logic clear_busy,  // at it; nothing may be in flight
    input logic [Triggers-1:0] triggers,  // those that are armed
    input logic hurry,  // no rule is tried on packets that wait
    output logic active,  // a rule is enabled
    output logic room,  // for one more packet
    input logic in_valid,
    input header_t in_hdr,
    input track_t in_trk,
    output logic out_valid,
    input logic out_ready,
    output logic out_fires,
    output logic out_last,  // of the packet
    output logic out_untried,  // of the packet: it passed rules that were not tried
    output logic [RuleW-1:0] out_rule,
    output logic [ACTIONS_LOG2-1:0] out_action,
    output logic [7:0] out_seen,  // n-th packet that passed; saturates
    input logic tbl_valid,  // tbl_req is for this lane's rules
    input tbl_req_t tbl_req,
    output logic tbl_ack,
    output logic [TblW-1:0] tbl_rdata,
    output logic busy
);
  if (RULES < 2 || RULES > 1024 || (RULES & (RULES - 1)) != 0 || ACTIONS_LOG2 < 1 ||
      ACTIONS_LOG2 > 16 || INFLIGHT_LOG2 < 3) begin : g_bad
    $fatal(1, "mw_rules: parameter out of range");
  end

  // What the stages behind the comparison need of a packet.
  typedef struct packed {
    logic [31:0]      packet_id;
    logic [ConnW-1:0] conn;
    kind_e            kind;
    logic [31:0]      pos_any;
    logic [31:0]      pos_kind;
    logic [31:0]      pos_fin;
    logic [31:0]      first;      // byte
    logic [31:0]      again;
  } facts_t;

  function automatic logic has(input logic [Kinds-1:0] kinds, input kind_e kind);
    logic [15:0] all;
    all = 16'(kinds);
    return all[4'(kind)];
  endfunction
  // The next number; all ones stay. The carry tells these sooner than a comparison.
  function automatic logic [31:0] next_of(input logic [31:0] number);
    logic [32:0] sum;
    sum = 33'(number) + 33'd1;
    return sum[31:0] | {32{sum[32]}};
  endfunction

  // ---- the host's access: takes the place of a packet, reads and writes where it comes by
  rule_t host_row;
  logic host_slot, host_away, host_write;
  logic [RuleW-1:0] host_rule;
  assign host_row   = rule_t'(tbl_req.wdata[$bits(rule_t)-1:0]);
  assign host_rule  = RuleW'(tbl_req.index);
  assign host_write = tbl_req.write && tbl_req.tbl == TblRule;
  assign host_slot  = tbl_valid && !host_away && room && !in_valid;

  // ---- compare
  rule_filter_t filter[RULES];
  logic [RULES-1:0] enabled;
  assign active = enabled != '0;

  logic s0_valid, s1_valid, s2_valid;
  logic s0_host, s1_host, s2_host;
  facts_t s0, s1, s2;
  proto_e s0_proto;
  logic s0_tracked, s0_again, s0_fin, s0_bytes;
  logic [47:0] s0_first, s0_last, s1_first, s1_last;
  logic [31:0] s1_position[RULES];
  logic [RULES-1:0] s1_bytes, s1_fits, s1_open, s2_above, s2_below, s2_counts;

  always_ff @(posedge clk) begin
    if (in_valid || host_slot || s0_valid || s1_valid || s2_valid) begin
      if (s1_valid) s2_host <= s1_host;
      if (s1_valid && !s1_host) begin
        automatic logic [RULES-1:0] above = '0;
        automatic logic [RULES-1:0] below = '0;
        automatic logic [RULES-1:0] counts = '0;
        for (int r = 0; r < int'(RULES); r++)
        if (s1_fits[r] && s1_open[r]) begin
          automatic rule_filter_t f = filter[r];
          // bytes: it covers one of the range
          above[r]  = (s1_bytes[r] ? s1_last : 48'(s1_position[r])) >= f.first;
          below[r]  = (s1_bytes[r] ? s1_first : 48'(s1_position[r])) <= f.last;
          counts[r] = f.measure == MeasureCount;
        end
        s2 <= s1;
        s2_above <= above;
        s2_below <= below;
        s2_counts <= counts;
      end
      if (s0_valid) s1_host <= s0_host;
      if (s0_valid && !s0_host) begin
        automatic logic [RULES-1:0] fits = '0;
        automatic logic [RULES-1:0] opens = '0;
        automatic logic [31:0] position[RULES] = s1_position;
        for (int r = 0; r < int'(RULES); r++)
        if (enabled[r]) begin
          automatic rule_filter_t f = filter[r];
          automatic logic any = f.kinds[KindAny];
          automatic logic own = has(f.kinds, s0.kind);
          automatic logic fin = f.kinds[KindFin] && s0_fin;
          automatic logic bytes = f.measure == MeasureByte;
          automatic logic scope;
          unique case (f.scope)
            ScopeConn:    scope = s0_tracked && s0.conn == f.conn;
            ScopeTracked: scope = s0_tracked;
            ScopePlain:   scope = !s0_tracked;
            default:      scope = 1'b1;
          endcase
          position[r] = any ? s0.pos_any : own ? s0.pos_kind : s0.pos_fin;
          s1_bytes[r] <= bytes;
          opens[r] = !f.guarded || triggers[f.trigger];
          fits[r] = scope && (any || own || fin) && f.protos[s0_proto] &&
              (s0_again ? f.again : f.fresh) && (!bytes || s0_bytes);
        end
        s1 <= s0;
        s1_position <= position;
        s1_first <= s0_first;
        s1_last <= s0_last;
        s1_fits <= fits;
        s1_open <= opens;
      end
      if (in_valid) begin
        automatic logic data = in_hdr.proto == ProtoTcp && in_trk.kind == KindData;
        s0 <= '{
            packet_id: in_hdr.packet_id,
            conn: in_trk.conn,
            kind: in_trk.kind,
            pos_any: in_trk.pos_any,
            pos_kind: data && !in_trk.is_new ? '0 : in_trk.pos_kind,
            pos_fin: in_trk.pos_fin,
            first: in_trk.rel[31:0],
            again: in_trk.again
        };
        s0_proto <= in_hdr.proto;
        s0_tracked <= in_trk.conn != ConnNone;
        s0_again <= in_trk.below;
        s0_fin <= in_trk.kind == KindData && in_trk.kinds[KindFin];
        s0_bytes <= data;
        s0_first <= in_trk.rel;
        s0_last <= in_trk.rel + 48'(in_hdr.payload_len) - 48'd1;
      end
      s2_valid <= s1_valid;
      s1_valid <= s0_valid;
      s0_valid <= in_valid || host_slot;
      s0_host  <= host_slot;
    end
    if (rst) begin
      s0_valid <= 1'b0;
      s1_valid <= 1'b0;
      s2_valid <= 1'b0;
    end
  end

  // ---- wait
  localparam int unsigned Compared = 4;  // packets that may be on their way to the FIFO
  typedef struct packed {
    facts_t facts;
    logic host;
    logic [RULES-1:0] hits;
  } wait_t;
  wait_t waits, head;
  always_comb begin
    waits = '0;
    if (s2_valid) begin
      waits.facts = s2;
      waits.host  = s2_host;
      waits.hits  = s2_host ? '0 : (s2_above & s2_below) | s2_counts;
    end
  end
  logic head_valid, head_pop;
  logic [INFLIGHT_LOG2:0] wait_free;
  mw_fifo #(
      .WIDTH($bits(wait_t)),
      .DEPTH_LOG2(INFLIGHT_LOG2),
      .READ(2)
  ) wait_fifo (
      .clk,
      .rst,
      .in_valid(s2_valid),
      .in_ready(),
      .in_data(waits),
      .out_valid(head_valid),
      .out_ready(head_pop),
      .out_data(head),
      .free(wait_free)
  );
  // A clock late: one more may have come.
  always_ff @(posedge clk) room <= wait_free > (INFLIGHT_LOG2 + 1)'(Compared + 1);

  // ---- c0: one rule that the packet passed, or none, or the host
  localparam int unsigned Flight = 25;  // c0 to the results' FIFO
  localparam int unsigned ResultLog2 = 6;
  logic [ResultLog2:0] result_free;
  logic fit, todo_valid, todo_host, todo_last, take, last, head_take;
  facts_t todo;
  logic [RULES-1:0] todo_one, todo_rest;  // the rule that is next, and those behind it

  // The bits above the lowest that is set.
  function automatic logic [RULES-1:0] above_lowest(input logic [RULES-1:0] bits);
    above_lowest = bits << 1;
    for (int i = 1; i < int'(RULES); i *= 2) above_lowest |= above_lowest << i;
  endfunction

  // A clock late: one more may have come.
  always_ff @(posedge clk) fit <= result_free > (ResultLog2 + 1)'(Flight + 2) && !rst;

  assign last = todo_last || hurry;
  assign take = todo_valid && fit;
  assign head_take = !todo_valid || (take && last);
  assign head_pop = head_valid && head_take;

  logic [Flight:0] valid;  // by stage
  logic c0_host, c0_last, c0_untried;
  logic [RULES-1:0] c0_one;
  facts_t c0;
  always_ff @(posedge clk) begin
    if (take) begin
      c0 <= todo;
      c0_one <= hurry ? '0 : todo_one;
      c0_last <= last;
      c0_untried <= hurry && todo_one != '0;
      c0_host <= todo_host;
    end
    if (take || head_pop) begin
      automatic logic [RULES-1:0] hits = head_pop ? head.hits : todo_rest;
      automatic logic [RULES-1:0] rest = hits & above_lowest(hits);
      todo_one  <= hits & ~rest;
      todo_rest <= rest;
      todo_last <= rest == '0;
    end
    if (head_pop) begin
      todo <= head.facts;
      todo_host <= head.host;
    end
    if (head_take) todo_valid <= head_valid;
    if (take || valid != '0) valid <= {valid[Flight-1:0], take};
    if (rst) begin
      todo_valid <= 1'b0;
      valid <= '0;
    end
  end

  // ---- c1 to c3: read the rule and its count
  typedef struct packed {
    logic             host;
    logic             hit;
    logic             last;
    logic             untried;
    logic [RuleW-1:0] rule;
  } item_t;
  item_t c1_item, c2_item, c3_item, c4_item;
  facts_t c1, c2, c3, c4;
  rule_t c4_row;  // all but the chance
  logic clearing;
  logic [RuleW-1:0] clear_rule;
  logic c1_write;
  assign c1_write = valid[1] && c1_item.host && host_write;

  localparam int unsigned EarlyW = $bits(rule_t) - $bits(rule_chance_t) + 1;  // up to `burst`
  localparam int unsigned LateW = $bits(rule_chance_t);  // from `burst` on
  logic [EarlyW-1:0] early_read;
  rule_chance_t late_read;
  mw_ram #(
      .WIDTH(EarlyW),
      .ROWS_LOG2(RuleW)
  ) early (
      .clk,
      .wr_en  (c1_write || clearing),
      .wr_row (clearing ? clear_rule : c1_item.rule),
      .wr_data(clearing ? '0 : host_row[EarlyW-1:0]),
      .rd_en  (valid[1] && (c1_item.hit || c1_item.host)),
      .rd_row (c1_item.rule),
      .rd_data(early_read)
  );

  logic seen_busy, seen_valid, seen_update;
  logic [31:0] seen, seen_next;
  mw_rmw_ram #(
      .WIDTH(32),
      .ROWS_LOG2(RuleW)
  ) counts (
      .clk,
      .rst,
      .clear,
      .busy(seen_busy),
      .in_valid(valid[1] && (c1_item.hit || c1_item.host)),
      .in_row(c1_item.rule),
      .out_valid(seen_valid),
      .out_data(seen),
      .upd_valid(seen_update),
      .upd_data(seen_next)
  );
  assign seen_update = seen_valid && (!c4_item.host || host_write);
  assign seen_next   = c4_item.host ? '0 : next_of(seen);

  // ---- c4 and c5: position; c6: distance; c7 to c10: every n-th
  typedef struct packed {
    logic [31:0]      packet_id;
    logic [ConnW-1:0] conn;
    kind_e            kind;       // the first of those that the rule wants, and the position
    logic [31:0]      position;   // among these
    logic [31:0]      first;      // byte
    logic [31:0]      again;
  } placed_t;
  item_t c5_item;
  logic c6_hit, c7_hit, c8_hit, c9_hit, c10_hit;
  placed_t c5;
  rule_t c5_row;
  logic [31:0] c5_count;
  logic c6_above, c6_below, c7_inside, c8_inside, c9_inside, c10_inside, c11_selected;
  logic [31:0] c6_position, c6_first, c7_distance, c8_low, c9_product, c10_rotated;
  logic [15:0] c8_cross_a, c8_cross_b;
  rule_stride_t c6_stride;
  logic [31:0] c7_inverse;
  logic [4:0] c7_shift, c8_shift, c9_shift;
  logic [31:0] c7_limit, c8_limit, c9_limit, c10_limit;
  logic [1:0][31:0] c6_key, c6_counter;

  // Without an enable, which would tie these registers to others, they can lie at the multipliers.
  always_ff @(posedge clk) begin
    c8_low <= c7_distance[15:0] * c7_inverse[15:0];
    c8_cross_a <= c7_distance[31:16] * c7_inverse[15:0];
    c8_cross_b <= c7_distance[15:0] * c7_inverse[31:16];
    c7_distance <= c6_position - c6_first;
    c7_inverse <= c6_stride.inverse;
  end
  always_ff @(posedge clk)
    if (valid != '0) begin
      if (valid[10] && c10_hit) c11_selected <= c10_inside && c10_rotated <= c10_limit;
      if (valid[9]) begin
        c10_hit <= c9_hit;
        c10_inside <= c9_inside;
        c10_limit <= c9_limit;
        c10_rotated <= 32'({c9_product, c9_product} >> c9_shift);
      end
      if (valid[8]) begin
        c9_hit <= c8_hit;
        c9_inside <= c8_inside;
        c9_shift <= c8_shift;
        c9_limit <= c8_limit;
        c9_product <= c8_low + {c8_cross_a, 16'd0} + {c8_cross_b, 16'd0};
      end
      if (valid[7]) begin
        c8_hit <= c7_hit;
        c8_inside <= c7_inside;
        c8_shift <= c7_shift;
        c8_limit <= c7_limit;
      end
      if (valid[6]) begin
        c7_hit <= c6_hit;
        c7_inside <= c6_above && c6_below;
        c7_shift <= c6_stride.shift;
        c7_limit <= c6_stride.limit;
      end
      if (valid[5]) begin
        c6_hit <= c5_item.hit;
        if (c5_item.hit) begin
          automatic rule_filter_t f = c5_row.filter;
          automatic logic [31:0] position = c5.position;
          automatic logic [31:0] stream = {c5.conn, 11'd0, LANE, 4'(c5.kind)};
          if (f.measure == MeasureByte) position = c5.first;
          if (f.measure == MeasureCount) position = c5_count;
          c6_above <= f.measure != MeasureCount || 48'(c5_count) >= f.first;
          c6_below <= f.measure != MeasureCount || 48'(c5_count) <= f.last;
          c6_position <= position;
          c6_first <= f.first[31:0];
          c6_stride <= c5_row.stride;
          c6_counter <= {c5.again, position};
          if (c5_row.chance.burst) begin
            stream = {ConnNone, 11'd0, LANE, 4'(KindOther)};
            c6_counter <= {32'hFFFF_FFFF, c5_count};
          end
          c6_key <= {c5_row.seed[63:32], c5_row.seed[31:0] ^ stream};
        end
      end
      if (valid[4]) begin
        c5_item <= c4_item;
        if (c4_item.hit) begin
          automatic logic [31:0] position = c4.pos_fin;
          automatic kind_e kind = KindFin;
          if (has(c4_row.filter.kinds, c4.kind)) begin
            position = c4.pos_kind;
            kind = c4.kind;
          end
          if (c4_row.filter.kinds[KindAny]) begin
            position = c4.pos_any;
            kind = KindAny;
          end
          c5 <= '{
              packet_id: c4.packet_id,
              conn: c4.conn,
              kind: kind,
              position: position,
              first: c4.first,
              again: c4.again
          };
          c5_row <= c4_row;
          c5_count <= seen_next;
        end
      end
      if (valid[3]) begin
        c4_item <= c3_item;
        c4_row <= rule_t'(early_read);
        c4 <= c3;
      end
      if (valid[2]) begin
        c3_item <= c2_item;
        c3 <= c2;
      end
      if (valid[1]) begin
        c2_item <= c1_item;
        c2 <= c1;
      end
      if (valid[0]) begin
        automatic logic [RuleW-1:0] rule = '0;
        for (int r = 0; r < int'(RULES); r++) if (c0_one[r]) rule |= RuleW'(r);
        c1_item.host <= c0_host;
        c1_item.hit <= c0_one != '0;
        c1_item.last <= c0_last;
        c1_item.untried <= c0_untried;
        c1_item.rule <= c0_host ? host_rule : rule;
        c1 <= c0;
      end
    end

  // ---- c6 to c23: draw, while the item waits beside
  localparam int unsigned Draw = 6;  // stage that asks
  localparam int unsigned Drawn = 23;
  logic [1:0][31:0] random;
  mw_threefry u_threefry (
      .clk,
      .rst,
      .in_valid(valid[Draw] && c6_hit),
      .in_key(c6_key),
      .in_counter(c6_counter),
      .out_valid(),
      .out_random(random)
  );

  typedef struct packed {
    item_t       item;
    logic [31:0] packet_id;
    logic [7:0]  seen;
  } beside_t;
  localparam int unsigned BesideLog2 = 5;
  localparam int unsigned Recall = 20;  // stage that takes it up again
  beside_t beside[1 << BesideLog2], c21, c22, c23, c24;
  logic selected[1 << BesideLog2];
  logic c21_selected, c22_selected, c23_selected, c24_selected;
  logic [BesideLog2-1:0] beside_in, selected_in, beside_out;

  always_ff @(posedge clk) begin
    if (valid[5])
      beside[beside_in] <= '{
          item: c5_item,
          packet_id: c5.packet_id,
          seen: c5_count[31:8] != '0 ? '1 : c5_count[7:0]
      };
    if (valid[11]) selected[selected_in] <= c11_selected;
  end
  always_ff @(posedge clk) begin
    if (valid != '0) begin
      if (valid[23]) begin
        c24 <= c23;
        c24_selected <= c23_selected;
      end
      if (valid[22]) begin
        c23 <= c22;
        c23_selected <= c22_selected;
      end
      if (valid[21]) begin
        c22 <= c21;
        c22_selected <= c21_selected;
      end
      if (valid[Recall]) begin
        c21 <= beside[beside_out];
        c21_selected <= selected[beside_out];
        beside_out <= beside_out + 1'b1;
      end
      if (valid[11]) selected_in <= selected_in + 1'b1;
      if (valid[5]) beside_in <= beside_in + 1'b1;
    end
    if (rst) begin
      beside_in   <= '0;
      selected_in <= '0;
      beside_out  <= '0;
    end
  end

  // ---- c21 to c24: what the rule makes of the draw
  logic c21_live;
  assign c21_live = valid[21] && (c21.item.hit || c21.item.host);
  mw_ram #(
      .WIDTH(LateW),
      .ROWS_LOG2(RuleW)
  ) late (
      .clk,
      .wr_en  ((c21_live && c21.item.host && host_write) || clearing),
      .wr_row (clearing ? clear_rule : c21.item.rule),
      .wr_data(clearing ? '0 : host_row.chance),
      .rd_en  (c21_live),
      .rd_row (c21.item.rule),
      .rd_data(late_read)
  );

  typedef struct packed {
    logic        bad;
    logic        spent;
    logic [31:0] fired;
    logic [31:0] last_packet_id;
  } fired_t;
  logic fired_busy, fired_valid, fired_update;
  fired_t fired, fired_next;
  mw_rmw_ram #(
      .WIDTH($bits(fired_t)),
      .ROWS_LOG2(RuleW)
  ) firings (
      .clk,
      .rst,
      .clear,
      .busy(fired_busy),
      .in_valid(c21_live),
      .in_row(c21.item.rule),
      .out_valid(fired_valid),
      .out_data(fired),
      .upd_valid(fired_update),
      .upd_data(fired_next)
  );

  function automatic logic falls(input logic [31:0] draw, input logic [31:0] chance);
    return draw < chance || (&chance);
  endfunction

  rule_chance_t c24_row;
  logic [31:0] c24_final;  // firings but one after which it is spent
  logic c24_limited, c24_fires_good, c24_fires_bad, c24_to_bad, c24_to_good;
  always_ff @(posedge clk) begin
    if (valid[Drawn]) begin
      automatic logic tried = c23.item.hit && c23_selected;
      c24_fires_good <= tried && falls(random[0], late_read.loss);
      c24_fires_bad  <= tried && falls(random[0], late_read.loss_bad);
      if (c23.item.hit || c23.item.host) begin
        c24_row <= late_read;
        c24_limited <= late_read.times != '0;
        c24_final <= late_read.times - 1'b1;
        c24_to_bad <= late_read.burst && falls(random[1], late_read.to_bad);
        c24_to_good <= falls(random[1], late_read.to_good);
      end
    end
  end

  // Only a burst becomes bad.
  logic fires;
  assign fires = (fired.bad ? c24_fires_bad : c24_fires_good) && !fired.spent;
  assign fired_update = fired_valid && (c24.item.host ? host_write : c24_selected);
  always_comb begin
    fired_next = fired;
    if (fired.bad ? c24_to_good : c24_to_bad) fired_next.bad = !fired.bad;
    if (fires) begin
      fired_next.fired = next_of(fired.fired);
      fired_next.spent = c24_limited && fired.fired == c24_final;
      fired_next.last_packet_id = c24.packet_id;
    end
    if (c24.item.host) fired_next = '0;
  end

  typedef struct packed {
    logic fires;
    logic last;
    logic untried;
    logic [RuleW-1:0] rule;
    logic [ACTIONS_LOG2-1:0] action;
    logic [7:0] seen;
  } result_t;
  result_t result_in, result;
  logic c25_push;
  always_ff @(posedge clk) begin
    if (valid[24]) begin
      result_in <= '{
          fires: fires,
          last: c24.item.last,
          untried: c24.item.untried,
          rule: c24.item.rule,
          action: c24_row.action[ACTIONS_LOG2-1:0],
          seen: c24.seen
      };
    end
    c25_push <= valid[24] && !c24.item.host && (fires || c24.item.last) && !rst;
  end
  mw_fifo #(
      .WIDTH($bits(result_t)),
      .DEPTH_LOG2(ResultLog2)
  ) result_fifo (
      .clk,
      .rst,
      .in_valid(c25_push),
      .in_ready(),
      .in_data(result_in),
      .out_valid,
      .out_ready,
      .out_data(result),
      .free(result_free)
  );
  assign out_fires = result.fires;
  assign out_last = result.last;
  assign out_untried = result.untried;
  assign out_rule = result.rule;
  assign out_action = result.action;
  assign out_seen = result.seen;

  // ---- the host
  logic [EarlyW-2:0] host_early;
  rule_chance_t host_late;
  rule_state_t host_count;
  always_ff @(posedge clk) begin
    if (host_slot || host_away) begin
      if (valid[3] && c3_item.host) host_early <= early_read[EarlyW-2:0];
      if (valid[4] && c4_item.host) host_count.seen <= seen;
      if (valid[24] && c24.item.host) begin
        host_late <= c24_row;
        host_count.bad <= fired.bad;
        host_count.fired <= fired.fired;
        host_count.last_packet_id <= fired.last_packet_id;
      end
      tbl_ack   <= valid[24] && c24.item.host;
      host_away <= host_slot || !tbl_ack;
    end
    if (rst) begin
      tbl_ack   <= 1'b0;
      host_away <= 1'b0;
    end
  end
  always_comb begin
    tbl_rdata = '0;
    if (tbl_ack)
      tbl_rdata = tbl_req.tbl == TblRule ? TblW'({host_late, host_early}) : TblW'(host_count);
  end

  // ---- enabled rules; clear
  always_ff @(posedge clk) begin
    if (s0_valid && s0_host && host_write) begin
      automatic logic [RULES-1:0] this_one = RULES'(1) << host_rule;
      filter[host_rule] <= host_row.filter;
      enabled <= host_row.filter.enable ? enabled | this_one : enabled & ~this_one;
    end
    if (clear || clearing) begin
      enabled  <= '0;
      clearing <= clear || !(&clear_rule);
      if (clearing) clear_rule <= clear_rule + 1'b1;
    end
    if (rst) begin
      enabled <= '0;
      clearing <= 1'b0;
      clear_rule <= '0;
    end
  end
  assign clear_busy = clearing || seen_busy || fired_busy;
  assign busy = in_valid || s0_valid || s1_valid || s2_valid || !wait_free[INFLIGHT_LOG2] || todo_valid ||
      valid != '0 || c25_push || !result_free[ResultLog2] || tbl_valid || clear_busy;
endmodule
