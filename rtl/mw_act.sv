// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Carries out a verdict on the bytes of a frame.
//
// The verdict of the frame at the head of the lane becomes a plan: what is to happen to the
// frame as a whole (for mw_path), and a short list of edits to its bytes. An edit names a
// byte of the frame, the bits to clear and the bits to flip: byte' = (byte & ~clear) ^ flip.
// Beats then pass through `Stages` registers that move together on `go`:
//
//   0 -> 1  find the edits of this beat; keep ECN field and header checksum as they pass
//   1 -> 2  copy
//   2 -> 3  the new checksum (RFC 1624, equation 3)
//   3 -> 4  edit
//
// The two bytes of a checksum may lie in two beats. The high byte then needs the low one,
// which is one stage behind: beats of a frame must come in successive cycles of `go`.
module mw_act
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W  = 512,  // 64 or 512
    parameter int unsigned PREFILL = 72,   // beats that are certain to be there when length is not
    parameter int unsigned TAG_W   = 8     // bits that travel with a beat, at least 1
) (
    input logic clk,
    input logic rst,
    // verdicts, one a frame
    input logic v_valid,
    output logic v_ready,
    input verdict_t v,
    // the plan for the frame at the head
    output logic plan_valid,
    output logic plan_drop,
    output logic plan_delay,
    output logic [39:0] plan_delay_ns,
    output logic plan_whole,  // not to begin before the end of the frame is known
    output logic plan_touched,
    output record_t plan_rec,
    output action_t plan_action,
    output logic plan_ecn,  // will be done
    output logic plan_corrupt,  // will be done: the byte exists
    input logic len_known,  // `len` is the length of the frame at the head
    input logic [13:0] len,
    input logic plan_take,  // the last beat of the frame passes, or it is dropped
    // its beats
    input logic go,
    input logic in_valid,
    input logic [10:0] in_index,  // counts the beats of the frame
    input logic [DATA_W-1:0] in_data,
    input logic in_pad,  // bytes from in_bytes on are to be zero
    input logic [$clog2(DATA_W/8):0] in_bytes,
    input logic [TAG_W-1:0] in_tag,
    output logic out_valid,  // four cycles of `go` later
    output logic [DATA_W-1:0] out_data,
    output logic [TAG_W-1:0] out_tag,
    output logic active  // beats are on their way
);
  if ((DATA_W != 64 && DATA_W != 512) || TAG_W < 1) begin : g_bad
    $fatal(1, "mw_act: DATA_W must be 64 or 512, TAG_W at least 1");
  end

  localparam int unsigned Bytes = DATA_W / 8;
  localparam int unsigned LaneW = $clog2(Bytes);
  localparam int unsigned OffsetW = 13;  // corrupt: 255 + 4095 at most
  localparam int unsigned SureBytes = (PREFILL - 1) * Bytes;  // the last beat may be a short one

  typedef logic [LaneW-1:0] lane_t;
  typedef struct packed {
    logic               valid;
    logic [OffsetW-1:0] offset;
    logic [7:0]         clear;
    logic [7:0]         flip;
  } edit_t;

  // The list. The flips of the checksum follow from the frame's own bytes.
  localparam int unsigned EditEcn = 0;
  localparam int unsigned EditSumHi = 1;
  localparam int unsigned EditSumLo = 2;
  localparam int unsigned EditCorrupt = 3;
  localparam int unsigned Edits = 4;
  edit_t [Edits-1:0] edit;

  logic [OffsetW-1:0] l3, base;
  logic ecn, sum;
  assign l3 = OffsetW'(v.l3_offset);
  always_comb begin
    unique case (v.action.corrupt_base)
      2'd0: base = '0;
      2'd1: base = l3;
      2'd2: base = OffsetW'(v.l4_offset);
      2'd3: base = OffsetW'(v.payload_offset);
    endcase
  end
  assign ecn = v.action.ecn && v.is_ip;
  assign sum = ecn && !v.is_ip6;
  assign v_ready = !plan_valid || plan_take;

  always_ff @(posedge clk) begin
    if (v_valid && v_ready) begin
      plan_drop <= v.action.drop;
      plan_delay <= v.action.delay && v.action.delay_ns != '0;
      plan_delay_ns <= v.action.delay_ns;
      plan_touched <= v.touched;
      plan_rec <= v.rec;
      plan_action <= v.action;
      // IPv4: low two bits of the second byte. IPv6: bits 5:4 of it (RFC 8200, 3).
      edit[EditEcn] <= '{
          valid: ecn,
          offset: l3 + 1'b1,
          clear: v.is_ip6 ? 8'h30 : 8'h03,
          flip: v.is_ip6 ? 8'h30 : 8'h03
      };
      edit[EditSumHi] <= '{valid: sum, offset: l3 + OffsetW'(10), clear: '1, flip: '0};
      edit[EditSumLo] <= '{valid: sum, offset: l3 + OffsetW'(11), clear: '1, flip: '0};
      edit[EditCorrupt] <= '{
          valid: v.action.corrupt,
          offset: base + OffsetW'(v.action.corrupt_offset),
          clear: '0,
          flip: v.action.corrupt_mask
      };
    end
  end

  always_ff @(posedge clk) begin
    if (plan_take) plan_valid <= 1'b0;
    if (v_valid && v_ready) plan_valid <= 1'b1;
    if (rst) plan_valid <= 1'b0;
  end

  assign plan_ecn = edit[EditEcn].valid;
  assign plan_corrupt = edit[EditCorrupt].valid && (!len_known || 14'(edit[EditCorrupt].offset) < len);
  assign plan_whole = edit[EditCorrupt].valid && 32'(edit[EditCorrupt].offset) >= SureBytes;

  function automatic logic [7:0] byte_at(input logic [DATA_W-1:0] data, input lane_t lane);
    return data[{lane, 3'b000}+:8];
  endfunction

  // The edits of a beat.
  typedef struct packed {
    logic [Edits-1:0]      hit;
    lane_t [Edits-1:0]     lane;
    logic [Edits-1:0][7:0] clear;
    logic [Edits-1:0][7:0] flip;
  } edits_t;
  function automatic logic [7:0] edited(input logic [7:0] old, input lane_t lane, input edits_t c,
                                        input logic [15:0] checksum);
    logic [7:0] clear, flip;
    clear = '0;
    flip  = '0;
    for (int e = 0; e < Edits; e++) begin
      if (c.hit[e] && c.lane[e] == lane) begin
        clear = clear | c.clear[e];
        flip = flip ^ (e == EditSumHi ? checksum[15:8] : e == EditSumLo ? checksum[7:0] : c.flip[e]);
      end
    end
    return (old & ~clear) ^ flip;
  endfunction
  logic [3:0] valid;  // of stages 1 to 4
  edits_t c1, c2, c3;
  logic [TAG_W-1:0] tag1, tag2, tag3;
  logic [DATA_W-1:0] d1, d2, d3;
  logic [1:0] ecn1, ecn2;
  logic [7:0] hi1, hi2, lo1, lo2;
  logic [15:0] sum3;

  // From the last stage to the first: each register is read before it is written.
  always_ff @(posedge clk) begin
    if (go && (in_valid || valid != '0)) begin
      if (valid[2]) begin
        out_tag  <= tag3;
        out_data <= d3;
        if (|c3.hit) begin
          for (int b = 0; b < Bytes; b++) begin
            out_data[b*8+:8] <= edited(d3[b*8+:8], lane_t'(b), c3, sum3);
          end
        end
      end
      if (valid[1]) begin
        if (c2.hit[EditSumHi] || c2.hit[EditSumLo]) begin
          // RFC 1624: HC' = ~(~HC + ~m + m'). Setting the two low bits of m adds 3 - ECN to it.
          automatic logic low_is_behind = c2.hit[EditSumHi] && !c2.hit[EditSumLo];
          automatic
          logic [16:0]
          added = {1'b0, ~{hi2, low_is_behind ? lo1 : lo2}} + (17'd3 - 17'(ecn2));
          sum3 <= ~(added[15:0] + 16'(added[16]));
        end
        tag3 <= tag2;
        c3   <= c2;
        d3   <= d2;
      end
      if (valid[0]) begin
        {ecn2, hi2, lo2} <= {ecn1, hi1, lo1};
        tag2 <= tag1;
        c2 <= c1;
        d2 <= d1;
      end
      if (in_valid) begin
        automatic edits_t c = '0;
        for (int e = 0; e < Edits; e++) begin
          c.hit[e] = edit[e].valid && 11'(edit[e].offset >> LaneW) == in_index &&
              (e != EditCorrupt || plan_corrupt);
        end
        if (|c.hit) begin
          for (int e = 0; e < Edits; e++) begin
            c.lane[e]  = edit[e].offset[LaneW-1:0];
            c.clear[e] = edit[e].clear;
            c.flip[e]  = edit[e].flip;
          end
        end
        if (c.hit[EditEcn]) ecn1 <= 2'(byte_at(in_data, c.lane[EditEcn]));
        if (c.hit[EditSumHi]) hi1 <= byte_at(in_data, c.lane[EditSumHi]);
        if (c.hit[EditSumLo]) lo1 <= byte_at(in_data, c.lane[EditSumLo]);
        c1   <= c;
        tag1 <= in_tag;
        d1   <= in_data;
        if (in_pad) begin
          for (int b = 0; b < Bytes; b++) if (b >= 32'(in_bytes)) d1[b*8+:8] <= '0;
        end
      end
      valid <= {valid[2:0], in_valid};
    end
    if (rst) valid <= '0;
  end
  assign out_valid = valid[3];
  assign active = |valid;
endmodule
