// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What changes of a message do to its CRC-32 (IEEE 802.3, reflected). A CRC is linear: the
// difference of two CRCs follows from the difference of the messages alone, wherever it lies.
//
// Changes come 16 bytes at a time, `bytes` before the end of what the CRC covers; bytes of a
// change that lie behind that end must be 0. Their effects are added up until `last`, and
// come out a fixed number of cycles after it.
//
// The effect of 16 bytes on a CRC that ends where they begin is one matrix over GF(2) (time
// runs backwards in it, which the polynomial allows); 14 more, for 1, 2, 4, ... bytes, move
// the end to its place.
module mw_crc32_change (
    input  logic         clk,
    input  logic         rst,
    input  logic         in_valid,
    input  logic         in_last,
    input  logic [127:0] in_change,  // byte 0 in bits 7:0
    input  logic [ 13:0] in_bytes,   // from the first of the 16 to the end
    output logic         out_valid,
    output logic [ 31:0] out_change  // of the CRC as a number; its low byte is sent first
);
  localparam logic [31:0] Poly = 32'hEDB8_8320;
  localparam int unsigned Steps = 14;

  // Row j selects the bits that enter bit j of the result.
  typedef logic [31:0][31:0] step_t;
  typedef step_t [Steps-1:0] steps_t;
  typedef logic [31:0][63:0] word_t;

  function automatic step_t product(input step_t a, input step_t b);
    step_t p;
    p = '0;
    for (int unsigned j = 0; j < 32; j++)
    for (int unsigned i = 0; i < 32; i++) if (a[j][i]) p[j] = p[j] ^ b[i];
    return p;
  endfunction

  // Element k lets 2**k zero bytes go by.
  function automatic steps_t steps();
    steps_t m;
    step_t  s;
    s = '0;
    for (int unsigned j = 0; j < 32; j++) begin
      if (j < 31) s[j][j+1] = 1'b1;
      if (Poly[j]) s[j][0] = 1'b1;
    end
    for (int unsigned i = 0; i < 3; i++) s = product(s, s);  // one bit, two, four, a byte
    for (int unsigned k = 0; k < Steps; k++) begin
      m[k] = s;
      s = product(s, s);
    end
    return m;
  endfunction

  // Bit i of a change counts as a bit that entered the register i bits ago.
  function automatic word_t word(input int unsigned n);
    word_t m;
    logic [31:0] effect;
    m = '0;
    effect = 32'd1;
    for (int unsigned i = 0; i < 64 * (n + 1); i++) begin
      if (i >= 64 * n) for (int unsigned j = 0; j < 32; j++) m[j][i-64*n] = effect[j];
      effect = ((effect ^ (effect[31] ? Poly : 32'd0)) << 1) | 32'(effect[31]);
    end
    return m;
  endfunction

  localparam steps_t Step = steps();
  localparam word_t Low = word(0);
  localparam word_t High = word(1);

  function automatic logic [31:0] by_step(input logic [31:0] x, input step_t m);
    for (int unsigned j = 0; j < 32; j++) by_step[j] = ^(x & m[j]);
  endfunction
  function automatic logic [31:0] by_word(input logic [63:0] x, input word_t m);
    for (int unsigned j = 0; j < 32; j++) by_word[j] = ^(x & m[j]);
  endfunction

  logic [Steps+1:0] valid, last;
  logic [31:0] low, high;
  logic [31:0] crc[Steps+1];
  logic [13:0] left[Steps+1];  // bytes
  logic [13:0] bytes;
  logic begun;

  always_ff @(posedge clk) begin
    if (in_valid || valid != '0 || out_valid) begin
      automatic logic [31:0] crcs [Steps+1] = crc;
      automatic logic [13:0] lefts[Steps+1] = left;
      out_valid <= valid[Steps+1] && last[Steps+1];
      if (valid[Steps+1]) begin
        out_change <= (begun ? out_change : '0) ^ crc[Steps];
        begun <= !last[Steps+1];
      end
      for (int k = Steps; k > 0; k--) begin
        if (valid[k]) begin
          crcs[k]  = left[k-1][k-1] ? by_step(crc[k-1], Step[k-1]) : crc[k-1];
          lefts[k] = left[k-1];
        end
      end
      if (valid[0]) begin
        crcs[0]  = low ^ high;
        lefts[0] = bytes;
      end
      if (in_valid) begin
        low   <= by_word(in_change[63:0], Low);
        high  <= by_word(in_change[127:64], High);
        bytes <= in_bytes;
      end
      crc   <= crcs;
      left  <= lefts;
      valid <= {valid[Steps:0], in_valid};
      last  <= {last[Steps:0], in_last};
    end
    if (rst) begin
      valid <= '0;
      out_valid <= 1'b0;
      begun <= 1'b0;
    end
  end
endmodule
