// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Generated from rtl/regs/midwire.rdl by tools/regs.py; do not edit.
package mw_map_pkg;
  // First 32 bits of SHA-256 of the register map's source.
  localparam logic [31:0] MapHash = 32'h5757_b787;
endpackage
