// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The core of the card, the same on every board and in simulation. Its ports are the
// portable seam: two MACs (AXI4-Stream; the receiving side has no ready, for a MAC can't
// wait), registers (AXI4-Lite), DMA of record blocks (AXI4 write master), one interrupt
// request, the time, and hints that tell a simulator when clocks may be skipped.
//
// Index 0 of a port array is port A, 1 is port B; lane 0 leads from A to B, lane 1 back.
// docs/card.md has the way of one packet.
module mw_core
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W = 512,          // bits of a port's stream: 64 or 512
    parameter int unsigned CLOCK_PS = 3103,       // period of clk in ps, told to the host
    parameter int unsigned CONNS_LOG2 = 14,       // connections, 4 to 15
    parameter int unsigned FLOW_ROWS_LOG2 = 14,   // rows of a way of the flow table
    parameter int unsigned SLOTS_LOG2 = 16,       // event slots of a lane
    parameter int unsigned EXACT_ROWS_LOG2 = 15,  // rows of a way of the exact table
    parameter int unsigned PAGE_ROWS_LOG2 = 15,   // rows of a way of the page table
    parameter int unsigned ACTIONS_LOG2 = 8,      // action programs
    parameter int unsigned SELECTORS = 8,         // selectors, 1 to 64
    parameter int unsigned INFLIGHT_LOG2 = 8,     // frames that a lane may hold at a time
    parameter int unsigned FIFO_LOG2 = DATA_W == 512 ? 10 : 13,  // beats a lane can hold
    parameter int unsigned SNAP_LOG2 = DATA_W == 512 ? 10 : 13,  // beats a tap can hold
    parameter int unsigned DELAY_SLOTS_LOG2 = 6   // frames that a lane can hold back
) (
    input logic        clk,
    input logic        rst,
    input logic [63:0] time_ns,  // card time; need not be regular, must not go back

    input logic [1:0][  DATA_W-1:0] s_axis_tdata,
    input logic [1:0][DATA_W/8-1:0] s_axis_tkeep,
    input logic [1:0]               s_axis_tvalid,
    input logic [1:0]               s_axis_tlast,
    input logic [1:0]               s_axis_tuser,  // with tlast: the frame is bad

    output logic [1:0][  DATA_W-1:0] m_axis_tdata,
    output logic [1:0][DATA_W/8-1:0] m_axis_tkeep,
    output logic [1:0]               m_axis_tvalid,  // does not fall inside a frame
    input  logic [1:0]               m_axis_tready,
    output logic [1:0]               m_axis_tlast,
    output logic [1:0]               m_axis_tuser,

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

    output logic [ 63:0] m_axi_awaddr,
    output logic [  7:0] m_axi_awlen,
    output logic [  2:0] m_axi_awsize,
    output logic [  1:0] m_axi_awburst,
    output logic         m_axi_awvalid,
    input  logic         m_axi_awready,
    output logic [255:0] m_axi_wdata,
    output logic [ 31:0] m_axi_wstrb,
    output logic         m_axi_wlast,
    output logic         m_axi_wvalid,
    input  logic         m_axi_wready,
    input  logic [  1:0] m_axi_bresp,
    input  logic         m_axi_bvalid,
    output logic         m_axi_bready,

    output logic irq_valid,  // held until irq_ready
    input  logic irq_ready,

    output logic        busy,         // a clock edge may change more than counters of time
    output logic        timer_valid,  // an idle core wants to be clocked at timer_ns
    output logic [63:0] timer_ns
);
endmodule
