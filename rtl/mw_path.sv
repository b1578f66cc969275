// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way of a frame through one lane, from ingress to the MAC on the other side: it waits for
// its verdict, is edited, held back or dropped, and leaves.
//
// A frame is issued when its verdict is there and either its end is, or so many of its beats
// that the rest comes in time: once a frame is on its way to the MAC it must not starve. Only
// here is decided what is issued next; all stages behind move together, so a beat of the frame
// store and one of the FIFO never meet. Per cycle one beat is issued, and a dropped frame
// leaves the FIFO beside that at one beat a cycle.
//
// Order: frames that were not held back keep theirs. One that was, a copy, and one that the card
// made go between two others when they are due, provided that so little waits in the FIFO that
// no frame can be lost for it; on a link that is full they wait for a gap.
module mw_path
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W = 512,  // 64 or 512
    parameter int unsigned LANE = 0,  // 0: A to B, 1: B to A
    // 2**FIFO_LOG2 beats; at least four longest frames: half of it may wait when a longest
    // frame is released, and one more is admitted after that
    parameter int unsigned FIFO_LOG2 = $clog2(4 * MaxFrame * 8 / DATA_W),
    parameter int unsigned INFLIGHT_LOG2 = 8,  // frames between admission and issue, 8 to 12
    parameter int unsigned DELAY_SLOTS_LOG2 = 4,  // frames stored at a time, 1 to 8
    // Beats of a longest frame that come while the frame leaves at 1 beat a cycle and arrives at
    // 0.6 (100 Gb/s on 512 bits at 322 MHz), and some for the arrival's jitter.
    parameter int unsigned PREFILL = (MaxFrame * 8 / DATA_W * 2 + 4) / 5 + 8
) (
    input logic clk,
    input logic rst,
    input logic [63:0] time_ns,
    input logic [31:0] reorder_timeout_ns,
    // from mw_ingress
    input logic in_valid,
    input logic in_sof,
    input logic [DATA_W-1:0] in_data,
    input logic [DATA_W/8-1:0] in_keep,
    input logic in_last,
    input logic in_error,
    input logic in_truncated,
    input logic in_captured,
    output logic admit,  // room for a longest frame
    input logic tap_room,  // others have room for a frame
    // verdicts, one a frame, in the frames' order
    input logic v_valid,
    input verdict_t v,
    // the beginnings of packets that ask for an answer, as they came
    output logic seen_valid,
    output logic seen_sof,
    output logic seen_last,  // of the frame or of SeenBytes
    output logic [DATA_W-1:0] seen_data,
    output seen_t seen,
    // frames that the card made, beat by beat
    input logic add_valid,
    output logic add_ready,
    input logic add_sof,
    input logic add_last,
    input logic [$clog2(DATA_W/8)-1:0] add_len,  // with add_last: its bytes less one
    input logic [DATA_W-1:0] add_data,
    input logic add_captured,  // with add_sof, as the next one
    input record_t add_rec,
    // to the MAC
    output logic [DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input logic m_axis_tready,
    output logic m_axis_tlast,
    output logic m_axis_tuser,
    // to the egress tap, as the MAC takes it
    output logic tap_valid,
    output logic tap_sof,
    output logic [DATA_W-1:0] tap_data,
    output logic [DATA_W/8-1:0] tap_keep,
    output logic tap_last,
    output logic tap_error,
    output logic tap_truncated,
    output logic [63:0] tap_time,  // with tap_sof, as the next two
    output record_t tap_rec,
    output logic tap_wanted,
    output logic cnt_tx_frame,
    output logic [15:0] cnt_tx_bytes,  // with cnt_tx_frame
    output logic cnt_dropped,
    output logic cnt_marked,
    output logic cnt_corrupted,
    output logic cnt_rewritten,
    output logic cnt_shortened,
    output logic cnt_delayed,
    output logic cnt_delay_full,
    output logic cnt_mend_full,
    output logic cnt_reordered,
    output logic cnt_copied,
    output logic cnt_injected,
    output logic cnt_captured_tx,  // any, as the next two among them
    output logic cnt_captured_copied,
    output logic cnt_captured_injected,
    output logic cnt_captured_dropped,
    output logic [7:0] more_captured,  // so many captured frames will leave that did not come in
    output logic [1:0] done_captured,  // how many captured frames left or were dropped
    output logic timer_valid,
    output logic [63:0] timer_ns,  // when a stored frame is due next
    output logic busy  // anything else is on its way
);
  localparam int unsigned Bytes = DATA_W / 8;
  localparam int unsigned LaneW = $clog2(Bytes);
  localparam int unsigned MaxBeats = MaxFrame / Bytes;
  localparam int unsigned MinBeats = (MinFrame + Bytes - 1) / Bytes;
  localparam int unsigned Fifo = 1 << FIFO_LOG2;
  localparam int unsigned Inflight = 1 << INFLIGHT_LOG2;
  // Beats and frames that can begin between a look at the counters and their admission.
  localparam int unsigned Margin = 4;
  // Up to so many beats may wait when a stored frame is released. While a longest one is found
  // and leaves, as many beats come in, and all of them may belong to shortest frames.
  localparam int unsigned LightFrames = (Inflight - 2 * Margin) * MinBeats - MaxBeats - Margin;
  localparam int unsigned Light = LightFrames < Fifo / 2 ? LightFrames : Fifo / 2;

  if ((DATA_W != 64 && DATA_W != 512) || LANE > 1 || Fifo < 4 * MaxBeats || INFLIGHT_LOG2 > 12 ||
      (Inflight - 2 * Margin) * MinBeats < MaxBeats + PREFILL || PREFILL * Bytes < 64 ||
      PREFILL > MaxBeats) begin : g_bad
    $fatal(1, "mw_path, lane %0d: a parameter is out of its range", LANE);
  end

  typedef struct packed {
    logic [LaneW-1:0] len;        // bytes of the last beat less one
    logic             error;
    logic             truncated;
  } end_t;
  typedef struct packed {
    logic captured;
    logic wanted;
    record_t rec;
  } meta_t;
  typedef logic [DELAY_SLOTS_LOG2-1:0] slot_t;

  // ---- What waits: beats, lengths of frames that have ended, verdicts ----
  logic f_room, f_valid, f_pop, f_captured, f_last;
  logic [ DATA_W-1:0] f_data;
  logic [FIFO_LOG2:0] f_free;
  mw_fifo #(
      .WIDTH(DATA_W + 2),
      .DEPTH_LOG2(FIFO_LOG2)
  ) i_beats (
      .clk,
      .rst,
      .in_valid,
      .in_ready(f_room),
      .in_data({in_captured, in_last, in_data}),
      .out_valid(f_valid),
      .out_ready(f_pop),
      .out_data({f_captured, f_last, f_data}),
      .free(f_free)
  );

  logic [13:0] in_bytes, in_length, l_length;  // in_bytes: in beats before this one
  always_comb begin
    in_length = '0;
    if (in_valid && in_last) in_length = (in_sof ? '0 : in_bytes) + 14'(kept_bytes(64'(in_keep)));
  end
  always_ff @(posedge clk) if (in_valid) in_bytes <= (in_sof ? '0 : in_bytes) + 14'(Bytes);

  logic l_room, l_valid, l_error, l_truncated, frame_done;
  logic [INFLIGHT_LOG2:0] unused_l_free, unused_v_free;
  mw_fifo #(
      .WIDTH(16),
      .DEPTH_LOG2(INFLIGHT_LOG2)
  ) i_lengths (
      .clk,
      .rst,
      .in_valid(in_valid && in_last),
      .in_ready(l_room),
      .in_data({in_length, in_error, in_truncated}),
      .out_valid(l_valid),
      .out_ready(frame_done),
      .out_data({l_length, l_error, l_truncated}),
      .free(unused_l_free)
  );

  // Where changes come faster than their checksums can be worked out, a frame passes unchanged.
  typedef struct packed {
    logic     mends;
    verdict_t v;
  } kept_t;
  logic v_mends, mend_busy;
  kept_t kept, head;
  always_comb begin
    v_mends = 1'b0;
    if (v_valid) v_mends = mends(v.layout, v.action);
    kept.mends = v_mends && !mend_busy;
    kept.v = v;
    if (v_mends && mend_busy) begin
      kept.v.action.set = 1'b0;
      kept.v.action.ecn = 1'b0;
      kept.v.action.corrupt = 1'b0;
      kept.v.action.break_icrc = 1'b0;
    end
  end

  logic v_room, v_there, v_pop;
  mw_fifo #(
      .WIDTH($bits(kept_t)),
      .DEPTH_LOG2(INFLIGHT_LOG2)
  ) i_verdicts (
      .clk,
      .rst,
      .in_valid(v_valid),
      .in_ready(v_room),
      .in_data(kept),
      .out_valid(v_there),
      .out_ready(v_pop),
      .out_data(head),
      .free(unused_v_free)
  );

  logic [INFLIGHT_LOG2:0] inflight;  // frames from admission to issue of their last beat
  logic begun, room, light;
  assign begun = in_valid && in_sof;
  always_ff @(posedge clk) begin
    room  <= 32'(f_free) >= MaxBeats + Margin && 32'(inflight) <= Inflight - Margin;
    light <= 32'(f_free) >= Fifo - Light;
    if (begun != frame_done) inflight <= begun ? inflight + 1'b1 : inflight - 1'b1;
    if (rst) begin
      inflight <= '0;
      room <= 1'b0;
    end
  end
  assign admit = room && tap_room;
  always_ff @(posedge clk) begin
    assert (rst || ((!in_valid || (f_room && l_room)) && (!v_valid || v_room)))
    else $fatal(1, "mw_path, lane %0d: a FIFO overflowed", LANE);
  end

  // What changes of a frame do to its checksums is worked out while it waits.
  logic mend_valid, mend_ready;
  mend_t mend;
  mw_mend #(
      .DATA_W(DATA_W),
      .FIFO_LOG2(FIFO_LOG2),
      .INFLIGHT_LOG2(INFLIGHT_LOG2)
  ) i_mend (
      .clk,
      .rst,
      .in_valid,
      .in_sof,
      .in_last,
      .in_data,
      .in_length,
      .v_valid,
      .v,
      .v_mends,
      .busy(mend_busy),
      .out_valid(mend_valid),
      .out_ready(mend_ready),
      .out(mend)
  );

  // ---- What is issued ----
  logic plan_valid, plan_drop, plan_delay, plan_whole, plan_touched, plan_ecn, plan_corrupt;
  logic plan_set;
  logic [39:0] plan_delay_ns;
  record_t plan_rec;
  action_t plan_action;
  logic [7:0] plan_l3, plan_l4;
  logic plan_reorder, plan_copy, plan_held, plan_store;
  assign plan_reorder = plan_action.reorder && plan_action.reorder_packets != '0;
  assign plan_copy = plan_action.duplicate && plan_action.duplicate_copies != '0;
  assign plan_held = plan_delay || plan_reorder;
  assign plan_store = plan_held || plan_copy;

  logic go, held_due, held_turn, held_ready, held_issuing, held_start, slot_free;
  slot_t slot;

  logic in_frame;  // of the FIFO: its first beat has been issued
  logic padding;  // its last beat has been, and zeros follow
  logic cutting;  // its last beat has been, and what an event cuts off is still there
  logic [10:0] index;
  logic at_hand, ready, issue, last_beat, final_beat, drop, cut_off, cut, short_frame, sof;
  logic [13:0] length;  // of the frame at the head when it leaves, without padding
  assign sof = !in_frame;
  assign drop = plan_valid && plan_drop && f_valid;
  assign cut_off = cutting && sof && f_valid;
  assign cut = truncates(
      plan_action.truncate, plan_action.truncate_bytes
  ) && plan_action.truncate_bytes < l_length;
  assign length = cut ? plan_action.truncate_bytes : l_length;
  assign at_hand = f_valid && (l_valid || 32'(f_free) <= Fifo - PREFILL);
  assign ready = plan_valid && !plan_drop && !cutting && at_hand && (l_valid || !plan_whole);
  assign held_turn = held_due && light && sof && !held_issuing;
  assign held_start = go && held_turn && held_ready;
  assign issue = go && !held_issuing && !held_turn && (in_frame || ready);
  assign short_frame = l_valid && length < 14'(MinFrame);
  assign last_beat = cut ? index == 11'((length - 1'b1) >> LaneW) : f_last;
  assign final_beat = (padding || last_beat) && (!short_frame || index == 11'(MinBeats - 1));
  assign f_pop = drop || cut_off || (issue && !padding);
  assign frame_done = ((drop || cut_off) && f_last) ||
      (issue && final_beat && (padding ? !cutting : f_last));

  always_ff @(posedge clk) begin
    if (issue) begin
      in_frame <= !final_beat;
      padding <= (padding || last_beat) && !final_beat;
      index <= final_beat ? '0 : index + 1'b1;
      if (!padding) cutting <= last_beat && !f_last;
    end
    if (cut_off && f_last) cutting <= 1'b0;
    if (rst) begin
      in_frame <= 1'b0;
      padding <= 1'b0;
      cutting <= 1'b0;
      index <= '0;
    end
    assert (rst || !issue || padding || f_valid)
    else $fatal(1, "mw_path, lane %0d: starved inside a frame", LANE);
  end

  // What an answer is made of goes by, whether the frame leaves or not.
  localparam int unsigned SeenBeats = SeenBytes / Bytes;
  logic [$clog2(SeenBeats):0] popped;  // beats of the frame, up to SeenBeats
  logic show;
  assign show = f_pop && plan_action.inject && popped != ($clog2(SeenBeats) + 1)'(SeenBeats);
  always_ff @(posedge clk) begin
    if (f_pop) begin
      if (f_last) popped <= '0;
      else if (popped != ($clog2(SeenBeats) + 1)'(SeenBeats)) popped <= popped + 1'b1;
    end
    seen_valid <= show && !rst;
    if (show) begin
      seen_sof <= popped == '0;
      seen_last <= f_last || popped == ($clog2(SeenBeats) + 1)'(SeenBeats - 1);
      seen_data <= f_data;
      seen <= '{
          captured: f_captured,
          form: plan_action.inject_template,
          l3_offset: plan_l3,
          l4_offset: plan_l4,
          rec: plan_rec
      };
    end
    if (rst) popped <= '0;
  end

  // A frame that is to be stored goes into a slot if there is one: instead of out when it is
  // held back, else as well.
  logic store, store_q, aside, aside_q, take;
  slot_t slot_q, store_slot;
  assign take = issue && sof && plan_store && slot_free;
  assign store = sof ? plan_store && slot_free : store_q;
  assign aside = sof ? plan_held && slot_free : aside_q;
  assign store_slot = sof ? slot : slot_q;
  always_ff @(posedge clk) begin
    if (issue && sof) begin
      store_q <= store;
      aside_q <= aside;
      slot_q  <= slot;
    end
  end

  meta_t meta, add_meta, stored_meta, held_meta;
  end_t frame_end;
  logic held_copy, held_reordered;
  logic [15:0] held_passed;
  always_comb begin
    meta = '{captured: f_captured, wanted: f_captured && plan_touched, rec: plan_rec};
    meta.rec.tap = 1'b1;
    meta.rec.done = '{
        ecn: plan_ecn,
        corrupt: plan_corrupt,
        delay: aside && plan_delay,
        reorder: aside && plan_reorder,
        set: plan_set,
        truncate: cut,
        default: '0
    };
    frame_end = '{
        len: short_frame ? LaneW'(MinFrame - 1) : LaneW'(length - 1'b1),
        error: l_error || plan_action.break_fcs,
        truncated: l_truncated
    };
  end

  always_comb begin
    add_meta  = '{captured: add_captured, wanted: add_captured, rec: add_rec};
    held_meta = stored_meta;
    if (held_reordered) held_meta.rec.f2 = held_passed;
    if (held_copy) begin
      held_meta.rec.done.delay = 1'b0;
      held_meta.rec.done.reorder = 1'b0;
      held_meta.rec.done.duplicate = 1'b1;
    end
  end

  typedef struct packed {
    logic  sof;
    logic  last;
    end_t  info;
    logic  store;
    logic  aside;
    slot_t slot;
  } tag_t;
  tag_t act_tag;
  logic act_valid, act_active;
  logic [DATA_W-1:0] act_data;
  mw_act #(
      .DATA_W (DATA_W),
      .PREFILL(PREFILL),
      .TAG_W  ($bits(tag_t))
  ) i_act (
      .clk,
      .rst,
      .time_ns,
      .v_valid(v_there),
      .v_ready(v_pop),
      .v(head.v),
      .v_mends(head.mends),
      .mend_valid,
      .mend_ready,
      .mend,
      .plan_valid,
      .plan_drop,
      .plan_delay,
      .plan_delay_ns,
      .plan_whole,
      .plan_touched,
      .plan_rec,
      .plan_action,
      .plan_l3,
      .plan_l4,
      .plan_ecn,
      .plan_corrupt,
      .plan_set,
      .at_hand,
      .len_known(l_valid),
      .len(length),
      .plan_take(frame_done),
      .go,
      .in_valid(issue),
      .in_index(index),
      .in_data(f_data),
      .in_pad(short_frame && (padding || last_beat)),
      .in_bytes(padding ? '0 : (LaneW + 1)'(LaneW'(length - 1'b1)) + 1'b1),
      .in_tag({sof, final_beat, frame_end, store, aside, store_slot}),
      .out_valid(act_valid),
      .out_data(act_data),
      .out_tag(act_tag),
      .active(act_active)
  );

  logic held_valid, held_sof, held_last, held_active;
  end_t held_end;
  logic [DATA_W-1:0] held_data;
  mw_hold #(
      .DATA_W(DATA_W),
      .BEATS_LOG2($clog2(MaxBeats)),
      .SLOTS_LOG2(DELAY_SLOTS_LOG2),
      .CONN_W(ConnW),
      .META_W($bits(meta_t)),
      .END_W($bits(end_t)),
      .LATENCY(4)
  ) i_hold (
      .clk,
      .rst,
      .time_ns,
      .reorder_timeout_ns,
      .go,
      .slot_free,
      .slot,
      .take,
      .take_straight(!plan_held),
      .take_delay(plan_delay),
      .take_reorder(plan_reorder),
      .take_delay_ns(plan_delay_ns),
      .take_lane(plan_action.reorder_lane),
      .take_conn(plan_rec.conn),
      .take_after(plan_action.reorder_packets),
      .take_copies(plan_copy ? plan_action.duplicate_copies : '0),
      .take_gap_ns(plan_action.duplicate_gap_ns),
      .take_meta(meta),
      .end_valid(issue && final_beat && store),
      .end_slot(store_slot),
      .end_index(index[$clog2(MaxBeats)-1:0]),
      .end_info(frame_end),
      .wr_valid(act_valid && act_tag.store),
      .wr_slot(act_tag.slot),
      .wr_last(act_tag.last),
      .wr_data(act_data),
      .pass(issue && sof && !aside),
      .pass_conn(plan_rec.conn),
      .add_valid,
      .add_ready,
      .add_sof,
      .add_last,
      .add_data,
      .add_meta(add_meta),
      .add_info({add_len, 2'b00}),
      .due(held_due),
      .ready(held_ready),
      .start(held_start),
      .start_meta(stored_meta),
      .start_copy(held_copy),
      .start_reordered(held_reordered),
      .start_passed(held_passed),
      .issuing(held_issuing),
      .out_valid(held_valid),
      .out_sof(held_sof),
      .out_last(held_last),
      .out_info(held_end),
      .out_data(held_data),
      .active(held_active),
      .timer_valid,
      .timer_ns
  );

  meta_t out_meta;
  logic  egress_active;
  assign out_meta = held_start ? held_meta : meta;
  mw_egress #(
      .DATA_W(DATA_W)
  ) i_egress (
      .clk,
      .rst,
      .time_ns,
      .go,
      .main_valid(act_valid && !act_tag.aside),
      .main_sof(act_tag.sof),
      .main_last(act_tag.last),
      .main_len(act_tag.info.len),
      .main_error(act_tag.info.error),
      .main_truncated(act_tag.info.truncated),
      .main_data(act_data),
      .held_valid,
      .held_sof,
      .held_last,
      .held_len(held_end.len),
      .held_error(held_end.error),
      .held_truncated(held_end.truncated),
      .held_data,
      .meta_valid(held_start || (issue && sof && !aside)),
      .meta_captured(out_meta.captured),
      .meta_wanted(out_meta.wanted),
      .meta_rec(out_meta.rec),
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tvalid,
      .m_axis_tready,
      .m_axis_tlast,
      .m_axis_tuser,
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
      .cnt_captured_tx,
      .active(egress_active)
  );

  // ---- What is counted ----
  logic injected;
  assign injected = held_meta.rec.kind == KindInjected;
  always_ff @(posedge clk) begin
    cnt_dropped <= drop && f_last && !rst;
    cnt_captured_dropped <= drop && f_last && f_captured && !rst;
    cnt_marked <= issue && sof && plan_ecn && !rst;
    cnt_corrupted <= issue && sof && plan_corrupt && !rst;
    cnt_rewritten <= issue && sof && plan_set && !rst;
    cnt_shortened <= issue && sof && cut && !rst;
    cnt_delayed <= take && plan_delay && !rst;
    cnt_mend_full <= v_mends && mend_busy && !rst;
    cnt_reordered <= take && plan_reorder && !rst;
    cnt_delay_full <= issue && sof && plan_store && !slot_free && !rst;
    cnt_copied <= held_start && held_copy && !rst;
    cnt_injected <= held_start && injected && !rst;
    cnt_captured_copied <= held_start && held_copy && held_meta.captured && !rst;
    cnt_captured_injected <= held_start && injected && held_meta.captured && !rst;
    more_captured <= '0;
    if (take && plan_copy && f_captured) more_captured <= plan_action.duplicate_copies;
    if (add_valid && add_ready && add_sof && add_captured) more_captured <= 8'd1;
    if (rst) more_captured <= '0;
  end
  assign done_captured = 2'(cnt_captured_tx) + 2'(cnt_captured_dropped);

  logic working, working_q;
  assign working = in_valid || seen_valid || inflight != '0 || act_active || held_active || egress_active;
  always_ff @(posedge clk) working_q <= working && !rst;
  assign busy = working || working_q;
endmodule
