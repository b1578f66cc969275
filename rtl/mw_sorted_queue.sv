// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Keeps values in the order of their keys, smallest first, equal keys in order of arrival.
//
// A row of cells, each with its own comparator: a new entry is compared with all of them at
// once, those that come after it move up by one, and it takes the gap. So one entry goes in
// and one comes out in every cycle, whatever their order. The user never puts in more than
// 2**DEPTH_LOG2.
module mw_sorted_queue #(
    parameter int unsigned KEY_W = 64,     // bits of a key, at least 1
    parameter int unsigned VALUE_W = 4,    // bits of a value, at least 1
    parameter int unsigned DEPTH_LOG2 = 4  // 2**DEPTH_LOG2 entries, 1 to 8
) (
    input  logic               clk,
    input  logic               rst,
    input  logic               in_valid,
    input  logic [  KEY_W-1:0] in_key,
    input  logic [VALUE_W-1:0] in_value,
    output logic               out_valid,
    input  logic               out_ready,
    output logic [  KEY_W-1:0] out_key,
    output logic [VALUE_W-1:0] out_value
);
  if (KEY_W < 1 || VALUE_W < 1 || DEPTH_LOG2 < 1 || DEPTH_LOG2 > 8) begin : g_bad
    $fatal(1, "mw_sorted_queue: KEY_W and VALUE_W at least 1, DEPTH_LOG2 between 1 and 8");
  end

  localparam int unsigned Depth = 1 << DEPTH_LOG2;
  typedef struct packed {
    logic [KEY_W-1:0]   key;
    logic [VALUE_W-1:0] value;
  } entry_t;

  logic [Depth-1:0] valid;
  // The cells; the first is the one that is shown.
  entry_t head;
  entry_t behind[1:Depth-1];

  logic pop;
  assign out_valid = valid[0];
  assign out_key = head.key;
  assign out_value = head.value;
  assign pop = out_valid && out_ready;

  always_ff @(posedge clk) begin
    if (in_valid || pop) begin
      automatic entry_t entry = '{key: in_key, value: in_value};
      // after[i]: cell i is behind the new entry. Once true it is true for all that follow.
      automatic logic [Depth:0] after = '0;
      automatic entry_t cells[Depth];
      automatic entry_t moved[Depth];
      cells[0] = head;
      for (int i = 1; i < Depth; i++) cells[i] = behind[i];
      moved = cells;
      if (in_valid)
        for (int i = 0; i <= Depth; i++)
        after[i] = i == Depth || !valid[i%Depth] || in_key < cells[i%Depth].key;
      // With pop those ahead of the new entry move down, and it takes the place of the last of
      // them, else those behind it move up.
      for (int i = 0; i < Depth; i++) begin
        automatic logic down = pop && !after[i+1];
        automatic logic up = i != 0 && !pop && after[(i+Depth-1)%Depth];
        if (pop ? i == 0 || !after[i] : after[i])
          moved[i] = down ? cells[(i+1)%Depth] : up ? cells[(i+Depth-1)%Depth] : entry;
      end
      head   <= moved[0];
      behind <= moved[1:Depth-1];
      if (in_valid != pop) valid <= in_valid ? {valid[Depth-2:0], 1'b1} : {1'b0, valid[Depth-1:1]};
    end
    if (rst) valid <= '0;
    assert (rst || pop || !in_valid || !valid[Depth-1])
    else $fatal(1, "mw_sorted_queue: overflow");
  end
endmodule
