// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Works out what an event's changes do to the checksums of a frame. A checksum often stands
// before the bytes that change, so this is done ahead: of frames that wait in mw_path a second
// copy is kept, and when a verdict wants checksums mended, the old bytes are read from it as
// soon as they are there. One answer for each verdict that `mends`, in their order.
//
// A frame takes one cycle for each of: set, ecn, corrupt, and the ICRC if the UDP checksum is
// to follow its change; changes that share 8 bytes or lie in those of set are read with them.
// Each reads 16 bytes, from a multiple of 8 on:
//
//   request   offsets from the verdict; FIFO
//   work      waits for the bytes, issues the reads
//   a, b      the memory's two cycles; which bytes each checksum covers
//   c         old bytes
//   d         new bytes, both masked for each checksum
//   e to h    differences of 16-bit words added up, to one sum of the frame
//   sums      FIFO; RoCE waits for mw_crc32_change here
//   p, q, out the ICRC's own change in the UDP checksum
//
// Covered are: by the IPv4 header checksum the header; by that of TCP and UDP their header and
// data and the addresses; by the ICRC all from the IP header on but the fields that may change
// on the way (InfiniBand specification volume 1, annex A17). Lengths and protocol are taken as
// the frame came with them.
module mw_mend
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W = 512,  // 64 or 512
    parameter int unsigned FIFO_LOG2 = 10,  // 2**FIFO_LOG2 beats wait at most
    parameter int unsigned INFLIGHT_LOG2 = 8  // 2**INFLIGHT_LOG2 frames wait at most
) (
    input logic clk,
    input logic rst,
    // beats as they begin to wait
    input logic in_valid,
    input logic in_sof,
    input logic in_last,
    input logic [DATA_W-1:0] in_data,
    input logic [13:0] in_length,  // with in_last
    // one verdict a frame
    input logic v_valid,
    input verdict_t v,
    input logic v_mends,  // this one does
    output logic busy,  // this verdict is not taken: it must not change what checksums cover
    output logic out_valid,
    input logic out_ready,
    output mend_t out
);
  if ((DATA_W != 64 && DATA_W != 512) || FIFO_LOG2 < 2 || INFLIGHT_LOG2 < 1) begin : g_bad
    $fatal(1, "mw_mend: a parameter is out of its range");
  end

  localparam int unsigned Words = DATA_W / 64;  // of a beat
  localparam int unsigned AddrW = FIFO_LOG2 + $clog2(Words);  // of a word among all that wait
  localparam int unsigned Window = 16;  // bytes read at a time
  localparam int unsigned SumsLog2 = 5;  // frames at work: those in the pipelines' stages

  typedef logic [INFLIGHT_LOG2-1:0] number_t;
  typedef logic [10:0] word_t;  // of a frame
  typedef logic [Window-1:0] bytes_t;  // a bit for each byte of a window
  typedef logic [8*Window-1:0] window_t;

  // ---- The frames that wait: words of even and of odd number apart, so that any two
  // neighbours can be read at once; where each frame begins, and its length.
  localparam int unsigned BankWords = Words == 1 ? 1 : Words / 2;  // in a row
  localparam int unsigned BankRowsLog2 = Words == 1 ? FIFO_LOG2 - 1 : FIFO_LOG2;
  logic [FIFO_LOG2-1:0] wr_beat;
  logic [1:0] wr_bank;
  logic [BankRowsLog2-1:0] wr_row;
  logic [64*BankWords-1:0] wr_data[2];
  logic rd_en;
  logic [AddrW-2:0] rd_word[2];  // number of a word in its bank
  logic [64*BankWords-1:0] rd_data[2];
  logic [63:0] rd_old[2];  // two cycles later
  if (Words == 1) begin : g_narrow
    assign wr_bank = {wr_beat[0], !wr_beat[0]};
    assign wr_row  = wr_beat[FIFO_LOG2-1:1];
    assign wr_data = '{in_data, in_data};
    assign rd_old  = rd_data;
  end else begin : g_wide
    localparam int unsigned LaneW = $clog2(BankWords);
    logic [LaneW-1:0] lane[2], lane_q[2];
    assign wr_bank = 2'b11;
    assign wr_row  = wr_beat;
    for (genvar i = 0; i < int'(Words); i++) begin : g_word
      assign wr_data[i%2][64*(i/2)+:64] = in_data[64*i+:64];
    end
    for (genvar i = 0; i < 2; i++) begin : g_lane
      always_ff @(posedge clk) begin
        lane_q[i] <= lane[i];
        if (rd_en) lane[i] <= rd_word[i][LaneW-1:0];
      end
      assign rd_old[i] = rd_data[i][64*lane_q[i]+:64];
    end
  end
  for (genvar b = 0; b < 2; b++) begin : g_bank
    mw_ram #(
        .WIDTH(64 * BankWords),
        .ROWS_LOG2(BankRowsLog2)
    ) i_ram (
        .clk,
        .wr_en  (in_valid && wr_bank[b]),
        .wr_row,
        .wr_data(wr_data[b]),
        .rd_en,
        .rd_row (rd_word[b][AddrW-2-:BankRowsLog2]),
        .rd_data(rd_data[b])
    );
  end

  logic [FIFO_LOG2-1:0] start[1 << INFLIGHT_LOG2];
  logic [13:0] length[1 << INFLIGHT_LOG2];
  number_t frame;  // that comes in, or the next one
  logic open;  // it has begun
  logic [10:0] beats;  // of it are there
  always_ff @(posedge clk) begin
    if (in_valid) begin
      wr_beat <= wr_beat + 1'b1;
      beats   <= in_last ? '0 : beats + 1'b1;
      open    <= !in_last;
      if (in_sof) start[frame] <= wr_beat;
      if (in_last) begin
        length[frame] <= in_length;
        frame <= frame + 1'b1;
      end
    end
    if (rst) begin
      wr_beat <= '0;
      beats <= '0;
      open <= 1'b0;
      frame <= '0;
    end
  end

  // ---- Requests
  typedef struct packed {
    number_t     number;
    logic        ip4;
    logic        ip6;
    proto_e      proto;
    logic [7:0]  l3;
    logic [7:0]  l4;
    logic [13:0] data_end;
    logic [13:0] bound;          // what lies there or behind is cut off
    logic        has_icrc;       // RoCE: it changes, or the UDP checksum covers it
    logic        ecn;
    logic [13:0] ecn_at;
    logic [1:0]  ecn_codepoint;
    logic        set;
    logic [13:0] set_at;
    logic [63:0] set_mask;
    logic [63:0] set_value;
    logic        corrupt;
    logic [13:0] corrupt_at;
    logic [7:0]  corrupt_mask;
    logic        mend_ip;
    logic        mend_l4;
    logic        mend_icrc;
    logic        break_icrc;
  } request_t;
  number_t verdict;  // number of the frame that the next verdict is for
  logic made_valid, head_valid, head_ready, unused_room;
  logic [INFLIGHT_LOG2:0] free;
  request_t made, head;
  always_ff @(posedge clk) begin
    if (v_valid) begin
      if (v_mends && !busy) begin
        automatic write_t write = write_of(v.layout, v.action);
        automatic logic [13:0] bound = '1;
        if (truncates(v.action.truncate, v.action.truncate_bytes)) bound = v.action.truncate_bytes;
        made <= '{
            number: verdict,
            ip4: has_ip_checksum(v.layout),
            ip6: v.layout.is_ip && v.layout.is_ip6,
            proto: v.layout.proto,
            l3: v.layout.l3_offset,
            l4: v.layout.l4_offset,
            data_end: v.layout.data_end,
            bound: bound,
            has_icrc: v.layout.proto == ProtoRoce && (v.action.mend_icrc || v.action.mend_l4),
            ecn: v.action.ecn && v.layout.is_ip,
            ecn_at: 14'(v.layout.l3_offset) + 14'd1,
            ecn_codepoint: v.action.ecn_codepoint,
            set: write.valid,
            set_at: write.at,
            set_mask: write.mask,
            set_value: write.value,
            corrupt: v.action.corrupt && has_base(v.layout, v.action.corrupt_base),
            corrupt_at: frame_offset(v.layout, v.action.corrupt_base, v.action.corrupt_offset),
            corrupt_mask: v.action.corrupt_mask,
            mend_ip: v.action.mend_ip,
            mend_l4: v.action.mend_l4,
            mend_icrc: v.action.mend_icrc,
            break_icrc: v.action.break_icrc
        };
      end
      verdict <= verdict + 1'b1;
    end
    made_valid <= v_valid && v_mends && !busy;
    if (rst) begin
      verdict <= '0;
      made_valid <= 1'b0;
    end
  end
  mw_fifo #(
      .WIDTH($bits(request_t)),
      .DEPTH_LOG2(INFLIGHT_LOG2)
  ) i_requests (
      .clk,
      .rst,
      .in_valid(made_valid),
      .in_ready(unused_room),
      .in_data(made),
      .out_valid(head_valid),
      .out_ready(head_ready),
      .out_data(head),
      .free(free)
  );
  // Frames wait as long as their requests: with half of all in the queue there is room for others.
  assign busy = free < (INFLIGHT_LOG2 + 1)'(1 << (INFLIGHT_LOG2 - 1));

  // ---- Work: the reads of one frame, the lowest number first; the ICRC is the last.
  localparam int unsigned ReadSet = 0;
  localparam int unsigned ReadEcn = 1;
  localparam int unsigned ReadCorrupt = 2;
  localparam int unsigned ReadIcrc = 3;
  typedef struct packed {
    request_t request;
    word_t    word;     // the first of the window's two
    logic     icrc;     // reads the ICRC
    logic     all;      // counts all 16 bytes, else the first 8
    logic     last;     // of the frame
  } item_t;

  function automatic word_t word_of(input logic [13:0] at);
    return word_t'(at >> 3);
  endfunction
  function automatic logic [10:0] beat_of(input logic [13:0] at);
    return 11'(at / 14'(DATA_W / 8));
  endfunction

  logic work, ended, issue, take;
  logic [SumsLog2:0] room;  // frames that may still begin
  request_t w;
  logic [FIFO_LOG2-1:0] w_start;
  logic [10:0] w_set, w_corrupt, w_icrc;  // the beats with the last bytes that must be there
  logic [3:0] reads, head_reads, read;
  item_t item;
  assign ended = w.number != frame || !open;
  assign issue = work && (ended || (beats > w_set && beats > w_corrupt && beats > w_icrc));
  assign read = reads & (~reads + 1'b1);
  assign take = head_valid && room != '0 && (!work || (issue && reads == read));
  assign head_ready = take;
  always_comb begin
    head_reads = '0;
    if (take) begin
      automatic word_t set = word_of(head.set_at);
      automatic word_t ecn = word_of(head.ecn_at);
      automatic word_t corrupt = word_of(head.corrupt_at);
      head_reads[ReadSet] = head.set;
      head_reads[ReadEcn] = head.ecn && !(head.set && (ecn == set || ecn == set + 1'b1));
      head_reads[ReadCorrupt] = head.corrupt && !(head.ecn && corrupt == ecn) &&
          !(head.set && (corrupt == set || corrupt == set + 1'b1));
      head_reads[ReadIcrc] = head.has_icrc && head.mend_l4;
    end
  end
  always_ff @(posedge clk) begin
    if (issue) reads <= reads ^ read;
    if (issue && reads == read) work <= 1'b0;
    if (take) begin
      work <= 1'b1;
      reads <= head_reads;
      w <= head;
      w_start <= start[head.number];
      w_set <= head.set ? beat_of(head.set_at + 14'd7) : '0;
      w_corrupt <= head.corrupt ? beat_of(head.corrupt_at) : '0;
      w_icrc <= head.has_icrc ? beat_of(head.data_end + 14'd3) : '0;
    end
    if (rst) work <= 1'b0;
  end

  always_comb begin
    item = '0;
    if (issue) begin
      item.request = w;
      if (ended && length[w.number] < w.bound) item.request.bound = length[w.number];
      unique case (1'b1)
        read[ReadSet]: item.word = word_of(w.set_at);
        read[ReadEcn]: item.word = word_of(w.ecn_at);
        read[ReadCorrupt]: item.word = word_of(w.corrupt_at);
        default: item.word = word_of(w.data_end);
      endcase
      item.icrc = read[ReadIcrc];
      item.all  = read[ReadSet] || read[ReadIcrc];
      item.last = reads == read;
    end
  end
  // The window's first word may be even or odd.
  logic [AddrW-1:0] first;
  assign first = AddrW'(w_start) * AddrW'(Words) + AddrW'(item.word);
  assign rd_en = issue;
  assign rd_word[0] = (AddrW - 1)'((first + 1'b1) >> 1);
  assign rd_word[1] = (AddrW - 1)'(first >> 1);

  // ---- a, b: while the memory reads, where the window lies to the offsets that matter
  typedef logic signed [15:0] rel_t;
  logic a_valid, b_valid, c_valid, d_valid;
  item_t a, b;
  logic a_odd, b_odd;
  rel_t b_l3, b_l4, b_end, b_bound, b_set, b_corrupt;  // first byte of the window from there
  always_ff @(posedge clk) begin
    if (issue) begin
      a <= item;
      a_odd <= first[0];
    end
    if (a_valid) begin
      automatic rel_t at = rel_t'({a.word, 3'b000});
      b <= a;
      b_odd <= a_odd;
      b_l3 <= at - rel_t'(a.request.l3);
      b_l4 <= at - rel_t'(a.request.l4);
      b_end <= at - rel_t'(a.request.data_end);
      b_bound <= at - rel_t'(a.request.bound);
      b_set <= at - rel_t'(a.request.set_at);
      b_corrupt <= at - rel_t'(a.request.corrupt_at);
    end
    a_valid <= issue && !rst;
    b_valid <= a_valid && !rst;
    c_valid <= b_valid && !rst;
    d_valid <= c_valid && !rst;
  end

  // Bytes of a window, `at` behind some offset, that lie `n` behind it or farther.
  function automatic bytes_t behind(input rel_t at, input rel_t n);
    rel_t missing;
    missing = n - at;
    return missing <= 0 ? '1 : missing >= rel_t'(Window) ? '0 : bytes_t'('1) << missing[3:0];
  endfunction
  // `count` bytes from `n` on.
  function automatic bytes_t span(input rel_t at, input rel_t n, input rel_t count);
    return behind(at, n) & ~behind(at, n + count);
  endfunction
  // 8 bytes that begin at the offset.
  function automatic window_t place(input rel_t at, input logic [63:0] bytes);
    if (at <= rel_t'(-Window) || at >= 8) return '0;
    return at > 0 ? window_t'(bytes) >> {at[2:0], 3'b000} : window_t'(bytes) << {-at, 3'b000};
  endfunction
  function automatic window_t spread(input bytes_t bytes);
    for (int i = 0; i < int'(Window); i++) spread[8*i+:8] = {8{bytes[i]}};
  endfunction

  // ---- c: the old bytes, what changes in them and who covers it
  request_t c;
  logic c_is_icrc, c_last;
  logic [13:0] c_bytes;  // from the window to the end of what the ICRC covers
  window_t c_old, c_mask, c_value;
  bytes_t c_ecn, c_corrupt, c_ip, c_l4, c_icrc, c_high;
  logic c_whole;
  always_ff @(posedge clk) begin
    if (b_valid) begin
      automatic request_t r = b.request;
      automatic logic whole = 15'(r.data_end) + 15'd4 <= 15'(r.bound);
      automatic bytes_t own, addresses, l4, l4_sum, ip, ip_sum, varies4, varies6, varies;
      own = ~behind(b_bound, 0) & (b.all ? '1 : bytes_t'(8'hff));
      ip = behind(b_l3, 0) & ~behind(b_l4, 0);
      ip_sum = span(b_l3, 10, 2);
      addresses = r.ip4 ? span(b_l3, 12, 8) : span(b_l3, 8, 32);
      l4 = behind(b_l4, 0) & ~behind(b_end, 0);
      l4_sum = span(b_l4, r.proto == ProtoTcp ? 16 : 6, 2);
      // TOS, TTL, checksum; traffic class, flow label, hop limit; UDP checksum, BTH byte 4
      varies4 = span(b_l3, 1, 1) | span(b_l3, 8, 1) | ip_sum;
      varies6 = span(b_l3, 1, 3) | span(b_l3, 7, 1);
      varies = (r.ip4 ? varies4 : varies6) | l4_sum | span(b_l4, 12, 1);
      c <= r;
      c_is_icrc <= b.icrc;
      c_last <= b.last;
      c_bytes <= 14'(-b_end);
      c_old <= b_odd ? {rd_old[0], rd_old[1]} : {rd_old[1], rd_old[0]};
      c_mask <= r.set ? place(b_set, r.set_mask) & spread(own) : '0;
      c_value <= place(b_set, r.set_value);
      c_ecn <= r.ecn ? span(b_l3, 1, 1) & own : '0;
      c_corrupt <= r.corrupt ? span(b_corrupt, 0, 1) & own : '0;
      c_ip <= r.ip4 ? ip & ~ip_sum : '0;
      c_l4 <= r.mend_l4 && r.proto != ProtoOther ? (l4 & ~l4_sum) | addresses : '0;
      c_icrc <= r.mend_icrc && r.proto == ProtoRoce && whole ? (ip | l4) & ~varies : '0;
      c_high <= r.ip6 ? span(b_l3, 0, 1) : '0;  // version, but not traffic class
      c_whole <= whole;
    end
  end

  // ---- d: new bytes. Without mend_ip only the ECN field counts in the IPv4 header.
  typedef struct packed {
    logic        has_icrc;
    logic        follow;      // the ICRC's change counts in the UDP checksum
    logic        odd;         // it lies at an odd offset
    logic        break_icrc;
    logic [31:0] old;         // its bytes, and with the changes made in them directly
    logic [31:0] changed;
    logic [31:0] keep;        // bits that set leaves alone
  } icrc_t;
  logic d_last;
  window_t d_ip_old, d_ip_new, d_l4_old, d_l4_new, d_icrc;
  logic [13:0] d_bytes;
  icrc_t d_info;
  always_ff @(posedge clk) begin
    if (c_valid) begin
      automatic window_t set, ecn, all;
      automatic logic [7:0] field = c.ip6 ? 8'h30 : 8'h03;
      automatic logic [7:0] codepoint = {2{2'b00, c.ecn_codepoint}} & field;
      automatic logic [6:0] at = {1'b0, c.data_end[2:0], 3'b000};
      set = (c_old & ~c_mask) | (c_value & c_mask);
      ecn = set;
      all = set;
      for (int i = 0; i < int'(Window); i++) begin
        if (c_ecn[i]) ecn[8*i+:8] = (set[8*i+:8] & ~field) | codepoint;
        all[8*i+:8] = ecn[8*i+:8] ^ (c_corrupt[i] ? c.corrupt_mask : '0);
      end
      if (c_is_icrc) begin
        // changes of the ICRC itself are added when its new value is known
        d_ip_old <= '0;
        d_ip_new <= '0;
        d_l4_old <= '0;
        d_l4_new <= '0;
        d_icrc   <= '0;
      end else begin
        d_ip_old <= (c.mend_ip ? c_old : set) & spread(c_ip);
        d_ip_new <= (c.mend_ip ? all : ecn) & spread(c_ip);
        d_l4_old <= c_old & spread(c_l4);
        d_l4_new <= all & spread(c_l4);
        d_icrc   <= (c_old ^ all) & spread(c_icrc) & ~(spread(c_high) &{Window{8'h0f}});
      end
      d_bytes <= c_bytes;
      d_last <= c_last;
      d_info <= '{
          has_icrc: c.has_icrc,
          follow: c_is_icrc && c_whole,
          odd: c.data_end[0],
          break_icrc: c.break_icrc,
          old: 32'(c_old >> at),
          changed: 32'(all >> at),
          keep: ~32'(c_mask >> at)
      };
    end
  end

  // ---- e to h: RFC 1624, equation 3: HC' = ~(~HC + ~m + m')
  // The sum of ~m + m' over two words.
  function automatic logic [17:0] two(input logic [31:0] old, input logic [31:0] now);
    two = '0;
    for (int i = 0; i < 32; i += 16)
    two = two + 18'(16'(~{old[i+:8], old[i+8+:8]})) + 18'({now[i+:8], now[i+8+:8]});
  endfunction
  function automatic logic [15:0] folded(input logic [19:0] sum);
    logic [16:0] once;
    once = 17'(sum[15:0]) + 17'(sum[19:16]);
    return once[15:0] + 16'(once[16]);
  endfunction

  typedef struct packed {
    logic        ip_changed;
    logic        l4_changed;
    logic [15:0] ip;
    logic [15:0] l4;
    icrc_t       icrc;
  } sums_t;
  logic e_valid, e_last, e_ip_changed, e_l4_changed;
  logic [17:0] e_ip[4], e_l4[4];
  icrc_t e_info;
  logic f_valid, f_last, f_ip_changed, f_l4_changed;
  logic [19:0] f_ip, f_l4;
  icrc_t f_info;
  logic g_valid, g_last, h_valid, begun;
  sums_t g, h;
  always_ff @(posedge clk) begin
    if (g_valid) begin
      automatic sums_t sum = g;
      if (begun) begin
        sum.ip_changed = h.ip_changed || g.ip_changed;
        sum.l4_changed = h.l4_changed || g.l4_changed;
        sum.ip = folded(20'(h.ip) + 20'(g.ip));
        sum.l4 = folded(20'(h.l4) + 20'(g.l4));
      end
      h <= sum;
      begun <= !g_last;
    end
    if (f_valid) begin
      g <= '{
          ip_changed: f_ip_changed,
          l4_changed: f_l4_changed,
          ip: folded(f_ip),
          l4: folded(f_l4),
          icrc: f_info
      };
      g_last <= f_last;
    end
    if (e_valid) begin
      f_ip <= 20'(e_ip[0]) + 20'(e_ip[1]) + 20'(e_ip[2]) + 20'(e_ip[3]);
      f_l4 <= 20'(e_l4[0]) + 20'(e_l4[1]) + 20'(e_l4[2]) + 20'(e_l4[3]);
      f_ip_changed <= e_ip_changed;
      f_l4_changed <= e_l4_changed;
      f_info <= e_info;
      f_last <= e_last;
    end
    if (d_valid) begin
      for (int i = 0; i < 4; i++) begin
        e_ip[i] <= two(d_ip_old[32*i+:32], d_ip_new[32*i+:32]);
        e_l4[i] <= two(d_l4_old[32*i+:32], d_l4_new[32*i+:32]);
      end
      e_ip_changed <= d_ip_old != d_ip_new;
      e_l4_changed <= d_l4_old != d_l4_new;
      e_info <= d_info;
      e_last <= d_last;
    end
    e_valid <= d_valid;
    f_valid <= e_valid;
    g_valid <= f_valid;
    h_valid <= g_valid && g_last;
    if (rst) begin
      e_valid <= 1'b0;
      f_valid <= 1'b0;
      g_valid <= 1'b0;
      h_valid <= 1'b0;
      begun   <= 1'b0;
    end
  end

  logic flip_in, flip_valid, sums_valid, step, unused_sums_room, unused_flip_room;
  logic [31:0] flip_data, flip;
  logic [SumsLog2:0] unused_sums_free, unused_flip_free;
  sums_t sums;
  mw_fifo #(
      .WIDTH($bits(sums_t)),
      .DEPTH_LOG2(SumsLog2)
  ) i_sums (
      .clk,
      .rst,
      .in_valid(h_valid),
      .in_ready(unused_sums_room),
      .in_data(h),
      .out_valid(sums_valid),
      .out_ready(step && (!sums.icrc.has_icrc || flip_valid)),
      .out_data(sums),
      .free(unused_sums_free)
  );
  mw_crc32_change i_icrc (
      .clk,
      .rst,
      .in_valid(d_valid && d_info.has_icrc),
      .in_last(d_last),
      .in_change(d_icrc),
      .in_bytes(d_bytes),
      .out_valid(flip_in),
      .out_change(flip_data)
  );
  mw_fifo #(
      .WIDTH(32),
      .DEPTH_LOG2(SumsLog2)
  ) i_flips (
      .clk,
      .rst,
      .in_valid(flip_in),
      .in_ready(unused_flip_room),
      .in_data(flip_data),
      .out_valid(flip_valid),
      .out_ready(step && sums_valid && sums.icrc.has_icrc),
      .out_data(flip),
      .free(unused_flip_free)
  );

  // ---- p, q, out: the ICRC's bytes in the UDP checksum
  logic p_valid, p_follow, p_follow_changed, p_odd, q_valid, q_follow;
  logic [17:0] p_sum;
  logic [15:0] q_sum;
  mend_t p, q;
  assign step = !out_valid || out_ready;
  always_ff @(posedge clk) begin
    if (step && (sums_valid || p_valid || q_valid || out_valid)) begin
      if (q_valid) begin
        out <= q;
        if (q_follow) out.l4_add <= folded(20'(q.l4_add) + 20'(q_sum));
      end
      if (p_valid) begin
        automatic logic [15:0] sum = folded(20'(p_sum));
        q <= p;
        q.l4_changed <= p.l4_changed || (p_follow && p_follow_changed);
        q_follow <= p_follow;
        q_sum <= p_odd ? {sum[7:0], sum[15:8]} : sum;
      end
      if (sums_valid) begin
        automatic icrc_t i = sums.icrc;
        automatic logic [31:0] change = i.has_icrc ? flip : '0;
        automatic logic [31:0] after = i.changed ^ ((change ^ {32{i.break_icrc}}) & i.keep);
        p <= '{
            ip_changed: sums.ip_changed,
            ip_add: sums.ip,
            l4_changed: sums.l4_changed,
            l4_add: sums.l4,
            icrc_flip: change
        };
        p_follow <= i.follow;
        p_follow_changed <= after != i.old;
        p_odd <= i.odd;
        p_sum <= two(i.old, after);
      end
      out_valid <= q_valid;
      q_valid   <= p_valid;
      p_valid   <= sums_valid && (!sums.icrc.has_icrc || flip_valid);
    end
    if (rst) begin
      out_valid <= 1'b0;
      q_valid   <= 1'b0;
      p_valid   <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (take != (out_valid && out_ready)) room <= take ? room - 1'b1 : room + 1'b1;
    if (rst) room <= (SumsLog2 + 1)'(1 << SumsLog2);
  end
endmodule
