// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Memory with one write and one read port on one clock. A read takes two cycles: the
// second register is the block RAM's own output register. A row that is written in the
// cycle in which it is read gives an undefined word: users forward, or do not care.
// Rows start at zero (configuration memory of an FPGA); there is no reset.
module mw_ram #(
    parameter int unsigned WIDTH     = 8,  // bits of a row, at least 1
    parameter int unsigned ROWS_LOG2 = 4   // 2**ROWS_LOG2 rows, 1 to 24
) (
    input  logic                 clk,
    input  logic                 wr_en,
    input  logic [ROWS_LOG2-1:0] wr_row,
    input  logic [    WIDTH-1:0] wr_data,
    input  logic                 rd_en,
    input  logic [ROWS_LOG2-1:0] rd_row,
    output logic [    WIDTH-1:0] rd_data   // two cycles after rd_en, held until the next read
);
  if (WIDTH < 1 || ROWS_LOG2 < 1 || ROWS_LOG2 > 24) begin : g_bad
    $fatal(1, "mw_ram: WIDTH must be at least 1 and ROWS_LOG2 between 1 and 24");
  end

  // What a colliding read gives is open, so no logic forwards.
  (* no_rw_check *)
  logic [WIDTH-1:0] mem[1 << ROWS_LOG2];
  logic [WIDTH-1:0] first;
  logic first_valid;

  initial for (int i = 0; i < (1 << ROWS_LOG2); i++) mem[i] = '0;

  always_ff @(posedge clk) begin
    if (first_valid) rd_data <= first;
    first_valid <= rd_en;
    if (rd_en) first <= mem[rd_row];
    if (wr_en) mem[wr_row] <= wr_data;
  end
endmodule
