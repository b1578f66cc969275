// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Frames that wait until so many others have gone by.
//
// A row of cells in the order in which frames began to wait. Each counts those that go by, of
// its connection or of the lane, and has its turn when they are enough and `timed` is told of
// it. One that is not gone by often enough has its turn `timeout_ns` after it began to wait.
// The longest waiting of those that have their turn is shown. That time is out is known a clock
// late; the time of the clock before that of `push` makes up for it.
//
// `due` comes with the clock after the frame that makes it so: whoever lets nothing by from
// then on releases the waiting frame exactly in its place. Which one it is needs a clock more.
module mw_reorder #(
    parameter int unsigned SLOTS_LOG2 = 4,  // 2**SLOTS_LOG2 frames can wait, 1 to 8
    parameter int unsigned CONN_W     = 16  // bits of a connection number, at least 1
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic [          63:0] time_ns,
    input  logic [          31:0] timeout_ns,
    // a frame begins to wait; slots that wait are all different
    input  logic                  push,
    input  logic [SLOTS_LOG2-1:0] push_slot,
    input  logic [    CONN_W-1:0] push_conn,
    input  logic                  push_lane,    // any frame counts, else those of the connection
    input  logic [          15:0] push_after,   // how many, at least 1
    input  logic                  push_timed,   // as `timed`
    // a frame goes by; not with push
    input  logic                  pass,
    input  logic [    CONN_W-1:0] pass_conn,
    // it may have its turn
    input  logic                  timed,
    input  logic [SLOTS_LOG2-1:0] timed_slot,
    // its turn
    output logic                  due,
    output logic                  out_valid,    // with due: the outputs below hold
    output logic [SLOTS_LOG2-1:0] out_slot,
    output logic [          15:0] out_passed,   // frames that went by; saturates
    input  logic                  pop,          // with out_valid, without pass and push
    output logic                  active,       // something changes in the next clock
    output logic                  timer_valid,
    output logic [          63:0] timer_ns      // the next time-out
);
  if (SLOTS_LOG2 < 1 || SLOTS_LOG2 > 8 || CONN_W < 1) begin : g_bad
    $fatal(1, "mw_reorder: SLOTS_LOG2 must be between 1 and 8, CONN_W at least 1");
  end

  localparam int unsigned Depth = 1 << SLOTS_LOG2;
  typedef logic [SLOTS_LOG2-1:0] slot_t;
  typedef struct packed {
    slot_t slot;
    logic [CONN_W-1:0] conn;
    logic lane;
    logic timed;
    logic met;  // enough have gone by, or time is out
    logic last;  // the next one is enough
    logic [15:0] left;  // frames that have yet to go by; of no meaning after the last of them
    logic [15:0] passed;
  } cell_t;

  // The cells of `valid` are those from 0 on.
  cell_t cell_q[Depth];
  logic [Depth-1:0] valid;
  logic [63:0] until_ns[Depth];

  // What is shown follows a change by one clock.
  logic changed, more;
  slot_t out_index;
  logic waiting, late;
  slot_t waiting_slot, late_slot;
  logic [63:0] time_q;
  assign timer_valid = waiting;
  assign timer_ns = until_ns[waiting_slot];
  assign active = changed || late || due;

  always_ff @(posedge clk) begin
    automatic logic event_now = push || (valid[0] && (pass || timed || late || pop));
    automatic logic some_due = 1'b0;
    time_q <= time_ns;
    late <= waiting && !late && time_ns >= timer_ns;
    late_slot <= waiting_slot;
    if (changed) begin
      // The first that has its turn, and the first that waits for others.
      automatic logic  another = 1'b0;
      automatic logic  unmet = 1'b0;
      automatic slot_t index = '0;
      for (int i = Depth - 1; i >= 0; i--) begin
        if (valid[i] && cell_q[i].met && cell_q[i].timed) begin
          another = some_due;
          some_due = 1'b1;
          index = slot_t'(i);
        end
        if (valid[i] && !cell_q[i].met) begin
          unmet = 1'b1;
          waiting_slot <= cell_q[i].slot;
        end
      end
      waiting <= unmet;
      due <= some_due;
      more <= another;
      out_valid <= some_due;
      out_index <= index;
      out_slot <= cell_q[index].slot;
      out_passed <= cell_q[index].passed;
      changed <= 1'b0;
    end
    if (event_now) begin
      automatic logic completes = 1'b0;  // a cell gets its turn by the one that goes by
      // Written as a whole: simulators then copy nothing in the clocks without an event.
      automatic cell_t next[Depth] = cell_q;
      for (int i = 0; i < Depth; i++) begin
        if (timed && cell_q[i].slot == timed_slot) next[i].timed = 1'b1;
        if (late && cell_q[i].slot == late_slot) next[i].met = 1'b1;
      end
      for (int i = 0; i < Depth; i++) begin
        if (!valid[i]) begin
          if (push && (i == 0 || valid[(i+Depth-1)%Depth]))
            next[i] = '{
                slot: push_slot,
                conn: push_conn,
                lane: push_lane,
                timed: push_timed,
                met: 1'b0,
                last: push_after == 16'd1,
                left: push_after,
                passed: '0
            };
        end else if (pop) begin
          if (i >= 32'(out_index)) next[i] = next[(i+1)%Depth];
        end else if (pass && (cell_q[i].lane || cell_q[i].conn == pass_conn)) begin
          completes = completes || (cell_q[i].timed && cell_q[i].last);
          if (cell_q[i].last) next[i].met = 1'b1;
          next[i].last = cell_q[i].left == 16'd2;
          next[i].left = cell_q[i].left - 1'b1;
          if (cell_q[i].passed != '1) next[i].passed = cell_q[i].passed + 1'b1;
        end
      end
      cell_q <= next;
      if (push) until_ns[push_slot] <= time_q + 64'(timeout_ns);
      if (push) valid <= {valid[Depth-2:0], 1'b1};
      if (pop) valid <= {1'b0, valid[Depth-1:1]};
      if (late) waiting <= 1'b0;
      due <= pop ? more : completes || (changed ? some_due : due);
      out_valid <= 1'b0;
      changed <= 1'b1;
    end
    if (rst) begin
      valid <= '0;
      due <= 1'b0;
      out_valid <= 1'b0;
      waiting <= 1'b0;
      late <= 1'b0;
      changed <= 1'b0;
    end
    assert (rst || !push || !valid[Depth-1])
    else $fatal(1, "mw_reorder: overflow");
  end
endmodule
