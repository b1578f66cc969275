// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The AXI4 master obeys the rules of its bus (ARM IHI 0022H; the sections stand at the
// assertions): what is valid stands until it is taken, and waits for no READY; bursts are of whole
// 32-byte beats and cross no 4 KiB; WLAST comes with exactly the last beat; no data goes out before
// its address.
//
// And what the host relies upon: every burst lies in its block of the ring, and that block is not
// the host's. A header goes out when all bursts of its block have been answered, none of them
// follows it, and the block is announced when the header has been answered.
//
// Assumed: responses come for bursts whose last beat was taken; entries have as many units as their
// records say, and come while a capture runs; the host takes blocks in order, and only announced
// ones. The payload decides nothing here; any value stands for it.
//
// uses: mw_crc32c mw_fifo mw_fifo_proof
// with: mw_block_writer: logic [UnitW-1:0] data; => logic [UnitW-1:0] data, anyseq_payload;
// with: mw_block_writer: beats_header ? header_units[beat[2:0]] : data => anyseq_payload
// with: mw_block_writer: .WIDTH(UnitW) => .WIDTH(1)
// with: mw_block_writer: .in_data(summed_unit) => .in_data(1'b0)
// with: mw_block_writer: .out_data(data) => .out_data()
// induction: 3 -GFIFO_LOG2=7
// cover: 36 -GFIFO_LOG2=5
// mutant: mw_block_writer: burst_valid && m_axi_awready => m_axi_awready
// mutant: mw_block_writer: .out_ready(m_axi_awready && beats_room) => .out_ready(beats_room)
// mutant: mw_block_writer: m_axi_awvalid = burst_valid => m_axi_awvalid = m_axi_awready && burst_valid
// mutant: mw_block_writer: assign w_step = !m_axi_wvalid || m_axi_wready => assign w_step = 1'b1
// mutant: mw_block_writer: assign w_last = beat == beats_len => assign w_last = beat + 1'b1 == beats_len
// mutant: mw_block_writer: {next_addr, 7'(HeaderUnits)} => {next_addr, 7'd127}
// mutant: mw_block_writer: if (closed) slot_target <= issued; => if (closed) slot_target <= issued - 1'b1;
// mutant: mw_block_writer: slot_target <= issued + 1'b1 => slot_target <= issued
// mutant: mw_block_writer: && slot_reached && !push_header && !rst => && !push_header && !rst
// mutant: mw_block_writer: < 32'(ring_blocks) => <= 32'(ring_blocks)
module mw_block_writer_proof
  import mw_pkg::*;
#(
    parameter int unsigned FIFO_LOG2
) (
    input logic             clk,
    input logic             rst,
    input logic             in_valid,
    input logic             in_ready,
    input logic [UnitW-1:0] in_data,
    input logic             in_first,
    input logic             in_last,
    input logic [     31:0] ring_consumed,
    input logic [     31:0] ring_produced,
    input logic             sources_busy,
    input logic             capture_active,
    input logic [     15:0] capture_snapshot,
    input logic [     63:0] m_axi_awaddr,
    input logic [      7:0] m_axi_awlen,
    input logic [      2:0] m_axi_awsize,
    input logic [      1:0] m_axi_awburst,
    input logic             m_axi_awvalid,
    input logic             m_axi_awready,
    input logic [    255:0] m_axi_wdata,
    input logic [     31:0] m_axi_wstrb,
    input logic             m_axi_wlast,
    input logic             m_axi_wvalid,
    input logic             m_axi_wready,
    input logic             m_axi_bvalid,
    input logic             m_axi_bready,
    // inside
    input logic [    63:12] base,
    input logic [     22:0] block_bytes,
    input logic [     16:0] ring_blocks,
    input logic             open,
    input logic             push_burst,
    input logic             push_header,
    input logic             announce,
    input logic [     63:0] block_number,
    input logic [     63:0] next_number,
    input logic [     15:0] next_index,
    input logic [    63:12] block_addr,
    input logic [    63:12] next_addr,
    input logic [    63:12] slot_addr,
    input logic [     17:0] block_used,
    input logic [      3:0] burst_units,
    input logic [     63:5] burst_addr,
    input logic [     15:0] issued,
    input logic [     15:0] answered,
    input logic             slot_used,
    input logic             slot_sent,
    input logic [     15:0] slot_target,
    input logic             slot_reached,
    input logic             closed,
    input logic             header_due,
    input logic             crc_busy,
    input logic [     18:0] room,
    input logic [     18:0] room_less,
    input logic             next_wraps,
    input logic             begin_block,
    input logic             start,
    input logic             unit_valid,
    input logic             unit_first,
    input logic             unit_last,
    input logic             unit_suits,
    input logic             opened,
    input logic             started,
    input logic             burst_ends,
    input logic             mid_entry
);
  localparam logic [2:0] Idle = 3'd0, Run = 3'd1, Drain = 3'd2, Final = 3'd3, Failed = 3'd4;
  logic [2:0] state;
  assign state = mw_block_writer.state;

  // ---- What comes in ----
  record_t record;
  logic [15:0] bytes;
  logic [9:0] entry, left;  // units of the entry that comes: all; those still to come
  assign record = in_data;
  assign bytes = !record.snapshot ? '0 : record.length < capture_snapshot ? record.length :
          capture_snapshot;
  assign entry = 10'((17'(bytes) + 17'd31) >> 5) + 1'b1;
  always_ff @(posedge clk) begin
    if (in_valid && in_ready) left <= (in_first ? entry : left) - 1'b1;
    if (rst) left <= '0;
  end
  logic [31:0] consumed;
  logic was_active;
  always_ff @(posedge clk) {consumed, was_active} <= {ring_consumed, capture_active && !rst};
  always_comb begin
    if (in_valid) begin
      assume (state != Idle && state != Final);
      assume (in_first == (left == '0));
      assume (in_last == ((in_first ? entry : left) == 10'd1));
    end
    if (left != '0) assume (sources_busy || in_valid);
    if (capture_active) begin
      assume (ring_produced - ring_consumed <= 32'(ring_blocks));
      if (was_active) assume (ring_consumed - consumed <= ring_produced - consumed);
    end
  end

  // Of the closed block: its header is filled a clock later.
  logic [63:0] slot_number;
  logic [63:12] slot_place;
  logic [15:0] target;
  logic reached;
  assign slot_number = closed ? block_number : mw_block_writer.header.number;
  assign slot_place = closed ? block_addr : slot_addr;
  assign target = closed ? issued : slot_target;
  assign reached = 16'(answered - target) < 16'h8000;
  logic was_started, was_begun, was_opened;  // in the clock before
  always_ff @(posedge clk)
    {was_started, was_begun, was_opened} <= rst ? '0 : {started, begin_block, opened};

  // ---- Bursts ----
  logic push, aw, w, w_end, b;
  assign push = push_burst || push_header;
  assign aw = m_axi_awvalid && m_axi_awready;
  assign w = m_axi_wvalid && m_axi_wready;
  assign w_end = w && m_axi_wlast;
  assign b = m_axi_bvalid && m_axi_bready;

  // Bursts that have been made and not answered, those of which the address has been taken and the
  // last beat has not, those that wait for their response.
  logic [15:0] made, begun, ended;
  always_ff @(posedge clk) begin
    made  <= made + 16'(push) - 16'(b);
    begun <= begun + 16'(aw) - 16'(w_end);
    ended <= ended + 16'(w_end) - 16'(b);
    if (rst) {made, begun, ended} <= '0;
  end
  always_comb if (m_axi_bvalid) assume (ended != '0);  // A3.3.1

  // One burst, any, from its making to its response.
  logic anyseq_watch;
  logic watched, is_header, has_begun, has_ended;
  logic [63:0] number;  // of its block
  logic [63:5] addr;
  logic [ 3:0] len;
  logic [15:0] w_ahead, b_ahead;  // last beats and responses before its own
  logic [7:0] beats;
  logic mine;  // its address is taken now
  logic pushes;  // it stands before its buffer
  assign mine = aw && mw_block_writer.u_bursts.proof.next;
  always_ff @(posedge clk) begin
    pushes <= !watched && anyseq_watch && push && !rst;
    if (watched) begin
      if (mine) begin
        has_begun <= 1'b1;
        w_ahead   <= begun - 16'(w_end);
      end
      if (has_begun && !has_ended) begin
        if (w_ahead != '0) w_ahead <= w_ahead - 16'(w_end);
        else if (w) begin
          beats <= beats + 1'b1;
          has_ended <= m_axi_wlast;
        end
      end
      if (b) begin
        b_ahead <= b_ahead - 1'b1;
        watched <= b_ahead != '0;
      end
    end else if (anyseq_watch && push) begin
      {watched, has_begun, has_ended} <= 3'b100;
      is_header <= push_header;
      number <= push_header ? slot_number : block_number;
      {addr, len} <= {mw_block_writer.burst_in.addr, mw_block_writer.burst_in.len};
      b_ahead <= made - 16'(b);
      beats <= '0;
    end
    if (rst) watched <= 1'b0;
  end
  always_comb begin
    assume (mw_block_writer.u_bursts.proof.anyseq_watch == pushes);
    assume (mw_block_writer.u_beats.proof.anyseq_watch == mine);
  end

  logic aw_due;  // a burst waits whose address can be shown
  logic was_reset, aw_waits, w_waits;
  logic [ 76:0] aw_shown;
  logic [288:0] w_shown;
  always_ff @(posedge clk) begin
    was_reset <= rst;
    aw_due <= made - begun - ended - 16'(mw_block_writer.pushed) != 16'(aw) && !rst;
    aw_waits <= m_axi_awvalid && !m_axi_awready && !rst;
    w_waits <= m_axi_wvalid && !m_axi_wready && !rst;
    aw_shown <= {m_axi_awaddr, m_axi_awlen, m_axi_awsize, m_axi_awburst};
    w_shown <= {m_axi_wdata, m_axi_wstrb, m_axi_wlast};
  end

  // ---- Aids ----
  logic [4:0] pages_log2;  // of a block
  always_comb begin
    pages_log2 = '0;
    for (int i = 0; i <= 10; i++) if (block_bytes[12+i]) pages_log2 = 5'(i);
  end
  function automatic logic [63:12] place(input logic [63:0] number);  // in the ring
    return base + ((52'(number) & 52'(ring_blocks - 1'b1)) << pages_log2);
  endfunction
  logic to_begin, to_end;  // the burst waits for its address, its data to be taken
  assign to_begin = mw_block_writer.u_bursts.proof.watched;
  assign to_end   = mw_block_writer.u_beats.proof.watched;
  logic w_last_shown;
  logic [15:0] block_bursts;  // of the open block
  assign w_last_shown = m_axi_wvalid && m_axi_wlast;
  assign block_bursts = open ? 16'(block_used >> 4) : '0;

  always_comb begin
    if (!rst) begin
      reset : assert (!was_reset || (!m_axi_awvalid && !m_axi_wvalid));  // A3.1.2
      aw_stands :  // A3.2.1, A3.2.2
      assert (!aw_waits || (m_axi_awvalid &&
          {m_axi_awaddr, m_axi_awlen, m_axi_awsize, m_axi_awburst} == aw_shown));
      aw_prompt :
      assert (!aw_due || begun >= 16'd16 || m_axi_awvalid);  // A3.2.1: waits for no READY
      w_stands :
      assert (!w_waits || (m_axi_wvalid && {m_axi_wdata, m_axi_wstrb, m_axi_wlast} == w_shown));
      ready : assert (m_axi_bready);
      // A3.4.1
      whole :
      assert (m_axi_awsize == 3'd5 && m_axi_awburst == 2'b01 && m_axi_awaddr[4:0] == '0 &&
          &m_axi_wstrb);
      crosses : assert (!watched || 8'(addr[11:5]) + 8'(len) < 8'd128);
      address : assert (!mine || (m_axi_awaddr == {addr, 5'd0} && m_axi_awlen == 8'(len)));
      follows : assert (!m_axi_wvalid || begun != '0);
      last :
      assert (!watched || !has_begun || has_ended || w_ahead != '0 || !m_axi_wvalid ||
          m_axi_wlast == (beats == 8'(len)));

      in_block : assert (!watched || addr[63:12] - (place(number)) < 52'(block_bytes >> 12));
      not_hosts : assert (!watched || 32'(number) - ring_consumed < 32'(ring_blocks));
      header_last : assert (!watched || is_header || !push_header || number != slot_number);
      no_more : assert (!watched || !is_header || !push_burst || block_number != number);
      answered_first : assert (!watched || !is_header || !announce);
    end
  end

  always_comb begin
    if (!rst) begin
      // From its making to its end.
      aux_made :
      assert (made == issued - answered &&
          made == begun + ended + 16'(mw_block_writer.u_bursts.proof.count) + 16'(mw_block_writer.pushed));
      aux_begun : assert (begun == 16'(mw_block_writer.u_beats.proof.count) + 16'(w_last_shown));
      aux_bounds : assert (begun < 64 && ended <= made && made < 16'h7000);
      aux_stage : assert (to_begin == (watched && !has_begun && !pushes));
      aux_pushes :
      assert (!pushes || (watched && !has_begun && mw_block_writer.pushed &&
          mw_block_writer.burst_made == {is_header, len, addr}));
      aux_both : assert (!watched || has_begun || !has_ended);
      aux_word :
      assert (!to_begin || mw_block_writer.u_bursts.proof.word == {is_header, len, addr});
      aux_ended : assert (!watched || !has_begun || !has_ended || !to_end);
      aux_beats :
      assert (!to_end ||
          (watched && has_begun && !has_ended &&
          mw_block_writer.u_beats.proof.word == {is_header, len} &&
           w_ahead == 16'(mw_block_writer.u_beats.proof.ahead) + 16'(w_last_shown)));
      aux_last :
      assert (!watched || !has_begun || has_ended || to_end ||
          (w_ahead == 0 && w_last_shown && beats == 8'(len)));
      aux_beat :
      assert (!watched || !has_begun || has_ended || !to_end || w_ahead != 0 ||
          (mw_block_writer.beat == beats[3:0] + 4'(m_axi_wvalid) && beats <= 8'(len)));
      aux_zero : assert (!watched || !(!has_begun || w_ahead != 0) || beats == 0);
      aux_begin :
      assert (mw_block_writer.beat == 0 || (mw_block_writer.u_beats.proof.count != 0 && !w_last_shown));
      aux_order :
      assert (!watched || (b_ahead < made &&
        (!has_begun ? b_ahead == begun + ended + 16'(pushes ? mw_block_writer.u_bursts.proof.count
                                                     : mw_block_writer.u_bursts.proof.ahead)
         : !has_ended ? b_ahead == ended + w_ahead
         : b_ahead < ended)));
      aux_region : assert (!watched || 5'(addr[8:5]) + 5'(len) < 5'd16);

      // What comes in.
      aux_unit : assert (!unit_valid || unit_last == (left == '0));
      aux_first : assert (!unit_valid || !unit_first || !mid_entry);
      aux_fits :
      assert (!unit_valid || !unit_first || !open || !unit_suits ||
              20'(block_used) + 20'(left) + 20'd1 <= 20'(block_bytes >> 5));
      aux_mid : assert (!mid_entry || (open && (unit_valid ? !unit_first : left != '0)));
      aux_inner :
      assert ((unit_valid ? unit_first : left == '0) || mid_entry || state == Idle || state == Failed);
      aux_room :
      assert (!open || 20'(block_used) + (mid_entry ? 20'(left) + 20'(unit_valid) :
          '0) <= 20'(block_bytes >> 5));
      aux_snapshot :
      assert (state == Idle || (23'(capture_snapshot) + 23'd192 <= block_bytes &&
          capture_snapshot[4:0] == '0 && capture_snapshot <= 16192));
      aux_sizes :
      assert (state == Idle || (block_bytes[11:0] == '0 && block_bytes != 0 &&
          (block_bytes & (block_bytes - 1'b1)) == '0 &&
        ring_blocks != 0 && (ring_blocks & (ring_blocks - 1'b1)) == '0));
      aux_still : assert ((state != Idle && state != Final) || (left == '0 && !unit_valid));
      aux_left : assert (16'(left) <= capture_snapshot >> 5 || left == '0);

      // The open block.
      aux_left_over :
      assert (!open || (19'(block_used) + room + 19'd1 == 19'(block_bytes >> 5) &&
          room_less == room - 1'b1));
      aux_block_room :
      assert (state == Idle || mw_block_writer.block_room == 19'(block_bytes >> 5) - 19'd5);
      aux_fresh :
      assert (open || closed || started || state == Idle || state == Failed ||
          (room == 19'(block_bytes >> 5) - 19'd6 && room_less == room - 1'b1));
      aux_started : assert ((!started && !was_started) || (!open && !mw_block_writer.ring_room));
      aux_taken :
      assert (state == Idle || state == Failed || started || opened || was_opened ||
          mw_block_writer.ring_taken == next_number[31:0] - consumed);
      aux_opened : assert (opened == was_begun && (!opened || open));
      aux_wraps :
      assert (state == Idle || started || was_begun || was_opened ||
          next_wraps == (17'(next_index) + 17'd1 == ring_blocks));
      aux_rooms :
      assert (32'(mw_block_writer.burst_free) >=
          32'(mw_block_writer.burst_room) + 32'(mw_block_writer.pushed) &&
          32'(mw_block_writer.data_free) >= 32'(mw_block_writer.data_room) + 32'(mw_block_writer.stored));
      aux_fill :
      assert (!open || burst_addr == {block_addr, 7'd0} + 59'(block_used) - 59'(burst_units));
      aux_units :
      assert (open ? burst_units <= block_used[3:0] && block_used >= 5 : burst_units == '0);
      aux_ends : assert (!open || burst_ends == (block_used[3:0] == 4'd15));
      aux_place : assert (!open || block_addr == place(block_number));
      aux_next :
      assert (state == Idle || (next_index == (16'(next_number) & 16'(ring_blocks - 1'b1)) &&
          next_addr == base + (52'(next_index) << pages_log2)));
      aux_number : assert (!open || next_number + 64'(opened) == block_number + 1'b1);
      aux_free :
      assert (!open || (32'(block_number) - ring_consumed < 32'(ring_blocks) &&
          32'(block_number) - ring_produced <= 1));
      aux_ring :
      assert (!mw_block_writer.ring_room || open || closed || mw_block_writer.step == 4'd1 ||
              state == Idle || state == Failed ||
          32'(next_number) - ring_consumed < 32'(ring_blocks));

      // The closed block.
      aux_closed :
      assert (!closed || (slot_used && !mw_block_writer.slot_ready && !slot_sent && !header_due &&
          !open && mw_block_writer.step == '0));
      aux_busy :
      assert (crc_busy == (closed || mw_block_writer.step != '0) && mw_block_writer.step <= 4'd9);
      aux_due :
      assert (!header_due || state == Failed ||
          (slot_used && mw_block_writer.slot_ready && !slot_sent && slot_reached));
      aux_reached : assert (!slot_used || closed || state == Failed || !slot_reached || reached);
      aux_slot_number :
      assert (state == Failed || !slot_used || slot_number + 1'b1 == (open ? block_number :
          next_number));
      aux_slot_place : assert (!slot_used || slot_place == place(slot_number));
      aux_slot_free : assert (!slot_used || (32'(slot_number) - ring_consumed < 32'(ring_blocks)));
      aux_produced :
      assert (state == Idle || state == Failed || ring_produced == 32'(slot_used ? slot_number :
          open ? block_number : next_number));
      aux_slot_failed : assert (!slot_used || ring_produced == 32'(slot_number));
      aux_since : assert (state == Failed || !slot_used || issued - target <= block_bursts);
      aux_target :
      assert (state == Failed || !slot_used || reached || target - answered <= 16'h2002);
      aux_target2 :
      assert (state == Failed || !slot_used || !reached || answered - target <= issued - target);
      aux_made1 : assert (slot_used || state == Failed || made <= block_bursts);
      aux_made2 : assert (made <= 16'h2002 + (state == Failed && !open ? 16'h2001 : block_bursts));
      aux_idle : assert (state != Idle || (!open && !slot_used && made == '0));
      aux_final : assert (state != Final || !mw_block_writer.final_closed || (!open && slot_used));
      aux_running : assert ((state != Run && state != Drain) || !mw_block_writer.final_closed);
      aux_state : assert (state <= Failed);
      aux_sent : assert (!slot_sent || !slot_used || mw_block_writer.slot_ready);

      // Whose the burst is.
      aux_data :
      assert (!watched || is_header || state == Failed || (open && number == block_number) ||
        (slot_used && !slot_sent && number == slot_number && !reached &&
          b_ahead < target - answered));
      aux_header :
      assert (!watched || !is_header || state == Failed ||
        (slot_used && slot_sent && number == slot_number && !reached &&
          b_ahead < target - answered));
      aux_header_before : assert (!watched || !is_header || !open || number + 1'b1 == block_number);
      aux_not_announced : assert (!watched || 32'(number) - ring_produced <= 1);
    end
  end

  always_comb begin
    if (!rst) begin
      waits : cover (aw_waits && w_waits && watched && has_begun && !is_header && len == 4'd1);
      complete : cover (announce && !watched);
    end
  end
endmodule

bind mw_block_writer mw_block_writer_proof #(.FIFO_LOG2(FIFO_LOG2)) proof (.*);
