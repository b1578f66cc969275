// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many records a second go from the ring to a file: `cargo bench -p midwire-driver`.
//!
//! The card is a model whose ring is full from the start and is full again as soon as blocks
//! are given back; what it does for that is a checksum over a header a block. The file is in
//! memory (/dev/shm), then on the disk of the temporary directory.

#[path = "../tests/model/mod.rs"]
mod model;

use memmap2::MmapRaw;
use midwire_driver::backend::Backend;
use midwire_driver::{CaptureConfig, Card, EventFd, Wake, regs};
use midwire_trace::block::HEADER_BYTES;
use midwire_trace::{BlockBuilder, Record};
use model::{Faults, Model};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Where the checksum stands in the header: it is the last word.
const CRC: usize = HEADER_BYTES - 4;
const BLOCK_BYTES: u32 = 64 << 10;
const RING_BLOCKS: u32 = 256;
const BLOCKS: u64 = 16 << 10; // 1 GiB

/// A model card whose ring is always full.
struct Full {
    model: Model,
    /// A block full of records, and the checksum of its units.
    block: Vec<u8>,
    units_crc: u32,
    records: u32,
    stamped: Mutex<u64>,
}

impl Full {
    fn new() -> Self {
        let mut builder = BlockBuilder::new(BLOCK_BYTES, 0).expect("sizes");
        while builder.push(Record::default(), None) {}
        let records = builder.records();
        let block = builder.finish(false, Default::default());
        Self {
            model: Model::new(Faults::default()),
            units_crc: crc32c::crc32c(&block[HEADER_BYTES..]),
            block,
            records,
            stamped: Mutex::new(0),
        }
    }

    /// Writes headers up to block `end`.
    fn stamp(&self, end: u64) {
        let ring = self.model.state().mapped[0].1 as *mut u8;
        let mut stamped = self.stamped.lock().expect("lock");
        while *stamped < end.min(BLOCKS) {
            let number = *stamped;
            let mut header = [0; HEADER_BYTES];
            header.copy_from_slice(&self.block[..HEADER_BYTES]);
            header[6] = u8::from(number + 1 == BLOCKS);
            header[8..16].copy_from_slice(&number.to_le_bytes());
            let seq = number * u64::from(self.records);
            header[24..32].copy_from_slice(&seq.to_le_bytes());
            let crc = crc32c::crc32c_append(self.units_crc, &header[..CRC]);
            header[CRC..].copy_from_slice(&crc.to_le_bytes());
            let at = (number % u64::from(RING_BLOCKS)) as usize * BLOCK_BYTES as usize;
            // SAFETY: the driver keeps the ring mapped while the capture runs.
            unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), ring.add(at), HEADER_BYTES) };
            *stamped += 1;
        }
    }
}

impl Backend for Full {
    fn describe(&self) -> String {
        self.model.describe()
    }

    fn region_size(&self, region: u32) -> u64 {
        self.model.region_size(region)
    }

    fn read(&self, region: u32, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.model.read(region, offset, buf)
    }

    fn write(&self, region: u32, offset: u64, buf: &[u8]) -> io::Result<()> {
        let value = u32::from_le_bytes(buf.try_into().expect("word"));
        match offset as u32 {
            regs::CONTROL if value & regs::control::CAPTURE != 0 => {
                let ring = self.model.state().mapped[0].1 as *mut u8;
                for n in 0..RING_BLOCKS as usize {
                    // SAFETY: as in `stamp`; the ring has that many blocks.
                    unsafe {
                        let to = ring.add(n * BLOCK_BYTES as usize);
                        std::ptr::copy_nonoverlapping(self.block.as_ptr(), to, self.block.len());
                    }
                }
                *self.stamped.lock().expect("lock") = 0;
                self.stamp(RING_BLOCKS.into());
                Ok(())
            }
            regs::CONTROL => Ok(()),
            regs::RING_CONSUMED if value != 0 => {
                self.stamp(u64::from(value) + u64::from(RING_BLOCKS));
                Ok(())
            }
            _ => self.model.write(region, offset, buf),
        }
    }

    fn map_region(&self, region: u32) -> io::Result<Option<MmapRaw>> {
        self.model.map_region(region)
    }

    unsafe fn dma_map(
        &self,
        iova: u64,
        va: *mut u8,
        len: usize,
        fd: BorrowedFd<'_>,
        offset: u64,
    ) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.model.dma_map(iova, va, len, fd, offset) }
    }

    fn dma_unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        self.model.dma_unmap(iova, len)
    }

    fn set_msix(&self, events: &[EventFd]) -> io::Result<()> {
        self.model.set_msix(events)
    }

    fn reset(&self) -> io::Result<()> {
        self.model.reset()
    }
}

/// Seconds of CPU time, in user mode and in the kernel, of this process.
fn cpu_time() -> f64 {
    // SAFETY: rusage is plain data, for which all zeros is a valid value, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn main() {
    let card = Card::open(Box::new(Full::new())).expect("open");
    for (name, dir) in [
        ("memory", "/dev/shm".into()),
        ("disk", std::env::temp_dir()),
    ] {
        let path = dir.join(format!("midwire-bench-{}.mwc", std::process::id()));
        let config = CaptureConfig {
            block_bytes: BLOCK_BYTES,
            ring_blocks: RING_BLOCKS,
            snapshot_bytes: 0,
            wake: Wake::Polling,
            ..CaptureConfig::new(&path)
        };
        let (start, cpu) = (Instant::now(), cpu_time());
        let capture = card.start_capture(config).expect("start");
        while !capture.progress().ended {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (time, cpu) = (start.elapsed().as_secs_f64(), cpu_time() - cpu);
        let summary = capture.stop();
        std::fs::remove_file(&path).expect("remove");
        let summary = summary.expect("stop");
        assert_eq!((summary.blocks, summary.damaged), (BLOCKS, 0));
        println!(
            "ring_to_disk {name}: {:.1} M records/s, {:.2} GB/s, {:.2} ns of CPU a record",
            summary.records as f64 / time / 1e6,
            summary.bytes as f64 / time / 1e9,
            cpu * 1e9 / summary.records as f64,
        );
    }
}
