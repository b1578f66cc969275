// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The end of a lane: joins frames that come straight through and frames that were held back
// (mw_path never issues two beats at once), drives the MAC, and shows what the MAC takes to
// the egress tap.
//
// `go` moves all stages before this module; it is a register, so that the MAC's ready ends
// here. A beat that comes in the cycle in which ready falls waits in `late_q`.
module mw_egress
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W = 512  // 64 or 512
) (
    input logic clk,
    input logic rst,
    input logic [63:0] time_ns,
    output logic go,
    input logic main_valid,
    input logic main_sof,
    input logic main_last,
    input logic [$clog2(DATA_W/8)-1:0] main_len,  // with last, as the next two: its bytes less one
    input logic main_error,
    input logic main_truncated,
    input logic [DATA_W-1:0] main_data,
    input logic held_valid,
    input logic held_sof,
    input logic held_last,
    input logic [$clog2(DATA_W/8)-1:0] held_len,
    input logic held_error,
    input logic held_truncated,
    input logic [DATA_W-1:0] held_data,
    // once a frame, in the order in which they come here, some cycles before
    input logic meta_valid,
    input logic meta_captured,
    input logic meta_wanted,  // record it at the tap
    input record_t meta_rec,
    output logic [DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input logic m_axis_tready,
    output logic m_axis_tlast,
    output logic m_axis_tuser,  // with tlast: the frame is in error
    output logic tap_valid,
    output logic tap_sof,
    output logic [DATA_W-1:0] tap_data,
    output logic [DATA_W/8-1:0] tap_keep,
    output logic tap_last,
    output logic tap_error,
    output logic tap_truncated,
    output logic [63:0] tap_time,  // with tap_sof, as the next two
    output record_t tap_rec,
    output logic tap_wanted,
    output logic cnt_tx_frame,
    output logic [15:0] cnt_tx_bytes,  // with cnt_tx_frame
    output logic cnt_captured_tx,
    output logic active
);
  if (DATA_W != 64 && DATA_W != 512) begin : g_bad
    $fatal(1, "mw_egress: DATA_W must be 64 or 512");
  end

  localparam int unsigned Bytes = DATA_W / 8;
  typedef struct packed {
    logic                     sof;
    logic                     last;
    logic                     error;
    logic                     truncated;
    logic [$clog2(Bytes)-1:0] len;
    logic [DATA_W-1:0]        data;
  } beat_t;

  beat_t out, late_q;
  logic in_valid, out_valid, late_valid, free, accept;
  assign in_valid = main_valid || held_valid;
  assign go = !late_valid;
  assign free = !out_valid || m_axis_tready;
  assign accept = out_valid && m_axis_tready;

  always_ff @(posedge clk) begin
    if (in_valid || out_valid) begin
      if (free && late_valid) out <= late_q;
      if (in_valid && go) begin
        automatic beat_t in;
        if (held_valid)
          in = '{
              sof: held_sof,
              last: held_last,
              error: held_error,
              truncated: held_truncated,
              len: held_len,
              data: held_data
          };
        else
          in = '{
              sof: main_sof,
              last: main_last,
              error: main_error,
              truncated: main_truncated,
              len: main_len,
              data: main_data
          };
        if (free) out <= in;
        else late_q <= in;
      end
      if (free) out_valid <= late_valid || in_valid;
      late_valid <= !free && (late_valid || in_valid);
    end
    if (rst) begin
      out_valid  <= 1'b0;
      late_valid <= 1'b0;
    end
  end

  assign m_axis_tvalid = out_valid;
  assign m_axis_tdata  = out.data;
  assign m_axis_tkeep  = out.last ? ~({Bytes{1'b1}} << 1 << out.len) : '1;
  assign m_axis_tlast  = out.last;
  assign m_axis_tuser  = out.last && out.error;

  // At most seven frames are between issue and the MAC: one a stage.
  logic captured, wanted, meta_there, meta_room;
  logic [3:0] unused_free;
  record_t rec;
  mw_fifo #(
      .WIDTH(2 + $bits(record_t)),
      .DEPTH_LOG2(3)
  ) i_meta (
      .clk,
      .rst,
      .in_valid(meta_valid),
      .in_ready(meta_room),
      .in_data({meta_captured, meta_wanted, meta_rec}),
      .out_valid(meta_there),
      .out_ready(accept && out.last),
      .out_data({captured, wanted, rec}),
      .free(unused_free)
  );
  always_ff @(posedge clk) begin
    assert (rst || ((!meta_valid || meta_room) && (!accept || meta_there)))
    else $fatal(1, "mw_egress: frames and their records do not match");
  end

  logic [15:0] bytes;  // of this frame in beats before this one
  always_ff @(posedge clk) begin
    if (accept) begin
      tap_sof <= out.sof;
      tap_data <= out.data;
      tap_keep <= m_axis_tkeep;
      tap_last <= out.last;
      tap_error <= out.last && out.error;
      tap_truncated <= out.last && out.truncated;
      if (out.sof) begin
        tap_time <= time_ns;
        tap_rec <= rec;
        tap_wanted <= wanted;
      end
      if (out.last) cnt_tx_bytes <= (out.sof ? '0 : bytes) + 16'(out.len) + 1'b1;
      bytes <= (out.sof ? '0 : bytes) + 16'(Bytes);
    end
    if (accept || tap_valid) begin
      tap_valid <= accept;
      cnt_tx_frame <= accept && out.last;
      cnt_captured_tx <= accept && out.last && captured;
    end
    if (rst) begin
      tap_valid <= 1'b0;
      cnt_tx_frame <= 1'b0;
      cnt_captured_tx <= 1'b0;
    end
  end

  assign active = out_valid || late_valid || tap_valid;
endmodule
