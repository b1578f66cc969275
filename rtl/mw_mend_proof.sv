// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Each verdict that mends, and comes while `busy` is low, gets exactly one answer, others get
// none: those that came are those that wait as requests, that are at work and that were answered.
// No queue overflows, whatever comes and however long an answer is not taken; `room` is exact. An
// answer stands until it is taken.
//
// Answers have the verdicts' order: a request, any, is begun as the one that it was among those
// that came, and from there on nothing can overtake. Its reads are issued once each, when its
// bytes are there. What is added up, for the sums and for the ICRC, begins anew with a frame's
// first read and is given on with its last. A change of the ICRC is taken together with the sums
// of a frame that has one, and there are as many of the ones as of the others.
//
// What is read and worked out is not proved here but compared with the reference model; zeros
// stand for the bytes read and the changes of the ICRC. Nothing is assumed of the user.
//
// uses: mw_ram mw_fifo mw_fifo_proof mw_crc32_change
// with: mw_ram: initial for (int i = 0; i < (1 << ROWS_LOG2); i++) mem[i] = '0; =>
// with: mw_mend: .in_change(f_icrc) => .in_change('0)
// with: mw_crc32_change: left[k-1][k-1] ? by_step(crc[k-1], Step[k-1]) : crc[k-1] => '0
// with: mw_mend: e_old <= d_odd ? {rd_old[0], rd_old[1]} : {rd_old[1], rd_old[0]} => e_old <= '0
// induction: 2 -GDATA_W=512 -GFIFO_LOG2=10 -GINFLIGHT_LOG2=8
// induction: 2 -GDATA_W=64 -GFIFO_LOG2=13 -GINFLIGHT_LOG2=8
// cover: 34 -GDATA_W=64 -GFIFO_LOG2=2 -GINFLIGHT_LOG2=2
// mutant: mw_mend: made_valid <= v_valid && v_mends && !busy => made_valid <= v_valid && v_mends
// mutant: mw_mend: verdict <= verdict + 1'b1; => if (v_mends) verdict <= verdict + 1'b1;
// mutant: mw_mend: made_valid <= v_valid && v_mends && !busy => made_valid <= v_valid && !busy
// mutant: mw_mend: head_ready = !pend_valid || take => head_ready = 1'b1
// mutant: mw_mend: take = pend_ready && last_read => take = pend_ready
// mutant: mw_mend: reads <= reads ^ read; => reads <= reads & read;
// mutant: mw_mend: a.last  <= last_read => a.last  <= 1'b1
// mutant: mw_mend: (ended || (beats > => (1'b1 || (beats >
// mutant: mw_mend: m_valid <= k_valid && k.last => m_valid <= k_valid
// mutant: mw_mend: begun <= !k.last => begun <= 1'b1
// mutant: mw_mend: p_valid   <= sums_valid && (!sums.icrc.has_icrc || flip_valid) => p_valid <= sums_valid
// mutant: mw_mend: f_valid && f_info.has_icrc => f_valid
// mutant: mw_mend: if (rst) room <= (SumsLog2 + 1)'(1 << SumsLog2) => if (rst) room <= '1
module mw_mend_proof
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W,
    parameter int unsigned INFLIGHT_LOG2,
    parameter int unsigned SUMS_LOG2
) (
    input logic                       clk,
    input logic                       rst,
    input logic                       in_valid,
    input logic                       in_last,
    input logic                       v_valid,
    input verdict_t                   v,
    input logic                       v_mends,
    input logic                       busy,
    input logic                       out_valid,
    input logic                       out_ready,
    input mend_t                      out,
    // inside
    input logic                       made_valid,
    input logic                       fetch,
    input logic                       pend_valid,
    input logic                       pend_ready,
    input logic     [            3:0] pend_reads,
    input logic                       take,
    input logic                       work,
    input logic     [            3:0] reads,
    input logic     [            3:0] read,
    input logic                       last_read,
    input logic     [INFLIGHT_LOG2:0] free,
    input logic     [    SUMS_LOG2:0] room,
    input logic                       m_valid,
    input logic                       sums_valid,
    input logic                       flip_in,
    input logic                       flip_valid,
    input logic                       step,
    input logic                       p_valid,
    input logic                       q_valid,
    input logic                       r_valid,
    input logic                       s_valid
);
  localparam int unsigned AtWork = 1 << SUMS_LOG2;  // frames, at most

  // ---- Counts ----
  logic accept, answer;
  logic [31:0] accepted, taken, answered;
  always_comb if (v_valid) assume (v_mends == mends(v.layout, v.action));
  assign accept = v_valid && v_mends && !busy;
  assign answer = out_valid && out_ready;
  always_ff @(posedge clk) begin
    accepted <= accepted + 32'(accept);
    taken <= taken + 32'(take);
    answered <= answered + 32'(answer);
    if (rst) {accepted, taken, answered} <= '0;
  end

  // ---- The request that is watched ----
  logic [31:0] anyconst_nth;  // of those that were accepted
  logic is_it, is_fetched, is_taken, came, over;  // over: it has left the FIFO
  logic next, mine;  // it waits to be begun, it is at work
  logic [INFLIGHT_LOG2-1:0] verdicts, number;
  logic icrc;
  assign is_it = made_valid && !came && accepted == anyconst_nth + 1;
  assign is_fetched = fetch && mw_mend.i_requests.proof.next;
  assign is_taken = take && next;
  always_ff @(posedge clk) begin
    verdicts <= verdicts + INFLIGHT_LOG2'(v_valid);
    if (accept && accepted == anyconst_nth && !came) begin
      number <= verdicts;
      icrc   <= v.layout.proto == ProtoRoce && (v.action.mend_icrc || v.action.mend_l4);
    end
    if (is_it) came <= 1'b1;
    if (is_fetched) over <= 1'b1;
    if (take || fetch) next <= is_fetched;
    if (take) mine <= is_taken;
    if (rst) {verdicts, came, over, next, mine} <= '0;
  end
  logic [INFLIGHT_LOG2+221:0] word;
  localparam int unsigned Icrc = 173;  // bits of it
  localparam int unsigned Ecn = 172;
  localparam int unsigned Set = 169;
  localparam int unsigned Corrupt = 26;
  localparam int unsigned MendL4 = 2;
  assign word = mw_mend.i_requests.proof.word;
  always_comb assume (mw_mend.i_requests.proof.anyseq_watch == is_it);

  // ---- Reads: of the request at work, and in the stages a to k ----
  logic [3:0] done;  // reads that were issued
  logic [3:0] asked;
  logic fresh;  // none was
  logic was_all;  // that of a clock ago was the last one
  logic [9:0] valid, last, first, has;  // 0: a
  assign fresh = done == '0;
  assign valid = {
    mw_mend.k_valid,
    mw_mend.j_valid,
    mw_mend.h_valid,
    mw_mend.g_valid,
    mw_mend.f_valid,
    mw_mend.e_valid,
    mw_mend.d_valid,
    mw_mend.c_valid,
    mw_mend.b_valid,
    mw_mend.a_valid
  };
  assign last = {
    mw_mend.k.last,
    mw_mend.j.last,
    mw_mend.h.last,
    mw_mend.g.last,
    mw_mend.f_last,
    mw_mend.e_last,
    mw_mend.d.last,
    mw_mend.c.last,
    mw_mend.b.last,
    mw_mend.a.last
  };
  assign has = {
    mw_mend.k.icrc.has_icrc,
    mw_mend.j.icrc.has_icrc,
    mw_mend.h.icrc.has_icrc,
    mw_mend.g.icrc.has_icrc,
    mw_mend.f_info.has_icrc,
    mw_mend.e.has_icrc,
    mw_mend.d.request.has_icrc,
    mw_mend.c.request.has_icrc,
    mw_mend.b.request.has_icrc,
    mw_mend.a.request.has_icrc
  };
  always_ff @(posedge clk) begin
    if (take) {asked, done} <= {pend_reads, 4'd0};
    else if (work) done <= done | read;
    first   <= {first[8:0], fresh};
    was_all <= (done | read) == asked;
  end
  logic [10:0] mid;  // inside a frame, after stage i and those before it; 10: what is in m
  always_comb begin
    mid[10] = mw_mend.begun;
    for (int i = 9; i >= 0; i--) mid[i] = valid[i] ? !last[i] : mid[i+1];
  end

  // ---- The same of the ICRC, from stage a to f and in mw_crc32_change ----
  logic [15:0] crc_valid, crc_last, crc_first;
  logic [16:0] crc_mid;
  logic [ 6:0] icrc_mid;
  assign crc_valid = mw_mend.i_icrc.valid;
  assign crc_last  = mw_mend.i_icrc.last;
  always_ff @(posedge clk) crc_first <= {crc_first[14:0], first[5]};
  always_comb begin
    crc_mid[16] = mw_mend.i_icrc.begun;
    for (int i = 15; i >= 0; i--) crc_mid[i] = crc_valid[i] ? !crc_last[i] : crc_mid[i+1];
    icrc_mid[6] = crc_mid[0];
    for (int i = 5; i >= 0; i--) icrc_mid[i] = valid[i] && has[i] ? !last[i] : icrc_mid[i+1];
  end

  // ---- Sums in the memory of i_sums that wait for a change of the ICRC ----
  logic [AtWork-1:0] live, rows, told;
  always_ff @(posedge clk) begin
    automatic logic [AtWork-1:0] later = rows;
    if (mw_mend.i_sums.stored != '0 && (!sums_valid || mw_mend.i_sums.out_ready))
      later[mw_mend.i_sums.rd] = 1'b0;
    if (m_valid) later[mw_mend.i_sums.wr] = mw_mend.m.icrc.has_icrc;
    rows <= later;
    if (rst) rows <= '0;
  end
  localparam int unsigned HasIcrc = 100;  // in sums_t
  always_comb begin
    for (int unsigned i = 0; i < AtWork; i++) begin
      automatic logic [SUMS_LOG2-1:0] place = SUMS_LOG2'(i) - mw_mend.i_sums.rd;
      live[i] = (SUMS_LOG2 + 1)'(place) < mw_mend.i_sums.stored;
      told[i] = live[i] && mw_mend.i_sums.mem[i][HasIcrc];
    end
  end

  logic  held;
  mend_t was;
  always_ff @(posedge clk) begin
    held <= out_valid && !out_ready && !rst;
    was  <= out;
  end

  // ---- What is there of the frame of the next request ----
  logic [13:0] needed, beats_needed;
  logic was_there;
  always_comb begin
    automatic logic [13:0] at[3];
    at[0]  = mw_mend.pend.set ? mw_mend.pend.set_at + 14'd7 : '0;
    at[1]  = mw_mend.pend.corrupt ? mw_mend.pend.corrupt_at : '0;
    at[2]  = mw_mend.pend.has_icrc ? mw_mend.pend.data_end + 14'd3 : '0;
    needed = '0;
    for (int i = 0; i < 3; i++) if (at[i] > needed) needed = at[i];
    beats_needed = needed / 14'(DATA_W / 8) + 14'd1;
  end
  always_ff @(posedge clk) begin
    was_there <= mw_mend.pend.number != mw_mend.frame || !mw_mend.open ||
        14'(mw_mend.beats) >= beats_needed;
  end

  always_comb begin
    if (!rst) begin
      waits :
      assert (accepted == taken + 32'(pend_valid) + 32'(mw_mend.i_requests.proof.count) +
              32'(made_valid));
      works :
      assert (taken == answered + 32'(work) + 32'($countones(
          valid & last
      )) + 32'(m_valid) + 32'(mw_mend.i_sums.proof.count) + 32'(p_valid) + 32'(q_valid) +
          32'(r_valid) + 32'(s_valid) + 32'(out_valid));
      rooms : assert (32'(room) == AtWork - (taken - answered) && taken - answered <= AtWork);
      request_fits : assert (!made_valid || mw_mend.i_requests.in_ready);
      sums_fit : assert (!m_valid || mw_mend.i_sums.in_ready);
      flips_fit : assert (!flip_in || mw_mend.i_flips.in_ready);
      stands : assert (!held || (out_valid && out == was));

      order :
      assert (!is_taken || (taken == anyconst_nth && mw_mend.pend.number == number &&
                            mw_mend.pend.has_icrc == icrc));
      issues :
      assert (!work || ((read & ~asked) == '0 && (read & done) == '0 && (!mine || $onehot(read))));
      all : assert (!valid[0] || last[0] == was_all);
      there : assert (!take || was_there);
      anew : assert (!valid[9] || first[9] == !mw_mend.begun);
      icrc_anew : assert (!crc_valid[15] || crc_first[15] == !mw_mend.i_icrc.begun);
      given : assert (!m_valid || !mw_mend.begun);
      together :
      assert ((flip_valid && mw_mend.i_flips.out_ready) ==
              (sums_valid && mw_mend.i_sums.out_ready && mw_mend.sums.icrc.has_icrc));
      with_icrc :
      assert (32'($countones(
          crc_valid & crc_last
      )) + 32'(flip_in) + 32'(mw_mend.i_flips.proof.count) == 32'($countones(
          rows
      )) + 32'(sums_valid && mw_mend.sums.icrc.has_icrc) + 32'(m_valid && mw_mend.m.icrc.has_icrc) +
          32'($countones(
          valid[9:6] & last[9:6] & has[9:6]
      )));

      aux_rows : assert (rows == told);
      aux_work : assert (!work || (reads == (asked & ~done) && (done & ~asked) == '0));
      aux_asked : assert (!work || reads != '0 || (fresh && !mine));
      aux_last : assert (last_read == (!work || $onehot0(reads)));
      aux_ready : assert (!pend_ready || (pend_valid && room != '0 && was_there));
      aux_grammar : assert ((valid & first) == (valid & ~mid[10:1]));
      aux_fresh : assert (work ? fresh == !mid[0] : !mid[0]);
      aux_icrc : assert (!work || icrc_mid[0] == (mid[0] && mw_mend.w.has_icrc));
      aux_crc : assert ((crc_valid & crc_first) == (crc_valid & ~crc_mid[16:1]));
      aux_needed :
      assert (!pend_valid || (14'(mw_mend.pend_set) < beats_needed &&
              14'(mw_mend.pend_corrupt) < beats_needed && 14'(mw_mend.pend_icrc) < beats_needed &&
              (14'(mw_mend.pend_set) == beats_needed - 14'd1 ||
              14'(mw_mend.pend_corrupt) == beats_needed - 14'd1 ||
              14'(mw_mend.pend_icrc) == beats_needed - 14'd1)));
      aux_number : assert (mw_mend.verdict == verdicts);
      aux_watch : assert (mw_mend.i_requests.proof.watched == (came && !over) && (came || !over));
      aux_place :
      assert (!came || over || anyconst_nth == taken + 32'(pend_valid) +
              32'(mw_mend.i_requests.proof.ahead));
      aux_next :
      assert (!next || (pend_valid && anyconst_nth == taken && mw_mend.pend.number == number &&
              mw_mend.pend.has_icrc == icrc && pend_reads != '0));
      aux_request :
      assert (!came || over || (word[$bits(
          word
      )-1-:INFLIGHT_LOG2] == number && word[Icrc] == icrc &&
          (word[Set] || word[Ecn] || word[Corrupt] || (word[Icrc] && word[MendL4]))));
      aux_made :
      assert (!is_it || (mw_mend.made.number == number && mw_mend.made.has_icrc == icrc &&
              (mw_mend.made.set || mw_mend.made.ecn || mw_mend.made.corrupt ||
              (mw_mend.made.has_icrc && mw_mend.made.mend_l4))));

      three : cover (answered == 32'd1 && out_valid && !out_ready && q_valid && p_valid);
      reads_three : cover (over && valid[0] && last[0] && !first[0] && valid[1] && !first[1]);
    end
  end
  for (genvar i = 0; i < 6; i++) begin : g_stage
    always_comb begin
      if (!rst) begin
        aux_same : assert (!valid[i] || icrc_mid[i+1] == (mid[i+1] && has[i]));
        aux_rest : assert (valid[i] || mid[i] || !icrc_mid[i]);
      end
    end
  end
endmodule

bind mw_mend mw_mend_proof #(
    .DATA_W(DATA_W),
    .INFLIGHT_LOG2(INFLIGHT_LOG2),
    .SUMS_LOG2(SumsLog2)
) proof (.*);
