// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a virtual card counts about itself. The core's own counters are in its registers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Frames at a port, seen from the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames given to the core.
    pub frames_in: u64,
    /// Their bytes without FCS.
    pub bytes_in: u64,
    /// Frames that the core sent, bad ones included.
    pub frames_out: u64,
    /// Their bytes without FCS.
    pub bytes_out: u64,
    /// Of those: sent with a wrong FCS, so that nobody takes them.
    pub bad_out: u64,
    /// Of those: lost because the TAP did not take them.
    pub lost_out: u64,
    /// Virtual time: frames that a real line would have torn, as a beat came too late.
    pub underruns: u64,
}

/// What a card did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Clock cycles that were evaluated.
    pub cycles: u64,
    /// Virtual time: idle cycles that were skipped.
    pub cycles_skipped: u64,
    /// Per port.
    pub ports: [PortStats; 2],
    /// Virtual time: blocks that the host did not take within its time.
    pub host_timeouts: u64,
    /// Since the card was made.
    pub wall: Duration,
}

/// Written by the simulation, `lost_out` by a TAP's writer as well; read by anybody.
#[derive(Default)]
pub(crate) struct PortCounters {
    pub frames_in: AtomicU64,
    pub bytes_in: AtomicU64,
    pub frames_out: AtomicU64,
    pub bytes_out: AtomicU64,
    pub bad_out: AtomicU64,
    pub lost_out: AtomicU64,
    pub underruns: AtomicU64,
}

impl PortCounters {
    /// Adds to a counter that nobody else writes.
    pub fn add(counter: &AtomicU64, value: u64) {
        counter.store(counter.load(Ordering::Relaxed) + value, Ordering::Relaxed);
    }
}

pub(crate) struct Counters {
    pub cycles: AtomicU64,
    pub cycles_skipped: AtomicU64,
    pub ports: [Arc<PortCounters>; 2],
    pub host_timeouts: AtomicU64,
    pub since: Instant,
}

impl Counters {
    pub fn new() -> Self {
        Self {
            cycles: AtomicU64::new(0),
            cycles_skipped: AtomicU64::new(0),
            ports: Default::default(),
            host_timeouts: AtomicU64::new(0),
            since: Instant::now(),
        }
    }

    pub fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            cycles: get(&self.cycles),
            cycles_skipped: get(&self.cycles_skipped),
            ports: [0, 1].map(|port: usize| {
                let port = &self.ports[port];
                PortStats {
                    frames_in: get(&port.frames_in),
                    bytes_in: get(&port.bytes_in),
                    frames_out: get(&port.frames_out),
                    bytes_out: get(&port.bytes_out),
                    bad_out: get(&port.bad_out),
                    lost_out: get(&port.lost_out),
                    underruns: get(&port.underruns),
                }
            }),
            host_timeouts: get(&self.host_timeouts),
            wall: self.since.elapsed(),
        }
    }
}
