// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Any word that is written is watched on its way: it comes out unchanged, after exactly the
// words that were written before it, and once. `free` is exact, a full buffer takes nothing, a
// word is shown READ + 1 cycles after it was written at the latest and stands until it is taken.
// The memory is never read where it is written in the same cycle. Nothing is assumed of the user.
//
// induction: 2 -GWIDTH=514 -GDEPTH_LOG2=10
// induction: 2 -GWIDTH=66 -GDEPTH_LOG2=13
// induction: 2 -GWIDTH=1 -GDEPTH_LOG2=1
// induction: 2 -GWIDTH=66 -GDEPTH_LOG2=13 -GREAD=2
// induction: 2 -GWIDTH=1 -GDEPTH_LOG2=1 -GREAD=2
// cover: 12 -GWIDTH=2 -GDEPTH_LOG2=2 -GREAD=2
// cover: 12 -GWIDTH=2 -GDEPTH_LOG2=2
// mutant: mw_fifo: in_valid && free != 0 => in_valid
// mutant: mw_fifo: stored != 0 && (!read_valid || read_ready) => stored != 0
// mutant: mw_fifo: in_valid || !free[DEPTH_LOG2] => in_valid
// mutant: mw_fifo: rd <= rd + 1'b1 => rd <= rd + push
// mutant: mw_fifo: read_ready = !both => read_ready = 1'b1
// mutant: mw_fifo: shows_odd == out_valid => !shows_odd
// mutant: mw_fifo: both <= stays && more => both <= stays && read_valid
module mw_fifo_proof #(
    parameter int unsigned WIDTH,
    parameter int unsigned DEPTH_LOG2,
    parameter int unsigned READ
) (
    input logic                  clk,
    input logic                  rst,
    input logic                  in_valid,
    input logic                  in_ready,
    input logic [     WIDTH-1:0] in_data,
    input logic                  out_valid,
    input logic                  out_ready,
    input logic [     WIDTH-1:0] out_data,
    input logic [  DEPTH_LOG2:0] free,
    input logic [DEPTH_LOG2-1:0] wr,
    input logic [DEPTH_LOG2-1:0] rd,
    input logic [  DEPTH_LOG2:0] stored,
    input logic                  read_valid
);
  localparam int unsigned Depth = 1 << DEPTH_LOG2;
  typedef logic [DEPTH_LOG2:0] count_t;
  typedef logic [DEPTH_LOG2-1:0] row_t;

  logic push, pop;
  assign push = in_valid && in_ready;
  assign pop  = out_valid && out_ready;

  count_t count;  // words in the buffer
  always_ff @(posedge clk) begin
    count <= count + count_t'(push) - count_t'(pop);
    if (rst) count <= '0;
  end

  logic anyseq_watch;  // the word that comes now is the one
  logic watched, next;
  logic [WIDTH-1:0] word;
  row_t ahead;  // words that leave before it
  assign next = watched && ahead == 0;
  always_ff @(posedge clk) begin
    if (watched && pop) begin
      ahead   <= ahead - 1'b1;
      watched <= !next;
    end
    if (anyseq_watch && push && !watched) begin
      watched <= 1'b1;
      word <= in_data;
      ahead <= row_t'(count - count_t'(pop));
    end
    if (rst) watched <= 1'b0;
  end

  logic held;
  logic [READ-1:0] waited;  // a word was there so many cycles ago, one at the least
  logic [WIDTH-1:0] shown;
  always_ff @(posedge clk) begin
    waited <= rst ? '0 : READ'({waited, stored != 0});
    held   <= out_valid && !out_ready && !rst;
    shown  <= out_data;
  end

  logic two, second;  // two words are in front of the memory's register; it is the second of them
  count_t outside;  // words in registers, not in the memory
  row_t   where;
  assign outside = count_t'(out_valid) + count_t'(two) + count_t'(READ == 2 && read_valid);
  assign where   = rd + ahead - row_t'(outside);
  logic in_register;  // the word lies between memory and output
  assign in_register = READ == 2 && watched && read_valid &&
      count_t'(ahead) == count_t'(out_valid) + count_t'(two);
  assign second = watched && two && ahead == row_t'(1);
  if (READ == 1) begin : g_straight
    assign two = 1'b0;
  end else begin : g_register
    assign two = mw_fifo.g_register.both;
    always_comb
      if (!rst)
        aux_second :
        assert (!second || (mw_fifo.g_register.shows_odd ? mw_fifo.g_register.even :
            mw_fifo.g_register.odd) == word);
  end
  always_comb begin
    if (!rst) begin
      counts : assert (free == count_t'(Depth) - count && count <= count_t'(Depth));
      room : assert (in_ready == (count != count_t'(Depth)));
      order : assert (!next || !out_valid || out_data == word);
      prompt : assert (!waited[READ-1] || out_valid);
      stands : assert (!held || (out_valid && out_data == shown));
      collision : assert (!push || stored == 0 || wr != rd);

      // What makes it inductive: where each word lies.
      aux_pointers : assert (row_t'(wr - rd) == row_t'(stored));
      aux_split : assert (stored == count - outside && outside <= count);
      aux_ahead : assert (!waited[0] || read_valid);
      aux_behind : assert (!watched || count_t'(ahead) < count);
      aux_two : assert (!two || out_valid);
      aux_register : assert (!in_register || mw_fifo.read_data == word);
      aux_memory : assert (!watched || count_t'(ahead) < outside || mw_fifo.mem[where] == word);

      passed : cover (next && pop && rd == 0);
      full : cover (in_valid && !in_ready);
      both : cover (push && pop && next);
    end
  end
endmodule

bind mw_fifo mw_fifo_proof #(
    .WIDTH(WIDTH),
    .DEPTH_LOG2(DEPTH_LOG2),
    .READ(READ)
) proof (.*);
