// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// First-in first-out buffer of one clock, first word fall through, output registered.
// It never overflows by itself: a writer looks at `in_ready`, or holds a credit.
//
// The memory is read ahead into the output register, so a word appears two cycles after it
// was written to an empty buffer.
module mw_fifo #(
    parameter int unsigned WIDTH      = 8,  // bits of a word, at least 1
    parameter int unsigned DEPTH_LOG2 = 4   // 2**DEPTH_LOG2 words, 1 to 20
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                in_valid,
    output logic                in_ready,
    input  logic [   WIDTH-1:0] in_data,
    output logic                out_valid,
    input  logic                out_ready,
    output logic [   WIDTH-1:0] out_data,
    output logic [DEPTH_LOG2:0] free        // words that can still be written
);
  if (WIDTH < 1 || DEPTH_LOG2 < 1 || DEPTH_LOG2 > 20) begin : g_bad
    $fatal(1, "mw_fifo: WIDTH must be at least 1 and DEPTH_LOG2 between 1 and 20");
  end

  localparam int unsigned Depth = 1 << DEPTH_LOG2;

  logic [WIDTH-1:0] mem[Depth];
  logic [DEPTH_LOG2-1:0] wr, rd;
  logic [DEPTH_LOG2:0] stored;  // words in mem alone, written in an earlier cycle
  assign in_ready = free != 0;

  // Nothing changes in a buffer that is empty and not written. Reset comes last, and each
  // register is written after it was read: simulators then need no copies.
  always_ff @(posedge clk) begin
    if (in_valid || !free[DEPTH_LOG2]) begin
      automatic logic push = in_valid && free != 0;
      automatic logic load = stored != 0 && (!out_valid || out_ready);
      automatic logic pop = out_valid && out_ready;
      if (load) begin
        out_data <= mem[rd];
        rd <= rd + 1'b1;
      end
      if (push) begin
        mem[wr] <= in_data;
        wr <= wr + 1'b1;
      end
      out_valid <= load || (out_valid && !pop);
      stored <= stored + (DEPTH_LOG2 + 1)'(push) - (DEPTH_LOG2 + 1)'(load);
      free <= free - (DEPTH_LOG2 + 1)'(push) + (DEPTH_LOG2 + 1)'(pop);
    end
    if (rst) begin
      wr <= '0;
      rd <= '0;
      free <= (DEPTH_LOG2 + 1)'(Depth);
      stored <= '0;
      out_valid <= 1'b0;
    end
  end
endmodule
