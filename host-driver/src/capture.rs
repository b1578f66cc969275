// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture: the card fills a ring of blocks in host memory, one thread brings them to disk.
//!
//! The thread takes a block when its header has the number that is due and its checksum holds;
//! interrupts only wake it. The block goes to the file straight from the ring, and its place
//! is given back to the card when the write is done, so the ring is all the buffer there is:
//! a slow disk fills it, and then the card counts lost records. Frames pass in any case.

use crate::card::Shared;
use crate::dma::DmaMemory;
use crate::error::{Error, Result};
use crate::file::{BlockFile, RingMemory};
use crate::regs;
use midwire_trace::block::{self, BlockHeader, Counters};
use midwire_trace::{Nanos, record::UNIT};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::EventFd;

/// Bus address of the ring: above everything that an IOMMU keeps for itself on x86 and Arm,
/// and a multiple of every block size.
const RING_IOVA: u64 = 1 << 32;

/// Longest time between two looks at the ring when interrupts are on; one that is lost costs
/// no more than this.
const FALLBACK: Duration = Duration::from_millis(20);
/// Longest time between two looks when the ring is polled.
const POLL: Duration = Duration::from_micros(500);
/// How often a quiet ring makes the thread ask the card whether all is well.
const CHECKUP: Duration = Duration::from_millis(100);

/// What tells the host that there may be a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// MSI-X, and a look every 20 ms in case one is lost.
    #[default]
    Interrupts,
    /// A look every 0.5 ms or more often.
    Polling,
}

/// Settings of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureConfig {
    /// The file; one that is there is replaced.
    pub path: PathBuf,
    /// Bytes of a block, a power of two from 4 KiB to 4 MiB.
    pub block_bytes: u32,
    /// Blocks in the ring, a power of two from 2 to 65536.
    pub ring_blocks: u32,
    /// Bytes of each frame that are kept, a multiple of 32 up to 10240.
    pub snapshot_bytes: u32,
    /// A block that holds a record is closed after this time at the latest, 1 µs to 1 s.
    pub flush: Nanos,
    /// What wakes the host.
    pub wake: Wake,
    /// Take huge pages for the ring if there are any.
    pub huge_pages: bool,
    /// Write by io_uring where the kernel lets us.
    pub io_uring: bool,
    /// How long [`Capture::stop`] waits for the next block until it gives the final one up.
    pub final_wait: Duration,
}

impl CaptureConfig {
    /// The usual settings, into `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            block_bytes: 64 << 10,
            ring_blocks: 256,
            snapshot_bytes: 128,
            flush: Nanos::from_millis(20),
            wake: Wake::default(),
            huge_pages: false,
            io_uring: true,
            final_wait: Duration::from_secs(5),
        }
    }

    fn check(&self) -> Result<()> {
        let wrong = |setting, reason: String| Err(Error::Setting { setting, reason });
        let blocks = block::MIN_BLOCK_BYTES..=block::MAX_BLOCK_BYTES;
        if !self.block_bytes.is_power_of_two() || !blocks.contains(&self.block_bytes) {
            return wrong(
                "block_bytes",
                format!(
                    "{} is no power of two from 4096 to 4194304",
                    self.block_bytes
                ),
            );
        }
        if !self.ring_blocks.is_power_of_two() || !(2..=1 << 16).contains(&self.ring_blocks) {
            return wrong(
                "ring_blocks",
                format!("{} is no power of two from 2 to 65536", self.ring_blocks),
            );
        }
        let snapshot = self.snapshot_bytes;
        if !snapshot.is_multiple_of(UNIT as u32) || snapshot > block::MAX_SNAPSHOT_BYTES {
            return wrong(
                "snapshot_bytes",
                format!("{snapshot} is no multiple of 32 up to 10240"),
            );
        }
        let record = (block::HEADER_BYTES + UNIT) as u32 + snapshot;
        if record > self.block_bytes {
            return wrong(
                "snapshot_bytes",
                format!(
                    "a record with {snapshot} bytes does not fit a block of {} bytes",
                    self.block_bytes
                ),
            );
        }
        if !(1_000..=1_000_000_000).contains(&self.flush.0) {
            return wrong("flush", format!("{} is not in 1 us to 1 s", self.flush));
        }
        Ok(())
    }
}

/// How far a capture is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureProgress {
    /// Blocks in the file.
    pub blocks: u64,
    /// Records in blocks that the card has written.
    pub records: u64,
    /// Bytes in the file.
    pub bytes: u64,
    /// Records that the card has lost.
    pub lost: u64,
    /// The capture has ended, by itself or because of an error; [`Capture::stop`] tells.
    pub ended: bool,
}

/// What a capture became.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureSummary {
    /// Blocks in the file.
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Blocks that arrived with a wrong header or checksum, in the file as they came, and
    /// blocks whose records do not follow those before.
    pub damaged: u64,
    /// Totals of the final block.
    pub counters: Counters,
    /// The final block came, its sums hold, and neither a record nor a frame was lost.
    pub complete: bool,
}

#[derive(Default)]
struct Progress {
    blocks: AtomicU64,
    records: AtomicU64,
    lost: AtomicU64,
    ended: AtomicBool,
}

/// A running capture. Dropping it ends it, and leaves a file that can be read.
pub struct Capture {
    shared: Arc<Shared>,
    progress: Arc<Progress>,
    block_bytes: u64,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<Result<CaptureSummary>>>,
}

/// How the owner of a capture tells its thread to end.
struct Stop {
    asked: AtomicBool,
    event: EventFd,
}

impl Capture {
    pub(crate) fn start(shared: Arc<Shared>, config: CaptureConfig) -> Result<Self> {
        config.check()?;
        let lease = Lease::take(shared.clone())?;
        let consumer = Consumer::set_up(lease, &config)?;
        let progress = consumer.progress.clone();
        let stop = consumer.stop.clone();
        let thread = std::thread::Builder::new()
            .name("midwire-capture".into())
            .spawn(move || consumer.run())
            .map_err(Error::io("start the capture's thread"))?;
        Ok(Self {
            shared,
            progress,
            block_bytes: config.block_bytes.into(),
            stop,
            thread: Some(thread),
        })
    }

    /// How far it is. Takes no lock.
    pub fn progress(&self) -> CaptureProgress {
        let blocks = self.progress.blocks.load(Ordering::Relaxed);
        CaptureProgress {
            blocks,
            records: self.progress.records.load(Ordering::Relaxed),
            bytes: blocks * self.block_bytes,
            lost: self.progress.lost.load(Ordering::Relaxed),
            ended: self.progress.ended.load(Ordering::Acquire),
        }
    }

    /// Ends the capture: the card drains what it has and writes its final block.
    pub fn stop(mut self) -> Result<CaptureSummary> {
        self.end()
    }

    fn end(&mut self) -> Result<CaptureSummary> {
        self.stop.asked.store(true, Ordering::Release);
        // Should the event fail, the thread finds `asked` at its next look.
        let _ = self.stop.event.write(1);
        let Some(thread) = self.thread.take() else {
            return Err(Error::Capturing);
        };
        thread.join().unwrap_or_else(|_| {
            let _ = self.shared.set_control(regs::control::CAPTURE, false);
            Err(Error::CutOff {
                blocks: self.progress.blocks.load(Ordering::Relaxed),
                reason: "the capture's thread failed".into(),
            })
        })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.end();
        }
    }
}

/// The right to the card's one capture.
struct Lease(Arc<Shared>);

impl Lease {
    fn take(shared: Arc<Shared>) -> Result<Self> {
        if shared.capturing.swap(true, Ordering::AcqRel) {
            return Err(Error::Capturing);
        }
        Ok(Self(shared))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.capturing.store(false, Ordering::Release);
    }
}

/// The thread that takes blocks from the ring. Fields are dropped in order: the file waits for
/// its writes before the memory goes, and the lease ends last.
struct Consumer {
    file: BlockFile,
    ring: RingMemory,
    path: PathBuf,
    irq: Option<EventFd>,
    stop: Arc<Stop>,
    progress: Arc<Progress>,
    final_wait: Duration,
    /// Number of the block that is due.
    next: u64,
    /// Blocks that the card knows to be taken.
    returned: u64,
    /// Sequence number that its first record must have; unknown behind a damaged block.
    next_seq: Option<u64>,
    damaged: u64,
    /// Header of the final block.
    last: Option<BlockHeader>,
    _memory: DmaMemory,
    lease: Lease,
}

/// Why a capture ended early.
enum Trouble {
    Disk(io::Error),
    Card(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Card(error.to_string())
    }
}

impl Consumer {
    fn set_up(lease: Lease, config: &CaptureConfig) -> Result<Self> {
        let shared = lease.0.clone();
        let len = config.block_bytes as usize * config.ring_blocks as usize;
        let blocks_log2 = config.ring_blocks.trailing_zeros();
        let memory = DmaMemory::new(shared.backend.clone(), RING_IOVA, len, config.huge_pages)?;
        // SAFETY: the memory has `len` bytes; the consumer drops it after all that uses it.
        let ring =
            unsafe { RingMemory::new(memory.as_ptr(), config.block_bytes as usize, blocks_log2) };
        let file = BlockFile::create(&config.path, ring, config.io_uring).map_err(Error::io(
            format!("create the capture file {}", config.path.display()),
        ))?;
        let event = || EventFd::new(libc::EFD_NONBLOCK).map_err(Error::io("make an event"));
        let stop = Arc::new(Stop {
            asked: AtomicBool::new(false),
            event: event()?,
        });
        let irq = match config.wake {
            Wake::Interrupts => {
                let irq = event()?;
                let vectors = std::slice::from_ref(&irq);
                shared.backend.set_msix(vectors).map_err(Error::io(format!(
                    "get interrupts of {}",
                    shared.backend.describe()
                )))?;
                Some(irq)
            }
            Wake::Polling => None,
        };
        let registers = &shared.registers;
        let what = "finish the capture before this one";
        registers.wait_idle(regs::status::CAPTURE_ACTIVE, what, config.final_wait)?;
        for (register, value) in [
            (regs::RING_BASE_LO, memory.iova() as u32),
            (regs::RING_BASE_HI, (memory.iova() >> 32) as u32),
            (regs::RING_BLOCKS_LOG2, blocks_log2),
            (regs::BLOCK_LOG2, config.block_bytes.trailing_zeros()),
            (regs::RING_CONSUMED, 0),
            (regs::SNAPSHOT_BYTES, config.snapshot_bytes),
            (regs::FLUSH_NS, config.flush.0 as u32),
            (regs::IRQ_ENABLE, irq.is_some().into()),
        ] {
            registers.write(register, value)?;
        }
        shared.set_control(regs::control::CAPTURE, true)?;
        Ok(Self {
            file,
            ring,
            path: config.path.clone(),
            irq,
            stop,
            progress: Arc::default(),
            final_wait: config.final_wait,
            next: 0,
            returned: 0,
            next_seq: Some(0),
            damaged: 0,
            last: None,
            _memory: memory,
            lease,
        })
    }

    fn run(mut self) -> Result<CaptureSummary> {
        let outcome = self.pump();
        let result = self.close(outcome);
        self.progress.ended.store(true, Ordering::Release);
        result
    }

    /// Takes blocks until the final one is in the file.
    fn pump(&mut self) -> std::result::Result<(), Trouble> {
        let mut quiet_since = Instant::now();
        let mut checked = quiet_since;
        let mut stopping = false;
        let mut pause = Duration::ZERO;
        loop {
            if !stopping && self.stop.asked.load(Ordering::Acquire) {
                stopping = true;
                quiet_since = Instant::now();
                self.shared().set_control(regs::control::CAPTURE, false)?;
            }
            if let Some(irq) = &self.irq {
                // Before the look at the ring, so that none is missed after it.
                let _ = irq.read();
            }
            let before = (self.next, self.file.written());
            while self.last.is_none() && self.take_block(false)? {
                if self.file.written() - self.returned >= self.ring.blocks() / 8 {
                    self.give_back()?;
                }
            }
            if self.last.is_some() {
                self.file.finish().map_err(Trouble::Disk)?;
                self.give_back()?;
                return Ok(());
            }
            self.file.reap().map_err(Trouble::Disk)?;
            self.give_back()?;
            let now = Instant::now();
            if (self.next, self.file.written()) != before {
                quiet_since = now;
                pause = Duration::ZERO;
                continue;
            }
            if now - checked >= CHECKUP && now - quiet_since >= CHECKUP {
                checked = now;
                if self.check_up()? {
                    continue;
                }
            }
            if stopping && now - quiet_since >= self.final_wait {
                return Err(Trouble::Card(format!(
                    "the card sent no final block within {} ms",
                    self.final_wait.as_millis()
                )));
            }
            pause = match self.irq {
                Some(_) => FALLBACK,
                None => (pause * 2).clamp(Duration::from_micros(20), POLL),
            };
            self.wait(pause);
        }
    }

    fn shared(&self) -> &Shared {
        &self.lease.0
    }

    /// Takes the block that is due if it is whole, or in any state when `as_it_is`.
    fn take_block(&mut self, as_it_is: bool) -> std::result::Result<bool, Trouble> {
        // All blocks of the ring may be waiting for the disk.
        if self.next - self.file.written() >= self.ring.blocks() {
            self.file.reap().map_err(Trouble::Disk)?;
            if self.next - self.file.written() >= self.ring.blocks() {
                return Ok(false);
            }
        }
        let header = self.whole_header();
        match &header {
            Some(header) => self.account(header),
            None if as_it_is => {
                self.damaged += 1;
                self.next_seq = None;
            }
            None => return Ok(false),
        }
        self.file.submit().map_err(Trouble::Disk)?;
        self.next += 1;
        let written = self.file.written();
        self.progress.blocks.store(written, Ordering::Relaxed);
        Ok(true)
    }

    /// The header of the block that is due, when the block is whole. What lies behind its used
    /// bytes is cleared.
    fn whole_header(&self) -> Option<BlockHeader> {
        let block = self.ring.block(self.next);
        let size = self.ring.block_bytes();
        let mut bytes = [0u64; block::HEADER_BYTES / 8];
        for (n, word) in bytes.iter_mut().enumerate() {
            // SAFETY: the header lies at the start of the block, which is aligned to 4096.
            // Volatile, since the card may be writing it.
            *word = unsafe { block.cast::<u64>().add(n).read_volatile() };
        }
        let mut head = [0; block::HEADER_BYTES];
        for (to, word) in head.chunks_exact_mut(8).zip(bytes) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        let header = BlockHeader::peek(&head).ok()?;
        if header.number != self.next || header.block_bytes as usize != size {
            return None;
        }
        // What was written before the header must be seen after it.
        std::sync::atomic::fence(Ordering::Acquire);
        let used = header.used_bytes as usize;
        // SAFETY: `peek` holds `used` to the block. The card writes the header last and leaves
        // the block alone from then on until it is given back.
        let content = unsafe { std::slice::from_raw_parts(block, used) };
        header.verify_crc(content).ok()?;
        // SAFETY: as above, and no reference to these bytes is alive.
        unsafe { block.add(used).write_bytes(0, size - used) };
        Some(header)
    }

    fn account(&mut self, header: &BlockHeader) {
        if self.next_seq.is_some_and(|seq| seq != header.first_seq) {
            self.damaged += 1;
        }
        self.next_seq = header.first_seq.checked_add(header.records.into());
        let counters = &header.counters;
        let lost = [counters.lost_ingress, counters.lost_egress];
        let lost = lost.as_flattened().iter().map(|&n| u64::from(n)).sum();
        let records = u64::from(header.records);
        self.progress.records.fetch_add(records, Ordering::Relaxed);
        self.progress.lost.store(lost, Ordering::Relaxed);
        if header.last {
            self.last = Some(*header);
        }
    }

    /// Tells the card which blocks are in the file.
    fn give_back(&mut self) -> std::result::Result<(), Trouble> {
        let written = self.file.written();
        if written != self.returned {
            self.progress.blocks.store(written, Ordering::Relaxed);
            let registers = &self.shared().registers;
            registers.write(regs::RING_CONSUMED, written as u32)?;
            self.returned = written;
        }
        Ok(())
    }

    /// Looks after a ring that is quiet: the card may have stopped, or have written a block
    /// that is not whole. True when a block was taken.
    fn check_up(&mut self) -> std::result::Result<bool, Trouble> {
        let registers = &self.shared().registers;
        let status = registers.read(regs::STATUS)?;
        if status == u32::MAX {
            // What the bus answers for a device that is gone.
            return Err(Trouble::Card("the card does not answer any more".into()));
        }
        if status & regs::status::DMA_ERROR != 0 {
            return Err(Trouble::Card(
                "the card's DMA was refused by the host".into(),
            ));
        }
        let produced = registers.read(regs::RING_PRODUCED)?;
        let ahead = produced.wrapping_sub(self.next as u32);
        if ahead == 0 || u64::from(ahead) > self.ring.blocks() {
            return Ok(false);
        }
        // It says that it has written the block, so nothing better will come.
        self.take_block(true)
    }

    /// Sleeps until something may have happened, `limit` at the longest.
    fn wait(&self, limit: Duration) {
        let fds = [
            Some(self.stop.event.as_raw_fd()),
            self.irq.as_ref().map(AsRawFd::as_raw_fd),
            self.file.completion_fd(),
        ];
        let mut polls = fds.map(|fd| libc::pollfd {
            fd: fd.unwrap_or(-1), // negative ones are passed over
            events: libc::POLLIN,
            revents: 0,
        });
        if self.stop.asked.load(Ordering::Relaxed) {
            polls[0].fd = -1; // it stays readable
        }
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: `polls` and `limit` live through the call. An error is a short sleep.
        unsafe {
            libc::ppoll(
                polls.as_mut_ptr(),
                polls.len() as libc::nfds_t,
                &limit,
                std::ptr::null(),
            );
        }
    }

    /// Stops the hardware, trims the file and says how it went.
    fn close(&mut self, outcome: std::result::Result<(), Trouble>) -> Result<CaptureSummary> {
        let shared = self.lease.0.clone();
        if outcome.is_err() {
            let _ = shared.set_control(regs::control::CAPTURE, false);
            if matches!(outcome, Err(Trouble::Disk(_))) {
                self.discard();
            } else {
                let _ = self.file.finish();
            }
        } else {
            shared.set_control(regs::control::CAPTURE, false)?;
        }
        let _ = shared.registers.write(regs::IRQ_ENABLE, 0);
        if self.irq.is_some() {
            let _ = shared.backend.set_msix(&[]);
        }
        let trimmed = self.file.trim();
        let blocks = self.file.written();
        self.progress.blocks.store(blocks, Ordering::Relaxed);
        let disk = |source| Error::Disk {
            path: self.path.clone(),
            blocks,
            source,
        };
        match (outcome, self.last) {
            (Ok(()), Some(last)) => {
                trimmed.map_err(disk)?;
                Ok(CaptureSummary {
                    blocks,
                    records: self.progress.records.load(Ordering::Relaxed),
                    bytes: blocks * self.ring.block_bytes() as u64,
                    damaged: self.damaged,
                    counters: last.counters,
                    complete: self.damaged == 0 && nothing_lost(&last.counters),
                })
            }
            (Err(Trouble::Disk(source)), _) => Err(disk(source)),
            (Err(Trouble::Card(reason)), _) => Err(Error::CutOff { blocks, reason }),
            (Ok(()), None) => Err(Error::CutOff {
                blocks,
                reason: "there is no final block".into(),
            }),
        }
    }

    /// Takes blocks without writing them, so that the card can finish and be used again.
    fn discard(&mut self) {
        self.file.settle();
        let deadline = Instant::now() + self.final_wait;
        loop {
            let consumed = self.next as u32;
            let told = self.shared().registers.write(regs::RING_CONSUMED, consumed);
            if told.is_err() || self.last.is_some() || Instant::now() > deadline {
                return;
            }
            match self.whole_header() {
                Some(header) => {
                    self.last = header.last.then_some(header);
                    self.next += 1;
                }
                None => self.wait(POLL),
            }
        }
    }
}

/// Whether the sums of a final block hold (docs/formats.md) and nothing is missing in them.
fn nothing_lost(counters: &Counters) -> bool {
    (0..2).all(|n| {
        let lost = [
            counters.rx_lost,
            counters.lost_ingress,
            counters.lost_egress,
        ];
        let sum = |n: u64, more: &[u32]| {
            more.iter()
                .copied()
                .fold(n, |n, m| n.wrapping_add(m.into()))
        };
        let came = sum(
            counters.rx_frames[n],
            &[counters.copied[n], counters.injected[n]],
        );
        let went = sum(counters.tx_frames[n], &[counters.dropped[n]]);
        lost.iter().all(|lost| lost[n] == 0) && came == went
    })
}
