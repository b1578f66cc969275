// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Generated from rtl/regs/midwire.rdl by tools/regs.py; do not edit.
//
// AXI4-Lite slave of the register map. One access of each direction at a time; a write is
// taken when address and data are both there. Accesses to words that are no register, and
// writes to those that can only be read, are answered with SLVERR and change nothing.
module mw_regs
  import mw_regs_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
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
    input  in_t         in,
    output out_t        out
);
  localparam logic [1:0] Okay = 2'b00;
  localparam logic [1:0] SlvErr = 2'b10;

  logic write, read;
  assign write = s_axil_awvalid && s_axil_awready && s_axil_wvalid;
  assign read = s_axil_arvalid && s_axil_arready;
  assign s_axil_wready = s_axil_awready;

  logic [31:0] wdata, wmask;
  assign wdata = s_axil_wdata;
  assign wmask = {{8{s_axil_wstrb[3]}}, {8{s_axil_wstrb[2]}}, {8{s_axil_wstrb[1]}}, {8{s_axil_wstrb[0]}}};

  logic pulsed;  // a pulse was given in this cycle
  always_ff @(posedge clk) begin
    if (write || pulsed || rst) begin
      automatic out_t next = out;
      next.control_clear = '0;
      next.control_latch = '0;
      next.table_command_read = '0;
      next.table_command_write = '0;
      if (write) begin
        s_axil_bresp <= Okay;
        case (s_axil_awaddr[11:2])
        10'h020: begin
          next.control_capture = (wdata[0] & wmask[0]) | (out.control_capture & ~wmask[0]);
          next.control_clear = (wdata[1] & wmask[1]);
          next.control_latch = (wdata[2] & wmask[2]);
          next.control_track = (wdata[3] & wmask[3]) | (out.control_track & ~wmask[3]);
        end
        10'h022: begin
          next.irq_enable = (wdata[31:0] & wmask[31:0]) | (out.irq_enable & ~wmask[31:0]);
        end
        10'h028: begin
          next.ring_base_lo = (wdata[31:0] & wmask[31:0]) | (out.ring_base_lo & ~wmask[31:0]);
        end
        10'h029: begin
          next.ring_base_hi = (wdata[31:0] & wmask[31:0]) | (out.ring_base_hi & ~wmask[31:0]);
        end
        10'h02a: begin
          next.ring_blocks_log2 = (wdata[31:0] & wmask[31:0]) | (out.ring_blocks_log2 & ~wmask[31:0]);
        end
        10'h02b: begin
          next.block_log2 = (wdata[31:0] & wmask[31:0]) | (out.block_log2 & ~wmask[31:0]);
        end
        10'h02c: begin
          next.ring_consumed = (wdata[31:0] & wmask[31:0]) | (out.ring_consumed & ~wmask[31:0]);
        end
        10'h02e: begin
          next.snapshot_bytes = (wdata[31:0] & wmask[31:0]) | (out.snapshot_bytes & ~wmask[31:0]);
        end
        10'h02f: begin
          next.flush_ns = (wdata[31:0] & wmask[31:0]) | (out.flush_ns & ~wmask[31:0]);
        end
        10'h030: begin
          next.reorder_timeout_ns = (wdata[31:0] & wmask[31:0]) | (out.reorder_timeout_ns & ~wmask[31:0]);
        end
        10'h034: begin
          next.kinds_ab = (wdata[31:0] & wmask[31:0]) | (out.kinds_ab & ~wmask[31:0]);
        end
        10'h035: begin
          next.kinds_ba = (wdata[31:0] & wmask[31:0]) | (out.kinds_ba & ~wmask[31:0]);
        end
        10'h03c: begin
          next.table_address_index = (wdata[23:0] & wmask[23:0]) | (out.table_address_index & ~wmask[23:0]);
          next.table_address_lane = (wdata[27] & wmask[27]) | (out.table_address_lane & ~wmask[27]);
          next.table_address_tbl = (wdata[31:28] & wmask[31:28]) | (out.table_address_tbl & ~wmask[31:28]);
        end
        10'h03d: begin
          next.table_command_read = (wdata[0] & wmask[0]);
          next.table_command_write = (wdata[1] & wmask[1]);
        end
        10'h040: begin
          next.table_write[0] = (wdata[31:0] & wmask[31:0]) | (out.table_write[0] & ~wmask[31:0]);
        end
        10'h041: begin
          next.table_write[1] = (wdata[31:0] & wmask[31:0]) | (out.table_write[1] & ~wmask[31:0]);
        end
        10'h042: begin
          next.table_write[2] = (wdata[31:0] & wmask[31:0]) | (out.table_write[2] & ~wmask[31:0]);
        end
        10'h043: begin
          next.table_write[3] = (wdata[31:0] & wmask[31:0]) | (out.table_write[3] & ~wmask[31:0]);
        end
        10'h044: begin
          next.table_write[4] = (wdata[31:0] & wmask[31:0]) | (out.table_write[4] & ~wmask[31:0]);
        end
        10'h045: begin
          next.table_write[5] = (wdata[31:0] & wmask[31:0]) | (out.table_write[5] & ~wmask[31:0]);
        end
        10'h046: begin
          next.table_write[6] = (wdata[31:0] & wmask[31:0]) | (out.table_write[6] & ~wmask[31:0]);
        end
        10'h047: begin
          next.table_write[7] = (wdata[31:0] & wmask[31:0]) | (out.table_write[7] & ~wmask[31:0]);
        end
        10'h048: begin
          next.table_write[8] = (wdata[31:0] & wmask[31:0]) | (out.table_write[8] & ~wmask[31:0]);
        end
        10'h049: begin
          next.table_write[9] = (wdata[31:0] & wmask[31:0]) | (out.table_write[9] & ~wmask[31:0]);
        end
        10'h04a: begin
          next.table_write[10] = (wdata[31:0] & wmask[31:0]) | (out.table_write[10] & ~wmask[31:0]);
        end
        10'h04b: begin
          next.table_write[11] = (wdata[31:0] & wmask[31:0]) | (out.table_write[11] & ~wmask[31:0]);
        end
        10'h04c: begin
          next.table_write[12] = (wdata[31:0] & wmask[31:0]) | (out.table_write[12] & ~wmask[31:0]);
        end
        10'h04d: begin
          next.table_write[13] = (wdata[31:0] & wmask[31:0]) | (out.table_write[13] & ~wmask[31:0]);
        end
        10'h04e: begin
          next.table_write[14] = (wdata[31:0] & wmask[31:0]) | (out.table_write[14] & ~wmask[31:0]);
        end
        10'h04f: begin
          next.table_write[15] = (wdata[31:0] & wmask[31:0]) | (out.table_write[15] & ~wmask[31:0]);
        end
        default: s_axil_bresp <= SlvErr;
        endcase
      end
      if (rst) begin
        next.control_clear = '0;
        next.control_latch = '0;
        next.table_command_read = '0;
        next.table_command_write = '0;
        next.control_capture = '0;
        next.control_track = '0;
        next.irq_enable = '0;
        next.ring_base_lo = '0;
        next.ring_base_hi = '0;
        next.ring_blocks_log2 = '0;
        next.block_log2 = '0;
        next.ring_consumed = '0;
        next.snapshot_bytes = '0;
        next.flush_ns = '0;
        next.reorder_timeout_ns = '0;
        next.kinds_ab = '0;
        next.kinds_ba = '0;
        next.table_address_index = '0;
        next.table_address_lane = '0;
        next.table_address_tbl = '0;
        next.table_write[0] = '0;
        next.table_write[1] = '0;
        next.table_write[2] = '0;
        next.table_write[3] = '0;
        next.table_write[4] = '0;
        next.table_write[5] = '0;
        next.table_write[6] = '0;
        next.table_write[7] = '0;
        next.table_write[8] = '0;
        next.table_write[9] = '0;
        next.table_write[10] = '0;
        next.table_write[11] = '0;
        next.table_write[12] = '0;
        next.table_write[13] = '0;
        next.table_write[14] = '0;
        next.table_write[15] = '0;
      end
      out <= next;
      pulsed <= write && !rst;
    end
    s_axil_awready <= s_axil_awvalid && s_axil_wvalid && !s_axil_awready && (!s_axil_bvalid || s_axil_bready);
    if (write) s_axil_bvalid <= 1'b1;
    else if (s_axil_bready) s_axil_bvalid <= 1'b0;
    if (rst) begin
      s_axil_awready <= 1'b0;
      s_axil_bvalid  <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      s_axil_arready <= 1'b0;
      s_axil_rvalid  <= 1'b0;
    end else begin
      s_axil_arready <= s_axil_arvalid && !s_axil_arready && (!s_axil_rvalid || s_axil_rready);
      if (read) s_axil_rvalid <= 1'b1;
      else if (s_axil_rready) s_axil_rvalid <= 1'b0;
    end
    if (read) begin
      s_axil_rresp <= Okay;
      case (s_axil_araddr[11:2])
        10'h000: s_axil_rdata <= in.id;
        10'h001: s_axil_rdata <= in.version;
        10'h002: s_axil_rdata <= in.map_hash;
        10'h003: s_axil_rdata <= in.data_width;
        10'h004: s_axil_rdata <= in.clock_ps;
        10'h005: s_axil_rdata <= in.conns_log2;
        10'h006: s_axil_rdata <= in.flow_rows_log2;
        10'h007: s_axil_rdata <= in.slots_log2;
        10'h008: s_axil_rdata <= in.exact_rows_log2;
        10'h009: s_axil_rdata <= in.page_rows_log2;
        10'h00a: s_axil_rdata <= in.ways;
        10'h00b: s_axil_rdata <= in.selectors;
        10'h00c: s_axil_rdata <= in.actions;
        10'h00d: s_axil_rdata <= in.delay_slots;
        10'h00e: s_axil_rdata <= in.max_frame;
        10'h00f: s_axil_rdata <= in.rules;
        10'h020: s_axil_rdata <= {28'd0, out.control_track, 1'd0, 1'd0, out.control_capture};
        10'h021: s_axil_rdata <= {28'd0, in.status_dma_error, in.status_table_busy, in.status_clear_busy, in.status_capture_active};
        10'h022: s_axil_rdata <= out.irq_enable;
        10'h024: s_axil_rdata <= in.now[0+:32];
        10'h025: s_axil_rdata <= in.now[32+:32];
        10'h028: s_axil_rdata <= out.ring_base_lo;
        10'h029: s_axil_rdata <= out.ring_base_hi;
        10'h02a: s_axil_rdata <= out.ring_blocks_log2;
        10'h02b: s_axil_rdata <= out.block_log2;
        10'h02c: s_axil_rdata <= out.ring_consumed;
        10'h02d: s_axil_rdata <= in.ring_produced;
        10'h02e: s_axil_rdata <= out.snapshot_bytes;
        10'h02f: s_axil_rdata <= out.flush_ns;
        10'h030: s_axil_rdata <= out.reorder_timeout_ns;
        10'h034: s_axil_rdata <= out.kinds_ab;
        10'h035: s_axil_rdata <= out.kinds_ba;
        10'h036: s_axil_rdata <= in.connections;
        10'h037: s_axil_rdata <= in.connections_lost;
        10'h03c: s_axil_rdata <= {out.table_address_tbl, out.table_address_lane, 3'd0, out.table_address_index};
        10'h03d: s_axil_rdata <= {30'd0, 1'd0, 1'd0};
        10'h040: s_axil_rdata <= out.table_write[0];
        10'h041: s_axil_rdata <= out.table_write[1];
        10'h042: s_axil_rdata <= out.table_write[2];
        10'h043: s_axil_rdata <= out.table_write[3];
        10'h044: s_axil_rdata <= out.table_write[4];
        10'h045: s_axil_rdata <= out.table_write[5];
        10'h046: s_axil_rdata <= out.table_write[6];
        10'h047: s_axil_rdata <= out.table_write[7];
        10'h048: s_axil_rdata <= out.table_write[8];
        10'h049: s_axil_rdata <= out.table_write[9];
        10'h04a: s_axil_rdata <= out.table_write[10];
        10'h04b: s_axil_rdata <= out.table_write[11];
        10'h04c: s_axil_rdata <= out.table_write[12];
        10'h04d: s_axil_rdata <= out.table_write[13];
        10'h04e: s_axil_rdata <= out.table_write[14];
        10'h04f: s_axil_rdata <= out.table_write[15];
        10'h050: s_axil_rdata <= in.table_read[0];
        10'h051: s_axil_rdata <= in.table_read[1];
        10'h052: s_axil_rdata <= in.table_read[2];
        10'h053: s_axil_rdata <= in.table_read[3];
        10'h054: s_axil_rdata <= in.table_read[4];
        10'h055: s_axil_rdata <= in.table_read[5];
        10'h056: s_axil_rdata <= in.table_read[6];
        10'h057: s_axil_rdata <= in.table_read[7];
        10'h058: s_axil_rdata <= in.table_read[8];
        10'h059: s_axil_rdata <= in.table_read[9];
        10'h05a: s_axil_rdata <= in.table_read[10];
        10'h05b: s_axil_rdata <= in.table_read[11];
        10'h05c: s_axil_rdata <= in.table_read[12];
        10'h05d: s_axil_rdata <= in.table_read[13];
        10'h05e: s_axil_rdata <= in.table_read[14];
        10'h05f: s_axil_rdata <= in.table_read[15];
        10'h080: s_axil_rdata <= in.port[0].rx_frames[0+:32];
        10'h081: s_axil_rdata <= in.port[0].rx_frames[32+:32];
        10'h082: s_axil_rdata <= in.port[0].rx_bytes[0+:32];
        10'h083: s_axil_rdata <= in.port[0].rx_bytes[32+:32];
        10'h084: s_axil_rdata <= in.port[0].rx_errors[0+:32];
        10'h085: s_axil_rdata <= in.port[0].rx_errors[32+:32];
        10'h086: s_axil_rdata <= in.port[0].rx_runts[0+:32];
        10'h087: s_axil_rdata <= in.port[0].rx_runts[32+:32];
        10'h088: s_axil_rdata <= in.port[0].rx_truncated[0+:32];
        10'h089: s_axil_rdata <= in.port[0].rx_truncated[32+:32];
        10'h08a: s_axil_rdata <= in.port[0].rx_lost[0+:32];
        10'h08b: s_axil_rdata <= in.port[0].rx_lost[32+:32];
        10'h08c: s_axil_rdata <= in.port[0].tx_frames[0+:32];
        10'h08d: s_axil_rdata <= in.port[0].tx_frames[32+:32];
        10'h08e: s_axil_rdata <= in.port[0].tx_bytes[0+:32];
        10'h08f: s_axil_rdata <= in.port[0].tx_bytes[32+:32];
        10'h0a0: s_axil_rdata <= in.port[1].rx_frames[0+:32];
        10'h0a1: s_axil_rdata <= in.port[1].rx_frames[32+:32];
        10'h0a2: s_axil_rdata <= in.port[1].rx_bytes[0+:32];
        10'h0a3: s_axil_rdata <= in.port[1].rx_bytes[32+:32];
        10'h0a4: s_axil_rdata <= in.port[1].rx_errors[0+:32];
        10'h0a5: s_axil_rdata <= in.port[1].rx_errors[32+:32];
        10'h0a6: s_axil_rdata <= in.port[1].rx_runts[0+:32];
        10'h0a7: s_axil_rdata <= in.port[1].rx_runts[32+:32];
        10'h0a8: s_axil_rdata <= in.port[1].rx_truncated[0+:32];
        10'h0a9: s_axil_rdata <= in.port[1].rx_truncated[32+:32];
        10'h0aa: s_axil_rdata <= in.port[1].rx_lost[0+:32];
        10'h0ab: s_axil_rdata <= in.port[1].rx_lost[32+:32];
        10'h0ac: s_axil_rdata <= in.port[1].tx_frames[0+:32];
        10'h0ad: s_axil_rdata <= in.port[1].tx_frames[32+:32];
        10'h0ae: s_axil_rdata <= in.port[1].tx_bytes[0+:32];
        10'h0af: s_axil_rdata <= in.port[1].tx_bytes[32+:32];
        10'h0c0: s_axil_rdata <= in.lane[0].dropped[0+:32];
        10'h0c1: s_axil_rdata <= in.lane[0].dropped[32+:32];
        10'h0c2: s_axil_rdata <= in.lane[0].marked[0+:32];
        10'h0c3: s_axil_rdata <= in.lane[0].marked[32+:32];
        10'h0c4: s_axil_rdata <= in.lane[0].corrupted[0+:32];
        10'h0c5: s_axil_rdata <= in.lane[0].corrupted[32+:32];
        10'h0c6: s_axil_rdata <= in.lane[0].rewritten[0+:32];
        10'h0c7: s_axil_rdata <= in.lane[0].rewritten[32+:32];
        10'h0c8: s_axil_rdata <= in.lane[0].shortened[0+:32];
        10'h0c9: s_axil_rdata <= in.lane[0].shortened[32+:32];
        10'h0ca: s_axil_rdata <= in.lane[0].delayed[0+:32];
        10'h0cb: s_axil_rdata <= in.lane[0].delayed[32+:32];
        10'h0cc: s_axil_rdata <= in.lane[0].delay_full[0+:32];
        10'h0cd: s_axil_rdata <= in.lane[0].delay_full[32+:32];
        10'h0ce: s_axil_rdata <= in.lane[0].mend_full[0+:32];
        10'h0cf: s_axil_rdata <= in.lane[0].mend_full[32+:32];
        10'h0d0: s_axil_rdata <= in.lane[0].reordered[0+:32];
        10'h0d1: s_axil_rdata <= in.lane[0].reordered[32+:32];
        10'h0d2: s_axil_rdata <= in.lane[0].copied[0+:32];
        10'h0d3: s_axil_rdata <= in.lane[0].copied[32+:32];
        10'h0d4: s_axil_rdata <= in.lane[0].injected[0+:32];
        10'h0d5: s_axil_rdata <= in.lane[0].injected[32+:32];
        10'h0d6: s_axil_rdata <= in.lane[0].inject_lost[0+:32];
        10'h0d7: s_axil_rdata <= in.lane[0].inject_lost[32+:32];
        10'h0d8: s_axil_rdata <= in.lane[0].malformed[0+:32];
        10'h0d9: s_axil_rdata <= in.lane[0].malformed[32+:32];
        10'h0da: s_axil_rdata <= in.lane[0].unmatched[0+:32];
        10'h0db: s_axil_rdata <= in.lane[0].unmatched[32+:32];
        10'h0dc: s_axil_rdata <= in.lane[0].bind_full[0+:32];
        10'h0dd: s_axil_rdata <= in.lane[0].bind_full[32+:32];
        10'h0de: s_axil_rdata <= in.lane[0].records_ingress[0+:32];
        10'h0df: s_axil_rdata <= in.lane[0].records_ingress[32+:32];
        10'h0e0: s_axil_rdata <= in.lane[0].records_egress[0+:32];
        10'h0e1: s_axil_rdata <= in.lane[0].records_egress[32+:32];
        10'h0e2: s_axil_rdata <= in.lane[0].lost_ingress[0+:32];
        10'h0e3: s_axil_rdata <= in.lane[0].lost_ingress[32+:32];
        10'h0e4: s_axil_rdata <= in.lane[0].lost_egress[0+:32];
        10'h0e5: s_axil_rdata <= in.lane[0].lost_egress[32+:32];
        10'h0e6: s_axil_rdata <= in.lane[0].lost_snapshots[0+:32];
        10'h0e7: s_axil_rdata <= in.lane[0].lost_snapshots[32+:32];
        10'h100: s_axil_rdata <= in.lane[1].dropped[0+:32];
        10'h101: s_axil_rdata <= in.lane[1].dropped[32+:32];
        10'h102: s_axil_rdata <= in.lane[1].marked[0+:32];
        10'h103: s_axil_rdata <= in.lane[1].marked[32+:32];
        10'h104: s_axil_rdata <= in.lane[1].corrupted[0+:32];
        10'h105: s_axil_rdata <= in.lane[1].corrupted[32+:32];
        10'h106: s_axil_rdata <= in.lane[1].rewritten[0+:32];
        10'h107: s_axil_rdata <= in.lane[1].rewritten[32+:32];
        10'h108: s_axil_rdata <= in.lane[1].shortened[0+:32];
        10'h109: s_axil_rdata <= in.lane[1].shortened[32+:32];
        10'h10a: s_axil_rdata <= in.lane[1].delayed[0+:32];
        10'h10b: s_axil_rdata <= in.lane[1].delayed[32+:32];
        10'h10c: s_axil_rdata <= in.lane[1].delay_full[0+:32];
        10'h10d: s_axil_rdata <= in.lane[1].delay_full[32+:32];
        10'h10e: s_axil_rdata <= in.lane[1].mend_full[0+:32];
        10'h10f: s_axil_rdata <= in.lane[1].mend_full[32+:32];
        10'h110: s_axil_rdata <= in.lane[1].reordered[0+:32];
        10'h111: s_axil_rdata <= in.lane[1].reordered[32+:32];
        10'h112: s_axil_rdata <= in.lane[1].copied[0+:32];
        10'h113: s_axil_rdata <= in.lane[1].copied[32+:32];
        10'h114: s_axil_rdata <= in.lane[1].injected[0+:32];
        10'h115: s_axil_rdata <= in.lane[1].injected[32+:32];
        10'h116: s_axil_rdata <= in.lane[1].inject_lost[0+:32];
        10'h117: s_axil_rdata <= in.lane[1].inject_lost[32+:32];
        10'h118: s_axil_rdata <= in.lane[1].malformed[0+:32];
        10'h119: s_axil_rdata <= in.lane[1].malformed[32+:32];
        10'h11a: s_axil_rdata <= in.lane[1].unmatched[0+:32];
        10'h11b: s_axil_rdata <= in.lane[1].unmatched[32+:32];
        10'h11c: s_axil_rdata <= in.lane[1].bind_full[0+:32];
        10'h11d: s_axil_rdata <= in.lane[1].bind_full[32+:32];
        10'h11e: s_axil_rdata <= in.lane[1].records_ingress[0+:32];
        10'h11f: s_axil_rdata <= in.lane[1].records_ingress[32+:32];
        10'h120: s_axil_rdata <= in.lane[1].records_egress[0+:32];
        10'h121: s_axil_rdata <= in.lane[1].records_egress[32+:32];
        10'h122: s_axil_rdata <= in.lane[1].lost_ingress[0+:32];
        10'h123: s_axil_rdata <= in.lane[1].lost_ingress[32+:32];
        10'h124: s_axil_rdata <= in.lane[1].lost_egress[0+:32];
        10'h125: s_axil_rdata <= in.lane[1].lost_egress[32+:32];
        10'h126: s_axil_rdata <= in.lane[1].lost_snapshots[0+:32];
        10'h127: s_axil_rdata <= in.lane[1].lost_snapshots[32+:32];
        default: begin
          s_axil_rdata <= '0;
          s_axil_rresp <= SlvErr;
        end
      endcase
    end
  end
endmodule
