// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What is stored leaves as it was stored: of each slot the beats, their number and what was kept
// at the frame's beginning and end are compared, on every release, with what the frame brought,
// after exactly LATENCY cycles of `go`. A frame leaves as often as it was asked to and no more,
// a slot is handed out only when the frame before has left for the last time, and a beat is read
// only when it was written. Frames of the store leave one after the other, each from its first
// beat to its last. Which frame is due when is not proved here.
//
// Only bounded, ten clocks from reset, and for a small store: two slots of two beats. They are
// enough to store, release, copy and hand out a slot again. Times and time-outs are any.
//
// Assumed of mw_path: beats of a frame are issued in successive cycles of `go` and written
// LATENCY cycles of `go` later; of the lane and the store only one issues; the frame is released
// when it is ready. Of made frames: they come first to last, and fit a slot.
//
// uses: mw_fifo mw_sorted_queue mw_reorder
// with: mw_hold: (DATA_W != 64 && DATA_W != 512) || =>
// with: mw_hold: logic [39:0] wait_ns; => logic [39:0] wait_ns; logic [3:0] anyseq_key; logic anyseq_due;
// with: mw_hold: .in_key(timed_key) => .in_key(anyseq_key)
// with: mw_hold: .KEY_W(64) => .KEY_W(4)
// with: mw_hold: .out_key(time_next) => .out_key()
// with: mw_hold: && time_ns >= time_next => && anyseq_due
// with: mw_hold: && time_ns >= timed_key => && anyseq_due
// with: mw_reorder: logic changed, more; => logic changed, more, anyseq_late;
// with: mw_reorder: !late && time_ns >= timer_ns => !late && anyseq_late
// bmc: 10 -GDATA_W=2 -GBEATS_LOG2=1 -GSLOTS_LOG2=1 -GCONN_W=1 -GMETA_W=1 -GEND_W=1
// cover: 12 -GDATA_W=2 -GBEATS_LOG2=1 -GSLOTS_LOG2=1 -GCONN_W=1 -GMETA_W=1 -GEND_W=1
// mutant: mw_hold: assign ready = taken == '0 && (turn_valid || !turn_due) => assign ready = turn_valid || !turn_due
// mutant: mw_hold: && step[Read].last && !step[Read].more => && step[Read].last
// mutant: mw_hold: && step[Read].last && !step[Read].more => && step[Read].sof && !step[Read].more
// mutant: mw_hold: begun_copy  <= start || (take && take_straight) => begun_copy  <= take && take_straight
// mutant: mw_hold: begun_times - 8'(begun_copy) => begun_times - 8'd1
// mutant: mw_hold: begun_left != '0 => begun_times != '0
// mutant: mw_hold: wr_beat <= wr_last ? '0 : wr_beat + 1'b1; => wr_beat <= wr_beat + 1'b1;
// mutant: mw_hold: !wr_valid && !take && !end_valid && !start && => !wr_valid && !take && !end_valid &&
// mutant: mw_hold: issuing <= !final_beat; => issuing <= 1'b0;
module mw_hold_proof #(
    parameter int unsigned DATA_W,
    parameter int unsigned BEATS_LOG2,
    parameter int unsigned SLOTS_LOG2,
    parameter int unsigned META_W,
    parameter int unsigned END_W,
    parameter int unsigned LATENCY
) (
    input logic                  clk,
    input logic                  rst,
    input logic                  go,
    input logic                  slot_free,
    input logic [SLOTS_LOG2-1:0] slot,
    input logic                  take,
    input logic                  take_straight,
    input logic                  take_delay,
    input logic                  take_reorder,
    input logic [           7:0] take_copies,
    input logic [          15:0] take_after,
    input logic [    META_W-1:0] take_meta,
    input logic                  end_valid,
    input logic [SLOTS_LOG2-1:0] end_slot,
    input logic [BEATS_LOG2-1:0] end_index,
    input logic [     END_W-1:0] end_info,
    input logic                  wr_valid,
    input logic [SLOTS_LOG2-1:0] wr_slot,
    input logic                  wr_last,
    input logic [    DATA_W-1:0] wr_data,
    input logic                  pass,
    input logic                  add_valid,
    input logic                  add_ready,
    input logic                  add_sof,
    input logic                  add_last,
    input logic [    DATA_W-1:0] add_data,
    input logic [    META_W-1:0] add_meta,
    input logic [     END_W-1:0] add_info,
    input logic                  due,
    input logic                  ready,
    input logic                  start,
    input logic [    META_W-1:0] start_meta,
    input logic                  start_copy,
    input logic [          15:0] start_passed,
    input logic                  issuing,
    input logic                  out_valid,
    input logic                  out_sof,
    input logic                  out_last,
    input logic [     END_W-1:0] out_info,
    input logic [    DATA_W-1:0] out_data,
    input logic [SLOTS_LOG2-1:0] chosen
);
  localparam int unsigned Slots = 1 << SLOTS_LOG2;
  localparam int unsigned Beats = 1 << BEATS_LOG2;
  localparam int unsigned Read = LATENCY - 3;
  typedef logic [SLOTS_LOG2-1:0] slot_t;
  typedef logic [BEATS_LOG2-1:0] index_t;

  // ---- The lane: beats of frames that are stored, from issue to writing ----
  logic in_lane;  // such a frame has begun and not ended
  logic stored;  // its beat is issued
  index_t lane_index, lane_at;
  slot_t lane_slot, lane_to;
  logic [LATENCY:1] way_valid, way_last;
  slot_t [LATENCY:1] way_slot;
  assign stored  = take || (in_lane && go);
  assign lane_at = take ? '0 : lane_index;
  assign lane_to = take ? slot : lane_slot;
  always_ff @(posedge clk) begin
    if (stored) begin
      in_lane <= !end_valid;
      lane_index <= lane_at + 1'b1;
      lane_slot <= lane_to;
    end
    if (go) begin
      way_valid <= {way_valid[LATENCY-1:1], stored};
      way_last  <= {way_last[LATENCY-1:1], end_valid};
      way_slot  <= {way_slot[LATENCY-1:1], lane_to};
    end
    if (rst) {in_lane, way_valid} <= '0;
  end
  always_comb begin
    if (take) begin
      assume (go && slot_free && !in_lane && !issuing && !start && !rst);
      assume (take_straight ? take_copies != '0 && !take_delay && !take_reorder
                            : take_delay || take_reorder);
      assume (pass == take_straight && take_after != '0);
    end
    if (pass) assume (go && !issuing && !start && !in_lane);
    assume (!end_valid || stored);
    if (end_valid) assume (end_slot == lane_to && end_index == lane_at);
    if (stored && &lane_at) assume (end_valid);
    assume (wr_valid == way_valid[LATENCY]);
    if (wr_valid) assume (wr_slot == way_slot[LATENCY] && wr_last == way_last[LATENCY]);
    if (start) assume (go && due && ready && !in_lane && !issuing);
  end

  // ---- Made frames ----
  logic in_add, add;
  index_t add_index, add_at;
  slot_t add_slot, add_to;
  assign add = add_valid && add_ready;
  assign add_at = add_sof ? '0 : add_index;
  assign add_to = add_sof ? slot : add_slot;
  always_ff @(posedge clk) begin
    if (add) begin
      in_add <= !add_last;
      add_index <= add_at + 1'b1;
      add_slot <= add_to;
    end
    if (rst) in_add <= 1'b0;
  end
  always_comb begin
    if (add_valid) assume (add_sof == !in_add && (!(&add_at) || add_last));
  end

  // ---- What each slot holds ----
  index_t way_index;  // of the beat that is written
  always_ff @(posedge clk) begin
    if (go && wr_valid) way_index <= wr_last ? '0 : way_index + 1'b1;
    if (rst) way_index <= '0;
  end
  typedef struct packed {
    logic                         used;
    logic [8:0]                   times;        // that the frame is to leave
    logic                         left;         // it has left before, here or straight
    logic                         ended;
    index_t                       final_index;
    logic [END_W-1:0]             info;
    logic [META_W-1:0]            meta;
    logic [Beats-1:0]             written;
    logic [Beats-1:0][DATA_W-1:0] data;
  } held_t;
  held_t [Slots-1:0] held;

  // ---- What is released ----
  typedef struct packed {
    logic              valid;
    logic              sof;
    logic              last;
    logic              gone;   // the frame leaves for the last time
    slot_t             slot;
    index_t            index;
    logic [END_W-1:0]  info;
    logic [DATA_W-1:0] data;
  } beat_t;
  beat_t [LATENCY-1:0] beat;
  slot_t out_slot;  // that is released now
  index_t out_index;
  logic out_gone, releases, reads;
  slot_t  from;
  index_t at;
  assign releases = go && (start || issuing);
  assign from = issuing ? out_slot : chosen;
  assign at = issuing ? out_index : '0;
  assign reads = go && beat[Read].valid;

  always_ff @(posedge clk) begin
    automatic held_t [  Slots-1:0] h = held;
    automatic beat_t [LATENCY-1:0] b = beat;
    if (take)
      h[slot] = '{
          used: 1'b1,
          times: 9'(take_copies) + 9'(!take_straight),
          left: take_straight,
          meta: take_meta,
          default: '0
      };
    if (add && add_sof) h[slot] = '{used: 1'b1, times: 9'd1, meta: add_meta, default: '0};
    if (end_valid)
      {h[end_slot].ended, h[end_slot].final_index, h[end_slot].info} = {1'b1, end_index, end_info};
    if (add && add_last)
      {h[add_to].ended, h[add_to].final_index, h[add_to].info} = {1'b1, add_at, add_info};
    if (start) begin
      h[chosen].times = held[chosen].times - 1'b1;
      h[chosen].left  = 1'b1;
    end
    if (go) begin
      for (int i = LATENCY - 1; i > 0; i--) b[i] = beat[i-1];
      b[Read+1].data = held[beat[Read].slot].data[beat[Read].index];
      b[0] = '{
          valid: releases,
          sof: start,
          last: at == held[from].final_index,
          gone: issuing ? out_gone : held[from].times == 9'd1,
          slot: from,
          index: at,
          info: held[from].info,
          data: '0
      };
      if (reads && beat[Read].last && beat[Read].gone) h[beat[Read].slot].used = 1'b0;
    end
    if (releases) begin
      out_slot  <= from;
      out_index <= at + 1'b1;
      out_gone  <= b[0].gone;
    end
    if (go && wr_valid) begin
      h[wr_slot].data[way_index] = wr_data;
      h[wr_slot].written[way_index] = 1'b1;
    end
    if (add) begin
      h[add_to].data[add_at] = add_data;
      h[add_to].written[add_at] = 1'b1;
    end
    held <= h;
    beat <= b;
    if (rst) begin
      for (int s = 0; s < int'(Slots); s++) held[s].used <= 1'b0;
      for (int i = 0; i < int'(LATENCY); i++) beat[i].valid <= 1'b0;
    end
  end

  logic was_go, returned, out_was_made;
  logic [Slots-1:0] gone_once, by_add;
  always_ff @(posedge clk) begin
    was_go <= go && !rst;
    if (reads && beat[Read].last && beat[Read].gone) gone_once[beat[Read].slot] <= 1'b1;
    if (add && add_sof) by_add[slot] <= 1'b1;
    if (take) by_add[slot] <= 1'b0;
    if (rst) {gone_once, by_add} <= '0;
  end
  assign returned = gone_once[slot];
  assign out_was_made = by_add[beat[LATENCY-1].slot];
  logic inside_out;
  always_ff @(posedge clk) begin
    if (go && out_valid) inside_out <= !out_last;
    if (rst) inside_out <= 1'b0;
  end

  always_comb begin
    if (!rst) begin
      unused : assert (!(take || (add && add_sof)) || !held[slot].used);
      asked :
      assert (!start || (held[chosen].used && held[chosen].times != '0 && held[chosen].ended));
      metas :
      assert (!start || (start_meta == held[chosen].meta && start_copy == held[chosen].left));
      written : assert (!reads || held[beat[Read].slot].written[beat[Read].index]);
      owned : assert (!reads || held[beat[Read].slot].used);
      goes_on : assert (issuing == (beat[0].valid && !beat[0].last) || !was_go);
      order : assert (out_valid == beat[LATENCY-1].valid);
      content :
      assert (!out_valid || (out_data == beat[LATENCY-1].data && out_sof == beat[LATENCY-1].sof &&
                             out_last == beat[LATENCY-1].last));
      infos : assert (!out_valid || !out_last || out_info == beat[LATENCY-1].info);
      grammar : assert (!out_valid || out_sof == !inside_out);

      again :
      cover (out_valid && out_last && !out_sof && held[beat[LATENCY-1].slot].left && issuing);
      handed_out_again : cover (take && returned);
      waits_its_turn : cover (start && mw_hold.turn_due && start_passed == 16'd2);
      made : cover (out_valid && out_last && !out_sof && out_was_made);
    end
  end
endmodule

bind mw_hold mw_hold_proof #(
    .DATA_W(DATA_W),
    .BEATS_LOG2(BEATS_LOG2),
    .SLOTS_LOG2(SLOTS_LOG2),
    .META_W(META_W),
    .END_W(END_W),
    .LATENCY(LATENCY)
) proof (.*);
