// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Packs entries into blocks and writes them into the ring in host memory (docs/formats.md).
//
// A block's units go out in bursts while it fills. Its header follows when all of them have
// been acknowledged, and the block is announced when the header has been: whatever the host
// sees of a block is whole. Meanwhile the next block fills already. All writes carry the
// same ID, so responses come in order and counting them is enough.
//
// Without a free block in the ring the units wait, and the taps lose what they cannot keep.
module mw_block_writer
  import mw_pkg::*;
#(
    parameter int unsigned FIFO_LOG2 = 7  // units between packing and the bus, 5 (two bursts) to 12
) (
    input logic clk,
    input logic rst,

    input logic                   capture,            // level; blocks are written from its rise on
    input logic                   inflight_captured,  // captured frames have not yet come to rest
    input logic                   sources_busy,
    // Taken over when capture starts.
    input logic            [63:0] ring_base,          // aligned to a block, at least to 4096 bytes
    input logic            [ 4:0] ring_blocks_log2,   // 0 to 16
    input logic            [ 4:0] block_log2,         // 12 to 22
    input logic            [15:0] snapshot_bytes,     // multiple of 32
    input logic            [31:0] flush_ns,
    input logic            [31:0] ring_consumed,      // blocks that the host has taken
    input logic            [63:0] time_ns,
    input block_counters_t        counters,

    input  logic             in_valid,
    output logic             in_ready,
    input  logic [UnitW-1:0] in_data,
    input  logic [     31:0] in_time_hi,
    input  logic             in_first,
    input  logic             in_last,

    output logic recording,  // frames that begin now shall leave records
    output logic capture_active,  // from start until the final block is announced
    output logic [15:0] capture_snapshot,  // snapshot_bytes in force, so that an entry fits a block
    output logic [31:0] ring_produced,  // blocks announced
    output logic irq,  // pulse: a block was announced
    output logic dma_error,  // until the next start
    output logic [31:0] lost_records,  // of this capture, after dma_error

    output logic        busy,
    output logic        timer_valid,  // the open block is to be closed at timer_ns
    output logic [63:0] timer_ns,

    output logic [ 63:0] m_axi_awaddr,
    output logic [  7:0] m_axi_awlen,
    output logic [  2:0] m_axi_awsize,
    output logic [  1:0] m_axi_awburst,
    output logic         m_axi_awvalid,
    input  logic         m_axi_awready,
    output logic [255:0] m_axi_wdata,
    output logic [ 31:0] m_axi_wstrb,
    output logic         m_axi_wlast,
    output logic         m_axi_wvalid,
    input  logic         m_axi_wready,
    input  logic [  1:0] m_axi_bresp,
    input  logic         m_axi_bvalid,
    output logic         m_axi_bready
);
  if (FIFO_LOG2 < 5 || FIFO_LOG2 > 12) begin : g_bad
    $fatal(1, "mw_block_writer: FIFO_LOG2 must be between 5 and 12");
  end

  localparam int unsigned HeaderUnits = 5;
  localparam int unsigned HeaderBytes = 32 * HeaderUnits;
  localparam logic [31:0] Magic = 32'h3142_574d;
  localparam logic [15:0] Version = 16'd2;
  // Cycles for which everything must have been quiet before the final block is closed: the
  // counters in its header come a little after the units.
  localparam logic [3:0] Settle = 4'd8;

  typedef enum logic [2:0] {
    Idle,
    Run,
    Drain,  // capture has been cleared, frames are still under way
    Final,  // the final block is being closed and announced
    Failed  // after an error response: what comes is lost
  } state_e;

  typedef struct packed {
    logic [31:0] crc;
    logic [159:0] reserved;
    block_counters_t counters;
    logic [31:0] snapshot_bytes;
    logic [31:0] block_bytes;
    logic [31:0] used_bytes;
    logic [31:0] records;
    logic [63:0] first_seq;
    logic [63:0] time_ns;
    logic [63:0] number;
    logic [15:0] flags;
    logic [15:0] version;
    logic [31:0] magic;
  } block_header_t;  // 1280

  typedef struct packed {
    logic        header;  // data comes from the header, not from the buffer of units
    logic [3:0]  len;     // beats - 1
    logic [63:5] addr;
  } burst_t;

  function automatic logic [4:0] limit(input logic [4:0] value, input logic [4:0] lo,
                                       input logic [4:0] hi);
    return value < lo ? lo : value > hi ? hi : value;
  endfunction

  state_e state;
  logic   held_off;  // after an error capture must fall before it can start again
  logic start, active, quiet, announce, error_response;
  logic [3:0] settled;

  assign start  = state == Idle && capture && !held_off;
  assign active = state == Run || state == Drain;

  // ---- Configuration of the capture ----

  logic [63:12] base;
  logic [22:0] block_bytes, start_bytes;
  logic [18:0] block_room;  // units of a block besides its header
  logic [16:0] ring_blocks;
  logic [31:0] flush_after;
  logic [15:0] start_room;

  assign start_bytes = 23'd1 << limit(block_log2, 5'd12, 5'd22);
  assign start_room = start_bytes > 23'd16384 ? 16'(MaxFrame) : 16'(start_bytes - 23'(HeaderBytes + 32));

  always_ff @(posedge clk) begin
    if (start) begin
      base <= ring_base[63:12];
      block_bytes <= start_bytes;
      block_room <= 19'(start_bytes >> 5) - 19'(HeaderUnits);
      ring_blocks <= 17'd1 << limit(ring_blocks_log2, 5'd0, 5'd16);
      flush_after <= flush_ns;
      capture_snapshot <= snapshot_bytes < start_room ? snapshot_bytes & ~16'd31 : start_room;
    end
  end

  // ---- One unit waits here, with what decides on its block ----

  logic unit_valid, unit_first, unit_last, unit_load, unit_pop;
  logic [UnitW-1:0] unit;
  logic [63:0] unit_time;  // of the record
  logic unit_fits;  // its entry fits the block
  logic unit_near;  // its full time can be told from the block's
  logic unit_suits;  // both

  logic open;  // a block takes units
  logic accept, closed;  // closed: in the clock before
  logic [63:0] block_time;  // of the open block, else of the unit that will begin one
  logic [63:0] near_from, near_to;  // around it, biased
  logic [18:0] room, room_less;  // units besides a record; the same when the unit here has gone in

  record_t in_rec;
  logic [63:0] in_time;
  logic in_fits, in_near;
  assign in_rec = in_data;
  assign in_time = {in_time_hi, in_rec.time_lo};
  assign in_ready = !unit_valid || unit_pop;
  assign unit_load = in_valid && in_ready;

  function automatic logic fits(input record_t begins, input logic [15:0] snapshot,
                                input logic [18:0] left);
    return !left[18] && (!begins.snapshot || 24'(begins.length) <= {left, 5'd0} ||
                         24'(snapshot) <= {left, 5'd0});
  endfunction
  // For a comparison without sign: in the first second near_from is less than zero.
  function automatic logic [63:0] biased(input logic [63:0] t);
    return {!t[63], t[62:0]};
  endfunction
  always_comb begin
    in_fits = fits(in_rec, capture_snapshot, room);
    if (accept) in_fits = fits(in_rec, capture_snapshot, room_less);
  end
  assign unit_suits = unit_fits && unit_near;
  assign in_near = biased(in_time) >= near_from && biased(in_time) < near_to;

  always_ff @(posedge clk) begin
    if (unit_load) begin
      unit <= in_data;
      unit_first <= in_first;
      unit_last <= in_last;
      unit_time <= in_time;
      unit_fits <= in_fits;
      unit_near <= in_near;
    end
    if (in_ready) unit_valid <= in_valid;
    if (rst) unit_valid <= 1'b0;
  end

  // ---- The open block ----

  logic mid_entry, flush_due, flush_passed, final_closed;
  logic [17:0] block_used;  // units with the header
  logic burst_ends;  // the next one is the last before an address of 512 bytes
  logic [31:0] block_records;
  logic [63:0] block_number, next_number, block_seq, next_seq, flush_at;
  logic [63:12] block_addr, next_addr;
  logic [15:0] next_index;
  logic [31:0] ring_taken, ring_taken_next;  // blocks that are the host's or not yet announced
  logic ring_room, ring_room_next, started;
  logic unopened;  // a block may begin
  logic opened;  // one began in the clock before

  logic unit_goes;  // into the open block, or begins one
  logic want_close, close, drop, begin_block, abandon;
  logic slot_used;  // the block before is closed but not yet announced
  logic crc_busy, data_room, burst_room, header_due, push_header;
  logic next_wraps;  // the next block is the ring's last
  logic time_set;
  logic [63:0] time_new;

  assign flush_passed = open && time_ns >= flush_at;
  assign want_close = open && !mid_entry && state != Failed &&
                      (flush_due || state == Final || (unit_valid && !unit_suits));
  assign close = want_close && !slot_used && !crc_busy && burst_room;
  assign unit_goes = open ? mid_entry || (unit_suits && !flush_due) : ring_room;
  assign accept = unit_valid && unit_goes && active && !crc_busy && !header_due && data_room &&
                  burst_room;
  // A final block without a record begins by itself.
  assign begin_block = !open && (accept || (state == Final && !final_closed && !slot_used && ring_room));
  assign unopened = !open && (unit_valid || state == Final);
  assign abandon = state == Failed && open && burst_room;
  assign drop = unit_valid && (state == Idle || (state == Failed && !open && !slot_used));
  assign unit_pop = accept || drop;
  assign ring_taken_next = next_number[31:0] - ring_consumed;
  assign ring_room_next = ring_taken < 32'(ring_blocks);

  // A unit that comes while no block is open will begin one, and so will one that waited when the
  // block before was closed. No unit comes into the final block that begins by itself.
  assign time_set = (in_valid && !unit_valid && !open) || closed;
  assign time_new = unit_valid ? unit_time : in_time;
  always_ff @(posedge clk) begin
    if (time_set) begin
      block_time <= time_new;
      near_from  <= biased({time_new[63:30] - 1'b1, time_new[29:0]});
      near_to    <= biased({time_new[63:30] + 1'b1, time_new[29:0]});
    end
    if (unopened && state == Final) block_time <= time_ns;
    if (accept) begin
      room <= room - 1'b1;
      room_less <= room_less - 1'b1;
    end else if (!open) begin
      room <= block_room - 19'd1;
      room_less <= block_room - 19'd2;
    end
    closed <= close && !rst;
  end

  always_ff @(posedge clk) begin
    // A block begins only when the checksum of the one before is done, so two clocks are soon enough.
    ring_taken <= ring_taken_next;
    started <= start && !rst;
    ring_room <= ring_room_next && !start && !started;
    next_wraps <= 17'(next_index) + 17'd1 == ring_blocks;
    if (start) begin
      next_number <= '0;
      next_seq <= '0;
      next_index <= '0;
      next_addr <= ring_base[63:12];
    end
    // What will be the open block's if one begins.
    if (unopened) begin
      block_number <= next_number;
      block_seq <= next_seq;
      block_addr <= next_addr;
      flush_at <= time_ns + 64'(flush_after);
    end
    opened <= begin_block && !rst;
    if (opened) begin
      next_number <= next_number + 1'b1;
      if (next_wraps) begin
        next_index <= '0;
        next_addr  <= base;
      end else begin
        next_index <= next_index + 1'b1;
        next_addr  <= next_addr + 52'(block_bytes >> 12);
      end
    end
    // Counted ahead of `accept`, which is late and only enables.
    if (begin_block || accept) burst_ends <= open && block_used[3:0] == 4'd14;
    if (!open) block_used <= 18'(HeaderUnits) + 18'(accept);
    else if (accept) block_used <= block_used + 1'b1;
    if (!open) block_records <= 32'(accept && unit_first);
    else if (accept && unit_first) block_records <= block_records + 1'b1;
    if (accept && unit_first) next_seq <= next_seq + 1'b1;
    if (begin_block) open <= 1'b1;
    else if (close || abandon) open <= 1'b0;
    if (accept) mid_entry <= !unit_last;
    else if (abandon) mid_entry <= 1'b0;
    flush_due <= flush_passed && !close && !abandon;
    if (rst) begin
      open <= 1'b0;
      mid_entry <= 1'b0;
      flush_due <= 1'b0;
    end
  end

  // ---- Bursts: up to each 512 bytes of address, or what is left when the block closes ----

  logic [ 3:0] burst_units;  // in the data buffer and not yet in a burst
  logic [63:5] burst_addr;
  logic [15:0] issued, answered;  // bursts; never more than two blocks of them apart
  logic burst_full, push_burst, pushed;
  burst_t burst_in, burst_made, burst_out;
  logic [63:12] slot_addr;

  assign burst_full = accept && open && burst_ends;
  assign push_burst = burst_full || ((close || abandon) && burst_units != 0);

  always_comb begin
    burst_in.header = push_header;
    burst_in.len = push_header ? 4'(HeaderUnits - 1) : burst_full ? burst_units : burst_units - 4'd1;
    burst_in.addr = push_header ? {slot_addr, 7'd0} : burst_addr;
  end

  always_ff @(posedge clk) begin
    if (unopened) burst_addr <= {next_addr, 7'(HeaderUnits)};
    else if (burst_full) burst_addr <= {burst_addr[63:9] + 1'b1, 4'd0};
    if (burst_full || close || abandon) burst_units <= '0;
    else if (accept) burst_units <= burst_units + 1'b1;
    // That a burst ends is known late in a clock; its buffer learns it with the next.
    pushed <= (push_burst || push_header) && !rst;
    burst_made <= burst_in;
    if (push_burst || push_header) issued <= issued + 1'b1;
    if (m_axi_bvalid) answered <= answered + 1'b1;
    if (rst) begin
      burst_units <= '0;
      issued <= '0;
      answered <= '0;
    end
  end

  // ---- The closed block: its checksum, its header, its announcement ----

  block_header_t header;
  logic [HeaderUnits-1:0][UnitW-1:0] header_units;
  // 1 to HeaderUnits: this unit of the header enters the checksum; StepReady: that is ready.
  logic [3:0] step;
  localparam logic [3:0] StepLast = 4'(HeaderUnits);
  localparam logic [3:0] StepReady = 4'(HeaderUnits + 4);
  logic slot_ready, slot_sent;
  logic [15:0] slot_target;  // bursts that must have been answered
  logic slot_reached, slot_lost;
  logic header_summed;
  logic [31:0] crc;

  assign header_units = header;
  assign header_summed = step != 0 && step <= StepLast;
  assign push_header = header_due && burst_room && state != Failed;
  assign announce = slot_used && slot_sent && slot_reached && state != Failed;
  assign slot_lost = state == Failed && !open && slot_used && !closed;

  // What enters the checksum; units go into the data buffer from here, too.
  logic summed, summed_first, summed_cut, stored;
  logic [UnitW-1:0] summed_unit;
  always_ff @(posedge clk) begin
    summed <= (accept || header_summed) && !rst;
    stored <= accept && !rst;
    if (unit_valid || header_summed) begin
      summed_unit <= header_summed ? header_units[3'(step-4'd1)] : unit;
      summed_first <= header_summed ? step == 4'd1 && header.used_bytes == 32'(HeaderBytes) : !open;
      summed_cut <= step == StepLast;
      if (step == StepLast) summed_unit <= header_units[HeaderUnits-1] << 32;
    end
  end

  mw_crc32c u_crc (
      .clk,
      .valid(summed),
      .first(summed_first),
      .cut  (summed_cut),
      .data (summed_unit),
      .crc
  );

  always_ff @(posedge clk) begin
    if (closed) slot_target <= issued;
    else if (push_header) slot_target <= issued + 1'b1;
    slot_reached <= 16'(answered - slot_target) < 16'h8000 && !closed && !push_header;
    header_due   <= slot_used && slot_ready && !slot_sent && slot_reached && !push_header && !rst;
    if (close) header.flags <= {14'd0, flush_due && state != Final, state == Final};
    if (closed) begin
      header.magic <= Magic;
      header.version <= Version;
      header.number <= block_number;
      header.time_ns <= block_time;
      header.first_seq <= block_seq;
      header.records <= block_records;
      header.used_bytes <= 32'(block_used) << 5;
      header.block_bytes <= 32'(block_bytes);
      header.snapshot_bytes <= 32'(capture_snapshot);
      header.counters <= counters;
      header.reserved <= '0;
      slot_addr <= block_addr;
    end
    if (step == StepReady) header.crc <= crc;
    if (announce || slot_lost) slot_used <= 1'b0;
    if (push_header) slot_sent <= 1'b1;
    if (closed || step != 0) step <= step + 1'b1;
    if (step == StepReady) begin
      step <= '0;
      slot_ready <= 1'b1;
      crc_busy <= 1'b0;
    end
    if (close) begin
      slot_used  <= 1'b1;
      slot_ready <= 1'b0;
      slot_sent  <= 1'b0;
      crc_busy   <= 1'b1;
    end
    if (rst) begin
      step <= '0;
      crc_busy <= 1'b0;
      slot_used <= 1'b0;
      slot_ready <= 1'b0;
      slot_sent <= 1'b0;
    end
  end

  // ---- The capture as a whole ----

  assign error_response = m_axi_bvalid && m_axi_bresp[1];
  assign quiet = !inflight_captured && !sources_busy && !in_valid && !unit_valid;
  assign recording = state == Run;
  assign capture_active = state != Idle;

  // Frames are recorded while a capture runs, and it ends when their entries are in blocks.
  always_ff @(posedge clk) if (!rst) assert (!in_valid || active || state == Failed);

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= Idle;
      held_off <= 1'b0;
      settled <= '0;
      final_closed <= 1'b0;
      ring_produced <= '0;
      irq <= 1'b0;
      dma_error <= 1'b0;
      lost_records <= '0;
    end else begin
      settled <= quiet && settled != Settle ? settled + 1'b1 : quiet ? Settle : '0;
      irq <= announce;
      if (announce) ring_produced <= ring_produced + 1'b1;
      if (!capture) held_off <= 1'b0;
      unique case (state)
        Idle:
        if (start) begin
          state <= Run;
          final_closed <= 1'b0;
          ring_produced <= '0;
          dma_error <= 1'b0;
        end
        Run: if (!capture) state <= Drain;
        Drain: if (quiet && settled == Settle) state <= Final;
        Final: begin
          if (close) final_closed <= 1'b1;
          if (announce && final_closed) state <= Idle;
        end
        Failed:
        if (settled == Settle && quiet && !open && !slot_used && issued == answered) state <= Idle;
        default: state <= Idle;
      endcase
      if (error_response && state != Idle && state != Failed) begin
        state <= Failed;
        dma_error <= 1'b1;
        held_off <= 1'b1;
      end

      // Records of blocks that are never announced, and those that come too late for one.
      if (start) lost_records <= '0;
      else if (abandon) lost_records <= lost_records + block_records;
      else if (slot_lost) lost_records <= lost_records + header.records;
      else if (drop && unit_first) lost_records <= lost_records + 1'b1;
    end
  end

  assign timer_valid = open && !flush_due;
  assign timer_ns = flush_at;
  // The flush timer wakes the writer by itself.
  assign busy = start || (state == Run && !capture) || (held_off && !capture) ||
                (state == Final && ring_room) ||
                (quiet && (state == Drain || state == Failed)) || (state == Failed && open) ||
                unit_pop || unit_load || close || opened || slot_used || issued != answered ||
                ring_taken != ring_taken_next || ring_room != ring_room_next;

  // ---- AXI4 ----

  localparam int unsigned BurstsLog2 = 4;
  logic burst_valid, beats_room, beats_valid, beats_header, data_valid;
  logic [ FIFO_LOG2:0] data_free;
  logic [BurstsLog2:0] burst_free;
  logic [3:0] beats_len, beat;
  logic w_step, w_take, w_last;
  logic [UnitW-1:0] data;

  mw_fifo #(
      .WIDTH(UnitW),
      .DEPTH_LOG2(FIFO_LOG2),
      .READ(2)
  ) u_data (
      .clk,
      .rst,
      .in_valid(stored),
      .in_ready(),
      .in_data(summed_unit),
      .out_valid(data_valid),
      .out_ready(w_take && !beats_header),
      .out_data(data),
      .free(data_free)
  );

  mw_fifo #(
      .WIDTH($bits(burst_t)),
      .DEPTH_LOG2(BurstsLog2)
  ) u_bursts (
      .clk,
      .rst,
      .in_valid(pushed),
      .in_ready(),
      .in_data(burst_made),
      .out_valid(burst_valid),
      .out_ready(m_axi_awready && beats_room),
      .out_data(burst_out),
      .free(burst_free)
  );

  // At most one word goes in with each clock, and one is on its way into each buffer.
  always_ff @(posedge clk) begin
    data_room  <= data_free > 2 || rst;
    burst_room <= burst_free > 2 || rst;
  end

  assign m_axi_awvalid = burst_valid && beats_room;
  assign m_axi_awaddr  = {burst_out.addr, 5'd0};
  assign m_axi_awlen   = 8'(burst_out.len);
  assign m_axi_awsize  = 3'd5;  // 32 bytes
  assign m_axi_awburst = 2'b01;  // INCR

  // Bursts whose address has been taken; only their data goes out.
  mw_fifo #(
      .WIDTH(5),
      .DEPTH_LOG2(BurstsLog2)
  ) u_beats (
      .clk,
      .rst,
      .in_valid(burst_valid && m_axi_awready),
      .in_ready(beats_room),
      .in_data({burst_out.header, burst_out.len}),
      .out_valid(beats_valid),
      .out_ready(w_take && w_last),
      .out_data({beats_header, beats_len}),
      .free()
  );

  assign w_step = !m_axi_wvalid || m_axi_wready;
  assign w_take = w_step && beats_valid && (beats_header || data_valid);
  assign w_last = beat == beats_len;
  assign m_axi_wstrb = '1;
  assign m_axi_bready = 1'b1;

  always_ff @(posedge clk) begin
    if (w_take) begin
      m_axi_wdata <= beats_header ? header_units[beat[2:0]] : data;
      m_axi_wlast <= w_last;
    end
    if (w_step) m_axi_wvalid <= w_take;
    if (w_take) beat <= w_last ? '0 : beat + 1'b1;
    if (rst) begin
      m_axi_wvalid <= 1'b0;
      beat <= '0;
    end
  end
endmodule
