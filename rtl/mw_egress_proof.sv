// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Any beat that is taken (with `go`) is watched on its way: the MAC gets it unchanged, after
// exactly the beats that were taken before it, and once. Towards the MAC what is valid stands
// until it is taken. The tap is shown the beats that the MAC took, and no others, a clock later;
// with a frame's first beat what came as its meta, the n-th for the n-th frame. Frames that went
// are counted, with their length. A free MAC is given a beat in the clock after it comes.
//
// Assumed of mw_path: one beat at a time, frame after frame, no more than eight frames on their
// way, and a frame's meta at least a clock before its first beat.
//
// uses: mw_fifo mw_fifo_proof
// induction: 2 -GDATA_W=512
// induction: 2 -GDATA_W=64
// cover: 16 -GDATA_W=64
// mutant: mw_egress: else late_q <= in => else out <= in
// mutant: mw_egress: if (free && late_valid) out <= late_q; =>
// mutant: mw_egress: assign go = !late_valid; => assign go = 1'b1;
// mutant: mw_egress: late_valid <= !free && (late_valid || in_valid) => late_valid <= !free && late_valid
// mutant: mw_egress: .out_ready(accept && out.last) => .out_ready(accept && out.last && captured)
// mutant: mw_egress: {Bytes{1'b1}} << 1 << out.len => {Bytes{1'b1}} << out.len
// mutant: mw_egress: if (accept || tap_valid) begin => if (accept) begin
// mutant: mw_egress: bytes <= (out.sof ? '0 : bytes) + 16'(Bytes) => bytes <= bytes + 16'(Bytes)
module mw_egress_proof
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W
) (
    input logic clk,
    input logic rst,
    input logic [63:0] time_ns,
    input logic go,
    input logic main_valid,
    input logic main_sof,
    input logic main_last,
    input logic [$clog2(DATA_W/8)-1:0] main_len,
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
    input logic meta_valid,
    input logic meta_captured,
    input logic meta_wanted,
    input record_t meta_rec,
    input logic [DATA_W-1:0] m_axis_tdata,
    input logic [DATA_W/8-1:0] m_axis_tkeep,
    input logic m_axis_tvalid,
    input logic m_axis_tready,
    input logic m_axis_tlast,
    input logic m_axis_tuser,
    input logic tap_valid,
    input logic tap_sof,
    input logic [DATA_W-1:0] tap_data,
    input logic [DATA_W/8-1:0] tap_keep,
    input logic tap_last,
    input logic tap_error,
    input logic tap_truncated,
    input logic [63:0] tap_time,
    input record_t tap_rec,
    input logic tap_wanted,
    input logic cnt_tx_frame,
    input logic [15:0] cnt_tx_bytes,
    input logic cnt_captured_tx,
    // inside
    input logic late_valid
);
  localparam int unsigned Bytes = DATA_W / 8;
  typedef struct packed {
    logic                     sof;
    logic                     last;
    logic                     error;
    logic                     truncated;
    logic [$clog2(Bytes)-1:0] len;
    logic [DATA_W-1:0]        data;
  } beat_t;

  // ---- Beats ----
  beat_t in;
  logic take, accept;
  assign in = main_valid ?
      {main_sof, main_last, main_error, main_truncated, main_len, main_data} :
      {held_sof, held_last, held_error, held_truncated, held_len, held_data};
  assign take = (main_valid || held_valid) && go;
  assign accept = m_axis_tvalid && m_axis_tready;

  logic inside_in, inside_out;  // a frame
  logic [ 1:0] count;  // beats in the module
  logic [ 3:0] metas;  // of frames that have not begun to come
  logic [ 3:0] frames;  // that have begun to come and not left
  logic [15:0] bytes;  // of the frame that leaves, before this beat
  always_ff @(posedge clk) begin
    if (take) inside_in <= !in.last;
    if (accept) begin
      inside_out <= !m_axis_tlast;
      bytes <= (inside_out ? bytes : '0) + 16'($countones(m_axis_tkeep));
    end
    count  <= count + 2'(take) - 2'(accept);
    metas  <= metas + 4'(meta_valid) - 4'(take && in.sof);
    frames <= frames + 4'(take && in.sof) - 4'(accept && m_axis_tlast);
    if (rst) {inside_in, inside_out, count, metas, frames} <= '0;
  end
  logic young;  // the last meta came in the clock before
  always_ff @(posedge clk) young <= meta_valid && !rst;
  always_comb begin
    if (!rst) begin
      assume (!main_valid || !held_valid);
      if (take) assume (in.sof == !inside_in);
      if (take && in.sof) assume (metas != '0);
      if (meta_valid) assume (metas + frames < 4'd8);
    end
  end

  logic anyseq_watch;  // the beat that is taken now is the one
  logic watched, next;
  beat_t beat;
  logic [1:0] ahead;
  assign next = watched && ahead == '0;
  always_ff @(posedge clk) begin
    if (watched && accept) begin
      ahead   <= ahead - 1'b1;
      watched <= !next;
    end
    if (anyseq_watch && take && !watched) begin
      watched <= 1'b1;
      beat <= in;
      ahead <= count - 2'(accept);
    end
    if (rst) watched <= 1'b0;
  end

  // ---- Meta: the FIFO's proof watches one, that of a frame that is so many frames away ----
  logic meta_watched;
  logic [3:0] frames_ahead;
  logic [$bits(record_t)+1:0] meta;
  always_ff @(posedge clk) begin
    if (meta_watched && accept && m_axis_tlast) begin
      frames_ahead <= frames_ahead - 1'b1;
      meta_watched <= frames_ahead != '0;
    end
    if (mw_egress.i_meta.proof.anyseq_watch && meta_valid && !meta_watched) begin
      meta_watched <= 1'b1;
      meta <= {meta_captured, meta_wanted, meta_rec};
      frames_ahead <= metas + frames - 4'(accept && m_axis_tlast);
    end
    if (rst) meta_watched <= 1'b0;
  end

  logic offered, accepted, came, now_tap, now_sent;
  logic [DATA_W+DATA_W/8+1:0] offer, shown;
  logic [63:0] now;
  logic [15:0] sent;
  logic first, captured;
  assign shown = {m_axis_tdata, m_axis_tkeep, m_axis_tlast, m_axis_tuser};
  always_ff @(posedge clk) begin
    offered <= m_axis_tvalid && !m_axis_tready && !rst;
    offer <= shown;
    accepted <= accept && !rst;
    came <= take && !rst;
    if (accept && !inside_out) now <= time_ns;
    first <= !inside_out;
    now_tap <= meta_watched && frames_ahead == '0 && accept && !inside_out && !rst;
    now_sent <= meta_watched && frames_ahead == '0 && accept && m_axis_tlast && !rst;
    captured <= meta[$bits(record_t)+1];
    sent <= (inside_out ? bytes : '0) + 16'($countones(m_axis_tkeep));
  end
  logic [$bits(record_t):0] tap_meta;
  always_ff @(posedge clk) if (now_tap || accept) tap_meta <= meta[$bits(record_t):0];

  always_comb begin
    if (!rst) begin
      counts :
      assert (count == 2'(m_axis_tvalid) + 2'(late_valid) && (m_axis_tvalid || !late_valid));
      stands : assert (!offered || (m_axis_tvalid && shown == offer));
      prompt : assert (!came || m_axis_tvalid);
      order :
      assert (!next || !m_axis_tvalid ||
              (m_axis_tdata == beat.data && m_axis_tlast == beat.last &&
               m_axis_tuser == (beat.last && beat.error) &&
               m_axis_tkeep == (beat.last ? ~(~Bytes'(1) << beat.len) : '1)));
      moves : assert (go || count == 2'd2);

      tap : assert (tap_valid == accepted);
      tap_content :
      assert (!tap_valid || ({tap_data, tap_keep, tap_last, tap_error} == offer && tap_sof == first));
      tap_truncates : assert (!next || !m_axis_tvalid || mw_egress.out.truncated == beat.truncated);
      tap_times : assert (!tap_valid || !tap_sof || tap_time == now);
      tap_metas : assert (!now_tap || {tap_wanted, tap_rec} == tap_meta);
      sents : assert (cnt_tx_frame == (tap_valid && tap_last));
      lengths : assert (!cnt_tx_frame || cnt_tx_bytes == sent);
      captures : assert (!now_sent || cnt_captured_tx == captured);

      aux_ahead : assert (!watched || ahead < count);
      aux_out : assert (!next || !m_axis_tvalid || mw_egress.out == beat);
      aux_late : assert (!watched || ahead != 2'd1 || (late_valid && mw_egress.late_q == beat));
      aux_sof : assert (!m_axis_tvalid || mw_egress.out.sof == !inside_out);
      aux_late_sof : assert (!late_valid || mw_egress.late_q.sof == mw_egress.out.last);
      aux_inside :
      assert (inside_in == (late_valid ? !mw_egress.late_q.last :
                            m_axis_tvalid ? !mw_egress.out.last : inside_out));
      aux_frames :
      assert (frames == 4'(inside_out) + 4'(m_axis_tvalid && mw_egress.out.sof) +
              4'(late_valid && mw_egress.late_q.sof));
      aux_bytes : assert (!inside_out || bytes == mw_egress.bytes);
      aux_metas : assert (mw_egress.i_meta.proof.count == metas + frames && metas >= 4'(young));
      aux_most : assert (metas <= 4'd8 && metas + frames <= 4'd8);
      aux_head : assert (mw_egress.i_meta.out_valid || 4'(mw_egress.i_meta.stored) <= 4'(young));
      aux_meta :
      assert (meta_watched == mw_egress.i_meta.proof.watched &&
              (!meta_watched || (frames_ahead == 4'(mw_egress.i_meta.proof.ahead) &&
                                 meta == mw_egress.i_meta.proof.word)));

      stalls : cover (next && accept && late_valid && frames == 4'd2 && beat.last && inside_out);
      three : cover (now_tap && tap_valid && tap_last && metas != '0);
    end
  end
endmodule

bind mw_egress mw_egress_proof #(.DATA_W(DATA_W)) proof (.*);
