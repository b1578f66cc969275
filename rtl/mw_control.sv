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
    parameter int unsigned Counters = 42  // 64-bit counters, in the order of the register map
) (
    input logic clk,
    input logic rst,
    input logic [63:0] time_ns,

    // AXI4-Lite slave
    input  logic [11:0] s_axil_awaddr,
    input  logic [ 2:0] s_axil_awprot,
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
    input  logic [ 2:0] s_axil_arprot,
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
    input logic [31:0] par_delay_slots,

    // settings
    output logic        capture,
    output logic        track,
    output logic        clear,            // one cycle; ignored by its users while they clear
    output logic        irq_enable,
    output logic [63:0] ring_base,
    output logic [ 4:0] ring_blocks_log2,
    output logic [ 4:0] block_log2,
    output logic [31:0] ring_consumed,
    output logic [15:0] snapshot_bytes,
    output logic [31:0] flush_ns,
    output logic [16:0] kinds[2],

    // state
    input logic        capture_active,
    input logic        clear_busy,
    input logic        dma_error,
    input logic [31:0] ring_produced,
    input logic [31:0] connections,
    input logic [31:0] connections_lost,
    input logic [Counters-1:0][15:0] inc,
    input logic [Counters-1:0] count_clear,  // pulses

    // table bus
    output tbl_req_t            tbl_req,
    input  logic                tbl_ack,
    input  logic     [TblW-1:0] tbl_rdata,

    output logic busy
);
  localparam logic [31:0] Version = {16'd0, 16'd1};  // major, minor
  localparam int unsigned PortCounters = 8;
  localparam int unsigned LaneCounters = 13;
  if (Counters != 2 * (PortCounters + LaneCounters)) begin : g_bad
    $fatal(1, "mw_control: Counters must be 42, the counters of the register map");
  end

  midwire__in_t  hwif_in;
  midwire__out_t hwif_out;

  mw_regs u_regs (
      .clk,
      .rst,
      .s_axil_awready,
      .s_axil_awvalid,
      .s_axil_awaddr,
      .s_axil_awprot,
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
      .s_axil_arprot,
      .s_axil_rready,
      .s_axil_rvalid,
      .s_axil_rdata,
      .s_axil_rresp,
      .hwif_in,
      .hwif_out
  );

  logic [Counters-1:0][63:0] count;
  logic latch;
  logic [63:0] now;

  mw_counters #(
      .N(Counters)
  ) u_counters (
      .clk,
      .rst,
      .inc,
      .latch,
      .clear(|count_clear),
      .clear_mask(count_clear),
      .count(),
      .held(count)
  );

  always_ff @(posedge clk) if (latch) now <= time_ns;

  // One request on the table bus at a time.
  logic start, owned, done;
  logic [TblW-1:0] row;
  table_e number;
  assign number = table_e'(hwif_out.table_address.tbl.value);
  assign start = (hwif_out.table_command.read.value || hwif_out.table_command.write.value) &&
      !tbl_req.valid;
  assign owned = tbl_req.tbl inside {TblExact, TblPage, TblSlot, TblState, TblAction,
                                     TblSelector, TblConn, TblFlow};
  assign done = tbl_req.valid && (tbl_ack || !owned);
  always_ff @(posedge clk) begin
    if (rst) tbl_req.valid <= 1'b0;
    else if (start) tbl_req.valid <= 1'b1;
    else if (done) tbl_req.valid <= 1'b0;

    if (start) begin
      tbl_req.write <= hwif_out.table_command.write.value;
      tbl_req.tbl   <= number;
      tbl_req.lane  <= hwif_out.table_address.lane.value;
      tbl_req.index <= hwif_out.table_address.index.value;
      for (int i = 0; i < TblW / 32; i++)
        tbl_req.wdata[32*i+:32] <= hwif_out.table_write[i].value.value;
    end
    if (done && !tbl_req.write) row <= owned ? tbl_rdata : '0;
  end

  always_comb begin
    latch            = hwif_out.control.latch.value;
    capture          = hwif_out.control.capture.value;
    track            = hwif_out.control.track.value;
    clear            = hwif_out.control.clear.value;
    irq_enable       = hwif_out.irq_enable.value.value[0];
    ring_base        = {hwif_out.ring_base_hi.value.value, hwif_out.ring_base_lo.value.value};
    ring_blocks_log2 = hwif_out.ring_blocks_log2.value.value[4:0];
    block_log2       = hwif_out.block_log2.value.value[4:0];
    ring_consumed    = hwif_out.ring_consumed.value.value;
    snapshot_bytes   = hwif_out.snapshot_bytes.value.value[15:0];
    flush_ns         = hwif_out.flush_ns.value.value;
    kinds[0]         = hwif_out.kinds_ab.value.value[16:0];
    kinds[1]         = hwif_out.kinds_ba.value.value[16:0];
  end

  always_comb begin
    hwif_in.id.value.next = 32'h4d57_4952;
    hwif_in.version.value.next = Version;
    hwif_in.map_hash.value.next = mw_map_pkg::MapHash;
    hwif_in.data_width.value.next = par_data_width;
    hwif_in.clock_ps.value.next = par_clock_ps;
    hwif_in.conns_log2.value.next = par_conns_log2;
    hwif_in.flow_rows_log2.value.next = par_flow_rows_log2;
    hwif_in.slots_log2.value.next = par_slots_log2;
    hwif_in.exact_rows_log2.value.next = par_exact_rows_log2;
    hwif_in.page_rows_log2.value.next = par_page_rows_log2;
    hwif_in.ways.value.next = par_ways;
    hwif_in.selectors.value.next = par_selectors;
    hwif_in.actions.value.next = par_actions;
    hwif_in.delay_slots.value.next = par_delay_slots;
    hwif_in.max_frame.value.next = MaxFrame;

    hwif_in.status.capture_active.next = capture_active;
    hwif_in.status.clear_busy.next = clear_busy;
    hwif_in.status.table_busy.next = tbl_req.valid;
    hwif_in.status.dma_error.next = dma_error;
    hwif_in.now.value.next = now;
    hwif_in.ring_produced.value.next = ring_produced;
    hwif_in.connections.value.next = connections;
    hwif_in.connections_lost.value.next = connections_lost;
    for (int i = 0; i < TblW / 32; i++) hwif_in.table_read[i].value.next = row[32*i+:32];
    for (int p = 0; p < 2; p++) begin
      hwif_in.port[p].rx_frames.value.next = count[PortCounters*p+0];
      hwif_in.port[p].rx_bytes.value.next = count[PortCounters*p+1];
      hwif_in.port[p].rx_errors.value.next = count[PortCounters*p+2];
      hwif_in.port[p].rx_runts.value.next = count[PortCounters*p+3];
      hwif_in.port[p].rx_truncated.value.next = count[PortCounters*p+4];
      hwif_in.port[p].rx_lost.value.next = count[PortCounters*p+5];
      hwif_in.port[p].tx_frames.value.next = count[PortCounters*p+6];
      hwif_in.port[p].tx_bytes.value.next = count[PortCounters*p+7];
    end
    for (int l = 0; l < 2; l++) begin
      hwif_in.lane[l].dropped.value.next = count[2*PortCounters+LaneCounters*l+0];
      hwif_in.lane[l].marked.value.next = count[2*PortCounters+LaneCounters*l+1];
      hwif_in.lane[l].corrupted.value.next = count[2*PortCounters+LaneCounters*l+2];
      hwif_in.lane[l].delayed.value.next = count[2*PortCounters+LaneCounters*l+3];
      hwif_in.lane[l].delay_full.value.next = count[2*PortCounters+LaneCounters*l+4];
      hwif_in.lane[l].malformed.value.next = count[2*PortCounters+LaneCounters*l+5];
      hwif_in.lane[l].unmatched.value.next = count[2*PortCounters+LaneCounters*l+6];
      hwif_in.lane[l].bind_full.value.next = count[2*PortCounters+LaneCounters*l+7];
      hwif_in.lane[l].records_ingress.value.next = count[2*PortCounters+LaneCounters*l+8];
      hwif_in.lane[l].records_egress.value.next = count[2*PortCounters+LaneCounters*l+9];
      hwif_in.lane[l].lost_ingress.value.next = count[2*PortCounters+LaneCounters*l+10];
      hwif_in.lane[l].lost_egress.value.next = count[2*PortCounters+LaneCounters*l+11];
      hwif_in.lane[l].lost_snapshots.value.next = count[2*PortCounters+LaneCounters*l+12];
    end
  end

  assign busy = s_axil_awvalid || s_axil_wvalid || s_axil_bvalid || s_axil_arvalid ||
      s_axil_rvalid || tbl_req.valid || clear_busy;
endmodule
