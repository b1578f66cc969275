// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Holds frames back until their time. A frame is taken aside into a slot as its beats come
// from mw_act, and released `delay_ns` after the time at which its first beat was issued to
// mw_act; others pass it meanwhile. Since a released frame needs as many cycles from its
// issue to `out` as one that goes straight through mw_act, it leaves exactly `delay_ns` after
// it would have left, to one clock, unless the port is busy then.
//
// Slots are handed out first in numerical order, then as they come back.
module mw_delay #(
    parameter int unsigned DATA_W     = 512,  // 64 or 512
    parameter int unsigned BEATS_LOG2 = 8,    // a slot has room for 2**BEATS_LOG2 beats, 1 to 11
    parameter int unsigned SLOTS_LOG2 = 4,    // 2**SLOTS_LOG2 slots, 1 to 8
    parameter int unsigned META_W     = 8,    // what is kept with a frame, known at its beginning
    parameter int unsigned END_W      = 8,    // the same, known at its end
    parameter int unsigned LATENCY    = 4     // cycles of `go` from issue to out, at least 3
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic [          63:0] time_ns,
    input  logic                  go,
    // a frame begins to be taken aside, into `slot`
    output logic                  slot_free,
    output logic [SLOTS_LOG2-1:0] slot,
    input  logic                  take,
    input  logic [          39:0] take_delay_ns,
    input  logic [    META_W-1:0] take_meta,
    // its last beat is issued
    input  logic                  end_valid,
    input  logic [SLOTS_LOG2-1:0] end_slot,
    input  logic [BEATS_LOG2-1:0] end_index,      // number of the last beat, from 0
    input  logic [     END_W-1:0] end_info,
    // its beats come
    input  logic                  wr_valid,
    input  logic [SLOTS_LOG2-1:0] wr_slot,
    input  logic                  wr_last,
    input  logic [    DATA_W-1:0] wr_data,
    // a frame can be released
    output logic                  due,
    input  logic                  start,          // with due and go: its first beat is issued
    output logic [    META_W-1:0] start_meta,
    output logic                  issuing,        // a beat is issued with every `go`
    output logic                  out_valid,
    output logic                  out_sof,
    output logic                  out_last,
    output logic [     END_W-1:0] out_info,       // with out_last
    output logic [    DATA_W-1:0] out_data,
    output logic                  active,         // beats are on their way
    output logic                  timer_valid,
    output logic [          63:0] timer_ns        // earliest release
);
  if ((DATA_W != 64 && DATA_W != 512) || BEATS_LOG2 < 1 || BEATS_LOG2 > 11 || SLOTS_LOG2 < 1 ||
      SLOTS_LOG2 > 8 || META_W < 1 || END_W < 1 || LATENCY < 3) begin : g_bad
    $fatal(1, "mw_delay: a parameter is out of its range");
  end

  localparam int unsigned Slots = 1 << SLOTS_LOG2;
  typedef logic [SLOTS_LOG2-1:0] slot_t;
  typedef logic [BEATS_LOG2-1:0] beat_t;

  logic [DATA_W-1:0] mem[1 << (SLOTS_LOG2 + BEATS_LOG2)];
  logic [63:0] release_ns[Slots];
  logic [META_W-1:0] meta[Slots];
  logic [BEATS_LOG2+END_W-1:0] tail[Slots];

  // Free slots.
  slot_t returned_slot, back_slot;
  logic [SLOTS_LOG2:0] fresh;  // slots that were never handed out begin here
  logic returned_valid, any_fresh, back_valid, unused_ready;
  logic [SLOTS_LOG2:0] unused_free;
  assign any_fresh = !fresh[SLOTS_LOG2];
  assign slot_free = any_fresh || returned_valid;
  assign slot = any_fresh ? fresh[SLOTS_LOG2-1:0] : returned_slot;
  always_ff @(posedge clk) begin
    if (take && any_fresh) fresh <= fresh + 1'b1;
    if (rst) fresh <= '0;
  end
  mw_fifo #(
      .WIDTH(SLOTS_LOG2),
      .DEPTH_LOG2(SLOTS_LOG2)
  ) i_free (
      .clk,
      .rst,
      .in_valid(back_valid),
      .in_ready(unused_ready),
      .in_data(back_slot),
      .out_valid(returned_valid),
      .out_ready(take && !any_fresh),
      .out_data(returned_slot),
      .free(unused_free)
  );

  // Taking aside. `due` is a register and so one clock late; the time of the clock before
  // makes up for it.
  logic [63:0] time_q;
  beat_t wr_beat;
  logic insert;
  assign insert = wr_valid && wr_last && go;
  always_ff @(posedge clk) begin
    if (take) begin
      release_ns[slot] <= time_q + 64'(take_delay_ns);
      meta[slot] <= take_meta;
    end
    time_q <= time_ns;
    if (end_valid) tail[end_slot] <= {end_index, end_info};
    if (wr_valid && go) begin
      mem[{wr_slot, wr_beat}] <= wr_data;
      wr_beat <= wr_last ? '0 : wr_beat + 1'b1;
    end
    if (rst) wr_beat <= '0;
  end

  slot_t head;
  mw_sorted_queue #(
      .KEY_W(64),
      .VALUE_W(SLOTS_LOG2),
      .DEPTH_LOG2(SLOTS_LOG2)
  ) i_order (
      .clk,
      .rst,
      .in_valid(insert),
      .in_key(release_ns[wr_slot]),
      .in_value(wr_slot),
      .out_valid(timer_valid),
      .out_ready(start),
      .out_key(timer_ns),
      .out_value(head)
  );
  always_ff @(posedge clk) due <= !rst && timer_valid && !start && time_ns >= timer_ns;

  // Release. The first beat is issued with `start`, the others follow.
  slot_t rd_slot, at_slot;
  beat_t rd_beat, rd_final, at_beat, head_final;
  logic [END_W-1:0] rd_info, head_info;
  logic issue, final_beat;
  assign start_meta = meta[head];
  assign {head_final, head_info} = tail[head];
  assign issue = go && (start || issuing);
  assign at_slot = issuing ? rd_slot : head;
  assign at_beat = issuing ? rd_beat : '0;
  assign final_beat = at_beat == (issuing ? rd_final : head_final);
  assign back_valid = issue && final_beat;
  assign back_slot = at_slot;
  always_ff @(posedge clk) begin
    if (issue) begin
      rd_beat <= at_beat + 1'b1;
      issuing <= !final_beat;
    end
    if (start) {rd_slot, rd_final, rd_info} <= {head, head_final, head_info};
    if (rst) issuing <= 1'b0;
  end

  // The way to `out`: small registers first, the memory's two at the end.
  typedef struct packed {
    logic             sof;
    logic             last;
    logic [END_W-1:0] info;
    slot_t            slot;
    beat_t            beat;
  } step_t;
  step_t step[LATENCY];
  logic [LATENCY-1:0] valid;
  logic [DATA_W-1:0] first;
  always_ff @(posedge clk) begin
    if (go && (issue || valid != '0)) begin
      if (valid[LATENCY-2]) out_data <= first;
      if (valid[LATENCY-3]) first <= mem[{step[LATENCY-3].slot, step[LATENCY-3].beat}];
      for (int i = LATENCY - 1; i > 0; i--) step[i] <= step[i-1];
      step[0] <= '{
          sof: !issuing,
          last: final_beat,
          info: issuing ? rd_info : head_info,
          slot: at_slot,
          beat: at_beat
      };
      valid <= {valid[LATENCY-2:0], issue};
    end
    if (rst) valid <= '0;
  end
  assign out_valid = valid[LATENCY-1];
  assign out_sof = step[LATENCY-1].sof;
  assign out_last = step[LATENCY-1].last;
  assign out_info = step[LATENCY-1].info;
  assign active = issuing || due || (|valid);
endmodule
