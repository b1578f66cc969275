// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which packets the events should have touched, worked out in software from every record, and
//! held against those that the card touched.

use std::collections::{BTreeMap, HashMap, HashSet};

use midwire_analysis::report::Check;
use midwire_driver::{RuleState, Sight};
use midwire_trace::identity::{Identifier, Identity};
use midwire_trace::{Capture, Flags, Kind, Lane, Nanos, Record, Tap};

use crate::measure::TouchedPackets;
use crate::merge::Position;
use crate::run_file::{PositionRecord, Recorded, RuleRecord};
use crate::triggers::Gate;

/// One direction of a connection.
type Way = (u32, Lane);

/// What found a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finder {
    /// A position of the run, by index.
    Position(usize),
    /// A rule of the run, by index.
    Rule(usize),
}

/// A packet that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Find<'a> {
    pub by: Finder,
    /// The n-th packet there.
    pub n: u32,
    /// The events that happen to it; none when none is asked for this one.
    pub events: &'a [u32],
}

/// A packet of the capture, with its name if it has one.
pub(crate) struct Named<'a> {
    pub record: &'a Record,
    pub identity: Option<Identity<'a>>,
}

/// For so long behind the packet that worked a trigger it is open whether a packet meets it armed
/// (docs/tables.md, "Rule row"): what the card did decides.
const UNSURE: Nanos = Nanos(2_000);

/// The triggers, as the packets worked them.
struct Armed {
    armed: [bool; 64],
    worked: [Option<Nanos>; 64],
}

impl Armed {
    /// Whether a packet meets a trigger armed; `acted` says whether the card's record of the
    /// packet shows that it did.
    fn open(&self, trigger: Option<u8>, record: &Record, acted: bool) -> bool {
        let Some(trigger) = trigger.map(usize::from).filter(|&t| t < 64) else {
            return true;
        };
        match self.worked[trigger] {
            Some(at) if record.time.since(at).0 < UNSURE.0 => acted,
            _ => self.armed[trigger],
        }
    }

    fn work(&mut self, gates: &[Gate], at: Nanos) {
        let numbers = |of: fn(&Gate) -> Option<u8>| gates.iter().filter_map(of).map(usize::from);
        for (trigger, arms) in numbers(|gate| gate.arm)
            .map(|trigger| (trigger, true))
            .chain(numbers(|gate| gate.disarm).map(|trigger| (trigger, false)))
        {
            self.armed[trigger & 63] = arms;
            self.worked[trigger & 63] = Some(at);
        }
    }
}

/// Finds packets of a run as the card should have found them.
struct Walker<'a> {
    recorded: &'a Recorded,
    numbered: HashMap<(Way, Kind, i64), usize>,
    bytes: HashMap<Way, BTreeMap<i64, usize>>,
    /// Packets at each position so far.
    counts: Vec<u32>,
    rules: Vec<RuleState>,
    armed: Armed,
}

impl<'a> Walker<'a> {
    fn new(recorded: &'a Recorded) -> Self {
        let mut walker = Walker {
            recorded,
            numbered: HashMap::new(),
            bytes: HashMap::new(),
            counts: vec![0; recorded.positions.len()],
            rules: vec![RuleState::default(); recorded.rules.len()],
            armed: Armed {
                armed: [false; 64],
                worked: [None; 64],
            },
        };
        for (index, record) in recorded.positions.iter().enumerate() {
            let way = (record.connection, record.direction);
            match record.at {
                Position::Packet(kind, n) => {
                    let name = (way, kind.into(), n.into());
                    walker.numbered.insert(name, index);
                }
                Position::Byte(byte) => {
                    let byte = i64::try_from(byte).unwrap_or(i64::MAX);
                    walker.bytes.entry(way).or_default().insert(byte, index);
                }
                Position::Psn(psn) => {
                    for kind in [Kind::Data, Kind::ReadRequest] {
                        walker.numbered.insert((way, kind, psn.into()), index);
                    }
                }
            }
        }
        walker
    }

    /// What finds a packet, given in the order of the records.
    fn find(&mut self, packet: &Named<'_>, finds: &mut Vec<Find<'a>>) {
        let recorded = self.recorded;
        let record = packet.record;
        let acted = |slot: u32| {
            let named = record.slot == Some(slot) && record.actions.0 != 0;
            named || record.flags.contains(Flags::MULTI)
        };
        let mut gates = Vec::new();
        if let Some(identity) = &packet.identity {
            let way = (identity.connection, record.lane);
            let numbered = identity
                .places
                .iter()
                .filter_map(|place| self.numbered.get(&(way, place.kind, place.position)));
            let data = identity.byte.filter(|_| identity.kind == Kind::Data);
            let bytes = data.and_then(|from| {
                let covered = from..from + i64::from(identity.len);
                Some(self.bytes.get(&way)?.range(covered).map(|(_, index)| index))
            });
            for &index in numbered.chain(bytes.into_iter().flatten()) {
                let n = &mut self.counts[index];
                *n = n.saturating_add(1);
                let position = &recorded.positions[index];
                let iteration = u8::try_from(*n).unwrap_or(u8::MAX);
                let clause = position.clauses.iter().find(|clause| {
                    (clause.first..=clause.last).contains(&iteration)
                        && self
                            .armed
                            .open(clause.gate.armed_by, record, acted(position.slot))
                });
                gates.extend(clause.map(|clause| clause.gate));
                finds.push(Find {
                    by: Finder::Position(index),
                    n: *n,
                    events: clause.map_or(&[], |clause| &clause.events),
                });
            }
        }
        let sight = match &packet.identity {
            Some(identity) => Sight::of(identity, record.proto),
            None => Sight::plain(record.proto),
        };
        for (index, (rule, state)) in recorded.rules.iter().zip(&mut self.rules).enumerate() {
            if rule.rule.lane != record.lane
                || !self
                    .armed
                    .open(rule.rule.armed_by, record, acted(rule.slot))
            {
                continue;
            }
            let before = state.seen;
            let hit = state.hits(&rule.rule, &sight);
            if state.seen == before {
                continue;
            }
            if hit {
                gates.push(Gate {
                    armed_by: None,
                    arm: rule.rule.action.arm,
                    disarm: rule.rule.action.disarm,
                });
            }
            finds.push(Find {
                by: Finder::Rule(index),
                n: state.seen,
                events: if hit {
                    std::slice::from_ref(&rule.event)
                } else {
                    &[]
                },
            });
        }
        self.armed.work(&gates, record.time);
    }
}

/// Names every packet that came in, in the order of time, and tells what finds it.
pub(crate) fn walk<'a>(
    recorded: &'a Recorded,
    capture: &Capture,
    mut tell: impl FnMut(&Named<'_>, &[Find<'a>]),
) {
    let mut walker = Walker::new(recorded);
    let mut identifier = Identifier::new();
    for (number, connection) in (0..).zip(&recorded.declared) {
        if let Some(psn) = connection.first_psn {
            identifier.declare(number, connection.lane, psn);
        }
    }
    let mut entries = capture.by_time();
    let mut finds = Vec::new();
    while let Some(entry) = entries.next_entry() {
        let record = &entry.record;
        if record.tap != Tap::Ingress {
            continue;
        }
        let packet = Named {
            record,
            identity: identifier.record(record),
        };
        finds.clear();
        walker.find(&packet, &mut finds);
        tell(&packet, &finds);
    }
}

/// A packet that software found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit<'a> {
    pub packet_id: u32,
    pub n: u32,
    pub events: &'a [u32],
}

/// The packets that should have been found at each position and by each rule, in their order.
#[derive(Debug, Default)]
pub(crate) struct Twin<'a> {
    positions: Vec<Vec<Visit<'a>>>,
    /// Of rules, those that were hit.
    rules: Vec<Vec<Visit<'a>>>,
    /// How many a rule chose from.
    chosen_from: Vec<u64>,
    /// Packets that the matcher did not look up, or not in every respect.
    unmatched: u64,
}

impl<'a> Twin<'a> {
    /// Reads a capture that is complete.
    pub fn read(recorded: &'a Recorded, capture: &Capture) -> Twin<'a> {
        let mut twin = Twin {
            positions: vec![Vec::new(); recorded.positions.len()],
            rules: vec![Vec::new(); recorded.rules.len()],
            chosen_from: vec![0; recorded.rules.len()],
            unmatched: 0,
        };
        walk(recorded, capture, |packet, finds| {
            let record = packet.record;
            twin.unmatched += u64::from(record.flags.contains(Flags::UNMATCHED));
            for find in finds {
                let visit = Visit {
                    packet_id: record.packet_id,
                    n: find.n,
                    events: find.events,
                };
                match find.by {
                    Finder::Position(index) => twin.positions[index].push(visit),
                    Finder::Rule(index) => {
                        twin.chosen_from[index] = find.n.into();
                        if !find.events.is_empty() {
                            twin.rules[index].push(visit);
                        }
                    }
                }
            }
        });
        twin
    }

    /// Packets at a position to which something happens.
    pub fn acted(&self, position: usize) -> impl Iterator<Item = &Visit<'a>> {
        let visits = self.positions.get(position).into_iter().flatten();
        visits.filter(|visit| !visit.events.is_empty())
    }

    /// Packets that a rule hits.
    pub fn hit(&self, rule: usize) -> &[Visit<'a>] {
        self.rules.get(rule).map_or(&[], Vec::as_slice)
    }

    /// Whether the card touched what it should have touched, and nothing else.
    pub fn check(&self, recorded: &Recorded, touched: &TouchedPackets) -> Vec<Check> {
        let positions = recorded.positions.iter().enumerate();
        let rules = recorded.rules.iter().enumerate();
        let mut checks: Vec<Check> = positions
            .filter_map(|(index, position)| self.position(index, position, touched))
            .chain(rules.filter_map(|(index, rule)| self.rule(index, rule, touched)))
            .collect();
        let any = !recorded.positions.is_empty() || !recorded.rules.is_empty();
        if checks.is_empty() && any {
            checks.push(Check {
                what: "the card acted on the packets that software finds from the records"
                    .to_owned(),
                found: "all and no other".to_owned(),
                holds: true,
            });
        }
        checks
    }

    fn position(
        &self,
        index: usize,
        position: &PositionRecord,
        touched: &TouchedPackets,
    ) -> Option<Check> {
        let should: Vec<u32> = self.acted(index).map(|visit| visit.packet_id).collect();
        let whose = position.event_numbers();
        if position.waits() {
            let seen = self.positions[index].len() as u64;
            let counts = [(seen, position.seen), (should.len() as u64, position.fired)];
            return self.counts(&whose, position.direction, counts);
        }
        let did = touched.acted_on(position);
        self.difference(&whose, position.direction, &should, &did)
    }

    fn rule(&self, index: usize, rule: &RuleRecord, touched: &TouchedPackets) -> Option<Check> {
        let whose = rule.event.to_string();
        let lane = rule.rule.lane;
        let hit = &self.rules[index];
        let counts = [
            (self.chosen_from[index], rule.seen),
            (hit.len() as u64, rule.fired),
        ];
        if let Some(check) = self.counts(&whose, lane, counts) {
            return Some(check);
        }
        // A packet that others hit too need not name this rule.
        let should: Vec<u32> = hit.iter().map(|visit| visit.packet_id).collect();
        let mut did = touched.naming(lane, rule.slot).to_vec();
        let named: HashSet<u32> = did.iter().copied().collect();
        let shared = |packet: &u32| !named.contains(packet) && touched.shared(lane, *packet);
        did.extend(should.iter().filter(|packet| shared(packet)));
        did.sort_unstable();
        let mut should = should;
        should.sort_unstable();
        self.difference(&whose, lane, &should, &did)
    }

    /// Packets seen and hit, by software and by the card.
    fn counts(&self, whose: &str, lane: Lane, counts: [(u64, u64); 2]) -> Option<Check> {
        let [(seen, card_seen), (hit, card_hit)] = counts;
        if (seen, hit) == (card_seen, card_hit) {
            return None;
        }
        let found = format!(
            "{lane}: the card saw {card_seen} packets and acted on {card_hit}, software finds {seen} and {hit}"
        );
        Some(self.wrong(whose, found))
    }

    fn difference(&self, whose: &str, lane: Lane, should: &[u32], did: &[u32]) -> Option<Check> {
        if should == did {
            return None;
        }
        let list = |these: &[u32], others: &[u32]| {
            let others: HashSet<_> = others.iter().collect();
            let packets = these.iter().filter(|packet| !others.contains(packet));
            let told: Vec<_> = packets.take(5).map(u32::to_string).collect();
            match told.is_empty() {
                true => "none".to_owned(),
                false => told.join(", "),
            }
        };
        let (missed, besides) = (list(should, did), list(did, should));
        let found = format!("packets {lane} missed: {missed}, touched besides: {besides}");
        Some(self.wrong(whose, found))
    }

    fn wrong(&self, whose: &str, mut found: String) -> Check {
        if self.unmatched > 0 {
            found += "; the matcher was overloaded";
        }
        Check {
            what: format!("the card acted on the right packets for event {whose}"),
            found,
            holds: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use crate::fixture;
    use crate::plan::Plan;
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

    /// The record of a packet that comes in.
    fn packet(id: u32) -> Record {
        let isn = 0xffff_ff80; // the numbers wrap within the stream
        let (f0, tcp_flags, payload_len) = match id {
            0 => (isn, 0x02, 0),
            n => (BYTES[n as usize - 1].wrapping_add(isn + 1), 0x10, 100),
        };
        Record {
            time: Nanos(u64::from(id) * 1_000),
            proto: Proto::Tcp,
            kind: if id == 0 { Kind::Syn } else { Kind::Data },
            connection: Some(0),
            packet_id: id,
            f0,
            tcp_flags,
            payload_len,
            ..Record::default()
        }
    }

    fn checks(done: Done, flags: Flags) -> Vec<Check> {
        let plan = Plan::parse("x", PLAN).unwrap();
        let compiled = compile(&plan, 1);
        let slots: Vec<SlotId> = (0..3)
            .map(|slot| SlotId {
                lane: Lane::AtoB,
                slot,
            })
            .collect();
        let mut recorded = fixture::recorded();
        recorded.positions = compiled.records(&slots);
        let positions = &mut recorded.positions;
        let mut block = BlockBuilder::new(4096, 0).unwrap();
        for (id, what) in (0..).zip(done) {
            let mut record = packet(id);
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
        Twin::read(&recorded, &capture).check(&recorded, &touched)
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

    /// A rule and what the card counts of it, with the packets whose records name it.
    fn rule_checks(named: &[u32], fired: u64) -> Vec<Check> {
        let plan = PLAN.replace(
            "events:",
            "events:\n  - {direction: a-to-b, packet: 2-, every: 2, iterations: 1, action: ecn}\n#",
        );
        let plan = &plan[..plan.find("#\n").unwrap()];
        let plan = Plan::parse("x", plan).unwrap();
        let slot = 1 << 22;
        let lane = Lane::AtoB;
        let mut recorded = fixture::recorded();
        recorded.positions = Vec::new();
        recorded.rules = compile(&plan, 1).rule_records(&[SlotId { lane, slot }]);
        (recorded.rules[0].seen, recorded.rules[0].fired) = (2, fired);
        let mut block = BlockBuilder::new(4096, 0).unwrap();
        for id in 0..7 {
            let mut record = packet(id);
            if named.contains(&id) {
                (record.slot, record.actions) = (Some(slot), Actions::ECN);
            }
            assert!(block.push(record, None));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), block.finish(true, Nanos(0))).unwrap();
        let capture = Capture::open(file.path()).unwrap();
        let touched = TouchedPackets::read(&capture);
        Twin::read(&recorded, &capture).check(&recorded, &touched)
    }

    #[test]
    fn a_rule_hits_what_software_finds() {
        // Segments of new data are packets 1, 2 and 3; the second of them is hit.
        let checks = rule_checks(&[2], 1);
        assert!(checks.len() == 1 && checks[0].holds, "{checks:?}");
        for (named, fired, part) in [
            (&[2][..], 2, "acted on 2, software finds 2 and 1"),
            (&[3], 1, "missed: 2, touched besides: 3"),
            (&[], 1, "missed: 2, touched besides: none"),
        ] {
            let checks = rule_checks(named, fired);
            assert!(
                !checks[0].holds && checks[0].found.contains(part),
                "{checks:?}"
            );
        }
    }
}
