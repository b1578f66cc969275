// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holds what came of a run against the model, frame by frame and record by record.

use crate::model::{Arrival, Expected, Model, arrivals};
use crate::rig::{Delivered, Outcome, Rig, Sent};
use midwire_driver::Program;
use midwire_trace::{Flags, Lane, Nanos, Record, Tap};
use midwire_virtual_card::{Picoseconds, Width, after_start};
use std::collections::HashMap;

/// Frames of at most so many bytes leave when they have come in as a whole; of longer ones the
/// card waits for so much that the MAC never starves (docs/card.md: elastic prefill). An upper
/// bound of both widths' prefill.
const PREFILL: u64 = 5120;
/// Clocks from the last byte that a frame has to wait for to its first bit on the line.
const LATENCY: u64 = 64;

/// Holds the outcome of a run against what the model says; returns what was expected of each
/// frame in the order of their arrival, with the frame's index.
pub fn check(
    rig: &Rig,
    width: Width,
    program: &Program,
    frames: &[Sent],
    outcome: &Outcome,
) -> Vec<(usize, Expected)> {
    assert_eq!(outcome.accounting.problems, [""; 0]);
    assert!(outcome.summary.complete, "{:?}", outcome.summary);
    let mut records = Records::new(outcome);
    let mut model = Model::new(program, &outcome.loaded, true);
    let arrivals = arrivals(width, frames);
    let mut order: Vec<usize> = (0..frames.len()).collect();
    order.sort_by_key(|&n| arrivals[n].head);
    let mut all = Vec::with_capacity(frames.len());
    for n in order {
        let (frame, arrival) = (&frames[n], &arrivals[n]);
        let (record, snapshot) = records.next(frame.lane);
        let expected = model.frame(frame, arrival.stamp, &record);
        let context = || {
            format!(
                "frame {n} at {} ns: {:02x?}",
                frame.at,
                &frame.data[..frame.data.len().min(160)]
            )
        };
        assert_eq!(record, expected.ingress, "ingress record of {}", context());
        assert!(
            snapshot == frame.data[..snapshot.len()],
            "ingress snapshot of {}",
            context()
        );
        assert_eq!(
            snapshot.len(),
            usize::from(record.length),
            "ingress snapshot of {}",
            context()
        );
        all.push((n, expected));
    }
    for lane in [Lane::AtoB, Lane::BtoA] {
        let delivered = &outcome.delivered[lane.index()];
        check_lane(
            width,
            lane,
            frames,
            &arrivals,
            &all,
            delivered,
            &mut records,
        );
    }
    records.finish();
    for (position, slot) in outcome.loaded.slots.iter().enumerate() {
        let state = rig.card.slot_state(*slot).expect("a state");
        let counts = (state.seen, state.fired);
        assert_eq!(
            counts,
            model.counts(position),
            "position {position}: {:?}",
            program.positions[position]
        );
    }
    all
}

/// What left a lane: the right frames, those that are not held back in their order, each at
/// its time.
fn check_lane(
    width: Width,
    lane: Lane,
    frames: &[Sent],
    arrivals: &[Arrival],
    all: &[(usize, Expected)],
    delivered: &[Delivered],
    records: &mut Records,
) {
    let mut due: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (at, (n, expected)) in all.iter().enumerate() {
        if frames[*n].lane == lane
            && let Some(leaves) = &expected.leaves
        {
            due.entry(leaves).or_default().push(at);
        }
    }
    for left in due.values_mut() {
        left.reverse(); // those that came first are taken from the end
    }
    let clock = width.clock_ps();
    let mut way = Way::new(width, lane, frames, arrivals, all);
    for (index, frame) in delivered.iter().enumerate() {
        let Some(at) = due.get_mut(&frame.data[..]).and_then(Vec::pop) else {
            let head = &frame.data[..frame.data.len().min(160)];
            panic!("{lane}: frame {index} that left is none that should: {head:02x?}");
        };
        let (n, expected) = &all[at];
        assert_eq!(frame.bad, expected.bad, "FCS of frame {n}");
        way.leaves(at, frame);
        if let Some(egress) = &expected.egress {
            let (record, snapshot) = records.egress(lane, egress.packet_id);
            let context = || format!("egress of frame {n}");
            assert_eq!(
                record,
                Record {
                    time: record.time,
                    ..*egress
                },
                "{}",
                context()
            );
            assert!(snapshot == frame.data, "snapshot at {}", context());
            let left = after_start(0) + frame.at;
            let noted = Nanos((left.saturating_sub(4 * clock)) / 1000)..=Nanos(left / 1000);
            assert!(
                noted.contains(&record.time),
                "{}: {:?} not in {noted:?}",
                context(),
                record.time
            );
        }
    }
    let missing: Vec<_> = due.values().flatten().map(|&at| all[at].0).collect();
    assert!(missing.is_empty(), "{lane}: frames {missing:?} never left");
}

/// When frames of a lane have to leave. They go one after the other, also those that are
/// stored to be held back, or dropped; one that was held back goes between two others.
struct Way<'a> {
    width: Width,
    frames: &'a [Sent],
    arrivals: &'a [Arrival],
    all: &'a [(usize, Expected)],
    /// Those of the lane that were not yet looked at, in their order.
    left: std::iter::Peekable<std::vec::IntoIter<usize>>,
    /// When the next frame can be issued.
    free: Picoseconds,
    /// When frames that are held back were.
    issued: HashMap<usize, Picoseconds>,
}

impl<'a> Way<'a> {
    fn new(
        width: Width,
        lane: Lane,
        frames: &'a [Sent],
        arrivals: &'a [Arrival],
        all: &'a [(usize, Expected)],
    ) -> Self {
        let left: Vec<_> = (0..all.len())
            .filter(|&at| frames[all[at].0].lane == lane)
            .collect();
        let left = left.into_iter().peekable();
        Self {
            width,
            frames,
            arrivals,
            all,
            left,
            free: 0,
            issued: HashMap::new(),
        }
    }

    fn bytes(&self, at: usize) -> u64 {
        self.frames[self.all[at].0].data.len() as u64
    }

    /// What a frame takes to be stored, a beat a clock.
    fn storing(&self, at: usize) -> Picoseconds {
        self.bytes(at).div_ceil(self.width.bytes() as u64) * self.width.clock_ps()
    }

    /// When the line has brought enough of a frame.
    fn ready(&self, at: usize) -> Picoseconds {
        let began = self.arrivals[self.all[at].0].begins;
        began + (8 + self.bytes(at).min(PREFILL)) * self.width.byte_ps()
    }

    /// Goes past frames that are not to leave at once, up to frame `end`; which ones.
    fn pass(&mut self, end: impl Fn(&Self, usize) -> bool) -> Vec<usize> {
        let mut passed = Vec::new();
        while let Some(&at) = self.left.peek()
            && !end(self, at)
        {
            let stays = self.all[at].1.leaves.is_none() || self.all[at].1.delay.is_some();
            assert!(stays, "frame {} was overtaken", self.all[at].0);
            let issued = self.free.max(self.ready(at));
            self.issued.insert(at, issued);
            self.free = issued + self.storing(at);
            self.left.next();
            passed.push(at);
        }
        passed
    }

    /// Frame `at` has left.
    fn leaves(&mut self, at: usize, frame: &Delivered) {
        let n = self.all[at].0;
        let first = self.arrivals[n].begins + 8 * self.width.byte_ps();
        let mut passed = Vec::new();
        let (earliest, ready) = match self.all[at].1.delay {
            None => {
                self.pass(|_, other| other == at);
                self.left.next();
                (first, self.ready(at))
            }
            Some(delay) => {
                let waiting = |way: &Self, other: usize| {
                    let expected = &way.all[other].1;
                    let straight = expected.leaves.is_some() && expected.delay.is_none();
                    straight || way.ready(other) > frame.at
                };
                passed = self.pass(waiting);
                // It is stored as a whole first, even when the delay is shorter.
                let delay = delay.0 * 1000;
                let issued = self.issued.get(&at).copied().expect("it was passed");
                (first + delay, issued + delay.max(self.storing(at)))
            }
        };
        assert!(
            frame.at >= earliest,
            "frame {n} left too early: {} ps",
            frame.at
        );
        let latest = ready.max(self.free) + LATENCY * self.width.clock_ps();
        assert!(
            frame.at <= latest,
            "frame {n} of {} bytes, {:?}, left {} ps late",
            self.bytes(at),
            self.all[at].1.delay,
            frame.at - latest
        );
        self.free = frame.at + (8 + frame.data.len() as u64 + 4 + 12) * self.width.byte_ps();
        // They may have had to wait for it.
        for at in passed.into_iter().filter(|passed| *passed != at) {
            self.issued.insert(at, self.free);
            self.free += self.storing(at);
        }
    }
}

/// Records of a capture by tap.
struct Records {
    ingress: [std::vec::IntoIter<(Record, Vec<u8>)>; 2],
    egress: HashMap<(usize, u32), (Record, Vec<u8>)>,
}

impl Records {
    fn new(outcome: &Outcome) -> Self {
        let mut ingress = [Vec::new(), Vec::new()];
        let mut egress = HashMap::new();
        for (record, snapshot) in &outcome.records {
            assert!(
                !record.flags.contains(Flags::UNMATCHED),
                "the matcher was overloaded"
            );
            let entry = (*record, snapshot.clone());
            match record.tap {
                Tap::Ingress => ingress[record.lane.index()].push(entry),
                Tap::Egress => {
                    let again = egress.insert((record.lane.index(), record.packet_id), entry);
                    assert!(again.is_none(), "two egress records of a packet: {again:?}");
                }
            }
        }
        Self {
            ingress: ingress.map(Vec::into_iter),
            egress,
        }
    }

    fn next(&mut self, lane: Lane) -> (Record, Vec<u8>) {
        self.ingress[lane.index()]
            .next()
            .expect("a record of each frame")
    }

    fn egress(&mut self, lane: Lane, packet_id: u32) -> (Record, Vec<u8>) {
        self.egress
            .remove(&(lane.index(), packet_id))
            .expect("an egress record")
    }

    fn finish(mut self) {
        assert!(
            self.ingress.iter_mut().all(|i| i.next().is_none()),
            "more records than frames"
        );
        assert!(
            self.egress.is_empty(),
            "egress records of untouched frames: {:?}",
            self.egress.keys()
        );
    }
}
