// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which packets the events should have touched, worked out in software from every record, and
//! held against those that the card touched.

use std::collections::{BTreeMap, HashMap};

use midwire_analysis::report::Check;
use midwire_trace::identity::Identifier;
use midwire_trace::{Capture, Flags, Kind, Lane, Tap};

use crate::compile::packet_kind;
use crate::measure::TouchedPackets;
use crate::merge::{Position, PositionKey};
use crate::plan::Plan;
use crate::run_file::PositionRecord;

/// One direction of a connection.
type Way = (u32, Lane);

/// Positions that are looked for, as indices.
#[derive(Default)]
struct Wanted {
    numbered: HashMap<(Way, Kind, i64), usize>,
    bytes: HashMap<Way, BTreeMap<i64, usize>>,
}

/// Packets that should have been at each position, in their order.
#[derive(Debug, Default, Clone)]
struct Expected {
    packets: Vec<u32>,
    /// Packets that the matcher let pass without look-up.
    unmatched: Vec<u32>,
}

fn wanted(plan: &Plan, positions: &[PositionRecord]) -> Wanted {
    let mut wanted = Wanted::default();
    for (index, record) in positions.iter().enumerate() {
        let event = record
            .clauses
            .first()
            .and_then(|clause| clause.events.first());
        let event = event.and_then(|&number| plan.events.get(number.checked_sub(1)? as usize));
        let Some(key) = event.and_then(PositionKey::of) else {
            continue;
        };
        let way = (key.connection, key.direction);
        match key.position {
            Position::Packet(kind, n) => {
                wanted
                    .numbered
                    .insert((way, packet_kind(kind), n.into()), index);
            }
            Position::Byte(byte) => {
                let byte = i64::try_from(byte).unwrap_or(i64::MAX);
                wanted.bytes.entry(way).or_default().insert(byte, index);
            }
            Position::Psn(psn) => {
                for kind in [Kind::Data, Kind::ReadRequest] {
                    wanted.numbered.insert((way, kind, psn.into()), index);
                }
            }
        }
    }
    wanted
}

/// Names every packet of the capture, and notes those at the positions.
fn expected(plan: &Plan, positions: &[PositionRecord], capture: &Capture) -> Vec<Expected> {
    let wanted = wanted(plan, positions);
    let mut expected = vec![Expected::default(); positions.len()];
    let mut identifier = Identifier::new();
    let mut entries = capture.by_time();
    while let Some(entry) = entries.next_entry() {
        let record = &entry.record;
        if record.tap != Tap::Ingress {
            continue;
        }
        let Some(identity) = identifier.record(record) else {
            continue;
        };
        let way = (identity.connection, record.lane);
        let numbered = identity
            .places
            .iter()
            .filter_map(|place| wanted.numbered.get(&(way, place.kind, place.position)));
        let bytes = identity
            .byte
            .filter(|_| identity.kind == Kind::Data)
            .and_then(|from| {
                let all = wanted.bytes.get(&way)?;
                Some(
                    all.range(from..from + i64::from(identity.len))
                        .map(|(_, index)| index),
                )
            });
        for &index in numbered.chain(bytes.into_iter().flatten()) {
            expected[index].packets.push(record.packet_id);
            if record.flags.contains(Flags::UNMATCHED) {
                expected[index].unmatched.push(record.packet_id);
            }
        }
    }
    expected
}

/// Whether the card touched what it should have touched, and nothing else.
pub(crate) fn check(
    plan: &Plan,
    positions: &[PositionRecord],
    capture: &Capture,
    touched: &TouchedPackets,
) -> Vec<Check> {
    let expected = expected(plan, positions, capture);
    let mut checks: Vec<Check> = positions
        .iter()
        .zip(&expected)
        .filter_map(|(position, expected)| {
            let should: Vec<u32> = expected
                .packets
                .iter()
                .zip(1_u64..)
                .filter(|(_, n)| position.acts(u8::try_from(*n).unwrap_or(u8::MAX)))
                .map(|(&packet, _)| packet)
                .collect();
            let did = touched.acted_on(position);
            difference(position, &should, &did, &expected.unmatched)
        })
        .collect();
    if checks.is_empty() && !positions.is_empty() {
        checks.push(Check {
            what: "the card acted on the packets that software finds from the records".to_owned(),
            found: "all and no other".to_owned(),
            holds: true,
        });
    }
    checks
}

fn difference(
    position: &PositionRecord,
    should: &[u32],
    did: &[u32],
    unmatched: &[u32],
) -> Option<Check> {
    if should == did {
        return None;
    }
    let list = |packets: Vec<&u32>| match packets.as_slice() {
        [] => "none".to_owned(),
        packets => packets
            .iter()
            .take(5)
            .map(|p| p.to_string())
            .collect::<Vec<_>>()
            .join(", "),
    };
    let missed = should
        .iter()
        .filter(|packet| !did.contains(packet))
        .collect();
    let besides = did
        .iter()
        .filter(|packet| !should.contains(packet))
        .collect();
    let mut found = format!(
        "packets {} missed: {}, touched besides: {}",
        position.direction,
        list(missed),
        list(besides)
    );
    if !unmatched.is_empty() {
        found += "; the matcher was overloaded";
    }
    Some(Check {
        what: format!(
            "the card acted on the right packets for event {}",
            position.event_numbers()
        ),
        found,
        holds: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use midwire_driver::SlotId;
    use midwire_trace::{Actions, BlockBuilder, Nanos, Proto, Record};

    const PLAN: &str = "\
version: 1
name: x
endpoints: {a: {pcap: {in: f}}, b: {pcap: {}}}
events:
  - {direction: a-to-b, packet: 2, iterations: 1-2, action: drop}
  - {direction: a-to-b, byte: 250, iterations: 2, action: ecn}
  - {direction: a-to-b, kind: any, packet: 1, action: {delay: 1us}}
";

    /// SYN, then segments of 100 bytes by their first bytes; 100 is sent three times.
    const BYTES: [u32; 6] = [0, 100, 200, 100, 100, 200];

    /// What the card did to each packet: slot and iteration.
    type Done = [Option<(u32, u8)>; 7];

    fn checks(done: Done, flags: Flags) -> Vec<Check> {
        let plan = Plan::parse("x", PLAN).unwrap();
        let compiled = compile(&plan);
        let slots: Vec<SlotId> = (0..3)
            .map(|slot| SlotId {
                lane: Lane::AtoB,
                slot,
            })
            .collect();
        let mut positions = compiled.records(&slots);
        let mut block = BlockBuilder::new(4096, 0).unwrap();
        for (id, what) in (0..).zip(done) {
            let isn = 0xffff_ff80; // the numbers wrap within the stream
            let (seq, flag, len) = match id {
                0 => (isn, 0x02, 0),
                n => (BYTES[n as usize - 1].wrapping_add(isn + 1), 0x10, 100),
            };
            let mut record = Record {
                time: Nanos(u64::from(id) * 1_000),
                proto: Proto::Tcp,
                kind: if id == 0 { Kind::Syn } else { Kind::Data },
                connection: Some(0),
                packet_id: id,
                f0: seq,
                tcp_flags: flag,
                payload_len: len,
                ..Record::default()
            };
            if let Some((slot, iteration)) = what {
                (record.slot, record.iteration, record.actions) =
                    (Some(slot), iteration, Actions::DROP);
                positions[slot as usize].seen += 1;
            } else {
                record.flags = flags;
            }
            assert!(block.push(record, None));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), block.finish(true, Nanos(0))).unwrap();
        let capture = Capture::open(file.path()).unwrap();
        let touched = TouchedPackets::read(&capture);
        check(&plan, &positions, &capture, &touched)
    }

    /// Positions are sorted: packet 2 of data, packet 1 of any, byte 250.
    const RIGHT: Done = [
        Some((1, 1)),
        None,
        Some((0, 1)),
        Some((2, 1)),
        Some((0, 2)),
        Some((0, 3)),
        Some((2, 2)),
    ];

    #[test]
    fn what_the_card_does_right_is_confirmed() {
        let checks = checks(RIGHT, Flags(0));
        assert_eq!(checks.len(), 1);
        assert!(checks[0].holds, "{checks:?}");
    }

    #[test]
    fn a_packet_that_was_missed_or_touched_wrongly_is_named() {
        let mut done = RIGHT;
        done[4] = None;
        let missed = checks(done, Flags(0));
        assert!(
            !missed[0].holds && missed[0].what.ends_with("event 1"),
            "{missed:?}"
        );
        assert!(missed[0].found.contains("missed: 4"), "{missed:?}");
        assert!(
            checks(done, Flags::UNMATCHED)[0]
                .found
                .ends_with("the matcher was overloaded")
        );

        let mut done = RIGHT;
        (done[2], done[1]) = (None, Some((0, 1)));
        let wrong = checks(done, Flags(0));
        assert!(
            wrong[0].found.contains("missed: 2, touched besides: 1"),
            "{wrong:?}"
        );
    }
}
