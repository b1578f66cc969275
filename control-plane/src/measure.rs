// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What became of each event, from the records of the packets that it touched.
//!
//! That an event fired is told twice, by the card's slot and by the records. Both are counted
//! here, and where they differ the run can't be trusted.

use std::collections::{BTreeMap, HashMap};

use midwire_analysis::report::Check;
use midwire_trace::packet::Packet;
use midwire_trace::{Actions, Capture, Flags, Kind, Lane, Proto, Record, Tap};

use crate::compile::events_at;
use crate::edits::Came;
use crate::merge;
use crate::plan::{Action, Duration, Event, Transport};
use crate::run_file::{
    AnswerMeasure, ChangedByte, ChecksumAsked, ChecksumMeasure, ChecksumName, CopiesMeasure,
    DelayMeasure, EventRecord, Firing, MoveMeasure, PositionRecord, Recorded,
};
use crate::select::wanted;
use crate::text::{time, times};
use crate::twin::Twin;

/// A packet that hit a slot.
#[derive(Debug, Default)]
struct Touched {
    ingress: Option<Seen>,
    egress: Option<Seen>,
    copies: Vec<Seen>,
    answer: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    record: Record,
    snapshot: Vec<u8>,
}

impl Seen {
    /// ECN field of the IP header, when the snapshot holds it.
    fn ecn(&self) -> Option<u8> {
        let packet = Packet::parse_snapshot(&self.snapshot, self.record.length.into());
        packet.net.map(|net| net.ecn())
    }
}

/// A packet at a position.
struct Hit<'a> {
    ingress: &'a Seen,
    egress: Option<&'a Seen>,
    copies: &'a [Seen],
    answer: Option<&'a Seen>,
    /// The n-th at this position, or that the rule chose from.
    iteration: u32,
}

/// Packets that hit a slot, and the time of the first record.
#[derive(Debug, Default)]
pub(crate) struct TouchedPackets {
    packets: BTreeMap<(Lane, u32), Touched>,
    /// Those whose ingress record names a slot, in their order.
    by_slot: HashMap<(Lane, u32), Vec<u32>>,
    /// Those that hit more slots than the one that is named.
    shared: [Vec<u32>; 2],
    start_ns: u64,
}

impl TouchedPackets {
    /// Reads the capture as far as it can be read.
    pub fn read(capture: &Capture) -> TouchedPackets {
        let mut packets: BTreeMap<(Lane, u32), Touched> = BTreeMap::new();
        let mut start_ns = u64::MAX;
        let mut entries = capture.entries();
        while let Some(entry) = entries.next_entry() {
            let record = entry.record;
            start_ns = start_ns.min(record.time.0);
            if record.slot.is_none() && record.tap == Tap::Ingress {
                continue;
            }
            let packet = packets
                .entry((record.packet_lane(), record.packet_id))
                .or_default();
            let seen = Seen {
                record,
                snapshot: entry.snapshot.to_vec(),
            };
            match record.tap {
                Tap::Ingress => packet.ingress = Some(seen),
                Tap::Egress if record.kind == Kind::Injected => packet.answer = Some(seen),
                Tap::Egress if record.actions.contains(Actions::DUPLICATE) => {
                    packet.copies.push(seen);
                }
                Tap::Egress => packet.egress = Some(seen),
            }
        }
        TouchedPackets::of(packets, start_ns)
    }

    fn of(packets: BTreeMap<(Lane, u32), Touched>, start_ns: u64) -> TouchedPackets {
        let mut by_slot: HashMap<_, Vec<_>> = HashMap::new();
        let mut shared = [Vec::new(), Vec::new()];
        for (&(lane, id), touched) in &packets {
            let Some(record) = touched.ingress.as_ref().map(|seen| &seen.record) else {
                continue;
            };
            if let Some(slot) = record.slot {
                by_slot.entry((lane, slot)).or_default().push(id);
            }
            if record.flags.contains(Flags::MULTI) {
                shared[lane.index()].push(id);
            }
        }
        TouchedPackets {
            packets,
            by_slot,
            shared,
            start_ns,
        }
    }

    /// Packets that name a slot, in their order.
    pub fn naming(&self, lane: Lane, slot: u32) -> &[u32] {
        self.by_slot.get(&(lane, slot)).map_or(&[], Vec::as_slice)
    }

    /// Whether a packet hit more slots than the one that it names.
    pub fn shared(&self, lane: Lane, packet: u32) -> bool {
        self.shared[lane.index()].binary_search(&packet).is_ok()
    }

    fn hit(&self, lane: Lane, id: u32, iteration: u32) -> Option<Hit<'_>> {
        let touched = self.packets.get(&(lane, id))?;
        Some(Hit {
            ingress: touched.ingress.as_ref()?,
            egress: touched.egress.as_ref(),
            copies: &touched.copies,
            answer: touched.answer.as_ref(),
            iteration,
        })
    }

    /// Packets at a position, in their order.
    ///
    /// A packet that is at two positions names only one of them in its record. Where a slot saw
    /// as many packets more as there are such ones, these are they.
    fn hits(&self, position: &PositionRecord) -> Vec<Hit<'_>> {
        let lane = position.direction;
        let mut ids = self.naming(lane, position.slot).to_vec();
        let missing = position.seen.saturating_sub(ids.len() as u64);
        if missing > 0 {
            let hidden = |id: &&u32| {
                let seen = self.packets.get(&(lane, **id));
                let seen = seen.and_then(|touched| touched.ingress.as_ref());
                seen.is_some_and(|seen| {
                    seen.record.slot != Some(position.slot)
                        && seen.record.connection.map(u32::from) == Some(position.connection)
                })
            };
            let hidden: Vec<u32> = self.shared[lane.index()]
                .iter()
                .filter(hidden)
                .copied()
                .collect();
            if hidden.len() as u64 == missing {
                ids.extend(hidden);
                ids.sort_unstable();
            }
        }
        ids.iter()
            .zip(1..)
            .filter_map(|(&id, n)| self.hit(lane, id, n))
            .collect()
    }
}

impl TouchedPackets {
    /// Packets at a position on which the card should have acted by its own count.
    pub fn acted_on(&self, position: &PositionRecord) -> Vec<u32> {
        let hits = self.hits(position).into_iter();
        hits.filter(|hit| position.acts(narrow(hit.iteration)))
            .map(|hit| hit.ingress.record.packet_id)
            .collect()
    }
}

/// An iteration as records have it, which saturates.
fn narrow(iteration: u32) -> u8 {
    u8::try_from(iteration).unwrap_or(u8::MAX)
}

/// Each event of the plan, and the checks that slots and records agree. Without software's own
/// findings, packets that wait for triggers or were chosen by rules are known only as far as
/// their records name them.
pub(crate) fn events(
    recorded: &Recorded,
    touched: &TouchedPackets,
    twin: Option<&Twin<'_>>,
) -> (Vec<EventRecord>, Vec<Check>) {
    let positions = &recorded.positions;
    let mut of_event: HashMap<u32, Vec<usize>> = HashMap::new();
    for (index, position) in positions.iter().enumerate() {
        for number in position.events() {
            of_event.entry(number).or_default().push(index);
        }
    }
    let none = Vec::new();
    let events = (1..)
        .zip(&recorded.plan.parsed.events)
        .map(|(number, event)| {
            let places = of_event.get(&number).unwrap_or(&none);
            measure(number, event, recorded, places, touched, twin)
        })
        .collect();
    let mut checks: Vec<Check> = positions
        .iter()
        .filter(|position| !position.waits())
        .filter_map(|position| disagreement(position, touched))
        .collect();
    if checks.is_empty() && !positions.is_empty() {
        checks.push(Check {
            what: "the card's slots and the records agree on what fired".to_owned(),
            found: match positions.len() {
                1 => "at the one position".to_owned(),
                n => format!("at all {n} positions"),
            },
            holds: true,
        });
    }
    (events, checks)
}

fn disagreement(position: &PositionRecord, touched: &TouchedPackets) -> Option<Check> {
    let hits = touched.hits(position);
    let seen = hits.len() as u64;
    let fired = hits
        .iter()
        .filter(|hit| position.acts(narrow(hit.iteration)))
        .count() as u64;
    // A record's own count of the position is that of the packets in the capture.
    let miscounted = hits.iter().find(|hit| {
        let record = &hit.ingress.record;
        record.slot == Some(position.slot) && record.iteration != narrow(hit.iteration)
    });
    if (seen, fired) == (position.seen, position.fired) && miscounted.is_none() {
        return None;
    }
    Some(Check {
        what: format!(
            "the card's slot and the records agree on event {}",
            position.event_numbers()
        ),
        found: match miscounted {
            Some(hit) => format!(
                "packet {} {} is the {}. at the position, its record says the {}.",
                hit.ingress.record.packet_id,
                position.direction,
                hit.iteration,
                hit.ingress.record.iteration
            ),
            None => format!(
                "slot {} {}: the card saw {} packets and acted {} times, the records show {seen} and {fired}",
                position.slot, position.direction, position.seen, position.fired
            ),
        },
        holds: false,
    })
}

/// What is shorter is padded with zeros.
const MIN_FRAME: u32 = 60;
/// Firings that are told one by one.
const TOLD: usize = 4;
/// Firings that `run.json` holds of an event.
const KEPT: usize = 1000;

fn measure(
    number: u32,
    event: &Event,
    recorded: &Recorded,
    positions: &[usize],
    touched: &TouchedPackets,
    twin: Option<&Twin<'_>>,
) -> EventRecord {
    let mut hits: Vec<Hit<'_>> = Vec::new();
    let mut seen = 0;
    // Of several positions each has to be seen.
    let mut missed = 0;
    for &index in positions {
        let position = &recorded.positions[index];
        let before = hits.len();
        match twin.filter(|_| position.waits()) {
            Some(twin) => hits.extend(
                twin.acted(index)
                    .filter(|visit| visit.events.contains(&number))
                    .filter_map(|visit| touched.hit(position.direction, visit.packet_id, visit.n)),
            ),
            None => hits.extend(
                touched
                    .hits(position)
                    .into_iter()
                    .filter(|hit| event.iterations.contains(narrow(hit.iteration))),
            ),
        }
        missed += u32::from(hits.len() == before);
        seen += position.seen;
    }
    let rules = recorded.rules.iter().enumerate();
    for (index, rule) in rules.filter(|(_, rule)| rule.event == number) {
        let lane = rule.rule.lane;
        match twin {
            Some(twin) => hits.extend(
                twin.hit(index)
                    .iter()
                    .filter_map(|visit| touched.hit(lane, visit.packet_id, visit.n)),
            ),
            None => hits.extend(
                touched
                    .naming(lane, rule.slot)
                    .iter()
                    .filter_map(|&id| touched.hit(lane, id, 0)),
            ),
        }
        seen += rule.seen;
    }
    // A packet that another event drops comes to nothing else.
    let lost = |hit: &Hit<'_>| hit.ingress.record.actions.contains(Actions::DROP);
    let before = hits.len();
    let happens = event.action == event.action.of_dropped();
    hits.retain(|hit| happens || !lost(hit));
    let dropped = before - hits.len();

    // What all events at its position ask of a packet.
    let whole = |hit: &Hit<'_>| {
        let all = &recorded.plan.parsed.events;
        let actions = events_at(recorded, &hit.ingress.record)
            .iter()
            .filter_map(|number| Some(&all.get(number.checked_sub(1)? as usize)?.action));
        let all = actions
            .cloned()
            .reduce(|all, action| merge::join(&all, &action));
        all.unwrap_or_else(|| event.action.clone())
    };
    let firings: Vec<Firing> = hits
        .iter()
        .map(|hit| firing(event, &whole(hit), hit))
        .collect();
    let done_times = firings
        .iter()
        .filter(|firing| firing.failure.is_none())
        .count() as u32;
    let wanted = wanted(event);
    let failed = firings.len() as u32 != done_times;
    let enough = match wanted {
        Some(wanted) => done_times + dropped as u32 >= wanted,
        None => done_times > 0 && (missed == 0 || event.after.is_some()),
    };
    let done = !failed && enough && done_times > 0;

    let mut told: Vec<String> = Vec::new();
    let whose = match positions {
        [] => "the packets to choose from were",
        [_] => "the position was",
        _ => "the positions were",
    };
    if !done && !failed {
        let seen_times = match (seen, positions.len()) {
            (0, _) => format!("{whose} never seen"),
            (seen, 0) => format!("{whose} {seen}"),
            (seen, _) => format!("{whose} seen {}", times(seen)),
        };
        told.push(match (done_times, wanted) {
            (0, _) => format!("never fired: {seen_times}"),
            (n, Some(wanted)) => format!("fired {n} of {wanted} times: {seen_times}"),
            (n, None) => format!(
                "fired {}, but at {missed} of {} positions never: {seen_times}",
                times(n.into()),
                positions.len()
            ),
        });
    }
    if dropped > 0 {
        told.push(format!("{dropped} more were dropped by other events"));
    }
    told.extend(
        firings
            .iter()
            .filter(|firing| firing.failure.is_some())
            .chain(firings.iter().filter(|firing| firing.failure.is_none()))
            .take(TOLD)
            .map(|firing| tell(event, firing, touched.start_ns)),
    );
    if firings.len() > TOLD {
        told.push(format!(
            "and {} more{}",
            firings.len() - TOLD,
            extremes(&firings)
        ));
    }
    EventRecord {
        number,
        asked: event.to_string(),
        wanted,
        seen,
        fired: done_times,
        done,
        measured: told.join("; "),
        firings: firings.into_iter().take(KEPT).collect(),
    }
}

/// The least and the most of what was measured of many firings, in words.
fn extremes(firings: &[Firing]) -> String {
    let mut text = String::new();
    let signed = |ns: i64| {
        let sign = if ns < 0 { '−' } else { '+' };
        format!("{sign}{}", time(ns.unsigned_abs()))
    };
    let errors = || {
        firings
            .iter()
            .filter_map(|f| f.delay.map(|delay| delay.error_ns))
    };
    if let (Some(least), Some(most)) = (errors().min(), errors().max()) {
        text += &format!(", delay error {} to {}", signed(least), signed(most));
    }
    let places = || {
        firings
            .iter()
            .filter_map(|f| f.moved.map(|moved| moved.places))
    };
    if let (Some(least), Some(most)) = (places().min(), places().max()) {
        text += &format!(", moved back {least} to {most} places");
    }
    let copies = || {
        firings
            .iter()
            .filter_map(|f| f.copies.map(|copies| copies.left))
    };
    if let (Some(least), Some(most)) = (copies().min(), copies().max()) {
        text += &format!(", {least} to {most} copies");
    }
    text
}

fn firing(event: &Event, whole: &Action, hit: &Hit<'_>) -> Firing {
    let Hit {
        ingress,
        egress,
        copies,
        answer,
        iteration,
    } = *hit;
    let asked = &event.action;
    let mut firing = Firing {
        packet_id: ingress.record.packet_id,
        iteration,
        time_ns: ingress.record.time.0,
        left_ns: egress.map(|egress| egress.record.time.0),
        failure: None,
        delay: None,
        moved: None,
        copies: None,
        answer: None,
        ecn: None,
        changed: Vec::new(),
        set: Vec::new(),
        corrupted: None,
        checksums: Vec::new(),
        length: None,
    };
    if let Some(inject) = &asked.inject {
        firing.answer = answer.map(|answer| AnswerMeasure {
            port: answer.record.lane.port_out(),
            left_ns: answer.record.time.0,
            after_ns: answer.record.time.since(ingress.record.time).0,
            length: answer.record.length,
        });
        let proto = inject.transport().map(|transport| match transport {
            Transport::Tcp => Proto::Tcp,
            Transport::Roce => Proto::Roce,
        });
        if proto.is_some_and(|proto| proto != ingress.record.proto) {
            firing.failure = Some(format!(
                "no {} is made of a packet of another transport",
                inject.name()
            ));
        } else if answer.is_none() {
            firing.failure = Some(format!(
                "no {} was sent: too many frames were being made",
                inject.name()
            ));
        } else if whole.inject.as_ref() != Some(inject) {
            firing.failure = Some("another event's frame was sent instead".to_owned());
        }
    }
    if asked.drop {
        if egress.is_some() {
            firing.failure = Some("it left nevertheless".to_owned());
        } else if !ingress.record.actions.contains(Actions::DROP) {
            firing.failure = Some("the record does not show a drop".to_owned());
        }
        return firing;
    }
    if *asked == asked.of_dropped() {
        return firing;
    }
    let Some(egress) = egress else {
        firing.failure = Some("no record shows that it left".to_owned());
        return firing;
    };
    let done = egress.record.actions;
    firing.ecn = ingress.ecn().zip(egress.ecn());
    firing.changed = changed(&ingress.snapshot, &egress.snapshot);
    if let Some(delay) = asked.delay {
        let measured_ns = egress.record.time.since(ingress.record.time).0;
        let asked_ns = delay.as_nanos();
        let error_ns = i64::try_from(i128::from(measured_ns) - i128::from(asked_ns));
        firing.delay = Some(DelayMeasure {
            asked_ns,
            measured_ns,
            error_ns: error_ns.unwrap_or(i64::MAX),
        });
        if !done.contains(Actions::DELAY) {
            firing.failure = Some("it was not delayed: no room to hold it back".to_owned());
        } else if measured_ns < asked_ns {
            firing.failure = Some(format!("it left after {} already", time(measured_ns)));
        }
    }
    if let Some(reorder) = asked.reorder {
        if done.contains(Actions::REORDER) {
            let (asked, places) = (reorder.after, u32::from(egress.record.f2));
            firing.moved = Some(MoveMeasure { asked, places });
            if places < asked {
                let waited = egress.record.time.since(ingress.record.time).0;
                firing.failure = Some(format!(
                    "only {places} of {asked} packets left before it in {}",
                    time(waited)
                ));
            }
        } else {
            firing.failure = Some("it was not reordered: no room to hold it back".to_owned());
        }
    }
    if let Some(duplicate) = asked.duplicate {
        let times = [egress]
            .into_iter()
            .chain(copies)
            .map(|seen| seen.record.time);
        let times: Vec<_> = times.collect();
        let gaps = times.windows(2).map(|pair| pair[1].since(pair[0]).0);
        let left = copies.len() as u32;
        firing.copies = Some(CopiesMeasure {
            asked: duplicate.copies,
            left,
            asked_gap_ns: duplicate.gap.as_nanos(),
            gaps_ns: gaps.clone().min().zip(gaps.max()),
        });
        if left != duplicate.copies {
            let asked = duplicate.copies;
            firing.failure = Some(match left {
                0 => "no copy left: no room to keep it".to_owned(),
                _ => format!("{left} of {asked} copies left"),
            });
        } else if copies.iter().any(|copy| copy.snapshot != egress.snapshot) {
            firing.failure = Some("a copy differs from the packet".to_owned());
        }
    }
    if let Some(failure) = edited(asked, whole, ingress, egress, &mut firing) {
        firing.failure = Some(failure);
    }
    firing
}

/// Measures what changed in the bytes of a packet; what is wrong with that.
fn edited(
    asked: &Action,
    whole: &Action,
    ingress: &Seen,
    egress: &Seen,
    firing: &mut Firing,
) -> Option<String> {
    let done = egress.record.actions;
    let came = Came::new(&ingress.snapshot, ingress.record.length.into());
    let both = |at: usize| {
        Some(ChangedByte {
            offset: at as u32,
            before: *ingress.snapshot.get(at)?,
            after: *egress.snapshot.get(at)?,
        })
    };
    let written = asked.set.iter().flat_map(|set| came.set(set));
    firing.set = written.filter_map(|byte| both(byte.offset)).collect();
    let corrupted = asked.corrupt.and_then(|corrupt| came.corrupt(&corrupt));
    firing.corrupted = corrupted.and_then(both);
    if let Some(bytes) = asked.truncate {
        let (before, after) = (ingress.record.length, egress.record.length);
        firing.length = Some((before, after));
        if !done.contains(Actions::TRUNCATE) {
            return Some(format!("it was not cut: it has {before} bytes"));
        }
        if u32::from(after) != bytes.max(MIN_FRAME) {
            return Some(format!("it left with {after} bytes"));
        }
    }
    if asked.ecn.is_some() && !done.contains(Actions::ECN) {
        return Some("it was not marked: no IP packet".to_owned());
    }
    if asked.set.is_some() && !done.contains(Actions::SET) {
        return Some("it was not set: it has no such header, or ends before it".to_owned());
    }
    if asked.corrupt.is_some() {
        let end = usize::from(ingress.record.length);
        let is_there = corrupted.is_some_and(|at| at < end);
        if !done.contains(Actions::CORRUPT) || !is_there {
            return Some("it was not changed: the byte lies beyond its end".to_owned());
        }
    }
    if let Some(name) = came.lacks(asked) {
        return Some(format!("it has no {name} to break"));
    }
    if !asked.broken.is_none() && !done.contains(Actions::CORRUPT) {
        return Some("no checksum was broken: it is cut off".to_owned());
    }
    if asked.broken.fcs {
        let wrong = egress.record.flags.contains(Flags::ERROR);
        firing.checksums.push(ChecksumMeasure {
            name: ChecksumName::Fcs,
            asked: ChecksumAsked::Broken,
            before: Some(!ingress.record.flags.contains(Flags::ERROR)),
            after: Some(!wrong),
        });
    }
    let changes = asked.set.is_some()
        || asked.corrupt.is_some()
        || asked.ecn.is_some()
        || !asked.broken.is_none();
    if !changes {
        return None;
    }
    // What an event at another position of the packet asks for is not known here.
    if ingress.record.flags.contains(Flags::MULTI) {
        return firing
            .checksums
            .iter()
            .any(|fcs| fcs.after == Some(true))
            .then(|| "its FCS left right".to_owned());
    }
    firing
        .checksums
        .extend(came.checksums(whole, &egress.snapshot));
    let failed = firing
        .checksums
        .iter()
        .find_map(|checksum| match checksum.asked {
            ChecksumAsked::Mended => (checksum.before == Some(true)
                && checksum.after == Some(false))
            .then(|| format!("its {} left wrong", checksum.name)),
            ChecksumAsked::Broken => (checksum.before != Some(false)
                && checksum.after == Some(true))
            .then(|| format!("its {} left right", checksum.name)),
        });
    let differs =
        came.difference(whole, &egress.snapshot)
            .map(|at| match egress.snapshot.get(at) {
                Some(byte) => format!("byte {at} of the frame left as {byte:#04x}"),
                None => format!("byte {at} of the frame did not leave"),
            });
    differs.or(failed)
}

fn tell(event: &Event, firing: &Firing, start_ns: u64) -> String {
    let at = format!("at {}", time(firing.time_ns.saturating_sub(start_ns)));
    if let Some(failure) = &firing.failure {
        return format!("packet {} {at}: {failure}", firing.packet_id);
    }
    let mut parts = Vec::new();
    if event.action.drop {
        parts.push(format!("lost {at}"));
    }
    if let Some(delay) = firing.delay {
        parts.push(format!(
            "left {} later {}",
            time(delay.measured_ns),
            against(delay.measured_ns, delay.asked_ns)
        ));
    }
    if let Some(MoveMeasure { asked, places }) = firing.moved {
        let word = if places == 1 { "place" } else { "places" };
        parts.push(format!("moved back {places} {word} (asked {asked}) {at}"));
    }
    if let Some(copies) = firing.copies
        && let Some((shortest, longest)) = copies.gaps_ns
    {
        let asked = copies.asked_gap_ns;
        // The gap that is furthest from what was asked.
        let gap = match shortest.abs_diff(asked) > longest.abs_diff(asked) {
            true => shortest,
            false => longest,
        };
        let copies = match copies.left {
            1 => "1 copy".to_owned(),
            n => format!("{n} copies"),
        };
        parts.push(format!("{copies} by {} {}", time(gap), against(gap, asked)));
    }
    if let Some(answer) = firing.answer
        && let Some(inject) = &event.action.inject
    {
        let AnswerMeasure {
            port,
            left_ns,
            after_ns,
            ..
        } = answer;
        parts.push(format!(
            "{} sent at port {port} at {}, {} after the packet",
            inject.name(),
            time(left_ns.saturating_sub(start_ns)),
            time(after_ns)
        ));
    }
    if let Some(ecn) = event.action.ecn {
        parts.push(match firing.ecn {
            Some((before, after)) => {
                format!("{} became {} {at}", ecn_name(before), ecn_name(after))
            }
            None => format!("marked {} {at}", ecn_name(ecn as u8)),
        });
    }
    if event.action.set.is_some() {
        parts.push(match &firing.set[..] {
            [] => format!("set behind the snapshot {at}"),
            [byte] => format!("{byte} {at}"),
            [first, .., last] => {
                let hex = |of: fn(&ChangedByte) -> u8| {
                    let bytes = firing.set.iter().map(|byte| format!("{:02x}", of(byte)));
                    bytes.collect::<Vec<_>>().join(" ")
                };
                format!(
                    "bytes {} to {} of the frame {} became {} {at}",
                    first.offset,
                    last.offset,
                    hex(|byte| byte.before),
                    hex(|byte| byte.after)
                )
            }
        });
    }
    if event.action.corrupt.is_some() {
        parts.push(match firing.corrupted {
            Some(byte) => format!("{byte} {at}"),
            None => format!("changed behind the snapshot {at}"),
        });
    }
    if let Some((before, after)) = firing.length {
        parts.push(format!("cut from {before} to {after} bytes {at}"));
    }
    // What ECN changes is made good without being asked for.
    let told = event.action.set.is_some() || event.action.corrupt.is_some();
    for (asked, after, word) in [
        (ChecksumAsked::Broken, false, "wrong"),
        (ChecksumAsked::Mended, true, "right"),
    ] {
        let names: Vec<_> = firing
            .checksums
            .iter()
            .filter(|checksum| (checksum.asked, checksum.after) == (asked, Some(after)))
            .map(|checksum| checksum.name.to_string())
            .collect();
        if !names.is_empty() && (told || asked == ChecksumAsked::Broken) {
            parts.push(format!("{} {word} {at}", names.join(" and ")));
        }
    }
    if parts.is_empty() {
        parts.push(format!("happened {at}"));
    }
    parts.join(", ")
}

/// `(asked 5 ms, +3 ns)`
fn against(measured_ns: u64, asked_ns: u64) -> String {
    format!(
        "(asked {}, {}{})",
        Duration(asked_ns).for_people(),
        if measured_ns < asked_ns { '−' } else { '+' },
        time(measured_ns.abs_diff(asked_ns))
    )
}

/// RFC 3168, section 5.
fn ecn_name(field: u8) -> &'static str {
    match field {
        0 => "Not-ECT",
        1 => "ECT(1)",
        2 => "ECT(0)",
        _ => "CE",
    }
}

fn changed(before: &[u8], after: &[u8]) -> Vec<ChangedByte> {
    (0..)
        .zip(before.iter().zip(after))
        .filter(|(_, (before, after))| before != after)
        .map(|(offset, (&before, &after))| ChangedByte {
            offset,
            before,
            after,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::merge::Position;
    use crate::plan::Kind;
    use crate::run_file::ClauseRecord;
    use crate::triggers::Gate;
    use midwire_trace::Nanos;
    use midwire_trace::build::{Path, TcpSegment, tcp};
    use midwire_trace::packet::tcp_flags;

    const SLOT: u32 = 7;

    fn event(action: &str) -> Event {
        let text = format!("{{direction: a-to-b, packet: 5, iterations: 1-2, action: {action}}}");
        serde_saphyr::from_str(&text).unwrap()
    }

    fn frame(ecn: u8) -> Vec<u8> {
        let mut frame = vec![0; 64];
        // IPv4 of 50 bytes with a protocol for experiments.
        frame[12..18].copy_from_slice(&[0x08, 0x00, 0x45, ecn, 0, 50]);
        frame[22..24].copy_from_slice(&[64, 253]);
        frame
    }

    fn seen(
        packet_id: u32,
        iteration: u8,
        tap: Tap,
        ns: u64,
        actions: Actions,
        frame: &[u8],
    ) -> Seen {
        let record = Record {
            time: Nanos(ns),
            lane: Lane::AtoB,
            tap,
            packet_id,
            iteration,
            slot: Some(SLOT),
            actions,
            length: frame.len() as u16,
            ..Record::default()
        };
        Seen {
            record,
            snapshot: frame.to_vec(),
        }
    }

    fn packets(all: Vec<(Seen, Option<Seen>)>) -> TouchedPackets {
        let packets = all.into_iter().map(|(ingress, egress)| {
            let key = (Lane::AtoB, ingress.record.packet_id);
            (
                key,
                Touched {
                    ingress: Some(ingress),
                    egress,
                    copies: Vec::new(),
                    answer: None,
                },
            )
        });
        TouchedPackets::of(packets.collect(), 1_000)
    }

    fn position(seen: u64, fired: u64) -> PositionRecord {
        PositionRecord {
            direction: Lane::AtoB,
            slot: SLOT,
            connection: 0,
            at: Position::Packet(Kind::Data, 5),
            clauses: vec![ClauseRecord {
                first: 1,
                last: 2,
                gate: Gate::default(),
                events: vec![1],
            }],
            seen,
            fired,
            last_packet_id: None,
        }
    }

    fn measured(action: &str, all: Vec<(Seen, Option<Seen>)>) -> EventRecord {
        let n = all.len() as u64;
        measured_at(action, position(n, n.min(2)), &packets(all))
    }

    fn measured_at(
        action: &str,
        position: PositionRecord,
        packets: &TouchedPackets,
    ) -> EventRecord {
        let mut recorded = Recorded {
            positions: vec![position],
            ..fixture::recorded()
        };
        let event = event(action);
        recorded.plan.parsed.events = vec![event.clone()];
        measure(1, &event, &recorded, &[0], packets, None)
    }

    #[test]
    fn a_drop_leaves_no_egress_record() {
        let drop = |id, n| seen(id, n, Tap::Ingress, 5_000, Actions::DROP, &frame(2));
        let all = || {
            vec![
                (drop(10, 1), None),
                (drop(20, 2), None),
                (drop(30, 3), None),
            ]
        };
        let record = measured("drop", all());
        assert!(record.done, "{record:?}");
        assert_eq!(
            (record.wanted, record.fired, record.firings.len()),
            (Some(2), 2, 2)
        );
        assert_eq!(record.measured, "lost at 4000 ns; lost at 4000 ns");

        let mut all = all();
        all[1].1 = Some(seen(20, 2, Tap::Egress, 6_000, Actions(0), &frame(2)));
        let record = measured("drop", all);
        assert!(
            !record.done
                && record
                    .measured
                    .contains("packet 20 at 4000 ns: it left nevertheless")
        );
    }

    #[test]
    fn an_event_has_to_fire_as_often_as_asked() {
        let drop = seen(10, 1, Tap::Ingress, 5_000, Actions::DROP, &frame(2));
        let record = measured("drop", vec![(drop, None)]);
        assert!(!record.done);
        assert!(
            record
                .measured
                .starts_with("fired 1 of 2 times: the position was seen once")
        );
        let record = measured("drop", vec![]);
        assert!(!record.done);
        assert_eq!(record.measured, "never fired: the position was never seen");
    }

    #[test]
    fn a_delay_is_measured_from_beat_to_beat() {
        let packet = |id, n, left, done| {
            (
                seen(id, n, Tap::Ingress, 5_000, Actions::DELAY, &frame(2)),
                Some(seen(id, n, Tap::Egress, left, done, &frame(2))),
            )
        };
        let (good, early) = (1_005_012, 900_000);
        let all = vec![
            packet(1, 1, good, Actions::DELAY),
            packet(2, 2, good, Actions::DELAY),
        ];
        let record = measured("{delay: 1ms}", all);
        assert!(record.done);
        let delay = record.firings[0].delay.unwrap();
        assert_eq!(
            (delay.asked_ns, delay.measured_ns, delay.error_ns),
            (1_000_000, 1_000_012, 12)
        );
        assert!(
            record.measured.contains("(asked 1 ms, +12 ns)"),
            "{}",
            record.measured
        );
        for (left, done) in [(early, Actions::DELAY), (good, Actions(0))] {
            let all = vec![packet(1, 1, good, Actions::DELAY), packet(2, 2, left, done)];
            assert!(!measured("{delay: 1ms}", all).done);
        }
    }

    #[test]
    fn a_packet_moves_as_far_as_others_left_before_it() {
        let packet = |id, n, places, done| {
            let ingress = seen(id, n, Tap::Ingress, 5_000, Actions::REORDER, &frame(2));
            let mut egress = seen(id, n, Tap::Egress, 105_000, done, &frame(2));
            egress.record.f2 = places;
            (ingress, Some(egress))
        };
        let all = |second| vec![packet(1, 1, 3, Actions::REORDER), second];
        let record = measured("{reorder: 3}", all(packet(2, 2, 4, Actions::REORDER)));
        assert!(record.done, "{record:?}");
        let (asked, places) = (3, 4);
        assert_eq!(record.firings[1].moved, Some(MoveMeasure { asked, places }));
        assert!(
            record
                .measured
                .ends_with("moved back 4 places (asked 3) at 4000 ns"),
            "{}",
            record.measured
        );
        let record = measured("{reorder: 3}", all(packet(2, 2, 1, Actions::REORDER)));
        assert!(
            !record.done
                && record
                    .measured
                    .contains("only 1 of 3 packets left before it in 100.0"),
            "{}",
            record.measured
        );
        assert!(!measured("{reorder: 3}", all(packet(2, 2, 0, Actions(0)))).done);
    }

    #[test]
    fn copies_are_counted_and_compared() {
        let packet = |id, n| {
            (
                seen(id, n, Tap::Ingress, 5_000, Actions::DUPLICATE, &frame(2)),
                Some(seen(id, n, Tap::Egress, 5_100, Actions(0), &frame(2))),
            )
        };
        let copy = |ns, frame: &[u8]| seen(1, 1, Tap::Egress, ns, Actions::DUPLICATE, frame);
        let measured = |first: Vec<Seen>| {
            let mut packets = packets(vec![packet(1, 1), packet(2, 2)]);
            packets.packets.get_mut(&(Lane::AtoB, 1)).unwrap().copies = first;
            let last = vec![copy(15_100, &frame(2)), copy(25_100, &frame(2))];
            packets.packets.get_mut(&(Lane::AtoB, 2)).unwrap().copies = last;
            measured_at(
                "{duplicate: {copies: 2, gap: 10us}}",
                position(2, 2),
                &packets,
            )
        };
        let record = measured(vec![copy(15_103, &frame(2)), copy(25_108, &frame(2))]);
        assert!(record.done, "{record:?}");
        assert_eq!(
            record.firings[0].copies.unwrap().gaps_ns,
            Some((10_003, 10_005))
        );
        assert!(
            record
                .measured
                .contains("2 copies by 10.0 µs (asked 10 µs, +5 ns)"),
            "{}",
            record.measured
        );
        let record = measured(vec![copy(15_103, &frame(2))]);
        assert!(!record.done && record.measured.contains("1 of 2 copies left"));
        let record = measured(vec![copy(15_103, &frame(2)), copy(25_108, &frame(1))]);
        assert!(!record.done && record.measured.contains("a copy differs"));
        assert!(!measured(vec![]).done);
    }

    #[test]
    fn a_mark_and_a_change_are_seen_in_the_snapshots() {
        let packet = |id, n, before: &[u8], after: &[u8], done| {
            (
                seen(id, n, Tap::Ingress, 5_000, done, before),
                Some(seen(id, n, Tap::Egress, 5_100, done, after)),
            )
        };
        let marked = |after: u8| {
            let first = packet(1, 1, &frame(2), &frame(3), Actions::ECN);
            vec![first, packet(2, 2, &frame(0), &frame(after), Actions::ECN)]
        };
        let record = measured("ecn", marked(3));
        assert!(record.done);
        assert_eq!(
            record.measured,
            "ECT(0) became CE at 4000 ns; Not-ECT became CE at 4000 ns"
        );
        assert!(!measured("ecn", marked(0)).done);

        let mut broken = frame(0);
        broken[60] ^= 0x10;
        let corrupted = |mask| {
            let all = vec![
                packet(1, 1, &frame(0), &broken, Actions::CORRUPT),
                packet(2, 2, &frame(0), &broken, Actions::CORRUPT),
            ];
            measured(
                &format!("{{corrupt: {{at: frame, offset: 60, mask: {mask}}}}}"),
                all,
            )
        };
        let record = corrupted("0x10");
        assert!(record.done);
        assert_eq!(
            record.firings[0].changed,
            [ChangedByte {
                offset: 60,
                before: 0,
                after: 0x10
            }]
        );
        assert!(
            record
                .measured
                .starts_with("byte 60 of the frame 0x00 became 0x10")
        );
        assert!(!corrupted("0x11").done);
    }

    /// A segment with right checksums, in IPv4 or IPv6.
    fn segment(ip6: bool) -> Vec<u8> {
        let path = if ip6 {
            Path::ipv6(40_000, 5001)
        } else {
            Path::ipv4(40_000, 5001)
        };
        let segment = TcpSegment {
            flags: tcp_flags::ACK,
            window: 0x1234,
            ..TcpSegment::default()
        };
        tcp(&path, &segment, b"payload")
    }

    /// What is measured of two packets that came as one of these and left as the other.
    fn edited(action: &str, done: Actions, came: &[u8], left: &[u8]) -> EventRecord {
        let packet = |id, n| {
            (
                seen(id, n, Tap::Ingress, 5_000, done, came),
                Some(seen(id, n, Tap::Egress, 5_100, done, left)),
            )
        };
        measured(action, vec![packet(1, 1), packet(2, 2)])
    }

    #[test]
    fn set_fields_and_mended_checksums_are_looked_for_where_they_stand() {
        // By hand: the window is 0x1234 and becomes 0, so the checksum grows by as much.
        let came = segment(false);
        let mut left = came.clone();
        left[48..50].fill(0);
        let checksum = u16::from_be_bytes([came[50], came[51]]);
        let (sum, carry) = checksum.overflowing_add(0x1234);
        let mended = sum + u16::from(carry);
        left[50..52].copy_from_slice(&mended.to_be_bytes());
        let record = edited("{set: {tcp-window: 0}}", Actions::SET, &came, &left);
        assert!(record.done, "{record:?}");
        assert!(
            record.measured.starts_with(
                "bytes 48 to 49 of the frame 12 34 became 00 00 at 4000 ns, IP checksum and L4 checksum right"
            ),
            "{}",
            record.measured
        );

        let mut stale = left.clone();
        stale[50..52].copy_from_slice(&came[50..52]);
        let wrong = |action: &str, left: &[u8], why: &str| {
            let record = edited(action, Actions::SET, &came, left);
            assert!(
                !record.done && record.measured.contains(why),
                "{}",
                record.measured
            );
        };
        wrong(
            "{set: {tcp-window: 0}}",
            &stale,
            "its L4 checksum left wrong",
        );
        wrong(
            "{set: {tcp-window: 1}}",
            &left,
            "byte 49 of the frame left as 0x00",
        );
        let record = edited(
            "{set: {tcp-window: 0, mend: none}}",
            Actions::SET,
            &came,
            &stale,
        );
        assert!(record.done, "{}", record.measured);
        let record = edited("{set: {tcp-window: 0}}", Actions(0), &came, &came);
        assert!(
            record.measured.contains("it was not set"),
            "{}",
            record.measured
        );
    }

    #[test]
    fn fields_of_ip_stand_elsewhere_in_ipv6() {
        // RFC 791 and RFC 8200: TTL byte 8 or 7; DSCP the upper six bits of byte 1, or of the
        // eight that begin with the lower half of byte 0.
        let set = |ip6: bool, change: &dyn Fn(&mut [u8])| {
            let came = segment(ip6);
            let mut left = came.clone();
            change(&mut left[14..]);
            (came, left)
        };
        for (action, (came, left)) in [
            ("{set: {ttl: 1, mend: none}}", set(false, &|ip| ip[8] = 1)),
            ("{set: {ttl: 1}}", set(true, &|ip| ip[7] = 1)),
            (
                "{set: {dscp: 46, mend: none}}",
                set(false, &|ip| ip[1] = ip[1] & 3 | 46 << 2),
            ),
            (
                "{set: {dscp: 46}}",
                set(true, &|ip| {
                    ip[0] = 0x60 | 46 >> 2;
                    ip[1] = ip[1] & 0x3f | (46 & 3) << 6;
                }),
            ),
        ] {
            let record = edited(action, Actions::SET, &came, &left);
            assert!(record.done, "{action}: {}", record.measured);
            assert!(!edited(action, Actions::SET, &came, &came).done, "{action}");
        }
    }

    #[test]
    fn broken_checksums_and_cut_frames_are_seen() {
        let came = segment(false);
        let mut left = came.clone();
        left[50] ^= 0x55;
        let record = edited("{break: l4}", Actions::CORRUPT, &came, &left);
        assert!(record.done, "{}", record.measured);
        assert!(
            record.measured.starts_with("L4 checksum wrong at 4000 ns"),
            "{}",
            record.measured
        );
        for (action, left, why) in [
            ("{break: l4}", &came, "its L4 checksum left right"),
            ("{break: icrc}", &left, "it has no ICRC to break"),
            ("{break: fcs}", &came, "its FCS left right"),
            ("{truncate: 1000}", &came, "it left with"),
        ] {
            let done = Actions::CORRUPT | Actions::TRUNCATE;
            let record = edited(action, done, &came, left);
            assert!(
                !record.done && record.measured.contains(why),
                "{}",
                record.measured
            );
        }
        let mut cut = came.clone();
        cut.truncate(60);
        let record = edited("{truncate: 40}", Actions::TRUNCATE, &came, &cut);
        assert!(record.done, "{}", record.measured);
        assert!(
            record.measured.starts_with("cut from 61 to 60 bytes"),
            "{}",
            record.measured
        );
        let record = edited("{truncate: 61}", Actions(0), &came, &came);
        assert!(
            record.measured.contains("it was not cut: it has 61 bytes"),
            "{}",
            record.measured
        );
    }

    #[test]
    fn a_packet_at_two_positions_counts_at_both() {
        let mut packets = packets(vec![
            (
                seen(1, 1, Tap::Ingress, 5_000, Actions::DROP, &frame(2)),
                None,
            ),
            (
                seen(2, 1, Tap::Ingress, 6_000, Actions::DROP, &frame(2)),
                None,
            ),
        ]);
        // The second names another slot, and says that there was one more.
        let second = packets.packets.get_mut(&(Lane::AtoB, 2)).unwrap();
        let record = &mut second.ingress.as_mut().unwrap().record;
        (record.slot, record.flags, record.connection) = (Some(SLOT + 1), Flags::MULTI, Some(0));
        let packets = TouchedPackets::of(packets.packets, packets.start_ns);
        assert_eq!(disagreement(&position(2, 2), &packets), None);
        let record = measured_at("drop", position(2, 2), &packets);
        assert!(
            record.done && record.firings[1].packet_id == 2,
            "{record:?}"
        );
        // Of one packet more it can't be told which it was.
        assert!(disagreement(&position(3, 2), &packets).is_some());
    }

    #[test]
    fn a_record_that_miscounts_its_position_is_told() {
        let drop = |id, n| {
            (
                seen(id, n, Tap::Ingress, 5_000, Actions::DROP, &frame(2)),
                None,
            )
        };
        let check = disagreement(&position(2, 2), &packets(vec![drop(1, 1), drop(2, 3)])).unwrap();
        assert!(
            check.found.contains("packet 2 a-to-b is the 2."),
            "{check:?}"
        );
    }

    #[test]
    fn slots_and_records_must_agree() {
        let drop = |id, n| {
            (
                seen(id, n, Tap::Ingress, 5_000, Actions::DROP, &frame(2)),
                None,
            )
        };
        let all = packets(vec![drop(1, 1), drop(2, 2), drop(3, 3)]);
        assert_eq!(disagreement(&position(3, 2), &all), None);
        for (seen, fired) in [(4, 2), (3, 3), (0, 0)] {
            let check = disagreement(&position(seen, fired), &all).unwrap();
            assert!(!check.holds && check.what.ends_with("event 1"), "{check:?}");
        }
    }
}
