// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// One frame, any, and its record are watched on their way. The n-th frame meets the n-th record,
// at most two clocks after both have come, three where the buffers are read in two, whatever the host
// does. If the frame is wanted, that is the one time that it is counted: as lost if Queue entries lay
// or were to come ahead of it when it began, or one less and one had just left, else as a record.
// Such a record leaves once, as the first unit of its entry, after the records before it: unchanged
// but for time, length, error, truncated and snapshot, which are the frame's.
//
// As many units follow as min(length, snapshot_bytes) bytes take, and any byte of them is
// that of the frame, or zero behind its end; only a frame that found the buffer full has none,
// and is counted. This holds if the entry finds its first word next in the buffer, and if each of
// its words tells whether the snapshot ends there. Any one of them does; so all do. Then the entry
// leaves the buffer behind its last word, where the next entry's begin; and the first entry finds its
// first word. So all do. They do not wait for words.
//
// What stands at the output stands until it is taken. `tap_room` knows only of frames and records
// that wait for each other, not of the host. When `busy` is low nothing happens by itself.
//
// Assumed: frames come whole, of at most MaxFrame bytes, and only last beats are not full;
// `tap_room` is heeded, so that neither buffer overflows; snapshot_bytes stands while the frame
// is inside, and in the clock before. The buffers of frames and records are smaller than the card's:
// what else is said of them is the proof of mw_fifo.
//
// uses: mw_fifo mw_fifo_proof
// induction: 2 -GDATA_W=512 -GSNAP_LOG2=10 -GINFLIGHT_LOG2=5 -GQUEUE_LOG2=6
// induction: 2 -GDATA_W=64 -GSNAP_LOG2=13 -GINFLIGHT_LOG2=5 -GQUEUE_LOG2=6
// cover: 20 -GDATA_W=64 -GSNAP_LOG2=3 -GINFLIGHT_LOG2=5 -GQUEUE_LOG2=1
// cover: 14 -GDATA_W=512 -GSNAP_LOG2=2 -GINFLIGHT_LOG2=5 -GQUEUE_LOG2=1
// mutant: mw_tap: in_wanted && places != (QUEUE_LOG2 + 1)'(Queue) => in_wanted
// mutant: mw_tap: place_left <= queue_pop => place_left <= cnt_record
// mutant: mw_tap: (snapshot_bytes - 1'b1) >> LaneW => snapshot_bytes >> LaneW
// mutant: mw_tap: in_last ? cut(in_data, in_keep) : in_data => in_data
// mutant: mw_tap: snap_full ? snap_whole : snap_wr + 1'b1 => snap_wr + 1'b1
// mutant: mw_tap: missed: taken && !fits => missed: taken && !frame_fits
// mutant: mw_tap: pair = ended_valid && record_valid => pair = ended_valid
// mutant: mw_tap: entry.record.length = ended.length; =>
// mutant: mw_tap: .in_valid(cnt_record) => .in_valid(done_captured)
// mutant: mw_tap: tap_room <= ended_free > => tap_room <= places == '0 && ended_free >
// mutant: mw_tap: word_take = unit_free && in_snapshot => word_take = in_snapshot
// mutant: mw_tap: place <= complete ? 2'd0 : place + 1'b1 => place <= place + 1'b1
// mutant: mw_tap: {Units{in_last || !more_after}} => {Units{!more_after}}
// mutant: mw_tap: more_after = more && done_bytes => more_after = done_bytes
// mutant: mw_tap: if (read_load) snap_rd => if (word_load) snap_rd
// mutant: mw_tap: assign step = !out_valid || out_ready => assign step = 1'b1
// mutant: mw_tap: (!ended_valid && ended_free != (INFLIGHT_LOG2 + 1)'(Inflight)) || =>
module mw_tap_proof
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W,
    parameter int unsigned SNAP_LOG2,
    parameter int unsigned INFLIGHT_LOG2,
    parameter int unsigned QUEUE_LOG2
) (
    input logic                   clk,
    input logic                   rst,
    input logic    [        15:0] snapshot_bytes,
    input logic                   in_valid,
    input logic                   in_sof,
    input logic    [  DATA_W-1:0] in_data,
    input logic    [DATA_W/8-1:0] in_keep,
    input logic                   in_last,
    input logic                   in_error,
    input logic                   in_truncated,
    input logic                   in_wanted,
    input logic                   rec_valid,
    input record_t                rec,
    input logic    [        63:0] rec_stamp,
    input logic                   out_valid,
    input logic                   out_ready,
    input logic    [   UnitW-1:0] out_data,
    input logic    [        31:0] out_time_hi,
    input logic                   out_first,
    input logic                   out_last,
    input logic                   tap_room,
    input logic                   done_captured,
    input logic                   cnt_record,
    input logic                   cnt_lost,
    input logic                   cnt_snapshot_lost,
    input logic                   busy,
    // inside
    input logic                   pair,
    input logic                   ended_room,
    input logic                   record_room,
    input logic    [ SNAP_LOG2:0] snap_wr,
    input logic    [ SNAP_LOG2:0] snap_whole,
    input logic    [ SNAP_LOG2:0] snap_rd,
    input logic                   read_valid,
    input logic                   word_valid,
    input logic                   word_pop,
    input logic                   word_take,
    input logic                   place_left,
    input logic                   queue_pop,
    input logic                   in_snapshot,
    input logic                   step,
    input logic                   unit_valid,
    input logic                   unit_first,
    input logic                   unit_last,
    input logic    [   UnitW-1:0] unit,
    input logic    [        31:0] unit_time_hi
);
  localparam int unsigned Bytes = DATA_W / 8;
  localparam int unsigned MaxBeats = MaxFrame / Bytes;
  localparam int unsigned Inflight = 1 << INFLIGHT_LOG2;
  localparam int unsigned Queue = 1 << QUEUE_LOG2;
  localparam int unsigned SnapWords = 1 << SNAP_LOG2;
  localparam int unsigned Units = DATA_W == 512 ? 2 : 1;
  localparam int unsigned Read = fifo_read(DATA_W);
  typedef logic [SNAP_LOG2:0] snap_t;

  // ---- What comes in ----
  logic inside_in;  // a frame
  logic [10:0] beats;  // of it
  logic [31:0] begun, recs, pairs, queued, shown;  // shown: records as units, that of now too
  logic [QUEUE_LOG2:0] entries;  // in the queue, and frames that will come there
  logic take;  // the frame that begins now gets one
  assign take = in_valid && in_sof && in_wanted && 32'(entries) != Queue;
  always_ff @(posedge clk) begin
    if (in_valid) begin
      inside_in <= !in_last;
      beats <= (in_sof ? '0 : beats) + 1'b1;
    end
    begun <= begun + 32'(in_valid && in_sof);
    recs <= recs + 32'(rec_valid);
    pairs <= pairs + 32'(pair);
    queued <= queued + 32'(cnt_record);
    shown <= shown + 32'(queue_pop);
    entries <= entries + (QUEUE_LOG2 + 1)'(take) - (QUEUE_LOG2 + 1)'(place_left);
    if (rst) {inside_in, begun, recs, pairs, queued, shown, entries} <= '0;
  end

  // ---- The frame that is watched ----
  logic [31:0] anyconst_frame;  // its number
  logic [13:0] anyconst_at;  // of one of its bytes
  localparam int unsigned LaneW = $clog2(Bytes);
  logic [13-LaneW:0] at_word;
  logic [ LaneW-1:0] at_lane;
  assign {at_word, at_lane} = anyconst_at;
  function automatic logic [7:0] lane(input logic [DATA_W-1:0] word);
    return 8'(word >> {at_lane, 3'd0});
  endfunction

  logic came, began, ended, paired, popped, over;  // what has happened to it
  logic is_rec, is_sof, is_mine, is_end, is_pair, is_pop;  // what happens now
  logic wanted, taken, full, error, truncated;
  logic [15:0] earlier;  // snapshot_bytes of the clock before
  logic [15:0] length, cap;
  logic [7:0] value;
  record_t record, stamped, entry;
  logic [63:0] stamp;
  snap_t consumed, start, ahead;  // words that are to leave the buffer before its first
  logic strayed;  // more than these have left
  logic current;  // its entry is the one of which units are made
  logic took, followed;  // any frame has got a place, and one after this
  logic right;  // the entry found its first word, and its words told their places so far
  snap_t used;  // of its words
  logic [8:0] parts;  // units that were made besides the record
  logic [9:0] moved;  // units that went to the output
  logic moves, made;
  assign moves = step && unit_valid;
  assign made = word_take && mw_tap.complete;
  assign is_rec = rec_valid && !came && recs == anyconst_frame;
  assign is_sof = in_valid && in_sof && !began && begun == anyconst_frame;
  assign is_mine = in_valid && (is_sof || (began && !ended));
  assign is_end = is_mine && in_last;
  assign is_pair = pair && mw_tap.u_ended.proof.next;
  assign is_pop = queue_pop && mw_tap.u_queue.proof.next;
  assign current = popped && !over;
  snap_t waiting;  // words in registers
  assign waiting  = snap_t'(word_valid) + snap_t'(read_valid);
  assign consumed = snap_rd - waiting;

  logic needs, finds_full;  // this beat of the frame is wanted in the buffer
  assign needs = (is_sof ? take : taken) && (is_sof || 16'(length) < cap) &&
      (!is_sof || snapshot_bytes != '0);
  assign finds_full = needs && (is_sof || !full) && snap_wr - snap_rd == snap_t'(SnapWords);

  always_ff @(posedge clk) begin
    if (is_rec) {came, stamp, record} <= {1'b1, rec_stamp, rec};
    if (is_sof) begin
      began  <= 1'b1;
      wanted <= in_wanted;
      taken  <= take;
      cap    <= snapshot_bytes;
      start  <= snap_wr;
    end
    if (is_mine) begin
      full   <= (!is_sof && full) || finds_full;
      length <= (is_sof ? '0 : length) + 16'($countones(in_keep));
      if ((is_sof ? '0 : beats) == 11'(at_word)) value <= in_keep[at_lane] ? lane(in_data) : '0;
    end
    if (is_end) {ended, error, truncated} <= {1'b1, in_error, in_truncated};
    if (is_pair) paired <= 1'b1;
    if (is_pop) {popped, right} <= {1'b1, ahead == '0 && !strayed};
    else if (popped && queue_pop) over <= 1'b1;
    else if (current && word_take && mw_tap.word.last != lasts(used)) right <= 1'b0;
    took <= took || take;
    if (!ended) followed <= 1'b0;
    else if (take) followed <= 1'b1;
    if (is_sof) {ahead, strayed} <= {snap_wr - consumed - snap_t'(word_pop), 1'b0};
    else if (began && !popped && word_pop) begin
      if (ahead == '0) strayed <= 1'b1;
      else ahead <= ahead - 1'b1;
    end
    if (is_pop) {used, parts, moved} <= '0;
    else begin
      if (word_pop) used <= used + 1'b1;
      if (parts != '1) parts <= parts + 9'(made);
      moved <= moved + 10'(moves);
    end
    if (rst) {came, began, ended, paired, popped, over, took} <= '0;
  end

  logic has_snapshot;
  logic [15:0] bytes;  // of it that are to be shown
  snap_t words;  // that they take
  logic [8:0] total;  // units
  assign has_snapshot = taken && !full && cap != '0;
  assign bytes = !has_snapshot ? '0 : length < cap ? length : cap;
  assign words = snap_t'((32'(bytes) + Bytes - 1) / Bytes);
  assign total = 9'((bytes + 16'd31) >> 5);
  // What a word of the ended frame tells.
  function automatic logic [Units-1:0] lasts(input snap_t word);
    lasts = {Units{word == words - 1'b1}};
    if (DATA_W == 512 && !total[0]) lasts[0] = 1'b0;
  endfunction
  always_comb begin
    stamped = record;
    stamped.time_lo = stamp[31:0];
    entry = stamped;
    entry.length = length;
    entry.error = error;
    entry.truncated = truncated;
    entry.snapshot = has_snapshot;
  end

  always_comb begin
    if (!rst) begin
      if (in_valid) begin
        assume (in_sof == !inside_in);
        assume (in_sof || 32'(beats) < MaxBeats);
        assume (in_keep[0] && (in_keep & (in_keep + 1'b1)) == '0 && (in_last || &in_keep));
      end
      if (in_valid && in_last) assume (ended_room);
      if (rec_valid) assume (record_room);
      assume (snapshot_bytes[4:0] == '0);
      if (began && !popped) assume (snapshot_bytes == cap);
      if (is_sof) assume (snapshot_bytes == earlier);
    end
    // The buffers' own proofs watch the same frame.
    assume (mw_tap.u_ended.proof.anyseq_watch == is_end);
    assume (mw_tap.u_record.proof.anyseq_watch == is_rec);
    assume (mw_tap.u_queue.proof.anyseq_watch == is_pair);
  end

  // ---- What was a clock ago ----
  logic both;  // a frame and a record are inside
  logic [Read-1:0] waited;  // so many clocks ago, one at the least, and were not paired then
  logic has_room, held, quiet, was_valid;
  logic [UnitW+33:0] offer, offered, given;
  assign both  = mw_tap.u_ended.proof.count != '0 && mw_tap.u_record.proof.count != '0;
  assign offer = {out_data, out_time_hi, out_first, out_last};
  always_ff @(posedge clk) begin
    waited <= rst || pair ? '0 : Read'({waited, both});
    has_room <= !rst && 32'(mw_tap.u_ended.proof.count) < Inflight - 16 &&
        32'(mw_tap.u_record.proof.count) < Inflight - 16;
    held <= out_valid && !out_ready && !rst;
    offered <= offer;
    quiet <= !busy && !in_valid && !rec_valid && !rst;
    was_valid <= out_valid;
    earlier <= snapshot_bytes;
  end
  logic mid, there;  // of an entry: the unit that went to the output last; one is at the output
  always_ff @(posedge clk) begin
    if (moves) mid <= !unit_last;
    if (moves) given <= {unit, unit_time_hi, unit_first, unit_last};
    there <= moves || (there && !out_ready);
    if (rst) {mid, there} <= '0;
  end

  // ---- What makes it inductive ----
  // Frames in the memory of u_ended that have a place in the queue.
  localparam int unsigned Taken = 2;  // in ended_t
  logic [Inflight-1:0] live, rows, told;
  always_ff @(posedge clk) begin
    automatic logic [Inflight-1:0] next = rows;
    if (mw_tap.u_ended.stored != '0 && (!mw_tap.u_ended.read_valid || mw_tap.u_ended.read_ready))
      next[mw_tap.u_ended.rd] = 1'b0;
    if (in_valid && in_last) next[mw_tap.u_ended.wr] = mw_tap.taken;
    rows <= next;
    if (rst) rows <= '0;
  end
  always_comb begin
    for (int unsigned i = 0; i < Inflight; i++) begin
      automatic logic [INFLIGHT_LOG2-1:0] place = INFLIGHT_LOG2'(i) - mw_tap.u_ended.rd;
      live[i] = (INFLIGHT_LOG2 + 1)'(place) < mw_tap.u_ended.stored;
      told[i] = live[i] && mw_tap.u_ended.mem[i][Taken];
    end
  end
  logic second_taken;  // one lies in the register behind the one that is shown
  if (Read == 1) begin : g_straight
    assign second_taken = 1'b0;
  end else begin : g_register
    assign second_taken = mw_tap.u_ended.g_register.both &&
        (mw_tap.u_ended.g_register.shows_odd ? mw_tap.u_ended.g_register.even[Taken] :
         mw_tap.u_ended.g_register.odd[Taken]);
  end
  logic stored;  // the byte's word is in the buffer
  assign stored = taken && !full && 16'({at_word, LaneW'(0)}) < cap && 16'({at_word, LaneW'(0)}) < length;
  logic is_final, upper;  // the snapshot ends with the word; that has two units
  assign is_final = ended ? snap_t'(at_word) == words - 1'b1 :
      16'({at_word, LaneW'(0)}) + 16'(Bytes) >= cap;
  assign upper = DATA_W == 512 && 16'({at_word, LaneW'(0)}) + 16'd32 < bytes;
  logic [Units-1:0] at_lasts;
  always_comb begin
    at_lasts = {Units{is_final}};
    if (upper) at_lasts[0] = 1'b0;
  end
  snap_t byte_ahead;  // words before it
  assign byte_ahead = popped ? snap_t'(at_word) - used : ahead + snap_t'(at_word);
  logic [Units+DATA_W-1:0] at_place;  // the word, where it should be
  always_comb begin
    at_place = mw_tap.snap[SNAP_LOG2'(start+snap_t'(at_word))];
    if (byte_ahead == '0 && word_valid) at_place = mw_tap.word;
    else if (byte_ahead == snap_t'(word_valid) && read_valid) at_place = mw_tap.read;
  end
  logic at_hand;  // it is to be read yet
  assign at_hand = began && stored && (popped ? right && !over && used <= snap_t'(at_word) : !strayed);

  always_comb begin
    if (!rst) begin
      frames : assert (begun == pairs + 32'(mw_tap.u_ended.proof.count) + 32'(inside_in));
      records : assert (recs == pairs + 32'(mw_tap.u_record.proof.count));
      meets : assert (!is_pair || (came && mw_tap.u_record.proof.next));
      prompt : assert (!waited[Read-1] || pair || !both);
      counted :
      assert (!is_pair || {done_captured, cnt_record, cnt_lost, cnt_snapshot_lost} ==
              {wanted, taken, wanted && !taken, taken && full});
      once : assert (!(is_pair && paired));
      only : assert (!(done_captured || cnt_record || cnt_lost || cnt_snapshot_lost) || pair);
      leaves : assert (queued == shown + 32'(mw_tap.u_queue.proof.count));
      takes : assert (!is_pop || paired);
      first :
      assert (!current || !unit_valid || parts != '0 ||
              (unit_first && {unit_time_hi, unit} == {stamp[63:32], entry}));
      follow :
      assert (!current || !unit_valid || parts == '0 || anyconst_at[13:5] != parts - 1'b1 || !right ||
              8'(unit >> {anyconst_at[4:0], 3'd0}) == (16'(anyconst_at) < length ? value : '0));
      tells :
      assert (!current || !right || !word_take || used != snap_t'(at_word) ||
              mw_tap.word.last == lasts(
          used
      ));
      number :
      assert (!current || !right || (32'(moved) == 32'(parts) + 32'(!unit_valid) &&
              (!unit_valid || unit_last == (parts == total)) && parts <= total));
      grammar : assert (!unit_valid || unit_first == !mid);
      leaves_out : assert (out_valid == there && (!there || offer == given));
      from_end : assert (!current || !right || in_snapshot || consumed == start + words);
      adjoins : assert (!ended || !take || followed || snap_wr == start + words);
      at_reset : assert (took || (snap_wr == '0 && consumed == '0));
      no_wait :
      assert (!current || !right || !in_snapshot || waiting != '0 || snap_rd != snap_whole);
      only_for_units : assert (!word_pop || in_snapshot);
      stands : assert (!held || (out_valid && offer == offered));
      room : assert (tap_room == has_room);
      rests :
      assert (!quiet || (out_valid == was_valid && !done_captured && !cnt_record && !cnt_lost &&
                         !cnt_snapshot_lost));

      aux_waited :
      assert (!waited[0] || ((mw_tap.u_ended.read_valid || mw_tap.ended_valid) &&
              (mw_tap.u_record.read_valid || mw_tap.record_valid)));
      aux_entries : assert (entries == mw_tap.places && 32'(entries) <= Queue);
      aux_rows : assert (rows == told);
      aux_places :
      assert (32'(entries) == 32'($countones(
          rows
      )) + 32'(mw_tap.ended_valid && mw_tap.ended.taken) + 32'(second_taken) +
          32'(Read == 2 && mw_tap.u_ended.read_valid && mw_tap.u_ended.read_data[Taken]) +
          32'(mw_tap.u_queue.proof.count) + 32'(place_left) + 32'(inside_in && mw_tap.frame_taken));
      aux_stage :
      assert ((!ended || began) && (!paired || (ended && came)) && (!popped || (paired && taken)) &&
              (!over || popped));
      aux_to_come : assert (came || anyconst_frame - pairs >= 32'(mw_tap.u_record.proof.count));
      aux_to_begin :
      assert (began || anyconst_frame - pairs >= 32'(mw_tap.u_ended.proof.count) + 32'(inside_in));
      aux_watch_ended : assert (mw_tap.u_ended.proof.watched == (ended && !paired));
      aux_watch_record : assert (mw_tap.u_record.proof.watched == (came && !paired));
      aux_watch_queue : assert (mw_tap.u_queue.proof.watched == (paired && taken && !popped));
      aux_ended :
      assert (!mw_tap.u_ended.proof.watched ||
              (anyconst_frame == pairs + 32'(mw_tap.u_ended.proof.ahead) &&
               mw_tap.u_ended.proof.word ==
                   {length, error, truncated, wanted, taken, has_snapshot, taken && full}));
      aux_record :
      assert (!mw_tap.u_record.proof.watched ||
              (anyconst_frame == pairs + 32'(mw_tap.u_record.proof.ahead) &&
               mw_tap.u_record.proof.word == {stamp[63:32], stamped}));
      aux_queue :
      assert (!mw_tap.u_queue.proof.watched || mw_tap.u_queue.proof.word == {stamp[63:32], entry});
      aux_inside :
      assert (!began || ended || (inside_in && wanted == mw_tap.frame_wanted &&
              taken == mw_tap.frame_taken && (!taken || full == !mw_tap.frame_fits) &&
              length == mw_tap.frame_length && begun == anyconst_frame + 1 &&
              (!taken || mw_tap.frame_more == (length < cap))));
      aux_earlier : assert (!began || popped || earlier == cap);
      aux_config :
      assert (mw_tap.snap_any == (earlier != '0) && mw_tap.snap_upper == !earlier[5] &&
              mw_tap.snap_final == (16 - LaneW)'((earlier - 1'b1) >> LaneW));
      aux_beats :
      assert (!inside_in || (beats != '0 && 32'(beats) <= MaxBeats &&
              mw_tap.frame_length == 16'(beats) * 16'(Bytes)));
      aux_length : assert (!began || (length != '0 && 32'(length) <= MaxFrame && cap[4:0] == '0));
      aux_wanted : assert (!began || ((wanted || !taken) && (taken || !full)));
      aux_frame_wanted : assert (!inside_in || mw_tap.frame_wanted || !mw_tap.frame_taken);
      aux_pointers :
      assert (snap_t'(snap_whole - snap_rd) <= snap_t'(snap_wr - snap_rd) &&
              32'(snap_t'(snap_wr - snap_rd)) <= SnapWords);
      aux_whole :
      assert ((inside_in && mw_tap.frame_taken && mw_tap.frame_fits) || snap_wr == snap_whole);
      aux_end : assert (!ended || followed || snap_whole == start + words);
      aux_took : assert ((took || (entries == '0 && !in_snapshot)) && (!taken || !began || took));
      aux_followed : assert (!ended || followed || !inside_in || !mw_tap.frame_taken);
      aux_ahead : assert (!began || popped || strayed || start == consumed + ahead);
      aux_mine :
      assert (!began || popped || strayed || 32'(ahead) + 32'(words) <=
              32'(snap_t'((ended ? snap_whole : snap_wr) - snap_rd)) + 32'(waiting));
      aux_coming : assert (!began || ended || (snap_whole == start && (snap_wr == start + words)));
      aux_popped :
      assert (!current || !right || (consumed == start + used && used <= words && 32'(words - used) <=
              32'(snap_t'(snap_whole - snap_rd)) + 32'(waiting)));
      aux_units : assert (!current || !right || !in_snapshot || parts < total);
      aux_rest : assert (!current || !right || in_snapshot || parts == total);
      aux_byte :
      assert (!at_hand || (lane(
          DATA_W'(at_place)
      ) == value && at_place[DATA_W+:Units] == at_lasts));
      aux_value : assert (!began || !stored || 16'(anyconst_at) < length || value == '0);
      aux_mid : assert ((unit_valid ? !unit_last : mid) == in_snapshot);
      aux_first : assert (!current || unit_first == (parts == '0) || !unit_valid);
    end
  end
  if (DATA_W == 512) begin : g_split
    always_comb begin
      if (!rst) begin
        aux_upper : assert (in_snapshot || !mw_tap.g_split.upper);
        aux_used :
        assert (!current || !right || !in_snapshot ||
                (used == snap_t'(parts >> 1) && mw_tap.g_split.upper == parts[0] && used < words));
      end
    end
  end else begin : g_gather
    always_comb begin
      if (!rst) begin
        aux_used :
        assert (!current || !right || !in_snapshot ||
                (used == snap_t'({parts, mw_tap.g_gather.place}) && used < words));
        aux_place :
        assert (mw_tap.g_gather.place == '0 || (in_snapshot && !unit_valid &&
                unit >> {mw_tap.g_gather.place, 6'd0} == '0));
        aux_gathered :
        assert (!current || !right || !in_snapshot || anyconst_at[13:5] != parts ||
                anyconst_at[4:3] >= mw_tap.g_gather.place ||
                8'(unit >> {anyconst_at[4:0], 3'd0}) == value);
      end
    end
  end

  always_comb begin
    if (!rst) begin
      two :
      cover (popped && right && start != '0 && unit_valid && unit_last && parts == 9'd2 && length > 16'd33);
      loses : cover (is_pair && cnt_lost && shown != '0);
      misses : cover (is_pair && cnt_snapshot_lost);
    end
  end
endmodule

bind mw_tap mw_tap_proof #(
    .DATA_W(DATA_W),
    .SNAP_LOG2(SNAP_LOG2),
    .INFLIGHT_LOG2(INFLIGHT_LOG2),
    .QUEUE_LOG2(QUEUE_LOG2)
) proof (.*);
