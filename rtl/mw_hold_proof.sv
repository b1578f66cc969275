// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What is stored leaves as it was stored. Any slot is watched, and any beat of it: on every
// release of a frame its beats come out first to last, as many as it has, with the data and what
// was kept at the frame's beginning and end, after exactly LATENCY cycles of `go`; a beat is read
// only when it was written. Frames of the store leave one after the other.
//
// A frame leaves as often as it was asked to and no more: until it has, it waits in the queue of
// times or for its turn, or in both. A slot is handed out only when the frame before has left
// for the last time, and none is lost: it is fresh, or free, or has a frame in it. Which frame is
// due when is not proved here.
//
// The proofs of mw_fifo, mw_sorted_queue and mw_reorder show what is used of the parts: each gives
// out what was put in, once; mw_reorder a frame only when it was told that its time has come. The
// list of free slots does not run over since no slot is in it twice. Bytes and what is kept are
// only moved; one bit stands for each.
//
// Assumed of mw_path: beats of a frame are issued in successive cycles of `go` and written
// LATENCY cycles of `go` later; of the lane and the store only one issues; the frame is released
// when it is ready. Of made frames: they come first to last, and fit a slot.
//
// uses: mw_fifo mw_sorted_queue mw_reorder
// any: mw_fifo mw_sorted_queue mw_reorder
// with: mw_hold: (DATA_W != 64 && DATA_W != 512) || =>
// induction: 2 -GDATA_W=1 -GBEATS_LOG2=8 -GSLOTS_LOG2=6 -GCONN_W=1 -GMETA_W=1 -GEND_W=1
// induction: 2 -GDATA_W=1 -GBEATS_LOG2=11 -GSLOTS_LOG2=6 -GCONN_W=1 -GMETA_W=1 -GEND_W=1
// cover: 12 -GDATA_W=1 -GBEATS_LOG2=1 -GSLOTS_LOG2=1 -GCONN_W=1 -GMETA_W=1 -GEND_W=1
// mutant: mw_hold: assign ready = taken == '0 && (turn_valid || !turn_due) => assign ready = turn_valid || !turn_due
// mutant: mw_hold: && step[Read].last && !step[Read].more => && step[Read].last
// mutant: mw_hold: && step[Read].last && !step[Read].more => && step[Read].sof && !step[Read].more
// mutant: mw_hold: begun_copy  <= start || (take && take_straight) => begun_copy  <= take && take_straight
// mutant: mw_hold: begun_times - 8'(begun_copy) => begun_times - 8'd1
// mutant: mw_hold: begun_left != '0 => begun_times != '0
// mutant: mw_hold: wr_beat <= wr_last ? '0 : wr_beat + 1'b1; => wr_beat <= wr_beat + 1'b1;
// mutant: mw_hold: !wr_valid && !take && !end_valid && !start && => !wr_valid && !take && !end_valid &&
// mutant: mw_hold: issuing <= !final_beat; => issuing <= 1'b0;
// mutant: mw_hold: take_straight)) || start_more || add_end => take_straight)) || add_end
// mutant: mw_hold: (take && (take_delay || take_straight)) || => (take && take_delay) ||
// mutant: mw_hold: turn_push_timed = !take_delay => turn_push_timed = 1'b1
// mutant: mw_hold: wait_value <= {take && take_reorder, => wait_value <= {1'b0,
// mutant: mw_hold: if (wr_valid && go) begin => if (wr_valid) begin
// mutant: mw_hold: tail[add_slot] <= {add_at == '0, => tail[add_slot] <= {1'b1,
// mutant: mw_hold: if (slot_used && any_fresh) fresh => if (slot_used) fresh
// mutant: mw_hold: time_due && (timed_joins || (start && !turn_due)) => time_due && (timed_joins || start)
// mutant: mw_hold: valid <= {valid[LATENCY-2:0], issue}; => valid <= {valid[LATENCY-2:0], issuing};
module mw_hold_proof #(
    parameter int unsigned DATA_W,
    parameter int unsigned BEATS_LOG2,
    parameter int unsigned SLOTS_LOG2,
    parameter int unsigned META_W,
    parameter int unsigned END_W,
    parameter int unsigned LATENCY
) (
    input logic                  clk,
    input logic                  rst,
    input logic                  go,
    input logic                  slot_free,
    input logic [SLOTS_LOG2-1:0] slot,
    input logic                  take,
    input logic                  take_straight,
    input logic                  take_delay,
    input logic                  take_reorder,
    input logic [           7:0] take_copies,
    input logic [          15:0] take_after,
    input logic [    META_W-1:0] take_meta,
    input logic                  end_valid,
    input logic [SLOTS_LOG2-1:0] end_slot,
    input logic [BEATS_LOG2-1:0] end_index,
    input logic [     END_W-1:0] end_info,
    input logic                  wr_valid,
    input logic [SLOTS_LOG2-1:0] wr_slot,
    input logic                  wr_last,
    input logic [    DATA_W-1:0] wr_data,
    input logic                  pass,
    input logic                  add_valid,
    input logic                  add_ready,
    input logic                  add_sof,
    input logic                  add_last,
    input logic [    DATA_W-1:0] add_data,
    input logic [    META_W-1:0] add_meta,
    input logic [     END_W-1:0] add_info,
    input logic                  due,
    input logic                  ready,
    input logic                  start,
    input logic [    META_W-1:0] start_meta,
    input logic                  start_copy,
    input logic                  issuing,
    input logic                  out_valid,
    input logic                  out_sof,
    input logic                  out_last,
    input logic [     END_W-1:0] out_info,
    input logic [    DATA_W-1:0] out_data,
    // inside
    input logic [SLOTS_LOG2-1:0] chosen,
    input logic [  SLOTS_LOG2:0] fresh,
    input logic                  slot_used,
    input logic                  returned_valid,
    input logic                  returned_ready,
    input logic [SLOTS_LOG2-1:0] returned_slot,
    input logic                  back_valid,
    input logic [SLOTS_LOG2-1:0] back_slot,
    input logic                  wait_valid,
    input logic [  SLOTS_LOG2:0] wait_value,
    input logic                  timed_valid,
    input logic [  SLOTS_LOG2:0] timed_value,
    input logic                  time_valid,
    input logic                  time_due,
    input logic                  timed_out,
    input logic                  timed_joins,
    input logic [SLOTS_LOG2-1:0] timed_slot,
    input logic                  turn_push,
    input logic                  turn_push_timed,
    input logic                  turn_timed,
    input logic                  turn_pop,
    input logic                  turn_due,
    input logic                  turn_valid,
    input logic [SLOTS_LOG2-1:0] turn_slot,
    input logic [           1:0] taken,
    input logic                  begun,
    input logic [SLOTS_LOG2-1:0] begun_slot,
    input logic                  begun_copy,
    input logic [           7:0] begun_left,
    input logic [SLOTS_LOG2-1:0] add_slot_q,
    input logic [BEATS_LOG2-1:0] add_beat,
    input logic [BEATS_LOG2-1:0] wr_beat,
    input logic [SLOTS_LOG2-1:0] rd_slot,
    input logic [BEATS_LOG2-1:0] rd_beat,
    input logic [BEATS_LOG2-1:0] rd_final,
    input logic [     END_W-1:0] rd_info,
    input logic                  rd_more,
    input logic [   LATENCY-1:0] valid,
    input logic [    DATA_W-1:0] first
);
  localparam int unsigned Read = LATENCY - 3;
  typedef logic [SLOTS_LOG2-1:0] slot_t;
  typedef logic [BEATS_LOG2-1:0] index_t;
  slot_t  anyconst_slot;  // that is watched
  index_t anyconst_beat;

  // ---- The lane: beats of frames that are stored, from issue to writing ----
  logic   in_lane;  // such a frame has begun and not ended
  logic   stored;  // its beat is issued
  index_t lane_index, lane_at;
  slot_t lane_slot, lane_to;
  logic [LATENCY:1] way_valid, way_last;
  slot_t  [LATENCY:1] way_slot;
  index_t [LATENCY:1] way_at;
  assign stored  = take || (in_lane && go);
  assign lane_at = take ? '0 : lane_index;
  assign lane_to = take ? slot : lane_slot;
  always_ff @(posedge clk) begin
    if (stored) begin
      in_lane <= !end_valid;
      lane_index <= lane_at + 1'b1;
      lane_slot <= lane_to;
    end
    if (go) begin
      way_valid <= {way_valid[LATENCY-1:1], stored};
      way_last  <= {way_last[LATENCY-1:1], end_valid};
      way_slot  <= {way_slot[LATENCY-1:1], lane_to};
      way_at    <= {way_at[LATENCY-1:1], lane_at};
    end
    if (rst) {in_lane, way_valid} <= '0;
  end
  always_comb begin
    if (!rst) begin
      if (take) begin
        assume (go && slot_free && !in_lane && !issuing && !start);
        assume (take_straight ? take_copies != '0 && !take_delay && !take_reorder
                              : take_delay || take_reorder);
        assume (pass == take_straight && (!take_reorder || take_after != '0));
      end
      if (pass) assume (go && !issuing && !start && !in_lane);
      assume (!end_valid || stored);
      if (end_valid) assume (end_slot == lane_to && end_index == lane_at);
      if (stored && &lane_at) assume (end_valid);
      assume (wr_valid == way_valid[LATENCY]);
      if (wr_valid) assume (wr_slot == way_slot[LATENCY] && wr_last == way_last[LATENCY]);
      if (start) assume (go && due && ready && !in_lane && !issuing);
    end
  end

  // ---- Made frames ----
  logic in_add, add;
  index_t add_index, add_at;
  slot_t add_slot, add_to;
  assign add = add_valid && add_ready;
  assign add_at = add_sof ? '0 : add_index;
  assign add_to = add_sof ? slot : add_slot;
  always_ff @(posedge clk) begin
    if (add) begin
      in_add <= !add_last;
      add_index <= add_at + 1'b1;
      add_slot <= add_to;
    end
    if (rst) in_add <= 1'b0;
  end
  always_comb begin
    if (!rst && add_valid) assume (add_sof == !in_add && (!(&add_at) || add_last));
  end

  // ---- What the parts do, of the slot that is watched ----
  logic free;  // in the list of free slots
  logic queued, queued_joins;  // in the queue of times
  logic something;  // the queue of times is not empty
  logic placed, told;  // waits for others to go by; its time has come
  always_ff @(posedge clk) begin
    if (returned_ready && returned_slot == anyconst_slot) free <= 1'b0;
    if (back_valid && back_slot == anyconst_slot) free <= 1'b1;
    if (time_valid && timed_out && timed_slot == anyconst_slot) queued <= 1'b0;
    if (timed_valid && timed_value[SLOTS_LOG2-1:0] == anyconst_slot)
      {queued, queued_joins} <= {1'b1, timed_value[SLOTS_LOG2]};
    something <= timed_valid || (time_valid && !timed_out);
    if (turn_timed && timed_slot == anyconst_slot) told <= 1'b1;
    if (turn_pop && turn_slot == anyconst_slot) placed <= 1'b0;
    if (turn_push && slot == anyconst_slot) {placed, told} <= {1'b1, turn_push_timed};
    if (rst) {free, queued, something, placed} <= '0;
  end
  always_comb begin
    if (returned_valid && returned_slot == anyconst_slot) part_free : assume (free);
    if (time_valid && timed_slot == anyconst_slot)
      part_timed : assume (queued && timed_joins == queued_joins);
    part_shown : assume (time_valid || !something);
    if (turn_due && turn_valid && turn_slot == anyconst_slot) part_turn : assume (placed && told);
  end

  // ---- What the slot holds ----
  logic used, made;
  logic [8:0] times;  // that the frame is to leave
  logic left;  // it has left before, here or straight
  logic ended;
  index_t final_index;
  logic [END_W-1:0] info;
  logic [META_W-1:0] meta;
  logic written;  // the beat
  logic [DATA_W-1:0] data;

  // ---- What of it is released ----
  typedef struct packed {
    logic              valid;
    logic              sof;
    logic              last;
    logic              gone;   // the frame leaves for the last time
    index_t            index;
    logic [END_W-1:0]  info;
    logic [DATA_W-1:0] data;   // of the watched beat
  } beat_t;
  beat_t [LATENCY-1:0] beat;
  logic out_mine, out_gone;  // of the frame that is released now
  index_t out_index;
  logic starts, releases, reads, returns;
  index_t at;
  assign starts = start && chosen == anyconst_slot;
  assign releases = go && (issuing ? out_mine : starts);
  assign at = issuing ? out_index : '0;
  assign reads = go && beat[Read].valid;
  assign returns = reads && beat[Read].last && beat[Read].gone;

  always_ff @(posedge clk) begin
    automatic beat_t [LATENCY-1:0] b = beat;
    if (go) begin
      for (int i = LATENCY - 1; i > 0; i--) b[i] = beat[i-1];
      b[Read+1].data = data;
      b[0] = '{
          valid: releases,
          sof: start,
          last: at == final_index,
          gone: issuing ? out_gone : times == 9'd1,
          index: at,
          info: info,
          data: '0
      };
    end
    beat <= b;
    if (go && (start || issuing)) begin
      out_mine  <= issuing ? out_mine : starts;
      out_index <= at + 1'b1;
      out_gone  <= b[0].gone;
    end
    if (returns) used <= 1'b0;
    if (starts) begin
      times <= times - 1'b1;
      left  <= 1'b1;
    end
    if (slot_used && slot == anyconst_slot) begin
      used <= 1'b1;
      made <= !take;
      times <= take ? 9'(take_copies) + 9'(!take_straight) : 9'd1;
      left <= take && take_straight;
      meta <= take ? take_meta : add_meta;
      {ended, written} <= '0;
    end
    if (end_valid && end_slot == anyconst_slot)
      {ended, final_index, info} <= {1'b1, end_index, end_info};
    if (add && add_last && add_to == anyconst_slot)
      {ended, final_index, info} <= {1'b1, add_at, add_info};
    if (go && wr_valid && wr_slot == anyconst_slot && way_at[LATENCY] == anyconst_beat)
      {written, data} <= {1'b1, wr_data};
    if (add && add_to == anyconst_slot && add_at == anyconst_beat)
      {written, data} <= {1'b1, add_data};
    if (rst) begin
      used <= 1'b0;
      for (int i = 0; i < int'(LATENCY); i++) beat[i].valid <= 1'b0;
    end
  end

  logic inside_out, again_used;
  always_ff @(posedge clk) begin
    if (go && out_valid) inside_out <= !out_last;
    if (returns) again_used <= 1'b1;
    if (rst) {inside_out, again_used} <= '0;
  end

  beat_t shown;
  assign shown = beat[LATENCY-1];
  always_comb begin
    if (!rst) begin
      unused : assert (!(slot_used && slot == anyconst_slot) || !used);
      kept : assert (fresh > (SLOTS_LOG2 + 1)'(anyconst_slot) ? used != free : !used && !free);
      once : assert (!(back_valid && back_slot == anyconst_slot) || !free);
      asked : assert (!starts || (used && times != '0 && ended));
      all : assert (!(back_valid && back_slot == anyconst_slot) || (returns && times == '0));
      metas : assert (!starts || (start_meta == meta && start_copy == left));
      written_first : assert (!reads || beat[Read].index != anyconst_beat || written);
      owned : assert (!reads || used);
      goes_on : assert (!beat[0].valid || issuing == !beat[0].last);
      order : assert (!shown.valid || out_valid);
      only : assert (!out_valid || mw_hold.step[LATENCY-1].slot != anyconst_slot || shown.valid);
      content :
      assert (!shown.valid || (out_sof == shown.sof && out_last == shown.last &&
                               (!out_last || out_info == shown.info)));
      bytes : assert (!shown.valid || shown.index != anyconst_beat || out_data == shown.data);
      grammar : assert (!out_valid || out_sof == !inside_out);

      again : cover (shown.valid && out_last && !out_sof && left && issuing && out_mine);
      handed_out_again : cover (take && slot == anyconst_slot && again_used);
      waits_its_turn : cover (starts && turn_due && placed && told);
      made_one : cover (shown.valid && out_last && !out_sof && made);
    end
  end

  // ---- For the induction: where the frame is ----
  localparam int signed Last = int'(LATENCY);
  logic in_wait, in_timed, in_queue, joins, begun_mine, lane_mine, add_mine, in_way;
  logic [  LATENCY:1] way_mine;
  logic [LATENCY-1:0] step_mine;
  assign in_wait = wait_valid && wait_value[SLOTS_LOG2-1:0] == anyconst_slot;
  assign in_timed = timed_valid && timed_value[SLOTS_LOG2-1:0] == anyconst_slot;
  assign in_queue = in_wait || in_timed || queued;
  assign joins = (in_wait && wait_value[SLOTS_LOG2]) ||
      (in_timed && timed_value[SLOTS_LOG2]) || (queued && queued_joins);
  assign begun_mine = begun && begun_slot == anyconst_slot;
  assign lane_mine = in_lane && lane_slot == anyconst_slot;
  assign add_mine = in_add && add_slot == anyconst_slot;
  always_comb begin
    in_way = 1'b0;
    for (int k = 1; k <= Last; k++) begin
      way_mine[k] = way_valid[k] && way_slot[k] == anyconst_slot;
      if (way_mine[k] && way_at[k] == anyconst_beat) in_way = 1'b1;
    end
    for (int i = 0; i < Last; i++) step_mine[i] = valid[i] && mw_hold.step[i].slot == anyconst_slot;
  end
  // Of each place on the ways, whether what is said below holds.
  logic [LATENCY:1] way_ok, way_mine_ok;
  logic [LATENCY-1:0] step_sof_ok, step_next_ok, step_ok, step_of_ok, gone_ok;
  always_comb begin
    way_ok = '1;
    way_mine_ok = '1;
    for (int k = 1; k <= Last; k++) begin
      if (k < Last)
        way_ok[k] = way_valid[k+1] && !way_last[k+1] ?
            way_valid[k] && way_slot[k] == way_slot[k+1] && way_at[k] == way_at[k+1] + 1'b1 &&
                way_at[k] != '0 : !way_valid[k] || way_at[k] == '0;
      // A beat is read after it was written: what is released keeps its distance.
      if (way_mine[k]) begin
        way_mine_ok[k] = used && !made && way_last[k] == (ended && way_at[k] == final_index) &&
            (ended ? way_at[k] <= final_index : lane_mine) &&
            (!issuing || rd_slot != anyconst_slot ||
             32'(rd_beat) + 32'd2 < 32'(way_at[k]) + 32'(k));
        for (int j = 0; j <= int'(Read); j++)
        if (step_mine[j] && 32'(mw_hold.step[j].beat) + 32'd3 + 32'(j) >= 32'(way_at[k]) + 32'(k))
          way_mine_ok[k] = 1'b0;
        for (int j = 1; j < k; j++) if (way_mine[j] && way_last[k]) way_mine_ok[k] = 1'b0;
      end
    end
    for (int i = 0; i < Last; i++) begin
      step_sof_ok[i] = !valid[i] || mw_hold.step[i].sof == !(i == Last - 1 ? inside_out :
          valid[(i+1)%Last] && !mw_hold.step[(i+1)%Last].last);
      step_next_ok[i] = !valid[i] || mw_hold.step[i].last || (i == 0 ? issuing : valid[(i+Last-1)%Last]);
      step_ok[i] = step_mine[i] == beat[i].valid && (!beat[i].valid ||
          (mw_hold.step[i].sof == beat[i].sof &&
           mw_hold.step[i].last == beat[i].last && mw_hold.step[i].beat == beat[i].index &&
           (!beat[i].last || (mw_hold.step[i].info == beat[i].info &&
                              mw_hold.step[i].more == !beat[i].gone))));
      // Until it is read.
      step_of_ok[i] = i > int'(Read) || !beat[i].valid || (used && ended &&
          beat[i].index <= final_index && beat[i].last == (beat[i].index == final_index));
      // The release that is the last of all is the youngest one.
      gone_ok[i] = 1'b1;
      if (i <= int'(Read) && beat[i].valid && beat[i].gone) begin
        gone_ok[i] = times == '0;
        for (int j = 0; j < i; j++)
        if (beat[j].valid && (beat[i].last || !beat[j].gone)) gone_ok[i] = 1'b0;
      end
    end
  end
  always_comb begin
    if (!rst) begin
      aux_once : assert (32'(in_wait) + 32'(in_timed) + 32'(queued) <= 1);
      // It waits where it was put until it has left for the last time.
      waits :
      assert (used && times != '0 && !add_mine ?
              (in_queue ? joins == placed && !(placed && told) : placed && told) :
              !in_queue && !placed);
      aux_due : assert (!time_due || something);
      // The lane's beats on their way.
      aux_lane :
      assert (!in_lane || (way_valid[1] && !way_last[1] && lane_index != '0 && !issuing &&
                           way_slot[1] == lane_slot && way_at[1] + 1'b1 == lane_index));
      aux_way : assert (way_ok == '1);
      aux_way_open : assert (!way_valid[1] || way_last[1] || in_lane);
      aux_wr_beat : assert (wr_beat == (way_valid[LATENCY] ? way_at[LATENCY] : '0));
      aux_taken :
      assert (taken == {way_valid[2] && way_at[2] == '0, way_valid[1] && way_at[1] == '0});
      aux_way_mine : assert (way_mine_ok == '1);
      // What the slot has.
      aux_lane_mine : assert (!lane_mine || (used && !ended && !add_mine));
      aux_add_mine : assert (!add_mine || (used && !ended && made));
      aux_add :
      assert (!in_add || (add_slot_q == add_slot && add_beat == add_index && add_index != '0));
      aux_ended : assert (!used || ended || lane_mine || add_mine);
      if (used) begin
        aux_meta : assert (mw_hold.meta[anyconst_slot] == meta);
        aux_tail :
        assert (!ended || mw_hold.tail[anyconst_slot] == {final_index == '0, final_index, info});
        aux_times : assert (times <= 9'd256);
        aux_again :
        assert (times == '0 || (begun_mine ?
                begun_copy == left && begun_left == 8'(times - 1'b1) :
                {mw_hold.again[anyconst_slot].copy, mw_hold.again[anyconst_slot].more,
                 mw_hold.again[anyconst_slot].left} == {left, times != 9'd1, 8'(times - 1'b1)}));
        aux_data : assert (!written || mw_hold.mem[{anyconst_slot, anyconst_beat}] == data);
        aux_written :
        assert (written == ((ended ? anyconst_beat <= final_index :
                             lane_mine ? anyconst_beat < lane_index :
                             anyconst_beat < add_index) && !in_way));
      end
      // What is released.
      if (issuing) begin
        aux_issuing :
        assert (valid[0] && mw_hold.step[0].slot == rd_slot && !mw_hold.step[0].last &&
                out_mine == (rd_slot == anyconst_slot));
        aux_issuing_mine :
        assert (!out_mine || (used && ended && rd_final == final_index && rd_info == info &&
                              rd_beat == out_index && rd_beat != '0 && rd_beat <= rd_final &&
                              rd_more == (times != '0) && out_gone == !rd_more &&
                              beat[0].gone == out_gone && beat[0].index + 1'b1 == rd_beat));
      end
      aux_step_sof : assert (step_sof_ok == '1);
      aux_step_next : assert (step_next_ok == '1);
      aux_step : assert (step_ok == '1);
      aux_step_of : assert (step_of_ok == '1);
      aux_gone : assert (gone_ok == '1);
      aux_not_gone :
      assert (!used || times != '0 || (beat[0].valid && beat[0].gone) ||
              (beat[1].valid && beat[1].last && beat[1].gone));
      aux_inside : assert (!inside_out || valid[LATENCY-1]);
      aux_first :
      assert (!beat[2].valid || beat[2].index != anyconst_beat || first == beat[2].data);
    end
  end
endmodule

bind mw_hold mw_hold_proof #(
    .DATA_W(DATA_W),
    .BEATS_LOG2(BEATS_LOG2),
    .SLOTS_LOG2(SLOTS_LOG2),
    .META_W(META_W),
    .END_W(END_W),
    .LATENCY(LATENCY)
) proof (.*);
