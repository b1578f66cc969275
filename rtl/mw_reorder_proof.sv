// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Any frame that begins to wait is watched, until it is let go, once. It is shown as having its
// turn only when as many frames as it waits for have gone by, or its time was out, and `timed` was
// told of it; and then unless one that waits longer has its turn, too. `out_passed` is the number
// that went by.
//
// `due` comes with the clock after the frame that makes it so, and in any other case two clocks
// after at the latest; it never comes without a turn, and stands until the frame is let go. What
// is shown follows within a clock in which nothing happens. One that is the first of those that
// wait for others needs to wait for no more at most six clocks after its time.
//
// Assumed of the user: slots that wait are all different, and so are not more than there are;
// neither passes nor pushes come together, nor with a pop; one pops what is shown; time does not
// run backwards.
//
// induction: 5 -GSLOTS_LOG2=4 -GCONN_W=16
// induction: 5 -GSLOTS_LOG2=1 -GCONN_W=1
// cover: 12 -GSLOTS_LOG2=2 -GCONN_W=1
// mutant: mw_reorder: i >= 32'(out_index) => i > 32'(out_index)
// mutant: mw_reorder: if (pass && (cell_q[i].lane || cell_q[i].conn == pass_conn)) => if (pass && cell_q[i].conn == pass_conn)
// mutant: mw_reorder: completes = completes || (cell_q[i].timed && cell_q[i].last); =>
// mutant: mw_reorder: if (cell_q[i].last) next[i].met = 1'b1; => next[i].met = cell_q[i].last;
// mutant: mw_reorder: if (timed && cell_q[i].slot == timed_slot) => if (timed)
// mutant: mw_reorder: if (late && cell_q[i].slot == late_slot) => if (late)
// mutant: mw_reorder: for (int i = Depth - 1; i >= 0; i--) begin => for (int i = 0; i < Depth; i++) begin
// mutant: mw_reorder: due <= pop ? more : => due <= pop ? due :
// mutant: mw_reorder: completes || (changed ? some_due : due) => completes || due
// mutant: mw_reorder: last: push_after == 16'd1 => last: 1'b0
// mutant: mw_reorder: if (push) until_ns[push_slot] => if (push && !valid[0]) until_ns[push_slot]
module mw_reorder_proof #(
    parameter int unsigned SLOTS_LOG2,
    parameter int unsigned CONN_W
) (
    input logic                  clk,
    input logic                  rst,
    input logic [          63:0] time_ns,
    input logic [          31:0] timeout_ns,
    input logic                  push,
    input logic [SLOTS_LOG2-1:0] push_slot,
    input logic [    CONN_W-1:0] push_conn,
    input logic                  push_lane,
    input logic [          15:0] push_after,
    input logic                  push_timed,
    input logic                  pass,
    input logic [    CONN_W-1:0] pass_conn,
    input logic                  timed,
    input logic [SLOTS_LOG2-1:0] timed_slot,
    input logic                  due,
    input logic                  out_valid,
    input logic [SLOTS_LOG2-1:0] out_slot,
    input logic [          15:0] out_passed,
    input logic                  pop,
    input logic                  active,
    input logic                  timer_valid,
    input logic [          63:0] timer_ns,
    // inside
    input logic                  changed,
    input logic [SLOTS_LOG2-1:0] out_index
);
  localparam int unsigned Depth = 1 << SLOTS_LOG2;
  typedef logic [SLOTS_LOG2-1:0] slot_t;

  logic [63:0] before_ns;
  always_ff @(posedge clk) before_ns <= time_ns;

  // ---- The frame that is watched ----
  logic anyseq_watch;  // the one that comes now is it
  logic is_it, waits, lane, told, out_of_time;
  slot_t slot, place;
  logic [CONN_W-1:0] conn;
  logic [15:0] after, passed;
  logic [63:0] until_ns;
  logic counts, enough, turn;
  logic [SLOTS_LOG2:0] count;
  assign is_it  = push && !waits && anyseq_watch;
  assign counts = pass && waits && (lane || conn == pass_conn);
  assign turn   = waits && told && (enough || out_of_time);
  always_ff @(posedge clk) begin
    count <= count + (SLOTS_LOG2 + 1)'(push) - (SLOTS_LOG2 + 1)'(pop);
    if (is_it) begin
      waits <= 1'b1;
      {slot, conn, lane, after, told} <= {push_slot, push_conn, push_lane, push_after, push_timed};
      until_ns <= before_ns + 64'(timeout_ns);
      place <= slot_t'(count);
      passed <= '0;
      {enough, out_of_time} <= '0;
    end else if (waits) begin
      if (counts) begin
        if (passed != '1) passed <= passed + 1'b1;
        if (17'(passed) + 17'd1 == 17'(after)) enough <= 1'b1;
      end
      if (timed && timed_slot == slot) told <= 1'b1;
      if (time_ns >= until_ns) out_of_time <= 1'b1;
      if (pop && out_index < place) place <= place - 1'b1;
      if (pop && out_slot == slot) waits <= 1'b0;
    end
    if (rst) {count, waits} <= '0;
  end

  // ---- All cells ----
  logic [Depth-1:0] valid, turns, waiting, same, others;
  slot_t first_waiting;
  always_comb begin
    first_waiting = '0;
    for (int i = Depth - 1; i >= 0; i--)
    if (mw_reorder.valid[i] && !mw_reorder.cell_q[i].met) first_waiting = mw_reorder.cell_q[i].slot;
    for (int unsigned i = 0; i < Depth; i++) begin
      valid[i] = mw_reorder.valid[i];
      turns[i] = valid[i] && mw_reorder.cell_q[i].met && mw_reorder.cell_q[i].timed;
      waiting[i] = valid[i] && !mw_reorder.cell_q[i].met;
      same[i] = valid[i] && mw_reorder.cell_q[i].slot == push_slot;
      others[i] = valid[i] && slot_t'(i) != place && mw_reorder.cell_q[i].slot == slot;
    end
  end
  always_comb begin
    if (!rst) begin
      assume (time_ns >= before_ns);
      assume (!push || !pass);
      assume (!pop || (out_valid && !push && !pass));
      assume (!push || (same == '0 && !valid[Depth-1] && push_after != '0));
    end
  end

  logic [Depth-1:0] ahead;  // cells of frames that wait longer
  assign ahead = (Depth'(1) << place) - 1'b1;
  typedef struct packed {
    logic [SLOTS_LOG2-1:0] slot;
    logic [CONN_W-1:0]     conn;
    logic                  lane;
    logic                  timed;
    logic                  met;
    logic                  last;
    logic [15:0]           left;
    logic [15:0]           passed;
  } cell_t;
  cell_t mine;
  assign mine = mw_reorder.cell_q[place];

  // ---- What was a clock ago, and two ----
  logic completed, had_turn, had_turn2, quiet, rested, were_due, was_valid;
  logic [5:1] overdue;
  always_ff @(posedge clk) begin
    completed <= counts && told && 17'(passed) + 17'd1 == 17'(after) && !rst;
    had_turn <= turn && enough && !rst;
    had_turn2 <= had_turn && waits && !rst;
    quiet <= !push && !pass && !timed && !pop && !mw_reorder.late && !rst;
    rested <= !active && !push && !pass && !timed && !mw_reorder.late && !rst;
    were_due <= due && !pop && !rst;
    was_valid <= out_valid;
    overdue <= rst ? '0 : {
      overdue[4:1], waits && !mine.met && out_of_time && (waiting & ahead) == '0
    };
  end
  always_comb begin
    if (!rst) begin
      right : assert (!out_valid || !waits || out_slot != slot || (turn && out_passed == passed));
      oldest : assert (!out_valid || !had_turn || out_slot == slot || out_index < place);
      at_once : assert (!completed || due);
      soon : assert (!had_turn2 || !waits || due);
      never_else : assert (!due || turns != '0);
      lasts : assert (!were_due || due);
      shows : assert (!quiet || out_valid == due);
      three : cover (out_valid && waits && out_slot != slot && turn && 32'(count) > 2);
      late : cover (out_valid && waits && out_slot == slot && !enough && pop);
      exact : cover (completed && out_passed == 16'd0 && 32'(count) == 2);

      in_time : assert (overdue != '1 || !waits || mine.met || (waiting & ahead) != '0);
      stays : assert (!waits || (32'(place) < 32'(count)));
      rests : assert (!rested || (!due && !out_valid));

      aux_shown :
      assert (changed ? !out_valid : out_valid == due && due == (turns != '0) &&
              mw_reorder.waiting == (waiting != '0));
      aux_first :
      assert (!out_valid || (turns[out_index] &&
              (turns & ((Depth'(1) << out_index) - 1'b1)) == '0 &&
              mw_reorder.more == ((turns & (turns - 1'b1)) != '0) &&
              out_slot == mw_reorder.cell_q[out_index].slot &&
              out_passed == mw_reorder.cell_q[out_index].passed));
      aux_waiting :
      assert (changed || !mw_reorder.waiting || mw_reorder.waiting_slot == first_waiting);
      aux_valid : assert (valid == Depth'((33'd1 << count) - 33'd1) && 32'(count) <= Depth);
      aux_mine :
      assert (!waits || (mine.slot == slot && mine.conn == conn && mine.lane == lane &&
              mine.timed == told && mine.passed == passed && after != '0 &&
              mine.last == (mine.left == 16'd1)));
      aux_left : assert (!waits || enough || (passed < after && mine.left == after - passed));
      aux_met : assert (!waits || !mine.met || enough || out_of_time);
      aux_enough : assert (!waits || !enough || mine.met);
      aux_until : assert (!waits || mw_reorder.until_ns[slot] == until_ns);
      aux_time : assert (!waits || !out_of_time || time_ns >= until_ns);
      aux_late : assert (!mw_reorder.late || !waits || mw_reorder.late_slot != slot || out_of_time);
      aux_others : assert (!waits || others == '0);
    end
  end
endmodule

bind mw_reorder mw_reorder_proof #(
    .SLOTS_LOG2(SLOTS_LOG2),
    .CONN_W(CONN_W)
) proof (.*);
