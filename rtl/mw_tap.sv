// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Listens to a beat stream and makes of each wanted frame an entry of the capture: its
// record, followed by the first bytes of the frame (docs/formats.md). It has no way to hold
// up the beats: without room for the record the entry is lost, without room for the bytes
// the record goes alone, and both are counted.
//
// A frame's record and the frame itself come by different ways. Each waits for the other in
// a buffer of its own; `tap_room` says that both have room for frames that are not yet
// admitted. An entry's place in the queue towards the host is taken at the frame's first
// beat, so that a pair never waits and a host that has stopped reading holds up nobody.
module mw_tap
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W = 512,  // bits of a beat: 64 or 512
    parameter int unsigned SNAP_LOG2 = 10,  // beats that the snapshot buffer holds, 2 to 16
    parameter int unsigned INFLIGHT_LOG2 = 8,  // frames that wait for their record, or the reverse; 5 to 16
    parameter int unsigned QUEUE_LOG2 = INFLIGHT_LOG2 + 1  // entries that wait for the host, 1 to 17
) (
    input logic clk,
    input logic rst,

    input logic [15:0] snapshot_bytes,  // multiple of 32; stands from the clock before a wanted frame on

    input logic                in_valid,
    input logic                in_sof,
    input logic [  DATA_W-1:0] in_data,
    input logic [DATA_W/8-1:0] in_keep,
    input logic                in_last,
    input logic                in_error,
    input logic                in_truncated,
    input logic                in_wanted,     // with in_sof: this frame leaves an entry

    input logic           rec_valid,  // for each frame, wanted or not, in the frames' order
    input record_t        rec,
    input logic    [63:0] rec_stamp,

    output logic             out_valid,
    input  logic             out_ready,
    output logic [UnitW-1:0] out_data,
    output logic [     31:0] out_time_hi,  // with out_first: upper half of the record's time
    output logic             out_first,    // the record itself
    output logic             out_last,     // last unit of the entry

    output logic tap_room,           // frames may be admitted
    output logic done_captured,      // pulse: a wanted frame's entry is queued or lost
    output logic cnt_record,         // pulse: queued
    output logic cnt_lost,           // pulse: lost
    output logic cnt_snapshot_lost,  // pulse: queued without its snapshot
    output logic busy
);
  if (DATA_W != 64 && DATA_W != 512) begin : g_bad_width
    $fatal(1, "mw_tap: DATA_W must be 64 or 512");
  end
  if (SNAP_LOG2 < 2 || SNAP_LOG2 > 16) begin : g_bad_snap
    $fatal(1, "mw_tap: SNAP_LOG2 must be between 2 and 16");
  end
  if (INFLIGHT_LOG2 < 5 || INFLIGHT_LOG2 > 16 || QUEUE_LOG2 < 1 || QUEUE_LOG2 > 17) begin : g_bad_depth
    $fatal(1, "mw_tap: INFLIGHT_LOG2 must be between 5 and 16, QUEUE_LOG2 between 1 and 17");
  end

  localparam int unsigned Bytes = DATA_W / 8;
  localparam int unsigned LaneW = $clog2(Bytes);
  localparam int unsigned Units = DATA_W == 512 ? 2 : 1;  // that a snapshot can end with in one word
  localparam int unsigned SnapWords = 1 << SNAP_LOG2;
  localparam int unsigned Inflight = 1 << INFLIGHT_LOG2;
  localparam int unsigned Queue = 1 << QUEUE_LOG2;
  // Frames that may be between admission and this module when tap_room falls.
  localparam int unsigned Slack = 16;

  typedef struct packed {
    logic [15:0] length;
    logic        error;
    logic        truncated;
    logic        wanted;
    logic        taken;      // wanted, and has a place in the queue
    logic        snapshot;   // bytes of it are in the snapshot buffer
    logic        missed;     // they should be, but there was no room
  } ended_t;
  typedef struct packed {
    logic [31:0] time_hi;
    record_t     record;
  } stamped_t;
  typedef struct packed {
    logic [Units-1:0]  last;  // the snapshot ends here: at 512 bits after either half
    logic [DATA_W-1:0] data;
  } word_t;

  // ---- Beats: length, snapshot ----

  logic [15:0] frame_length, done_bytes, length;
  logic frame_wanted, wanted, frame_taken, taken, frame_fits, fits;
  logic frame_more, more, more_after;  // of the snapshot: in this beat, in the next one
  logic snap_any;
  logic [15-LaneW:0] snap_final;  // number of the snapshot's last word
  logic snap_upper;  // of which the upper half counts, at 512 bits
  logic [QUEUE_LOG2:0] places;  // entries in the queue and frames that will come there
  logic [SNAP_LOG2:0] snap_wr, snap_wr_next, snap_whole, snap_rd;
  logic snap_beat, snap_full;
  logic place_taken, place_left;

  assign done_bytes = in_sof ? 16'd0 : frame_length;
  always_comb begin
    length = '0;
    if (in_valid) length = done_bytes + (in_last ? 16'(kept_bytes(64'(in_keep))) : 16'(Bytes));
  end
  assign wanted = in_sof ? in_wanted : frame_wanted;
  assign taken = in_sof ? in_wanted && places != (QUEUE_LOG2 + 1)'(Queue) : frame_taken;
  assign place_taken = in_valid && in_sof && taken;
  assign more = in_sof ? snap_any : frame_more;
  assign more_after = more && done_bytes[15:LaneW] != snap_final;

  // Words up to snap_whole are of ended frames and may be read; those behind belong to the
  // frame that is coming in and are taken back when one of them finds no room.
  assign snap_beat = in_valid && taken && (in_sof || frame_fits) && more;
  assign snap_full = (snap_wr ^ snap_rd) == (SNAP_LOG2 + 1)'(SnapWords);
  assign fits = (in_sof || frame_fits) && !(snap_beat && snap_full);
  always_comb begin
    snap_wr_next = snap_wr;
    if (snap_beat) snap_wr_next = snap_full ? snap_whole : snap_wr + 1'b1;
  end

  function automatic logic [DATA_W-1:0] cut(input logic [DATA_W-1:0] data,
                                            input logic [Bytes-1:0] keep);
    for (int unsigned i = 0; i < Bytes; i++) cut[i*8+:8] = keep[i] ? data[i*8+:8] : 8'd0;
  endfunction

  // Only words that were written in an earlier clock are read.
  (* no_rw_check *)
  word_t snap[SnapWords];
  always_ff @(posedge clk) begin
    if (snap_beat && !snap_full) begin
      automatic word_t w;
      w.data = in_last ? cut(in_data, in_keep) : in_data;
      w.last = {Units{in_last || !more_after}};
      if (DATA_W == 512 && in_keep[Bytes/2] && (more_after || snap_upper)) w.last[0] = 1'b0;
      snap[snap_wr[SNAP_LOG2-1:0]] <= w;
    end
  end

  always_ff @(posedge clk) begin
    snap_any   <= snapshot_bytes != '0;
    snap_final <= (16 - LaneW)'((snapshot_bytes - 1'b1) >> LaneW);
    snap_upper <= !snapshot_bytes[5];
    if (in_valid) begin
      frame_length <= length;
      frame_wanted <= wanted;
      frame_taken  <= taken;
      frame_fits   <= fits;
      frame_more   <= more_after;
      if (in_last) snap_whole <= snap_wr_next;
      snap_wr <= snap_wr_next;
    end
    if (place_taken != place_left) places <= place_taken ? places + 1'b1 : places - 1'b1;
    if (rst) begin
      snap_wr <= '0;
      snap_whole <= '0;
      places <= '0;
    end
  end

  // ---- Frame and record find each other ----

  logic ended_valid, record_valid, pair;
  logic ended_room, record_room;
  logic [INFLIGHT_LOG2:0] ended_free, record_free;
  ended_t ended_in, ended;
  stamped_t rec_in, met, entry;

  assign ended_in = '{
          length: length,
          error: in_error,
          truncated: in_truncated,
          wanted: wanted,
          taken: taken,
          snapshot: taken && fits && snap_any,
          missed: taken && !fits
      };
  assign pair = ended_valid && record_valid;
  always_comb begin
    rec_in = '{time_hi: rec_stamp[63:32], record: rec};
    rec_in.record.time_lo = rec_stamp[31:0];
  end

  mw_fifo #(
      .WIDTH($bits(ended_t)),
      .DEPTH_LOG2(INFLIGHT_LOG2),
      .READ(fifo_read(DATA_W))
  ) u_ended (
      .clk,
      .rst,
      .in_valid(in_valid && in_last),
      .in_ready(ended_room),
      .in_data(ended_in),
      .out_valid(ended_valid),
      .out_ready(pair),
      .out_data(ended),
      .free(ended_free)
  );

  mw_fifo #(
      .WIDTH($bits(stamped_t)),
      .DEPTH_LOG2(INFLIGHT_LOG2),
      .READ(fifo_read(DATA_W))
  ) u_record (
      .clk,
      .rst,
      .in_valid(rec_valid),
      .in_ready(record_room),
      .in_data(rec_in),
      .out_valid(record_valid),
      .out_ready(pair),
      .out_data(met),
      .free(record_free)
  );

  always_ff @(posedge clk) begin
    if (rst) tap_room <= 1'b0;
    else begin
      tap_room <= ended_free > (INFLIGHT_LOG2 + 1)'(Slack) && record_free > (INFLIGHT_LOG2 + 1)'(Slack);
      assert (ended_room || !(in_valid && in_last));
      assert (record_room || !rec_valid);
    end
  end

  always_comb begin
    entry = met;
    entry.record.length = ended.length;
    entry.record.error = ended.error;
    entry.record.truncated = ended.truncated;
    entry.record.snapshot = ended.snapshot;
  end

  assign done_captured = pair && ended.wanted;
  assign cnt_record = pair && ended.taken;
  assign cnt_lost = pair && ended.wanted && !ended.taken;
  assign cnt_snapshot_lost = pair && ended.missed;

  // ---- Queue towards the host ----

  logic queue_valid, queue_room, queue_pop;
  logic [QUEUE_LOG2:0] queue_free;
  stamped_t head;

  mw_fifo #(
      .WIDTH($bits(stamped_t)),
      .DEPTH_LOG2(QUEUE_LOG2),
      .READ(fifo_read(DATA_W))
  ) u_queue (
      .clk,
      .rst,
      .in_valid(cnt_record),
      .in_ready(queue_room),
      .in_data(entry),
      .out_valid(queue_valid),
      .out_ready(queue_pop),
      .out_data(head),
      .free(queue_free)
  );

  always_ff @(posedge clk) begin
    place_left <= queue_pop && !rst;
    if (!rst) assert (queue_room || !cnt_record);
  end

  // The next words of the snapshot buffer wait in two registers, the first of them the memory's.
  logic read_valid, read_load, word_valid, word_load, word_pop;
  word_t read, word;
  assign word_load = read_valid && (!word_valid || word_pop);
  assign read_load = snap_rd != snap_whole && (!read_valid || word_load);

  always_ff @(posedge clk) begin
    if (word_load) word <= read;
    if (read_load) read <= snap[snap_rd[SNAP_LOG2-1:0]];
  end

  always_ff @(posedge clk) begin
    word_valid <= word_load || (word_valid && !word_pop);
    read_valid <= read_load || (read_valid && !word_load);
    if (read_load) snap_rd <= snap_rd + 1'b1;
    if (rst) begin
      snap_rd <= '0;
      read_valid <= 1'b0;
      word_valid <= 1'b0;
    end
  end

  // ---- Units: one is made while the one before it waits at the output ----

  logic step;  // the output register is free
  logic unit_free, unit_valid, unit_first, unit_last;
  logic in_snapshot, word_take;
  logic complete, last;  // with what is taken of the word: the unit, and the entry
  logic [UnitW-1:0] unit;
  logic [31:0] unit_time_hi;

  assign step = !out_valid || out_ready;
  assign unit_free = !unit_valid || step;
  assign queue_pop = unit_free && !in_snapshot && queue_valid;
  assign word_take = unit_free && in_snapshot && word_valid;

  if (DATA_W == 512) begin : g_split
    logic upper;
    assign complete = 1'b1;
    assign last = word.last[upper];
    assign word_pop = word_take && (upper || word.last[0]);
    always_ff @(posedge clk) begin
      if (queue_pop) unit <= head.record;
      else if (word_take) unit <= upper ? word.data[511:256] : word.data[255:0];
      if (word_take) upper <= !upper && !word.last[0];
      if (rst) upper <= 1'b0;
    end
  end else begin : g_gather
    logic [1:0] place;
    assign complete = word.last || place == 2'd3;
    assign last = word.last;
    assign word_pop = word_take;
    always_ff @(posedge clk) begin
      for (int unsigned i = 0; i < 4; i++) begin
        if (queue_pop) unit[64*i+:64] <= head.record[64*i+:64];
        else if (word_take && place == 2'(i)) unit[64*i+:64] <= word.data;
        else if (word_take && place == 2'd0) unit[64*i+:64] <= '0;
      end
      if (word_take) place <= complete ? 2'd0 : place + 1'b1;
      if (rst) place <= '0;
    end
  end

  always_ff @(posedge clk) begin
    if (step) out_valid <= unit_valid;
    if (step && unit_valid) begin
      out_data <= unit;
      out_time_hi <= unit_time_hi;
      out_first <= unit_first;
      out_last <= unit_last;
    end
    if (unit_free) unit_valid <= queue_pop || (word_take && complete);
    if (queue_pop) begin
      unit_time_hi <= head.time_hi;
      unit_first <= 1'b1;
      unit_last <= !head.record.snapshot;
      in_snapshot <= head.record.snapshot;
    end else if (word_take) begin
      unit_first  <= 1'b0;
      unit_last   <= last;
      in_snapshot <= !last;
    end
    if (rst) begin
      out_valid   <= 1'b0;
      unit_valid  <= 1'b0;
      in_snapshot <= 1'b0;
    end
  end

  // What waits for an input does not count: a frame for its record or the reverse, a unit
  // for out_ready.
  assign busy = pair || read_load || word_load || place_left || (step && (out_valid || unit_valid)) ||
                (unit_free && (queue_valid || in_snapshot)) ||
                (!queue_valid && queue_free != (QUEUE_LOG2 + 1)'(Queue)) ||
                (!ended_valid && ended_free != (INFLIGHT_LOG2 + 1)'(Inflight)) ||
                (!record_valid && record_free != (INFLIGHT_LOG2 + 1)'(Inflight));
endmodule
