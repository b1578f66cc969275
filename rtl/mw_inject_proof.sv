// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Each packet seen, which asks for an answer, gets one frame, or is counted as refused, or as one that
// found as many waiting as the queue of its lane holds: one of these, once. It is refused if its
// template is not valid, or not for it. Answers have the order of their lane's packets; while one
// waits, the other lane gets at most one answer.
//
// A frame leaves from its first beat to its last, before the next one begins, on the lane that packet
// and template say, with the record of its packet. What is shown stands until it is taken. It has the
// bytes that the steps of its template make, or the shortest frame's: if that is more than 2047, so
// many modulo 2048, or 2048. Work goes on at least every fifth clock, unless a beat waits to be taken;
// no pass goes through more than the steps, and none is without bytes.
//
// What is read is the template's row, those of its own bytes, and those of the packet's beginning,
// into which nothing is written meanwhile. An access of the host is answered once, at most four clocks
// after it came: a write is made once, of its row, and what is read is what the memory gave for its
// row. While `busy` is low nothing waits, and a clock changes nothing.
//
// Which bytes are put into a frame is not proved here but compared with the reference model: any word
// stands for each that a memory gives, and zeros for what is worked out. Assumed of the user:
// beginnings come whole, of at most SeenBytes; an access of the host stands until it is answered.
// Where faults are looked for, beats, packets and frames are short, and templates have one step. They
// are faults of the queues, the host and `busy`: a frame leaves some twenty clocks after it was asked
// for, too far for a search that has not the aids of the induction, which alone shows its form.
//
// uses: mw_ram mw_fifo mw_fifo_proof
// with: mw_ram: logic first_valid; => logic first_valid; logic [WIDTH-1:0] anyseq_word;
// with: mw_ram: first <= mem[rd_row] => first <= anyseq_word
// with: mw_ram: initial for (int i = 0; i < (1 << ROWS_LOG2); i++) mem[i] = '0; =>
// with: mw_inject: OfNext:  b_worked <= next_seq[{~a_nth, 3'b000}+:8]; =>
// with: mw_inject: OfIpSum: b_worked <= ~(a_nth[0] ? ip_sum[7:0] : ip_sum[15:8]); =>
// with: mw_inject: OfL4Sum: b_worked <= no_sum ? '1 : ~(a_nth[0] ? l4_sum[7:0] : l4_sum[15:8]); =>
// with: mw_inject: OfIcrc:  b_worked <= ~crc[{a_nth, 3'b000}+:8]; =>
// induction: 2 -GDATA_W=512
// induction: 2 -GDATA_W=64
// cover: 40 -GDATA_W=64 -GQUEUE_LOG2=1
// small: mw_pkg: MinFrame = 60 => MinFrame = 3
// small: mw_inject: Steps = 24 => Steps = 1
// small: mw_pkg: SeenBytes = 128 => SeenBytes = 4
// small: mw_inject: Bytes = DATA_W / 8 => Bytes = 2
// mutant: mw_inject: seen_sof[l] ? seen[l] : info => seen[l]
// mutant: mw_inject: seen_valid[l] && seen_sof[l] && !room; => seen_valid[l] && !room;
// mutant: mw_inject: seen_valid[l] && (seen_sof[l] ? room : taken) => seen_valid[l]
// mutant: mw_inject: cnt_refused[turn] <= 1'b1; =>
// mutant: mw_inject: turn  <= waits[!turn] ? !turn : turn; => turn  <= waits[0] ? 1'b0 : 1'b1;
// mutant: mw_inject: waits != '0 && done == '0 => waits != '0
// mutant: mw_inject: job.form[7:6] != '0) => job.form[5:0] != '0)
// mutant: mw_inject: reader == ForHost ? host_row : want_row => host_mine ? host_row : want_row
// mutant: mw_inject: tbl_ack   <= host_mine && => tbl_ack   <= tbl_req.valid &&
// mutant: mw_inject: tbl_req.write || reader_qq == ForHost => tbl_req.write || reader_q == ForHost
// mutant: mw_inject: reader_q != ForHost && reader_qq != ForHost => reader_q != ForHost
// mutant: mw_inject: end else if (host_mine && => end else if (state == Idle && host_mine &&
// mutant: mw_inject: .wr_en  (host_mine && => .wr_en  (tbl_req.valid &&
// mutant: mw_inject: || empty != '1 || => ||
// mutant: mw_inject: || tbl_ack || => ||
module mw_inject_proof
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W,
    parameter int unsigned QUEUE_LOG2,
    parameter int unsigned LANE_W,
    parameter int unsigned HEAD_W,
    parameter int unsigned ROWS_LOG2,
    parameter int unsigned STEPS
) (
    input logic                            clk,
    input logic                            rst,
    input logic     [                 1:0] seen_valid,
    input logic     [                 1:0] seen_sof,
    input logic     [                 1:0] seen_last,
    input seen_t    [                 1:0] seen,
    input logic     [                 1:0] add_valid,
    input logic     [                 1:0] add_ready,
    input logic                            add_sof,
    input logic                            add_last,
    input logic     [$clog2(DATA_W/8)-1:0] add_len,
    input logic     [          DATA_W-1:0] add_data,
    input logic                            add_captured,
    input record_t                         add_rec,
    input tbl_req_t                        tbl_req,
    input logic                            tbl_ack,
    input logic     [            TblW-1:0] tbl_rdata,
    input logic     [                 1:0] cnt_full,
    input logic     [                 1:0] cnt_refused,
    input logic                            busy,
    // inside
    input seen_t                           job,
    input logic     [                 1:0] waits,
    input logic     [                 1:0] done,
    input logic     [                 1:0] empty,
    input logic     [            TblW-1:0] read,
    input logic                            host_mine,
    input logic                            turn,
    input logic                            second,
    input logic                            out_lane,
    input logic                            fetched,
    input logic                            decoded,
    input logic                            load,
    input logic                            restart,
    input logic     [                 4:0] pc,
    input logic     [                15:0] step,
    input logic     [                10:0] pos,
    input logic     [                10:0] rest,
    input logic     [                 5:0] pad,
    input logic                            bytes_valid,
    input logic                            bytes_asked,
    input logic                            more,
    input logic                            go,
    input logic                            settled,
    input logic                            a_valid,
    input logic                            b_valid,
    input logic                            c_valid,
    input logic                            d_valid
);
  localparam int unsigned Bytes = 1 << LANE_W;
  localparam int unsigned Depth = 1 << QUEUE_LOG2;
  localparam int unsigned Longest = 2048;
  typedef logic [QUEUE_LOG2-1:0] place_t;
  typedef logic [ROWS_LOG2-1:0] row_t;
  // As the module's types say.
  localparam logic [2:0] Idle = 3'd0;
  localparam logic [2:0] Fetch = 3'd1;
  localparam logic [2:0] Choose = 3'd2;
  localparam logic [2:0] Run = 3'd3;
  localparam logic [2:0] Settle = 3'd4;
  localparam logic [1:0] ForNone = 2'd0;
  localparam logic [1:0] ForTemplate = 2'd1;
  localparam logic [1:0] ForBytes = 2'd2;
  localparam logic [1:0] ForHost = 2'd3;
  localparam logic [2:0] OfNone = 3'd0;
  localparam logic [2:0] OfTable = 3'd1;
  localparam logic [2:0] OfPacket = 3'd2;

  // ---- Packets that are seen, and what becomes of them ----
  logic [1:0] open, let_in, enters, answers;  // enters: into the queue, with its last beat
  logic [1:0][HEAD_W-1:0] beat;
  logic [1:0] told;  // to be counted as full
  logic [1:0][QUEUE_LOG2:0] count;  // that wait, the one at work among them
  // Modulo 256: none changes by more than one a clock.
  typedef logic [7:0] tally_t;
  tally_t [1:0] came, full, entered, refused, made, popped;
  logic gone;  // the frame has left, and its packet still waits
  logic leaves;  // a beat does
  logic [1:0][1:0] overtaken;  // answers to the other lane since one waits here
  // As the module has them; their types are its own.
  logic [2:0] state;
  logic [1:0] reader_q, reader_qq;
  assign state = mw_inject.state;
  assign reader_q = mw_inject.reader_q;
  assign reader_qq = mw_inject.reader_qq;
  assign leaves = (add_valid & add_ready) != '0;
  for (genvar l = 0; l < 2; l++) begin : g_lane
    assign count[l] = mw_inject.g_queue[l].i_waiting.proof.count;
    assign enters[l]  = seen_valid[l] && seen_last[l] &&
        (seen_sof[l] ? 32'(count[l]) != Depth : let_in[l]);
    assign answers[l] = leaves && add_last && turn == l;
    always_comb begin
      if (!rst && seen_valid[l]) begin
        assume (seen_sof[l] == !open[l]);
        if ((seen_sof[l] ? '0 : beat[l]) == '1) assume (seen_last[l]);
      end
    end
    always_ff @(posedge clk) begin
      if (seen_valid[l]) begin
        open[l] <= !seen_last[l];
        if (seen_sof[l]) let_in[l] <= 32'(count[l]) != Depth;
        beat[l] <= (seen_sof[l] ? '0 : beat[l]) + 1'b1;
      end
      told[l] <= seen_valid[l] && seen_sof[l] && 32'(count[l]) == Depth;
      came[l] <= came[l] + tally_t'(seen_valid[l] && seen_sof[l]);
      full[l] <= full[l] + tally_t'(cnt_full[l]);
      entered[l] <= entered[l] + tally_t'(enters[l]);
      refused[l] <= refused[l] + tally_t'(cnt_refused[l]);
      made[l] <= made[l] + tally_t'(answers[l]);
      popped[l] <= popped[l] + tally_t'(done[l]);
      if (rst) begin
        {open[l], told[l]} <= '0;
        {came[l], full[l], entered[l], refused[l], made[l], popped[l]} <= '0;
      end
    end
    always_comb begin
      if (!rst) begin
        accounted :
        assert (came[l] == full[l] + tally_t'(cnt_full[l]) + tally_t'(open[l] && let_in[l]) +
                tally_t'(count[l]) - tally_t'(gone && turn == l) + made[l] + refused[l]);
        tells_full : assert (cnt_full[l] == told[l]);
        tells_room :
        assert (mw_inject.g_queue[l].room == (32'(count[l]) != Depth) &&
                empty[l] == (count[l] == '0) && 32'(count[l]) <= Depth && (!waits[l] || count[l] != '0));
        own_place :
        assert (mw_inject.g_queue[l].place == place_t'(entered[l]) &&
                mw_inject.g_queue[l].at == place_t'(popped[l]) &&
                (!mw_inject.g_queue[l].take || mw_inject.g_queue[l].index == (seen_sof[l] ? '0 : beat[l])));
        apart :
        assert (!mw_inject.g_queue[l].take || count[l] == '0 ||
                mw_inject.g_queue[l].place != mw_inject.g_queue[l].at);
        fair : assert (overtaken[l] <= 2'd1);

        lets_in : assert (mw_inject.g_queue[l].taken == (open[l] && let_in[l]));
        aux_beat : assert (!open[l] || (mw_inject.g_queue[l].beat == beat[l]));
        waiting_told : assert (entered[l] == popped[l] + tally_t'(count[l]));
        aux_room : assert (!open[l] || !let_in[l] || 32'(count[l]) != Depth);
        aux_answered : assert (made[l] + refused[l] == popped[l] + tally_t'(gone && turn == l));
        aux_done : assert (!done[l] || (turn == l && state == Idle && waits[l]));
        aux_refused : assert (!cnt_refused[l] || (done[l] && !gone));
        aux_told : assert (!told[l] || 32'(count[l]) >= Depth - 1);
        aux_fair :
        assert (overtaken[l] == '0 || (turn == l && (state != Idle || done[l])) ||
                (turn == !l && state == Idle && done == '0 && waits[l]));
      end
    end
  end
  always_ff @(posedge clk) begin
    if (answers != '0) gone <= 1'b1;
    else if (done != '0) gone <= 1'b0;
    if (rst) gone <= 1'b0;
  end

  // ---- The request that is watched ----
  logic   anyconst_lane;
  logic   anyseq_pick;  // the packet of this lane that begins now is the one, if it is let in
  seen_t  kept;
  tally_t nth;  // of those of its lane
  logic is_sof, is_it, picked, came_it, over, is_next, is_turn;  // over: it has been answered
  assign is_sof = anyseq_pick && !picked && seen_valid[anyconst_lane] && seen_sof[anyconst_lane] &&
      32'(count[anyconst_lane]) != Depth;
  assign is_it = enters[anyconst_lane] && (is_sof || (picked && !came_it));
  assign is_next = turn == anyconst_lane && came_it && !over && popped[anyconst_lane] == nth;
  assign is_turn = is_next && state != Idle;
  always_ff @(posedge clk) begin
    if (is_sof) {picked, nth, kept} <= {1'b1, entered[anyconst_lane], seen[anyconst_lane]};
    if (is_it) came_it <= 1'b1;
    if (is_next && done[anyconst_lane]) over <= 1'b1;
    if (rst) {picked, came_it, over} <= '0;
  end
  for (genvar l = 0; l < 2; l++) begin : g_watch
    logic watched;
    assign watched = mw_inject.g_queue[l].i_waiting.proof.watched;
    always_comb begin
      assume (mw_inject.g_queue[l].i_waiting.proof.anyseq_watch == (is_it && anyconst_lane == l));
      if (!rst) begin
        aux_watched : assert (watched == (anyconst_lane == l && came_it && !over));
        aux_ahead :
        assert (!watched ||
                (tally_t'(nth - popped[l]) == tally_t'(mw_inject.g_queue[l].i_waiting.proof.ahead) &&
                 mw_inject.g_queue[l].i_waiting.proof.word == kept));
        aux_kept :
        assert (anyconst_lane != l || !picked || came_it || (open[l] && let_in[l] &&
                entered[l] == nth && mw_inject.g_queue[l].info == kept));
        aux_stage : assert (anyconst_lane != l || ((picked || !came_it) && (came_it || !over)));
      end
    end
  end

  // ---- The table: the row that stands at `read`, two clocks after it was asked for ----
  logic asked_q, fresh;
  row_t row_q, shown;
  always_ff @(posedge clk) begin
    asked_q <= mw_inject.i_table.rd_en && !rst;
    row_q   <= mw_inject.i_table.rd_row;
    fresh   <= asked_q && !rst;
    if (asked_q) shown <= row_q;
  end

  // ---- The host ----
  logic host, host_q;  // an access waits for its answer
  logic [2:0] age;  // clocks that it has waited
  tbl_req_t request;
  logic read_right;
  logic [TblW-1:0] was_read;
  assign host = tbl_req.valid && tbl_req.tbl == TblTemplate;
  always_ff @(posedge clk) begin
    host_q <= host && !tbl_ack && !rst;
    request <= tbl_req;
    age <= host && !tbl_ack && !rst ? age + 3'(age != '1) : '0;
    read_right <= fresh && shown == row_t'(tbl_req.index) && age >= 3'd2;
    was_read <= read;
  end
  always_comb if (host_q && !rst) assume (tbl_req == request);

  // ---- The template ----
  logic [TblW-1:0] form;  // that was read for the packet whose turn it is
  row_t form_row;  // where it lies
  logic unfit, back;
  assign form_row = row_t'({job.form[5:0], job.rec.is_ip6});
  always_ff @(posedge clk) if (state == Fetch && reader_qq == ForTemplate) form <= read;
  assign unfit = !form[0] || !form[1+kept.rec.proto] || kept.form[7:6] != '0;
  assign back  = form[5];

  // How many bytes a step makes, and all of those before the n-th; whether the end is among them.
  logic [STEPS:0][15:0] sum;
  logic [STEPS:0] ended;
  function automatic logic [10:0] size(input logic [15:0] word, input logic [7:0] l3);
    size = '0;
    if (word[1:0] == 2'd1) size = word[12:2];
    if (word[1:0] == 2'd2) size = 11'(word[8:4]) + 11'd1;
    if (word[1:0] == 2'd3) begin
      if (word[4:2] == 3'd0) size = 11'(l3) - 11'd12;
      if (word[4:2] == 3'd3 || word[4:2] == 3'd6) size = 11'd4;
      if (word[4:2] == 3'd4 || word[4:2] == 3'd5) size = 11'd2;
    end
  endfunction
  always_comb begin
    sum[0]   = '0;
    ended[0] = 1'b0;
    for (int unsigned i = 0; i < STEPS; i++) begin
      automatic logic [15:0] word_i = form[128+16*i+:16];
      ended[i+1] = ended[i] || word_i[1:0] == '0;
      sum[i+1]   = sum[i] + (ended[i+1] ? '0 : 16'(size(word_i, job.l3_offset)));
    end
  end
  logic [15:0] total;  // bytes that the frame should have
  logic [15:0] length;  // that it has, if these are too many
  assign total  = sum[STEPS] < 16'(MinFrame) ? 16'(MinFrame) : sum[STEPS];
  assign length = total[10:0] == '0 ? 16'(Longest) : 16'(total[10:0]);

  // ---- Where a pass is ----
  logic at_work;
  logic [15:0] went;  // bytes that it went through
  logic [14:0] own;  // those of the template's own among them
  logic [4:0] loaded;  // steps that were begun, and the end
  row_t bytes_row;  // that was read for them last
  logic [15:0] word, word_after;  // the step that is next, and the one after it
  assign at_work = state == Run || state == Settle;
  assign word = 32'(loaded) < STEPS ? form[128+16*loaded+:16] : '0;
  assign word_after = 32'(loaded) + 1 < STEPS ? form[128+16*(loaded+1)+:16] : '0;
  always_ff @(posedge clk) begin
    went   <= went + 16'(go);
    own    <= own + 15'(go && mw_inject.now.source == OfTable);
    loaded <= loaded + 5'(load);
    if (restart) {went, own, loaded} <= '0;
    if (reader_qq == ForBytes) bytes_row <= shown;
  end

  // ---- A byte of the packet's beginning ----
  logic seek_q, found_fresh;
  logic [6:0] from_q, from_qq;
  logic [QUEUE_LOG2+HEAD_W-1:0] found_row;
  logic [1:0][QUEUE_LOG2+HEAD_W-1:0] head_row_q, head_shown;
  logic [1:0] head_asked_q, head_fresh;
  for (genvar l = 0; l < 2; l++) begin : g_heads
    always_ff @(posedge clk) begin
      head_asked_q[l] <= mw_inject.g_queue[l].i_heads.rd_en;
      head_row_q[l]   <= mw_inject.g_queue[l].i_heads.rd_row;
      head_fresh[l]   <= head_asked_q[l];
      if (head_asked_q[l]) head_shown[l] <= head_row_q[l];
    end
  end
  always_ff @(posedge clk) begin
    if (go) from_q <= mw_inject.now.from;
    if (a_valid) from_qq <= from_q;
  end
  assign found_row = {place_t'(popped[turn]), from_qq[LANE_W+HEAD_W-1:LANE_W]};

  // ---- What leaves ----
  logic mid;
  logic [11:0] bytes_left, earlier;  // of this frame, before the beat that is shown
  logic [11:0] with_beat;
  logic held;
  logic [1:0] held_valid;
  logic [DATA_W+LANE_W+1:0] offer, offered;
  record_t rec, held_rec;
  logic held_captured;
  assign earlier = gone ? 12'(length) : mid ? bytes_left : '0;
  assign with_beat = (mid ? bytes_left : '0) + (add_last ? 12'(add_len) + 12'd1 : 12'(Bytes));
  assign offer = {add_data, add_len[LANE_W-1:0], add_last, add_sof};
  always_comb begin
    rec = kept.rec;
    rec.lane = kept.rec.lane ^ back;
    rec.tap = 1'b1;
    rec.kind = KindInjected;
    rec.done = '0;
    rec.f2 = 16'(back);
  end
  always_ff @(posedge clk) begin
    if (leaves) {mid, bytes_left} <= {!add_last, with_beat};
    if (rst) mid <= 1'b0;
    held <= add_valid != '0 && !leaves && !rst;
    held_valid <= add_valid;
    offered <= offer;
    held_rec <= add_rec;
    held_captured <= add_captured;
  end
  logic [2:0] fulls;  // the last byte of a beat is in a, b, c
  logic in_flight;  // or the beat is shown
  assign fulls = {
    c_valid && mw_inject.c.full, b_valid && mw_inject.b.full, a_valid && mw_inject.a.full
  };
  assign in_flight = fulls != '0 || add_valid != '0;
  logic [10:0] last_pos;  // the last byte that was gone through
  assign last_pos = pos - 11'd1;

  // ---- Turns, and that nothing stands still ----
  logic [2:0] still;  // clocks without a step forward
  logic moves;
  logic fed;  // a byte was gone through since the last beat was done with
  always_comb begin
    unique case (state)
      Idle: moves = waits == '0 || done == '0;
      Fetch: moves = reader_qq == ForTemplate;
      Run:
      moves = go || load || !fetched || !decoded ||
          (mw_inject.now.ending && mw_inject.now.left == '0);
      Settle: moves = settled || add_valid != '0;
      default: moves = 1'b1;
    endcase
  end
  always_ff @(posedge clk) begin
    for (int l = 0; l < 2; l++) begin
      if (!waits[l] || done[l]) overtaken[l] <= '0;
      else if (done[!l] && overtaken[l] != '1) overtaken[l] <= overtaken[l] + 1'b1;
      if (rst) overtaken[l] <= '0;
    end
    still <= moves || rst ? '0 : still + 3'(still != '1);
    if (go) fed <= 1'b1;
    else if (state == Settle && settled) fed <= 1'b0;
    if (rst) fed <= 1'b0;
  end

  // ---- At rest ----
  logic quiet;
  logic [DATA_W+LANE_W+TblW+265:0] outs, outs_q;
  logic [20:0] inner, inner_q;
  assign outs = {
    add_valid, offer, add_rec, add_captured, tbl_ack, tbl_rdata, cnt_full, cnt_refused
  };
  assign inner = {
    state,
    turn,
    second,
    waits,
    done,
    empty,
    reader_q,
    reader_qq,
    a_valid,
    b_valid,
    c_valid,
    d_valid,
    bytes_asked,
    gone
  };
  always_ff @(posedge clk) begin
    quiet   <= !busy && !rst;
    outs_q  <= outs;
    inner_q <= inner;
  end

  always_comb begin
    if (!rst) begin
      one_lane : assert ($onehot0(add_valid));
      stands :
      assert (!held || (add_valid == held_valid && offer == offered && add_rec == held_rec &&
                        add_captured == held_captured));
      grammar : assert (add_valid == '0 || add_sof == !mid);
      order : assert (!is_turn || job == kept);
      meant :
      assert (!is_turn || add_valid == '0 || (add_valid == 2'(1 << rec.lane) && add_rec == rec &&
              add_captured == kept.captured));
      fit : assert (!is_turn || add_valid == '0 || !unfit);
      refuses : assert (!is_next || !cnt_refused[turn] || unfit);
      length_right :
      assert (add_valid == '0 || (16'(with_beat) <= length &&
              add_last == (16'(with_beat) == length)));
      its_form :
      assert (state != Fetch || reader_qq != ForTemplate || (fresh && shown == form_row));
      its_bytes :
      assert (!go || mw_inject.now.source != OfTable ||
              (bytes_row == row_t'(form[30:22] + own[14:6]) && mw_inject.byte_at[5:0] == own[5:0]));
      its_packet :
      assert (!b_valid || mw_inject.b_source != OfPacket || (head_fresh[turn] &&
              head_shown[turn] == found_row && mw_inject.b_from == from_qq[LANE_W-1:0]));
      goes_on : assert (still <= 3'd4 && (!at_work || loaded <= 5'(STEPS + 1)));
      fruitful : assert (state != Settle || fed);

      host_once : assert (!tbl_ack || host_q);
      host_prompt : assert (age <= 3'd4);
      host_reads : assert (!tbl_ack || request.write || (read_right && tbl_rdata == was_read));
      host_writes :
      assert (mw_inject.i_table.wr_en == (host && !tbl_ack && age == '0 && tbl_req.write) &&
              (!mw_inject.i_table.wr_en || (mw_inject.i_table.wr_row == row_t'(tbl_req.index) &&
              mw_inject.i_table.wr_data == tbl_req.wdata)));
      under_way : assert (busy || (count == '0 && add_valid == '0 && (!host || tbl_ack)));
      rests : assert (!quiet || (outs == outs_q && inner == inner_q));

      aux_state : assert (state <= Settle && (state == Idle || waits[turn]));
      aux_done_idle : assert (state == Idle || done == '0);
      aux_gone :
      assert (gone == ((state == Settle && second && rest == '0 && !in_flight) ||
                       (state == Idle && done != '0 && cnt_refused == '0)));
      aux_rest_state :
      assert (at_work || !(a_valid || b_valid || c_valid || d_valid || add_valid != '0 || mid));
      aux_reader : assert (asked_q == (reader_q != ForNone) && fresh == (reader_qq != ForNone));
      aux_for_template :
      assert ((reader_q != ForTemplate || (state == Fetch && row_q == form_row && reader_qq == ForNone)) &&
              (reader_qq != ForTemplate || (state == Fetch && shown == form_row && reader_q != ForTemplate)));
      aux_for_bytes :
      assert ((reader_q != ForBytes || (state == Run && row_q == row_t'(mw_inject.byte_at >> 6))) &&
              (reader_qq != ForBytes || (state == Run && shown == row_t'(mw_inject.byte_at >> 6))) &&
              bytes_asked == (reader_q == ForBytes || reader_qq == ForBytes) &&
              (!bytes_asked || (more && mw_inject.now.source == OfTable && !bytes_valid)));
      aux_for_host :
      assert ((reader_q != ForHost || (host_q && !tbl_ack && !request.write &&
               row_q == row_t'(request.index) && age >= 3'd1 && age <= 3'd2)) &&
              (reader_qq != ForHost || (host_q && !tbl_ack && !request.write &&
               shown == row_t'(request.index) && age >= 3'd2 && age <= 3'd3)));
      aux_one_read : assert (reader_q == ForNone || reader_q != reader_qq);
      aux_age :
      assert (reader_q == ForHost || reader_qq == ForHost || tbl_ack || age == '0 ||
              (age == 3'd1 && reader_q != ForNone));
      aux_age_write : assert (age == '0 || !request.write || (age == 3'd1 && tbl_ack));
      aux_host_q :
      assert (host_q == (age != '0) && (!host_q || (request.valid && request.tbl == TblTemplate)));
      aux_form : assert (state == Idle || state == Fetch || mw_inject.form == form[127+16*STEPS:0]);
      aux_fit : assert (!is_turn || !at_work || !unfit);
      aux_bytes :
      assert (!at_work || (mw_inject.byte_at == {form[30:22], 6'd0} + own && (!bytes_valid ||
              bytes_row == row_t'(mw_inject.byte_at >> 6))));
      aux_seek :
      assert ((!a_valid || mw_inject.a_source != OfPacket || (head_asked_q[turn] && head_row_q[turn] ==
               {place_t'(popped[turn]), from_q[LANE_W+HEAD_W-1:LANE_W]})) &&
              (!a_valid || mw_inject.a_from == from_q[LANE_W-1:0]));
      // A pass.
      aux_pos : assert (!at_work || (pos == went[10:0]));
      aux_pad : assert (!at_work || pad == (went >= 16'(MinFrame) ? '0 : 6'(16'(MinFrame) - went)));
      aux_steps :
      assert (!at_work || (fetched ? (decoded ? pc == loaded + 5'd2 : pc == 5'd1 && loaded == '0) :
                           pc == '0 && loaded == '0 && !decoded));
      aux_step : assert (!at_work || !fetched || step == (decoded ? word_after : word));
      aux_next :
      assert (!at_work || !decoded || (mw_inject.next.ending == (word[1:0] == '0) &&
              (word[1:0] != '0 || mw_inject.next.source == OfNone) &&
              (word[1:0] == '0 || mw_inject.next.left == size(
          word, job.l3_offset
      ))));
      aux_ending :
      assert (!at_work || !mw_inject.now.ending || (mw_inject.now.source == OfNone &&
              17'(went) + 17'(mw_inject.now.left) == 17'(total) && loaded != '0));
      aux_loaded :
      assert (!at_work || mw_inject.now.ending || (32'(loaded) <= STEPS &&
              !ended[loaded] &&
              17'(went) + 17'(mw_inject.now.left) == 17'(sum[loaded])));
      aux_rest :
      assert (!at_work || !second || (rest == 11'(length - went) && went <= length && length <= total &&
              (state != Run || went != length)));
      aux_first_end :
      assert (state != Settle || second || (mw_inject.now.ending && mw_inject.now.left == '0));
      aux_settle : assert (state != Settle || went != '0);
      // Its beats.
      aux_pass :
      assert ((!a_valid || mw_inject.a.second == second) && (!b_valid || mw_inject.b.second == second) &&
              (!c_valid || mw_inject.c.second == second));
      aux_one_beat :
      assert ($onehot0(
          {fulls, add_valid != '0}
      ) && (!fulls[1] || !a_valid) && (!fulls[2] || !(a_valid || b_valid)) &&
          (add_valid == '0 || !(a_valid || b_valid || c_valid)));
      aux_in_flight : assert (!in_flight || (state == Settle && second));
      aux_none_behind :
      assert (state != Settle || !second || in_flight || !(a_valid || b_valid || c_valid));
      aux_before :
      assert (!at_work || !second || 16'(earlier) == (in_flight ? went - 16'(last_pos[LANE_W-1:0]) - 16'd1 :
              state == Settle ? went : {went[15:LANE_W], LANE_W'(0)}));
      aux_mid : assert (!mid || (!gone && second && bytes_left != '0));
      aux_a :
      assert (!fulls[0] || (mw_inject.a.lane == last_pos[LANE_W-1:0] && mw_inject.a.last == (rest == '0) &&
              mw_inject.a.sof == (16'(went) <= 16'(Bytes))));
      aux_b :
      assert (!fulls[1] || (mw_inject.b.lane == last_pos[LANE_W-1:0] && mw_inject.b.last == (rest == '0) &&
              mw_inject.b.sof == (16'(went) <= 16'(Bytes))));
      aux_c :
      assert (!fulls[2] || (mw_inject.c.lane == last_pos[LANE_W-1:0] && mw_inject.c.last == (rest == '0) &&
              mw_inject.c.sof == (16'(went) <= 16'(Bytes))));
      aux_add :
      assert (add_valid == '0 || (add_len == $bits(
          add_len
      )'(last_pos[LANE_W-1:0]) && add_last == (rest == '0) &&
          add_sof == (16'(went) <= 16'(Bytes)) && add_valid == 2'(1 << out_lane)));
      aux_whole_beats :
      assert (state != Settle || !second || rest == '0 || last_pos[LANE_W-1:0] == '1);
      // Its speed.
      aux_fed :
      assert (state == Settle || fed == (state == Run && (second ? went[LANE_W-1:0] != '0 : went != '0)));
      aux_still_idle : assert (state != Idle || still <= 3'(done == '0));
      aux_still_fetch :
      assert (state != Fetch || still <= (reader_qq == ForTemplate ? 3'd4 : reader_q == ForTemplate ? 3'd3 :
              reader_q == ForHost ? 3'd0 : reader_qq == ForHost ? 3'd1 : 3'd2));
      aux_still_choose : assert (state != Choose || still == '0);
      aux_still_run :
      assert (state != Run || still <= (bytes_valid ? 3'd3 : reader_qq == ForBytes ? 3'd2 :
              reader_q == ForBytes ? 3'd1 : 3'd0));
      aux_still_settle :
      assert (state != Settle || still <= (a_valid ? 3'd0 : b_valid ? 3'd1 : c_valid ? 3'd2 :
              d_valid ? 3'd3 : 3'd4));

      two_beats : cover (is_turn && leaves && add_last && mid);
      loses : cover (cnt_full[0] && popped[1] != '0);
    end
  end
endmodule

bind mw_inject mw_inject_proof #(
    .DATA_W(DATA_W),
    .QUEUE_LOG2(QUEUE_LOG2),
    .LANE_W(LaneW),
    .HEAD_W(HeadW),
    .ROWS_LOG2(RowsLog2),
    .STEPS(Steps)
) proof (.*);
