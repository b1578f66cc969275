// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Beats are neither lost nor doubled, and keep their order and their tags: each comes out after
// exactly four cycles of `go`, and stands while `go` is low. One of a frame of which no byte is
// to change, and that is not padded, comes out as it came in; bytes of padding are zero. What is
// done to the bytes of other frames is not proved here but compared with the reference model.
//
// Verdicts become plans one by one: each is taken once, after the plan before it was done with,
// and stands until it is. One that needs a mend_t takes exactly one, with it.
//
// induction: 2 -GDATA_W=512 -GTAG_W=18
// induction: 2 -GDATA_W=64 -GTAG_W=15
// cover: 12 -GDATA_W=64 -GTAG_W=2
// mutant: mw_act: if (go && (in_valid || valid != '0)) begin => if (in_valid || valid != '0) begin
// mutant: mw_act: if (go && (in_valid || valid != '0)) begin => if (go && in_valid) begin
// mutant: mw_act: any2 <= any1; => if (any1) any2 <= any1;
// mutant: mw_act: any1 <= in_pad || any(c); => any1 <= any1 || in_pad || any(c);
// mutant: mw_act: valid: write.valid, => valid: 1'b1,
// mutant: mw_act: tag2 <= tag1; => if (any1) tag2 <= tag1;
// mutant: mw_act: i >= 32'(bytes1) => i > 32'(bytes1)
// mutant: mw_act: (!plan_valid || plan_take) && !waits => !waits
// mutant: mw_act: (!plan_valid || plan_take) && !waits => !plan_valid || plan_take
// mutant: mw_act: mend_ready = load && v_mends => mend_ready = v_valid && v_mends
// mutant: mw_act: if (plan_take) plan_valid <= 1'b0; =>
module mw_act_proof
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W,
    parameter int unsigned TAG_W
) (
    input logic                          clk,
    input logic                          rst,
    input logic                          v_valid,
    input logic                          v_ready,
    input verdict_t                      v,
    input logic                          v_mends,
    input logic                          mend_valid,
    input logic                          mend_ready,
    input logic                          plan_valid,
    input logic                          plan_drop,
    input logic                          plan_touched,
    input record_t                       plan_rec,
    input action_t                       plan_action,
    input logic                          plan_take,
    input logic                          go,
    input logic                          in_valid,
    input logic     [        DATA_W-1:0] in_data,
    input logic                          in_pad,
    input logic     [$clog2(DATA_W/8):0] in_bytes,
    input logic     [         TAG_W-1:0] in_tag,
    input logic                          out_valid,
    input logic     [        DATA_W-1:0] out_data,
    input logic     [         TAG_W-1:0] out_tag,
    // inside
    input logic     [               3:0] valid
);
  localparam int unsigned Bytes = DATA_W / 8;

  // ---- Plans ----
  logic load, there, plain;
  verdict_t plan;
  assign load = v_valid && v_ready;
  always_ff @(posedge clk) begin
    if (plan_take) there <= 1'b0;
    if (load) begin
      there <= 1'b1;
      plan <= v;
      plain <= !(v.action.set || v.action.ecn || v.action.corrupt || v.action.break_ip ||
                 v.action.break_l4 || v.action.break_icrc);
    end
    if (rst) there <= 1'b0;
  end
  always_comb if (in_valid) assume (plan_valid);
  always_comb if (v_valid) assume (v_mends == mends(v.layout, v.action));

  // ---- Beats of the last four cycles of `go` ----
  typedef struct packed {
    logic                   valid;
    logic                   plain;
    logic                   pad;
    logic [$clog2(Bytes):0] bytes;
    logic [TAG_W-1:0]       tag;
    logic [DATA_W-1:0]      data;
  } beat_t;
  beat_t [4:1] beat;
  always_ff @(posedge clk) begin
    if (go) beat <= {beat[3:1], in_valid, plain, in_pad, in_bytes, in_tag, in_data};
    if (rst) for (int i = 1; i <= 4; i++) beat[i].valid <= 1'b0;
  end
  logic [$clog2(Bytes)-1:0] anyconst_byte;
  logic padding;
  assign padding = beat[4].pad && ($clog2(Bytes) + 1)'(anyconst_byte) >= beat[4].bytes;

  always_comb begin
    if (!rst) begin
      order : assert (out_valid == beat[4].valid && (!out_valid || out_tag == beat[4].tag));
      unchanged : assert (!out_valid || !beat[4].plain || beat[4].pad || out_data == beat[4].data);
      pads : assert (!out_valid || !padding || out_data[8*anyconst_byte+:8] == '0);
      keeps :
      assert (!out_valid || !beat[4].plain || padding ||
              out_data[8*anyconst_byte+:8] == beat[4].data[8*anyconst_byte+:8]);
      one_plan : assert (plan_valid == there && (!load || !plan_valid || plan_take));
      stands :
      assert (!plan_valid || ({plan_rec, plan_action, plan_touched, plan_drop} ==
                              {plan.rec, plan.action, plan.touched, plan.action.drop}));
      mend_with : assert (mend_ready == (load && v_mends) && (!mend_ready || mend_valid));
      takes :
      assert (!v_valid || v_ready || (plan_valid && !plan_take) || (v_mends && !mend_valid));

      aux_valid : assert (valid == {beat[4].valid, beat[3].valid, beat[2].valid, beat[1].valid});
      aux_plan :
      assert (!plan_valid || !plain ||
              !(mw_act.set.valid || mw_act.ecn.valid || mw_act.corrupt.valid || mw_act.ip.valid ||
                mw_act.l4.valid || mw_act.icrc.valid));

      passes :
      cover (out_valid && beat[4].plain && beat[4].pad && beat[3].valid && !beat[2].valid &&
          plan_valid && !go);
      mended : cover (mend_ready && plan_valid && out_valid && !beat[4].plain);
    end
  end

  // ---- Aids: the stages ----
  for (genvar i = 1; i <= 3; i++) begin : g_stage
    logic any, hit, pad;  // changes are asked; bytes change, padding among them
    logic [$clog2(Bytes):0] bytes;
    logic [DATA_W-1:0] data;
    logic [TAG_W-1:0] tag;
    if (i == 1) begin : g_1
      assign {any, data, tag} = {mw_act.any1, mw_act.d1, mw_act.tag1};
      assign hit = mw_act.c1.set.hit != '0 || mw_act.c1.icrc.hit != '0 || mw_act.c1.ecn.hit ||
          mw_act.c1.corrupt.hit || mw_act.c1.sums.ip.hit || mw_act.c1.sums.l4.hit;
      assign {pad, bytes} = {mw_act.pad1, mw_act.bytes1};
    end else if (i == 2) begin : g_2
      assign {any, data, tag} = {mw_act.any2, mw_act.d2, mw_act.tag2};
      assign hit = mw_act.c2.set.hit != '0 || mw_act.c2.icrc.hit != '0 || mw_act.c2.ecn.hit ||
          mw_act.c2.corrupt.hit || mw_act.c2.sums.ip.hit || mw_act.c2.sums.l4.hit;
      logic [Bytes-1:0] padded;
      always_comb
        for (int b = 0; b < int'(Bytes); b++) padded[b] = beat[2].pad && b >= 32'(beat[2].bytes);
      assign {pad, bytes} = {beat[2].pad ^ (mw_act.padded2 != padded), beat[2].bytes};
    end else begin : g_3
      // The masks clear what is padding, and leave the rest of a plain frame alone.
      logic [Bytes-1:0] cleared, changed, padded;
      always_comb
        for (int b = 0; b < int'(Bytes); b++) begin
          automatic logic [7:0] clear = mw_act.masks3[b/8].clear[8*(b%8)+:8];
          automatic logic [7:0] flip = mw_act.masks3[b/8].flip[8*(b%8)+:8];
          cleared[b] = clear == '1 && flip == '0;
          changed[b] = clear != '0 || flip != '0;
          padded[b]  = beat[3].pad && b >= 32'(beat[3].bytes);
        end
      assign {any, data, tag} = {mw_act.any3, mw_act.d3, mw_act.tag3};
      assign hit = mw_act.sum3.ip.hit || mw_act.sum3.l4.hit || (changed & ~padded) != '0;
      assign {pad, bytes} = {beat[3].pad && (cleared & padded) == padded, beat[3].bytes};
    end
    always_comb begin
      if (!rst && beat[i].valid) begin
        aux_data : assert (data == beat[i].data && tag == beat[i].tag);
        aux_any : assert (!beat[i].plain || any == beat[i].pad);
        aux_pad : assert (any ? pad == beat[i].pad && bytes == beat[i].bytes : !beat[i].pad);
        aux_plain : assert (!any || !beat[i].plain || !hit);
      end
    end
  end
endmodule

bind mw_act mw_act_proof #(
    .DATA_W(DATA_W),
    .TAG_W (TAG_W)
) proof (.*);
