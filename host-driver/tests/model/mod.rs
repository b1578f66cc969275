// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card in software, as far as the driver can see: registers, tables and a ring that it
//! fills with blocks, written from the register map and docs/. It can be told to misbehave.
#![allow(dead_code, reason = "every test uses a part of it")]

use memmap2::MmapRaw;
use midwire_driver::backend::{BAR0, Backend};
use midwire_driver::{EventFd, Lane, Nanos, regs};
use midwire_trace::{BlockBuilder, Record};
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

pub const CONNS_LOG2: u32 = 10;
pub const SLOTS_LOG2: u32 = 10;
pub const ROWS_LOG2: u32 = 8;
pub const SELECTORS: u32 = 8;
pub const ACTIONS: u32 = 16;
pub const RULES: u32 = 8;

/// What the model does wrong, and what it is.
#[derive(Clone, Default)]
pub struct Faults {
    pub id: Option<u32>,
    pub version: Option<u32>,
    pub map_hash: Option<u32>,
    pub ways: Option<u32>,
    /// Number of a block whose checksum is spoilt.
    pub spoil: Option<u64>,
    pub no_final_block: bool,
    pub no_interrupts: bool,
    pub busy_for_ever: bool,
    /// A capture of a dead program is still on, until reset.
    pub left_running: bool,
}

/// A handle on the model; clones are the same card.
#[derive(Clone)]
pub struct Model(Arc<Mutex<State>>);

pub type TableKey = (u32, u32, u32);

pub struct State {
    pub faults: Faults,
    pub registers: HashMap<u32, u32>,
    pub tables: HashMap<TableKey, [u32; 16]>,
    /// Every row write in order.
    pub writes: Vec<TableKey>,
    /// The same, with the rows.
    pub history: Vec<(TableKey, [u32; 16])>,
    pub mapped: Vec<(u64, usize, usize)>,
    pub vectors: Vec<EventFd>,
    pub capturing: bool,
    pub dma_error: bool,
    /// Answers as a bus does for a device that is not there.
    pub gone: bool,
    pub resets: u32,
    builder: Option<BlockBuilder>,
    produced: u32,
    final_due: bool,
    latched: bool,
}

impl Model {
    pub fn new(faults: Faults) -> Self {
        let capturing = faults.left_running;
        Self(Arc::new(Mutex::new(State {
            faults,
            registers: HashMap::new(),
            tables: HashMap::new(),
            writes: Vec::new(),
            history: Vec::new(),
            mapped: Vec::new(),
            vectors: Vec::new(),
            capturing,
            dma_error: false,
            gone: false,
            resets: 0,
            builder: None,
            produced: 0,
            final_due: false,
            latched: false,
        })))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("model")
    }

    /// A frame of `len` bytes comes in at port A and leaves at B, with its record.
    pub fn frame(&self, n: u32, len: usize) {
        self.state().frame(n, len);
    }

    /// What the flush timer does.
    pub fn flush(&self) {
        self.state().write_block(false);
    }

    pub fn row(&self, table: u32, lane: Lane, index: u32) -> [u32; 16] {
        let key = (table, lane.index() as u32, index);
        self.state().tables.get(&key).copied().unwrap_or_default()
    }
}

/// Bits `low..low + width` of a row, width at most 64.
pub fn bits(row: &[u32; 16], low: usize, width: usize) -> u64 {
    (0..width).fold(0, |value, n| {
        let bit = row[(low + n) / 32] >> ((low + n) % 32) & 1;
        value | u64::from(bit) << n
    })
}

impl State {
    fn reg(&self, register: u32) -> u32 {
        self.registers.get(&register).copied().unwrap_or(0)
    }

    pub fn frame(&mut self, n: u32, len: usize) {
        let Some(mut builder) = self.builder.take() else {
            return;
        };
        builder.counters().rx_frames[0] += 1;
        builder.counters().tx_frames[0] += 1;
        let record = Record {
            time: Nanos(u64::from(n) * 100),
            packet_id: n,
            length: len as u16,
            ..Record::default()
        };
        let snapshot = self.reg(regs::SNAPSHOT_BYTES) as usize;
        let frame = vec![n as u8; len];
        let frame = (snapshot > 0).then_some(&frame[..]);
        let mut kept = builder.push(record, frame);
        self.builder = Some(builder);
        if !kept && self.write_block(false) {
            kept = self.with(|builder| builder.push(record, frame));
        }
        if !kept {
            self.with(|builder| builder.counters().lost_ingress[0] += 1);
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut BlockBuilder) -> T) -> T {
        act(self.builder.as_mut().expect("a capture runs"))
    }

    /// Closes the block into the ring; false when there is no room.
    fn write_block(&mut self, last: bool) -> bool {
        let blocks = 1 << self.reg(regs::RING_BLOCKS_LOG2);
        let used = self.produced.wrapping_sub(self.reg(regs::RING_CONSUMED));
        if used >= blocks || self.builder.is_none() {
            return false;
        }
        let mut bytes = self.with(|builder| builder.finish(last, Nanos(1)));
        if self.faults.spoil == Some(self.produced.into()) {
            bytes[200] ^= 1;
        }
        let base =
            u64::from(self.reg(regs::RING_BASE_HI)) << 32 | u64::from(self.reg(regs::RING_BASE_LO));
        let iova = base + u64::from(self.produced % blocks) * bytes.len() as u64;
        // What lies behind the used bytes is rubbish until the driver clears it.
        let used = u32::from_le_bytes(bytes[36..40].try_into().expect("word")) as usize;
        bytes[used..].fill(0xee);
        self.dma_write(iova + 160, &bytes[160..]);
        self.dma_write(iova, &bytes[..160]);
        self.produced = self.produced.wrapping_add(1);
        if self.reg(regs::IRQ_ENABLE) & 1 == 1 && !self.faults.no_interrupts {
            self.vectors[0].write(1).expect("interrupt");
        }
        true
    }

    fn dma_write(&mut self, iova: u64, bytes: &[u8]) {
        let hit = self.mapped.iter().find(|(start, _, len)| {
            iova >= *start && iova + bytes.len() as u64 <= start + *len as u64
        });
        let Some((start, va, _)) = hit else {
            self.dma_error = true;
            return;
        };
        // SAFETY: the driver promises that the mapping stays until it takes it back.
        unsafe {
            let to = (*va as *mut u8).add((iova - start) as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    fn finish(&mut self) {
        if self.final_due && !self.faults.no_final_block && self.write_block(true) {
            self.final_due = false;
            self.capturing = false;
            self.builder = None;
        }
    }

    fn read(&self, register: u32) -> u32 {
        let faults = &self.faults;
        match register {
            _ if self.gone => u32::MAX,
            regs::ID => faults.id.unwrap_or(0x4d57_4952),
            regs::VERSION => faults.version.unwrap_or(1),
            regs::MAP_HASH => faults.map_hash.unwrap_or(regs::EXPECTED_MAP_HASH),
            regs::DATA_WIDTH => 512,
            regs::CLOCK_PS => 3103,
            regs::CONNS_LOG2 => CONNS_LOG2,
            regs::SLOTS_LOG2 => SLOTS_LOG2,
            regs::FLOW_ROWS_LOG2 | regs::EXACT_ROWS_LOG2 | regs::PAGE_ROWS_LOG2 => ROWS_LOG2,
            regs::WAYS => faults.ways.unwrap_or(4),
            regs::SELECTORS => SELECTORS,
            regs::ACTIONS => ACTIONS,
            regs::RULES => RULES,
            regs::DELAY_SLOTS => 64,
            regs::MAX_FRAME => 10240,
            regs::STATUS => {
                let busy = regs::status::TABLE_BUSY | regs::status::CLEAR_BUSY;
                let bit = |on, mask| if on { mask } else { 0 };
                bit(self.capturing, regs::status::CAPTURE_ACTIVE)
                    | bit(self.dma_error, regs::status::DMA_ERROR)
                    | bit(faults.busy_for_ever, busy)
            }
            regs::RING_PRODUCED => self.produced,
            regs::NOW => 0x89ab_cdef,
            _ if register == regs::NOW + 4 => 7,
            // Counters hold their own offset, and only after a latch.
            0x200..0x500 if !self.latched => 0xdead_beef,
            0x200..0x500 if register.is_multiple_of(8) => register,
            0x200..0x500 => 0,
            _ => self.reg(register),
        }
    }

    fn write(&mut self, register: u32, value: u32) {
        self.registers.insert(register, value);
        match register {
            regs::CONTROL => self.control(value),
            regs::TABLE_COMMAND => self.table(value),
            regs::RING_CONSUMED => self.finish(),
            _ => {}
        }
    }

    fn control(&mut self, value: u32) {
        if value & regs::control::CLEAR != 0 {
            self.tables
                .retain(|(table, _, _), _| matches!(table, 4 | 5));
        }
        self.latched |= value & regs::control::LATCH != 0;
        let on = value & regs::control::CAPTURE != 0;
        if on && !self.capturing {
            self.produced = 0;
            let builder = BlockBuilder::new(
                1 << self.reg(regs::BLOCK_LOG2),
                self.reg(regs::SNAPSHOT_BYTES),
            );
            self.builder = Some(builder.expect("sizes"));
            self.capturing = true;
            self.final_due = false;
        }
        if !on && self.capturing && self.builder.is_some() {
            self.final_due = true;
            self.finish();
        }
    }

    fn table(&mut self, command: u32) {
        let address = self.reg(regs::TABLE_ADDRESS);
        let key = (address >> 28, address >> 27 & 1, address & 0xff_ffff);
        if command & regs::table_command::WRITE != 0 {
            let row = std::array::from_fn(|n| self.reg(regs::TABLE_WRITE + 4 * n as u32));
            self.tables.insert(key, row);
            self.writes.push(key);
            self.history.push((key, row));
        }
        if command & regs::table_command::READ != 0 {
            let row = self.tables.get(&key).copied().unwrap_or_default();
            for (n, word) in row.into_iter().enumerate() {
                self.registers.insert(regs::TABLE_READ + 4 * n as u32, word);
            }
        }
    }
}

impl Backend for Model {
    fn describe(&self) -> String {
        "the model card".into()
    }

    fn region_size(&self, region: u32) -> u64 {
        if region == BAR0 { 4096 } else { 0 }
    }

    fn read(&self, region: u32, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        assert_eq!((region, buf.len()), (BAR0, 4), "32-bit accesses to BAR 0");
        buf.copy_from_slice(&self.state().read(offset as u32).to_le_bytes());
        Ok(())
    }

    fn write(&self, region: u32, offset: u64, buf: &[u8]) -> io::Result<()> {
        assert_eq!((region, buf.len()), (BAR0, 4), "32-bit accesses to BAR 0");
        let value = u32::from_le_bytes(buf.try_into().expect("word"));
        self.state().write(offset as u32, value);
        Ok(())
    }

    fn map_region(&self, _region: u32) -> io::Result<Option<MmapRaw>> {
        Ok(None)
    }

    unsafe fn dma_map(
        &self,
        iova: u64,
        va: *mut u8,
        len: usize,
        _fd: BorrowedFd<'_>,
        _offset: u64,
    ) -> io::Result<()> {
        self.state().mapped.push((iova, va as usize, len));
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        let mut state = self.state();
        let before = state.mapped.len();
        state.mapped.retain(|m| (m.0, m.2) != (iova, len));
        assert_eq!(state.mapped.len() + 1, before, "unmaps what was mapped");
        Ok(())
    }

    fn set_msix(&self, events: &[EventFd]) -> io::Result<()> {
        self.state().vectors = events
            .iter()
            .map(EventFd::try_clone)
            .collect::<io::Result<_>>()?;
        Ok(())
    }

    fn reset(&self) -> io::Result<()> {
        let mut state = self.state();
        state.resets += 1;
        state.capturing = false;
        state.builder = None;
        Ok(())
    }
}
