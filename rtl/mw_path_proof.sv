// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// No frame is lost, split or merged between ingress and the MAC. A frame that begins when `admit`
// was high finds room for all its beats, its length and its verdict. Frames leave the FIFO one
// after the other, each either issued, from its first beat on, or dropped, as its own plan says;
// those that came in are those that wait, that were issued and that were counted as dropped. An
// issued frame goes straight, or is stored, or both; all its beats go the same way. Frames that
// go straight and frames of the store never mix: the MAC gets one after the other, each from its
// first beat to its last, and as many as were issued straight and released. Once begun, a frame
// never runs dry. The beginnings that mw_inject is shown come first beat to last. The proofs of
// mw_fifo, mw_act, mw_hold and mw_egress say that a beat is not changed or doubled on these ways; what
// they assume of mw_path is asserted.
//
// Assumed: what the proof of mw_ingress shows of its frames; that their beats come in three of
// five clocks at least, no more than four beats behind, as they do of a MAC of 100GbE; verdicts
// come for frames that came; made frames come first to last, and fit a slot. What is in the FIFO of
// beats is what came and did not leave, and with a frame's last beat its length is there, as the
// proof of mw_fifo says of each. mw_mend and the order of the store have any behaviour. The data
// decides nothing here; zeros stand for it.
//
// uses: mw_fifo mw_fifo_proof mw_act mw_hold mw_hold_proof mw_egress mw_egress_proof mw_ram mw_crc32_change mw_mend mw_sorted_queue mw_reorder
// any: mw_mend mw_sorted_queue mw_reorder
// with: mw_path: .in_data({in_captured, in_last, in_data}) => .in_data({in_captured, in_last, DATA_W'(0)})
// with: mw_path: .main_data(act_data) => .main_data('0)
// with: mw_path: .held_data, => .held_data('0),
// with: mw_path: .wr_data(act_data), => .wr_data('0),
// with: mw_path: .add_data, => .add_data('0),
// induction: 2 -GDATA_W=64
// induction: 2 -GDATA_W=512
// cover: 11 -GDATA_W=512 -GPREFILL=2 -GINFLIGHT_LOG2=4 -GDELAY_SLOTS_LOG2=1
// small: mw_pkg: MaxFrame = 10240 => MaxFrame = 128
// small: mw_pkg: MinFrame = 60 => MinFrame = 100
// mutant: mw_pkg: return truncate && bytes != '0; => return truncate;
// mutant: mw_path: held_turn = held_due && light && sof && => held_turn = held_due && light &&
// mutant: mw_path: issue = go && !held_issuing && !held_turn => issue = go && !held_turn
// mutant: mw_path: frame_done = ((drop || cut_off) && f_last) => frame_done = (drop && f_last)
// mutant: mw_path: drop || cut_off || (issue && !padding) => drop || cut_off || issue
// mutant: mw_path: !plan_drop && !cutting && at_hand => !plan_drop && at_hand
// mutant: mw_path: inflight <= begun ? inflight + 1'b1 : inflight - 1'b1; => inflight <= inflight + 1'b1;
// mutant: mw_path: assign store = sof ? plan_store && slot_free : store_q => assign store = plan_store && slot_free
// mutant: mw_path: assign aside = sof ? plan_held && slot_free => assign aside = sof ? plan_held
// mutant: mw_path: (l_valid || 32'(f_free) <= Fifo - PREFILL) => (l_valid || 32'(f_free) < Fifo)
// mutant: mw_path: seen_last <= f_last || popped => seen_last <= popped
// mutant: mw_path: (issue && sof && !aside)), => (issue && sof)),
module mw_path_proof
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W,
    parameter int unsigned FIFO_LOG2,
    parameter int unsigned PREFILL,
    parameter int unsigned INFLIGHT_LOG2,
    parameter int unsigned DELAY_SLOTS_LOG2
) (
    input logic                   clk,
    input logic                   rst,
    input logic                   in_valid,
    input logic                   in_sof,
    input logic                   in_last,
    input logic [   DATA_W/8-1:0] in_keep,
    input logic                   admit,
    input logic                   v_valid,
    input logic                   seen_valid,
    input logic                   seen_sof,
    input logic                   seen_last,
    input logic                   add_valid,
    input logic                   add_sof,
    input logic                   add_last,
    input logic                   cnt_dropped,
    input logic                   cnt_tx_frame,
    // inside
    input logic                   f_valid,
    input logic                   f_last,
    input logic                   f_pop,
    input logic [    FIFO_LOG2:0] f_free,
    input logic                   l_valid,
    input logic [           13:0] l_length,
    input logic                   frame_done,
    input logic [INFLIGHT_LOG2:0] inflight,
    input logic                   room,
    input logic                   plan_valid,
    input logic                   plan_drop,
    input logic                   go,
    input logic                   issue,
    input logic                   final_beat,
    input logic                   drop,
    input logic                   cut_off,
    input logic                   in_frame,
    input logic                   padding,
    input logic                   cutting,
    input logic                   take,
    input logic                   store,
    input logic                   aside,
    input logic                   aside_q,
    input logic                   held_start,
    input logic                   held_issuing
);
  localparam int unsigned Bytes = DATA_W / 8;
  localparam int unsigned MaxBeats = MaxFrame / Bytes;

  localparam int unsigned Fifo = 1 << FIFO_LOG2;
  // How far a frame's beats may fall behind three in five clocks, in fifths of a beat.
  localparam int unsigned MaxLag = 5 * 4;

  // ---- What comes in ----
  logic inside_in, admitted;  // admit was high in the clock before
  logic [10:0] beats;  // of the frame that comes in
  logic [31:0] begun, ended, verdicts;
  logic [5:0] lag;
  always_ff @(posedge clk) begin
    admitted <= admit;
    if (in_valid) begin
      inside_in <= !in_last;
      beats <= (in_sof ? '0 : beats) + 1'b1;
    end
    begun <= begun + 32'(in_valid && in_sof);
    ended <= ended + 32'(in_valid && in_last);
    verdicts <= verdicts + 32'(v_valid);
    if (!inside_in) lag <= '0;
    else if (in_valid) lag <= lag < 6'd2 ? '0 : lag - 6'd2;
    else lag <= lag + 6'd3;
    if (rst) {inside_in, admitted, begun, ended, verdicts} <= '0;
  end
  logic [10:0] out_beats;  // of the frame at the head, that have left the FIFO
  always_ff @(posedge clk) begin
    if (f_pop) out_beats <= f_last ? '0 : out_beats + 1'b1;
    if (rst) out_beats <= '0;
  end
  always_comb begin
    if (!rst) begin
      if (in_valid) begin
        assume (in_sof == !inside_in);
        if (in_sof)
          assume (admitted);
          else assume (32'(beats) < MaxBeats);
      end
      if (v_valid) assume (begun != verdicts);
      if (inside_in) assume (32'(lag) <= MaxLag);
      if (f_valid && f_last) assume (l_valid);
      if (f_valid && l_valid)
        assume (f_last == (out_beats == 11'((l_length - 1'b1) >> $clog2(Bytes))));
      if (f_valid && 32'(out_beats) == MaxBeats - 1) assume (f_last);
      if (add_valid)
        assume (add_sof == !mw_path.i_hold.proof.in_add &&
                (!(&mw_path.i_hold.proof.add_at) || add_last));
      if (l_valid) assume (l_length != '0 && 32'(l_length) <= MaxFrame);
    end
  end

  // ---- What leaves the FIFO ----
  logic inside_out;  // the last beat that left was not its frame's last
  logic dropping;  // it was dropped
  logic [31:0] done, issued, straight, released, dropped, sent;
  logic [31:0] gone;  // last beats that left the FIFO
  always_ff @(posedge clk) begin
    if (f_pop) {inside_out, dropping} <= {!f_last, drop};
    done <= done + 32'(frame_done);
    gone <= gone + 32'(f_pop && f_last);
    issued <= issued + 32'(issue && !in_frame);
    straight <= straight + 32'(issue && !in_frame && !aside);
    released <= released + 32'(held_start);
    dropped <= dropped + 32'(drop && f_last);
    sent <= sent + 32'(cnt_tx_frame);
    if (rst) {inside_out, dropping, done, gone, issued, straight, released, dropped, sent} <= '0;
  end
  // What mw_inject is shown of a frame, and what it will have been shown with this clock.
  localparam int unsigned SeenBeats = SeenBytes / Bytes;
  logic inside_seen, in_seen;
  logic [$clog2(SeenBeats):0] seen_beats, seen_count;
  assign in_seen = seen_valid ? !seen_last : inside_seen;
  assign seen_count = (seen_sof ? '0 : seen_beats) + 1'b1;
  always_ff @(posedge clk) begin
    inside_seen <= in_seen && !rst;
    if (seen_valid) seen_beats <= seen_count;
  end

  // What is in the FIFO is what came and did not leave.
  logic [31:0] ends;  // last beats in it
  assign ends = ended - gone;
  always_comb begin
    if (!rst) begin
      part_ends : assume (ends <= Fifo - 32'(f_free));
      if (f_valid && ends == Fifo - 32'(f_free)) part_all_last : assume (f_last);
      if (32'(f_free) == Fifo) part_empty : assume (inside_out == inside_in);
    end
  end
  logic in_frame_before;
  always_ff @(posedge clk) in_frame_before <= in_frame && !rst;
  logic was_dropped, store_before;
  always_ff @(posedge clk) begin
    was_dropped <= drop && f_last && !rst;
    if (issue) store_before <= store;
  end

  // ---- The stages between issue and mw_egress ----
  localparam int unsigned TagW = 4 + $clog2(Bytes) + 2 + DELAY_SLOTS_LOG2;
  logic [3:0][TagW-1:0] tag;
  logic [3:0] is_valid, is_held, is_sof, is_last;  // 3: shown to mw_egress
  assign tag = {mw_path.act_tag, mw_path.i_act.tag3, mw_path.i_act.tag2, mw_path.i_act.tag1};
  assign is_held = mw_path.i_hold.valid;
  logic [4:0] mid;  // inside a frame, after stage i and those before it
  for (genvar i = 0; i < 4; i++) begin : g_stage
    logic is_straight;
    assign is_straight = mw_path.i_act.valid[i] && !tag[i][DELAY_SLOTS_LOG2];
    assign is_valid[i] = is_straight || is_held[i];
    assign is_sof[i]   = is_held[i] ? mw_path.i_hold.step[i].sof : tag[i][TagW-1];
    assign is_last[i]  = is_held[i] ? mw_path.i_hold.step[i].last : tag[i][TagW-2];
    always_comb begin
      if (!rst) begin
        apart : assert (!is_straight || !is_held[i]);
        aux_grammar : assert (!is_valid[i] || is_sof[i] == !mid[i+1]);
      end
    end
  end
  logic [3:0] way_ok;
  always_comb begin
    for (int i = 0; i < 4; i++)
    way_ok[i] = mw_path.i_hold.proof.way_valid[i+1] ==
        (mw_path.i_act.valid[i] && tag[i][DELAY_SLOTS_LOG2+1]) &&
        (!mw_path.i_hold.proof.way_valid[i+1] ||
         (mw_path.i_hold.proof.way_last[i+1] == tag[i][TagW-2] &&
          mw_path.i_hold.proof.way_slot[i+1] == tag[i][DELAY_SLOTS_LOG2-1:0]));
  end
  always_comb begin
    mid[4] = mw_path.i_egress.proof.inside_in;
    for (int i = 3; i >= 0; i--) mid[i] = is_valid[i] ? !is_last[i] : mid[i+1];
  end

  always_comb begin
    if (!rst) begin
      // The RTL asserts that no FIFO overflows.
      begins : assert (!issue || in_frame || (f_valid && plan_valid && !plan_drop && !inside_out));
      drops : assert (!drop || (f_valid && plan_valid && plan_drop && (!inside_out || dropping)));
      whole :
      assert (!inside_out || (dropping ? plan_valid && plan_drop && !in_frame :
                              in_frame || cutting));
      pops : assert (!f_pop || f_valid);
      seen_whole :
      assert (!seen_valid || (seen_sof == !inside_seen &&
                              (seen_last || 32'(seen_count) < SeenBeats)));
      never_dry : assert (!issue || padding || f_valid);
      one_frame : assert (!issue || !in_frame || padding || inside_out);
      one_way : assert (!issue || !in_frame || (store == store_before && aside == aside_q));
      somewhere : assert (!issue || !aside || store);
      one_source : assert (!held_start || (!issue && !in_frame && !held_issuing));
      none_issuing : assert (!held_issuing || (!issue && !in_frame));

      frames : assert (begun == done + 32'(inflight) && ended == begun - 32'(inside_in));
      shares : assert (done + 32'(in_frame || cutting) == issued + dropped);
      counts_dropped : assert (cnt_dropped == was_dropped);
      leave :
      assert (straight + released == sent + 32'(mw_path.i_egress.proof.frames) +
              32'(mw_path.i_egress.proof.metas) + 32'(cnt_tx_frame));

      aux_store : assert (!in_frame || store_before == mw_path.store_q);
      aux_known :
      assert (!(padding || cutting || (in_frame && mw_path.plan_action.truncate)) || l_valid);
      aux_whole : assert (!plan_valid || !mw_path.plan_action.truncate || mw_path.plan_whole);
      aux_index : assert (in_frame ? padding || out_beats == mw_path.index : mw_path.index == '0);
      aux_cut :
      assert (!in_frame || padding || !mw_path.cut ||
              mw_path.index <= 11'((mw_path.length - 1'b1) >> $clog2(
          Bytes
      )));
      aux_out_beats : assert (inside_out ? 32'(out_beats) < MaxBeats : out_beats == '0);
      aux_pads : assert (!padding || 32'(mw_path.index) < (MinFrame + Bytes - 1) / Bytes);
      aux_plan : assert (!(in_frame || cutting) || (plan_valid && !plan_drop));
      aux_in_lane : assert (mw_path.i_hold.proof.in_lane == (in_frame && mw_path.store_q));
      if (mw_path.i_hold.proof.in_lane)
        aux_lane :
        assert (mw_path.i_hold.proof.lane_slot == mw_path.slot_q &&
            32'(mw_path.i_hold.proof.lane_index) == 32'(mw_path.index) &&
            32'(mw_path.index) < MaxBeats);
      aux_way : assert (way_ok == '1);
      aux_aside : assert (!in_frame || !aside_q || store_before);
      aux_padding : assert (!padding || (in_frame && (inside_out == cutting)));
      aux_inside : assert (!in_frame || padding || (inside_out && !cutting));
      aux_cutting : assert (!cutting || (inside_out && !dropping));
      aux_dropping : assert (!dropping || !in_frame);
      aux_free :
      assert (!inside_in || (32'(f_free) + 32'(beats) >= MaxBeats && 32'(beats) <= MaxBeats));
      aux_room : assert (!room || 32'(f_free) >= MaxBeats + 3);
      aux_admitted : assert (!admitted || 32'(f_free) >= MaxBeats + 2);
      aux_inflight :
      assert (inflight <= (INFLIGHT_LOG2 + 1)'(1 << INFLIGHT_LOG2) && 32'(inflight) >= 32'(inside_in));
      aux_few : assert (!room || 32'(inflight) <= (1 << INFLIGHT_LOG2) - 3);
      aux_fewer : assert (!admitted || 32'(inflight) <= (1 << INFLIGHT_LOG2) - 2);
      aux_popped :
      assert (inside_out ? mw_path.popped != '0 && 32'(mw_path.popped) <= SeenBeats :
              mw_path.popped == '0);
      aux_seen :
      assert (in_seen == (inside_out && mw_path.plan_action.inject &&
                                     32'(mw_path.popped) != SeenBeats));
      aux_seen_beats :
      assert (!in_seen || (seen_valid ? seen_count : seen_beats) == mw_path.popped);
      aux_gone : assert (gone == done + 32'(padding && !cutting));
      if (in_frame && !padding && mw_path.i_lengths.proof.count == '0)
        aux_ahead :
        assert (5 * (Fifo - 32'(f_free)) + 32'(lag) + 2 * 32'(mw_path.index) >= 5 * PREFILL);
      aux_shown : assert (f_valid || 32'(f_free) >= Fifo - 1);
      aux_lengths : assert (32'(mw_path.i_lengths.proof.count) + 32'(inside_in) == 32'(inflight));
      aux_verdicts :
      assert (32'(mw_path.i_verdicts.proof.count) + 32'(plan_valid) == verdicts - done);
      aux_verdicts_few : assert (begun - verdicts <= 32'(inflight));
      aux_metas :
      assert (mw_path.i_egress.proof.metas ==
              4'(is_valid[0] && is_sof[0]) + 4'(is_valid[1] && is_sof[1]) +
              4'(is_valid[2] && is_sof[2]) + 4'(is_valid[3] && is_sof[3]));
      aux_last : assert (mid[0] == ((in_frame && !aside_q) || held_issuing));

      copies : cover (held_start && sent != 0 && dropped != 0 && in_frame_before);
      cuts : cover (cut_off && f_last && dropped != 0);
    end
  end
endmodule

bind mw_path mw_path_proof #(
    .DATA_W(DATA_W),
    .FIFO_LOG2(FIFO_LOG2),
    .PREFILL(PREFILL),
    .INFLIGHT_LOG2(INFLIGHT_LOG2),
    .DELAY_SLOTS_LOG2(DELAY_SLOTS_LOG2)
) proof (.*);
