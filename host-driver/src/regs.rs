// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Offsets and fields of the card's registers in BAR 0.
//!
//! Generated from rtl/regs/midwire.rdl by tools/regs.py; do not edit.

/// First 32 bits of SHA-256 of the register map's source; the register
/// [`MAP_HASH`] of a card that fits reads as this.
pub const EXPECTED_MAP_HASH: u32 = 0x5757_b787;

/// Bytes that the registers take in BAR 0.
pub const SIZE: u32 = 0x500;

/// 0x4d574952.
pub const ID: u32 = 0x0;
/// Version of the core: major[31:16], minor[15:0].
pub const VERSION: u32 = 0x4;
/// First 32 bits of SHA-256 of this map's source: driver and card must agree.
pub const MAP_HASH: u32 = 0x8;
/// DATA_W: bits of the port streams.
pub const DATA_WIDTH: u32 = 0xc;
/// Period of the core clock in picoseconds.
pub const CLOCK_PS: u32 = 0x10;
/// Connections, log2.
pub const CONNS_LOG2: u32 = 0x14;
/// Rows of a way of the flow table, log2.
pub const FLOW_ROWS_LOG2: u32 = 0x18;
/// Event slots of a lane, log2.
pub const SLOTS_LOG2: u32 = 0x1c;
/// Rows of a way of the exact table, log2.
pub const EXACT_ROWS_LOG2: u32 = 0x20;
/// Rows of a way of the page table, log2.
pub const PAGE_ROWS_LOG2: u32 = 0x24;
/// Ways of every hash table.
pub const WAYS: u32 = 0x28;
/// Selectors.
pub const SELECTORS: u32 = 0x2c;
/// Action programs.
pub const ACTIONS: u32 = 0x30;
/// Frames that a lane can store at a time, to hold them back or to send them again.
pub const DELAY_SLOTS: u32 = 0x34;
/// Longest frame without FCS, bytes.
pub const MAX_FRAME: u32 = 0x38;
/// Rules of a lane.
pub const RULES: u32 = 0x3c;
/// See [`control`].
pub const CONTROL: u32 = 0x80;
/// See [`status`].
pub const STATUS: u32 = 0x84;
/// Bit n lets vector n be sent. 0: a block was written.
pub const IRQ_ENABLE: u32 = 0x88;
/// Card time in ns. 64 bits.
pub const NOW: u32 = 0x90;
/// Bus address of the ring of blocks, aligned to a block.
pub const RING_BASE_LO: u32 = 0xa0;
/// High word of it.
pub const RING_BASE_HI: u32 = 0xa4;
/// Blocks in the ring, log2, 1 to 16.
pub const RING_BLOCKS_LOG2: u32 = 0xa8;
/// Bytes of a block, log2, 12 to 22.
pub const BLOCK_LOG2: u32 = 0xac;
/// Blocks that the host has taken since capture started, modulo 2**32.
pub const RING_CONSUMED: u32 = 0xb0;
/// Blocks written since capture started, modulo 2**32.
pub const RING_PRODUCED: u32 = 0xb4;
/// Bytes of each frame that follow its record, multiple of 32, 0 to 10240.
pub const SNAPSHOT_BYTES: u32 = 0xb8;
/// A block that holds a record is closed after this time, 1000 to 1000000000.
pub const FLUSH_NS: u32 = 0xbc;
/// A frame that waits for others to go by leaves after this time at the latest.
pub const REORDER_TIMEOUT_NS: u32 = 0xc0;
/// Lane A to B: bit k lets events on kind k be looked up; bit 16 byte positions.
pub const KINDS_AB: u32 = 0xd0;
/// Lane B to A: the same.
pub const KINDS_BA: u32 = 0xd4;
/// Connections learnt since control.clear.
pub const CONNECTIONS: u32 = 0xd8;
/// Packets that would have opened a connection when a table was full.
pub const CONNECTIONS_LOST: u32 = 0xdc;
/// See [`table_address`].
pub const TABLE_ADDRESS: u32 = 0xf0;
/// See [`table_command`].
pub const TABLE_COMMAND: u32 = 0xf4;
/// First of 16 words, 4 bytes apart.
pub const TABLE_WRITE: u32 = 0x100;
/// First of 16 words, 4 bytes apart.
pub const TABLE_READ: u32 = 0x140;

/// Fields of [`CONTROL`].
pub mod control {
    /// Write records to the ring. Clearing it drains and writes the final block.
    pub const CAPTURE: u32 = 1 << 0;
    /// Forget connections, flows, positions, slots, rules, triggers and the per-lane counters of events; ignored while busy.
    pub const CLEAR: u32 = 1 << 1;
    /// Take a snapshot of counters and time.
    pub const LATCH: u32 = 1 << 2;
    /// Learn connections and match events.
    pub const TRACK: u32 = 1 << 3;
}

/// Fields of [`STATUS`].
pub mod status {
    /// Capture runs, or its final block is not yet written.
    pub const CAPTURE_ACTIVE: u32 = 1 << 0;
    /// control.clear is at work.
    pub const CLEAR_BUSY: u32 = 1 << 1;
    /// A table access is at work.
    pub const TABLE_BUSY: u32 = 1 << 2;
    /// The DMA master got an error response; capture stopped.
    pub const DMA_ERROR: u32 = 1 << 3;
}

/// Fields of [`TABLE_ADDRESS`].
pub mod table_address {
    /// Row; for hash tables {way, row}.
    pub const INDEX_SHIFT: u32 = 0;
    pub const INDEX_WIDTH: u32 = 24;
    /// 0 A to B, 1 B to A.
    pub const LANE: u32 = 1 << 27;
    /// Table, see docs/tables.md.
    pub const TBL_SHIFT: u32 = 28;
    pub const TBL_WIDTH: u32 = 4;
}

/// Fields of [`TABLE_COMMAND`].
pub mod table_command {
    /// Read the row into table_read.
    pub const READ: u32 = 1 << 0;
    /// Write table_write to the row.
    pub const WRITE: u32 = 1 << 1;
}

/// Registers of each port; [`port::at`] gives their offsets in the BAR.
pub mod port {
    pub const COUNT: u32 = 2;

    /// Offset of register `reg` of port `n`.
    pub const fn at(n: u32, reg: u32) -> u32 {
        0x200 + n * 0x80 + reg
    }

    /// Frames that came in, whole or not. 64 bits.
    pub const RX_FRAMES: u32 = 0x0;
    /// Bytes of frames that came in, without FCS. 64 bits.
    pub const RX_BYTES: u32 = 0x8;
    /// Frames that the MAC marked as bad. 64 bits.
    pub const RX_ERRORS: u32 = 0x10;
    /// Frames shorter than 60 bytes without FCS. 64 bits.
    pub const RX_RUNTS: u32 = 0x18;
    /// Frames longer than 10240 bytes, cut there. 64 bits.
    pub const RX_TRUNCATED: u32 = 0x20;
    /// Frames lost at ingress because the lane was full. 64 bits.
    pub const RX_LOST: u32 = 0x28;
    /// Frames that left. 64 bits.
    pub const TX_FRAMES: u32 = 0x30;
    /// Bytes that left, without FCS. 64 bits.
    pub const TX_BYTES: u32 = 0x38;

    /// Name and register of each, all 64 bits.
    pub const ALL: [(&str, u32); 8] = [
        ("rx_frames", RX_FRAMES),
        ("rx_bytes", RX_BYTES),
        ("rx_errors", RX_ERRORS),
        ("rx_runts", RX_RUNTS),
        ("rx_truncated", RX_TRUNCATED),
        ("rx_lost", RX_LOST),
        ("tx_frames", TX_FRAMES),
        ("tx_bytes", TX_BYTES),
    ];
}

/// Registers of each lane; [`lane::at`] gives their offsets in the BAR.
pub mod lane {
    pub const COUNT: u32 = 2;

    /// Offset of register `reg` of lane `n`.
    pub const fn at(n: u32, reg: u32) -> u32 {
        0x300 + n * 0x100 + reg
    }

    /// Frames dropped by an event. 64 bits.
    pub const DROPPED: u32 = 0x0;
    /// Frames of which an event set the ECN field. 64 bits.
    pub const MARKED: u32 = 0x8;
    /// Frames of which an event changed a byte or left a checksum wrong. 64 bits.
    pub const CORRUPTED: u32 = 0x10;
    /// Frames of which an event set bytes. 64 bits.
    pub const REWRITTEN: u32 = 0x18;
    /// Frames truncated by an event. 64 bits.
    pub const SHORTENED: u32 = 0x20;
    /// Frames delayed by an event. 64 bits.
    pub const DELAYED: u32 = 0x28;
    /// Frames not delayed, reordered or duplicated because the store was full. 64 bits.
    pub const DELAY_FULL: u32 = 0x30;
    /// Frames that were not changed because too many waited for their checksums. 64 bits.
    pub const MEND_FULL: u32 = 0x38;
    /// Frames taken aside until others have gone by. 64 bits.
    pub const REORDERED: u32 = 0x40;
    /// Copies that left. 64 bits.
    pub const COPIED: u32 = 0x48;
    /// Frames made by the card that left at the end of this lane. 64 bits.
    pub const INJECTED: u32 = 0x50;
    /// Frames that could not be made of a packet of this lane: too many at a time, or no such template. 64 bits.
    pub const INJECT_LOST: u32 = 0x58;
    /// Frames with a header that lies or is cut. 64 bits.
    pub const MALFORMED: u32 = 0x60;
    /// Frames for which not every event was looked up because the matcher was overloaded. 64 bits.
    pub const UNMATCHED: u32 = 0x68;
    /// Positions that could not be followed into their retransmissions: page table full. 64 bits.
    pub const BIND_FULL: u32 = 0x70;
    /// Ingress records written since capture started. 64 bits.
    pub const RECORDS_INGRESS: u32 = 0x78;
    /// Egress records written since capture started. 64 bits.
    pub const RECORDS_EGRESS: u32 = 0x80;
    /// Ingress records lost since capture started. 64 bits.
    pub const LOST_INGRESS: u32 = 0x88;
    /// Egress records lost since capture started. 64 bits.
    pub const LOST_EGRESS: u32 = 0x90;
    /// Records kept without their snapshot since capture started. 64 bits.
    pub const LOST_SNAPSHOTS: u32 = 0x98;

    /// Name and register of each, all 64 bits.
    pub const ALL: [(&str, u32); 20] = [
        ("dropped", DROPPED),
        ("marked", MARKED),
        ("corrupted", CORRUPTED),
        ("rewritten", REWRITTEN),
        ("shortened", SHORTENED),
        ("delayed", DELAYED),
        ("delay_full", DELAY_FULL),
        ("mend_full", MEND_FULL),
        ("reordered", REORDERED),
        ("copied", COPIED),
        ("injected", INJECTED),
        ("inject_lost", INJECT_LOST),
        ("malformed", MALFORMED),
        ("unmatched", UNMATCHED),
        ("bind_full", BIND_FULL),
        ("records_ingress", RECORDS_INGRESS),
        ("records_egress", RECORDS_EGRESS),
        ("lost_ingress", LOST_INGRESS),
        ("lost_egress", LOST_EGRESS),
        ("lost_snapshots", LOST_SNAPSHOTS),
    ];
}
