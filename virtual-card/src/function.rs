// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PCI function: configuration space, BARs, MSI-X, and the memory that the card may
//! write to. The host reaches it through a [`HostBus`], directly or behind a vfio-user
//! socket; the simulation takes its half from [`Function`].
//!
//! Reads that lead nowhere give all ones and such writes are lost, as on a PCI bus.

use crate::dma::Dma;
use crossbeam_channel::{Sender, bounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Region numbers, as VFIO has them.
pub const BAR0: u32 = 0;
/// The BAR that holds the MSI-X table and the pending bits.
pub const BAR4: u32 = 4;
/// Configuration space.
pub const CONFIG: u32 = 7;

/// Vendor of the card: one that is not assigned and that emulators use for devices of their
/// own. The device is "MW".
pub const VENDOR_ID: u16 = 0x1234;
/// Device of the card.
pub const DEVICE_ID: u16 = 0x4d57;

/// MSI-X vectors.
pub const VECTORS: usize = 1;

const BAR_BYTES: u32 = 4096;
const CONFIG_BYTES: usize = 256;
const PBA_OFFSET: usize = 0x800;
const TABLE_BYTES: usize = 16 * VECTORS;

// PCI Local Bus 3.0, section 6.1 and (MSI-X) 6.8.2.
const COMMAND: usize = 0x04;
const COMMAND_MASK: u16 = 0x0546; // memory, bus master, parity, SERR, no INTx
const MEMORY_SPACE: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
const MSIX: usize = 0x40;
const MSIX_CONTROL: usize = MSIX + 2;

/// What the simulation is asked to do.
pub(crate) enum Request {
    Read {
        address: u16,
        reply: Sender<u32>,
    },
    Write {
        address: u16,
        value: u32,
        reply: Sender<u32>,
    },
    Reset {
        reply: Sender<u32>,
    },
}

/// Passes a request on; false when there is no simulation any more.
type Submit = dyn Fn(Request) -> bool + Send + Sync;

struct State {
    config: [u8; CONFIG_BYTES],
    table: [u8; TABLE_BYTES],
    pending: bool,
    vector: Option<File>,
    dma: Dma,
}

impl State {
    fn new() -> Self {
        let mut config = [0; CONFIG_BYTES];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0x00, &VENDOR_ID.to_le_bytes());
        put(0x02, &DEVICE_ID.to_le_bytes());
        put(0x06, &0x0010u16.to_le_bytes()); // status: has capabilities
        put(0x08, &[1, 0, 0, 0x02]); // revision 1, class 0x020000: Ethernet controller
        put(0x2c, &VENDOR_ID.to_le_bytes());
        put(0x2e, &DEVICE_ID.to_le_bytes());
        put(0x34, &[MSIX as u8]);
        put(MSIX, &[0x11, 0]);
        put(MSIX_CONTROL, &(VECTORS as u16 - 1).to_le_bytes());
        put(MSIX + 4, &BAR4.to_le_bytes());
        put(MSIX + 8, &(PBA_OFFSET as u32 | BAR4).to_le_bytes());
        let mut table = [0; TABLE_BYTES];
        table.chunks_mut(16).for_each(|vector| vector[12] = 1); // masked
        Self {
            config,
            table,
            pending: false,
            vector: None,
            dma: Dma::default(),
        }
    }

    fn command(&self) -> u16 {
        u16::from_le_bytes([self.config[COMMAND], self.config[COMMAND + 1]])
    }

    /// Mask of the bits that a host may write, for a byte of configuration space.
    fn writable(at: usize) -> u8 {
        const INTERRUPT_LINE: usize = 0x3c;
        match at {
            COMMAND => COMMAND_MASK as u8,
            _ if at == COMMAND + 1 => (COMMAND_MASK >> 8) as u8,
            // BAR 0 and BAR 4, 32 bits each, of 4 KiB: the low 12 bits read as zeros, which is
            // how a host learns the size.
            0x11 | 0x21 => 0xf0,
            0x12 | 0x13 | 0x22 | 0x23 => 0xff,
            INTERRUPT_LINE => 0xff,
            _ if at == MSIX_CONTROL + 1 => 0xc0, // enable, mask all
            _ => 0,
        }
    }

    fn bar4(&self, at: usize) -> u8 {
        match at {
            _ if at < TABLE_BYTES => self.table[at],
            PBA_OFFSET => self.pending.into(),
            _ => 0,
        }
    }

    /// Tells the host, or remembers it until it can be told.
    fn interrupt(&mut self) {
        self.pending = true;
        let Some(event) = &mut self.vector else {
            return;
        };
        // A host that lets the counter run full must not stop the card.
        let mut room = [PollFd::new(event.as_fd(), PollFlags::POLLOUT)];
        if poll(&mut room, PollTimeout::ZERO) == Ok(1) {
            self.pending = event.write_all(&1u64.to_ne_bytes()).is_err();
        }
    }
}

/// The card's half of the function.
pub(crate) struct Function {
    state: Mutex<State>,
}

impl Function {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::new()),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// DMA from the card; false when the host does not let it.
    pub fn dma_write(&self, iova: u64, data: &[u8]) -> bool {
        let state = self.state();
        state.command() & BUS_MASTER != 0 && state.dma.write(iova, data)
    }

    /// The card's interrupt.
    pub fn interrupt(&self) {
        self.state().interrupt();
    }
}

/// The host's half of the function: registers, memory, interrupts. Clones lead to the same card.
#[derive(Clone)]
pub struct HostBus {
    function: Arc<Function>,
    submit: Arc<Submit>,
}

impl HostBus {
    pub(crate) fn new(
        function: Arc<Function>,
        submit: impl Fn(Request) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            function,
            submit: Arc::new(submit),
        }
    }

    /// Bytes of a region, 0 when there is none.
    pub fn region_size(&self, region: u32) -> u64 {
        match region {
            BAR0 | BAR4 => BAR_BYTES.into(),
            CONFIG => CONFIG_BYTES as u64,
            _ => 0,
        }
    }

    /// Reads from a region. BAR 0 answers 32-bit accesses, and 64-bit ones as two.
    pub fn read(&self, region: u32, offset: u64, data: &mut [u8]) {
        data.fill(0xff);
        let Some(at) = self.position(region, offset, data.len()) else {
            return;
        };
        let state = self.function.state();
        if region != CONFIG && state.command() & MEMORY_SPACE == 0 {
            return;
        }
        match region {
            CONFIG => data.copy_from_slice(&state.config[at..at + data.len()]),
            BAR4 => (at..)
                .zip(data)
                .for_each(|(at, byte)| *byte = state.bar4(at)),
            _ => {
                drop(state);
                if is_register(at, data.len()) {
                    for (address, word) in (at..).step_by(4).zip(data.chunks_mut(4)) {
                        word.copy_from_slice(&self.read32(address as u16).to_le_bytes());
                    }
                }
            }
        }
    }

    /// Writes to a region.
    pub fn write(&self, region: u32, offset: u64, data: &[u8]) {
        let Some(at) = self.position(region, offset, data.len()) else {
            return;
        };
        let mut state = self.function.state();
        if region != CONFIG && state.command() & MEMORY_SPACE == 0 {
            return;
        }
        match region {
            CONFIG => {
                for (at, byte) in (at..).zip(data) {
                    let mask = State::writable(at);
                    state.config[at] = state.config[at] & !mask | byte & mask;
                }
            }
            BAR4 => {
                for (at, byte) in (at..).zip(data).filter(|(at, _)| *at < TABLE_BYTES) {
                    state.table[at] = *byte;
                }
            }
            _ => {
                drop(state);
                if is_register(at, data.len()) {
                    for (address, word) in (at..).step_by(4).zip(data.chunks(4)) {
                        let value = word.try_into().map_or(0, u32::from_le_bytes);
                        self.write32(address as u16, value);
                    }
                }
            }
        }
    }

    fn position(&self, region: u32, offset: u64, len: usize) -> Option<usize> {
        let end = offset.checked_add(len as u64)?;
        (len > 0 && end <= self.region_size(region)).then_some(offset as usize)
    }

    fn ask(&self, request: impl FnOnce(Sender<u32>) -> Request) -> u32 {
        let (reply, answer) = bounded(1);
        match (self.submit)(request(reply)) {
            true => answer.recv().unwrap_or(u32::MAX),
            false => u32::MAX,
        }
    }

    /// Reads a register; all ones when the card is shut down.
    pub fn read32(&self, address: u16) -> u32 {
        self.ask(|reply| Request::Read { address, reply })
    }

    /// Writes a register and waits until the card has it.
    pub fn write32(&self, address: u16, value: u32) {
        self.ask(|reply| Request::Write {
            address,
            value,
            reply,
        });
    }

    /// Lets the card write to memory and answer in its BARs (command register).
    pub fn enable(&self) {
        let command = self.function.state().command() | MEMORY_SPACE | BUS_MASTER;
        self.write(CONFIG, COMMAND as u64, &command.to_le_bytes());
    }

    /// Shows `size` bytes of a file at `offset` to the card at bus address `iova`.
    pub fn dma_map(&self, iova: u64, size: u64, fd: OwnedFd, offset: u64) -> io::Result<()> {
        self.dma_map_as(iova, size, fd, offset, true)
    }

    pub(crate) fn dma_map_as(
        &self,
        iova: u64,
        size: u64,
        fd: OwnedFd,
        offset: u64,
        write: bool,
    ) -> io::Result<()> {
        self.function.state().dma.map(iova, size, fd, offset, write)
    }

    /// Takes back all memory in a range. When it returns the card has lost it.
    pub fn dma_unmap(&self, iova: u64, size: u64) -> io::Result<()> {
        self.function.state().dma.unmap(iova, size)
    }

    pub(crate) fn dma_unmap_all(&self) {
        self.function.state().dma.clear();
    }

    /// Joins the MSI-X vector to an eventfd, or to nothing.
    pub fn set_interrupt(&self, event: Option<OwnedFd>) -> io::Result<()> {
        if let Some(event) = &event {
            let link = std::fs::read_link(format!("/proc/self/fd/{}", event.as_raw_fd()))?;
            if !link.to_string_lossy().contains("[eventfd]") {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "it is no eventfd",
                ));
            }
        }
        let mut state = self.function.state();
        state.vector = event.map(File::from);
        if state.pending {
            state.interrupt();
        }
        Ok(())
    }

    pub(crate) fn trigger_interrupt(&self) {
        self.function.interrupt();
    }

    /// Resets the function: the core, the command register and the MSI-X table. Memory stays
    /// mapped and the interrupt joined.
    pub fn reset(&self) {
        {
            let mut state = self.function.state();
            let fresh = State::new();
            state.config = fresh.config;
            state.table = fresh.table;
            state.pending = false;
        }
        self.ask(|reply| Request::Reset { reply });
    }
}

/// BAR 0 takes aligned 32-bit accesses, and 64-bit ones as two.
fn is_register(at: usize, len: usize) -> bool {
    at.is_multiple_of(4) && (len == 4 || len == 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A bus with a card behind it that answers the address and counts the accesses.
    fn bus() -> (HostBus, Arc<AtomicU32>) {
        let count = Arc::new(AtomicU32::new(0));
        let seen = count.clone();
        let bus = HostBus::new(Function::new(), move |request| {
            seen.fetch_add(1, Ordering::Relaxed);
            match request {
                Request::Read { address, reply } => reply.send(address.into()).is_ok(),
                Request::Write { reply, .. } | Request::Reset { reply } => reply.send(0).is_ok(),
            }
        });
        (bus, count)
    }

    fn read<const N: usize>(bus: &HostBus, region: u32, offset: u64) -> [u8; N] {
        let mut data = [0; N];
        bus.read(region, offset, &mut data);
        data
    }

    #[test]
    fn configuration_space_names_an_ethernet_controller_with_msix() {
        let (bus, _) = bus();
        assert_eq!(read(&bus, CONFIG, 0), [0x34, 0x12, 0x57, 0x4d]);
        assert_eq!(read(&bus, CONFIG, 9), [0, 0, 2]);
        assert_eq!(read::<1>(&bus, CONFIG, 0x0e), [0], "header type 0");
        let [capabilities] = read(&bus, CONFIG, 0x34);
        let msix: [u8; 12] = read(&bus, CONFIG, capabilities.into());
        assert_eq!(msix, [0x11, 0, 0, 0, 4, 0, 0, 0, 4, 8, 0, 0]);
    }

    #[test]
    fn bars_show_their_size_and_read_only_bits_stay() {
        let (bus, _) = bus();
        bus.write(CONFIG, 0, &[0xff; 256]);
        assert_eq!(read(&bus, CONFIG, 0), [0x34, 0x12, 0x57, 0x4d]);
        assert_eq!(read(&bus, CONFIG, 0x10), 0xffff_f000u32.to_le_bytes());
        assert_eq!(read(&bus, CONFIG, 0x14), [0; 4], "no BAR 1");
        assert_eq!(read(&bus, CONFIG, 0x20), 0xffff_f000u32.to_le_bytes());
        assert_eq!(read(&bus, CONFIG, 4), COMMAND_MASK.to_le_bytes());
        assert_eq!(read(&bus, CONFIG, 0x42), [0, 0xc0]);
        bus.reset();
        assert_eq!(read(&bus, CONFIG, 4), [0, 0]);
    }

    #[test]
    fn registers_need_memory_space_and_the_right_size() {
        let (bus, count) = bus();
        assert_eq!(read(&bus, BAR0, 8), [0xff; 4]);
        assert_eq!(read(&bus, BAR4, 8), [0xff; 4]);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        bus.enable();
        assert_eq!(read(&bus, BAR0, 8), [8, 0, 0, 0]);
        assert_eq!(read(&bus, BAR0, 0xff8), [0xf8, 0xf, 0, 0, 0xfc, 0xf, 0, 0]);
        assert_eq!(count.load(Ordering::Relaxed), 3);
        assert_eq!(read(&bus, BAR0, 9), [0xff; 4], "not aligned");
        assert_eq!(read(&bus, BAR0, 8), [0xff; 2], "too short");
        assert_eq!(read(&bus, BAR0, 8), [0xff; 16], "too long");
        assert_eq!(read(&bus, BAR0, 4096), [0xff; 4], "behind the end");
        assert_eq!(read(&bus, BAR0, u64::MAX), [0xff; 4], "wraps");
        assert_eq!(read(&bus, 99, 0), [0xff; 4], "no such region");
        bus.write(BAR0, 2, &[0; 4]);
        bus.write(BAR0, 4096, &[0; 4]);
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn the_msix_table_is_memory_and_pending_bits_are_not() {
        let (bus, _) = bus();
        bus.enable();
        assert_eq!(read(&bus, BAR4, 12), [1, 0, 0, 0], "masked at first");
        bus.write(BAR4, 0, &[7; 32]);
        assert_eq!(read(&bus, BAR4, 8), [7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0]);
        bus.write(BAR4, PBA_OFFSET as u64, &[1; 8]);
        assert_eq!(read(&bus, BAR4, PBA_OFFSET as u64), [0; 8]);
    }

    #[test]
    fn an_interrupt_waits_for_its_eventfd() {
        use nix::sys::eventfd::{EfdFlags, EventFd};
        let (bus, _) = bus();
        bus.enable();
        bus.function.interrupt();
        assert_eq!(read(&bus, BAR4, PBA_OFFSET as u64), [1]);
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("eventfd");
        let theirs = event.as_fd().try_clone_to_owned().expect("clone");
        bus.set_interrupt(Some(theirs)).expect("join");
        assert_eq!(event.read().expect("told"), 1);
        assert_eq!(read(&bus, BAR4, PBA_OFFSET as u64), [0]);
        event.write(u64::MAX - 1).expect("fill");
        bus.function.interrupt(); // does not block
        let file = tempfile::tempfile().expect("file");
        assert!(bus.set_interrupt(Some(file.into())).is_err());
    }

    #[test]
    fn dma_needs_bus_master() {
        let (bus, _) = bus();
        let file = tempfile::tempfile().expect("file");
        file.set_len(4096).expect("length");
        bus.dma_map(0, 4096, file.into(), 0).expect("map");
        assert!(!bus.function.dma_write(0, &[1]));
        bus.enable();
        assert!(bus.function.dma_write(0, &[1]));
    }
}
