// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The host's side of the core: registers (AXI4-Lite slave), the table bus, and the counters
// behind the registers. Nothing here can hold up a frame.
//
// The table bus takes one request at a time: `table_command` starts it, `status.table_busy`
// shows it, and it ends when the addressed table has answered. A table number that nobody
// owns is answered here, with zeros.
module mw_control
  import mw_pkg::*;
  import mw_regs_pkg::*;
#(
    parameter int unsigned Counters = 56  // 64-bit counters, in the order of the register map
) (
    input logic clk,
    input logic rst,
    input logic [63:0] time_ns,

    // AXI4-Lite slave
    input  logic [11:0] s_axil_awaddr,
    input  logic        s_axil_awvalid,
    output logic        s_axil_awready,
    input  logic [31:0] s_axil_wdata,
    input  logic [ 3:0] s_axil_wstrb,
    input  logic        s_axil_wvalid,
    output logic        s_axil_wready,
    output logic [ 1:0] s_axil_bresp,
    output logic        s_axil_bvalid,
    input  logic        s_axil_bready,
    input  logic [11:0] s_axil_araddr,
    input  logic        s_axil_arvalid,
    output logic        s_axil_arready,
    output logic [31:0] s_axil_rdata,
    output logic [ 1:0] s_axil_rresp,
    output logic        s_axil_rvalid,
    input  logic        s_axil_rready,

    // constants that the host reads
    input logic [31:0] par_data_width,
    input logic [31:0] par_clock_ps,
    input logic [31:0] par_conns_log2,
    input logic [31:0] par_flow_rows_log2,
    input logic [31:0] par_slots_log2,
    input logic [31:0] par_exact_rows_log2,
    input logic [31:0] par_page_rows_log2,
    input logic [31:0] par_ways,
    input logic [31:0] par_selectors,
    input logic [31:0] par_actions,
    input logic [31:0] par_rules,
    input logic [31:0] par_delay_slots,

    // settings
    output logic        capture,
    output logic        track,
    output logic        clear,                 // one cycle; ignored by its users while they clear
    output logic        irq_enable,
    output logic [63:0] ring_base,
    output logic [ 4:0] ring_blocks_log2,
    output logic [ 4:0] block_log2,
    output logic [31:0] ring_consumed,
    output logic [15:0] snapshot_bytes,
    output logic [31:0] flush_ns,
    output logic [31:0] reorder_timeout_ns,
    output logic [16:0] kinds             [2],

    // state
    input logic capture_active,
    input logic clear_busy,
    input logic dma_error,
    input logic [31:0] ring_produced,
    input logic [31:0] connections,
    input logic [31:0] connections_lost,
    input logic any_inc,  // an increment is not zero
    input logic [15:0] inc[Counters],
    input logic any_clear,  // pulse: clear the counters of count_clear
    input logic [Counters-1:0] count_clear,

    // table bus
    output tbl_req_t            tbl_req,
    input  logic                tbl_ack,
    input  logic     [TblW-1:0] tbl_rdata,

    output logic busy
);
  localparam logic [31:0] Version = {16'd0, 16'd1};  // major, minor
  localparam int unsigned PortCounters = 8;
  localparam int unsigned LaneCounters = 20;
  if (Counters != 2 * (PortCounters + LaneCounters)) begin : g_bad
    $fatal(1, "mw_control: Counters must be 56, the counters of the register map");
  end

  in_t  regs_in;
  out_t regs_out;

  mw_regs u_regs (
      .clk,
      .rst,
      .s_axil_awready,
      .s_axil_awvalid,
      .s_axil_awaddr,
      .s_axil_wready,
      .s_axil_wvalid,
      .s_axil_wdata,
      .s_axil_wstrb,
      .s_axil_bready,
      .s_axil_bvalid,
      .s_axil_bresp,
      .s_axil_arready,
      .s_axil_arvalid,
      .s_axil_araddr,
      .s_axil_rready,
      .s_axil_rvalid,
      .s_axil_rdata,
      .s_axil_rresp,
      .in (regs_in),
      .out(regs_out)
  );

  logic [63:0] count[Counters];
  logic latch;
  logic [63:0] now;

  mw_counters #(
      .N(Counters)
  ) u_counters (
      .clk,
      .rst,
      .any(any_inc),
      .inc,
      .latch,
      .clear(any_clear),
      .clear_mask(count_clear),
      .count(),
      .held(count)
  );

  always_ff @(posedge clk) if (latch) now <= time_ns;

  // One request on the table bus at a time.
  logic start, owned, done;
  logic [TblW-1:0] row;
  table_e number;
  assign number = table_e'(regs_out.table_address_tbl);
  assign start = (regs_out.table_command_read || regs_out.table_command_write) && !tbl_req.valid;
  assign owned = tbl_req.tbl inside {TblExact, TblPage, TblSlot, TblState, TblAction,
                                     TblSelector, TblConn, TblFlow, TblTemplate, TblRule, TblRuleState};
  assign done = tbl_req.valid && (tbl_ack || !owned);
  always_ff @(posedge clk) begin
    if (done && !tbl_req.write) row <= owned ? tbl_rdata : '0;
    if (done) tbl_req.valid <= 1'b0;
    if (start) begin
      tbl_req.valid <= 1'b1;
      tbl_req.write <= regs_out.table_command_write;
      tbl_req.tbl   <= number;
      tbl_req.lane  <= regs_out.table_address_lane;
      tbl_req.index <= regs_out.table_address_index;
      for (int i = 0; i < TblW / 32; i++) tbl_req.wdata[32*i+:32] <= regs_out.table_write[i];
    end
    if (rst) tbl_req.valid <= 1'b0;
  end

  always_comb begin
    latch              = regs_out.control_latch;
    capture            = regs_out.control_capture;
    track              = regs_out.control_track;
    clear              = regs_out.control_clear;
    irq_enable         = regs_out.irq_enable[0];
    ring_base          = {regs_out.ring_base_hi, regs_out.ring_base_lo};
    ring_blocks_log2   = regs_out.ring_blocks_log2[4:0];
    block_log2         = regs_out.block_log2[4:0];
    ring_consumed      = regs_out.ring_consumed;
    snapshot_bytes     = regs_out.snapshot_bytes[15:0];
    flush_ns           = regs_out.flush_ns;
    reorder_timeout_ns = regs_out.reorder_timeout_ns;
    kinds[0]           = regs_out.kinds_ab[16:0];
    kinds[1]           = regs_out.kinds_ba[16:0];
  end

  always_comb begin
    regs_in.id = 32'h4d57_4952;
    regs_in.version = Version;
    regs_in.map_hash = mw_map_pkg::MapHash;
    regs_in.data_width = par_data_width;
    regs_in.clock_ps = par_clock_ps;
    regs_in.conns_log2 = par_conns_log2;
    regs_in.flow_rows_log2 = par_flow_rows_log2;
    regs_in.slots_log2 = par_slots_log2;
    regs_in.exact_rows_log2 = par_exact_rows_log2;
    regs_in.page_rows_log2 = par_page_rows_log2;
    regs_in.ways = par_ways;
    regs_in.selectors = par_selectors;
    regs_in.actions = par_actions;
    regs_in.rules = par_rules;
    regs_in.delay_slots = par_delay_slots;
    regs_in.max_frame = MaxFrame;

    regs_in.status_capture_active = capture_active;
    regs_in.status_clear_busy = clear_busy;
    regs_in.status_table_busy = tbl_req.valid;
    regs_in.status_dma_error = dma_error;
    regs_in.now = now;
    regs_in.ring_produced = ring_produced;
    regs_in.connections = connections;
    regs_in.connections_lost = connections_lost;
    for (int i = 0; i < TblW / 32; i++) regs_in.table_read[i] = row[32*i+:32];
    for (int p = 0; p < 2; p++) begin
      regs_in.port[p].rx_frames = count[PortCounters*p+0];
      regs_in.port[p].rx_bytes = count[PortCounters*p+1];
      regs_in.port[p].rx_errors = count[PortCounters*p+2];
      regs_in.port[p].rx_runts = count[PortCounters*p+3];
      regs_in.port[p].rx_truncated = count[PortCounters*p+4];
      regs_in.port[p].rx_lost = count[PortCounters*p+5];
      regs_in.port[p].tx_frames = count[PortCounters*p+6];
      regs_in.port[p].tx_bytes = count[PortCounters*p+7];
    end
    for (int l = 0; l < 2; l++) begin
      regs_in.lane[l].dropped = count[2*PortCounters+LaneCounters*l+0];
      regs_in.lane[l].marked = count[2*PortCounters+LaneCounters*l+1];
      regs_in.lane[l].corrupted = count[2*PortCounters+LaneCounters*l+2];
      regs_in.lane[l].rewritten = count[2*PortCounters+LaneCounters*l+3];
      regs_in.lane[l].shortened = count[2*PortCounters+LaneCounters*l+4];
      regs_in.lane[l].delayed = count[2*PortCounters+LaneCounters*l+5];
      regs_in.lane[l].delay_full = count[2*PortCounters+LaneCounters*l+6];
      regs_in.lane[l].mend_full = count[2*PortCounters+LaneCounters*l+7];
      regs_in.lane[l].reordered = count[2*PortCounters+LaneCounters*l+8];
      regs_in.lane[l].copied = count[2*PortCounters+LaneCounters*l+9];
      regs_in.lane[l].injected = count[2*PortCounters+LaneCounters*l+10];
      regs_in.lane[l].inject_lost = count[2*PortCounters+LaneCounters*l+11];
      regs_in.lane[l].malformed = count[2*PortCounters+LaneCounters*l+12];
      regs_in.lane[l].unmatched = count[2*PortCounters+LaneCounters*l+13];
      regs_in.lane[l].bind_full = count[2*PortCounters+LaneCounters*l+14];
      regs_in.lane[l].records_ingress = count[2*PortCounters+LaneCounters*l+15];
      regs_in.lane[l].records_egress = count[2*PortCounters+LaneCounters*l+16];
      regs_in.lane[l].lost_ingress = count[2*PortCounters+LaneCounters*l+17];
      regs_in.lane[l].lost_egress = count[2*PortCounters+LaneCounters*l+18];
      regs_in.lane[l].lost_snapshots = count[2*PortCounters+LaneCounters*l+19];
    end
  end

  assign busy = s_axil_bvalid || s_axil_rvalid || tbl_req.valid || clear_busy;
endmodule
