// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic at the rate of the line on both lanes at once: what a card loses of it, how long
//! frames take, and what the records take on the bus.

use crate::model::arrivals;
use crate::rig::{Outcome, Rig, Sent, Settings};
use crate::traffic::Random;
use midwire_driver::{
    Action, Clause, Ecn, Kind, Lane, LaneCounters, Nanos, Position, PositionEvents, Program,
    Selector, Transport,
};
use midwire_trace::build::{Path, TcpSegment, tcp};
use midwire_trace::packet::tcp_flags::{ACK, SYN};
use midwire_virtual_card::{Picoseconds, Width};
use std::collections::BTreeMap;

/// Headers of Ethernet, IPv4 and TCP, as the frames here have them.
const HEADERS: usize = 54;
/// The shortest frame without FCS.
pub const SHORTEST: usize = 60;
/// Bytes of a record.
const RECORD: u64 = 32;

/// What of the frames of one size.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Frames of both lanes.
    pub frames: u64,
    /// Those of them that left.
    pub left: u64,
    /// Their records, from both taps.
    pub records: u64,
    /// From the first bit in to the first bit out.
    pub latency: Range,
    /// Card time of the first stamp and the last.
    pub stamps: (Nanos, Nanos),
}

/// The shortest and the longest time.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The shortest.
    pub min: Picoseconds,
    /// The longest.
    pub max: Picoseconds,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// By length without FCS.
    pub groups: BTreeMap<usize, Group>,
    /// Frames that found no room in the card.
    pub lost: u64,
    /// Frames of which a beat came too late for the line.
    pub underruns: u64,
    /// Records that were lost.
    pub records_lost: u64,
    /// Packets whose events were not looked up.
    pub unmatched: u64,
    /// Frames of which an event set bytes, the ECN field, a byte.
    pub edited: [u64; 3],
    /// The capture is proven complete.
    pub complete: bool,
    /// Bytes of the capture's blocks.
    pub capture_bytes: u64,
}

impl Measured {
    /// All groups as one.
    pub fn total(&self) -> Option<Group> {
        self.groups.values().copied().reduce(|a, b| Group {
            frames: a.frames + b.frames,
            left: a.left + b.left,
            records: a.records + b.records,
            latency: Range {
                min: a.latency.min.min(b.latency.min),
                max: a.latency.max.max(b.latency.max),
            },
            stamps: (a.stamps.0.min(b.stamps.0), a.stamps.1.max(b.stamps.1)),
        })
    }
}

impl Group {
    /// Bytes of records a second.
    pub fn record_rate(&self) -> f64 {
        let span = self.stamps.1.0 - self.stamps.0.0;
        (self.records * RECORD) as f64 / (span.max(1) as f64 * 1e-9)
    }
}

/// Frames of a second that a line carries of this length without FCS.
pub fn line_packets(width: Width, len: usize) -> f64 {
    1e12 / ((8 + len as u64 + 4 + 12) * width.byte_ps()) as f64
}

/// Both lanes' frames of one connection or of many, back to back, after the connections have
/// been opened.
#[derive(Clone)]
pub struct Load {
    connections: u16,
    sent: Vec<Sent>,
    /// Frames that only open connections.
    opening: usize,
    next: [u32; 2],
}

impl Load {
    /// With so many connections, which frames take in turn.
    pub fn new(connections: u16) -> Self {
        let syn = TcpSegment {
            seq: u32::MAX,
            flags: SYN,
            ..TcpSegment::default()
        };
        let sent: Vec<_> = (0..connections)
            .map(|n| Sent::new(Lane::AtoB, 0, padded(tcp(&path(n), &syn, b""), SHORTEST)))
            .collect();
        let opening = sent.len();
        let next = [0; 2];
        Self {
            connections,
            sent,
            opening,
            next,
        }
    }

    /// Appends `each` frames of this length without FCS to both lanes.
    pub fn push(&mut self, len: usize, each: usize) {
        // After the SYNs of all connections.
        let at = self.opening as u64 * 1_000;
        let payload = vec![0; len.saturating_sub(HEADERS)];
        for _ in 0..each {
            for lane in Lane::ALL {
                let n = &mut self.next[lane.index()];
                let way = path((*n % u32::from(self.connections)) as u16);
                let way = match lane {
                    Lane::AtoB => way,
                    Lane::BtoA => way.reversed(),
                };
                let segment = TcpSegment {
                    seq: *n,
                    flags: ACK,
                    ..TcpSegment::default()
                };
                *n += 1;
                let data = padded(tcp(&way, &segment, &payload), len);
                self.sent.push(Sent::new(lane, at, data));
            }
        }
    }

    /// Appends frames of random lengths.
    pub fn push_random(&mut self, seed: u64, frames: usize) {
        let mut random = Random::new(seed);
        for _ in 0..frames {
            let longest = if random.one_in(8) { 9014 } else { 1514 };
            let len = SHORTEST + random.below((longest - SHORTEST + 1) as u64) as usize;
            self.push(len, 1);
        }
    }

    /// Runs all of it through a card with this program.
    pub fn run(&self, width: Width, program: &Program) -> Measured {
        let mut settings = Settings::new(width);
        settings.capture.snapshot_bytes = 0;
        settings.capture.ring_blocks = 256;
        let outcome = Rig::new(&settings).run(program, &self.sent);
        self.measure(width, &outcome)
    }

    fn measure(&self, width: Width, outcome: &Outcome) -> Measured {
        let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
        let mut left = outcome.delivered.each_ref().map(|frames| frames.iter());
        for (n, (sent, arrival)) in self
            .sent
            .iter()
            .zip(arrivals(width, &self.sent))
            .enumerate()
        {
            let delivered = left[sent.lane.index()].next();
            if n < self.opening {
                continue;
            }
            let group = groups.entry(sent.data.len()).or_insert(Group {
                frames: 0,
                left: 0,
                records: 0,
                latency: Range {
                    min: Picoseconds::MAX,
                    max: 0,
                },
                stamps: (arrival.stamp, arrival.stamp),
            });
            group.frames += 1;
            group.stamps.1 = group.stamps.1.max(arrival.stamp);
            let Some(delivered) = delivered else { continue };
            group.left += 1;
            let took = delivered.at - arrival.begins;
            group.latency.min = group.latency.min.min(took);
            group.latency.max = group.latency.max.max(took);
        }
        for (record, _) in &outcome.records {
            if record.tcp_flags & SYN == 0
                && let Some(group) = groups.get_mut(&usize::from(record.length))
            {
                group.records += 1;
            }
        }
        let counters = &outcome.counters;
        let totals = &outcome.summary.counters;
        Measured {
            groups,
            lost: counters.ports.iter().map(|port| port.rx_lost).sum(),
            underruns: outcome.stats.ports.iter().map(|port| port.underruns).sum(),
            records_lost: [totals.lost_ingress, totals.lost_egress]
                .as_flattened()
                .iter()
                .map(|&n| u64::from(n))
                .sum(),
            unmatched: counters.lanes.iter().map(|lane| lane.unmatched).sum(),
            edited: [
                |lane: &LaneCounters| lane.rewritten,
                |lane: &LaneCounters| lane.marked,
                |lane: &LaneCounters| lane.corrupted,
            ]
            .map(|count| counters.lanes.iter().map(count).sum()),
            complete: outcome.summary.complete,
            capture_bytes: outcome.summary.bytes,
        }
    }
}

/// At least `len` bytes, as a MAC sends them: a shorter frame would be a runt, and come faster
/// than it could leave.
fn padded(mut frame: Vec<u8>, len: usize) -> Vec<u8> {
    frame.resize(frame.len().max(len), 0);
    frame
}

/// Connection `n`.
fn path(n: u16) -> Path {
    Path::ipv4(20_000 + n, 5001)
}

/// Follows all connections and looks events up, but has nothing to do.
pub fn watch() -> Program {
    events_on(&[1_000_000_000], Action::default())
}

/// An event on each of the first packets of connection 0, in both lanes: it is marked CE.
pub fn mark(packets: u32) -> Program {
    let ecn = Some(Ecn::Ce);
    let action = Action {
        ecn,
        ..Action::default()
    };
    on_each(packets, action)
}

/// An event on each of the first packets of connection 0, in both lanes.
pub fn on_each(packets: u32, action: Action) -> Program {
    let numbers: Vec<_> = (1..=packets).collect();
    events_on(&numbers, action)
}

fn events_on(numbers: &[u32], action: Action) -> Program {
    let clauses = vec![Clause {
        first: 1,
        last: None,
        armed_by: None,
        action,
    }];
    let kind = Kind::Any;
    let positions = Lane::ALL.iter().flat_map(|&lane| {
        numbers.iter().map({
            let clauses = clauses.clone();
            move |&n| PositionEvents {
                lane,
                connection: 0,
                at: Position::Nth { kind, n },
                clauses: clauses.clone(),
            }
        })
    });
    Program {
        selectors: vec![Selector::any(Transport::Tcp)],
        positions: positions.collect(),
        ..Program::default()
    }
}
