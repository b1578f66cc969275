// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests share: frames, and a host that takes blocks.
#![allow(dead_code)] // each test binary uses a part

use memmap2::{MmapOptions, MmapRaw};
use midwire_trace::BlockHeader;
use midwire_virtual_card::{Config, HostBus, PortConfig, Time, VirtualCard, Width};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub fn card(config: Config) -> VirtualCard {
    let card = VirtualCard::spawn(config).expect("a card");
    card.host_bus().enable();
    card
}

pub fn virtual_lines(width: Width, skip_idle: bool) -> VirtualCard {
    let ports = [PortConfig::Line, PortConfig::Line];
    card(Config {
        time: Time::Virtual,
        width,
        ports,
        skip_idle,
        ..Config::default()
    })
}

/// A frame that differs from all others.
pub fn frame(n: u8, len: usize) -> Vec<u8> {
    let mut data: Vec<u8> = (0..len)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add(n))
        .collect();
    data[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, n, 0x88, 0xb5]);
    data
}

/// Shared memory, zeroed.
pub fn memory(len: usize) -> (File, MmapRaw) {
    let file = tempfile::tempfile().expect("file");
    file.set_len(len as u64).expect("length");
    let map = MmapOptions::new().len(len).map_raw(&file).expect("map");
    (file, map)
}

const CONTROL: u16 = 0x80;
const IRQ_ENABLE: u16 = 0x88;
const RING: u16 = 0xa0;
const RING_CONSUMED: u16 = 0xb0;
const RING_BUS_ADDRESS: u64 = 0x10_0000_0000;

/// A host that takes blocks from the ring, each after a pause.
pub struct Capture {
    bus: HostBus,
    stop: Arc<AtomicBool>,
    blocks: Option<JoinHandle<Vec<u8>>>,
}

impl Capture {
    pub fn start(
        bus: HostBus,
        block_log2: u32,
        ring_log2: u32,
        snapshot: u32,
        pause: Duration,
    ) -> Self {
        let bytes = 1 << (block_log2 + ring_log2);
        let (file, map) = memory(bytes);
        bus.dma_map(RING_BUS_ADDRESS, bytes as u64, file.into(), 0)
            .expect("map");
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("eventfd");
        let theirs = event.as_fd().try_clone_to_owned().expect("clone");
        bus.set_interrupt(Some(theirs)).expect("interrupt");
        let words = [
            RING_BUS_ADDRESS as u32,
            (RING_BUS_ADDRESS >> 32) as u32,
            ring_log2,
            block_log2,
            0,
        ];
        for (register, value) in (RING..).step_by(4).zip(words) {
            bus.write32(register, value);
        }
        bus.write32(0xb8, snapshot);
        bus.write32(0xbc, 1_000_000); // flush_ns
        bus.write32(IRQ_ENABLE, 1);
        bus.write32(CONTROL, 0b1001);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, host) = (stop.clone(), bus.clone());
        let block_bytes = 1 << block_log2;
        let take = move || {
            let mut blocks = Vec::new();
            let mut taken = 0u64;
            let deadline = Instant::now() + Duration::from_secs(60);
            loop {
                assert!(Instant::now() < deadline, "no final block");
                let mut fds = [PollFd::new(event.as_fd(), PollFlags::POLLIN)];
                if poll(&mut fds, 10u16) == Ok(1) {
                    event.read().expect("told");
                }
                let until = Instant::now() + pause;
                while Instant::now() < until {
                    if stopped.load(Ordering::Relaxed) && pause > Duration::from_secs(60) {
                        return blocks;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                loop {
                    let at = (taken as usize * block_bytes) % bytes;
                    let mut block = vec![0; block_bytes];
                    // SAFETY: inside the map, which nobody holds a reference to.
                    unsafe {
                        let from = map.as_ptr().add(at);
                        std::ptr::copy_nonoverlapping(from, block.as_mut_ptr(), block_bytes);
                    }
                    let Ok(header) = BlockHeader::peek(&block) else {
                        break;
                    };
                    if header.number != taken {
                        break;
                    }
                    header.verify_crc(&block).expect("checksum");
                    block[header.used_bytes as usize..].fill(0);
                    blocks.extend_from_slice(&block);
                    taken += 1;
                    host.write32(RING_CONSUMED, taken as u32);
                    if header.last {
                        return blocks;
                    }
                }
            }
        };
        Self {
            bus,
            stop,
            blocks: Some(std::thread::spawn(take)),
        }
    }

    /// Ends the capture; all its blocks.
    pub fn stop(mut self) -> Vec<u8> {
        self.bus.write32(CONTROL, 0);
        self.blocks
            .take()
            .expect("once")
            .join()
            .expect("all blocks")
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
