// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Stores frames that leave at another time than they came: held back for a while or until
// others have gone by, sent again as copies, or made by the card. A frame is stored in a slot
// as its beats come from mw_act, and released when it is due; others pass it meanwhile. Since
// a released frame needs as many cycles from its issue to `out` as one that goes straight
// through mw_act, times count from issue to issue and are exact to one clock, unless the port
// is busy.
//
//   delay      due `take_delay_ns` after the frame's issue
//   reorder    due when `take_after` frames have gone by, or reorder_timeout_ns after its issue
//   both       due when it is due by each
//   copies     after its own issue, here or straight, the frame is due again `take_gap_ns` after
//              the last time, `take_copies` times
//   added      due at once
//
// Of several frames that are due those to be reordered go first, then by the time at which
// they became due. Slots are handed out first in numerical order, then as they come back.
module mw_hold #(
    parameter int unsigned DATA_W     = 512,  // 64 or 512
    parameter int unsigned BEATS_LOG2 = 8,    // a slot has room for 2**BEATS_LOG2 beats, 1 to 11
    parameter int unsigned SLOTS_LOG2 = 4,    // 2**SLOTS_LOG2 slots, 1 to 8
    parameter int unsigned CONN_W     = 16,   // bits of a connection number
    parameter int unsigned META_W     = 8,    // what is kept with a frame, known at its beginning
    parameter int unsigned END_W      = 8,    // the same, known at its end
    parameter int unsigned LATENCY    = 4     // cycles of `go` from issue to out, at least 3
) (
    input logic clk,
    input logic rst,
    input logic [63:0] time_ns,
    input logic [31:0] reorder_timeout_ns,
    input logic go,
    // the first beat of a frame is issued that shall be stored, into `slot`
    output logic slot_free,
    output logic [SLOTS_LOG2-1:0] slot,
    input logic take,
    input logic take_straight,  // the frame itself leaves, its copies wait
    input logic take_delay,  // not with take_straight, as the next one
    input logic take_reorder,
    input logic [39:0] take_delay_ns,
    input logic take_lane,  // any frame counts, else those of take_conn
    input logic [CONN_W-1:0] take_conn,
    input logic [15:0] take_after,  // at least 1
    input logic [7:0] take_copies,
    input logic [31:0] take_gap_ns,
    input logic [META_W-1:0] take_meta,
    // its last beat is issued
    input logic end_valid,
    input logic [SLOTS_LOG2-1:0] end_slot,
    input logic [BEATS_LOG2-1:0] end_index,  // number of the last beat, from 0
    input logic [END_W-1:0] end_info,
    // its beats come
    input logic wr_valid,
    input logic [SLOTS_LOG2-1:0] wr_slot,
    input logic wr_last,
    input logic [DATA_W-1:0] wr_data,
    // the first beat of a frame is issued that goes straight
    input logic pass,
    input logic [CONN_W-1:0] pass_conn,
    // a frame that the card made, beat by beat
    input logic add_valid,
    output logic add_ready,
    input logic add_sof,
    input logic add_last,
    input logic [DATA_W-1:0] add_data,
    input logic [META_W-1:0] add_meta,  // with add_sof
    input logic [END_W-1:0] add_info,  // with add_last
    // a frame can be released
    output logic due,  // nothing else should be issued meanwhile
    output logic ready,  // with due: `start` may come
    input logic start,  // with go: its first beat is issued
    output logic [META_W-1:0] start_meta,
    output logic start_copy,  // it left before
    output logic start_reordered,
    output logic [15:0] start_passed,  // frames that it was to wait for and that went by
    output logic issuing,  // a beat is issued with every `go`
    output logic out_valid,
    output logic out_sof,
    output logic out_last,
    output logic [END_W-1:0] out_info,  // with out_last
    output logic [DATA_W-1:0] out_data,
    output logic active,  // something is on its way
    output logic timer_valid,
    output logic [63:0] timer_ns  // when a frame is due next
);
  if ((DATA_W != 64 && DATA_W != 512) || BEATS_LOG2 < 1 || BEATS_LOG2 > 11 || SLOTS_LOG2 < 1 ||
      SLOTS_LOG2 > 8 || CONN_W < 1 || META_W < 1 || END_W < 1 || LATENCY < 3) begin : g_bad
    $fatal(1, "mw_hold: a parameter is out of its range");
  end

  localparam int unsigned Slots = 1 << SLOTS_LOG2;
  typedef logic [SLOTS_LOG2-1:0] slot_t;
  typedef logic [BEATS_LOG2-1:0] beat_t;

  // ---- What is kept of a slot ----
  typedef struct packed {
    logic        copy;    // it has left before
    logic        more;    // it leaves after the next time, too
    logic [7:0]  left;    // times that it does
    logic [31:0] gap_ns;
  } again_t;
  // A frame's beats are read in later clocks than they are written in, so no logic forwards.
  (* no_rw_check *)
  logic [DATA_W-1:0] mem[1 << (SLOTS_LOG2 + BEATS_LOG2)];
  logic [META_W-1:0] meta[Slots];
  typedef struct packed {
    logic                  single;       // the frame has one beat
    logic [BEATS_LOG2-1:0] final_index;
    logic [END_W-1:0]      info;
  } tail_t;
  tail_t  tail [Slots];
  again_t again[Slots];

  // ---- Free slots ----
  slot_t returned_slot, back_slot;
  logic [SLOTS_LOG2:0] fresh;  // slots that were never handed out begin here
  logic returned_valid, returned_ready, any_fresh, back_valid, unused_ready, slot_used;
  logic [SLOTS_LOG2:0] unused_free;
  assign any_fresh = !fresh[SLOTS_LOG2];
  assign slot_free = any_fresh || returned_valid;
  assign slot = any_fresh ? fresh[SLOTS_LOG2-1:0] : returned_slot;
  assign returned_ready = slot_used && !any_fresh;
  always_ff @(posedge clk) begin
    if (slot_used && any_fresh) fresh <= fresh + 1'b1;
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
      .out_ready(returned_ready),
      .out_data(returned_slot),
      .free(unused_free)
  );

  // ---- Storing: frames from the lane, and made ones when the lane leaves the store alone ----
  logic add, add_begin, add_end;
  slot_t add_slot, add_slot_q;
  beat_t wr_beat, add_beat, add_at;
  again_t start_again;
  logic begun, begun_copy;
  slot_t begun_slot;
  logic [7:0] begun_times, begun_left;
  logic [31:0] begun_gap;
  assign begun_left = begun_times - 8'(begun_copy);
  assign add_ready = !wr_valid && !take && !end_valid && !start && (!add_sof || slot_free);
  assign add = add_valid && add_ready;
  assign add_begin = add && add_sof;
  assign add_end = add && add_last;
  assign add_slot = add_sof ? slot : add_slot_q;
  assign add_at = add_sof ? '0 : add_beat;
  assign slot_used = take || add_begin;

  slot_t chosen;  // the slot to be released
  always_ff @(posedge clk) begin
    if (slot_used) meta[slot] <= take ? take_meta : add_meta;
    if (end_valid) tail[end_slot] <= {end_index == '0, end_index, end_info};
    else if (add_end) tail[add_slot] <= {add_at == '0, add_at, add_info};
    // What is left is counted a clock later; a slot is not released sooner than that.
    if (take || start || add_valid) begin
      begun_slot  <= start ? chosen : slot;
      begun_copy  <= start || (take && take_straight);
      begun_times <= start ? start_again.left : take ? take_copies : '0;
      begun_gap   <= start ? start_again.gap_ns : take_gap_ns;
    end
    begun <= (slot_used || start) && !rst;
    if (begun)
      again[begun_slot] <= '{
          copy: begun_copy,
          more: begun_left != '0,
          left: begun_left,
          gap_ns: begun_gap
      };
    if (wr_valid && go) begin
      mem[{wr_slot, wr_beat}] <= wr_data;
      wr_beat <= wr_last ? '0 : wr_beat + 1'b1;
    end else if (add) begin
      mem[{add_slot, add_at}] <= add_data;
    end
    if (add) begin
      add_slot_q <= add_slot;
      add_beat   <= add_at + 1'b1;
    end
    if (rst) wr_beat <= '0;
  end

  // ---- Whose time it is ----
  // `time_due` is a register and so one clock late; the time of the clock before makes up for it.
  // A time is summed in the clock after, and stands in a register before it enters the queue. There
  // it is compared like the first of the queue, so that what is due at once loses no clock by this.
  logic [63:0] time_q, time_q2, timed_key;
  logic [39:0] wait_ns;
  logic timed_in, wait_valid, timed_valid, timed_out, time_valid, time_due, start_more;
  slot_t timed_in_slot, timed_slot;
  logic [SLOTS_LOG2:0] wait_value, timed_value;
  logic timed_joins;  // it has to wait for others, too
  logic [63:0] time_next;

  assign start_more = start && start_again.more;
  assign timed_in = (take && (take_delay || take_straight)) || start_more || add_end;
  assign timed_in_slot = take ? slot : start ? chosen : add_slot;
  always_ff @(posedge clk) begin
    time_q  <= time_ns;
    time_q2 <= time_q;
    if (take || start || add_valid) begin
      wait_value <= {take && take_reorder, timed_in_slot};
      wait_ns <= start ? 40'(start_again.gap_ns) : '0;
      if (take) wait_ns <= take_straight ? 40'(take_gap_ns) : take_delay_ns;
    end
    if (wait_valid) {timed_key, timed_value} <= {time_q2 + 64'(wait_ns), wait_value};
    wait_valid  <= timed_in && !rst;
    timed_valid <= wait_valid && !rst;
  end
  mw_sorted_queue #(
      .KEY_W(64),
      .VALUE_W(SLOTS_LOG2 + 1),
      .DEPTH_LOG2(SLOTS_LOG2)
  ) i_timed (
      .clk,
      .rst,
      .in_valid(timed_valid),
      .in_key(timed_key),
      .in_value(timed_value),
      .out_valid(time_valid),
      .out_ready(timed_out),
      .out_key(time_next),
      .out_value({timed_joins, timed_slot})
  );
  always_ff @(posedge clk)
    time_due <= !rst && !timed_out &&
                ((time_valid && time_ns >= time_next) || (timed_valid && time_ns >= timed_key));

  // ---- Whose turn it is ----
  logic turn_push, turn_push_timed, turn_timed, turn_pop;
  logic turn_due, turn_valid, turn_active, turn_timer_valid;
  slot_t turn_slot;
  logic [63:0] turn_timer_ns;
  assign turn_push = take && take_reorder;
  assign turn_push_timed = !take_delay;
  assign turn_timed = time_due && timed_joins;
  assign turn_pop = start && turn_due;
  mw_reorder #(
      .SLOTS_LOG2(SLOTS_LOG2),
      .CONN_W(CONN_W)
  ) i_reorder (
      .clk,
      .rst,
      .time_ns,
      .timeout_ns(reorder_timeout_ns),
      .push(turn_push),
      .push_slot(slot),
      .push_conn(take_conn),
      .push_lane(take_lane),
      .push_after(take_after),
      .push_timed(turn_push_timed),
      .pass,
      .pass_conn,
      .timed(turn_timed),
      .timed_slot,
      .due(turn_due),
      .out_valid(turn_valid),
      .out_slot(turn_slot),
      .out_passed(start_passed),
      .pop(turn_pop),
      .active(turn_active),
      .timer_valid(turn_timer_valid),
      .timer_ns(turn_timer_ns)
  );
  assign timer_valid = time_valid || turn_timer_valid;
  assign timer_ns = !time_valid || (turn_timer_valid && turn_timer_ns < time_next) ? turn_timer_ns :
      time_next;

  // A frame's first beat is in the memory when its release reads it, if both were issued three
  // cycles of `go` apart.
  logic [1:0] taken;
  always_ff @(posedge clk) begin
    if (go) taken <= {taken[0], take};
    if (rst) taken <= '0;
  end
  assign due = turn_due || (time_due && !timed_joins);
  assign ready = taken == '0 && (turn_valid || !turn_due);
  assign timed_out = time_due && (timed_joins || (start && !turn_due));
  assign chosen = turn_due ? turn_slot : timed_slot;

  // ---- Release: the first beat is issued with `start`, the others follow ----
  slot_t rd_slot, at_slot;
  beat_t rd_beat, rd_final, at_beat;
  logic [END_W-1:0] rd_info;
  tail_t start_tail;
  logic rd_more, issue, final_beat;
  assign start_meta = meta[chosen];
  assign start_again = again[chosen];
  assign start_copy = start_again.copy;
  assign start_reordered = turn_due;
  assign start_tail = tail[chosen];
  assign issue = go && (start || issuing);
  assign at_slot = issuing ? rd_slot : chosen;
  assign at_beat = issuing ? rd_beat : '0;
  assign final_beat = issuing ? rd_beat == rd_final : start_tail.single;
  always_ff @(posedge clk) begin
    if (issue) begin
      rd_beat <= at_beat + 1'b1;
      issuing <= !final_beat;
    end
    if (start)
      {rd_slot, rd_final, rd_info, rd_more} <= {
        chosen, start_tail.final_index, start_tail.info, start_more
      };
    if (rst) issuing <= 1'b0;
  end

  // The way to `out`: small registers first, the memory's two at the end. A slot is given back
  // when the last of it has been read.
  localparam int unsigned Read = LATENCY - 3;
  typedef struct packed {
    logic             sof;
    logic             last;
    logic             more;  // the slot is kept
    logic [END_W-1:0] info;
    slot_t            slot;
    beat_t            beat;
  } step_t;
  step_t step[LATENCY];
  logic [LATENCY-1:0] valid;
  logic [DATA_W-1:0] first;
  assign back_valid = go && valid[Read] && step[Read].last && !step[Read].more;
  assign back_slot  = step[Read].slot;
  always_ff @(posedge clk) begin
    if (go && (issue || valid != '0)) begin
      if (valid[LATENCY-2]) out_data <= first;
      if (valid[Read]) first <= mem[{step[Read].slot, step[Read].beat}];
      for (int i = LATENCY - 1; i > 0; i--) step[i] <= step[i-1];
      step[0] <= '{
          sof: !issuing,
          last: final_beat,
          more: issuing ? rd_more : start_more,
          info: issuing ? rd_info : start_tail.info,
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
  assign active = issuing || wait_valid || timed_valid || time_due || turn_active || (|valid);
endmodule
