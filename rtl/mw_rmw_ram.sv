// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Read-modify-write memory: one update a cycle of any row, exact even when the same row is
// updated in every cycle.
//
// Three cycles after `in_valid` the newest content of the row stands at `out_data`; what is
// given as `upd_data` with `upd_valid` in that same cycle takes its place. Rows that were
// updated too late for a read are handed over from the updates in flight, so the memory's
// behaviour when it reads a row that is being written does not matter.
module mw_rmw_ram #(
    parameter int unsigned WIDTH = 8,     // bits of a row, at least 1
    parameter int unsigned ROWS_LOG2 = 4  // 2**ROWS_LOG2 rows, 1 to 24
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic                 clear,      // start to zero all rows; nothing may be in flight
    output logic                 busy,       // zeroing; no `in_valid` meanwhile
    input  logic                 in_valid,
    input  logic [ROWS_LOG2-1:0] in_row,
    output logic                 out_valid,  // three cycles after in_valid
    output logic [    WIDTH-1:0] out_data,
    input  logic                 upd_valid,  // only with out_valid
    input  logic [    WIDTH-1:0] upd_data
);
  localparam int Late = 3;  // updates that a read can have missed when it is merged

  logic s1_valid, s2_valid, s3_valid;
  logic [ROWS_LOG2-1:0] s1_row, s2_row, s3_row;
  logic [WIDTH-1:0] read, s3_data;
  logic s3_handed;  // the update of one cycle ago is of this row

  logic [Late:1] late_valid;  // late_*[n]: decided n cycles ago
  logic [Late:1][ROWS_LOG2-1:0] late_row;
  logic [WIDTH-1:0] late_data[1:Late];

  logic [ROWS_LOG2-1:0] clear_row;

  mw_ram #(
      .WIDTH(WIDTH),
      .ROWS_LOG2(ROWS_LOG2)
  ) ram (
      .clk,
      .wr_en  (busy || late_valid[1]),
      .wr_row (busy ? clear_row : late_row[1]),
      .wr_data(busy ? '0 : late_data[1]),
      .rd_en  (in_valid),
      .rd_row (in_row),
      .rd_data(read)
  );

  assign out_valid = s3_valid;
  assign out_data  = s3_handed ? late_data[1] : s3_data;

  // From the end of the pipeline to its beginning: each register is read before it is written.
  always_ff @(posedge clk) begin
    if (s2_valid) begin
      s3_handed <= upd_valid && s2_row == s3_row;
      s3_data   <= read;
      for (int n = Late; n >= 1; n--)
      if (late_valid[n] && late_row[n] == s2_row) s3_data <= late_data[n];
    end
    if (s3_valid || late_valid != '0) begin
      late_row <= {late_row[Late-1:1], s3_row};
      for (int n = Late; n >= 2; n--) late_data[n] <= late_data[n-1];
      late_data[1] <= upd_data;
      late_valid   <= {late_valid[Late-1:1], upd_valid};
    end
    if (s2_valid) s3_row <= s2_row;
    if (s1_valid) s2_row <= s1_row;
    if (in_valid) s1_row <= in_row;
    s3_valid <= s2_valid;
    s2_valid <= s1_valid;
    s1_valid <= in_valid;
    if (rst) begin
      s1_valid   <= 1'b0;
      s2_valid   <= 1'b0;
      s3_valid   <= 1'b0;
      late_valid <= '0;
    end
  end

  always_ff @(posedge clk) begin
    if (clear || busy) begin
      automatic logic last = &clear_row;
      if (busy) clear_row <= clear_row + 1'b1;
      busy <= clear || !last;
    end
    if (rst) begin
      busy <= 1'b0;
      clear_row <= '0;
    end
  end
endmodule
