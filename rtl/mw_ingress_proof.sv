// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Each frame of the MAC goes on whole or not at all: whole if `admit` was high at its first
// beat. Its beats leave in the next clock, unchanged, the first and only the first with `sof`,
// the last and only the last with `last`; one that is longer than MaxFrame ends there, in error.
// Frames that came are those that went on and those counted as lost. Packet ids count what goes
// on without a gap; stamp and id are of the first beat and stand for the whole frame. Length,
// errors, runts and cuts are counted of every frame, lost or not.
//
// Assumed of the MAC: only last beats are not full, and these are filled from their first byte on.
//
// induction: 2 -GDATA_W=512
// induction: 2 -GDATA_W=64
// cover: 14 -GDATA_W=64
// small: mw_pkg: MaxFrame = 10240 => MaxFrame = 32
// small: mw_pkg: MinFrame = 60 => MinFrame = 12
// mutant: mw_ingress: (in_frame ? passing : admit) => admit
// mutant: mw_ingress: passing <= pass && !cut => passing <= pass
// mutant: mw_ingress: out_last <= s_axis_tlast || cut => out_last <= s_axis_tlast
// mutant: mw_ingress: in_frame <= !s_axis_tlast => in_frame <= !s_axis_tlast && !cut
// mutant: mw_ingress: if (admit) next_id => next_id
// mutant: mw_ingress: cnt_lost <= first && !admit => cnt_lost <= first && !admit && capture
// mutant: mw_ingress: index == BeatW'(MaxBeats - 1) && !s_axis_tlast => index == BeatW'(MaxBeats - 1)
// mutant: mw_ingress: 18'(index) * 18'(Bytes) + => 18'(beats) * 18'(Bytes) +
// mutant: mw_ingress: if (s_axis_tvalid || active) begin => if (s_axis_tvalid) begin
module mw_ingress_proof
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W
) (
    input logic                clk,
    input logic                rst,
    input logic [        63:0] time_ns,
    input logic [  DATA_W-1:0] s_axis_tdata,
    input logic [DATA_W/8-1:0] s_axis_tkeep,
    input logic                s_axis_tvalid,
    input logic                s_axis_tlast,
    input logic                s_axis_tuser,
    input logic                admit,
    input logic                capture,
    input logic                out_valid,
    input logic                out_sof,
    input logic [  DATA_W-1:0] out_data,
    input logic [DATA_W/8-1:0] out_keep,
    input logic                out_last,
    input logic                out_error,
    input logic                out_truncated,
    input logic                out_captured,
    input logic [        63:0] out_stamp,
    input logic [        31:0] out_packet_id,
    input logic                cnt_frame,
    input logic                cnt_frame_end,
    input logic [        15:0] cnt_bytes,
    input logic                cnt_error,
    input logic                cnt_runt,
    input logic                cnt_truncated,
    input logic                cnt_lost,
    input logic                cnt_captured,
    input logic                cnt_captured_lost
);
  localparam int unsigned Bytes = DATA_W / 8;

  always_comb if (s_axis_tvalid && !s_axis_tlast) assume (s_axis_tkeep == '1);
  always_comb if (s_axis_tvalid) assume ((s_axis_tkeep & (s_axis_tkeep + 1'b1)) == '0);

  // The frame that comes in.
  logic inside_frame;  // its first beat has come, its last has not
  logic admitted, captured;
  logic [63:0] stamp;
  logic [16:0] bytes, length;  // in beats before this one, and with it; stays at 65536
  logic [16:0] length_q;
  logic first, admitted_now, goes, cut;
  always_comb begin
    first = s_axis_tvalid && !inside_frame;
    admitted_now = first ? admit : admitted;
    bytes = first ? '0 : length_q;
    length = 18'(bytes) + 18'($countones(s_axis_tkeep)) > 18'h10000 ? 17'h10000 :
        bytes + 17'($countones(s_axis_tkeep));
    goes = s_axis_tvalid && admitted_now && bytes < 17'(MaxFrame);
    cut = s_axis_tvalid && length == 17'(MaxFrame) && bytes < 17'(MaxFrame) && !s_axis_tlast;
  end
  logic [31:0] came, went, lost;
  always_ff @(posedge clk) begin
    if (s_axis_tvalid) begin
      inside_frame <= !s_axis_tlast;
      length_q <= length;
    end
    if (first) {admitted, captured, stamp} <= {admit, capture, time_ns};
    came <= came + 32'(first);
    went <= went + 32'(out_valid && out_sof);
    lost <= lost + 32'(cnt_lost);
    if (rst) {inside_frame, came, went, lost} <= '0;
  end

  // What must stand at the output, a clock later.
  logic was_reset, valid, sof, last, error, truncated, begun, ended, was_lost, cuts, errs;
  logic [DATA_W-1:0] data;
  logic [DATA_W/8-1:0] keep;
  logic [16:0] ended_length;
  always_ff @(posedge clk) begin
    valid <= goes && !rst;
    {sof, last, error, truncated} <= {
      first, s_axis_tlast || cut, (s_axis_tlast && s_axis_tuser) || cut, cut
    };
    {data, keep} <= {s_axis_tdata, s_axis_tkeep};
    begun <= first && !rst;
    ended <= s_axis_tvalid && s_axis_tlast && !rst;
    errs <= s_axis_tvalid && s_axis_tlast && s_axis_tuser && !rst;
    cuts <= cut && !rst;
    was_lost <= first && !admit && !rst;
    ended_length <= length;
  end

  logic was_cut;
  logic inside_out;  // between sof and last
  always_ff @(posedge clk) begin
    if (out_valid) inside_out <= !out_last;
    if (cut) was_cut <= 1'b1;
    if (rst) {inside_out, was_cut} <= '0;
  end

  always_comb begin
    if (!rst) begin
      whole : assert (out_valid == valid);
      content : assert (!out_valid || (out_data == data && out_keep == keep));
      ends :
      assert (!out_valid ||
          {out_sof, out_last, out_error, out_truncated} == {sof, last, error, truncated});
      grammar : assert (!out_valid || out_sof == !inside_out);
      none_lost : assert (came == went + lost + 32'(out_valid && out_sof) + 32'(cnt_lost));
      identity :
      assert (!out_valid || (out_packet_id == went - 32'(!out_sof) && out_stamp == stamp &&
                             out_captured == captured));
      counts :
      assert ({cnt_frame, cnt_frame_end, cnt_error, cnt_truncated, cnt_lost} ==
              {begun, ended, errs, cuts, was_lost});
      captures : assert ({cnt_captured, cnt_captured_lost} == ({2{captured}} & {begun, was_lost}));
      lengths :
      assert (!cnt_frame_end || cnt_bytes == (ended_length[16] ? '1 : ended_length[15:0]));
      runts : assert (cnt_runt == (ended && ended_length < 17'(MinFrame)));

      aux_inside : assert (mw_ingress.in_frame == inside_frame);
      aux_beats :
      assert (!inside_frame || (length_q == 17'(mw_ingress.beats) * 17'(Bytes) &&
          length_q <= 17'h10000));
      aux_passing :
      assert (!inside_frame || mw_ingress.passing == (admitted && length_q < 17'(MaxFrame)));
      aux_inside_out :
      assert ((out_valid ? !out_last : inside_out) == (inside_frame && mw_ingress.passing));
      aux_id : assert (mw_ingress.next_id == went + 32'(out_valid && out_sof));
      aux_first : assert (!inside_frame || (out_stamp == stamp && out_captured == captured));
      aux_same_id :
      assert (!inside_frame || !mw_ingress.passing ||
              out_packet_id == went + 32'(out_valid && out_sof) - 1'b1);
      aux_active :
      assert (mw_ingress.active || !(out_valid || begun || ended || errs || cuts || was_lost));

      cut_and_next : cover (out_valid && out_sof && was_cut && went == 1 && lost == 0);
      lost_between :
      cover (out_valid && out_sof && out_last && came == 3 && lost == 1 && went == 1);
    end
  end
endmodule

bind mw_ingress mw_ingress_proof #(.DATA_W(DATA_W)) proof (.*);
