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

    input logic [15:0] snapshot_bytes,  // multiple of 32; stands still while frames are wanted

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
  localparam int unsigned SnapWords = 1 << SNAP_LOG2;
  localparam int unsigned Inflight = 1 << INFLIGHT_LOG2;
  localparam int unsigned Queue = 1 << QUEUE_LOG2;
  // Frames that may be between admission and this module when tap_room falls.
  localparam int unsigned Slack = 16;

  // Of a frame in the snapshot buffer: at 64 bits the words, at 512 the units.
  typedef logic [10:0] pieces_t;
  typedef struct packed {
    pieces_t     pieces;
    logic [15:0] length;
    logic        error;
    logic        truncated;
    logic        wanted;
    logic        taken;      // wanted, and has a place in the queue
    logic        snapshot;   // bytes of it are in the snapshot buffer
    logic        missed;     // they should be, but there was no room
  } ended_t;

  // ---- Beats: length, snapshot ----

  logic [15:0] frame_length, done_bytes, length;
  logic frame_wanted, wanted, frame_taken, taken, frame_fits, fits;
  logic [QUEUE_LOG2:0] places;  // entries in the queue and frames that will come there
  logic [SNAP_LOG2:0] snap_wr, snap_wr_next, snap_whole, snap_rd;
  logic snap_beat, snap_full;
  logic place_taken, place_left;
  pieces_t frame_pieces, pieces;

  assign done_bytes = in_sof ? 16'd0 : frame_length;
  always_comb begin
    length = '0;
    if (in_valid) length = done_bytes + (in_last ? 16'(kept_bytes(64'(in_keep))) : 16'(Bytes));
  end
  assign wanted = in_sof ? in_wanted : frame_wanted;
  assign taken = in_sof ? in_wanted && places != (QUEUE_LOG2 + 1)'(Queue) : frame_taken;
  assign place_taken = in_valid && in_sof && taken;

  // Words up to snap_whole are of ended frames and may be read; those behind belong to the
  // frame that is coming in and are taken back when one of them finds no room.
  assign snap_beat = in_valid && taken && (in_sof || frame_fits) && done_bytes < snapshot_bytes && in_keep[0];
  assign snap_full = snap_wr - snap_rd == (SNAP_LOG2 + 1)'(SnapWords);
  assign fits = (in_sof || frame_fits) && !(snap_beat && snap_full);
  always_comb begin
    snap_wr_next = snap_wr;
    if (snap_beat) snap_wr_next = snap_full ? snap_whole : snap_wr + 1'b1;
  end

  // snapshot_bytes is one of whole units.
  always_comb begin
    pieces = in_sof ? '0 : frame_pieces;
    if (snap_beat) begin
      automatic
      logic
      two = DATA_W == 512 && in_keep[Bytes/2] && (done_bytes | 16'd32) < snapshot_bytes;
      pieces = pieces + (two ? 11'd2 : 11'd1);
    end
  end

  function automatic logic [DATA_W-1:0] cut(input logic [DATA_W-1:0] data,
                                            input logic [Bytes-1:0] keep);
    for (int unsigned i = 0; i < Bytes; i++) cut[i*8+:8] = keep[i] ? data[i*8+:8] : 8'd0;
  endfunction

  logic [DATA_W-1:0] snap[SnapWords];
  always_ff @(posedge clk) begin
    if (snap_beat && !snap_full)
      snap[snap_wr[SNAP_LOG2-1:0]] <= in_last ? cut(in_data, in_keep) : in_data;
  end

  always_ff @(posedge clk) begin
    if (in_valid) begin
      frame_length <= length;
      frame_wanted <= wanted;
      frame_taken  <= taken;
      frame_fits   <= fits;
      frame_pieces <= pieces;
    end
    if (in_valid) begin
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
  record_t record, entry;
  logic [63:0] stamp;

  assign ended_in = '{
          pieces: pieces,
          length: length,
          error: in_error,
          truncated: in_truncated,
          wanted: wanted,
          taken: taken,
          snapshot: taken && fits && snapshot_bytes != 0 && length != 0,
          missed: taken && !fits
      };
  assign pair = ended_valid && record_valid;

  mw_fifo #(
      .WIDTH($bits(ended_t)),
      .DEPTH_LOG2(INFLIGHT_LOG2)
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
      .WIDTH(64 + UnitW),
      .DEPTH_LOG2(INFLIGHT_LOG2)
  ) u_record (
      .clk,
      .rst,
      .in_valid(rec_valid),
      .in_ready(record_room),
      .in_data({rec_stamp, rec}),
      .out_valid(record_valid),
      .out_ready(pair),
      .out_data({stamp, record}),
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
    entry = record;
    entry.time_lo = stamp[31:0];
    entry.length = ended.length;
    entry.error = ended.error;
    entry.truncated = ended.truncated;
    entry.snapshot = ended.snapshot;
  end

  assign done_captured = pair && ended.wanted;
  assign cnt_record = pair && ended.taken;
  assign cnt_lost = pair && ended.wanted && !ended.taken;
  assign cnt_snapshot_lost = pair && ended.missed;

  // ---- Queue towards the host ----

  logic queue_valid, queue_room, queue_pop;
  logic [QUEUE_LOG2:0] queue_free;
  record_t head;
  logic [31:0] head_time_hi;
  pieces_t head_pieces;

  mw_fifo #(
      .WIDTH($bits(pieces_t) + 32 + UnitW),
      .DEPTH_LOG2(QUEUE_LOG2)
  ) u_queue (
      .clk,
      .rst,
      .in_valid(cnt_record),
      .in_ready(queue_room),
      .in_data({ended.pieces, stamp[63:32], entry}),
      .out_valid(queue_valid),
      .out_ready(queue_pop),
      .out_data({head_pieces, head_time_hi, head}),
      .free(queue_free)
  );

  always_ff @(posedge clk) if (!rst) assert (queue_room || !cnt_record);

  assign place_left = queue_pop;

  // The next word of the snapshot buffer waits in a register.
  logic word_valid, word_pop, word_load;
  logic [DATA_W-1:0] word;
  assign word_load = snap_rd != snap_whole && (!word_valid || word_pop);

  always_ff @(posedge clk) if (word_load) word <= snap[snap_rd[SNAP_LOG2-1:0]];

  always_ff @(posedge clk) begin
    if (word_pop) word_valid <= 1'b0;
    if (word_load) begin
      snap_rd <= snap_rd + 1'b1;
      word_valid <= 1'b1;
    end
    if (rst) begin
      snap_rd <= '0;
      word_valid <= 1'b0;
    end
  end

  // ---- Units ----

  logic step;  // the output register is free
  logic in_snapshot;
  pieces_t pieces_left;
  logic unit_valid, unit_last, unit_take;
  logic [UnitW-1:0] unit;

  assign step = !out_valid || out_ready;
  assign queue_pop = step && !in_snapshot && queue_valid;
  assign unit_last = pieces_left == 11'd1;
  assign unit_take = step && in_snapshot && unit_valid;

  if (DATA_W == 512) begin : g_split
    logic upper;
    assign unit_valid = word_valid;
    assign unit = upper ? word[511:256] : word[255:0];
    assign word_pop = unit_take && (upper || unit_last);
    always_ff @(posedge clk) begin
      if (queue_pop) pieces_left <= head_pieces;
      else if (unit_take) pieces_left <= pieces_left - 1'b1;
      if (unit_take) upper <= !upper && !unit_last;
      if (rst) upper <= 1'b0;
    end
  end else begin : g_gather
    logic [1:0] place;
    logic [UnitW-1:0] gathered;  // zero from `place` on
    logic complete;
    assign complete = place == 2'd3 || pieces_left == 11'd1;
    assign unit_valid = word_valid && complete;
    assign unit = gathered | UnitW'(word) << {place, 6'd0};
    assign word_pop = in_snapshot && word_valid && (complete ? step : 1'b1);
    always_ff @(posedge clk) begin
      if (queue_pop) begin
        pieces_left <= head_pieces;
        gathered <= '0;
      end else if (word_pop) begin
        pieces_left <= pieces_left - 1'b1;
        gathered <= complete ? '0 : unit;
      end
      if (rst) place <= '0;
      else if (word_pop) place <= complete ? 2'd0 : place + 1'b1;
    end
  end

  always_ff @(posedge clk) begin
    if (queue_pop) begin
      out_data <= head;
      out_time_hi <= head_time_hi;
      out_last <= !head.snapshot;
    end else if (unit_take) begin
      out_data <= unit;
      out_last <= unit_last;
    end
    if (step) begin
      out_valid <= queue_pop || unit_take;
      out_first <= queue_pop;
    end
    if (queue_pop) in_snapshot <= head.snapshot;
    else if (unit_take && unit_last) in_snapshot <= 1'b0;
    if (rst) begin
      out_valid   <= 1'b0;
      out_first   <= 1'b0;
      in_snapshot <= 1'b0;
    end
  end

  // What waits for an input does not count: a frame for its record or the reverse, a unit
  // for out_ready.
  assign busy = pair || (step && (out_valid || queue_valid || in_snapshot)) ||
                (!queue_valid && queue_free != (QUEUE_LOG2 + 1)'(Queue)) ||
                (!ended_valid && ended_free != (INFLIGHT_LOG2 + 1)'(Inflight)) ||
                (!record_valid && record_free != (INFLIGHT_LOG2 + 1)'(Inflight));
endmodule
