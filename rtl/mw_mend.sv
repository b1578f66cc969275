// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Works out what an event's changes do to the checksums of a frame. A checksum often stands
// before the bytes that change, so this is done ahead: of frames that wait in mw_path a second
// copy is kept, and when a verdict wants checksums mended, the old bytes are read from it as
// soon as they are there. One answer for each verdict that `mends`, in their order.
//
// A frame takes one cycle, and two at the least, for each of: set, ecn, corrupt, and the ICRC if
// the UDP checksum is to follow its change; changes that share 8 bytes or lie in those of set are
// read with them. Each reads 16 bytes, from a multiple of 8 on:
//
//   request   offsets from the verdict; FIFO
//   pend      waits for the bytes
//   work      issues the reads
//   a, b      where the window lies in the memory, and to the offsets that matter
//   c, d      the memory's two cycles; bytes of fields that begin at these offsets
//   e         old bytes; which of them each checksum covers
//   f         new bytes, both masked for each checksum
//   g to m    differences of 16-bit words added up, to one sum of the frame
//   sums      FIFO; RoCE waits for mw_crc32_change here
//   p to out  the ICRC's own change in the UDP checksum; sums made 16 bits
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
  if ((DATA_W != 64 && DATA_W != 512) || FIFO_LOG2 < 2 || INFLIGHT_LOG2 < 2) begin : g_bad
    $fatal(1, "mw_mend: a parameter is out of its range");
  end

  localparam int unsigned Words = DATA_W / 64;  // of a beat
  localparam int unsigned AddrW = FIFO_LOG2 + $clog2(Words);  // of a word among all that wait
  localparam int unsigned Window = 16;  // bytes read at a time
  // Frames at work: those in the pipelines' stages. A shortest frame takes 10 cycles at 64 bits
  // and 2 at 512.
  localparam int unsigned SumsLog2 = DATA_W == 64 ? 4 : 5;

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

  // Read after they were written.
  (* no_rw_check *)
  logic [FIFO_LOG2-1:0] start[1 << INFLIGHT_LOG2];
  (* no_rw_check *)
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
      if (v_mends) begin
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
      .DEPTH_LOG2(INFLIGHT_LOG2),
      .READ(fifo_read(DATA_W))
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
  always_ff @(posedge clk) busy <= (free <= (INFLIGHT_LOG2 + 1)'(1 << (INFLIGHT_LOG2 - 1)));

  // ---- Pend: the next request waits until all that it reads is there, or its frame is.
  typedef logic [10:0] beat_t;
  function automatic word_t word_of(input logic [13:0] at);
    return word_t'(at >> 3);
  endfunction
  function automatic beat_t beat_of(input logic [13:0] at);
    return beat_t'(at / 14'(DATA_W / 8));
  endfunction
  function automatic word_t ecn_word(input request_t r);
    return word_of(14'(r.l3) + 14'd1);
  endfunction

  request_t pend;
  logic pend_valid, pend_ready, pend_ended, ended, fetch, take, work;
  logic last_read;  // of the frame at work, and also while none is
  logic [FIFO_LOG2-1:0] pend_start;
  logic [13:0] pend_length;
  beat_t pend_set, pend_corrupt, pend_icrc;  // the beats with the last bytes that must be there
  logic ecn_in_set, corrupt_in_set, corrupt_in_ecn;  // its word is read anyway
  logic [SumsLog2:0] room;  // frames that may still begin
  assign ended = pend.number != frame || !open;
  assign take = pend_ready && last_read;
  assign head_ready = !pend_valid || take;
  assign fetch = head_valid && head_ready;
  always_ff @(posedge clk) begin
    if (pend_valid) begin
      automatic word_t set = word_of(pend.set_at);
      automatic word_t ecn = ecn_word(pend);
      automatic word_t corrupt = word_of(pend.corrupt_at);
      pend_ended <= ended;
      pend_length <= length[pend.number];
      ecn_in_set <= ecn == set || ecn == set + 1'b1;
      corrupt_in_set <= corrupt == set || corrupt == set + 1'b1;
      corrupt_in_ecn <= corrupt == ecn;
    end
    pend_ready <= pend_valid && !take && room != '0 &&
        (ended || (beats > pend_set && beats > pend_corrupt && beats > pend_icrc));
    if (take) pend_valid <= 1'b0;
    if (fetch) begin
      pend_valid <= 1'b1;
      pend <= head;
      pend.set_mask <= turned_bytes(head.set_mask, head.set_at[2:0]);
      pend.set_value <= turned_bytes(head.set_value, head.set_at[2:0]);
      pend_start <= start[head.number];
      pend_set <= head.set ? beat_of(head.set_at + 14'd7) : '0;
      pend_corrupt <= head.corrupt ? beat_of(head.corrupt_at) : '0;
      pend_icrc <= head.has_icrc ? beat_of(head.data_end + 14'd3) : '0;
    end
    if (rst) begin
      pend_valid <= 1'b0;
      pend_ready <= 1'b0;
    end
  end

  // ---- Work: the reads of one frame, the lowest number first; the ICRC is the last.
  localparam int unsigned ReadSet = 0;
  localparam int unsigned ReadEcn = 1;
  localparam int unsigned ReadCorrupt = 2;
  localparam int unsigned ReadIcrc = 3;
  request_t w;
  logic [FIFO_LOG2-1:0] w_start;
  logic [13:0] w_length;
  logic w_ended;
  logic [3:0] reads, pend_reads, read;
  assign read = 4'(lowest(8'(reads)));
  always_comb begin
    pend_reads[ReadSet] = pend.set;
    pend_reads[ReadEcn] = pend.ecn && !(pend.set && ecn_in_set);
    pend_reads[ReadCorrupt] = pend.corrupt && !(pend.ecn && corrupt_in_ecn) &&
        !(pend.set && corrupt_in_set);
    pend_reads[ReadIcrc] = pend.has_icrc && pend.mend_l4;
  end
  always_ff @(posedge clk) begin
    if (work) begin
      reads <= reads ^ read;
      last_read <= (reads ^ read) == 4'(lowest(8'(reads ^ read)));
      if (last_read) work <= 1'b0;
    end
    if (take) begin
      work <= 1'b1;
      reads <= pend_reads;
      last_read <= pend_reads == 4'(lowest(8'(pend_reads)));
    end
    // Nobody looks at these before the request is taken, and that is known late.
    if (pend_valid && last_read) begin
      w <= pend;
      w_start <= pend_start;
      w_length <= pend_length;
      w_ended <= pend_ended;
    end
    if (rst) begin
      work <= 1'b0;
      last_read <= 1'b1;
    end
  end

  // ---- a, b: the window, first in the frame and then in the memory
  typedef struct packed {
    request_t request;
    logic     icrc;     // reads the ICRC
    logic     all;      // counts all 16 bytes, else the first 8
    logic     last;     // of the frame
  } item_t;
  typedef logic signed [14:0] rel_t;
  logic a_valid, b_valid, c_valid, d_valid, e_valid, f_valid;
  item_t a, b, c, d;
  word_t a_word;  // the first of the window's two
  logic [FIFO_LOG2-1:0] a_start;
  logic b_odd, c_odd, d_odd;
  rel_t b_l3, b_l4, b_end, b_bound, b_set, b_corrupt;  // first byte of the window from there
  logic b_whole, c_whole, d_whole;  // the ICRC is not cut off
  always_ff @(posedge clk) begin
    if (a_valid) begin
      automatic rel_t at = rel_t'({a_word, 3'b000});
      automatic logic [AddrW-1:0] first = AddrW'(a_start) * AddrW'(Words) + AddrW'(a_word);
      // It may be even or odd.
      rd_word[0] <= (AddrW - 1)'((first + 1'b1) >> 1);
      rd_word[1] <= (AddrW - 1)'(first >> 1);
      b <= a;
      b_odd <= first[0];
      b_l3 <= at - rel_t'(a.request.l3);
      b_l4 <= at - rel_t'(a.request.l4);
      b_end <= at - rel_t'(a.request.data_end);
      b_bound <= at - rel_t'(a.request.bound);
      b_set <= at - rel_t'(a.request.set_at);
      b_corrupt <= at - rel_t'(a.request.corrupt_at);
      b_whole <= 15'(a.request.data_end) + 15'd4 <= 15'(a.request.bound);
    end
    if (work) begin
      a.request <= w;
      if (w_ended && w_length < w.bound) a.request.bound <= w_length;
      unique case (1'b1)
        read[ReadSet]: a_word <= word_of(w.set_at);
        read[ReadEcn]: a_word <= ecn_word(w);
        read[ReadCorrupt]: a_word <= word_of(w.corrupt_at);
        default: a_word <= word_of(w.data_end);
      endcase
      a_start <= w_start;
      a.icrc  <= read[ReadIcrc];
      a.all   <= read[ReadSet] || read[ReadIcrc];
      a.last  <= last_read;
    end
    a_valid <= work && !rst;
    b_valid <= a_valid && !rst;
    c_valid <= b_valid && !rst;
    d_valid <= c_valid && !rst;
    e_valid <= d_valid && !rst;
    f_valid <= e_valid && !rst;
  end
  assign rd_en = b_valid;

  // ---- c, d: while the memory reads, which bytes of the window belong to which field
  typedef logic [5:0] place_t;  // 16 and more: bytes behind the offset; 0, 63: as far or farther
  typedef logic [62:0] field_t;  // a bit for each byte behind an offset
  function automatic place_t place_of(input rel_t at);
    if (at[14]) return at[13:4] == '1 ? {2'b00, at[3:0]} : '0;
    return at[13:6] != '0 || at[5:4] == '1 ? '1 : {at[5:4] + 2'd1, at[3:0]};
  endfunction
  function automatic field_t field(input int unsigned at, input int unsigned count);
    field = '0;
    for (int unsigned i = 0; i < count; i++) field[at+i] = 1'b1;
  endfunction
  function automatic bytes_t of_field(input place_t at, input field_t bytes);
    return bytes_t'({bytes, 16'd0} >> at);
  endfunction
  localparam field_t Behind = '1;
  localparam field_t IpSum = field(10, 2);
  localparam field_t TcpSum = field(16, 2);
  localparam field_t UdpSum = field(6, 2);
  // TOS, TTL, checksum; traffic class, flow label, hop limit; BTH byte 4
  localparam field_t Varies4 = field(1, 1) | field(8, 1) | IpSum;
  localparam field_t Varies6 = field(1, 3) | field(7, 1);
  localparam field_t VariesBth = field(12, 1);

  place_t c_l3, c_l4, c_end, c_bound, c_set, c_corrupt;
  logic [13:0] c_bytes, d_bytes, e_bytes;  // from the window to the end of what the ICRC covers
  bytes_t
      d_ip,
      d_addresses,
      d_fixed,
      d_ecn,
      d_high,
      d_l4,
      d_l4_sum,
      d_bth,
      d_end,
      d_bound,
      d_set,
      d_corrupt;
  always_ff @(posedge clk) begin
    if (c_valid) begin
      d <= c;
      d_odd <= c_odd;
      d_whole <= c_whole;
      d_bytes <= c_bytes;
      d_ip <= of_field(c_l3, Behind ^ IpSum);
      d_addresses <= of_field(c_l3, c.request.ip4 ? field(12, 8) : field(8, 32));
      d_fixed <= of_field(c_l3, Behind ^ (c.request.ip4 ? Varies4 : Varies6));
      d_ecn <= of_field(c_l3, field(1, 1));
      d_high <= of_field(c_l3, field(0, 1));
      d_l4 <= of_field(c_l4, Behind);
      d_l4_sum <= of_field(c_l4, c.request.proto == ProtoTcp ? TcpSum : UdpSum);
      d_bth <= of_field(c_l4, VariesBth);
      d_end <= of_field(c_end, Behind);
      d_bound <= of_field(c_bound, Behind);
      d_set <= of_field(c_set, field(0, 8));
      d_corrupt <= of_field(c_corrupt, field(0, 1));
    end
    if (b_valid) begin
      c <= b;
      c_odd <= b_odd;
      c_whole <= b_whole;
      c_bytes <= 14'(-b_end);
      c_l3 <= place_of(b_l3);
      c_l4 <= place_of(b_l4);
      c_end <= place_of(b_end);
      c_bound <= place_of(b_bound);
      c_set <= place_of(b_set);
      c_corrupt <= place_of(b_corrupt);
    end
  end

  // ---- e: the old bytes, which of them change and who covers them. What changes in the ICRC
  // itself is added when its new value is known.
  request_t e;
  logic e_is_icrc, e_last, e_whole;
  window_t e_old;
  bytes_t e_set, e_ecn, e_corrupt, e_ip, e_l4, e_icrc, e_high;
  always_ff @(posedge clk) begin
    if (d_valid) begin
      automatic request_t r = d.request;
      automatic bytes_t   own = ~d_bound & (d.all ? '1 : bytes_t'(8'hff));
      e <= r;
      e_is_icrc <= d.icrc;
      e_last <= d.last;
      e_whole <= d_whole;
      e_bytes <= d_bytes;
      e_old <= d_odd ? {rd_old[0], rd_old[1]} : {rd_old[1], rd_old[0]};
      e_set <= r.set ? d_set & own : '0;
      e_ecn <= r.ecn ? d_ecn & own : '0;
      e_corrupt <= r.corrupt ? d_corrupt & own : '0;
      e_ip <= r.ip4 && !d.icrc ? d_ip & ~d_l4 : '0;
      e_l4 <= r.mend_l4 && r.proto != ProtoOther && !d.icrc ?
          (d_l4 & ~d_l4_sum & ~d_end) | d_addresses : '0;
      e_icrc <= r.mend_icrc && r.proto == ProtoRoce && d_whole && !d.icrc ?
          d_fixed & ~d_l4_sum & ~d_bth & ~d_end : '0;
      e_high <= r.ip6 ? d_high : '0;  // version, but not traffic class
    end
  end

  // ---- f: new bytes. Without mend_ip only the ECN field counts in the IPv4 header.
  typedef struct packed {
    logic        has_icrc;
    logic        follow;      // the ICRC's change counts in the UDP checksum
    logic [1:0]  at;          // it begins there in four bytes of the frame
    logic        break_icrc;
    logic [31:0] old;         // its bytes where they lie in these, and with the changes made in
    logic [31:0] changed;     // them directly
    logic [31:0] keep;        // bits that set leaves alone
  } icrc_t;
  logic f_last;
  window_t f_ip_old, f_ip_new, f_l4_old, f_l4_new, f_icrc;
  logic [13:0] f_bytes;
  icrc_t f_info;
  function automatic window_t spread(input bytes_t bytes);
    for (int i = 0; i < int'(Window); i++) spread[8*i+:8] = {8{bytes[i]}};
  endfunction
  // Four bytes from `at` on, each where it lies in four bytes of the frame.
  function automatic logic [31:0] four(input window_t bytes, input logic [2:0] at);
    for (int i = 0; i < 4; i++) begin
      automatic logic [1:0] at4 = 2'(at[2]) + 2'(2'(i) < at[1:0]);
      four[8*i+:8] = bytes[8*i+32*at4+:8];
    end
  endfunction
  always_ff @(posedge clk) begin
    if (e_valid) begin
      automatic window_t mask, set, ecn, all;
      automatic logic [7:0] field_mask = e.ip6 ? 8'h30 : 8'h03;
      automatic logic [7:0] codepoint = {2{2'b00, e.ecn_codepoint}} & field_mask;
      mask = spread(e_set) & {2{e.set_mask}};
      set  = (e_old & ~mask) | ({2{e.set_value}} & mask);
      ecn  = set;
      all  = set;
      for (int i = 0; i < int'(Window); i++) begin
        if (e_ecn[i]) ecn[8*i+:8] = (set[8*i+:8] & ~field_mask) | codepoint;
        all[8*i+:8] = ecn[8*i+:8] ^ (e_corrupt[i] ? e.corrupt_mask : '0);
      end
      f_ip_old <= (e.mend_ip ? e_old : set) & spread(e_ip);
      f_ip_new <= (e.mend_ip ? all : ecn) & spread(e_ip);
      f_l4_old <= e_old;
      f_l4_new <= (e_old & ~spread(e_l4)) | (all & spread(e_l4));
      f_icrc <= (e_old ^ all) & spread(e_icrc) & ~(spread(e_high) &{Window{8'h0f}});
      f_bytes <= e_bytes;
      f_last <= e_last;
      f_info <= '{
          has_icrc: e.has_icrc,
          follow: e_is_icrc && e_whole,
          at: e.data_end[1:0],
          break_icrc: e.break_icrc,
          old: four(e_old, e.data_end[2:0]),
          changed: four(all, e.data_end[2:0]),
          keep: ~four(mask, e.data_end[2:0])
      };
    end
  end

  // ---- g to m: RFC 1624, equation 3: HC' = ~(~HC + ~m + m'). Four reads are the most.
  // ~m + m' of a word.
  function automatic logic [16:0] change(input logic [15:0] old, input logic [15:0] now);
    return 17'(16'(~{old[7:0], old[15:8]})) + 17'({now[7:0], now[15:8]});
  endfunction

  typedef struct packed {
    logic        ip_changed;
    logic        l4_changed;
    logic [21:0] ip;
    logic [21:0] l4;
    icrc_t       icrc;
  } sums_t;
  typedef struct packed {
    logic       last;
    logic [7:0] ip_changed;  // words
    logic [7:0] l4_changed;
    icrc_t      icrc;
  } part_t;
  logic g_valid, h_valid, j_valid, k_valid, m_valid, begun;
  part_t g, h, j, k;
  logic [16:0] g_ip[8], g_l4[8];
  logic [17:0] h_ip[4], h_l4[4];
  logic [18:0] j_ip[2], j_l4[2];
  logic [19:0] k_ip, k_l4;
  sums_t m;
  always_ff @(posedge clk) begin
    if (k_valid) begin
      m <= '{
          ip_changed: (begun && m.ip_changed) || k.ip_changed != '0,
          l4_changed: (begun && m.l4_changed) || k.l4_changed != '0,
          ip: (begun ? m.ip : '0) + 22'(k_ip),
          l4: (begun ? m.l4 : '0) + 22'(k_l4),
          icrc: k.icrc
      };
      begun <= !k.last;
    end
    if (j_valid) begin
      k <= j;
      k_ip <= 20'(j_ip[0]) + 20'(j_ip[1]);
      k_l4 <= 20'(j_l4[0]) + 20'(j_l4[1]);
    end
    if (h_valid) begin
      automatic logic [18:0] ip[2], l4[2];
      for (int i = 0; i < 2; i++) begin
        ip[i] = 19'(h_ip[2*i]) + 19'(h_ip[2*i+1]);
        l4[i] = 19'(h_l4[2*i]) + 19'(h_l4[2*i+1]);
      end
      j <= h;
      j_ip <= ip;
      j_l4 <= l4;
    end
    if (g_valid) begin
      automatic logic [17:0] ip[4], l4[4];
      for (int i = 0; i < 4; i++) begin
        ip[i] = 18'(g_ip[2*i]) + 18'(g_ip[2*i+1]);
        l4[i] = 18'(g_l4[2*i]) + 18'(g_l4[2*i+1]);
      end
      h <= g;
      h_ip <= ip;
      h_l4 <= l4;
    end
    if (f_valid) begin
      automatic logic [16:0] ip[8], l4[8];
      g.last <= f_last;
      g.icrc <= f_info;
      for (int i = 0; i < 8; i++) begin
        g.ip_changed[i] <= f_ip_old[16*i+:16] != f_ip_new[16*i+:16];
        g.l4_changed[i] <= f_l4_old[16*i+:16] != f_l4_new[16*i+:16];
        ip[i] = change(f_ip_old[16*i+:16], f_ip_new[16*i+:16]);
        l4[i] = change(f_l4_old[16*i+:16], f_l4_new[16*i+:16]);
      end
      g_ip <= ip;
      g_l4 <= l4;
    end
    g_valid <= f_valid;
    h_valid <= g_valid;
    j_valid <= h_valid;
    k_valid <= j_valid;
    m_valid <= k_valid && k.last;
    if (rst) begin
      g_valid <= 1'b0;
      h_valid <= 1'b0;
      j_valid <= 1'b0;
      k_valid <= 1'b0;
      m_valid <= 1'b0;
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
      .in_valid(m_valid),
      .in_ready(unused_sums_room),
      .in_data(m),
      .out_valid(sums_valid),
      .out_ready(step && (!sums.icrc.has_icrc || flip_valid)),
      .out_data(sums),
      .free(unused_sums_free)
  );
  mw_crc32_change i_icrc (
      .clk,
      .rst,
      .in_valid(f_valid && f_info.has_icrc),
      .in_last(f_last),
      .in_change(f_icrc),
      .in_bytes(f_bytes),
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

  // ---- p to out: the ICRC's bytes in the UDP checksum; the carries of all sums
  typedef struct packed {
    logic        ip_changed;
    logic        l4_changed;
    logic [22:0] ip;
    logic [22:0] l4;
    logic [31:0] flip;
  } answer_t;
  // One's complement sums: what went over comes in again.
  function automatic logic [16:0] once(input logic [22:0] sum);
    return 17'(sum[15:0]) + 17'(sum[22:16]);
  endfunction
  logic p_valid, p_follow, q_valid, r_valid, s_valid;
  logic [31:0] p_old, p_new;
  logic [17:0] q_sum;
  answer_t p, q, r, s;
  assign step = !out_valid || out_ready;
  always_ff @(posedge clk) begin
    if (step && (sums_valid || p_valid || q_valid || r_valid || s_valid || out_valid)) begin
      if (s_valid) begin
        out <= '{
            ip_changed: s.ip_changed,
            ip_add: 16'(once(s.ip)),
            l4_changed: s.l4_changed,
            l4_add: 16'(once(s.l4)),
            icrc_flip: s.flip
        };
      end
      if (r_valid) begin
        s <= r;
        s.ip <= 23'(once(r.ip));
        s.l4 <= 23'(once(r.l4));
      end
      if (q_valid) begin
        r <= q;
        r.l4 <= q.l4 + 23'(q_sum);
      end
      if (p_valid) begin
        q <= p;
        q_sum <= '0;
        if (p_follow) begin
          q.l4_changed <= p.l4_changed || p_old != p_new;
          q_sum <= 18'(change(p_old[15:0], p_new[15:0])) + 18'(change(p_old[31:16], p_new[31:16]));
        end
      end
      if (sums_valid) begin
        automatic icrc_t i = sums.icrc;
        automatic logic [31:0] change_here = i.has_icrc ? flip : '0;
        automatic logic [31:0] lying = 32'(turned_bytes({2{change_here}}, {1'b0, i.at}));
        p <= '{
            ip_changed: sums.ip_changed,
            l4_changed: sums.l4_changed,
            ip: 23'(sums.ip),
            l4: 23'(sums.l4),
            flip: change_here
        };
        p_follow <= i.follow;
        p_old <= i.old;
        p_new <= i.changed ^ ((lying ^ {32{i.break_icrc}}) & i.keep);
      end
      out_valid <= s_valid;
      s_valid   <= r_valid;
      r_valid   <= q_valid;
      q_valid   <= p_valid;
      p_valid   <= sums_valid && (!sums.icrc.has_icrc || flip_valid);
    end
    if (rst) begin
      out_valid <= 1'b0;
      s_valid   <= 1'b0;
      r_valid   <= 1'b0;
      q_valid   <= 1'b0;
      p_valid   <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (take != (out_valid && out_ready)) room <= take ? room - 1'b1 : room + 1'b1;
    if (rst) room <= (SumsLog2 + 1)'(1 << SumsLog2);
  end
endmodule
