// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// CRC-32C (Castagnoli, reflected, initial and final all ones) over a stream of 32-byte
// units, one a cycle; the last may be cut to its first 28 bytes, so that a block's header
// can carry the sum of all that stands before it.
//
// Each bit of the next state is the parity of some bits of state and data. The masks that
// choose them follow from the polynomial and are computed at elaboration. The parities of the
// data are taken two clocks ahead, first of parts of it; those of the state alone are short. A cut
// unit is one with zeros in front, which add nothing, and the state behind them.
module mw_crc32c (
    input logic clk,
    input logic valid,
    input logic first,  // with valid: begin anew
    input logic cut,  // with valid: the unit's 28 bytes are bytes 4 to 31, the others are zero
    input logic [255:0] data,
    output logic [31:0] crc  // of all units that came, three clocks later
);
  localparam logic [31:0] Poly = 32'h82F6_3B78;  // RFC 3720 appendix B.4, reflected

  typedef logic [31:0][255:0] masks_t;

  // Row j selects what enters bit j of the state after the first `bits` bits of a unit. The
  // state itself is added to the first 32 bits of data, so it needs no masks of its own.
  function automatic masks_t masks(input int unsigned bits);
    masks_t m;
    logic [31:0] effect;  // of data bit i on the state at the end
    m = '0;
    effect = Poly;
    for (int unsigned i = bits; i > 0; i--) begin
      for (int unsigned j = 0; j < 32; j++) m[j][i-1] = effect[j];
      effect = (effect >> 1) ^ (effect[0] ? Poly : 32'd0);
    end
    return m;
  endfunction

  localparam masks_t Whole = masks(256);
  localparam masks_t Cut = masks(224);

  localparam int unsigned Parts = 4;
  localparam int unsigned PartW = 256 / Parts;
  typedef struct packed {
    logic valid;
    logic first;
    logic cut;
  } step_t;

  step_t parts_step, sum_step;
  logic [Parts-1:0][31:0] parts;
  logic [31:0] sum, state, begun;
  assign crc   = ~state;
  assign begun = sum_step.first ? '1 : state;

  always_ff @(posedge clk) begin
    parts_step <= '{valid: valid, first: first, cut: cut};
    sum_step   <= parts_step;
    if (valid) begin
      for (int unsigned p = 0; p < Parts; p++)
      for (int unsigned j = 0; j < 32; j++)
      parts[p][j] <= ^(data[PartW*p+:PartW] & Whole[j][PartW*p+:PartW]);
    end
    if (parts_step.valid) sum <= parts[0] ^ parts[1] ^ parts[2] ^ parts[3];
    if (sum_step.valid) begin
      for (int unsigned j = 0; j < 32; j++)
      state[j] <= sum[j] ^ (^(begun & (sum_step.cut ? Cut[j][31:0] : Whole[j][31:0])));
    end
  end
endmodule
