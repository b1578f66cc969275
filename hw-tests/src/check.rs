// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holds what came of a run against the model, frame by frame and record by record.

use crate::model::{Arrival, Expected, Model, arrivals};
use crate::rig::{Delivered, Outcome, Rig, Sent};
use midwire_driver::{Program, ReorderScope};
use midwire_trace::{Actions, Flags, Kind, Lane, Nanos, Record, Tap};
use midwire_virtual_card::{Picoseconds, Width, after_start};
use std::collections::{HashMap, VecDeque};

/// Frames of at most so many bytes leave when they have come in as a whole; of longer ones the
/// card waits for so much that the MAC never starves (docs/card.md: elastic prefill). An upper
/// bound of both widths' prefill.
const PREFILL: u64 = 5120;
/// Clocks from the last byte that a frame has to wait for to its first bit on the line, and those
/// that rules take besides.
const LATENCY: u64 = 72;
const RULES_LATENCY: u64 = 64;
/// Clocks more for a frame of which checksums may have to be mended.
const MENDING: u64 = 32;

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
    let left = [0, 1].map(|lane| {
        let frames: &[Delivered] = &outcome.delivered[lane];
        let mut left: HashMap<&[u8], usize> = HashMap::new();
        for frame in frames {
            *left.entry(&frame.data).or_default() += 1;
        }
        left
    });
    let mut all = Vec::with_capacity(frames.len());
    for n in order {
        let (frame, arrival) = (&frames[n], &arrivals[n]);
        let (record, snapshot) = records.next(frame.lane);
        let left = &left[frame.lane.index()];
        let expected = model.frame(frame, arrival.stamp, &record, left);
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
    for lane in Lane::ALL {
        let delivered = &outcome.delivered[lane.index()];
        let way = Way::new(width, lane, program, frames, &arrivals, &all);
        check_lane(way, delivered, &mut records);
    }
    records.finish();
    check_counters(frames, &all, outcome);
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
    for (rule, slot) in outcome.loaded.rules.iter().enumerate() {
        let state = rig.card.slot_state(*slot).expect("a state");
        let counts = (state.seen, state.fired);
        let of = &program.rules[rule];
        assert_eq!(counts, model.rule_counts(rule), "rule {rule}: {of:?}");
    }
    all
}

/// What the card counted of frames that events touched.
fn check_counters(frames: &[Sent], all: &[(usize, Expected)], outcome: &Outcome) {
    for lane in Lane::ALL {
        let count = |of: &dyn Fn(&Expected) -> u64| {
            let of_lane = all.iter().filter(|(n, _)| frames[*n].lane == lane);
            let left = of_lane.filter(|(_, expected)| expected.leaves.is_some());
            left.map(|(_, expected)| of(expected)).sum::<u64>()
        };
        let done = |bit| count(&|e| e.egress.is_some_and(|r| r.actions.contains(bit)).into());
        let copied = count(&|e| e.action.duplicate.map_or(0, |d| d.copies.into()));
        let counters = &outcome.counters.lanes[lane.index()];
        for (name, counted, expected) in [
            ("marked", counters.marked, done(Actions::ECN)),
            ("corrupted", counters.corrupted, done(Actions::CORRUPT)),
            ("rewritten", counters.rewritten, done(Actions::SET)),
            ("shortened", counters.shortened, done(Actions::TRUNCATE)),
            ("delayed", counters.delayed, done(Actions::DELAY)),
            ("reordered", counters.reordered, done(Actions::REORDER)),
            ("copied", counters.copied, copied),
        ] {
            assert_eq!(counted, expected, "{lane}: {name}");
        }
        assert_eq!(outcome.accounting.ports[lane.index()].copied, copied);
        let of_lane = |e: &&Expected| e.ingress.lane == lane && e.action.inject.is_some();
        let asked = all.iter().map(|(_, e)| e).filter(of_lane);
        let refused = asked.filter(|e| e.answer.is_none()).count() as u64;
        assert_eq!(counters.inject_lost, refused, "{lane}: inject_lost");
        let made = all.iter().filter_map(|(_, e)| e.answer.as_ref());
        let made = made.filter(|made| made.lane == lane).count() as u64;
        assert_eq!(counters.injected, made, "{lane}: injected");
        assert_eq!(outcome.accounting.ports[lane.index()].injected, made);
        assert_eq!(counters.delay_full, 0, "{lane}");
    }
}

/// What left a lane: the right frames, those that are not held back in their order, each at
/// its time, and its copies.
fn check_lane(mut way: Way<'_>, delivered: &[Delivered], records: &mut Records) {
    let (lane, all) = (way.lane, way.all);
    let mut due: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (at, (n, expected)) in all.iter().enumerate() {
        if way.frames[*n].lane == lane
            && let Some(leaves) = &expected.leaves
        {
            due.entry(leaves).or_default().push(at);
        }
    }
    due.values_mut().for_each(|left| left.reverse()); // those that came first are taken from the end
    let mut copied: HashMap<&[u8], usize> = HashMap::new();
    // Those that are made may be alike, so their records say in answer to what.
    let mut made: HashMap<&[u8], u32> = HashMap::new();
    for (_, expected) in all {
        if let Some(answer) = expected.answer.as_ref().filter(|made| made.lane == lane) {
            *made.entry(&answer.bytes).or_default() += 1;
        }
    }
    for (index, frame) in delivered.iter().enumerate() {
        let bytes = &frame.data[..];
        if let Some(left) = made.get_mut(bytes).filter(|left| **left > 0) {
            *left -= 1;
            let (record, snapshot) = records.made(lane);
            way.leaves_made(&record, frame);
            assert!(snapshot == frame.data, "snapshot of a frame that was made");
            check_time(way.width, frame, &record);
            continue;
        }
        let own = due.get_mut(bytes).and_then(Vec::pop);
        let Some(at) = own.or_else(|| copied.get(bytes).copied()) else {
            let head = &frame.data[..frame.data.len().min(160)];
            panic!("{lane}: frame {index} that left is none that should: {head:02x?}");
        };
        let (n, expected) = &all[at];
        assert_eq!(frame.bad, expected.bad, "FCS of frame {n}");
        let passed = match own {
            Some(_) => way.leaves(at, frame),
            None => {
                way.leaves_again(at, frame);
                0
            }
        };
        copied.insert(bytes, at);
        let Some(mut egress) = expected.egress else {
            continue;
        };
        if own.is_none() {
            let moved = Actions::DELAY | Actions::REORDER;
            egress.actions = Actions(egress.actions.0 & !moved.0) | Actions::DUPLICATE;
        } else if expected.action.reorder.is_some() {
            egress.f2 = passed.min(u16::MAX.into()) as u16;
        }
        let (record, snapshot) = records.egress(lane, egress.packet_id);
        let context = || format!("egress of frame {n}");
        egress.time = record.time;
        assert_eq!(record, egress, "{}", context());
        assert!(snapshot == frame.data, "snapshot at {}", context());
        check_time(way.width, frame, &record);
    }
    let unmade: u32 = made.values().sum();
    assert_eq!(unmade, 0, "{lane}: frames that were never made");
    let missing: Vec<_> = due.values().flatten().map(|&at| all[at].0).collect();
    assert!(missing.is_empty(), "{lane}: frames {missing:?} never left");
    way.finish();
}

/// A record of a frame that left has the time at which its first beat did.
fn check_time(width: Width, frame: &Delivered, record: &Record) {
    let left = after_start(0) + frame.at;
    let clock = width.clock_ps();
    let noted = Nanos((left.saturating_sub(4 * clock)) / 1000)..=Nanos(left / 1000);
    assert!(
        noted.contains(&record.time),
        "{:?} not in {noted:?}: {record:?}",
        record.time
    );
}

/// When frames of a lane have to leave. They go one after the other, also those that are
/// stored to be held back, or dropped; one that was stored goes between two others.
struct Way<'a> {
    width: Width,
    lane: Lane,
    frames: &'a [Sent],
    arrivals: &'a [Arrival],
    all: &'a [(usize, Expected)],
    timeout: Picoseconds,
    /// In clocks.
    latency: u64,
    /// Those of the lane that were not yet looked at, in their order.
    left: std::iter::Peekable<std::vec::IntoIter<usize>>,
    /// When the next frame can be issued.
    free: Picoseconds,
    /// When frames that are held back were.
    issued: HashMap<usize, Picoseconds>,
    /// Those of them that stored frames may have been sent before, since one came straight through.
    behind: Vec<usize>,
    /// Frames that wait for others, in their order.
    waiting: Vec<Waiting>,
    /// Frames that leave again.
    again: HashMap<usize, Again>,
}

/// A frame that waits until others have left before it.
struct Waiting {
    at: usize,
    passed: u32,
    /// When there were enough.
    full: Option<Picoseconds>,
}

/// A frame that has left and will again.
struct Again {
    /// When it was sent last: not before, and not after.
    sent: [Picoseconds; 2],
    left: u8,
}

impl<'a> Way<'a> {
    fn new(
        width: Width,
        lane: Lane,
        program: &Program,
        frames: &'a [Sent],
        arrivals: &'a [Arrival],
        all: &'a [(usize, Expected)],
    ) -> Self {
        let timeout = program.reorder_timeout.unwrap_or(Program::REORDER_TIMEOUT);
        let rules = program.rules.iter().any(|rule| rule.lane == lane);
        let left: Vec<_> = (0..all.len())
            .filter(|&at| frames[all[at].0].lane == lane)
            .collect();
        let waits =
            |&&at: &&usize| all[at].1.leaves.is_some() && all[at].1.action.reorder.is_some();
        let waiting = left.iter().filter(waits).map(|&at| Waiting {
            at,
            passed: 0,
            full: None,
        });
        Self {
            width,
            lane,
            frames,
            arrivals,
            all,
            timeout: timeout.0 * 1000,
            latency: LATENCY + if rules { RULES_LATENCY } else { 0 },
            waiting: waiting.collect(),
            left: left.into_iter().peekable(),
            free: 0,
            issued: HashMap::new(),
            behind: Vec::new(),
            again: HashMap::new(),
        }
    }

    fn bytes(&self, at: usize) -> u64 {
        self.frames[self.all[at].0].data.len() as u64
    }

    /// What a frame takes to be stored, a beat a clock.
    fn storing(&self, at: usize) -> Picoseconds {
        self.bytes(at).div_ceil(self.width.bytes() as u64) * self.width.clock_ps()
    }

    /// When the line has brought so much of a frame.
    fn came(&self, at: usize, bytes: u64) -> Picoseconds {
        let bytes = self.bytes(at).min(bytes);
        self.arrivals[self.all[at].0].begins + (8 + bytes) * self.width.byte_ps()
    }

    /// When a frame can be issued at the latest. What is changed and what that does to its
    /// checksums may depend on its end.
    fn ready(&self, at: usize) -> Picoseconds {
        let record = &self.all[at].1.ingress;
        let changes = Actions::SET | Actions::CORRUPT | Actions::ECN | Actions::TRUNCATE;
        let (came, mending) = match record.actions.0 & changes.0 {
            0 => (self.came(at, PREFILL), 0),
            _ => (self.came(at, u64::MAX), MENDING),
        };
        // Of data that are announced every page is looked up, a clock each.
        let pages = u64::from(record.payload_len) / 256;
        came + (mending + pages) * self.width.clock_ps()
    }

    /// Goes past frames that are not to leave at once, up to frame `end`; which ones.
    fn pass(&mut self, end: impl Fn(&Self, usize) -> bool) -> Vec<usize> {
        let mut passed = Vec::new();
        while let Some(&at) = self.left.peek()
            && !end(self, at)
        {
            let expected = &self.all[at].1;
            let stays = expected.leaves.is_none() || expected.held();
            assert!(stays, "frame {} was overtaken", self.all[at].0);
            let issued = self.free.max(self.ready(at));
            self.issued.insert(at, issued);
            self.free = issued + self.storing(at);
            self.left.next();
            passed.push(at);
        }
        passed
    }

    /// Goes past frames that were there when a stored one left, and did not leave before it.
    fn pass_before(&mut self, frame: &Delivered) -> Vec<usize> {
        self.pass(|way, other| {
            let expected = &way.all[other].1;
            let straight = expected.leaves.is_some() && !expected.held();
            straight || way.came(other, PREFILL) > frame.at
        })
    }

    /// They may have had to wait for frame `at`, as those that others were sent before.
    fn put_behind(&mut self, behind: Vec<usize>, at: usize) {
        self.behind.extend(behind);
        self.behind.retain(|other| *other != at);
        for &other in &self.behind {
            self.issued.insert(other, self.free);
            self.free += self.storing(other);
        }
    }

    /// Frame `at` has left for the first time; how many it was to wait for had left before.
    fn leaves(&mut self, at: usize, frame: &Delivered) -> u32 {
        let (n, expected) = &self.all[at];
        let first = self.arrivals[*n].begins + 8 * self.width.byte_ps();
        let mut behind = Vec::new();
        let mut waited = 0;
        let (earliest, ready) = if expected.held() {
            behind = self.pass_before(frame);
            let issued = self.issued.get(&at).copied().expect("it was passed");
            let delay = expected.action.delay.map_or(0, |delay| delay.0 * 1000);
            let (turn, passed) = self.turn(at, issued);
            waited = passed;
            // It is stored as a whole first, even when the delay is shorter.
            let ready = turn.max(issued + delay.max(self.storing(at)));
            let earliest = match self.all[at].1.action.reorder {
                Some(reorder) if passed < reorder.packets.into() => first + self.timeout,
                _ => 0,
            };
            (earliest.max(first + delay), ready)
        } else {
            self.pass(|_, other| other == at);
            self.left.next();
            self.went_by(at, frame.at);
            self.behind.clear();
            (first, self.ready(at))
        };
        if let Some(duplicate) = expected.action.duplicate {
            let again = Again {
                sent: self.sent(frame),
                left: duplicate.copies,
            };
            self.again.insert(at, again);
        }
        self.leaves_within(at, frame, earliest, ready);
        self.put_behind(behind, at);
        waited
    }

    /// Frame `at` has left once more.
    fn leaves_again(&mut self, at: usize, frame: &Delivered) {
        let (n, expected) = &self.all[at];
        let gap = expected.action.duplicate.map_or(0, |d| d.gap.0 * 1000);
        let storing = self.storing(at);
        let sent = self.sent(frame);
        let again = self.again.get_mut(&at).expect("a frame with copies");
        assert!(again.left > 0, "frame {n} left too often");
        let [earliest, latest] = std::mem::replace(&mut again.sent, sent);
        again.left -= 1;
        let behind = self.pass_before(frame);
        self.leaves_within(at, frame, earliest + gap, latest + gap.max(storing));
        self.put_behind(behind, at);
    }

    /// A frame that was made has left: the one that its record says, after what it answers.
    fn leaves_made(&mut self, record: &Record, frame: &Delivered) {
        let (n, expected) = self
            .all
            .iter()
            .find(|(_, e)| {
                let made = e.answer.as_ref().map(|made| made.record);
                made.is_some_and(|made| {
                    (made.packet_id, made.lane, made.f2)
                        == (record.packet_id, record.lane, record.f2)
                })
            })
            .expect("a packet that it answers");
        let made = expected.answer.as_ref().expect("it was found by it");
        let wanted = Record {
            time: record.time,
            ..made.record
        };
        assert_eq!(*record, wanted, "answer to frame {n}");
        assert!(frame.data == made.bytes, "answer to frame {n}");
        assert!(!frame.bad, "FCS of the answer to frame {n}");
        assert!(
            frame.at > self.arrivals[*n].begins,
            "the answer to frame {n} left before it came"
        );
        let behind = self.pass_before(frame);
        self.free = self.free.max(frame.at + self.line(frame));
        self.put_behind(behind, usize::MAX);
    }

    /// What a frame takes on the line.
    fn line(&self, frame: &Delivered) -> Picoseconds {
        (8 + frame.data.len() as u64 + 4 + 12) * self.width.byte_ps()
    }

    /// When a frame was sent that left now. On a busy line it may have waited a little since.
    fn sent(&self, frame: &Delivered) -> [Picoseconds; 2] {
        let clock = self.width.clock_ps();
        let waited = match frame.at > self.free + clock {
            true => clock,
            false => self.latency * clock,
        };
        [frame.at.saturating_sub(waited), frame.at]
    }

    fn leaves_within(
        &mut self,
        at: usize,
        frame: &Delivered,
        earliest: Picoseconds,
        ready: Picoseconds,
    ) {
        let (n, expected) = &self.all[at];
        assert!(
            frame.at >= earliest,
            "frame {n} left {} ps too early",
            earliest - frame.at
        );
        let latest = ready.max(self.free) + self.latency * self.width.clock_ps();
        assert!(
            frame.at <= latest,
            "frame {n} of {} bytes, {:?}, left {} ps late",
            self.bytes(at),
            (
                expected.action.delay,
                expected.action.reorder,
                expected.action.duplicate
            ),
            frame.at - latest
        );
        // What was cut off is read all the same; a stored frame may leave meanwhile.
        self.free = self
            .free
            .max(frame.at + self.line(frame).max(self.storing(at)));
    }

    /// Frame `at`, which was not held back, counts for those that wait and came before it.
    fn went_by(&mut self, at: usize, when: Picoseconds) {
        let connection = self.all[at].1.ingress.connection;
        for waiting in self.waiting.iter_mut().take_while(|w| w.at < at) {
            let expected = &self.all[waiting.at].1;
            let reorder = expected.action.reorder.expect("it waits");
            if reorder.of == ReorderScope::Lane || expected.ingress.connection == connection {
                waiting.passed += 1;
                if waiting.passed == u32::from(reorder.packets) {
                    waiting.full = Some(when);
                }
            }
        }
    }

    /// Since when frame `at` has not had to wait for others any more, and how many left before it.
    fn turn(&mut self, at: usize, issued: Picoseconds) -> (Picoseconds, u32) {
        let Some(place) = self.waiting.iter().position(|w| w.at == at) else {
            return (0, 0);
        };
        let Waiting { passed, full, .. } = self.waiting.remove(place);
        let asked = self.all[at]
            .1
            .action
            .reorder
            .map_or(0, |r| r.packets.into());
        let timeout = issued + self.timeout;
        if self.all[at].1.action.delay.is_none() && full.is_some_and(|full| full < timeout) {
            assert_eq!(passed, asked, "places that frame {} moved", self.all[at].0);
        }
        (full.unwrap_or(timeout).min(timeout), passed)
    }

    fn finish(&self) {
        let missing = self.again.values().any(|again| again.left > 0);
        assert!(!missing, "{}: copies never left", self.lane);
    }
}

/// A record and its snapshot.
type Noted = (Record, Vec<u8>);

/// Records of a capture by tap.
struct Records {
    ingress: [std::vec::IntoIter<Noted>; 2],
    /// Of each packet in their order.
    egress: HashMap<(usize, u32), VecDeque<Noted>>,
    /// Of frames that were made, by the lane on which they left.
    made: [VecDeque<Noted>; 2],
}

impl Records {
    fn new(outcome: &Outcome) -> Self {
        let mut ingress = [Vec::new(), Vec::new()];
        let mut made = [VecDeque::new(), VecDeque::new()];
        let mut egress: HashMap<_, VecDeque<_>> = HashMap::new();
        for (record, snapshot) in &outcome.records {
            assert!(
                !record.flags.contains(Flags::UNMATCHED),
                "the matcher was overloaded"
            );
            let entry = (*record, snapshot.clone());
            match record.tap {
                Tap::Ingress => ingress[record.lane.index()].push(entry),
                Tap::Egress if record.kind == Kind::Injected => {
                    made[record.lane.index()].push_back(entry);
                }
                Tap::Egress => {
                    let key = (record.lane.index(), record.packet_id);
                    egress.entry(key).or_default().push_back(entry);
                }
            }
        }
        Self {
            ingress: ingress.map(Vec::into_iter),
            egress,
            made,
        }
    }

    fn made(&mut self, lane: Lane) -> Noted {
        self.made[lane.index()]
            .pop_front()
            .expect("a record of each frame that was made")
    }

    fn next(&mut self, lane: Lane) -> Noted {
        self.ingress[lane.index()]
            .next()
            .expect("a record of each frame")
    }

    fn egress(&mut self, lane: Lane, packet_id: u32) -> Noted {
        self.egress
            .get_mut(&(lane.index(), packet_id))
            .and_then(VecDeque::pop_front)
            .expect("an egress record")
    }

    fn finish(mut self) {
        assert!(
            self.made.iter().all(VecDeque::is_empty),
            "more records than frames that were made"
        );
        assert!(
            self.ingress.iter_mut().all(|i| i.next().is_none()),
            "more records than frames"
        );
        assert!(
            self.egress.values().all(VecDeque::is_empty),
            "egress records of frames that did not leave: {:?}",
            self.egress.values().flatten().next()
        );
    }
}
