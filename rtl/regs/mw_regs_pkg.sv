// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Generated from rtl/regs/midwire.rdl by tools/regs.py; do not edit.
//
// What the registers tell the core (out_t) and what the core shows in them (in_t).
package mw_regs_pkg;
  typedef struct {
    logic [63:0] rx_frames;
    logic [63:0] rx_bytes;
    logic [63:0] rx_errors;
    logic [63:0] rx_runts;
    logic [63:0] rx_truncated;
    logic [63:0] rx_lost;
    logic [63:0] tx_frames;
    logic [63:0] tx_bytes;
  } port_in_t;

  typedef struct {
    logic [63:0] dropped;
    logic [63:0] marked;
    logic [63:0] corrupted;
    logic [63:0] rewritten;
    logic [63:0] shortened;
    logic [63:0] delayed;
    logic [63:0] delay_full;
    logic [63:0] mend_full;
    logic [63:0] reordered;
    logic [63:0] copied;
    logic [63:0] injected;
    logic [63:0] inject_lost;
    logic [63:0] malformed;
    logic [63:0] unmatched;
    logic [63:0] bind_full;
    logic [63:0] records_ingress;
    logic [63:0] records_egress;
    logic [63:0] lost_ingress;
    logic [63:0] lost_egress;
    logic [63:0] lost_snapshots;
  } lane_in_t;

  typedef struct {
    logic [31:0] id;
    logic [31:0] version;
    logic [31:0] map_hash;
    logic [31:0] data_width;
    logic [31:0] clock_ps;
    logic [31:0] conns_log2;
    logic [31:0] flow_rows_log2;
    logic [31:0] slots_log2;
    logic [31:0] exact_rows_log2;
    logic [31:0] page_rows_log2;
    logic [31:0] ways;
    logic [31:0] selectors;
    logic [31:0] actions;
    logic [31:0] delay_slots;
    logic [31:0] max_frame;
    logic [31:0] rules;
    logic        status_capture_active;
    logic        status_clear_busy;
    logic        status_table_busy;
    logic        status_dma_error;
    logic [63:0] now;
    logic [31:0] ring_produced;
    logic [31:0] connections;
    logic [31:0] connections_lost;
    logic [31:0] table_read[16];
    port_in_t port[2];
    lane_in_t lane[2];
  } in_t;

  typedef struct {
    logic        control_capture;
    logic        control_clear;
    logic        control_latch;
    logic        control_track;
    logic [31:0] irq_enable;
    logic [31:0] ring_base_lo;
    logic [31:0] ring_base_hi;
    logic [31:0] ring_blocks_log2;
    logic [31:0] block_log2;
    logic [31:0] ring_consumed;
    logic [31:0] snapshot_bytes;
    logic [31:0] flush_ns;
    logic [31:0] reorder_timeout_ns;
    logic [31:0] kinds_ab;
    logic [31:0] kinds_ba;
    logic [23:0] table_address_index;
    logic        table_address_lane;
    logic [3:0] table_address_tbl;
    logic        table_command_read;
    logic        table_command_write;
    logic [31:0] table_write[16];
  } out_t;
endpackage
