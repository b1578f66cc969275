// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Carries out a verdict on the bytes of a frame.
//
// The verdict of the frame at the head of the lane becomes a plan: what is to happen to the
// frame as a whole (for mw_path), and what changes in its bytes. Checksums are mended by what
// mw_mend found the other changes to do to them, then broken if that is asked for; set, ecn
// and corrupt come last, in this order, so a checksum that they write to is as they left it.
// Beats pass through four stages that move together on `go`:
//
//   0 -> 1  find the changes of this beat, and the checksums in it
//   1 -> 2  add what mw_mend found (RFC 1624, equation 3)
//   2 -> 3  fold the sum, break it; make masks of all other changes
//   3 -> 4  change the beat
module mw_act
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W  = 512,  // 64 or 512
    parameter int unsigned PREFILL = 72,   // beats that are certain to be there when length is not
    parameter int unsigned TAG_W   = 8     // bits that travel with a beat, at least 1
) (
    input logic clk,
    input logic rst,
    input logic [63:0] time_ns,
    // verdicts, one a frame
    input logic v_valid,
    output logic v_ready,
    input verdict_t v,
    input logic v_mends,
    // what its changes do to checksums, for each verdict that mends
    input logic mend_valid,
    output logic mend_ready,
    input mend_t mend,
    // the plan for the frame at the head
    output logic plan_valid,
    output logic plan_drop,
    output logic plan_delay,
    output logic [39:0] plan_delay_ns,
    output logic plan_whole,  // not to begin before the end of the frame is known
    output logic plan_touched,
    output record_t plan_rec,
    output action_t plan_action,
    output logic [7:0] plan_l3,  // where its headers begin
    output logic [7:0] plan_l4,
    output logic plan_ecn,  // will be done
    output logic plan_corrupt,  // will be done: what it changes exists
    output logic plan_set,  // the same
    input logic at_hand,  // the frame at the head lacks but its plan
    input logic len_known,  // `len` is the length that it will have
    input logic [13:0] len,
    input logic plan_take,  // the last beat of the frame passes, or it is dropped
    // its beats
    input logic go,
    input logic in_valid,
    input logic [10:0] in_index,  // counts the beats of the frame
    input logic [DATA_W-1:0] in_data,
    input logic in_pad,  // bytes from in_bytes on are to be zero
    input logic [$clog2(DATA_W/8):0] in_bytes,
    input logic [TAG_W-1:0] in_tag,
    output logic out_valid,  // four cycles of `go` later
    output logic [DATA_W-1:0] out_data,
    output logic [TAG_W-1:0] out_tag,
    output logic active  // beats are on their way
);
  if ((DATA_W != 64 && DATA_W != 512) || TAG_W < 1) begin : g_bad
    $fatal(1, "mw_act: DATA_W must be 64 or 512, TAG_W at least 1");
  end

  localparam int unsigned Bytes = DATA_W / 8;
  localparam int unsigned Words = DATA_W / 64;
  localparam int unsigned MaxHeader = 255;  // no header begins farther on
  localparam int unsigned SureBytes = (PREFILL - 1) * Bytes;  // the last beat may be a short one

  typedef logic [13:0] offset_t;
  typedef logic [10:0] word_t;  // of the frame, 8 bytes

  // A change of up to 8 bytes at any offset; of one byte; of a checksum of two bytes, at an even
  // offset.
  typedef struct packed {
    logic        valid;
    offset_t     at;
    logic [63:0] clear;
    logic [63:0] flip;
  } words_t;
  typedef struct packed {
    logic       valid;
    offset_t    at;
    logic [7:0] clear;
    logic [7:0] flip;
  } byte_t;
  typedef struct packed {
    logic        valid;
    offset_t     at;
    logic        changed;
    logic [15:0] add;
    logic        broken;
    logic        udp;      // 0 says that there is no checksum
  } sum_t;
  words_t set, icrc;
  byte_t ecn, corrupt;
  sum_t ip, l4;
  logic [2:0] set_skip;  // bytes of set that it leaves alone, before the first that it writes
  offset_t icrc_last;
  logic whole, break_ip, break_l4, break_icrc;

  // ---- The plan. A frame that waits only for mw_mend is delayed by that much less.
  logic load, waits, waiting;
  logic [63:0] due;
  assign waits = v_valid && v_mends && !mend_valid;
  assign v_ready = (!plan_valid || plan_take) && !waits;
  assign load = v_valid && v_ready;
  assign mend_ready = load && v_mends;

  always_ff @(posedge clk) begin
    if (load) begin
      automatic logic is4 = has_ip_checksum(v.layout);
      automatic logic has4 = has_l4_checksum(v.layout);
      automatic logic roce = v.layout.proto == ProtoRoce;
      automatic offset_t l3 = 14'(v.layout.l3_offset);
      automatic
      offset_t
      l4_sum = 14'(v.layout.l4_offset) + (v.layout.proto == ProtoTcp ? 14'd16 : 14'd6);
      automatic offset_t end_at = v.layout.data_end;
      automatic write_t write = write_of(v.layout, v.action);
      automatic logic changes_byte = v.action.corrupt && has_base(v.layout, v.action.corrupt_base);
      automatic
      offset_t
      corrupt_at = frame_offset(
          v.layout, v.action.corrupt_base, v.action.corrupt_offset
      );
      automatic
      logic [31:0]
      icrc_flip = (v_mends ? mend.icrc_flip : '0) ^ {32{v.action.break_icrc}};
      plan_drop <= v.action.drop;
      plan_delay <= v.action.delay && v.action.delay_ns != '0;
      plan_delay_ns <= v.action.delay_ns;
      if (waiting) plan_delay_ns <= time_ns < due ? 40'(due - time_ns) : 40'd1;
      plan_touched <= v.touched;
      plan_rec <= v.rec;
      plan_action <= v.action;
      plan_l3 <= v.layout.l3_offset;
      plan_l4 <= v.layout.l4_offset;
      set <= '{
          valid: write.valid,
          at: write.at,
          clear: write.mask,
          flip: write.value & write.mask
      };
      set_skip <= '0;
      for (int i = 7; i >= 0; i--) if (write.mask[8*i+:8] != '0) set_skip <= 3'(i);
      // IPv4: low two bits of the second byte. IPv6: bits 5:4 of it (RFC 8200, 3).
      ecn <= '{
          valid: v.action.ecn && v.layout.is_ip,
          at: l3 + 14'd1,
          clear: v.layout.is_ip6 ? 8'h30 : 8'h03,
          flip:
          v.layout.is_ip6
          ?
          {2'b00, v.action.ecn_codepoint, 4'b0000}
          : 8'(
          v.action.ecn_codepoint
          )
      };
      corrupt <= '{valid: changes_byte, at: corrupt_at, clear: '0, flip: v.action.corrupt_mask};
      ip <= '{
          valid: is4 && ((v_mends && mend.ip_changed) || v.action.break_ip),
          at: l3 + 14'd10,
          changed: v_mends && mend.ip_changed,
          add: mend.ip_add,
          broken: v.action.break_ip,
          udp: 1'b0
      };
      l4 <= '{
          valid: has4 && ((v_mends && mend.l4_changed) || v.action.break_l4),
          at: l4_sum,
          changed: v_mends && mend.l4_changed,
          add: mend.l4_add,
          broken: v.action.break_l4,
          udp: v.layout.proto != ProtoTcp
      };
      icrc <= '{valid: roce && icrc_flip != '0, at: end_at, clear: '0, flip: 64'(icrc_flip)};
      icrc_last <= end_at + 14'd3;
      break_ip <= is4 && v.action.break_ip;
      break_l4 <= has4 && v.action.break_l4;
      break_icrc <= roce && v.action.break_icrc;
      whole <= v.action.truncate ||
          (write.valid && 32'(v.action.set_offset) >= SureBytes - 7 - MaxHeader) ||
          (changes_byte && 32'(v.action.corrupt_offset) >= SureBytes - MaxHeader) ||
          (roce && (v.action.mend_icrc || v.action.break_icrc) && 32'(end_at) >= SureBytes - 3);
    end
    if (waits && !plan_valid && at_hand && !waiting) due <= time_ns + 64'(v.action.delay_ns);
    waiting <= waits && !plan_valid && (at_hand || waiting) && !rst;
    if (plan_take) plan_valid <= 1'b0;
    if (load) plan_valid <= 1'b1;
    if (rst) plan_valid <= 1'b0;
  end

  function automatic logic there(input offset_t at, input logic known, input logic [13:0] bytes);
    return !known || at < bytes;
  endfunction
  logic changes, do_corrupt, do_icrc;
  assign changes = set.valid || icrc.valid || ecn.valid || corrupt.valid || ip.valid || l4.valid;
  assign do_corrupt = corrupt.valid && there(corrupt.at, len_known, len);
  assign do_icrc = icrc.valid && there(icrc_last, len_known, len);
  assign plan_ecn = ecn.valid && there(ecn.at, len_known, len);
  assign plan_set = set.valid && there(set.at + 14'(set_skip), len_known, len);
  assign plan_corrupt = do_corrupt || plan_action.break_fcs || (break_ip && there(
      ip.at, len_known, len
  )) || (break_l4 && there(
      l4.at, len_known, len
  )) || (break_icrc && there(
      icrc_last, len_known, len
  ));
  assign plan_whole = whole;

  // ---- The changes of a beat. A word's number in its beat is always 0 at 64 bits. Bytes of a
  // change lie where they do in the frame's words: the first ones from `lane` on in its first
  // word, the others below that in its second.
  typedef logic [2:0] place_t;
  typedef struct packed {
    logic [1:0]   hit;    // its first word lies in the beat, its second
    place_t [1:0] place;
    logic [2:0]   lane;
    logic [63:0]  clear;
    logic [63:0]  flip;
  } beat_words_t;
  typedef struct packed {
    logic       hit;
    place_t     place;
    logic [2:0] lane;
    logic [7:0] clear;
    logic [7:0] flip;
  } beat_byte_t;
  typedef struct packed {
    logic       hit;
    place_t     place;
    logic [1:0] lane;   // of four pairs of bytes
  } beat_sum_t;
  typedef struct packed {
    beat_sum_t ip;
    beat_sum_t l4;
  } sums_at_t;
  typedef struct packed {
    beat_words_t set;
    beat_words_t icrc;
    beat_byte_t  ecn;
    beat_byte_t  corrupt;
    sums_at_t    sums;
  } changes_t;

  function automatic place_t place(input word_t word);
    return place_t'(32'(word) % Words);
  endfunction
  function automatic logic hits(input word_t word, input logic [10:0] beat);
    return 11'(32'(word) / Words) == beat;
  endfunction
  function automatic beat_words_t words_of(input words_t w, input logic [10:0] beat);
    beat_words_t b;
    word_t word;
    word = word_t'(w.at >> 3);
    b.hit = {w.valid && hits(word + 1'b1, beat), w.valid && hits(word, beat)};
    b.place = {place(word + 1'b1), place(word)};
    b.lane = w.at[2:0];
    b.clear = turned_bytes(w.clear, w.at[2:0]);
    b.flip = turned_bytes(w.flip, w.at[2:0]);
    return b;
  endfunction
  function automatic beat_byte_t byte_of(input byte_t w, input logic [10:0] beat);
    return
    '{
        hit: w.valid && hits(word_t'(w.at >> 3), beat),
        place: place(word_t'(w.at >> 3)),
        lane: w.at[2:0],
        clear: w.clear,
        flip: w.flip
    }
    ;
  endfunction
  function automatic beat_sum_t sum_of(input sum_t w, input logic [10:0] beat);
    return
    '{
        hit: w.valid && hits(word_t'(w.at >> 3), beat),
        place: place(word_t'(w.at >> 3)),
        lane: w.at[2:1]
    }
    ;
  endfunction
  function automatic logic any(input changes_t c);
    return c.set.hit != '0 || c.icrc.hit != '0 || c.ecn.hit || c.corrupt.hit ||
        c.sums.ip.hit || c.sums.l4.hit;
  endfunction

  // A checksum on its way through the stages.
  typedef struct packed {
    logic [15:0] old;
    logic        changed;
    logic [15:0] add;
    logic        broken;
    logic        udp;
  } old_sum_t;
  typedef struct packed {
    logic [15:0] old;
    logic        changed;
    logic [16:0] total;
    logic        broken;
    logic        udp;
  } added_sum_t;
  function automatic old_sum_t sum_in(input logic [DATA_W-1:0] data, input sum_t w,
                                      input beat_sum_t b);
    logic [15:0] pair;
    pair = 16'(data >> {b.place, b.lane, 4'b0000});
    return
    '{
        old: {pair[7:0], pair[15:8]},
        changed: w.changed,
        add: w.add,
        broken: w.broken,
        udp: w.udp
    }
    ;
  endfunction
  function automatic added_sum_t added(input old_sum_t s);
    return
    '{
        old: s.old,
        changed: s.changed && !(s.udp && s.old == '0),
        total: {1'b0, ~s.old} + {1'b0, s.add},
        broken: s.broken,
        udp: s.udp
    }
    ;
  endfunction
  function automatic logic [15:0] finished(input added_sum_t s);
    logic [15:0] sum;
    sum = s.changed ? ~(s.total[15:0] + 16'(s.total[16])) : s.old;
    if (s.broken) sum = sum ^ 16'h5555;
    return s.udp && (s.changed || s.broken) && sum == '0 ? '1 : sum;
  endfunction

  // What all other changes make of a word behind its checksums: some bits are cleared, then some
  // flipped. Each change clears and flips what the ones before it have left.
  typedef struct packed {
    logic [63:0] clear;
    logic [63:0] flip;
  } masks_t;
  function automatic masks_t then_masks(input masks_t m, input logic [63:0] clear,
                                        input logic [63:0] flip);
    return '{clear: m.clear | clear, flip: (m.flip & ~clear) ^ flip};
  endfunction
  function automatic logic [63:0] at_lane(input logic [2:0] lane, input logic [7:0] bits);
    for (int i = 0; i < 8; i++) at_lane[8*i+:8] = lane == 3'(i) ? bits : '0;
  endfunction
  // Bits of the bytes of a change that lie in this word.
  function automatic logic [63:0] bytes_of(input beat_words_t c, input place_t at);
    for (int i = 0; i < 8; i++) begin
      automatic int unsigned second = 32'(3'(i) < c.lane);
      bytes_of[8*i+:8] = {8{c.hit[second] && c.place[second] == at}};
    end
  endfunction
  function automatic masks_t masks_of(input changes_t c, input logic [7:0] padded,
                                      input place_t at);
    masks_t m;
    m = '0;
    m = then_masks(m, '0, c.icrc.flip & bytes_of(c.icrc, at));
    m = then_masks(m, c.set.clear & bytes_of(c.set, at), c.set.flip & bytes_of(c.set, at));
    if (c.ecn.hit && c.ecn.place == at)
      m = then_masks(m, at_lane(c.ecn.lane, c.ecn.clear), at_lane(c.ecn.lane, c.ecn.flip));
    if (c.corrupt.hit && c.corrupt.place == at)
      m = then_masks(m, '0, at_lane(c.corrupt.lane, c.corrupt.flip));
    for (int i = 0; i < 8; i++) if (padded[i]) {m.clear[8*i+:8], m.flip[8*i+:8]} = 16'hff00;
    return m;
  endfunction
  function automatic logic [63:0] word_changed(
      input logic [63:0] old, input place_t at, input sums_at_t where, input masks_t masks,
      input logic [15:0] ip_sum, input logic [15:0] l4_sum);
    logic [63:0] x;
    x = old;
    for (int i = 0; i < 4; i++) begin
      if (where.ip.hit && where.ip.place == at && where.ip.lane == 2'(i))
        x[16*i+:16] = {ip_sum[7:0], ip_sum[15:8]};
      if (where.l4.hit && where.l4.place == at && where.l4.lane == 2'(i))
        x[16*i+:16] = {l4_sum[7:0], l4_sum[15:8]};
    end
    return (x & ~masks.clear) ^ masks.flip;
  endfunction

  logic [3:0] valid;  // of stages 1 to 4
  logic any1, any2, any3;
  changes_t c1, c2;
  logic pad1;
  logic [$clog2(Bytes):0] bytes1;
  logic [Bytes-1:0] padded2;
  logic icrc_there, corrupt_there;  // of c1: they are not cut off
  sums_at_t sum3;
  masks_t [Words-1:0] masks3;
  logic [TAG_W-1:0] tag1, tag2, tag3;
  logic [DATA_W-1:0] d1, d2, d3;
  old_sum_t ip1, l41;
  added_sum_t ip2, l42;
  logic [15:0] ip3, l43;

  // From the last stage to the first: each register is read before it is written.
  always_ff @(posedge clk) begin
    if (go && (in_valid || valid != '0)) begin
      if (valid[2]) begin
        out_tag  <= tag3;
        out_data <= d3;
        if (any3) begin
          automatic logic [DATA_W-1:0] x;
          for (int w = 0; w < int'(Words); w++)
          x[64*w+:64] = word_changed(d3[64*w+:64], place_t'(w), sum3, masks3[w], ip3, l43);
          out_data <= x;
        end
      end
      if (valid[1]) begin
        if (any2) begin
          for (int w = 0; w < int'(Words); w++)
          masks3[w] <= masks_of(c2, padded2[8*w+:8], place_t'(w));
          sum3 <= c2.sums;
          ip3  <= finished(ip2);
          l43  <= finished(l42);
        end
        any3 <= any2;
        tag3 <= tag2;
        d3   <= d2;
      end
      if (valid[0]) begin
        if (any1) begin
          c2 <= c1;
          for (int i = 0; i < int'(Bytes); i++) padded2[i] <= pad1 && i >= 32'(bytes1);
          if (!icrc_there) c2.icrc.hit <= '0;
          if (!corrupt_there) c2.corrupt.hit <= 1'b0;
          ip2 <= added(ip1);
          l42 <= added(l41);
        end
        any2 <= any1;
        tag2 <= tag1;
        d2   <= d1;
      end
      if (in_valid) begin
        automatic changes_t c = '0;
        if (changes || in_pad) begin
          c.set = words_of(set, in_index);
          c.icrc = words_of(icrc, in_index);
          c.ecn = byte_of(ecn, in_index);
          c.corrupt = byte_of(corrupt, in_index);
          c.sums.ip = sum_of(ip, in_index);
          c.sums.l4 = sum_of(l4, in_index);
          c1 <= c;
          pad1 <= in_pad;
          bytes1 <= in_bytes;
          icrc_there <= do_icrc;
          corrupt_there <= do_corrupt;
          ip1 <= sum_in(in_data, ip, c.sums.ip);
          l41 <= sum_in(in_data, l4, c.sums.l4);
        end
        any1 <= in_pad || any(c);
        tag1 <= in_tag;
        d1   <= in_data;
      end
      valid <= {valid[2:0], in_valid};
    end
    if (rst) valid <= '0;
  end
  assign out_valid = valid[3];
  assign active = |valid;
endmodule
