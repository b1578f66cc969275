// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A set of 64-bit counters. `held` stands still between two latches, so that the host reads
// all of them as of one moment. An increment that comes with a clear is counted after it.
module mw_counters #(
    parameter int unsigned N = 8  // counters, at least 1
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         any,            // an increment is not zero
    input  logic [ 15:0] inc       [N],
    input  logic         latch,          // pulse: copy the counters to `held`
    input  logic         clear,          // pulse: clear those in clear_mask
    input  logic [N-1:0] clear_mask,
    output logic [ 63:0] count     [N],  // now
    output logic [ 63:0] held      [N]   // at the last latch
);
  if (N < 1) begin : g_bad
    $fatal(1, "mw_counters: N must be at least 1");
  end

  // In this order reset and clear share the registers' synchronous reset, where no increment reaches.
  always_ff @(posedge clk) begin
    if (latch) held <= count;
    if (any || clear || rst) begin
      automatic logic [63:0] counts[N] = count;
      for (int i = 0; i < N; i++)
      if (rst) counts[i] = '0;
      else if (clear && clear_mask[i]) counts[i] = 64'(inc[i]);
      else counts[i] += 64'(inc[i]);
      count <= counts;
    end
    if (rst) held <= '{default: '0};
  end
endmodule
