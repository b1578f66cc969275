// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Threefry-2x32 with 13 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011): 64 random bits that are a function of a key and a counter alone. It adds,
// rotates and XORs; one step a stage, a counter a clock, answered 17 clocks later.
module mw_threefry (
    input  logic             clk,
    input  logic             rst,
    input  logic             in_valid,
    input  logic [1:0][31:0] in_key,
    input  logic [1:0][31:0] in_counter,
    output logic             out_valid,
    output logic [1:0][31:0] out_random
);
  localparam int unsigned Stages = 17;  // 13 rounds, the key before each four of them
  localparam logic [31:0] Parity = 32'h1BD1_1BDA;
  localparam logic [7:0][4:0] Rotate = {5'd24, 5'd16, 5'd29, 5'd17, 5'd6, 5'd26, 5'd15, 5'd13};

  function automatic logic [1:0][31:0] step(input int unsigned stage, input logic [1:0][31:0] x,
                                            input logic [1:0][31:0] key);
    logic [2:0][31:0] schedule;
    logic [1:0][31:0] y;
    int unsigned turn;
    turn = stage / 5;
    schedule = {Parity ^ key[0] ^ key[1], key};
    if (stage % 5 == 0) begin
      y[0] = x[0] + schedule[turn%3];
      y[1] = x[1] + schedule[(turn+1)%3] + 32'(turn);
    end else begin
      automatic int unsigned by = 32'(Rotate[3'(stage-turn-1)]);
      y[0] = x[0] + x[1];
      y[1] = ((x[1] << by) | (x[1] >> (32 - by))) ^ y[0];
    end
    return y;
  endfunction

  logic [Stages:1] valid;
  logic [1:0][31:0] x[1:Stages-1];
  logic [1:0][31:0] key[1:Stages-1];
  assign out_valid = valid[Stages];

  always_ff @(posedge clk) begin
    if (in_valid || valid != '0) begin
      automatic logic [1:0][31:0] xs  [1:Stages-1] = x;
      automatic logic [1:0][31:0] keys[1:Stages-1] = key;
      if (valid[Stages-1]) out_random <= step(Stages - 1, x[Stages-1], key[Stages-1]);
      for (int unsigned s = 2; s < Stages; s++)
      if (valid[s-1]) begin
        xs[s]   = step(s - 1, x[s-1], key[s-1]);
        keys[s] = key[s-1];
      end
      if (in_valid) begin
        xs[1]   = step(0, in_counter, in_key);
        keys[1] = in_key;
      end
      x <= xs;
      key <= keys;
      valid <= {valid[Stages-1:1], in_valid};
    end
    if (rst) valid <= '0;
  end
endmodule
