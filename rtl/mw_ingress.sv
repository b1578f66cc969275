// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Where a lane begins: takes frames from a MAC that cannot wait, stamps the first beat,
// numbers what is admitted, counts all that came, and cuts what is longer than MaxFrame.
//
// A frame that finds no room (`admit` low at its first beat) is dropped whole, so nothing
// behind this module can overflow in the middle of a frame. Outputs follow the bus by one
// clock; stamp, packet id and `out_captured` hold for every beat of a frame.
module mw_ingress
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W = 512,  // 64 or 512
    parameter int unsigned LANE   = 0     // 0: A to B, 1: B to A
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [        63:0] time_ns,
    input  logic [  DATA_W-1:0] s_axis_tdata,
    input  logic [DATA_W/8-1:0] s_axis_tkeep,      // contiguous from byte 0, never zero
    input  logic                s_axis_tvalid,
    input  logic                s_axis_tlast,
    input  logic                s_axis_tuser,      // with tlast: the MAC saw an error
    input  logic                admit,             // room for one more frame
    input  logic                capture,           // record the frames that begin now
    output logic                out_valid,
    output logic                out_sof,
    output logic [  DATA_W-1:0] out_data,
    output logic [DATA_W/8-1:0] out_keep,
    output logic                out_last,
    output logic                out_error,         // with out_last
    output logic                out_truncated,     // with out_last
    output logic                out_captured,
    output logic [        63:0] out_stamp,
    output logic [        31:0] out_packet_id,
    output logic                cnt_frame,         // a frame began
    output logic                cnt_frame_end,
    output logic [        15:0] cnt_bytes,         // with cnt_frame_end: its length; saturates
    output logic                cnt_error,
    output logic                cnt_runt,
    output logic                cnt_truncated,
    output logic                cnt_lost,
    output logic                cnt_captured,      // a frame to be captured began, lost or not
    output logic                cnt_captured_lost
);
  if ((DATA_W != 64 && DATA_W != 512) || LANE > 1) begin : g_bad
    $fatal(1, "mw_ingress: DATA_W must be 64 or 512, LANE 0 or 1");
  end

  localparam int unsigned Bytes = DATA_W / 8;
  localparam int unsigned MaxBeats = MaxFrame / Bytes;
  localparam int unsigned BeatW = 17 - $clog2(Bytes);  // counts to 65536 bytes and stays there

  logic in_frame;  // the next beat does not begin a frame
  logic passing;  // beats of this frame go on
  logic [BeatW-1:0] beats;  // of this frame, so far
  logic [31:0] next_id;

  logic active;  // what was counted last is still shown
  always_ff @(posedge clk) begin
    if (s_axis_tvalid || active) begin
      automatic logic first = s_axis_tvalid && !in_frame;
      automatic logic [BeatW-1:0] index = in_frame ? beats : '0;
      automatic logic cut = s_axis_tvalid && index == BeatW'(MaxBeats - 1) && !s_axis_tlast;
      automatic logic pass = s_axis_tvalid && (in_frame ? passing : admit);
      automatic logic at_end = s_axis_tvalid && s_axis_tlast;
      automatic logic [17:0] bytes = '0;
      if (first) begin
        out_stamp <= time_ns;
        out_packet_id <= next_id;
        out_captured <= capture;
        if (admit) next_id <= next_id + 1'b1;
      end
      if (pass) begin
        out_sof <= first;
        out_data <= s_axis_tdata;
        out_keep <= s_axis_tkeep;
        out_last <= s_axis_tlast || cut;
        out_error <= (s_axis_tlast && s_axis_tuser) || cut;
        out_truncated <= cut;
      end
      if (at_end) begin
        bytes = 18'(index) * 18'(Bytes) + 18'(kept_bytes(64'(s_axis_tkeep)));
        cnt_bytes <= |bytes[17:16] ? '1 : bytes[15:0];
      end
      out_valid <= pass;
      cnt_frame <= first;
      cnt_frame_end <= at_end;
      cnt_error <= at_end && s_axis_tuser;
      cnt_runt <= at_end && bytes < 18'(MinFrame);
      cnt_truncated <= cut;
      cnt_lost <= first && !admit;
      cnt_captured <= first && capture;
      cnt_captured_lost <= first && capture && !admit;
      active <= s_axis_tvalid;
      if (s_axis_tvalid) begin
        beats <= index[BeatW-1] ? index : index + 1'b1;
        passing <= pass && !cut;
        in_frame <= !s_axis_tlast;
      end
    end
    if (rst) begin
      in_frame <= 1'b0;
      passing <= 1'b0;
      next_id <= '0;
      active <= 1'b0;
      out_valid <= 1'b0;
      cnt_frame <= 1'b0;
      cnt_frame_end <= 1'b0;
      cnt_error <= 1'b0;
      cnt_runt <= 1'b0;
      cnt_truncated <= 1'b0;
      cnt_lost <= 1'b0;
      cnt_captured <= 1'b0;
      cnt_captured_lost <= 1'b0;
    end
  end
endmodule
