// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What a source gives stands at the output in the next cycle until it is taken, and nothing
// else does: no unit is lost, doubled or made up. Between the first unit of an entry and its
// last all units are of one source. A source that waits with an entry gets its turn after at
// most SOURCES - 1 entries of others. One source is served at a time, and whenever one has
// something and the output is free. Assumed of the user: each source gives whole entries, first
// to last.
//
// induction: 2 -GSOURCES=4
// induction: 2 -GSOURCES=3
// cover: 10 -GSOURCES=3
// mutant: mw_record_mux: mid_entry <= !in_last[turn] => mid_entry <= 1'b0
// mutant: mw_record_mux: last_turn <= turn => last_turn <= '0
// mutant: mw_record_mux: assign step = !out_valid || out_ready => assign step = 1'b1
// mutant: mw_record_mux: if (step) out_valid <= take => out_valid <= take
// mutant: mw_record_mux: (32'(source) + steps) => (steps)
module mw_record_mux_proof
  import mw_pkg::*;
#(
    parameter int unsigned SOURCES
) (
    input logic                          clk,
    input logic                          rst,
    input logic [SOURCES-1:0]            in_valid,
    input logic [SOURCES-1:0]            in_ready,
    input logic [SOURCES-1:0][UnitW-1:0] in_data,
    input logic [SOURCES-1:0][     31:0] in_time_hi,
    input logic [SOURCES-1:0]            in_first,
    input logic [SOURCES-1:0]            in_last,
    input logic                          out_valid,
    input logic                          out_ready,
    input logic [  UnitW-1:0]            out_data,
    input logic [       31:0]            out_time_hi,
    input logic                          out_first,
    input logic                          out_last
);
  localparam int unsigned IndexW = $clog2(SOURCES);
  typedef logic [IndexW-1:0] source_t;
  typedef struct packed {
    logic [UnitW-1:0] data;
    logic [31:0]      time_hi;
    logic             first;
    logic             last;
  } unit_t;

  logic [SOURCES-1:0] taken, inside_entry;
  assign taken = in_valid & in_ready;
  always_ff @(posedge clk) begin
    inside_entry <= (inside_entry & ~taken) | (taken & ~in_last);
    if (rst) inside_entry <= '0;
  end
  always_comb assume ((in_valid & ~(in_first ^ inside_entry)) == '0);

  // The unit that must stand at the output, and its source.
  logic there;
  unit_t unit;
  source_t source;
  logic mid_out;  // the unit taken last was not the last of its entry
  always_ff @(posedge clk) begin
    if (out_ready) there <= 1'b0;
    for (int s = 0; s < int'(SOURCES); s++) begin
      if (taken[s]) begin
        there <= 1'b1;
        unit <= '{
            data: in_data[s],
            time_hi: in_time_hi[s],
            first: in_first[s],
            last: in_last[s]
        };
        source <= source_t'(s);
        mid_out <= !in_last[s];
      end
    end
    if (rst) {there, mid_out} <= '0;
  end

  source_t anyconst_source;
  logic waits;
  logic [IndexW:0] others;  // entries of others that began while it waits
  always_comb assume (32'(anyconst_source) < SOURCES);
  assign waits = in_valid[anyconst_source] && !in_ready[anyconst_source] &&
      !inside_entry[anyconst_source];
  always_ff @(posedge clk) begin
    others <= waits ? others + (IndexW + 1)'((taken & in_first) != '0) : '0;
    if (rst) others <= '0;
  end

  int unsigned between;  // sources that may come before it
  assign between = (32'(anyconst_source) + 2 * SOURCES - 32'(mw_record_mux.last_turn) - 1) % SOURCES;

  always_comb begin
    if (!rst) begin
      one : assert ((in_ready & (in_ready - 1'b1)) == '0 && (in_ready & ~in_valid) == '0);
      steps : assert (!out_valid || out_ready || in_ready == '0);
      works : assert (in_ready != '0 || in_valid == '0 || (out_valid && !out_ready) || mid_out);
      content :
      assert (out_valid == there && (!there || {out_data, out_time_hi, out_first, out_last} == unit));
      whole : assert (!mid_out || (taken & in_first) == '0);
      same : assert (!mid_out || (in_ready & ~(SOURCES'(1) << source)) == '0);
      fair : assert (!waits || 32'(others) < SOURCES);

      aux_turn :
      assert (mw_record_mux.mid_entry == mid_out && 32'(mw_record_mux.last_turn) < SOURCES);
      aux_source : assert (!mid_out || mw_record_mux.last_turn == source);
      aux_inside : assert (inside_entry == (mid_out ? SOURCES'(1) << source : '0));

      aux_fair : assert (!waits || 32'(others) + between < SOURCES);

      long_entry : cover (mid_out && waits && others == 1);
      turns : cover (taken[anyconst_source] && 32'(others) == SOURCES - 1);
    end
  end
endmodule

bind mw_record_mux mw_record_mux_proof #(.SOURCES(SOURCES)) proof (.*);
