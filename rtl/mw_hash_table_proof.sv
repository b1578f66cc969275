// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// One key, any, has a shadow of its rows, one of each way, that takes each write as soon as it is
// decided. A look-up of the key is answered after exactly five cycles, and sees the shadow,
// whatever is on its way, whatever the distance to other look-ups and accesses of the host, and
// whatever the memories give when they read a row that is being written: so it never misses an
// entry that stands.
//
// What the look-up may do to the shadow is just what it answers: it takes over or deletes the
// first entry of its key that is stale, or puts a new one into the first row that is free, or
// nothing. It inserts only if asked to, and then unless there is such an entry, or no room, which
// it says. No look-up of another key changes an entry of this key; what the host writes and reads
// is the row that it means. Unless the host writes another one, there is no more than one entry of
// a key in a table whose keys have only one.
//
// Any hash will do: one that gives this key the same rows each time, and others any. Keys and tags
// are only compared; in the table of connections fewer bits stand for them.
//
// Assumed of the user: no look-up while rows are emptied, and no emptying while one is under way;
// the host's access stands until it is done, one at a time; what a look-up inserts has the tag
// that it came with.
//
// uses: mw_ram
// with: mw_ram: logic first_valid; => logic first_valid; logic [WIDTH-1:0] anyseq_data;
// with: mw_ram: first <= mem[rd_row] => first <= wr_en && wr_row == rd_row ? anyseq_data : mem[rd_row]
// with: mw_ram: initial for (int i = 0; i < (1 << ROWS_LOG2); i++) mem[i] = '0; =>
// with: mw_hash_table: logic [WayW-1:0] host_way; => logic [WayW-1:0] host_way; logic [KEY_W-1:0] anyconst_key;
// with: mw_hash_table: logic [ROWS_LOG2-1:0] hash; => logic [ROWS_LOG2-1:0] hash, anyconst_row, anyseq_row;
// with: mw_hash_table: hash[j] = ^(in_key & Mask); => hash[j] = in_key == anyconst_key ? anyconst_row[j] : anyseq_row[j];
// induction: 5 -GKEY_W=52 -GVAL_W=25 -GROWS_LOG2=15
// induction: 5 -GKEY_W=56 -GVAL_W=32 -GROWS_LOG2=10 -GINSERT=1 -GMULTI=1
// induction: 5 -GKEY_W=24 -GVAL_W=12 -GTAG_W=8 -GROWS_LOG2=12 -GINSERT=1
// cover: 14 -GKEY_W=3 -GVAL_W=3 -GTAG_W=1 -GROWS_LOG2=1 -GWAYS=2 -GINSERT=1
// mutant: mw_hash_table: for (int n = int'(Late); n >= 1; n--) => for (int n = int'(Late) - 1; n >= 1; n--)
// mutant: mw_hash_table: for (int n = int'(Late); n >= 1; n--) => for (int n = 1; n <= int'(Late); n++)
// mutant: mw_hash_table: match[w] = late_data[1].used && s4_same_key; => match[w] = late_data[1].used;
// mutant: mw_hash_table: used[w]  = late_data[1].used; =>
// mutant: mw_hash_table: s4_same_tag <= s3_tag == s4_tag => s4_same_tag <= 1'b1
// mutant: mw_hash_table: if (late_we[n-1] != '0) begin => if (s4_valid) begin
// mutant: mw_hash_table: s4_same_row[w] <= s3_row[w] == s4_row[w] => s4_same_row[w] <= 1'b1
// mutant: mw_hash_table: s3_same_row[1][w] <= s2_row[w] == s4_row[w] => s3_same_row[1][w] <= 1'b0
// mutant: mw_hash_table: s3_same_key[n] <= s2_key == late_data[n-1].key => s3_same_key[n] <= 1'b1
// mutant: mw_hash_table: inserts = ins_allow && (replace || => inserts = (replace ||
// mutant: mw_hash_table: else if (inserts) we = WAYS'(lowest(~8'(used))); => else if (inserts) we = WAYS'(1);
// mutant: mw_hash_table: if (replace) we = first; => if (replace && inserts) we = first;
// mutant: mw_hash_table: row.used && same_key => same_key
// mutant: mw_hash_table: automatic logic last = &clear_row => automatic logic last = 1'b1
module mw_hash_table_proof #(
    parameter int unsigned KEY_W,
    parameter int unsigned VAL_W,
    parameter int unsigned TAG_W,
    parameter int unsigned ROWS_LOG2,
    parameter int unsigned WAYS,
    parameter bit INSERT,
    parameter bit MULTI,
    localparam int unsigned RowW = 1 + VAL_W + KEY_W,
    localparam int unsigned IndexW = $clog2(WAYS) + ROWS_LOG2,
    localparam int unsigned TagBits = TAG_W == 0 ? 1 : TAG_W
) (
    input logic               clk,
    input logic               rst,
    input logic               clear,
    input logic               busy,
    input logic               in_valid,
    input logic               in_host,
    input logic [  KEY_W-1:0] in_key,
    input logic               in_tagged,
    input logic [TagBits-1:0] in_tag,
    input logic               host_write,
    input logic [ IndexW-1:0] host_index,
    input logic [   RowW-1:0] host_row,
    input logic               ins_allow,
    input logic [  VAL_W-1:0] ins_value,
    input logic               out_valid,
    input logic               out_host,
    input logic [   RowW-1:0] out_row,
    input logic [  KEY_W-1:0] out_key,
    input logic               out_hit,
    input logic               out_inserted,
    input logic               out_full,
    input logic [  VAL_W-1:0] out_value,
    input logic [   WAYS-1:0] out_match
);
  typedef struct packed {
    logic             used;
    logic [VAL_W-1:0] value;
    logic [KEY_W-1:0] key;
  } row_t;

  function automatic logic [TagBits-1:0] tag_of(input logic [VAL_W-1:0] value);
    return TAG_W == 0 ? '0 : TagBits'(value >> (VAL_W - TAG_W - 1));
  endfunction

  // ---- Slots of the last five cycles ----
  logic [5:1] valid, host, has_tag;
  logic [5:1][  KEY_W-1:0] key;
  logic [5:1][TagBits-1:0] tag;
  always_ff @(posedge clk) begin
    valid  <= rst ? '0 : {valid[4:1], in_valid};
    host   <= {host[4:1], in_host};
    has_tag <= {has_tag[4:1], in_tagged};
    key    <= {key[4:1], in_key};
    tag    <= {tag[4:1], in_tag};
  end
  logic [1+IndexW+RowW-1:0] access, asked;
  logic pending;  // an access of the host is under way
  assign access  = {host_write, host_index, host_row};
  assign pending = (valid[4:1] & host[4:1]) != '0;
  always_ff @(posedge clk) asked <= access;
  always_comb begin
    if (busy) assume (!in_valid);
    if (clear) assume (!in_valid && valid[4:1] == '0);
    if (pending) assume (access == asked && !(in_valid && in_host));
    if (TAG_W != 0 && valid[4] && !host[4] && ins_allow) assume (tag_of(ins_value) == tag[4]);
  end

  // ---- The key's rows ----
  logic mine;  // a look-up of the key is decided
  row_t [WAYS-1:0] shadow, now, next;
  logic [WAYS-1:0] used, match, stale, first, free, equal, hosted;
  logic known = 1'b0;  // from the first clear on
  logic was_busy, doubled;  // doubled: the host has written an entry of the key
  logic hit, replace, inserts, full;
  assign mine = valid[4] && !host[4] && key[4] == mw_hash_table.anyconst_key;
  function automatic logic [WAYS-1:0] lowest(input logic [WAYS-1:0] v);
    lowest = '0;
    for (int w = int'(WAYS) - 1; w >= 0; w--) if (v[w]) lowest = WAYS'(1) << w;
  endfunction
  for (genvar w = 0; w < int'(WAYS); w++) begin : g_way
    logic here;  // the slot that is decided is about this row
    assign here = mw_hash_table.s4_row[w] == mw_hash_table.g_way[w].anyconst_row;
    assign now[w] = mw_hash_table.late_we[1][w] &&
        mw_hash_table.late_row[1][w] == mw_hash_table.g_way[w].anyconst_row ?
        mw_hash_table.late_data[1] : shadow[w];
    assign used[w] = now[w].used;
    assign match[w] = now[w].used && now[w].key == mw_hash_table.anyconst_key;
    assign stale[w] = TAG_W != 0 && !now[w].value[VAL_W-1] && tag_of(now[w].value) != tag[4];
    assign equal[w] = match[w] && now[w].value == ins_value;
    assign hosted[w] = valid[4] && host[4] && here && 32'(host_index >> ROWS_LOG2) == w;
    always_comb begin
      aux_memory :
      assert (!known || busy ||
              mw_hash_table.g_way[w].ram.mem[mw_hash_table.g_way[w].anyconst_row] == shadow[w]);
    end
  end
  assign hit = match != '0;
  assign first = lowest(match);
  assign free = lowest(~used);
  assign replace = INSERT && !MULTI && hit && has_tag[4] && (stale & first) != '0;
  assign inserts = INSERT && ins_allow &&
      (MULTI ? equal == '0 && used != '1 : replace || (!hit && used != '1));
  assign full = INSERT && ins_allow && used == '1 && (MULTI ? equal == '0 : !hit);
  always_comb begin
    next = now;
    for (int w = 0; w < int'(WAYS); w++) begin
      if (hosted[w] && host_write) next[w] = host_row;
      if (mine && (replace ? first[w] : inserts && free[w]))
        next[w] = '{used: inserts, value: ins_value, key: mw_hash_table.anyconst_key};
    end
  end

  // ---- What it was a clock ago ----
  row_t [WAYS-1:0] due, were;
  logic was_mine, was_host, due_hit, due_inserts, due_full;
  logic [WAYS-1:0] due_match, was_match, was_hosted;
  logic [VAL_W-1:0] due_value;
  always_ff @(posedge clk) begin
    was_busy <= busy && !rst;
    shadow <= now;
    due <= next;
    were <= now;
    was_mine <= mine && !rst;
    was_hosted <= rst ? '0 : hosted;
    was_match <= rst || !known ? '0 : match;
    {due_hit, due_inserts, due_full, due_match} <= {hit && !replace, inserts, full, match};
    due_value <= ins_value;
    if (!inserts || MULTI) begin
      for (int w = 0; w < int'(WAYS); w++) if (first[w]) due_value <= now[w].value;
    end
    if (hosted != '0 && host_write && host_row[RowW-1] &&
        host_row[KEY_W-1:0] == mw_hash_table.anyconst_key)
      doubled <= 1'b1;
    if (was_busy && !busy && !rst) begin
      known   <= 1'b1;
      shadow  <= '0;
      doubled <= 1'b0;
    end
    if (clear) known <= 1'b0;
  end

  // ---- What the stages hold ----
  logic [4:1] s_host, s_tagged;
  logic [4:1][KEY_W-1:0] s_key;
  logic [4:1][TagBits-1:0] s_tag;
  logic [4:1][WAYS-1:0][ROWS_LOG2-1:0] s_row;
  logic [TagBits-1:0] host_tag, late_tag;
  assign s_host = {
    mw_hash_table.s4_host, mw_hash_table.s3_host, mw_hash_table.s2_host, mw_hash_table.s1_host
  };
  assign s_tagged = {
    mw_hash_table.s4_tagged,
    mw_hash_table.s3_tagged,
    mw_hash_table.s2_tagged,
    mw_hash_table.s1_tagged
  };
  assign s_key = {
    mw_hash_table.s4_key, mw_hash_table.s3_key, mw_hash_table.s2_key, mw_hash_table.s1_key
  };
  assign s_tag = {
    mw_hash_table.s4_tag, mw_hash_table.s3_tag, mw_hash_table.s2_tag, mw_hash_table.s1_tag
  };
  assign host_tag = tag_of(host_row[KEY_W+:VAL_W]);
  assign late_tag = tag_of(mw_hash_table.late_data[1].value);

  // Rows outlive a reset.
  always_comb begin
    finds :
    assert (!was_mine || !known || (out_hit == due_hit && out_match == due_match &&
            (!(out_hit || (out_inserted && !MULTI)) || out_value == due_value)));
    says : assert (!was_mine || !known || (out_inserted == due_inserts && out_full == due_full));
    does : assert (!was_mine || !known || now == due);
    once : assert (!known || doubled || MULTI || $onehot0(match));
  end
  always_comb begin
    if (!rst) begin
      prompt : assert (out_valid == (valid[5] && !host[5]) && out_host == (valid[5] && host[5]));
      answers : assert (!out_valid || out_key == key[5]);
      aux_valid :
      assert ({mw_hash_table.s4_valid, mw_hash_table.s3_valid, mw_hash_table.s2_valid,
               mw_hash_table.s1_valid} == valid[4:1]);
      aux_same :
      assert (!valid[4] || mw_hash_table.late_we[1] == '0 ||
              mw_hash_table.s4_same_key == (mw_hash_table.late_data[1].key == s_key[4]));
      aux_same_tag :
      assert (!valid[4] || mw_hash_table.late_we[1] == '0 || TAG_W == 0 ||
              !mw_hash_table.late_data[1].used ||
              mw_hash_table.s4_same_tag == (late_tag == s_tag[4]));
      aux_busy : assert (!busy || (!known && valid[4:1] == '0 && !(|mw_hash_table.late_we[1])));
      aux_rest : assert (busy || mw_hash_table.clear_row == '0);

      twice : cover (was_mine && known && out_inserted && mine && hit);
      replaces : cover (was_mine && known && out_inserted && was_match != '0);
      fills : cover (was_mine && known && out_full);
    end
  end
  for (genvar n = 1; n <= 4; n++) begin : g_stage
    always_comb begin
      if (!rst) begin
        aux_stage :
        assert (!valid[n] || (s_host[n] == host[n] && s_tagged[n] == (has_tag[n] && !host[n]) &&
                s_key[n] == (host[n] ? host_row[KEY_W-1:0] : key[n]) &&
                s_tag[n] == (host[n] ? host_tag : tag[n])));
      end
    end
    for (genvar w = 0; w < int'(WAYS); w++) begin : g_row
      always_comb begin
        if (!rst) begin
          aux_row :
          assert (!valid[n] || (host[n] ? s_row[n][w] == ROWS_LOG2'(host_index) :
                  key[n] != mw_hash_table.anyconst_key ||
                  s_row[n][w] == mw_hash_table.g_way[w].anyconst_row));
        end
      end
    end
  end
  for (genvar n = 1; n <= 3; n++) begin : g_late
    always_comb begin
      if (!rst) begin
        aux_same_key :
        assert (!valid[3] || mw_hash_table.late_we[n] == '0 ||
                mw_hash_table.s3_same_key[n] == (mw_hash_table.late_data[n].key == s_key[3]));
      end
    end
    for (genvar w = 0; w < int'(WAYS); w++) begin : g_row
      always_comb begin
        if (!rst) begin
          aux_same_late :
          assert (!valid[3] || !mw_hash_table.late_we[n][w] ||
                  mw_hash_table.s3_same_row[n][w] == (mw_hash_table.late_row[n][w] == s_row[3][w]));
        end
      end
    end
  end
  for (genvar w = 0; w < int'(WAYS); w++) begin : g_check
    assign s_row[1][w] = mw_hash_table.s1_row[w];
    assign s_row[2][w] = mw_hash_table.s2_row[w];
    assign s_row[3][w] = mw_hash_table.s3_row[w];
    assign s_row[4][w] = mw_hash_table.s4_row[w];
    always_comb begin
      stays : assert (!was_match[w] || !known || was_mine || was_hosted[w] || now[w] == were[w]);
      host_reads : assert (!was_hosted[w] || !known || row_t'(out_row) == were[w]);
      host_writes : assert (!was_hosted[w] || !known || now[w] == due[w]);
    end
    always_comb begin
      if (!rst) begin
        aux_same_row :
        assert (!valid[4] || !mw_hash_table.late_we[1][w] ||
                mw_hash_table.s4_same_row[w] == (mw_hash_table.late_row[1][w] == s_row[4][w]));
        aux_zeroing :
        assert (!busy || mw_hash_table.clear_row <= mw_hash_table.g_way[w].anyconst_row ||
                mw_hash_table.g_way[w].ram.mem[mw_hash_table.g_way[w].anyconst_row] == '0);
        aux_zeroed :
        assert (!was_busy || busy ||
                mw_hash_table.g_way[w].ram.mem[mw_hash_table.g_way[w].anyconst_row] == '0);
      end
    end
  end
endmodule

bind mw_hash_table mw_hash_table_proof #(
    .KEY_W(KEY_W),
    .VAL_W(VAL_W),
    .TAG_W(TAG_W),
    .ROWS_LOG2(ROWS_LOG2),
    .WAYS(WAYS),
    .INSERT(INSERT),
    .MULTI(MULTI)
) proof (.*);
