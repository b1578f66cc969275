// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Any entry that goes in is watched: it comes out unchanged and once, before every entry with a
// greater key and every later one with the same, after every other. What is shown has the
// smallest key of all, and something is shown whenever there is something. Assumed of the user:
// nothing goes into a full queue unless something leaves it.
//
// induction: 2 -GKEY_W=64 -GVALUE_W=4 -GDEPTH_LOG2=4
// induction: 2 -GKEY_W=3 -GVALUE_W=1 -GDEPTH_LOG2=1
// cover: 10 -GKEY_W=3 -GVALUE_W=2 -GDEPTH_LOG2=2
// mutant: mw_sorted_queue: in_key < cells[i%Depth].key => in_key <= cells[i%Depth].key
// mutant: mw_sorted_queue: up ? cells[(i+Depth-1)%Depth] => up ? cells[i]
// mutant: mw_sorted_queue: if (in_valid != pop) valid => if (in_valid && !pop) valid
// mutant: mw_sorted_queue: down = pop && !after[i+1] => down = pop && !after[i]
module mw_sorted_queue_proof #(
    parameter int unsigned KEY_W,
    parameter int unsigned VALUE_W,
    parameter int unsigned DEPTH_LOG2
) (
    input logic               clk,
    input logic               rst,
    input logic               in_valid,
    input logic [  KEY_W-1:0] in_key,
    input logic [VALUE_W-1:0] in_value,
    input logic               out_valid,
    input logic               out_ready,
    input logic [  KEY_W-1:0] out_key,
    input logic [VALUE_W-1:0] out_value
);
  localparam int unsigned Depth = 1 << DEPTH_LOG2;
  typedef logic [DEPTH_LOG2:0] count_t;

  logic   pop;
  count_t count;  // entries in the queue
  assign pop = out_valid && out_ready;
  always_ff @(posedge clk) begin
    count <= count + count_t'(in_valid) - count_t'(pop);
    if (rst) count <= '0;
  end
  always_comb if (in_valid && count == count_t'(Depth)) assume (pop);

  typedef struct packed {
    logic [KEY_W-1:0]   key;
    logic [VALUE_W-1:0] value;
  } entry_t;
  entry_t [Depth-1:0] cells;
  always_comb begin
    cells[0] = mw_sorted_queue.head;
    for (int i = 1; i < Depth; i++) cells[i] = mw_sorted_queue.behind[i];
  end

  // Entries that the new one comes behind.
  logic [Depth:0] ahead;
  logic [Depth-1:0] valid, sorted;
  always_comb begin
    ahead  = '0;
    valid  = '0;
    sorted = '0;
    for (int i = 0; i < Depth; i++) begin
      valid[i]  = count_t'(i) < count;
      ahead[i]  = valid[i] && cells[i].key <= in_key;
      sorted[i] = i == 0 || !valid[i] || cells[(i+Depth-1)%Depth].key <= cells[i].key;
    end
  end

  logic anyseq_watch;  // the entry that comes now is the one
  logic [Depth:0] place;  // of the entry in the queue, one-hot; none: it is not there
  logic [KEY_W-1:0] key;
  logic [VALUE_W-1:0] value;
  always_ff @(posedge clk) begin
    // First one leaves, then one comes.
    automatic logic [Depth:0] here = pop ? place >> 1 : place;
    automatic logic [Depth:0] others = pop ? ahead >> 1 : ahead;
    if (in_valid) begin
      if (here != '0) begin
        if (in_key < key) here = here << 1;
      end else if (anyseq_watch) begin
        here = ~others & {others[Depth-1:0], 1'b1};
        {key, value} <= {in_key, in_value};
      end
    end
    place <= here;
    if (rst) place <= '0;
  end

  logic [Depth-1:0] right;  // the entry lies at its place
  always_comb begin
    for (int i = 0; i < Depth; i++) begin
      right[i] = !place[i] || (valid[i] && cells[i] == {key, value});
    end
  end

  always_comb begin
    if (!rst) begin
      shown : assert (out_valid == (count != '0) && count <= count_t'(Depth));
      order : assert (!place[0] || (out_valid && {out_key, out_value} == {key, value}));
      least : assert (place == '0 || place[0] || out_key <= key);
      room : assert (!place[Depth] && (place & (place - 1'b1)) == '0);

      aux_valid : assert (mw_sorted_queue.valid == valid);
      aux_sorted : assert (&sorted);
      aux_place : assert (&right);

      passed : cover (place[0] && pop && in_valid && in_key == key);
      overtaken : cover (place[Depth-1]);
      full : cover (count == count_t'(Depth) && in_valid && place[1] && in_key < key);
    end
  end
endmodule

bind mw_sorted_queue mw_sorted_queue_proof #(
    .KEY_W(KEY_W),
    .VALUE_W(VALUE_W),
    .DEPTH_LOG2(DEPTH_LOG2)
) proof (.*);
