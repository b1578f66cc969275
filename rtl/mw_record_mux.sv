// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Joins the taps' streams of entries into one, whole entries in turn, a unit a cycle.
module mw_record_mux
  import mw_pkg::*;
#(
    parameter int unsigned SOURCES = 4  // 2 to 16
) (
    input logic clk,
    input logic rst,

    input  logic [SOURCES-1:0]            in_valid,
    output logic [SOURCES-1:0]            in_ready,
    input  logic [SOURCES-1:0][UnitW-1:0] in_data,
    input  logic [SOURCES-1:0][     31:0] in_time_hi,
    input  logic [SOURCES-1:0]            in_first,
    input  logic [SOURCES-1:0]            in_last,

    output logic             out_valid,
    input  logic             out_ready,
    output logic [UnitW-1:0] out_data,
    output logic [     31:0] out_time_hi,
    output logic             out_first,
    output logic             out_last,

    output logic busy
);
  if (SOURCES < 2 || SOURCES > 16) begin : g_bad
    $fatal(1, "mw_record_mux: SOURCES must be between 2 and 16");
  end

  localparam int unsigned IndexW = $clog2(SOURCES);

  function automatic logic [IndexW-1:0] after(input logic [IndexW-1:0] source,
                                              input int unsigned steps);
    return IndexW'((32'(source) + steps) % SOURCES);
  endfunction

  logic step, take, mid_entry;
  logic [IndexW-1:0] turn, last_turn;

  assign step = !out_valid || out_ready;

  // Inside an entry its source keeps the turn; after it the next in the circle that has
  // something gets it, the last served at the end.
  always_comb begin
    turn = last_turn;
    if (!mid_entry) begin
      for (int unsigned i = SOURCES; i > 0; i--) begin
        if (in_valid[after(last_turn, i)]) turn = after(last_turn, i);
      end
    end
  end

  assign take = step && in_valid[turn];
  assign in_ready = SOURCES'(take) << turn;

  always_ff @(posedge clk) begin
    if (take) begin
      out_data <= in_data[turn];
      out_time_hi <= in_time_hi[turn];
      out_first <= in_first[turn];
      out_last <= in_last[turn];
    end
    if (rst) begin
      out_valid <= 1'b0;
      mid_entry <= 1'b0;
      last_turn <= '0;
    end else begin
      if (step) out_valid <= take;
      if (take) begin
        mid_entry <= !in_last[turn];
        last_turn <= turn;
      end
    end
  end

  assign busy = take || (out_valid && out_ready);
endmodule
