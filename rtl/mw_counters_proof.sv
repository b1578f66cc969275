// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A counter, any of them, is the sum of the increments since it was last cleared, that of the
// clear's clock among them; what is held of all counters is of the clock of the last latch.
// Assumed of the user: `any` is high when an increment is not zero.
//
// induction: 2 -GN=50
// cover: 6 -GN=3
// mutant: mw_counters: clear && clear_mask[i] => 1'b0
// mutant: mw_counters: if (any || clear || rst) => if (any || rst)
// mutant: mw_counters: if (latch) => if (latch && any)
// mutant: mw_counters: += 64'(inc[i]) => += 64'(inc[0])
// mutant: mw_counters: counts[i] = 64'(inc[i]) => counts[i] = '0
module mw_counters_proof #(
    parameter int unsigned N
) (
    input logic         clk,
    input logic         rst,
    input logic         any,
    input logic [ 15:0] inc       [N],
    input logic         latch,
    input logic         clear,
    input logic [N-1:0] clear_mask,
    input logic [ 63:0] count     [N],
    input logic [ 63:0] held      [N]
);
  logic [$clog2(N)-1:0] anyconst_which;
  always_comb begin
    assume (32'(anyconst_which) < N);
    assume (any || inc[anyconst_which] == '0);
  end

  logic [63:0] sum, latched;
  always_ff @(posedge clk) begin
    if (clear && clear_mask[anyconst_which]) sum <= 64'(inc[anyconst_which]);
    else sum <= sum + 64'(inc[anyconst_which]);
    if (latch) latched <= sum;
    if (rst) {sum, latched} <= '0;
  end

  always_comb begin
    if (!rst) begin
      counts : assert (count[anyconst_which] == sum);
      holds : assert (held[anyconst_which] == latched);

      both : cover (clear && clear_mask[anyconst_which] && any && sum > 64'hffff && latched != '0);
    end
  end
endmodule

bind mw_counters mw_counters_proof #(.N(N)) proof (.*);
