// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Types that cross module boundaries in the core: the parsed header of a frame, what the
// tracker learned of it, the verdict of the matcher, and the 32-byte record of a packet.
// One place, so that every module and the host agree (docs/formats.md has the bytes).
//
// Byte order: a record's bit 0 is bit 0 of its byte 0, and its fields are little endian.
// Numbers taken from packets (addresses, sequence numbers) are held as integers.
package mw_pkg;

  // Sizes that the formats fix.
  localparam int unsigned ConnW = 16;  // connection number in records; all ones: none
  localparam int unsigned SlotW = 24;  // event slot in records; all ones: none
  localparam int unsigned UnitW = 256;  // a record, and the grain of a block: 32 bytes
  localparam logic [ConnW-1:0] ConnNone = '1;
  localparam logic [SlotW-1:0] SlotNone = '1;

  // A frame without FCS, in bytes. Longer ones are cut here and marked as truncated;
  // shorter ones are padded to MinFrame at egress.
  localparam int unsigned MaxFrame = 10240;
  localparam int unsigned MinFrame = 60;

  // Clocks that a FIFO reads its memory for, by the bits of a port's stream: the narrow core is for
  // parts whose memories are slow (4 ns of the ECP5's 6.4), the wide one for short latency.
  function automatic int unsigned fifo_read(input int unsigned data_w);
    return data_w == 64 ? 2 : 1;
  endfunction

  // The lowest bit that is set, without a carry.
  function automatic logic [7:0] lowest(input logic [7:0] bits);
    logic [7:0] above;  // those above it
    above = bits << 1;
    above |= above << 1;
    above |= above << 2;
    above |= above << 4;
    return bits & ~above;
  endfunction

  typedef enum logic [3:0] {
    KindAny         = 4'd0,
    KindData        = 4'd1,
    KindAck         = 4'd2,
    KindNak         = 4'd3,
    KindCnp         = 4'd4,
    KindReadRequest = 4'd5,
    KindSyn         = 4'd6,
    KindFin         = 4'd7,
    KindRst         = 4'd8,
    KindInjected    = 4'd9,  // made by the card in answer to a packet; has no position
    KindOther       = 4'd15  // no kind: the packet is not of a tracked transport
  } kind_e;
  localparam int unsigned Kinds = 9;  // KindAny .. KindRst, the ones that have a position

  typedef enum logic [1:0] {
    ProtoOther = 2'd0,  // not IP, or IP of another protocol, or malformed
    ProtoTcp   = 2'd1,
    ProtoRoce  = 2'd2,
    ProtoUdp   = 2'd3   // UDP that is not RoCEv2
  } proto_e;

  // What the parser read from a frame. Exactly one a frame, in the frames' order.
  typedef struct packed {
    logic [63:0]  stamp;           // ns, first beat at ingress
    logic [31:0]  packet_id;       // counts frames admitted to this lane, from 0
    logic         lane;            // 0: A to B, 1: B to A
    proto_e       proto;
    logic         malformed;       // a header lies or is cut; the frame passes, untracked
    logic         is_ip;           // l3_offset holds
    logic         is_ip6;
    logic [7:0]   l3_offset;       // bytes from the start of the frame
    logic [7:0]   l4_offset;
    logic [7:0]   payload_offset;  // first byte after the TCP options, BTH and its extensions
    logic [15:0]  payload_len;     // bytes of TCP payload; RoCE: payload and pad without ICRC
    logic [127:0] src;             // IPv4 in the low 32 bits
    logic [127:0] dst;
    logic [15:0]  sport;
    logic [15:0]  dport;
    logic [23:0]  qpn;             // RoCE destination QP, else 0
    logic [31:0]  f0;              // TCP sequence number | RoCE {opcode[7:0], psn[23:0]}
    logic [31:0]  f1;              // TCP acknowledgement | RoCE AETH {syndrome, msn} or 0
    logic [15:0]  f2;              // TCP window | RoCE {BTH byte 1, BTH byte 4 [7:6], AckReq, 5'b0}
    logic [7:0]   flags;           // TCP flags byte (CWR .. FIN) | 0
  } header_t;

  // Where a packet stands in its connection.
  typedef struct packed {
    logic [ConnW-1:0] conn;      // ConnNone: not tracked
    kind_e            kind;      // primary kind, for the record
    logic [Kinds-1:0] kinds;     // every kind that the packet is of, by kind_e; bit 0 always
    // Position of each kind of `kinds`. n-th packet from 1 for all but data and
    // read-request. Data of TCP: number of the segment of new data, from 1, valid when
    // is_new. Data and read-request of RoCE: extended PSN relative to the first, from 0.
    logic [31:0]      pos_any;
    logic [31:0]      pos_kind;  // of the primary kind
    logic [31:0]      pos_fin;   // of fin, when a data segment carries FIN as well
    logic             is_new;    // brings data or PSN above the highest seen
    logic             below;     // begins below the highest seen
    logic [31:0]      again;     // n-th that does, from 1; 0 for others
    logic [47:0]      rel;       // TCP data: relative byte of its first byte, from 0
  } track_t;

  // An action program: what happens to a packet that an event hits (docs/tables.md). Each flag
  // says whether the fields named after it count.
  typedef struct packed {
    logic [130:0] reserved;
    logic [1:0]   set_ip6_nibbles;   // by how many set's bits lie earlier in an IPv6 header, 0 to 2
    logic [5:0]   disarm_trigger;
    logic         disarm;            // 308
    logic [5:0]   arm_trigger;
    logic         arm;               // 301
    logic [7:0]   inject_template;
    logic         inject;            // 292  a frame made from this one is sent
    logic [31:0]  duplicate_gap_ns;  // between the frame and its copy, and between copies
    logic [7:0]   duplicate_copies;  // besides the frame itself, from 1
    logic         duplicate;         // 251
    logic [15:0]  reorder_packets;   // released after so many later packets
    logic         reorder_lane;      // of the lane, not only of the connection
    logic         reorder;           // 233
    logic         mend_icrc;         // 232  make good what set and corrupt change in this checksum
    logic         mend_l4;
    logic         mend_ip;
    logic         break_icrc;        // 229  this checksum leaves wrong
    logic         break_l4;
    logic         break_ip;
    logic         break_fcs;
    logic [13:0]  truncate_bytes;    // that are kept, from the frame's start
    logic         truncate;          // 211
    logic [63:0]  set_value;
    logic [63:0]  set_mask;          // bits that take set_value, byte 0 of the frame's order low
    logic [11:0]  set_offset;        // first of 8 bytes, counted from set_base
    logic [1:0]   set_base;          // as corrupt_base
    logic         set;               // 68
    logic [1:0]   ecn_codepoint;
    logic [7:0]   corrupt_mask;      // XORed into one byte
    logic [11:0]  corrupt_offset;    // byte, counted from corrupt_base
    logic [1:0]   corrupt_base;      // 0 frame, 1 IP header, 2 TCP or UDP header, 3 payload
    logic [39:0]  delay_ns;          // 0: none
    logic         delay;
    logic         corrupt;
    logic         ecn;               // the ECN field is set, the IPv4 header checksum mended
    logic         drop;
  } action_t;  // 448

  // What two events ask of one packet: the flags of both, the fields of the first that has
  // the flag, and the longest delay.
  function automatic action_t join_actions(input action_t a, input action_t b);
    action_t j;
    j = a;
    j.drop = a.drop || b.drop;
    j.ecn = a.ecn || b.ecn;
    if (b.ecn && !a.ecn) j.ecn_codepoint = b.ecn_codepoint;
    j.corrupt = a.corrupt || b.corrupt;
    if (b.corrupt && !a.corrupt) begin
      j.corrupt_base   = b.corrupt_base;
      j.corrupt_offset = b.corrupt_offset;
      j.corrupt_mask   = b.corrupt_mask;
    end
    j.delay = a.delay || b.delay;
    if (b.delay && (!a.delay || b.delay_ns > a.delay_ns)) j.delay_ns = b.delay_ns;
    j.set = a.set || b.set;
    if (b.set && !a.set) begin
      j.set_base = b.set_base;
      j.set_offset = b.set_offset;
      j.set_mask = b.set_mask;
      j.set_value = b.set_value;
      j.set_ip6_nibbles = b.set_ip6_nibbles;
    end
    j.truncate = a.truncate || b.truncate;
    if (b.truncate && !a.truncate) j.truncate_bytes = b.truncate_bytes;
    j.break_fcs  = a.break_fcs || b.break_fcs;
    j.break_ip   = a.break_ip || b.break_ip;
    j.break_l4   = a.break_l4 || b.break_l4;
    j.break_icrc = a.break_icrc || b.break_icrc;
    j.mend_ip    = a.mend_ip || b.mend_ip;
    j.mend_l4    = a.mend_l4 || b.mend_l4;
    j.mend_icrc  = a.mend_icrc || b.mend_icrc;
    j.reorder    = a.reorder || b.reorder;
    if (b.reorder && !a.reorder) begin
      j.reorder_lane    = b.reorder_lane;
      j.reorder_packets = b.reorder_packets;
    end
    j.duplicate = a.duplicate || b.duplicate;
    if (b.duplicate && !a.duplicate) begin
      j.duplicate_copies = b.duplicate_copies;
      j.duplicate_gap_ns = b.duplicate_gap_ns;
    end
    j.inject = a.inject || b.inject;
    if (b.inject && !a.inject) j.inject_template = b.inject_template;
    j.arm = a.arm || b.arm;
    if (b.arm && !a.arm) j.arm_trigger = b.arm_trigger;
    j.disarm = a.disarm || b.disarm;
    if (b.disarm && !a.disarm) j.disarm_trigger = b.disarm_trigger;
    return j;
  endfunction

  // Bits of record_t.done: what is asked for at ingress, what was really done at egress.
  typedef struct packed {
    logic truncate;
    logic duplicate;
    logic reorder;
    logic set;
    logic delay;
    logic corrupt;    // or a checksum left wrong
    logic ecn;
    logic drop;
  } done_t;  // 8

  function automatic done_t asked(input action_t a);
    return
    '{
        drop: a.drop,
        ecn: a.ecn,
        corrupt: a.corrupt || a.break_fcs || a.break_ip || a.break_l4 || a.break_icrc,
        delay: a.delay,
        set: a.set,
        reorder: a.reorder,
        duplicate: a.duplicate,
        truncate: a.truncate
    }
    ;
  endfunction

  // The record of a packet: 32 bytes, docs/formats.md. Most significant field first here,
  // so byte 0 is the last one.
  typedef struct packed {
    done_t            done;         // byte 31
    logic [SlotW-1:0] slot;         // 28  event slot, SlotNone when no event hit
    logic [7:0]       iteration;    // 27  of the position that the slot names; saturates; 0 no slot
    logic [7:0]       tcp_flags;    // 26
    logic [15:0]      f2;           // 24
    logic [31:0]      f1;           // 20
    logic [31:0]      f0;           // 16
    logic [15:0]      payload_len;  // 14
    logic [15:0]      conn;         // 12
    logic [31:0]      packet_id;    // 8
    logic [15:0]      length;       // 6   bytes of the frame without FCS
    logic             unmatched;    // byte 5 bit 7: matcher overloaded, not every event looked up
    logic             multi;        //        bit 6: more than one slot hit; the first is shown
    logic             truncated;    //        bit 5: longer than MaxFrame, cut
    logic             malformed;    //        bit 4
    logic             snapshot;     //        bit 3: min(length, snapshot length) bytes follow
    logic             is_ip6;       //        bit 2
    logic             error;        //        bit 1: FCS or other error at the MAC
    logic             below;        //        bit 0: begins below the highest position seen
    kind_e            kind;         // byte 4 bits 7:4
    proto_e           proto;        //        bits 3:2
    logic             tap;          //        bit 1: 0 ingress, 1 egress
    logic             lane;         //        bit 0
    logic [31:0]      time_lo;      // byte 0: ns, low 32 bits
  } record_t;  // 256

  // The headers that a packet has, and where they begin: bytes from the start of the frame.
  typedef struct packed {
    logic is_ip;  // and not malformed
    logic is_ip6;
    proto_e proto;
    logic malformed;
    logic [7:0] l3_offset;
    logic [7:0] l4_offset;
    logic [7:0] payload_offset;
    logic [13:0] data_end;  // of the transport's data, where RoCE's ICRC begins; at most MaxFrame
  } layout_t;

  // What the matcher decides, for the frame path and the ingress tap. One a frame, in the
  // frames' order.
  typedef struct packed {
    logic [63:0] stamp;
    action_t     action;
    logic        touched;  // leaves a second record, from egress
    layout_t     layout;
    record_t     rec;      // time, length, error, truncated, snapshot, tap still open
  } verdict_t;

  // What an event's changes do to the checksums of a frame (mw_mend).
  typedef struct packed {
    logic        ip_changed;
    logic [15:0] ip_add;      // one's complement sum of ~old + new (RFC 1624)
    logic        l4_changed;
    logic [15:0] l4_add;
    logic [31:0] icrc_flip;   // bits that change, first byte low
  } mend_t;  // 66

  // Bytes of a beat, which is filled from its first byte on.
  function automatic logic [6:0] kept_bytes(input logic [63:0] keep);
    kept_bytes = {keep[63], 6'd0};
    for (int i = 0; i < 63; i++) if (keep[i] && !keep[i+1]) kept_bytes |= 7'(i + 1);
  endfunction

  function automatic logic has_ip_checksum(input layout_t l);
    return l.is_ip && !l.is_ip6;
  endfunction
  function automatic logic has_l4_checksum(input layout_t l);
    return l.proto != ProtoOther;
  endfunction

  // The frame has the header from which an offset of an action counts.
  function automatic logic has_base(input layout_t l, input logic [1:0] base);
    unique case (base)
      2'd0: return 1'b1;
      2'd1: return l.is_ip;
      2'd2: return l.proto != ProtoOther;
      2'd3: return !l.malformed;
    endcase
  endfunction

  // An offset of an action in a frame.
  function automatic logic [13:0] frame_offset(input layout_t l, input logic [1:0] base,
                                               input logic [11:0] offset);
    logic [7:0] start;
    unique case (base)
      2'd0: start = '0;
      2'd1: start = l.l3_offset;
      2'd2: start = l.l4_offset;
      2'd3: start = l.payload_offset;
    endcase
    return 14'(offset) + 14'(start);
  endfunction

  // What set writes in this frame: IPv6 has the traffic class 4 bits before IPv4's place, and
  // the hop limit 8.
  typedef struct packed {
    logic        valid;
    logic [13:0] at;
    logic [63:0] mask;
    logic [63:0] value;
  } write_t;
  // Moves 8 bytes half a byte on, first byte low.
  function automatic logic [63:0] nibble_on(input logic [63:0] bytes);
    for (int i = 0; i < 8; i++)
    nibble_on[8*i+:8] = {i == 0 ? 4'd0 : bytes[8*((i+7)%8)+:4], bytes[8*i+4+:4]};
  endfunction
  function automatic write_t write_of(input layout_t l, input action_t a);
    logic [1:0] earlier;
    write_t w;
    earlier = l.is_ip && l.is_ip6 ? a.set_ip6_nibbles : '0;
    w.valid = a.set && has_base(l, a.set_base);
    w.at = frame_offset(l, a.set_base, a.set_offset) - 14'(earlier != '0);
    w.mask = earlier == 2'd1 ? nibble_on(a.set_mask) : a.set_mask;
    w.value = earlier == 2'd1 ? nibble_on(a.set_value) : a.set_value;
    return w;
  endfunction

  // 8 bytes that lie from `at` on in a frame, each in its place in an aligned word; those that do
  // not fit there are the first ones of the next word.
  function automatic logic [63:0] turned_bytes(input logic [63:0] bytes, input logic [2:0] at);
    logic [127:0] twice;
    twice = {bytes, bytes} << {at, 3'b000};
    return twice[127:64];
  endfunction

  function automatic logic truncates(input logic truncate, input logic [13:0] bytes);
    return truncate && bytes != '0;
  endfunction

  // The frame waits for a mend_t.
  function automatic logic mends(input layout_t l, input action_t a);
    logic change, ip, l4, icrc;
    change = (a.set && has_base(l, a.set_base)) || (a.corrupt && has_base(l, a.corrupt_base));
    ip = a.ecn || (change && a.mend_ip);
    l4 = change && a.mend_l4;
    icrc = (change && a.mend_icrc) || (a.break_icrc && a.mend_l4);
    return !a.drop && ((ip && has_ip_checksum(
        l
    )) || (l4 && has_l4_checksum(
        l
    )) || (icrc && l.proto == ProtoRoce));
  endfunction

  // What mw_inject keeps of a packet besides its first bytes.
  localparam int unsigned SeenBytes = 128;
  typedef struct packed {
    logic       captured;
    logic [7:0] form;       // number of the template
    logic [7:0] l3_offset;
    logic [7:0] l4_offset;
    record_t    rec;
  } seen_t;  // 281

  // Counters in the header of a block, bytes 48 to 135 (docs/formats.md); index: port, lane.
  typedef struct packed {
    logic [1:0][31:0] injected;        // byte 128
    logic [1:0][31:0] copied;          // 120
    logic [1:0][31:0] lost_snapshots;  // 112
    logic [1:0][31:0] lost_egress;     // 104
    logic [1:0][31:0] lost_ingress;    // 96
    logic [1:0][31:0] dropped;         // 88
    logic [1:0][31:0] rx_lost;         // 80
    logic [1:0][63:0] tx_frames;       // 64
    logic [1:0][63:0] rx_frames;       // 48
  } block_counters_t;  // 704

  // Table bus: the host's window into the tables (registers TBL_*). A request is held
  // until ack; rdata is valid with ack. Every table answers only its own number.
  localparam int unsigned TblW = 512;
  typedef enum logic [3:0] {
    TblExact     = 4'd0,  // exact match, per lane; index {way, row}
    TblPage      = 4'd1,  // TCP byte positions, per lane; index {way, row}
    TblSlot      = 4'd2,  // clauses of a slot, per lane
    TblState     = 4'd3,  // iteration and fired count of a slot, per lane
    TblAction    = 4'd4,  // action programs, both lanes
    TblSelector  = 4'd5,  // which connections are admitted
    TblConn      = 4'd6,  // what each connection is
    TblFlow      = 4'd7,  // flow keys to connection numbers; index {way, row}
    TblTemplate  = 4'd8,  // frames that the card makes, both lanes
    TblRule      = 4'd9,  // rules, per lane
    TblRuleState = 4'd10  // what a rule has counted, per lane
  } table_e;
  typedef struct packed {
    logic            valid;
    logic            write;
    table_e          tbl;
    logic            lane;
    logic [23:0]     index;
    logic [TblW-1:0] wdata;
  } tbl_req_t;

  // A slot: up to four disjoint ranges of iterations, each with an action program.
  typedef struct packed {
    logic [7:0] reserved;
    logic [5:0] trigger;
    logic       guarded;   // counts only while the trigger is armed
    logic       valid;
    logic [7:0] first;     // iteration, from 1
    logic [7:0] last;      // 255: without end
  } clause_range_t;  // 32
  typedef struct packed {
    logic [15:0]   action;  // index into the action table
    clause_range_t range;
  } clause_t;  // 48
  localparam int unsigned Clauses = 4;
  typedef struct packed {clause_t [Clauses-1:0] clause;} slot_t;  // 192

  // TblState: 80 bits
  typedef struct packed {
    logic [31:0] last_packet_id;  // packet that fired last
    logic [23:0] fired;           // times that a clause was carried out; saturates
    logic [23:0] seen;            // times that the position was seen; saturates
  } slot_state_t;

  // Triggers: flags of the card, shared by both lanes, that an action sets or clears.
  localparam int unsigned Triggers = 64;

  // Which packets a rule is about, compared with every packet.
  typedef enum logic [1:0] {
    ScopeConn    = 2'd0,  // the connection `conn`
    ScopeTracked = 2'd1,  // every connection
    ScopePlain   = 2'd2,  // packets of no connection
    ScopeAll     = 2'd3
  } scope_e;
  typedef enum logic [1:0] {
    MeasurePosition = 2'd0,  // of the first of `kinds` that the packet is of; TCP data that
                             // brings nothing new has 0
    MeasureByte     = 2'd1,  // relative bytes that TCP data covers
    MeasureCount    = 2'd2   // the rule's own count of packets that pass the rest, from 1
  } measure_e;
  typedef struct packed {
    logic [5:0]       trigger;
    logic             guarded;  // counts only while the trigger is armed
    logic [47:0]      last;     // by `measure`
    logic [47:0]      first;
    measure_e         measure;
    logic             again;    // packets that begin below the highest seen
    logic             fresh;    // packets that do not
    logic [Kinds-1:0] kinds;    // any of these, by kind_e
    logic [ConnW-1:0] conn;
    logic [3:0]       protos;   // any of these, by proto_e
    scope_e           scope;
    logic             enable;
  } rule_filter_t;  // 139
  // Every n-th: of the distance d from `first`, (d * inverse) rotated right by shift is at
  // most limit (Granlund and Montgomery 1994, section 9). n = 2^shift * odd.
  typedef struct packed {
    logic [31:0] limit;    // (2^32 - 1) / n
    logic [4:0]  shift;
    logic [31:0] inverse;  // of the odd part, modulo 2^32
  } rule_stride_t;  // 69
  // Chances are probabilities times 2^32; all ones: always.
  typedef struct packed {
    logic [15:0] action;
    logic [31:0] times;     // firings after which it is spent; 0: never
    logic [31:0] to_good;   // burst: chances to change the state
    logic [31:0] to_bad;
    logic [31:0] loss_bad;  // burst: chance in the bad state
    logic [31:0] loss;      // chance; burst: in the good state
    logic        burst;     // a chain of two states, good at first
  } rule_chance_t;  // 177
  typedef struct packed {
    rule_chance_t chance;
    logic [63:0]  seed;
    rule_stride_t stride;
    rule_filter_t filter;
  } rule_t;  // 449

  // TblRuleState
  typedef struct packed {
    logic        bad;             // burst: the state of the chain
    logic [31:0] last_packet_id;  // packet that fired last
    logic [31:0] fired;           // saturates
    logic [31:0] seen;            // packets that passed the filter; saturates
  } rule_state_t;  // 97

  // A rule that fires has a slot number with this bit set, its own number in the low bits.
  localparam int unsigned RuleSlotBit = 22;

  // Flow key: what names a connection. TCP: both directions give the same key, the endpoint
  // with the lower {address, port} first. RoCE: one direction, {destination, source, QP}.
  typedef struct packed {
    proto_e       proto;
    logic         is_ip6;
    logic [127:0] lo_addr;  // RoCE: source
    logic [127:0] hi_addr;  // RoCE: destination
    logic [15:0]  lo_port;  // RoCE: 0
    logic [23:0]  hi_port;  // RoCE: destination QP
  } flow_key_t;  // 299
  localparam int unsigned FlowKeyW = $bits(flow_key_t);

  // TblSelector row: `mask` bits that are set must be equal in `value`. The enable bit is
  // value.enable. Compared with the packet that would open the connection.
  typedef struct packed {
    logic         enable;
    logic         lane;
    proto_e       proto;
    logic         is_ip6;
    logic [127:0] src;
    logic [127:0] dst;
    logic [15:0]  sport;
    logic [23:0]  dport;   // TCP destination port | RoCE destination QP
  } select_t;
  // index {selector, part}: part 0 the value, part 1 the mask, each in the low bits of a row.

  // TblConn row. A write sets the bases and begins the connection's positions anew.
  typedef struct packed {
    flow_key_t        key;
    logic             opener_hi;    // TCP: the endpoint that opened it is the high one of the key
    logic             opener_lane;  // lane of the packet that opened the connection
    logic [1:0]       base_valid;   // per lane
    logic [1:0][31:0] base;         // per lane: TCP ISN + 1 | RoCE first PSN
    logic             valid;
  } conn_info_t;

  // Hash of way `way`: bit j of the index is the parity of key & mask(way, j). The masks
  // come from xorshift64* seeded by way and j, 64 bits at a time from the low end
  // (Marsaglia 2003, Vigna 2016); host-driver/ computes the same. The ways' seeds are chosen
  // so that keys in a row (positions, connections, ports) reach the rows of a way evenly.
  localparam int unsigned HashWays = 4;
  localparam logic [HashWays-1:0][23:0] HashSeed = {24'hC0BB07, 24'h8BC8F6, 24'hB2DA6F, 24'hBC031F};
  function automatic logic [63:0] mask_word(input int unsigned way, input int unsigned j,
                                            input int unsigned word);
    logic [63:0] x;
    x = 64'h9E37_79B9_7F4A_7C15 ^ (64'(HashSeed[way]) << 40) ^ (64'(j) << 32) ^ 64'(word);
    for (int unsigned i = 0; i < 4; i++) begin
      x = x ^ (x >> 12);
      x = x ^ (x << 25);
      x = x ^ (x >> 27);
      x = x * 64'h2545_F491_4F6C_DD1D;
    end
    return x;
  endfunction

  // mask(way, j) for keys of up to HashKeyMax bits.
  localparam int unsigned HashKeyMax = 320;
  function automatic logic [HashKeyMax-1:0] hash_mask(input int unsigned way, input int unsigned j);
    logic [HashKeyMax-1:0] mask;
    for (int unsigned word = 0; word < HashKeyMax / 64; word++)
    mask[64*word+:64] = mask_word(way, j, word);
    return mask;
  endfunction

  // Rows of the hash tables (docs/tables.md), most significant field first.
  typedef struct packed {
    logic [ConnW-1:0] conn;
    kind_e            kind;
    logic [31:0]      position;
  } exact_key_t;  // 52
  typedef struct packed {
    logic             bind_page;  // TCP data by number: follow it into its retransmissions
    logic [SlotW-1:0] slot;
  } exact_value_t;  // 25
  typedef struct packed {
    logic [ConnW-1:0] conn;
    logic [39:0]      page;  // relative byte >> 8
  } page_key_t;  // 56
  typedef struct packed {
    logic [7:0]       offset;  // of the byte in its page
    logic [SlotW-1:0] slot;
  } page_value_t;  // 32
  typedef struct packed {
    logic             fixed;  // no SYN replaces it
    logic [31:0]      isn;    // of the SYN that opened it; RoCE: 0
    logic [ConnW-1:0] conn;
  } flow_value_t;  // 49

endpackage
