// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// First-in first-out buffer of one clock, first word fall through, output registered (with READ 2
// it is chosen among two registers).
// It never overflows by itself: a writer looks at `in_ready`, or holds a credit.
//
// The memory is read ahead into the output register, so a word appears READ + 1 cycles after it
// was written to an empty buffer.
module mw_fifo #(
    parameter int unsigned WIDTH = 8,  // bits of a word, at least 1
    parameter int unsigned DEPTH_LOG2 = 4,  // 2**DEPTH_LOG2 words, 1 to 20
    parameter int unsigned READ = 1  // 1; 2: two registers behind it, for memories that are slow to read
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                in_valid,
    output logic                in_ready,
    input  logic [   WIDTH-1:0] in_data,
    output logic                out_valid,
    input  logic                out_ready,
    output logic [   WIDTH-1:0] out_data,
    output logic [DEPTH_LOG2:0] free        // words that can still be written
);
  if (WIDTH < 1 || DEPTH_LOG2 < 1 || DEPTH_LOG2 > 20 || READ < 1 || READ > 2) begin : g_bad
    $fatal(1, "mw_fifo: WIDTH must be at least 1, DEPTH_LOG2 between 1 and 20, READ 1 or 2");
  end

  localparam int unsigned Depth = 1 << DEPTH_LOG2;

  // Never read where it is written in the same clock, so no logic forwards.
  (* no_rw_check *)
  logic [WIDTH-1:0] mem[Depth];
  logic [DEPTH_LOG2-1:0] wr, rd;
  logic [DEPTH_LOG2:0] stored;  // words in mem alone, written in an earlier cycle
  logic read_valid, read_ready;
  logic [WIDTH-1:0] read_data;  // the memory's own register
  assign in_ready = free != 0;

  // Nothing changes in a buffer that is empty and not written. Reset comes last, and each
  // register is written after it was read: simulators then need no copies.
  always_ff @(posedge clk) begin
    if (in_valid || !free[DEPTH_LOG2]) begin
      automatic logic push = in_valid && free != 0;
      automatic logic load = stored != 0 && (!read_valid || read_ready);
      automatic logic pop = out_valid && out_ready;
      if (load) begin
        read_data <= mem[rd];
        rd <= rd + 1'b1;
      end
      if (push) begin
        mem[wr] <= in_data;
        wr <= wr + 1'b1;
      end
      read_valid <= load || (read_valid && !read_ready);
      // One more or one less; that a word comes is often known late, and only enables.
      if (push != load) stored <= stored + {{DEPTH_LOG2{load}}, 1'b1};
      if (push != pop) free <= free + {{DEPTH_LOG2{!pop}}, 1'b1};
    end
    if (rst) begin
      wr <= '0;
      rd <= '0;
      free <= (DEPTH_LOG2 + 1)'(Depth);
      stored <= '0;
      read_valid <= 1'b0;
    end
  end

  if (READ == 1) begin : g_straight
    assign out_valid  = read_valid;
    assign out_data   = read_data;
    assign read_ready = out_ready;
  end else begin : g_register
    // That a word is taken is often known late. The memory is read without asking for it, as long as
    // one of two registers is free; these are shown in turn.
    logic both, shows_odd;
    logic [WIDTH-1:0] even, odd;
    assign read_ready = !both;
    assign out_data   = shows_odd ? odd : even;
    always_ff @(posedge clk) begin
      if (read_valid || out_valid) begin
        automatic logic stays = out_valid && !out_ready;
        automatic logic more = read_valid || both;
        if (read_valid && !both) begin
          if (shows_odd == out_valid) even <= read_data;
          else odd <= read_data;
        end
        if (out_valid && out_ready) shows_odd <= !shows_odd;
        both <= stays && more;
        out_valid <= stays || more;
      end
      if (rst) begin
        out_valid <= 1'b0;
        both <= 1'b0;
      end
    end
  end
endmodule
