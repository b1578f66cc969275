// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Reads the headers of a frame: Ethernet, up to two VLAN tags, IPv4 with options or IPv6,
// then TCP, UDP or RoCEv2 (BTH, AETH). One header a frame, in order, as soon as its bytes
// are there, and five cycles after the frame's last beat at the latest.
//
// Headers are looked for in the first 128 bytes. A header that lies about a length, or that
// the end of the frame cuts, makes the frame malformed: it passes, and is not tracked.
// Lengths come from IP, so that Ethernet padding is no payload.
module mw_parse
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W = 512,  // bits of a beat: 64, 128, 256 or 512
    parameter bit          LANE   = 1'b0  // 0: A to B, 1: B to A
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic                   in_valid,
    input  logic                   in_sof,
    input  logic    [  DATA_W-1:0] in_data,
    input  logic    [DATA_W/8-1:0] in_keep,
    input  logic                   in_last,
    input  logic    [        63:0] in_stamp,
    input  logic    [        31:0] in_packet_id,
    output logic                   out_valid,
    output header_t                out_hdr
);
  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : g_bad
    $fatal(1, "mw_parse: DATA_W must be 64, 128, 256 or 512");
  end

  localparam int unsigned HeadBytes = 128;  // the bytes looked at
  localparam int unsigned BeatBytes = DATA_W / 8;
  localparam int unsigned Beats = HeadBytes / BeatBytes;
  localparam int unsigned BeatW = $clog2(Beats);
  localparam int unsigned L3Bytes = 84;  // longest IPv4 header, and what is read of the next
  localparam int unsigned L4Bytes = 24;  // UDP, BTH, AETH

  localparam logic [15:0] TypeIpv4 = 16'h0800;
  localparam logic [15:0] TypeIpv6 = 16'h86dd;
  localparam logic [7:0] ProtocolTcp = 8'd6;
  localparam logic [7:0] ProtocolUdp = 8'd17;
  localparam logic [15:0] PortRoce = 16'd4791;

  typedef logic [8*HeadBytes-1:0] head_t;
  typedef logic [8*L3Bytes-1:0] l3_t;
  typedef logic [8*L4Bytes-1:0] l4_t;

  function automatic logic is_tag(input logic [15:0] ethertype);
    return ethertype == 16'h8100 || ethertype == 16'h88a8;
  endfunction
  // network byte order
  function automatic logic [15:0] be16(input logic [15:0] v);
    return {v[7:0], v[15:8]};
  endfunction
  function automatic logic [31:0] be32(input logic [31:0] v);
    return {be16(v[15:0]), be16(v[31:16])};
  endfunction
  function automatic logic [127:0] be128(input logic [127:0] v);
    return {be32(v[31:0]), be32(v[63:32]), be32(v[95:64]), be32(v[127:96])};
  endfunction

  // Words of 4 bytes of BTH and the extension headers between it and the payload (InfiniBand
  // specification volume 1, table 38): RETH 4, AtomicETH 7, AtomicAckETH 2, AETH 1, DETH 2,
  // RDETH 1, immediate data 1, invalidate 1. The 4 reserved words of a CNP count as well. `more`
  // words come on top: they are known sooner than the sum with a length could be.
  function automatic logic [4:0] operation_words(input logic [4:0] operation,
                                                 input int unsigned more);
    if (operation inside {5'h13, 5'h14}) return 5'(5 + more + 7);
    if (operation == 5'h12) return 5'(5 + more + 3);
    if (operation == 5'h0b) return 5'(5 + more + 5);
    if (operation inside {5'h06, 5'h0a, 5'h0c}) return 5'(5 + more + 4);
    if (operation inside {5'h03, 5'h05, 5'h09, 5'h0d, 5'h0f, 5'h10, 5'h11, 5'h16, 5'h17})
      return 5'(5 + more + 1);
    return 5'(5 + more);
  endfunction
  function automatic logic [7:0] bth_bytes(input logic [7:0] opcode, input int unsigned more);
    logic [4:0] operation, words;
    logic response;
    operation = opcode[4:0];
    response = operation inside {5'h0d, 5'h0e, 5'h0f, 5'h10, 5'h11, 5'h12};
    words = 5'(5 + more);
    if (opcode[7:5] inside {3'h0, 3'h1}) words = operation_words(operation, more);  // RC, UC
    // RD: RDETH, in requests DETH too
    if (opcode[7:5] == 3'h2) words = operation_words(operation, response ? more + 1 : more + 3);
    if (opcode[7:5] == 3'h3) words = operation_words(operation, more + 2);  // UD: DETH
    if (opcode == 8'h81) words = 5'(5 + more + 4);  // CNP
    // XRC: XRCETH in requests
    if (opcode[7:5] == 3'h5) words = operation_words(operation, response ? more : more + 1);
    return {1'b0, words, 2'b00};
  endfunction

  // s: beats as they come, and what stands where a type may stand: behind no tag, one, two
  localparam int unsigned Types = 3;
  typedef struct packed {
    logic tag;
    logic ip4;
    logic ip6;
    logic longer;  // its headers may not end in the first half of HeadBytes
  } type_t;
  logic [DATA_W-1:0] beats[Beats];
  type_t [Types-1:0] types;
  logic [BeatW:0] next_beat;  // Beats: all taken
  logic [63:0] stamp;
  logic [31:0] packet_id;
  logic s_valid, s_last, s_half, s_whole;
  logic [7:0] s_bytes;

  function automatic type_t type_at(input logic [15:0] ethertype, input logic [3:0] ihl,
                                    input int unsigned l2_len);
    type_t t;
    t.tag = is_tag(ethertype);
    t.ip4 = ethertype == TypeIpv4;
    t.ip6 = ethertype == TypeIpv6;
    t.longer = t.ip6 || (t.ip4 && 32'(ihl) * 4 > HeadBytes / 2 - L4Bytes - l2_len);
    return t;
  endfunction

  always_ff @(posedge clk) begin
    automatic logic [BeatW:0] beat = in_sof ? '0 : next_beat;
    s_valid <= in_valid && !rst;
    if (in_valid) begin
      s_last  <= in_last;
      s_half  <= beat == (BeatW + 1)'(Beats / 2 - 1) && in_keep[BeatBytes-1];
      s_whole <= beat == (BeatW + 1)'(Beats - 1) && in_keep[BeatBytes-1];
      s_bytes <= 8'(beat) * 8'(BeatBytes) + 8'(kept_bytes(64'(in_keep)));
      if (!beat[BeatW]) beats[BeatW'(beat)] <= in_data;
      for (int unsigned i = 0; i < Types; i++) begin
        automatic int unsigned at = (12 + 4 * i) % BeatBytes;
        if (in_sof) types[i] <= '0;
        if (beat == (BeatW + 1)'((12 + 4 * i) / BeatBytes) && in_keep[at+1])
          types[i] <= type_at(be16(in_data[8*at+:16]), in_data[8*(at+2)+:4], 14 + 4 * i);
      end
      if (in_sof) begin
        stamp <= in_stamp;
        packet_id <= in_packet_id;
      end
      next_beat <= beat == (BeatW + 1)'(Beats) ? beat : beat + 1'b1;
    end
    if (rst) next_beat <= '0;
  end

  // a: the IP header cut out, once the headers are there
  typedef struct packed {
    logic [63:0] stamp;
    logic [31:0] packet_id;
    logic [4:0]  l2_len;     // 14, 18, 22
    logic        cut;        // no whole Ethernet header
    logic        is4;
    logic        is6;
    logic [3:0]  ihl;        // of the IP header, in words of 4 bytes
    logic [15:5] ihl_is;     // the same, one bit for each length
    logic        ended;      // there are no more bytes
    logic [7:0]  rest;       // bytes behind the Ethernet header
    logic [7:0]  room;       // the same without IPv6's header, whose length is of what follows
    l3_t         l3;
  } a_t;
  logic a_valid;
  a_t   a;
  logic emitted, one_tag, two_tags, is4, is6, longer, enough;
  assign one_tag = types[0].tag;
  assign two_tags = types[0].tag && types[1].tag;
  assign is4 = two_tags ? types[2].ip4 : one_tag ? types[1].ip4 : types[0].ip4;
  assign is6 = two_tags ? types[2].ip6 : one_tag ? types[1].ip6 : types[0].ip6;
  assign longer = two_tags ? types[2].longer : one_tag ? types[1].longer : types[0].longer;
  // Half of the bytes do, but for IPv6 and for many tags and options.
  assign enough = s_whole || (s_half && !longer);

  always_ff @(posedge clk) begin
    a_valid <= s_valid && (s_last || enough) && !emitted && !rst;
    if (s_valid) emitted <= !s_last && (enough || emitted);
    if (rst) emitted <= 1'b0;
    if (s_valid && (s_last || s_half || s_whole) && !emitted) begin
      automatic head_t head;
      automatic logic [4:0] l2_len = two_tags ? 5'd22 : one_tag ? 5'd18 : 5'd14;
      automatic l3_t l3;
      automatic logic [3:0] ihl;
      for (int i = 0; i < int'(Beats); i++) head[i*DATA_W+:DATA_W] = beats[i];
      l3 = two_tags ? head[8*22+:8*L3Bytes] : one_tag ? head[8*18+:8*L3Bytes] : head[8*14+:8*L3Bytes];
      ihl = is6 ? 4'd10 : l3[3:0];
      a.stamp <= stamp;
      a.packet_id <= packet_id;
      a.l2_len <= l2_len;
      a.cut <= s_bytes < 8'(l2_len);
      a.is4 <= is4;
      a.is6 <= is6;
      a.ihl <= ihl;
      for (int i = 5; i < 16; i++) a.ihl_is[i] <= ihl == 4'(i);
      a.ended <= s_last;
      a.rest <= s_bytes - 8'(l2_len);
      a.room <= s_bytes - 8'(l2_len) - (is6 ? 8'd40 : 8'd0);
      a.l3 <= l3;
    end
  end

  // b: the IP header read, the transport header cut out
  typedef struct packed {
    logic [63:0]  stamp;
    logic [31:0]  packet_id;
    logic         cut;
    logic         is4;
    logic         is6;
    logic         bad_header;      // its version or its length can't be
    logic         bad_length;      // the packet is shorter than its header
    logic         short_header;    // the frame ends in it
    logic         short_data;      // the frame ends before the packet
    logic         first_fragment;
    logic [7:0]   l3_offset;
    logic [7:0]   l4_offset;
    logic [15:0]  l4_len;          // bytes behind the IP header
    logic         tcp;
    logic         udp;
    logic [127:0] src;
    logic [127:0] dst;
    l4_t          l4;
  } b_t;
  logic b_valid;
  b_t   b;

  always_ff @(posedge clk) begin
    b_valid <= a_valid && !rst;
    if (a_valid) begin
      automatic logic [5:0] header = {a.ihl, 2'b00};
      automatic l4_t l4 = '0;
      automatic logic [15:0] total_len = be16(a.l3[8*2+:16]);
      automatic logic [15:0] payload_len = be16(a.l3[8*4+:16]);
      automatic logic [16:0] behind = 17'(total_len) - 17'(header);
      automatic logic more = a.is4 && a.l3[8*6+5];
      automatic logic later_fragment = a.is4 && {a.l3[8*6+:5], a.l3[8*7+:8]} != '0;
      automatic logic is_tcp = (a.is6 ? a.l3[8*6+:8] : a.l3[8*9+:8]) == ProtocolTcp;
      automatic logic is_udp = (a.is6 ? a.l3[8*6+:8] : a.l3[8*9+:8]) == ProtocolUdp;
      for (int i = 5; i < 16; i++) if (a.ihl_is[i]) l4 |= a.l3[8*4*i+:8*L4Bytes];
      b.stamp <= a.stamp;
      b.packet_id <= a.packet_id;
      b.cut <= a.cut;
      b.is4 <= a.is4;
      b.is6 <= a.is6;
      b.bad_header <= a.l3[7:4] != (a.is6 ? 4'd6 : 4'd4) || a.ihl < 4'd5;
      b.bad_length <= a.is4 && behind[16];
      b.short_header <= a.rest < 8'(header);
      b.short_data <= a.ended && (a.is6 ? payload_len : total_len) > 16'(a.room);
      b.first_fragment <= more && !later_fragment;
      b.l3_offset <= 8'(a.l2_len);
      b.l4_offset <= 8'(a.l2_len) + 8'(header);
      b.l4_len <= a.is6 ? payload_len : behind[15:0];
      b.tcp <= is_tcp && !later_fragment;
      b.udp <= is_udp && !later_fragment;
      b.src <= a.is6 ? be128(a.l3[8*8+:128]) : 128'(be32(a.l3[8*12+:32]));
      b.dst <= a.is6 ? be128(a.l3[8*24+:128]) : 128'(be32(a.l3[8*16+:32]));
      b.l4 <= l4;
    end
  end

  // c: the transport header read, its length known
  typedef struct packed {
    header_t     hdr;
    logic [15:0] l4_len;     // what the transport says that it takes
    logic [7:0]  l4_header;  // with extensions
    logic [7:0]  l4_used;    // and trailer
    logic        bad;
  } c_t;
  logic c_valid;
  c_t   c;

  always_ff @(posedge clk) begin
    c_valid <= b_valid && !rst;
    if (b_valid) begin
      automatic logic is_ip = b.is4 || b.is6;
      automatic logic bad = b.bad_header || b.bad_length || b.short_header || b.short_data;
      automatic logic tcp = is_ip && b.tcp && !bad;
      automatic logic udp = is_ip && b.udp && !bad;
      automatic logic roce = udp && be16(b.l4[8*2+:16]) == PortRoce && !b.first_fragment;
      automatic logic [15:0] udp_len = be16(b.l4[8*4+:16]);
      automatic logic [7:0] opcode = b.l4[8*8+:8];
      automatic logic [5:0] tcp_header = {b.l4[8*12+4+:4], 2'b00};
      // AETH stands right behind BTH in the responses of RC and XRC
      automatic
      logic
      aeth = (opcode[7:5] == 3'h0 || opcode[7:5] == 3'h5) &&
          (opcode[4:0] inside {5'h0d, 5'h0f, 5'h10, 5'h11, 5'h12});
      c.hdr.stamp <= b.stamp;
      c.hdr.packet_id <= b.packet_id;
      c.hdr.lane <= LANE;
      c.hdr.proto <= roce ? ProtoRoce : udp ? ProtoUdp : tcp ? ProtoTcp : ProtoOther;
      c.hdr.malformed <= b.cut || (is_ip && bad);
      c.hdr.is_ip <= is_ip && !bad;
      c.hdr.is_ip6 <= b.is6 && !bad;
      c.hdr.l3_offset <= b.l3_offset;
      c.hdr.l4_offset <= is_ip && !bad ? b.l4_offset : b.l3_offset;
      c.hdr.payload_offset <= '0;
      c.hdr.payload_len <= '0;
      c.hdr.src <= is_ip && !bad ? b.src : '0;
      c.hdr.dst <= is_ip && !bad ? b.dst : '0;
      c.hdr.sport <= be16(b.l4[8*0+:16]);
      c.hdr.dport <= be16(b.l4[8*2+:16]);
      c.hdr.qpn <= '0;
      c.hdr.f0 <= '0;
      c.hdr.f1 <= '0;
      c.hdr.f2 <= '0;
      c.hdr.flags <= '0;
      if (tcp) begin
        c.hdr.f0 <= be32(b.l4[8*4+:32]);
        c.hdr.f1 <= be32(b.l4[8*8+:32]);
        c.hdr.f2 <= be16(b.l4[8*14+:16]);
        c.hdr.flags <= b.l4[8*13+:8];
        c.l4_len <= b.l4_len;
        c.l4_header <= 8'(tcp_header);
        c.l4_used <= 8'(tcp_header);
        c.bad <= tcp_header < 6'd20;
      end else if (roce) begin
        c.hdr.qpn <= {b.l4[8*13+:8], b.l4[8*14+:8], b.l4[8*15+:8]};
        c.hdr.f0 <= {opcode, b.l4[8*17+:8], b.l4[8*18+:8], b.l4[8*19+:8]};
        c.hdr.f1 <= aeth ? be32(b.l4[8*20+:32]) : '0;
        c.hdr.f2 <= {b.l4[8*9+:8], b.l4[8*12+6+:2], b.l4[8*16+7], 5'b0};
        c.l4_len <= udp_len;
        c.l4_header <= bth_bytes(opcode, 0);
        c.l4_used <= bth_bytes(opcode, 1);  // ICRC
        c.bad <= b.l4_len < udp_len;
      end else if (udp) begin
        // The length of a fragmented datagram is that of the whole.
        c.l4_len <= b.first_fragment ? b.l4_len : udp_len;
        c.l4_header <= 8'd8;
        c.l4_used <= 8'd8;
        c.bad <= b.l4_len < udp_len && !b.first_fragment;
      end else begin
        c.l4_len <= '0;
        c.l4_header <= '0;
        c.l4_used <= '0;
        c.bad <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk) begin
    out_valid <= c_valid && !rst;
    if (c_valid) begin
      out_hdr <= c.hdr;
      out_hdr.payload_offset <= c.hdr.l4_offset + c.l4_header;
      out_hdr.payload_len <= c.l4_len - 16'(c.l4_used);
      if (c.hdr.proto == ProtoOther) begin
        out_hdr.sport <= '0;
        out_hdr.dport <= '0;
      end
      if (c.bad || c.l4_len < 16'(c.l4_used)) begin
        out_hdr.proto <= ProtoOther;
        out_hdr.malformed <= 1'b1;
        out_hdr.payload_offset <= c.hdr.l4_offset;
        out_hdr.payload_len <= '0;
        out_hdr.sport <= '0;
        out_hdr.dport <= '0;
        out_hdr.qpn <= '0;
        out_hdr.f0 <= '0;
        out_hdr.f1 <= '0;
        out_hdr.f2 <= '0;
        out_hdr.flags <= '0;
      end
    end
  end
endmodule
