// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The core of the card, the same on every board and in simulation. Its ports are the
// portable seam: two MACs (AXI4-Stream; the receiving side has no ready, for a MAC can't
// wait), registers (AXI4-Lite), DMA of record blocks (AXI4 write master), one interrupt
// request, the time, and hints that tell a simulator when clocks may be skipped.
//
// Index 0 of a port array is port A, 1 is port B; lane 0 leads from A to B, lane 1 back.
// docs/card.md has the way of one packet.
module mw_core
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W = 512,  // bits of a port's stream: 64 or 512
    parameter int unsigned CLOCK_PS = 3103,  // period of clk in ps, told to the host
    parameter int unsigned CONNS_LOG2 = 14,  // connections, 4 to 15
    parameter int unsigned FLOW_ROWS_LOG2 = 14,  // rows of a way of the flow table
    parameter int unsigned SLOTS_LOG2 = 16,  // event slots of a lane
    parameter int unsigned EXACT_ROWS_LOG2 = 15,  // rows of a way of the exact table
    parameter int unsigned PAGE_ROWS_LOG2 = 15,  // rows of a way of the page table
    parameter int unsigned ACTIONS_LOG2 = 8,  // action programs
    parameter int unsigned RULES = 64,  // rules of a lane, a power of two
    parameter int unsigned SELECTORS = 8,  // selectors, 1 to 64
    parameter int unsigned INFLIGHT_LOG2 = 8,  // frames that a lane may hold at a time
    parameter int unsigned FIFO_LOG2 = DATA_W == 512 ? 10 : 13,  // beats a lane can hold
    parameter int unsigned SNAP_LOG2 = DATA_W == 512 ? 10 : 13,  // beats a tap can hold
    parameter int unsigned DELAY_SLOTS_LOG2 = 6  // frames that a lane can store
) (
    input logic        clk,
    input logic        rst,
    input logic [63:0] time_ns, // card time; need not be regular, must not go back

    input logic [1:0][  DATA_W-1:0] s_axis_tdata,
    input logic [1:0][DATA_W/8-1:0] s_axis_tkeep,
    input logic [1:0]               s_axis_tvalid,
    input logic [1:0]               s_axis_tlast,
    input logic [1:0]               s_axis_tuser,   // with tlast: the frame is bad

    output logic [1:0][  DATA_W-1:0] m_axis_tdata,
    output logic [1:0][DATA_W/8-1:0] m_axis_tkeep,
    output logic [1:0]               m_axis_tvalid,  // does not fall inside a frame
    input  logic [1:0]               m_axis_tready,
    output logic [1:0]               m_axis_tlast,
    output logic [1:0]               m_axis_tuser,

    input  logic [11:0] s_axil_awaddr,
    input  logic [ 2:0] s_axil_awprot,
    input  logic        s_axil_awvalid,
    output logic        s_axil_awready,
    input  logic [31:0] s_axil_wdata,
    input  logic [ 3:0] s_axil_wstrb,
    input  logic        s_axil_wvalid,
    output logic        s_axil_wready,
    output logic [ 1:0] s_axil_bresp,
    output logic        s_axil_bvalid,
    input  logic        s_axil_bready,
    input  logic [11:0] s_axil_araddr,
    input  logic [ 2:0] s_axil_arprot,
    input  logic        s_axil_arvalid,
    output logic        s_axil_arready,
    output logic [31:0] s_axil_rdata,
    output logic [ 1:0] s_axil_rresp,
    output logic        s_axil_rvalid,
    input  logic        s_axil_rready,

    output logic [ 63:0] m_axi_awaddr,
    output logic [  7:0] m_axi_awlen,
    output logic [  2:0] m_axi_awsize,
    output logic [  1:0] m_axi_awburst,
    output logic         m_axi_awvalid,
    input  logic         m_axi_awready,
    output logic [255:0] m_axi_wdata,
    output logic [ 31:0] m_axi_wstrb,
    output logic         m_axi_wlast,
    output logic         m_axi_wvalid,
    input  logic         m_axi_wready,
    input  logic [  1:0] m_axi_bresp,
    input  logic         m_axi_bvalid,
    output logic         m_axi_bready,

    output logic irq_valid,  // held until irq_ready
    input  logic irq_ready,

    output logic        busy,         // a clock edge may change something even without input
    output logic        timer_valid,  // an idle core wants to be clocked at timer_ns
    output logic [63:0] timer_ns
);
  if (DATA_W != 64 && DATA_W != 512) begin : g_bad_width
    $fatal(1, "mw_core: DATA_W must be 64 or 512");
  end
  if (CONNS_LOG2 < 4 || CONNS_LOG2 > 15) begin : g_bad_conns
    $fatal(1, "mw_core: CONNS_LOG2 must be between 4 and 15");
  end

  localparam int unsigned Counters = 56;
  localparam int unsigned Ways = 4;

  // settings and state of the registers
  logic ctl_capture, ctl_track, ctl_clear, irq_enable;
  logic [63:0] ring_base;
  logic [4:0] ring_blocks_log2, block_log2;
  logic [31:0] ring_consumed, ring_produced, flush_ns, reorder_timeout_ns;
  logic [15:0] snapshot_bytes;
  logic [16:0] kinds[2];
  logic [31:0] connections, connections_lost;
  logic capture_active, dma_error, clear_busy;
  logic [1:0] counted;  // the lane has something to count
  logic [15:0] inc[Counters];
  logic [Counters-1:0] count_clear;

  tbl_req_t tbl_req;
  logic tbl_ack;
  logic [TblW-1:0] tbl_rdata;

  // A capture begins with its counters at zero, and not before the last one has ended.
  logic recording, capture_begin;
  logic [15:0] capture_snapshot;
  assign capture_begin = ctl_capture && !capture_active;

  // Frames that are made in answer to packets.
  logic [1:0] seen_valid, seen_sof, seen_last, add_valid, add_ready;
  logic [1:0][DATA_W-1:0] seen_data;
  seen_t [1:0] seen;
  logic add_sof, add_last, add_captured;
  logic [$clog2(DATA_W/8)-1:0] add_len;
  logic [DATA_W-1:0] add_data;
  record_t add_rec;
  logic [1:0] inject_full, inject_refused;
  logic inject_ack, inject_busy;
  logic [TblW-1:0] inject_rdata;

  // Both lanes, up to the places they share.
  logic [1:0] track_in_valid, track_out_valid;
  header_t [1:0] track_in_hdr, track_out_hdr;
  track_t [1:0] track_out_trk;
  logic [1:0] match_ack, match_clear_busy;
  logic [TblW-1:0] match_rdata[2];
  logic track_ack, track_clear_busy;
  logic [TblW-1:0] track_rdata;
  logic [1:0] timer_path_valid;
  logic [63:0] timer_path_ns[2];
  logic [1:0] lane_busy;
  logic track_busy, mux_busy, writer_busy, control_busy;


  // records: source 2 * lane + tap
  logic [3:0] src_valid, src_ready, src_first, src_last, tap_busy;
  logic [3:0][255:0] src_data;
  logic [3:0][ 31:0] src_time_hi;
  logic mux_valid, mux_ready, mux_first, mux_last;
  logic [255:0] mux_data;
  logic [ 31:0] mux_time_hi;

  // totals of a capture, for the block headers
  typedef struct packed {
    logic rx;
    logic tx;
    logic rx_lost;
    logic dropped;
    logic copied;
    logic injected;
    logic lost_ingress;
    logic lost_egress;
    logic [1:0] lost_snapshots;
  } capture_event_t;
  capture_event_t  capture_event[2];
  block_counters_t totals;
  always_ff @(posedge clk) begin
    if (capture_event[0] != '0 || capture_event[1] != '0 || capture_begin || rst) begin
      automatic block_counters_t next = totals;
      for (int l = 0; l < 2; l++) begin
        next.rx_frames[l] = totals.rx_frames[l] + 64'(capture_event[l].rx);
        next.tx_frames[l] = totals.tx_frames[l] + 64'(capture_event[l].tx);
        next.rx_lost[l] = totals.rx_lost[l] + 32'(capture_event[l].rx_lost);
        next.dropped[l] = totals.dropped[l] + 32'(capture_event[l].dropped);
        next.copied[l] = totals.copied[l] + 32'(capture_event[l].copied);
        next.injected[l] = totals.injected[l] + 32'(capture_event[l].injected);
        next.lost_ingress[l] = totals.lost_ingress[l] + 32'(capture_event[l].lost_ingress);
        next.lost_egress[l] = totals.lost_egress[l] + 32'(capture_event[l].lost_egress);
        next.lost_snapshots[l] = totals.lost_snapshots[l] + 32'(capture_event[l].lost_snapshots);
      end
      totals <= capture_begin || rst ? '0 : next;
    end
  end

  // Triggers, which events of both lanes work.
  logic [Triggers-1:0] triggers;
  logic [1:0][Triggers-1:0] trigger_arm, trigger_disarm;
  always_ff @(posedge clk) begin
    if (trigger_arm != '0 || trigger_disarm != '0)
      triggers <= (triggers | trigger_arm[0] | trigger_arm[1]) &
          ~(trigger_disarm[0] | trigger_disarm[1]);
    if (rst || |match_clear_busy) triggers <= '0;
  end

  logic [1:0] at_rest;  // no captured frame of the lane is on its way

  for (genvar l = 0; l < 2; l++) begin : g_lane
    logic bs_valid, bs_sof, bs_last, bs_error, bs_truncated, bs_captured;
    logic [DATA_W-1:0] bs_data;
    logic [DATA_W/8-1:0] bs_keep;
    logic [63:0] bs_stamp;
    logic [31:0] bs_packet_id;
    logic path_admit, in_tap_room, out_tap_room;
    logic cnt_frame, cnt_frame_end, cnt_error, cnt_runt, cnt_truncated, cnt_lost;
    logic cnt_captured, cnt_captured_lost;
    logic [15:0] cnt_bytes;

    mw_ingress #(
        .DATA_W(DATA_W),
        .LANE  (l)
    ) u_ingress (
        .clk,
        .rst,
        .time_ns,
        .s_axis_tdata(s_axis_tdata[l]),
        .s_axis_tkeep(s_axis_tkeep[l]),
        .s_axis_tvalid(s_axis_tvalid[l]),
        .s_axis_tlast(s_axis_tlast[l]),
        .s_axis_tuser(s_axis_tuser[l]),
        .admit(path_admit),
        .capture(recording),
        .out_valid(bs_valid),
        .out_sof(bs_sof),
        .out_data(bs_data),
        .out_keep(bs_keep),
        .out_last(bs_last),
        .out_error(bs_error),
        .out_truncated(bs_truncated),
        .out_captured(bs_captured),
        .out_stamp(bs_stamp),
        .out_packet_id(bs_packet_id),
        .cnt_frame,
        .cnt_bytes,
        .cnt_frame_end,
        .cnt_error,
        .cnt_runt,
        .cnt_truncated,
        .cnt_lost,
        .cnt_captured,
        .cnt_captured_lost
    );

    mw_parse #(
        .DATA_W(DATA_W),
        .LANE  (l != 0)
    ) u_parse (
        .clk,
        .rst,
        .in_valid(bs_valid),
        .in_sof(bs_sof),
        .in_data(bs_data),
        .in_keep(bs_keep),
        .in_last(bs_last),
        .in_stamp(bs_stamp),
        .in_packet_id(bs_packet_id),
        .out_valid(track_in_valid[l]),
        .out_hdr(track_in_hdr[l])
    );

    logic v_valid, match_busy, cnt_unmatched, cnt_bind_full, cnt_malformed;
    verdict_t v;
    mw_match #(
        .LANE(l),
        .SLOTS_LOG2(SLOTS_LOG2),
        .EXACT_ROWS_LOG2(EXACT_ROWS_LOG2),
        .PAGE_ROWS_LOG2(PAGE_ROWS_LOG2),
        .ACTIONS_LOG2(ACTIONS_LOG2),
        .RULES(RULES),
        .INFLIGHT_LOG2(INFLIGHT_LOG2)
    ) u_match (
        .clk,
        .rst,
        .clear(ctl_clear),
        .clear_busy(match_clear_busy[l]),
        .kinds_enable(kinds[l]),
        .in_valid(track_out_valid[l]),
        .in_hdr(track_out_hdr[l]),
        .in_trk(track_out_trk[l]),
        .out_valid(v_valid),
        .out_verdict(v),
        .triggers,
        .trigger_arm(trigger_arm[l]),
        .trigger_disarm(trigger_disarm[l]),
        .tbl_req,
        .tbl_ack(match_ack[l]),
        .tbl_rdata(match_rdata[l]),
        .cnt_unmatched,
        .cnt_bind_full,
        .cnt_malformed,
        .busy(match_busy)
    );

    logic tap_valid, tap_sof, tap_last, tap_error, tap_truncated, tap_wanted;
    logic [DATA_W-1:0] tap_data;
    logic [DATA_W/8-1:0] tap_keep;
    logic [63:0] tap_time;
    record_t tap_rec;
    logic path_busy, cnt_captured_tx, cnt_captured_dropped;
    logic cnt_captured_copied, cnt_captured_injected;
    logic [1:0] done_captured;
    logic [7:0] more_captured;
    logic
        cnt_tx_frame,
        cnt_dropped,
        cnt_marked,
        cnt_corrupted,
        cnt_delayed,
        cnt_delay_full,
        cnt_mend_full;
    logic cnt_rewritten, cnt_shortened, cnt_reordered, cnt_copied, cnt_injected;
    logic [15:0] cnt_tx_bytes;
    mw_path #(
        .DATA_W(DATA_W),
        .FIFO_LOG2(FIFO_LOG2),
        .INFLIGHT_LOG2(INFLIGHT_LOG2),
        .DELAY_SLOTS_LOG2(DELAY_SLOTS_LOG2)
    ) u_path (
        .clk,
        .rst,
        .time_ns,
        .reorder_timeout_ns,
        .in_valid(bs_valid),
        .in_sof(bs_sof),
        .in_data(bs_data),
        .in_keep(bs_keep),
        .in_last(bs_last),
        .in_error(bs_error),
        .in_truncated(bs_truncated),
        .in_captured(bs_captured),
        .admit(path_admit),
        .tap_room(in_tap_room && out_tap_room),
        .v_valid,
        .v,
        .seen_valid(seen_valid[l]),
        .seen_sof(seen_sof[l]),
        .seen_last(seen_last[l]),
        .seen_data(seen_data[l]),
        .seen(seen[l]),
        .add_valid(add_valid[l]),
        .add_ready(add_ready[l]),
        .add_sof,
        .add_last,
        .add_len,
        .add_data,
        .add_captured,
        .add_rec,
        .m_axis_tdata(m_axis_tdata[1-l]),
        .m_axis_tkeep(m_axis_tkeep[1-l]),
        .m_axis_tvalid(m_axis_tvalid[1-l]),
        .m_axis_tready(m_axis_tready[1-l]),
        .m_axis_tlast(m_axis_tlast[1-l]),
        .m_axis_tuser(m_axis_tuser[1-l]),
        .tap_valid,
        .tap_sof,
        .tap_data,
        .tap_keep,
        .tap_last,
        .tap_error,
        .tap_truncated,
        .tap_time,
        .tap_rec,
        .tap_wanted,
        .cnt_tx_frame,
        .cnt_tx_bytes,
        .cnt_dropped,
        .cnt_marked,
        .cnt_corrupted,
        .cnt_rewritten,
        .cnt_shortened,
        .cnt_delayed,
        .cnt_delay_full,
        .cnt_mend_full,
        .cnt_reordered,
        .cnt_copied,
        .cnt_injected,
        .more_captured,
        .done_captured,
        .cnt_captured_tx,
        .cnt_captured_copied,
        .cnt_captured_injected,
        .cnt_captured_dropped,
        .timer_valid(timer_path_valid[l]),
        .timer_ns(timer_path_ns[l]),
        .busy(path_busy)
    );

    // Records: of every frame as it came, and of touched ones as they went.
    logic [1:0] cnt_record, cnt_record_lost, cnt_snapshot_lost;
    logic in_tap_done;
    mw_tap #(
        .DATA_W(DATA_W),
        .SNAP_LOG2(SNAP_LOG2),
        .INFLIGHT_LOG2(INFLIGHT_LOG2)
    ) u_tap_ingress (
        .clk,
        .rst,
        .snapshot_bytes(capture_snapshot),
        .in_valid(bs_valid),
        .in_sof(bs_sof),
        .in_data(bs_data),
        .in_keep(bs_keep),
        .in_last(bs_last),
        .in_error(bs_error),
        .in_truncated(bs_truncated),
        .in_wanted(bs_captured),
        .rec_valid(v_valid),
        .rec(v.rec),
        .rec_stamp(v.stamp),
        .out_valid(src_valid[2*l]),
        .out_ready(src_ready[2*l]),
        .out_data(src_data[2*l]),
        .out_time_hi(src_time_hi[2*l]),
        .out_first(src_first[2*l]),
        .out_last(src_last[2*l]),
        .tap_room(in_tap_room),
        .cnt_record(cnt_record[0]),
        .cnt_lost(cnt_record_lost[0]),
        .cnt_snapshot_lost(cnt_snapshot_lost[0]),
        .done_captured(in_tap_done),
        .busy(tap_busy[2*l])
    );
    mw_tap #(
        .DATA_W(DATA_W),
        .SNAP_LOG2(SNAP_LOG2 - 1),
        .INFLIGHT_LOG2(INFLIGHT_LOG2)
    ) u_tap_egress (
        .clk,
        .rst,
        .snapshot_bytes(capture_snapshot),
        .in_valid(tap_valid),
        .in_sof(tap_sof),
        .in_data(tap_data),
        .in_keep(tap_keep),
        .in_last(tap_last),
        .in_error(tap_error),
        .in_truncated(tap_truncated),
        .in_wanted(tap_wanted),
        .rec_valid(tap_valid && tap_sof),
        .rec(tap_rec),
        .rec_stamp(tap_time),
        .out_valid(src_valid[2*l+1]),
        .out_ready(src_ready[2*l+1]),
        .out_data(src_data[2*l+1]),
        .out_time_hi(src_time_hi[2*l+1]),
        .out_first(src_first[2*l+1]),
        .out_last(src_last[2*l+1]),
        .tap_room(out_tap_room),
        .cnt_record(cnt_record[1]),
        .cnt_lost(cnt_record_lost[1]),
        .cnt_snapshot_lost(cnt_snapshot_lost[1]),
        .done_captured(),
        .busy(tap_busy[2*l+1])
    );

    // Captured frames on their way, in the path and to their ingress record. An egress
    // record that is still to be written keeps its tap busy.
    localparam int unsigned RestW = INFLIGHT_LOG2 + DELAY_SLOTS_LOG2 + $bits(more_captured) + 2;
    logic [RestW-1:0] in_path, in_tap;
    logic admitted;
    assign admitted = cnt_captured && !cnt_captured_lost;
    always_ff @(posedge clk) begin
      if (admitted || more_captured != 0 || done_captured != 0)
        in_path <= in_path + RestW'(admitted) + RestW'(more_captured) - RestW'(done_captured);
      if (admitted != in_tap_done) in_tap <= admitted ? in_tap + 1'b1 : in_tap - 1'b1;
      if (rst) begin
        in_path <= '0;
        in_tap  <= '0;
      end
    end
    assign at_rest[l] = in_path == '0 && in_tap == '0;

    assign capture_event[l] = '{
            rx: cnt_captured,
            tx: cnt_captured_tx,
            rx_lost: cnt_captured_lost,
            dropped: cnt_captured_dropped,
            copied: cnt_captured_copied,
            injected: cnt_captured_injected,
            lost_ingress: cnt_record_lost[0],
            lost_egress: cnt_record_lost[1],
            lost_snapshots: 2'(cnt_snapshot_lost[0]) + 2'(cnt_snapshot_lost[1])
        };

    // Counters of the register map: port l receives what lane l carries to port 1 - l.
    localparam int unsigned Rx = 8 * l;
    localparam int unsigned Tx = 8 * (1 - l);
    localparam int unsigned Ln = 16 + 20 * l;
    assign counted[l] = cnt_frame || cnt_frame_end || cnt_error || cnt_runt || cnt_truncated ||
        cnt_lost || cnt_tx_frame || cnt_dropped || cnt_marked || cnt_corrupted || cnt_rewritten ||
        cnt_shortened || cnt_delayed || cnt_delay_full || cnt_mend_full || cnt_reordered || cnt_copied ||
        cnt_injected || inject_full[l] || inject_refused[l] || cnt_malformed || cnt_unmatched ||
        cnt_bind_full || |cnt_record || |cnt_record_lost || |cnt_snapshot_lost;
    always_comb begin
      for (int i = 0; i < 6; i++) inc[Rx+i] = '0;
      for (int i = 6; i < 8; i++) inc[Tx+i] = '0;
      for (int i = 0; i < 20; i++) inc[Ln+i] = '0;
      if (counted[l]) begin
        inc[Rx+0]  = 16'(cnt_frame);
        inc[Rx+1]  = cnt_frame_end ? cnt_bytes : '0;
        inc[Rx+2]  = 16'(cnt_error);
        inc[Rx+3]  = 16'(cnt_runt);
        inc[Rx+4]  = 16'(cnt_truncated);
        inc[Rx+5]  = 16'(cnt_lost);
        inc[Tx+6]  = 16'(cnt_tx_frame);
        inc[Tx+7]  = cnt_tx_frame ? cnt_tx_bytes : '0;
        inc[Ln+0]  = 16'(cnt_dropped);
        inc[Ln+1]  = 16'(cnt_marked);
        inc[Ln+2]  = 16'(cnt_corrupted);
        inc[Ln+3]  = 16'(cnt_rewritten);
        inc[Ln+4]  = 16'(cnt_shortened);
        inc[Ln+5]  = 16'(cnt_delayed);
        inc[Ln+6]  = 16'(cnt_delay_full);
        inc[Ln+7]  = 16'(cnt_mend_full);
        inc[Ln+8]  = 16'(cnt_reordered);
        inc[Ln+9]  = 16'(cnt_copied);
        inc[Ln+10] = 16'(cnt_injected);
        inc[Ln+11] = 16'(inject_full[l]) + 16'(inject_refused[l]);
        inc[Ln+12] = 16'(cnt_malformed);
        inc[Ln+13] = 16'(cnt_unmatched);
        inc[Ln+14] = 16'(cnt_bind_full);
        inc[Ln+15] = 16'(cnt_record[0]);
        inc[Ln+16] = 16'(cnt_record[1]);
        inc[Ln+17] = 16'(cnt_record_lost[0]);
        inc[Ln+18] = 16'(cnt_record_lost[1]);
        inc[Ln+19] = 16'(cnt_snapshot_lost[0]) + 16'(cnt_snapshot_lost[1]);
      end
    end

    assign lane_busy[l] = bs_valid || match_busy || path_busy || tap_valid;
  end

  mw_track #(
      .CONNS_LOG2(CONNS_LOG2),
      .FLOW_ROWS_LOG2(FLOW_ROWS_LOG2),
      .SELECTORS(SELECTORS),
      .INFLIGHT_LOG2(INFLIGHT_LOG2)
  ) u_track (
      .clk,
      .rst,
      .enable(ctl_track),
      .clear(ctl_clear),
      .clear_busy(track_clear_busy),
      .in_valid(track_in_valid),
      .in_hdr(track_in_hdr),
      .out_valid(track_out_valid),
      .out_hdr(track_out_hdr),
      .out_trk(track_out_trk),
      .tbl_req,
      .tbl_ack(track_ack),
      .tbl_rdata(track_rdata),
      .connections,
      .connections_lost,
      .busy(track_busy)
  );

  mw_inject #(
      .DATA_W(DATA_W)
  ) u_inject (
      .clk,
      .rst,
      .seen_valid,
      .seen_sof,
      .seen_last,
      .seen_data,
      .seen,
      .add_valid,
      .add_ready,
      .add_sof,
      .add_last,
      .add_len,
      .add_data,
      .add_captured,
      .add_rec,
      .tbl_req,
      .tbl_ack(inject_ack),
      .tbl_rdata(inject_rdata),
      .cnt_full(inject_full),
      .cnt_refused(inject_refused),
      .busy(inject_busy)
  );

  mw_record_mux u_mux (
      .clk,
      .rst,
      .in_valid(src_valid),
      .in_ready(src_ready),
      .in_data(src_data),
      .in_time_hi(src_time_hi),
      .in_first(src_first),
      .in_last(src_last),
      .out_valid(mux_valid),
      .out_ready(mux_ready),
      .out_data(mux_data),
      .out_time_hi(mux_time_hi),
      .out_first(mux_first),
      .out_last(mux_last),
      .busy(mux_busy)
  );

  logic block_written;
  logic timer_writer_valid;
  logic [63:0] timer_writer_ns;
  mw_block_writer u_writer (
      .clk,
      .rst,
      .time_ns,
      .capture(ctl_capture),
      .inflight_captured(at_rest != '1 || inject_busy),
      .sources_busy(|tap_busy || mux_busy),
      .ring_base,
      .ring_blocks_log2,
      .block_log2,
      .ring_consumed,
      .snapshot_bytes,
      .flush_ns,
      .counters(totals),
      .in_valid(mux_valid),
      .in_ready(mux_ready),
      .in_data(mux_data),
      .in_time_hi(mux_time_hi),
      .in_first(mux_first),
      .in_last(mux_last),
      .recording,
      .capture_snapshot,
      .lost_records(),
      .ring_produced,
      .capture_active,
      .dma_error,
      .irq(block_written),
      .timer_valid(timer_writer_valid),
      .timer_ns(timer_writer_ns),
      .busy(writer_busy),
      .m_axi_awaddr,
      .m_axi_awlen,
      .m_axi_awsize,
      .m_axi_awburst,
      .m_axi_awvalid,
      .m_axi_awready,
      .m_axi_wdata,
      .m_axi_wstrb,
      .m_axi_wlast,
      .m_axi_wvalid,
      .m_axi_wready,
      .m_axi_bresp,
      .m_axi_bvalid,
      .m_axi_bready
  );

  always_ff @(posedge clk) begin
    if (rst) irq_valid <= 1'b0;
    else if (block_written && irq_enable) irq_valid <= 1'b1;
    else if (irq_ready) irq_valid <= 1'b0;
  end

  mw_control #(
      .Counters(Counters)
  ) u_control (
      .clk,
      .rst,
      .time_ns,
      .s_axil_awaddr,
      .s_axil_awvalid,
      .s_axil_awready,
      .s_axil_wdata,
      .s_axil_wstrb,
      .s_axil_wvalid,
      .s_axil_wready,
      .s_axil_bresp,
      .s_axil_bvalid,
      .s_axil_bready,
      .s_axil_araddr,
      .s_axil_arvalid,
      .s_axil_arready,
      .s_axil_rdata,
      .s_axil_rresp,
      .s_axil_rvalid,
      .s_axil_rready,
      .par_data_width(DATA_W),
      .par_clock_ps(CLOCK_PS),
      .par_conns_log2(CONNS_LOG2),
      .par_flow_rows_log2(FLOW_ROWS_LOG2),
      .par_slots_log2(SLOTS_LOG2),
      .par_exact_rows_log2(EXACT_ROWS_LOG2),
      .par_page_rows_log2(PAGE_ROWS_LOG2),
      .par_ways(Ways),
      .par_selectors(SELECTORS),
      .par_actions(1 << ACTIONS_LOG2),
      .par_rules(RULES),
      .par_delay_slots(1 << DELAY_SLOTS_LOG2),
      .capture(ctl_capture),
      .track(ctl_track),
      .clear(ctl_clear),
      .irq_enable,
      .ring_base,
      .ring_blocks_log2,
      .block_log2,
      .ring_consumed,
      .snapshot_bytes,
      .flush_ns,
      .reorder_timeout_ns,
      .kinds,
      .capture_active,
      .clear_busy,
      .dma_error,
      .ring_produced,
      .connections,
      .connections_lost,
      .any_inc(|counted),
      .inc,
      .any_clear(ctl_clear || capture_begin),
      .count_clear,
      .tbl_req,
      .tbl_ack,
      .tbl_rdata,
      .busy(control_busy)
  );

  // Counters of the MACs' side run on; those of events start again with `clear`, those of
  // records with each capture.
  assign count_clear = {{2{{5{capture_begin}}, {15{ctl_clear}}}}, 16'd0};

  // No two tables own the same number, so answers can be ORed.
  assign tbl_ack = track_ack || inject_ack || |match_ack;
  assign tbl_rdata = (track_ack ? track_rdata : '0) | (inject_ack ? inject_rdata : '0) |
      (match_ack[0] ? match_rdata[0] : '0) | (match_ack[1] ? match_rdata[1] : '0);
  assign clear_busy = track_clear_busy || |match_clear_busy;

  assign busy = |lane_busy || |tap_busy || track_busy || inject_busy || mux_busy || writer_busy ||
      control_busy || block_written || irq_valid;

  // The earliest of the three timers.
  always_comb begin
    timer_valid = |timer_path_valid || timer_writer_valid;
    timer_ns = '1;
    if (timer_writer_valid) timer_ns = timer_writer_ns;
    for (int l = 0; l < 2; l++)
    if (timer_path_valid[l] && timer_path_ns[l] < timer_ns) timer_ns = timer_path_ns[l];
  end
endmodule
