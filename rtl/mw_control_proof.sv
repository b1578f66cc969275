// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The AXI4-Lite slave obeys the rules of its bus (ARM IHI 0022H; the sections stand at the
// assertions): each write that is taken, address and data, gets exactly one response and each
// read exactly one answer, none comes without its request, and what is valid stands until it is
// taken. Requests are taken, and answered, after a bounded number of clocks.
//
// One word of the register map, any, has a shadow that takes each write of it as its strobes say.
// What is read is the shadow, and so is what the core is told. A word that cannot be written
// answers with an error and nothing changes. Pulses last one clock and come only when written.
//
// The table bus: a command starts one request, of what the registers say then, which stands until
// it is answered; a table that nobody owns is answered at once, with zeros; the answer is what
// `table_read` shows until the next.
//
// Assumed: the host's side obeys the same rules.
//
// uses: mw_map_pkg mw_regs_pkg mw_counters mw_regs
// induction: 3
// cover: 14
// mutant: mw_regs: && (!s_axil_bvalid || s_axil_bready) =>
// mutant: mw_regs: if (write) s_axil_bvalid <= 1'b1; => if (s_axil_awvalid) s_axil_bvalid <= 1'b1;
// mutant: mw_regs: else if (s_axil_bready) s_axil_bvalid <= 1'b0; => else s_axil_bvalid <= 1'b0;
// mutant: mw_regs: && (!s_axil_rvalid || s_axil_rready) =>
// mutant: mw_regs: else if (s_axil_rready) s_axil_rvalid <= 1'b0; => else s_axil_rvalid <= 1'b0;
// mutant: mw_regs: assign write = s_axil_awvalid && s_axil_awready && s_axil_wvalid => assign write = s_axil_awvalid && s_axil_wvalid
// mutant: mw_regs: {8{s_axil_wstrb[2]}} => {8{s_axil_wstrb[1]}}
// mutant: mw_regs: next.flush_ns = (wdata[31:0] => next.flush_ns = (wdata[30:0]
// mutant: mw_regs: default: s_axil_bresp <= SlvErr; => default: ;
// mutant: mw_regs: if (write || pulsed || rst) begin => if (write || rst) begin
// mutant: mw_control: done = tbl_req.valid && (tbl_ack || !owned) => done = tbl_req.valid && !owned
// mutant: mw_control: && !tbl_req.valid; => ;
// mutant: mw_control: row <= owned ? tbl_rdata : '0 => row <= tbl_rdata
module mw_control_proof
  import mw_pkg::*;
(
    input logic        clk,
    input logic        rst,
    input logic [11:0] s_axil_awaddr,
    input logic        s_axil_awvalid,
    input logic        s_axil_awready,
    input logic [31:0] s_axil_wdata,
    input logic [ 3:0] s_axil_wstrb,
    input logic        s_axil_wvalid,
    input logic        s_axil_wready,
    input logic [ 1:0] s_axil_bresp,
    input logic        s_axil_bvalid,
    input logic        s_axil_bready,
    input logic [11:0] s_axil_araddr,
    input logic        s_axil_arvalid,
    input logic        s_axil_arready,
    input logic [31:0] s_axil_rdata,
    input logic [ 1:0] s_axil_rresp,
    input logic        s_axil_rvalid,
    input logic        s_axil_rready,

    input logic        capture,
    input logic        track,
    input logic        clear,
    input logic        irq_enable,
    input logic [63:0] ring_base,
    input logic [ 4:0] ring_blocks_log2,
    input logic [ 4:0] block_log2,
    input logic [31:0] ring_consumed,
    input logic [15:0] snapshot_bytes,
    input logic [31:0] flush_ns,
    input logic [31:0] reorder_timeout_ns,
    input logic [16:0] kinds             [2],

    input tbl_req_t            tbl_req,
    input logic                tbl_ack,
    input logic     [TblW-1:0] tbl_rdata,
    // inside
    input logic                latch,
    input logic     [TblW-1:0] row
);
  localparam logic [1:0] Okay = 2'b00, SlvErr = 2'b10;
  localparam logic [11:2] Control = 10'h020, TableAddress = 10'h03c, TableCommand = 10'h03d;
  localparam logic [11:2] TableWrite = 10'h040, TableRead = 10'h050;

  // ---- The bus ----

  logic aw, w, b, ar, r;
  assign aw = s_axil_awvalid && s_axil_awready;
  assign w  = s_axil_wvalid && s_axil_wready;
  assign b  = s_axil_bvalid && s_axil_bready;
  assign ar = s_axil_arvalid && s_axil_arready;
  assign r  = s_axil_rvalid && s_axil_rready;

  logic was_reset, aw_waits, w_waits, b_waits, ar_waits, r_waits;
  logic [11:0] awaddr, araddr;
  logic [35:0] wdata;
  logic [ 1:0] bresp;
  logic [33:0] rdata;
  logic [1:0] aws, ws, ars;  // taken and not yet answered
  logic [1:0] w_clocks, r_clocks;  // for which a request waits without a reason
  always_ff @(posedge clk) begin
    was_reset <= rst;
    aw_waits <= s_axil_awvalid && !s_axil_awready && !rst;
    w_waits <= s_axil_wvalid && !s_axil_wready && !rst;
    ar_waits <= s_axil_arvalid && !s_axil_arready && !rst;
    b_waits <= s_axil_bvalid && !s_axil_bready && !rst;
    r_waits <= s_axil_rvalid && !s_axil_rready && !rst;
    awaddr <= s_axil_awaddr;
    araddr <= s_axil_araddr;
    wdata <= {s_axil_wstrb, s_axil_wdata};
    bresp <= s_axil_bresp;
    rdata <= {s_axil_rresp, s_axil_rdata};
    aws <= aws + 2'(aw) - 2'(b);
    ws <= ws + 2'(w) - 2'(b);
    ars <= ars + 2'(ar) - 2'(r);
    w_clocks <= s_axil_awvalid && s_axil_wvalid && !aw && (!s_axil_bvalid || b) ? w_clocks + 1'b1 : '0;
    r_clocks <= s_axil_arvalid && !ar && (!s_axil_rvalid || r) ? r_clocks + 1'b1 : '0;
    if (rst) {aws, ws, ars, w_clocks, r_clocks} <= '0;
  end
  always_comb begin  // A3.2.1
    if (aw_waits) assume (s_axil_awvalid && s_axil_awaddr == awaddr);
    if (w_waits) assume (s_axil_wvalid && {s_axil_wstrb, s_axil_wdata} == wdata);
    if (ar_waits) assume (s_axil_arvalid && s_axil_araddr == araddr);
  end

  // ---- One word, any ----

  logic [11:2] anyconst_word;
  logic [31:0] kept;  // its bits that can be written and stay
  always_comb begin
    unique case (anyconst_word) inside
      Control: kept = 32'h0000_0009;
      TableAddress: kept = 32'hf8ff_ffff;
      10'h022, [10'h028 : 10'h02c], [10'h02e : 10'h030], 10'h034, 10'h035,
      [TableWrite : TableWrite + 15]:
      kept = '1;
      default: kept = '0;
    endcase
  end

  logic [31:0] strobed;
  always_comb for (int i = 0; i < 32; i++) strobed[i] = s_axil_wstrb[i/8];

  logic mine;  // it is written
  assign mine = aw && w && s_axil_awaddr[11:2] == anyconst_word;
  logic [31:0] shadow, shown;  // of it: now, and when it was read
  logic w_mine, r_mine;  // the response, the answer is for it
  logic was_clear, was_latch;
  logic [1:0] command;  // write, read
  always_ff @(posedge clk) begin
    if (mine) shadow <= (s_axil_wdata & strobed & kept) | (shadow & ~strobed);
    if (aw) w_mine <= mine;
    if (ar) begin
      r_mine <= s_axil_araddr[11:2] == anyconst_word;
      shown  <= shadow;
    end
    was_clear <= 1'b0;
    was_latch <= 1'b0;
    command   <= '0;
    if (aw && w && s_axil_wstrb[0]) begin
      if (s_axil_awaddr[11:2] == Control) {was_latch, was_clear} <= s_axil_wdata[2:1];
      if (s_axil_awaddr[11:2] == TableCommand) command <= s_axil_wdata[1:0];
    end
    if (rst) {shadow, was_clear, was_latch, command} <= '0;
  end

  // What the core is told: the bits of the word that it uses, and those bits.
  logic [31:0] used, told;
  always_comb begin
    {used, told} = '0;
    case (anyconst_word)
      Control: {used, told} = {32'h9, 28'd0, track, 2'd0, capture};
      10'h022: {used, told} = {32'h1, 31'd0, irq_enable};
      10'h028: {used, told} = {32'hffff_ffff, ring_base[31:0]};
      10'h029: {used, told} = {32'hffff_ffff, ring_base[63:32]};
      10'h02a: {used, told} = {32'h1f, 27'd0, ring_blocks_log2};
      10'h02b: {used, told} = {32'h1f, 27'd0, block_log2};
      10'h02c: {used, told} = {32'hffff_ffff, ring_consumed};
      10'h02e: {used, told} = {32'hffff, 16'd0, snapshot_bytes};
      10'h02f: {used, told} = {32'hffff_ffff, flush_ns};
      10'h030: {used, told} = {32'hffff_ffff, reorder_timeout_ns};
      10'h034: {used, told} = {32'h1_ffff, 15'd0, kinds[0]};
      10'h035: {used, told} = {32'h1_ffff, 15'd0, kinds[1]};
      default: ;
    endcase
  end

  // ---- The table bus ----

  logic begins, held;
  tbl_req_t request;  // of the clock before
  logic [31:0] then;  // the shadow when the request began
  logic owned;
  logic known = 1'b0;  // a table has answered
  logic [TblW-1:0] answer;
  logic row_known;
  logic [31:0] row_shown;  // the answer's word when it was read
  assign begins = command != '0 && !tbl_req.valid;
  assign owned  = tbl_req.tbl <= 4'd10;
  always_ff @(posedge clk) begin
    held <= tbl_req.valid && !tbl_ack && owned && !rst;
    request <= tbl_req;
    if (begins) then <= shadow;
    if (tbl_req.valid && !tbl_req.write && (tbl_ack || !owned)) begin
      known  <= 1'b1;
      answer <= owned ? tbl_rdata : '0;
    end
    if (ar) {row_known, row_shown} <= {known, answer[32*anyconst_word[5:2]+:32]};
  end
  logic begun;
  logic [1:0] begun_by;
  always_ff @(posedge clk) begin
    begun <= begins && !rst;
    begun_by <= command;
  end

  // ---- Aids: what the register of the word holds ----

  logic [31:0] stored;
  always_comb begin
    unique case (anyconst_word) inside
      10'h022: stored = mw_control.regs_out.irq_enable;
      10'h02a: stored = mw_control.regs_out.ring_blocks_log2;
      10'h02b: stored = mw_control.regs_out.block_log2;
      10'h02e: stored = mw_control.regs_out.snapshot_bytes;
      10'h034: stored = mw_control.regs_out.kinds_ab;
      10'h035: stored = mw_control.regs_out.kinds_ba;
      TableAddress:
      stored = {
        mw_control.regs_out.table_address_tbl,
        mw_control.regs_out.table_address_lane,
        3'd0,
        mw_control.regs_out.table_address_index
      };
      [TableWrite : TableWrite + 15]: stored = mw_control.regs_out.table_write[anyconst_word[5:2]];
      default: stored = told;
    endcase
  end

  always_comb begin
    aux_row : assert (!known || row == answer);  // outlives a reset
    if (!rst) begin
      reset : assert (!was_reset || (!s_axil_bvalid && !s_axil_rvalid));  // A3.1.2
      b_stands : assert (!b_waits || (s_axil_bvalid && s_axil_bresp == bresp));  // A3.2.1
      r_stands : assert (!r_waits || (s_axil_rvalid && {s_axil_rresp, s_axil_rdata} == rdata));
      // A3.3.1; one write and one read at a time
      b_once : assert (s_axil_bvalid == (aws != '0) && aws == ws && aws <= 2'd1);
      r_once : assert (s_axil_rvalid == (ars != '0) && ars <= 2'd1);
      prompt : assert (w_clocks < 2'd2 && r_clocks < 2'd2);
      // A3.4.4, B1.1.1
      b_responses : assert (!s_axil_bvalid || s_axil_bresp inside {Okay, SlvErr});
      r_responses : assert (!s_axil_rvalid || s_axil_rresp inside {Okay, SlvErr});

      writable :
      assert (!s_axil_bvalid || !w_mine ||
              (s_axil_bresp == Okay) == (kept != '0 || anyconst_word == TableCommand));
      read_back :
      assert (!s_axil_rvalid || !r_mine || kept == '0 || (s_axil_rresp == Okay && s_axil_rdata == shown));
      tells : assert ((shadow & used) == told);
      pulses : assert (clear == was_clear && latch == was_latch);

      table_begins : assert (!begun || (tbl_req.valid && tbl_req.write == begun_by[1]));
      table_stands : assert (!held || tbl_req == request);
      table_alone : assert (!tbl_req.valid || begun || held);
      table_address :
      assert (!tbl_req.valid || anyconst_word != TableAddress ||
              {tbl_req.tbl, tbl_req.lane, tbl_req.index} == {then[31:27], then[23:0]});
      table_data :
      assert (!tbl_req.valid || anyconst_word[11:6] != TableWrite[11:6] ||
              tbl_req.wdata[32*anyconst_word[5:2]+:32] == then);
      table_answer :
      assert (!s_axil_rvalid || !r_mine || anyconst_word[11:6] != TableRead[11:6] || !row_known ||
              (s_axil_rresp == Okay && s_axil_rdata == row_shown));

      aux_stored : assert (stored == shadow);
      aux_command :
      assert (command == {mw_control.regs_out.table_command_write, mw_control.regs_out.table_command_read});
      aux_pulsed : assert (mw_control.u_regs.pulsed || !(clear || latch || command != '0));

      again : cover (b_waits && s_axil_awvalid && s_axil_wvalid && w_mine && bresp == Okay);
      refused : cover (b && s_axil_bresp == SlvErr && s_axil_rvalid);
      partly :
      cover (r && r_mine && s_axil_rdata[7:0] != '0 && s_axil_rdata[31:24] == 8'hff && shadow != shown);
      through : cover (r && r_mine && anyconst_word[11:6] == TableRead[11:6] && s_axil_rdata[0]);
    end
  end
endmodule

bind mw_control mw_control_proof proof (.*);
