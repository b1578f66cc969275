// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Hash table: finds the value of a key among WAYS rows, one in the memory of each way
// (skewed: each way hashes differently, so keys that meet in one way part in the others).
// One look-up a cycle, answered in five cycles; the full key is compared, so an answer is
// never wrong. Hashing is a parity matrix (mw_pkg::hash_mask); docs/tables.md has the rows.
//
// With INSERT a look-up that misses can put its key into a free way. Whether it may, and
// with which value, is asked when the answer is known, four cycles after `in_valid`. Every
// look-up sees the rows as all earlier ones left them, so that back-to-back packets of a
// new flow get one entry, and two new keys never take the same row.
//
// The host's accesses take a slot in the same pipeline and so never meet a look-up half way.
module mw_hash_table
  import mw_pkg::*;
#(
    parameter int unsigned KEY_W = 52,  // bits of a key, 1 to HashKeyMax
    parameter int unsigned VAL_W = 25,  // bits of a value, at least 1
    // 0, or bits of the tag in the value {fixed, tag, rest}: a look-up with `in_tagged` and
    // another tag takes the entry over, or deletes it when it may not insert, unless fixed
    parameter int unsigned TAG_W = 0,
    parameter int unsigned ROWS_LOG2 = 10,  // rows of a way, log2, 1 to 20
    parameter int unsigned WAYS = 4,  // 2 or 4
    parameter bit INSERT = 1'b0,
    parameter bit MULTI = 1'b0,  // a key can have several entries, with different values
    localparam int unsigned RowW = 1 + VAL_W + KEY_W,  // {valid, value, key}
    localparam int unsigned IndexW = $clog2(WAYS) + ROWS_LOG2,
    localparam int unsigned TagBits = TAG_W == 0 ? 1 : TAG_W
) (
    input logic clk,
    input logic rst,
    input logic clear,  // start to empty all rows; nothing may be in flight
    output logic busy,  // emptying; no `in_valid` meanwhile
    // look-up, or a slot for the host's access
    input logic in_valid,
    input logic in_host,
    input logic [KEY_W-1:0] in_key,
    input logic in_tagged,
    input logic [TagBits-1:0] in_tag,
    // host's access: held from `in_valid && in_host` until `out_host`
    input logic host_write,
    input logic [IndexW-1:0] host_index,  // {way, row}
    input logic [RowW-1:0] host_row,
    // four cycles after in_valid: may this look-up insert, and what
    input logic ins_allow,
    input logic [VAL_W-1:0] ins_value,
    // five cycles after in_valid
    output logic out_valid,
    output logic out_host,  // the host's access is done
    output logic [RowW-1:0] out_row,  // with out_host: the row as it was
    output logic [KEY_W-1:0] out_key,
    output logic out_hit,  // found, and not taken over
    output logic out_inserted,
    output logic out_full,  // wanted to insert, all ways taken
    output logic [VAL_W-1:0] out_value,  // of the lowest way that matches, or as inserted
    output logic [WAYS-1:0] out_match,  // ways that held the key, and their values
    output logic [VAL_W-1:0] out_values[WAYS]
);
  if (KEY_W < 1 || KEY_W > HashKeyMax || VAL_W < 1 || ROWS_LOG2 < 1 || ROWS_LOG2 > 20 ||
      (WAYS != 2 && WAYS != HashWays) || (TAG_W != 0 && TAG_W + 1 > VAL_W) ||
      (TAG_W != 0 && MULTI)) begin : g_bad
    $fatal(1, "mw_hash_table: parameter out of range");
  end

  localparam int unsigned WayW = $clog2(WAYS);
  localparam int unsigned Late = 3;  // writes that a read can have missed when it is merged

  typedef struct packed {
    logic             used;
    logic [VAL_W-1:0] value;
    logic [KEY_W-1:0] key;
  } row_t;

  // s1: rows known, memories read; s3: words there; s4: compared, decided
  logic s1_valid, s2_valid, s3_valid, s4_valid;
  logic s1_host, s2_host, s3_host, s4_host;
  logic [KEY_W-1:0] s1_key, s2_key, s3_key, s4_key;
  logic s1_tagged, s2_tagged, s3_tagged, s4_tagged;
  logic [TagBits-1:0] s1_tag, s2_tag, s3_tag, s4_tag;
  logic [ROWS_LOG2-1:0] s1_row[WAYS], s2_row[WAYS], s3_row[WAYS], s4_row[WAYS];
  logic [Late:1][WAYS-1:0] s3_same_row;  // as the slot that was decided n cycles ago
  logic [Late:1] s3_same_key;

  logic [WAYS-1:0] s4_used, s4_match, s4_stale;
  logic [VAL_W-1:0] s4_value[WAYS];
  logic [WAYS-1:0] s4_same_row;  // as the slot one cycle ahead
  logic s4_same_key, s4_same_tag;
  row_t s4_host_row[WAYS];

  // late_*[n]: decided n cycles ago
  logic [Late:1][WAYS-1:0] late_we;
  logic [Late:1][WAYS-1:0][ROWS_LOG2-1:0] late_row;
  row_t late_data[1:Late];

  logic [ROWS_LOG2-1:0] clear_row;
  logic [WayW-1:0] host_way;
  assign host_way = host_index[IndexW-1:ROWS_LOG2];

  function automatic logic [TagBits-1:0] tag_of(input logic [VAL_W-1:0] value);
    return TAG_W == 0 ? '0 : TagBits'(value >> (VAL_W - TAG_W - 1));
  endfunction
  function automatic logic fixed(input logic [VAL_W-1:0] value);
    return TAG_W == 0 || value[VAL_W-1];
  endfunction
  function automatic logic is_stale(input logic [VAL_W-1:0] value, input logic [TagBits-1:0] tag);
    return !fixed(value) && tag_of(value) != tag;
  endfunction

  for (genvar w = 0; w < int'(WAYS); w++) begin : g_way
    logic [ROWS_LOG2-1:0] hash;
    row_t read;

    for (genvar j = 0; j < int'(ROWS_LOG2); j++) begin : g_bit
      localparam logic [KEY_W-1:0] Mask = KEY_W'(hash_mask(w, j));
      always_comb begin
        hash[j] = host_index[j];
        if (in_valid && !in_host) hash[j] = ^(in_key & Mask);
      end
    end
    always_ff @(posedge clk) if (in_valid) s1_row[w] <= hash;

    mw_ram #(
        .WIDTH(RowW),
        .ROWS_LOG2(ROWS_LOG2)
    ) ram (
        .clk,
        .wr_en  (busy || late_we[1][w]),
        .wr_row (busy ? clear_row : late_row[1][w]),
        .wr_data(busy ? '0 : late_data[1]),
        .rd_en  (s1_valid),
        .rd_row (s1_row[w]),
        .rd_data(read)
    );

    // s3: bring the word up to date and compare
    always_ff @(posedge clk) begin
      if (s3_valid) begin
        automatic row_t row = read;
        automatic logic same_key = read.key == s3_key;
        automatic logic stale = is_stale(read.value, s3_tag);
        for (int n = int'(Late); n >= 1; n--)
        if (late_we[n][w] && s3_same_row[n][w]) begin
          row = late_data[n];
          same_key = s3_same_key[n];
          stale = is_stale(late_data[n].value, s3_tag);
        end
        s4_used[w] <= row.used;
        s4_match[w] <= row.used && same_key;
        s4_stale[w] <= stale;
        s4_value[w] <= row.value;
        s4_same_row[w] <= s3_row[w] == s4_row[w];
        if (s3_host) s4_host_row[w] <= row;
      end
    end
  end

  // s1, s2: wait for the memories
  always_ff @(posedge clk) begin
    if (in_valid) begin
      s1_host <= in_host;
      s1_key <= in_host ? host_row[KEY_W-1:0] : in_key;
      s1_tagged <= in_tagged && !in_host;
      s1_tag <= in_host ? tag_of(host_row[KEY_W+:VAL_W]) : in_tag;
    end
    if (s1_valid) begin
      s2_host <= s1_host;
      s2_key <= s1_key;
      s2_tagged <= s1_tagged;
      s2_tag <= s1_tag;
      s2_row <= s1_row;
    end
    if (s2_valid) begin
      s3_host <= s2_host;
      s3_key <= s2_key;
      s3_tagged <= s2_tagged;
      s3_tag <= s2_tag;
      s3_row <= s2_row;
      s3_same_key[1] <= s2_key == s4_key;
      for (int n = 2; n <= int'(Late); n++) s3_same_key[n] <= s2_key == late_data[n-1].key;
      for (int w = 0; w < int'(WAYS); w++) begin
        s3_same_row[1][w] <= s2_row[w] == s4_row[w];
        for (int n = 2; n <= int'(Late); n++) s3_same_row[n][w] <= s2_row[w] == late_row[n-1][w];
      end
    end
  end

  always_ff @(posedge clk) begin
    if (s3_valid) begin
      s4_host <= s3_host;
      s4_key <= s3_key;
      s4_tagged <= s3_tagged;
      s4_row <= s3_row;
      s4_same_key <= s3_key == s4_key;
      s4_tag <= s3_tag;
      s4_same_tag <= s3_tag == s4_tag;
    end
  end

  // s4: decide. The slot one cycle ahead may have written a row that was just compared.
  always_ff @(posedge clk) begin
    automatic logic [WAYS-1:0] we = '0;
    automatic logic we_used = 1'b0;
    if (s4_valid) begin
      automatic logic [WAYS-1:0] ahead = '0;
      automatic logic [WAYS-1:0] used = s4_used;
      automatic logic [WAYS-1:0] match = s4_match;
      automatic logic [WAYS-1:0] stale = s4_stale;
      automatic logic [WAYS-1:0] same = '0;
      automatic logic [WAYS-1:0] first;
      automatic logic late_same;
      automatic logic hit;
      automatic logic replace = 1'b0;
      automatic logic inserts = 1'b0;
      automatic logic full = 1'b0;
      late_same = late_data[1].used && s4_same_key && ins_value == late_data[1].value;
      for (int w = 0; w < int'(WAYS); w++) begin
        ahead[w] = late_we[1][w] && s4_same_row[w];
        if (ahead[w]) begin
          used[w]  = late_data[1].used;
          match[w] = late_data[1].used && s4_same_key;
          stale[w] = !fixed(late_data[1].value) && !s4_same_tag;
        end
        if (MULTI)
          same[w] = (ahead[w] && late_same) || (!ahead[w] && s4_match[w] && ins_value == s4_value[w]);
      end
      hit   = |match;
      first = WAYS'(lowest(8'(match)));
      if (s4_host) begin
        if (host_write) we = WAYS'(1) << host_way;
      end else if (INSERT && MULTI) begin
        inserts = ins_allow && same == '0 && used != '1;
        full = ins_allow && same == '0 && used == '1;
        if (inserts) we = WAYS'(lowest(~8'(used)));
      end else if (INSERT) begin
        replace = hit && s4_tagged && (stale & first) != '0;
        inserts = ins_allow && (replace || (!hit && used != '1));
        full = ins_allow && !hit && used == '1;
        if (replace) we = first;
        else if (inserts) we = WAYS'(lowest(~8'(used)));
      end
      we_used = inserts;
      out_key <= s4_key;
      out_hit <= hit && !replace;
      out_inserted <= inserts;
      out_full <= full;
      out_match <= match;
      for (int w = 0; w < int'(WAYS); w++) begin
        automatic logic [VAL_W-1:0] value = ahead[w] ? late_data[1].value : s4_value[w];
        out_values[w] <= value;
        if (first[w]) out_value <= value;
        if (s4_host && host_way == WayW'(w))
          out_row <= RowW'(ahead[w] ? late_data[1] : s4_host_row[w]);
      end
      if (inserts && !MULTI) out_value <= ins_value;
    end
    for (int n = int'(Late); n >= 2; n--)
    if (late_we[n-1] != '0) begin
      late_row[n]  <= late_row[n-1];
      late_data[n] <= late_data[n-1];
    end
    if (s4_valid) begin
      for (int w = 0; w < int'(WAYS); w++) late_row[1][w] <= s4_row[w];
      late_data[1] <= s4_host ? row_t'(host_row) : '{
          used: we_used,
          value: ins_value,
          key: s4_key
      };
    end
    if (s4_valid || late_we != '0) late_we <= {late_we[Late-1:1], we};
    if (rst) late_we <= '0;
  end

  always_ff @(posedge clk) begin
    out_host  <= s4_valid && s4_host && !rst;
    out_valid <= s4_valid && !s4_host && !rst;
    s4_valid  <= s3_valid && !rst;
    s3_valid  <= s2_valid && !rst;
    s2_valid  <= s1_valid && !rst;
    s1_valid  <= in_valid && !rst;
    if (clear || busy) begin
      automatic logic last = &clear_row;
      if (busy) clear_row <= clear_row + 1'b1;
      busy <= clear || !last;
    end
    if (rst) begin
      busy <= 1'b0;
      clear_row <= '0;
    end
  end
endmodule
