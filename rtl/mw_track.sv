// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Names each packet: which connection, what kinds, which position of each kind. Learns
// connections from SYN and from the first packet of a RoCE flow, if a selector admits them.
// Shared by both lanes, since a TCP connection has packets in both; one header a cycle.
//
// The way of a header: its lane's FIFO (room is promised upstream), key and selectors,
// flow table, state of {connection, lane}, out. A fixed 11 cycles from the FIFO's head.
//
// Positions are serial numbers relative to the first, extended about the highest seen: of
// the highest the 48-bit relative value is kept, and the 32 or 24 bits that the next new
// packet will carry. With the first kept beside them no sum waits for another: a packet's
// distance from the highest only says what its extension is. TCP data is new when it ends
// above the highest, whatever its start.
module mw_track
  import mw_pkg::*;
#(
    parameter int unsigned CONNS_LOG2     = 14,  // connections, log2, 1 to 15
    parameter int unsigned FLOW_ROWS_LOG2 = 14,  // rows of a way of the flow table, log2
    parameter int unsigned SELECTORS      = 8,   // a power of two, 1 to 256
    parameter int unsigned INFLIGHT_LOG2  = 8    // headers that a lane can have waiting, log2
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                enable,            // else all pass untracked
    input  logic                clear,             // forget everything but selectors
    output logic                clear_busy,        // at it; all pass untracked
    input  logic     [     1:0] in_valid,          // a lane each
    input  header_t  [     1:0] in_hdr,
    output logic     [     1:0] out_valid,
    output header_t  [     1:0] out_hdr,
    output track_t   [     1:0] out_trk,
    input  tbl_req_t            tbl_req,
    output logic                tbl_ack,
    output logic     [TblW-1:0] tbl_rdata,
    output logic     [    31:0] connections,       // learnt since clear
    output logic     [    31:0] connections_lost,  // packets that found a table full
    output logic                busy
);
  if (CONNS_LOG2 < 1 || CONNS_LOG2 > 15 || SELECTORS < 1 || SELECTORS > 256 ||
      (SELECTORS & (SELECTORS - 1)) != 0) begin : g_bad
    $fatal(1, "mw_track: CONNS_LOG2 must be 1 to 15 and SELECTORS a power of two up to 256");
  end

  localparam int unsigned Ways = 4;
  localparam int unsigned FlowRowW = 1 + $bits(flow_value_t) + FlowKeyW;
  localparam int unsigned FlowIndexW = FLOW_ROWS_LOG2 + $clog2(Ways);
  localparam int unsigned SelW = SELECTORS == 1 ? 1 : $clog2(SELECTORS);

  localparam int unsigned FlagFin = 0;
  localparam int unsigned FlagSyn = 1;
  localparam int unsigned FlagRst = 2;
  localparam int unsigned FlagAck = 4;
  localparam logic [7:0] OpReadRequest = 8'h0c;
  localparam logic [7:0] OpAck = 8'h11;
  localparam logic [7:0] OpAtomicAck = 8'h12;
  localparam logic [7:0] OpCnp = 8'h81;

  // What the stages behind the flow table need of a header, or a slot for the host.
  typedef struct packed {
    logic        host;
    logic        live;       // a packet that may be of a connection
    logic        lane;
    logic        roce;
    logic        admitted;   // opens a connection, and a selector wants it
    logic        opener_hi;
    logic        syn;
    logic        fin;
    logic        rst;
    logic        data;
    logic        ack;
    logic        nak;
    logic        cnp;
    logic        read;
    logic [31:0] first;      // sequence number of its first byte | PSN
    logic [31:0] last;       // one behind its last byte | PSN + 1
    logic [31:0] isn;
  } work_t;

  typedef struct packed {
    flow_key_t key;
    logic      opener_hi;
    logic      opener_lane;
    logic      valid;
  } opened_t;  // what the connection table keeps; the bases lie in the states

  typedef struct packed {
    logic        based;
    logic        begun;     // data has come
    logic [31:0] base;      // the first, as packets carry it, as the next one
    logic [31:0] next;      // one above the highest seen
    logic [47:0] highest;   // the same, relative to the first
    logic [31:0] segments;
    logic [31:0] again;     // packets that begin below the highest
    logic [31:0] any;
    logic [31:0] ack;
    logic [31:0] syn_nak;   // TCP | RoCE
    logic [31:0] fin_cnp;
    logic [31:0] rst;
  } state_t;

  // ---- wait for a turn; lanes take turns, the host's slots go first
  logic [1:0] wait_valid, take, wait_empty;
  logic turn;
  for (genvar l = 0; l < 2; l++) begin : g_lane
    header_t head;
    logic [INFLIGHT_LOG2:0] wait_free;
    assign wait_empty[l] = wait_free[INFLIGHT_LOG2];
    mw_fifo #(
        .WIDTH($bits(header_t)),
        .DEPTH_LOG2(INFLIGHT_LOG2)
    ) fifo (
        .clk,
        .rst,
        .in_valid(in_valid[l]),
        .in_ready(),
        .in_data(in_hdr[l]),
        .out_valid(wait_valid[l]),
        .out_ready(take[l]),
        .out_data(head),
        .free(wait_free)
    );
  end

  logic live;  // packets may be tracked now
  logic host_slot, host_lane;

  always_comb begin
    take = '0;
    if (!host_slot) begin
      if (wait_valid[turn]) take[turn] = 1'b1;
      else if (wait_valid[!turn]) take[!turn] = 1'b1;
    end
  end

  // ---- p1: the header at hand
  logic p1_valid, p1_host, p1_live, p1_lane;
  header_t p1_hdr;
  always_ff @(posedge clk) begin
    if (|take) begin
      p1_hdr  <= take[1] ? g_lane[1].head : g_lane[0].head;
      p1_live <= live;
    end
    if (|take || host_slot) p1_lane <= host_slot ? host_lane : take[1];
    p1_valid <= |take;
    p1_host  <= host_slot;
    if (|take) turn <= !take[1];
    if (rst) begin
      p1_valid <= 1'b0;
      p1_host <= 1'b0;
      turn <= 1'b0;
    end
  end

  // ---- p2: key, kinds, selectors
  select_t selector_value[SELECTORS], selector_mask[SELECTORS];

  logic p2_valid, p2_host;
  flow_key_t p2_key;
  logic p2_opens;
  header_t p2_hdr;
  work_t p2;

  always_ff @(posedge clk) begin
    p2_valid <= p1_valid && !rst;
    p2_host  <= p1_host && !rst;
    if (p1_valid || p1_host) begin
      p2.host <= p1_host;
      p2.lane <= p1_lane;
      p2.live <= 1'b0;
    end
    if (p1_valid) begin
      automatic header_t h = p1_hdr;
      automatic logic tcp = h.proto == ProtoTcp;
      automatic logic roce = h.proto == ProtoRoce;
      automatic logic syn = tcp && h.flags[FlagSyn];
      automatic logic fin = tcp && h.flags[FlagFin];
      automatic logic reset = tcp && h.flags[FlagRst];
      // what an RST carries is a text about it (RFC 9293, 3.5.3), not data
      automatic logic data = tcp && h.payload_len != '0 && !reset;
      automatic logic ack = h.f0[31:24] == OpAck;
      automatic logic opens = roce || (syn && !h.flags[FlagAck]);
      automatic logic src_hi = {h.src, h.sport} > {h.dst, h.dport};
      automatic
      select_t
      me = '{
          enable: 1'b1,
          lane: p1_lane,
          proto: h.proto,
          is_ip6: h.is_ip6,
          src: h.src,
          dst: h.dst,
          sport: h.sport,
          dport: roce ? h.qpn : 24'(h.dport)
      };
      automatic logic admitted = 1'b0;
      if (opens)
        for (int i = 0; i < int'(SELECTORS); i++)
        if (selector_value[i].enable && ((me ^ selector_value[i]) & selector_mask[i]) == '0)
          admitted = 1'b1;
      p2_hdr <= h;
      p2.live <= p1_live && (tcp || roce);
      p2.roce <= roce;
      p2.admitted <= admitted;
      p2.opener_hi <= tcp && src_hi;
      p2_opens <= opens;
      p2_key.proto <= h.proto;
      p2_key.is_ip6 <= h.is_ip6;
      p2_key.lo_addr <= tcp && src_hi ? h.dst : h.src;
      p2_key.hi_addr <= tcp && src_hi ? h.src : h.dst;
      p2_key.lo_port <= roce ? '0 : src_hi ? h.dport : h.sport;
      p2_key.hi_port <= roce ? h.qpn : 24'(src_hi ? h.sport : h.dport);
      p2.isn <= tcp ? h.f0 : '0;
      if (roce) begin
        p2.syn   <= 1'b0;
        p2.fin   <= 1'b0;
        p2.rst   <= 1'b0;
        p2.ack   <= (ack && h.f1[31:29] == '0) || h.f0[31:24] == OpAtomicAck;
        p2.nak   <= ack && h.f1[31:29] != '0;
        p2.cnp   <= h.f0[31:24] == OpCnp;
        p2.read  <= h.f0[31:24] == OpReadRequest;
        p2.data  <= !(h.f0[31:24] inside {OpAck, OpAtomicAck, OpCnp, OpReadRequest});
        p2.first <= 32'(h.f0[23:0]);
        p2.last  <= 32'(24'(h.f0[23:0] + 24'd1));
      end else begin
        p2.syn   <= syn;
        p2.fin   <= fin;
        p2.rst   <= reset;
        p2.ack   <= !syn && !fin && !reset && !data;
        p2.nak   <= 1'b0;
        p2.cnp   <= 1'b0;
        p2.read  <= 1'b0;
        p2.data  <= data;
        p2.first <= h.f0 + 32'(syn);
        p2.last  <= h.f0 + 32'(syn) + 32'(h.payload_len);
      end
    end
  end

  // ---- flow table, asked in p2, answering in p7
  localparam int unsigned Decide = 4, Answer = 5, Update = 8;  // cycles behind p2
  logic [Update:1] later_valid;  // work_t of p2, n cycles later: packets and the host's slots
  work_t later[1:Update];
  logic [Update:1] later_packet;

  logic flow_busy, found, inserted;
  logic flow_in, flow_slot;
  logic [FlowRowW-1:0] flow_row;
  flow_key_t answer_key;
  flow_value_t answer, insert_value;
  logic insert_allow, clear_tables;

  assign flow_slot = p2_host && tbl_req.tbl == TblFlow;
  assign flow_in   = (p2_valid && p2.live) || flow_slot;

  // The number that the look-up one cycle ahead takes is not yet in `connections`.
  logic answer_inserted;
  logic [ConnW-1:0] next_conn;
  assign answer_inserted = later_packet[Answer] && later[Answer].live && inserted;
  assign next_conn = connections[ConnW-1:0] + ConnW'(answer_inserted);

  always_comb begin
    insert_allow = later[Decide].admitted && !next_conn[CONNS_LOG2];
    insert_value = '{fixed: 1'b0, isn: later[Decide].isn, conn: next_conn};
  end

  mw_hash_table #(
      .KEY_W(FlowKeyW),
      .VAL_W($bits(flow_value_t)),
      .TAG_W(32),
      .ROWS_LOG2(FLOW_ROWS_LOG2),
      .WAYS(Ways),
      .INSERT(1'b1)
  ) flows (
      .clk,
      .rst,
      .clear(clear_tables),
      .busy(flow_busy),
      .in_valid(flow_in),
      .in_host(flow_slot),
      .in_key(p2_key),
      .in_tagged(p2_opens && !p2.roce),
      .in_tag(p2.isn),
      .host_write(tbl_req.write),
      .host_index(tbl_req.index[FlowIndexW-1:0]),
      .host_row(tbl_req.wdata[FlowRowW-1:0]),
      .ins_allow(insert_allow),
      .ins_value(insert_value),
      .out_valid(),
      .out_host(),
      .out_row(flow_row),
      .out_key(answer_key),
      .out_hit(found),
      .out_inserted(inserted),
      .out_full(),
      .out_value(answer),
      .out_match(),
      .out_values()
  );

  always_ff @(posedge clk) begin
    if (p2_valid || p2_host || later_valid != '0) begin
      for (int n = int'(Update); n >= 2; n--) later[n] <= later[n-1];
      later[1] <= p2;
      later_valid <= {later_valid[Update-1:1], p2_valid || p2_host};
      later_packet <= {later_packet[Update-1:1], p2_valid};
    end
    if (rst) begin
      later_valid  <= '0;
      later_packet <= '0;
    end
  end

  // ---- connection table and state, asked in p7, answering in p10
  logic answer_tracked, conn_slot;
  logic [CONNS_LOG2-1:0] conn;
  assign answer_tracked = later_packet[Answer] && later[Answer].live && (found || inserted);
  assign conn_slot = later_valid[Answer] && later[Answer].host && tbl_req.tbl == TblConn;
  assign conn = conn_slot ? tbl_req.index[CONNS_LOG2-1:0] : answer.conn[CONNS_LOG2-1:0];

  conn_info_t host_info;
  opened_t opened_write, opened_read;
  logic opened_we;
  logic clearing_conns;
  logic [CONNS_LOG2-1:0] clear_conn;
  assign host_info = conn_info_t'(tbl_req.wdata[$bits(conn_info_t)-1:0]);

  always_comb begin
    opened_we = 1'b0;
    opened_write = '0;
    if (answer_inserted) begin
      opened_we = 1'b1;
      opened_write.key = answer_key;
      opened_write.opener_hi = later[Answer].opener_hi;
      opened_write.opener_lane = later[Answer].lane;
      opened_write.valid = 1'b1;
    end else if (conn_slot && tbl_req.write) begin
      opened_we = 1'b1;
      opened_write = '{
          key: host_info.key,
          opener_hi: host_info.opener_hi,
          opener_lane: host_info.opener_lane,
          valid: host_info.valid
      };
    end
  end

  mw_ram #(
      .WIDTH($bits(opened_t)),
      .ROWS_LOG2(CONNS_LOG2)
  ) opened (
      .clk,
      .wr_en  (opened_we || clearing_conns),
      .wr_row (clearing_conns ? clear_conn : conn),
      .wr_data(opened_write),
      .rd_en  (conn_slot && !tbl_req.write),
      .rd_row (conn),
      .rd_data(opened_read)
  );

  logic state_busy, state_valid, state_update;
  state_t state, state_next;
  mw_rmw_ram #(
      .WIDTH($bits(state_t)),
      .ROWS_LOG2(CONNS_LOG2 + 1)
  ) states (
      .clk,
      .rst,
      .clear(clear_tables),
      .busy(state_busy),
      .in_valid(answer_tracked || conn_slot),
      .in_row({conn, later[Answer].lane}),
      .out_valid(state_valid),
      .out_data(state),
      .upd_valid(state_update),
      .upd_data(state_next)
  );

  // ---- p10: the position
  logic [ConnW-1:0] update_conn, conn_q[2];
  track_t trk;
  work_t  w;
  assign w = later[Update];

  // As serial numbers of 32 bits, or 24 of RoCE (RFC 1982).
  function automatic logic lies_below(input logic roce, input logic [31:0] number,
                                      input logic [31:0] than);
    return roce ? signed'(24'(number - than)) < 0 : signed'(number - than) < 0;
  endfunction
  // The number with these lower bits, 32 or 24 of RoCE, that lies less than half of what they can
  // count from the highest: below it, or not.
  function automatic logic [47:0] extended(input logic roce, input logic [47:0] highest,
                                           input logic [31:0] lower, input logic below);
    logic from, to;
    logic [23:0] upper, less, more;  // what lies above them
    from  = roce ? highest[23] : highest[31];
    to    = roce ? lower[23] : lower[31];
    upper = roce ? highest[47:24] : {8'd0, highest[47:32]};
    less  = upper - 1'b1;
    more  = upper + 1'b1;
    if (from != to && to == below) upper = below ? less : more;
    return roce ? {upper, lower[23:0]} : {upper[15:0], lower};
  endfunction

  always_comb begin
    automatic logic rebase, below, above, begins_below, brings, new_data;
    automatic logic [47:0] start_rel, stop_rel;
    state_next = state;
    state_update = 1'b0;
    trk = '0;
    trk.conn = ConnNone;
    trk.kind = KindOther;
    trk.kinds[KindAny] = 1'b1;
    if (state_valid && w.host) begin
      state_update = tbl_req.write;
      state_next = '0;
      state_next.based = host_info.base_valid[w.lane];
      state_next.base = host_info.base[w.lane];
      state_next.next = host_info.base[w.lane];
    end else if (state_valid) begin
      state_update = 1'b1;
      brings = w.data || w.read;
      // A SYN names the base, and once more as long as no data has come.
      rebase = state.based ? w.syn && !state.begun : w.syn || brings;
      // Against what was known; with a new base the packet is the first of all.
      below = lies_below(w.roce, w.first, state.next);
      above = w.roce ? !below : !lies_below(1'b0, w.last, state.next) && w.last != state.next;
      begins_below = below && !rebase;
      new_data = brings && (above || rebase);
      start_rel = extended(w.roce, state.highest, w.first - state.base, below);
      stop_rel = extended(w.roce, state.highest, w.last - state.base, 1'b0);
      if (rebase) begin
        start_rel = '0;
        stop_rel = '0;  // a packet is too short to change the bits that count
        state_next.based = 1'b1;
        state_next.base = w.first;
        state_next.next = w.first;
      end
      if (new_data) begin
        state_next.begun = 1'b1;
        state_next.next = w.last;
        state_next.highest = stop_rel;
        state_next.segments = state.segments + 1'b1;
      end
      state_next.any = state.any + 1'b1;
      if (w.ack) state_next.ack = state.ack + 1'b1;
      if (w.syn || w.nak) state_next.syn_nak = state.syn_nak + 1'b1;
      if (w.fin || w.cnp) state_next.fin_cnp = state.fin_cnp + 1'b1;
      if (w.rst) state_next.rst = state.rst + 1'b1;

      trk.conn = update_conn;
      trk.kinds[KindData] = w.data;
      trk.kinds[KindAck] = w.ack;
      trk.kinds[KindNak] = w.nak;
      trk.kinds[KindCnp] = w.cnp;
      trk.kinds[KindReadRequest] = w.read;
      trk.kinds[KindSyn] = w.syn;
      trk.kinds[KindFin] = w.fin;
      trk.kinds[KindRst] = w.rst;
      trk.is_new = new_data;
      trk.below = brings && begins_below;
      if (trk.below) begin
        state_next.again = state.again + 1'b1;
        trk.again = state_next.again;
      end
      trk.pos_any = state_next.any;
      trk.pos_fin = state_next.fin_cnp;
      if (w.data && !w.roce) trk.rel = start_rel;
      if (w.rst) begin
        trk.kind = KindRst;
        trk.pos_kind = state_next.rst;
      end else if (w.syn) begin
        trk.kind = KindSyn;
        trk.pos_kind = state_next.syn_nak;
      end else if (w.data || w.read) begin
        trk.kind = w.read ? KindReadRequest : KindData;
        trk.pos_kind = w.roce ? start_rel[31:0] : state_next.segments;
      end else if (w.fin) begin
        trk.kind = KindFin;
        trk.pos_kind = state_next.fin_cnp;
      end else if (w.ack) begin
        trk.kind = KindAck;
        trk.pos_kind = state_next.ack;
      end else if (w.nak) begin
        trk.kind = KindNak;
        trk.pos_kind = state_next.syn_nak;
      end else begin
        trk.kind = KindCnp;
        trk.pos_kind = state_next.fin_cnp;
      end
    end
  end

  // The header waits beside the pipeline.
  localparam int unsigned WaitLog2 = 4;
  header_t waiting[1 << WaitLog2];
  logic [WaitLog2-1:0] wait_in, wait_out;
  always_ff @(posedge clk) if (p2_valid) waiting[wait_in] <= p2_hdr;
  always_ff @(posedge clk) begin
    update_conn <= conn_q[1];
    conn_q[1]   <= conn_q[0];
    if (answer_tracked) conn_q[0] <= answer.conn;
    for (int l = 0; l < 2; l++)
    if (later_packet[Update] && w.lane == 1'(l)) begin
      out_hdr[l] <= waiting[wait_out];
      out_trk[l] <= trk;
    end
    if (p2_valid) wait_in <= wait_in + 1'b1;
    if (later_packet[Update]) wait_out <= wait_out + 1'b1;
    out_valid <= {2{later_packet[Update]}} & {w.lane, !w.lane};
    if (rst) begin
      wait_in   <= '0;
      wait_out  <= '0;
      out_valid <= '0;
    end
  end

  // ---- the host's accesses: a slot of the pipeline for a flow, one a lane for a connection
  typedef enum logic [2:0] {
    HostIdle,
    HostLane0,
    HostLane1,
    HostWait,
    HostAck
  } host_e;
  host_e host_state;
  logic host_busy;
  logic host_done;
  conn_info_t host_read;
  logic [1:0] host_based;
  logic [1:0][31:0] host_base;
  logic [SelW-1:0] host_selector;
  assign host_busy = host_state != HostIdle;
  assign host_slot = host_state == HostLane0 || host_state == HostLane1;
  assign host_lane = host_state == HostLane1;
  assign host_selector = SelW'(tbl_req.index >> 1);
  assign tbl_ack = host_state == HostAck;

  always_ff @(posedge clk) begin
    if (state_valid && w.host) begin
      host_based[w.lane] <= state.based;
      host_base[w.lane]  <= state.base;
    end
    if (host_busy || tbl_req.valid)
      unique case (host_state)
        HostIdle:
        if (tbl_req.valid && !clear_busy)
          unique case (tbl_req.tbl)
            TblFlow, TblConn: host_state <= HostLane0;
            TblSelector: begin
              if (tbl_req.write) begin
                if (tbl_req.index[0]) selector_mask[host_selector] <= select_t'(tbl_req.wdata);
                else selector_value[host_selector] <= select_t'(tbl_req.wdata);
              end
              tbl_rdata <= TblW'(tbl_req.index[0] ? selector_mask[host_selector]
                                                  : selector_value[host_selector]);
              host_state <= HostAck;
            end
            default: ;
          endcase
        HostLane0: host_state <= tbl_req.tbl == TblConn ? HostLane1 : HostWait;
        HostLane1: host_state <= HostWait;
        HostWait:
        // the last slot has come through, one cycle ago
        if (host_done) begin
          if (tbl_req.tbl == TblConn) tbl_rdata <= TblW'(host_read);
          else tbl_rdata <= TblW'(flow_row);
          host_state <= HostAck;
        end
        default:   host_state <= HostIdle;
      endcase
    if (rst) begin
      host_state <= HostIdle;
      for (int i = 0; i < int'(SELECTORS); i++) selector_value[i].enable <= 1'b0;
    end
  end

  always_ff @(posedge clk)
    host_done <= !rst && later_valid[Update] && w.host && (w.lane || tbl_req.tbl == TblFlow);
  always_comb begin
    host_read = '0;
    if (host_done) begin
      host_read.key = opened_read.key;
      host_read.opener_hi = opened_read.opener_hi;
      host_read.opener_lane = opened_read.opener_lane;
      host_read.valid = opened_read.valid;
      host_read.base_valid = host_based;
      host_read.base = host_base;
      if (opened_read.key.proto == ProtoRoce)
        host_read.base = {8'd0, host_base[1][23:0], 8'd0, host_base[0][23:0]};
    end
  end

  // ---- clear: let what is in flight come to rest, then empty the tables
  localparam int unsigned Drain = 15;
  typedef enum logic [1:0] {
    ClearIdle,
    ClearDrain,
    ClearStart,
    ClearWalk
  } clear_e;
  clear_e clear_state;
  logic [3:0] drain;
  assign clear_busy = clear_state != ClearIdle;
  assign clear_tables = clear_state == ClearStart;
  assign live = enable && !clear_busy;

  assign busy = !(&wait_empty) || p1_valid || p1_host || p2_valid || p2_host || |later_valid ||
      |out_valid || host_busy || clear_busy;

  always_ff @(posedge clk) begin
    if (later_packet[Answer]) begin
      if (answer_inserted) connections <= connections + 1'b1;
      if (later[Answer].live && later[Answer].admitted && !found && !inserted)
        connections_lost <= connections_lost + 1'b1;
    end
    if (clear || clear_busy) begin
      if (clearing_conns) clear_conn <= clear_conn + 1'b1;
      unique case (clear_state)
        ClearIdle: clear_state <= ClearDrain;
        ClearDrain: begin
          if (drain == 4'(Drain)) clear_state <= ClearStart;
          if (!host_busy) drain <= drain + 1'b1;
        end
        ClearStart: begin
          drain <= '0;
          connections <= '0;
          connections_lost <= '0;
          clear_state <= ClearWalk;
        end
        ClearWalk: if (!flow_busy && !state_busy && !clearing_conns) clear_state <= ClearIdle;
      endcase
      clearing_conns <= clear_tables || (clearing_conns && !(&clear_conn));
    end
    if (rst) begin
      clear_state <= ClearIdle;
      drain <= '0;
      clearing_conns <= 1'b0;
      clear_conn <= '0;
      connections <= '0;
      connections_lost <= '0;
    end
  end
endmodule
