// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// First-in first-out buffer of one clock, first word fall through, output registered.
// It never overflows by itself: a writer looks at `in_ready`, or holds a credit.
//
// The memory is read ahead into the output register, so a word appears two cycles after it
// was written to an empty buffer.
module mw_fifo #(
    parameter int unsigned WIDTH = 8,       // bits of a word, at least 1
    parameter int unsigned DEPTH_LOG2 = 4   // 2**DEPTH_LOG2 words, 1 to 20
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  in_valid,
    output logic                  in_ready,
    input  logic [WIDTH-1:0]      in_data,
    output logic                  out_valid,
    input  logic                  out_ready,
    output logic [WIDTH-1:0]      out_data,
    output logic [DEPTH_LOG2:0]   free       // words that can still be written
);
  if (WIDTH < 1 || DEPTH_LOG2 < 1 || DEPTH_LOG2 > 20) begin : g_bad
    $fatal(1, "mw_fifo: WIDTH must be at least 1 and DEPTH_LOG2 between 1 and 20");
  end

  localparam int unsigned Depth = 1 << DEPTH_LOG2;

  logic [WIDTH-1:0] mem[Depth];
  logic [DEPTH_LOG2-1:0] wr, rd;
  logic [DEPTH_LOG2:0] used;  // words in mem and in the output register

  logic [DEPTH_LOG2:0] stored;  // words in mem alone, written in an earlier cycle
  logic push, load, pop;
  assign in_ready = used != (DEPTH_LOG2 + 1)'(Depth);
  assign free = (DEPTH_LOG2 + 1)'(Depth) - used;
  assign push = in_valid && in_ready;
  assign pop = out_valid && out_ready;
  assign load = (stored != 0) && (!out_valid || out_ready);

  // Nothing changes in a buffer that is empty and not written: simulators skip it.
  always_ff @(posedge clk) begin
    if (rst) begin
      wr <= '0;
      rd <= '0;
      used <= '0;
      stored <= '0;
      out_valid <= 1'b0;
    end else if (in_valid || used != 0) begin
      if (push) begin
        mem[wr] <= in_data;
        wr <= wr + 1'b1;
      end
      if (load) begin
        out_data <= mem[rd];
        rd <= rd + 1'b1;
        out_valid <= 1'b1;
      end else if (pop) begin
        out_valid <= 1'b0;
      end
      used <= used + (DEPTH_LOG2 + 1)'(push) - (DEPTH_LOG2 + 1)'(pop);
      stored <= stored + (DEPTH_LOG2 + 1)'(push) - (DEPTH_LOG2 + 1)'(load);
    end
  end
endmodule
