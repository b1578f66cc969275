// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What became of each event, from the records of the packets that it touched.
//!
//! That an event fired is told twice, by the card's slot and by the records. Both are counted
//! here, and where they differ the run can't be trusted.

use std::collections::BTreeMap;

use midwire_analysis::report::Check;
use midwire_trace::packet::Packet;
use midwire_trace::{Actions, Capture, Flags, Lane, Record, Tap};

use crate::plan::{Duration, Event, Iterations, Plan};
use crate::run_file::{
    ChangedByte, CopiesMeasure, DelayMeasure, EventRecord, Firing, MoveMeasure, PositionRecord,
};
use crate::text::time;

/// A packet that hit a slot.
#[derive(Debug, Default)]
struct Touched {
    ingress: Option<Seen>,
    egress: Option<Seen>,
    copies: Vec<Seen>,
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
    /// The n-th at this position; saturates like the records do.
    iteration: u8,
}

/// Packets that hit a slot, and the time of the first record.
#[derive(Debug, Default)]
pub(crate) struct TouchedPackets {
    packets: BTreeMap<(Lane, u32), Touched>,
    start_ns: u64,
}

impl TouchedPackets {
    /// Reads the capture as far as it can be read.
    pub fn read(capture: &Capture) -> TouchedPackets {
        let mut touched = TouchedPackets {
            start_ns: u64::MAX,
            ..TouchedPackets::default()
        };
        let mut entries = capture.entries();
        while let Some(entry) = entries.next_entry() {
            let record = entry.record;
            touched.start_ns = touched.start_ns.min(record.time.0);
            if record.slot.is_none() && record.tap == Tap::Ingress {
                continue;
            }
            let packet = touched
                .packets
                .entry((record.lane, record.packet_id))
                .or_default();
            let seen = Seen {
                record,
                snapshot: entry.snapshot.to_vec(),
            };
            match record.tap {
                Tap::Ingress => packet.ingress = Some(seen),
                Tap::Egress if record.actions.contains(Actions::DUPLICATE) => {
                    packet.copies.push(seen);
                }
                Tap::Egress => packet.egress = Some(seen),
            }
        }
        touched
    }

    /// Packets at a position, in their order.
    ///
    /// A packet that is at two positions names only one of them in its record. Where a slot saw
    /// as many packets more as there are such ones, these are they.
    fn hits(&self, position: &PositionRecord) -> Vec<Hit<'_>> {
        let at = position.direction;
        let packets = || {
            self.packets
                .range((at, 0)..=(at, u32::MAX))
                .filter_map(|(_, touched)| Some((touched.ingress.as_ref()?, touched)))
        };
        let named = |seen: &Seen| seen.record.slot == Some(position.slot);
        let hidden = |seen: &Seen| {
            !named(seen)
                && seen.record.flags.contains(Flags::MULTI)
                && seen.record.connection.map(u32::from) == Some(position.connection)
        };
        let count = |wanted: &dyn Fn(&Seen) -> bool| {
            packets().filter(|(ingress, _)| wanted(ingress)).count() as u64
        };
        let missing = position.seen.saturating_sub(count(&named));
        let take_hidden = missing > 0 && missing == count(&hidden);
        packets()
            .filter(|(ingress, _)| named(ingress) || take_hidden && hidden(ingress))
            .zip(1_u64..)
            .map(|((ingress, touched), n)| Hit {
                ingress,
                egress: touched.egress.as_ref(),
                copies: &touched.copies,
                iteration: u8::try_from(n).unwrap_or(u8::MAX),
            })
            .collect()
    }
}

impl TouchedPackets {
    /// Packets at a position on which the card should have acted by its own count.
    pub fn acted_on(&self, position: &PositionRecord) -> Vec<u32> {
        let hits = self.hits(position).into_iter();
        hits.filter(|hit| position.acts(hit.iteration))
            .map(|hit| hit.ingress.record.packet_id)
            .collect()
    }
}

/// Each event of the plan, and the checks that slots and records agree.
pub(crate) fn events(
    plan: &Plan,
    positions: &[PositionRecord],
    touched: &TouchedPackets,
) -> (Vec<EventRecord>, Vec<Check>) {
    let events = (1..)
        .zip(&plan.events)
        .map(|(number, event)| measure(number, event, positions, touched))
        .collect();
    let mut checks: Vec<Check> = positions
        .iter()
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
        .filter(|hit| position.acts(hit.iteration))
        .count() as u64;
    // A record's own count of the position is that of the packets in the capture.
    let miscounted = hits.iter().find(|hit| {
        let record = &hit.ingress.record;
        record.slot == Some(position.slot) && record.iteration != hit.iteration
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

/// Firings that are told one by one.
const TOLD: usize = 4;

fn measure(
    number: u32,
    event: &Event,
    positions: &[PositionRecord],
    touched: &TouchedPackets,
) -> EventRecord {
    let position = positions.iter().find(|position| {
        position
            .clauses
            .iter()
            .any(|clause| clause.events.contains(&number))
    });
    let firings: Vec<Firing> = position
        .into_iter()
        .flat_map(|position| touched.hits(position))
        .filter(|hit| event.iterations.contains(hit.iteration))
        .map(|hit| firing(event, &hit))
        .collect();
    let seen = position.map_or(0, |position| position.seen);
    let done_times = firings
        .iter()
        .filter(|firing| firing.failure.is_none())
        .count() as u32;
    let open = event
        .iterations
        .ranges()
        .iter()
        .any(|range| range.last == Iterations::END);
    let closed: u32 = event
        .iterations
        .ranges()
        .iter()
        .filter(|range| range.last != Iterations::END)
        .map(|range| u32::from(range.last - range.first) + 1)
        .sum();
    let failed = firings.len() as u32 != done_times;
    let done = !failed && done_times >= closed + u32::from(open);

    let mut told: Vec<String> = Vec::new();
    if !done && !failed {
        told.push(match (seen, done_times) {
            (0, _) => "never fired: the position was never seen".to_owned(),
            (seen, 0) => format!("never fired: the position was seen {}", times(seen)),
            (seen, n) => format!(
                "fired {n} of {} times: the position was seen {}",
                closed + u32::from(open),
                times(seen)
            ),
        });
    }
    told.extend(
        firings
            .iter()
            .take(TOLD)
            .map(|firing| tell(event, firing, touched.start_ns)),
    );
    if firings.len() > TOLD {
        told.push(format!("and {} more", firings.len() - TOLD));
    }
    EventRecord {
        number,
        asked: event.to_string(),
        wanted: (!open).then_some(closed),
        seen,
        fired: done_times,
        done,
        measured: told.join("; "),
        firings,
    }
}

fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    }
}

fn firing(event: &Event, hit: &Hit<'_>) -> Firing {
    let Hit {
        ingress,
        egress,
        copies,
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
        ecn: None,
        changed: Vec::new(),
    };
    if asked.drop {
        if egress.is_some() {
            firing.failure = Some("it left nevertheless".to_owned());
        } else if !ingress.record.actions.contains(Actions::DROP) {
            firing.failure = Some("the record does not show a drop".to_owned());
        }
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
    if asked.ecn {
        let left_as_ce = firing.ecn.is_none_or(|(_, after)| after == 3);
        if !done.contains(Actions::ECN) || !left_as_ce {
            firing.failure = Some("it was not marked: no IP packet".to_owned());
        }
    }
    if let Some(corrupt) = asked.corrupt {
        let whole = usize::from(ingress.record.length) <= ingress.snapshot.len();
        let flipped = firing
            .changed
            .iter()
            .any(|byte| byte.before ^ byte.after == corrupt.mask);
        if !done.contains(Actions::CORRUPT) || (whole && !flipped) {
            firing.failure = Some("it was not changed: the byte lies beyond its end".to_owned());
        }
    }
    firing
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
    if event.action.ecn {
        parts.push(match firing.ecn {
            Some((before, _)) => format!("{} became CE {at}", ecn_name(before)),
            None => format!("marked CE {at}"),
        });
    }
    if let Some(corrupt) = event.action.corrupt {
        let byte = firing
            .changed
            .iter()
            .find(|byte| byte.before ^ byte.after == corrupt.mask);
        parts.push(match byte {
            Some(ChangedByte {
                offset,
                before,
                after,
            }) => {
                format!("byte {offset} of the frame {before:#04x} became {after:#04x} {at}")
            }
            None => format!("changed behind the snapshot {at}"),
        });
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
    use crate::run_file::ClauseRecord;
    use midwire_trace::Nanos;

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
                },
            )
        });
        TouchedPackets {
            packets: packets.collect(),
            start_ns: 1_000,
        }
    }

    fn position(seen: u64, fired: u64) -> PositionRecord {
        PositionRecord {
            direction: Lane::AtoB,
            slot: SLOT,
            connection: 0,
            clauses: vec![ClauseRecord {
                first: 1,
                last: 2,
                events: vec![1],
            }],
            seen,
            fired,
            last_packet_id: None,
        }
    }

    fn measured(action: &str, all: Vec<(Seen, Option<Seen>)>) -> EventRecord {
        let n = all.len() as u64;
        measure(1, &event(action), &[position(n, n.min(2))], &packets(all))
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
            let event = event("{duplicate: {copies: 2, gap: 10us}}");
            measure(1, &event, &[position(2, 2)], &packets)
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
        let positions = [position(2, 2)];
        assert_eq!(disagreement(&positions[0], &packets), None);
        let record = measure(1, &event("drop"), &positions, &packets);
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
