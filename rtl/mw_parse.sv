// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Reads the headers of a frame: Ethernet, up to two VLAN tags, IPv4 with options or IPv6,
// then TCP, UDP or RoCEv2 (BTH, AETH). One header a frame, in order, as soon as its bytes
// are there, and four cycles after the frame's last beat at the latest.
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

  // Bytes of the extension headers between BTH and payload (InfiniBand specification
  // volume 1, table 38): RETH 16, AtomicETH 28, AtomicAckETH 8, AETH 4, DETH 8, RDETH 4,
  // immediate data 4, invalidate 4. The 16 reserved bytes of a CNP count as one.
  function automatic logic [5:0] bth_extensions(input logic [7:0] opcode);
    logic [5:0] n;
    logic response;
    response = opcode[4:0] >= 5'h0d && opcode[4:0] <= 5'h12;
    unique case (opcode[4:0])
      5'h03, 5'h05, 5'h09, 5'h0d, 5'h0f, 5'h10, 5'h11, 5'h16, 5'h17: n = 6'd4;
      5'h06, 5'h0a, 5'h0c: n = 6'd16;
      5'h0b: n = 6'd20;
      5'h12: n = 6'd12;
      5'h13, 5'h14: n = 6'd28;
      default: n = 6'd0;
    endcase
    unique case (opcode[7:5])
      3'h0, 3'h1: return n;  // RC, UC
      3'h2:       return n + (response ? 6'd4 : 6'd12);  // RD: RDETH, in requests DETH too
      3'h3:       return n + 6'd8;  // UD: DETH
      3'h4:       return opcode[4:0] == 5'h01 ? 6'd16 : 6'd0;
      3'h5:       return n + (response ? 6'd0 : 6'd4);  // XRC: XRCETH in requests
      default:    return 6'd0;
    endcase
  endfunction

  // Collect beats until the headers are there.
  logic [DATA_W-1:0] beats[Beats];
  logic [BeatW:0] next_beat;  // Beats: all taken
  logic emitted;
  logic [63:0] stamp;
  logic [31:0] packet_id;

  typedef struct packed {
    logic [63:0] stamp;
    logic [31:0] packet_id;
    logic [4:0]  l2_len;     // 14, 18, 22
    logic        cut;        // no whole Ethernet header
    logic [15:0] ethertype;
    logic        ended;      // `bytes` is the length of the frame
    logic [7:0]  bytes;
    l3_t         l3;
  } a_t;
  logic a_valid;
  a_t   a;

  always_ff @(posedge clk) begin
    if (rst) begin
      next_beat <= '0;
      emitted   <= 1'b0;
      a_valid   <= 1'b0;
    end else begin
      a_valid <= 1'b0;
      if (in_valid && (in_sof || !emitted)) begin
        automatic logic [BeatW:0] beat = in_sof ? '0 : next_beat;
        automatic logic [7:0] bytes = 8'(beat) * 8'(BeatBytes) + 8'($countones(in_keep));
        automatic head_t head = '0;
        automatic logic [4:0] l2_len = 5'd14;
        automatic logic [15:0] ethertype;
        automatic logic [3:0] ihl;
        automatic logic enough;
        for (int i = 0; i < int'(Beats); i++)
        head[i*DATA_W+:DATA_W] = (BeatW + 1)'(i) == beat ? in_data : beats[i];
        ethertype = be16(head[8*12+:16]);
        ihl = head[8*14+:4];
        if (bytes >= 8'd14 && is_tag(ethertype)) begin
          l2_len = 5'd18;
          ethertype = be16(head[8*16+:16]);
          ihl = head[8*18+:4];
          if (bytes >= 8'd18 && is_tag(ethertype)) begin
            l2_len = 5'd22;
            ethertype = be16(head[8*20+:16]);
            ihl = head[8*22+:4];
          end
        end
        // Half of the bytes do, but for IPv6 and for many tags and options.
        enough = bytes == 8'(HeadBytes) || (bytes == 8'(HeadBytes / 2) && ethertype != TypeIpv6 &&
            (ethertype != TypeIpv4 || 8'(l2_len) + 8'({ihl, 2'b00}) <= 8'(HeadBytes / 2 - L4Bytes)));
        if (in_last || enough) begin
          a_valid <= 1'b1;
          a.stamp <= in_sof ? in_stamp : stamp;
          a.packet_id <= in_sof ? in_packet_id : packet_id;
          a.l2_len <= l2_len;
          a.cut <= bytes < 8'(l2_len);
          a.ethertype <= ethertype;
          a.ended <= in_last;
          a.bytes <= bytes;
          unique case (l2_len)
            5'd14:   a.l3 <= head[8*14+:8*L3Bytes];
            5'd18:   a.l3 <= head[8*18+:8*L3Bytes];
            default: a.l3 <= head[8*22+:8*L3Bytes];
          endcase
        end else begin
          beats[beat[BeatW-1:0]] <= in_data;
        end
        if (in_sof) begin
          stamp <= in_stamp;
          packet_id <= in_packet_id;
        end
        next_beat <= beat + 1'b1;
        emitted   <= enough && !in_last;
      end
      if (in_valid && in_last) emitted <= 1'b0;
    end
  end

  // b: the IP header read, the transport header cut out
  typedef struct packed {
    logic [63:0]  stamp;
    logic [31:0]  packet_id;
    logic         malformed;
    logic         is_ip;
    logic         is_ip6;
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
      automatic logic is4 = !a.cut && a.ethertype == TypeIpv4;
      automatic logic is6 = !a.cut && a.ethertype == TypeIpv6;
      automatic logic [3:0] ihl = is6 ? 4'd10 : a.l3[3:0];  // in 4 bytes; 40 bytes for IPv6
      automatic logic [5:0] header = {ihl, 2'b00};
      automatic logic [15:0] total_len = be16(a.l3[8*2+:16]);
      automatic logic [15:0] l4_len = is6 ? be16(a.l3[8*4+:16]) : total_len - 16'(header);
      automatic logic [16:0] needed = 17'(a.l2_len) + 17'(header) + 17'(l4_len);
      automatic logic [7:0] protocol = is6 ? a.l3[8*6+:8] : a.l3[8*9+:8];
      automatic logic more = is4 && a.l3[8*6+5];
      automatic logic later_fragment = is4 && {a.l3[8*6+:5], a.l3[8*7+:8]} != '0;
      automatic
      logic
      bad = a.l3[7:4] != (is6 ? 4'd6 : 4'd4) || ihl < 4'd5 ||
          (is4 && total_len < 16'(header)) || a.bytes < 8'(a.l2_len) + 8'(header) ||
          (a.ended && needed > 17'(a.bytes));
      b.stamp <= a.stamp;
      b.packet_id <= a.packet_id;
      b.malformed <= a.cut || ((is4 || is6) && bad);
      b.is_ip <= (is4 || is6) && !bad;
      b.is_ip6 <= is6 && !bad;
      b.first_fragment <= more && !later_fragment;
      b.l3_offset <= 8'(a.l2_len);
      b.l4_offset <= 8'(a.l2_len) + ((is4 || is6) && !bad ? 8'(header) : 8'd0);
      b.l4_len <= l4_len;
      b.tcp <= (is4 || is6) && !bad && !later_fragment && protocol == ProtocolTcp;
      b.udp <= (is4 || is6) && !bad && !later_fragment && protocol == ProtocolUdp;
      b.src <= is6 ? be128(a.l3[8*8+:128]) : 128'(be32(a.l3[8*12+:32]));
      b.dst <= is6 ? be128(a.l3[8*24+:128]) : 128'(be32(a.l3[8*16+:32]));
      for (int i = 5; i < 16; i++) if (ihl == 4'(i)) b.l4 <= a.l3[8*4*i+:8*L4Bytes];
    end
  end

  // c: the transport header read, its length known
  typedef struct packed {
    header_t     hdr;
    logic [15:0] l4_len;   // what the transport says that it takes
    logic [7:0]  l4_used;  // header, extensions and trailer
    logic        bad;
  } c_t;
  logic c_valid;
  c_t   c;

  always_ff @(posedge clk) begin
    c_valid <= b_valid && !rst;
    if (b_valid) begin
      automatic logic roce = b.udp && be16(b.l4[8*2+:16]) == PortRoce && !b.first_fragment;
      automatic logic [15:0] udp_len = be16(b.l4[8*4+:16]);
      automatic logic [7:0] opcode = b.l4[8*8+:8];
      automatic logic [5:0] tcp_header = {b.l4[8*12+4+:4], 2'b00};
      automatic logic [7:0] bth_end = 8'd20 + 8'(bth_extensions(opcode));
      // AETH stands right behind BTH in the responses of RC and XRC
      automatic
      logic
      aeth = (opcode[7:5] == 3'h0 || opcode[7:5] == 3'h5) &&
          (opcode[4:0] inside {5'h0d, 5'h0f, 5'h10, 5'h11, 5'h12});
      c.hdr.stamp <= b.stamp;
      c.hdr.packet_id <= b.packet_id;
      c.hdr.lane <= LANE;
      c.hdr.proto <= roce ? ProtoRoce : b.udp ? ProtoUdp : b.tcp ? ProtoTcp : ProtoOther;
      c.hdr.malformed <= b.malformed;
      c.hdr.is_ip <= b.is_ip;
      c.hdr.is_ip6 <= b.is_ip6;
      c.hdr.l3_offset <= b.l3_offset;
      c.hdr.l4_offset <= b.l4_offset;
      c.hdr.payload_len <= '0;
      c.hdr.src <= b.is_ip ? b.src : '0;
      c.hdr.dst <= b.is_ip ? b.dst : '0;
      c.hdr.sport <= be16(b.l4[8*0+:16]);
      c.hdr.dport <= be16(b.l4[8*2+:16]);
      c.hdr.qpn <= '0;
      c.hdr.f0 <= '0;
      c.hdr.f1 <= '0;
      c.hdr.f2 <= '0;
      c.hdr.flags <= '0;
      if (b.tcp) begin
        c.hdr.payload_offset <= b.l4_offset + 8'(tcp_header);
        c.hdr.f0 <= be32(b.l4[8*4+:32]);
        c.hdr.f1 <= be32(b.l4[8*8+:32]);
        c.hdr.f2 <= be16(b.l4[8*14+:16]);
        c.hdr.flags <= b.l4[8*13+:8];
        c.l4_len <= b.l4_len;
        c.l4_used <= 8'(tcp_header);
        c.bad <= tcp_header < 6'd20;
      end else if (roce) begin
        c.hdr.payload_offset <= b.l4_offset + bth_end;
        c.hdr.qpn <= {b.l4[8*13+:8], b.l4[8*14+:8], b.l4[8*15+:8]};
        c.hdr.f0 <= {opcode, b.l4[8*17+:8], b.l4[8*18+:8], b.l4[8*19+:8]};
        c.hdr.f1 <= aeth ? be32(b.l4[8*20+:32]) : '0;
        c.hdr.f2 <= {b.l4[8*9+:8], b.l4[8*12+6+:2], b.l4[8*16+7], 5'b0};
        c.l4_len <= udp_len;
        c.l4_used <= bth_end + 8'd4;  // and ICRC
        c.bad <= b.l4_len < udp_len;
      end else if (b.udp) begin
        // The length of a fragmented datagram is that of the whole.
        c.hdr.payload_offset <= b.l4_offset + 8'd8;
        c.l4_len <= b.first_fragment ? b.l4_len : udp_len;
        c.l4_used <= 8'd8;
        c.bad <= b.l4_len < udp_len && !b.first_fragment;
      end else begin
        c.hdr.payload_offset <= b.l4_offset;
        c.l4_len <= '0;
        c.l4_used <= '0;
        c.bad <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk) begin
    out_valid <= c_valid && !rst;
    if (c_valid) begin
      out_hdr <= c.hdr;
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
