// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// One row, any, has a shadow that takes each update at once. Whatever the distance between
// look-ups and updates, and whatever the memory gives when it reads a row that is being written,
// a look-up sees the shadow; it is answered after exactly three cycles. After `clear` the row is
// zero. Assumed of the user: no look-up while rows are zeroed, no clear while one is under way,
// updates only with an answer.
//
// uses: mw_ram
// with: mw_ram: logic first_valid; => logic first_valid; logic [WIDTH-1:0] anyseq_data;
// with: mw_ram: first <= mem[rd_row] => first <= wr_en && wr_row == rd_row ? anyseq_data : mem[rd_row]
// with: mw_ram: initial for (int i = 0; i < (1 << ROWS_LOG2); i++) mem[i] = '0; =>
// induction: 4 -GWIDTH=80 -GROWS_LOG2=17
// induction: 4 -GWIDTH=1 -GROWS_LOG2=1
// cover: 12 -GWIDTH=2 -GROWS_LOG2=1
// mutant: mw_rmw_ram: n = Late; n >= 1; n-- => n = Late - 1; n >= 1; n--
// mutant: mw_rmw_ram: n = Late; n >= 1; n-- => n = 1; n <= Late; n++
// mutant: mw_rmw_ram: upd_valid && s2_row == s3_row => s3_valid && s2_row == s3_row
// mutant: mw_rmw_ram: upd_valid && s2_row == s3_row => upd_valid
// mutant: mw_rmw_ram: s3_valid || late_valid != '0) begin => s3_valid) begin
// mutant: mw_rmw_ram: automatic logic last = &clear_row => automatic logic last = 1'b1
module mw_rmw_ram_proof #(
    parameter int unsigned WIDTH,
    parameter int unsigned ROWS_LOG2
) (
    input logic                 clk,
    input logic                 rst,
    input logic                 clear,
    input logic                 busy,
    input logic                 in_valid,
    input logic [ROWS_LOG2-1:0] in_row,
    input logic                 out_valid,
    input logic [    WIDTH-1:0] out_data,
    input logic                 upd_valid,
    input logic [    WIDTH-1:0] upd_data,
    input logic                 s1_valid,
    input logic                 s2_valid,
    input logic                 s3_valid,
    input logic [ROWS_LOG2-1:0] s1_row,
    input logic [ROWS_LOG2-1:0] s2_row,
    input logic [ROWS_LOG2-1:0] s3_row,
    input logic [          3:1] late_valid
);
  logic [3:1] valid;  // look-ups of the last three cycles
  logic [3:1][ROWS_LOG2-1:0] row;
  always_ff @(posedge clk) begin
    valid <= rst ? '0 : {valid[2:1], in_valid};
    row   <= {row[2:1], in_row};
  end

  always_comb begin
    if (busy) assume (!in_valid);
    if (clear) assume (!in_valid && valid == '0);
    if (upd_valid) assume (valid[3] && !rst);
  end

  logic [ROWS_LOG2-1:0] anyconst_row;  // any row
  logic mine;
  assign mine = valid[3] && row[3] == anyconst_row;

  logic known = 1'b0;  // from the first update or clear on
  logic [WIDTH-1:0] shadow, memory;
  logic was_busy, updated, zeroed;
  always_ff @(posedge clk) begin
    was_busy <= busy && !rst;
    updated  <= mine && upd_valid;
    if (mine && upd_valid) {known, shadow} <= {1'b1, upd_data};
    if (was_busy && !busy && !rst) {known, shadow, zeroed} <= {1'b1, WIDTH'(0), shadow != 0};
    if (clear) known <= 1'b0;
  end
  assign memory = late_valid[1] && mw_rmw_ram.late_row[1] == anyconst_row ? mw_rmw_ram.late_data[1] :
      mw_rmw_ram.ram.mem[anyconst_row];

  always_comb begin
    aux_memory : assert (!known || busy || memory == shadow);  // rows outlive a reset
    if (!rst) begin
      prompt : assert (out_valid == valid[3]);
      newest : assert (!mine || !known || out_data == shadow);

      aux_valid : assert ({s3_valid, s2_valid, s1_valid} == valid);
      aux_row1 : assert (!valid[1] || s1_row == row[1]);
      aux_row2 : assert (!valid[2] || s2_row == row[2]);
      aux_row3 : assert (!valid[3] || s3_row == row[3]);
      aux_busy : assert (!busy || (!known && valid == '0 && !late_valid[1]));
      aux_zeroing : assert (!busy || mw_rmw_ram.clear_row <= anyconst_row || memory == '0);
      aux_zeroed : assert (!was_busy || busy || memory == '0);
      aux_rest : assert (busy || mw_rmw_ram.clear_row == '0);

      twice : cover (mine && upd_valid && updated);
      later : cover (mine && !late_valid[1] && late_valid[3] && shadow != '0);
      after_clear : cover (mine && zeroed && known && shadow == '0);
    end
  end
endmodule

bind mw_rmw_ram mw_rmw_ram_proof #(
    .WIDTH(WIDTH),
    .ROWS_LOG2(ROWS_LOG2)
) proof (.*);
