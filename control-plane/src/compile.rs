// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a plan to the driver's program, and the way back from a record to the plan's events.

use midwire_driver as driver;
use midwire_endpoints::agent::Flow;
use midwire_trace::{Lane, Record, chance};

use crate::answers::Templates;
use crate::merge::{self, MergedClause, Position, PositionKey};
use crate::plan::{
    Action, Base, Ecn, Event, Iterations, Network, Plan, ReorderScope, Selector, Transport,
    lane_from,
};
use crate::run_file::{ClauseRecord, PositionRecord, Recorded, RuleRecord};
use crate::select::{Selection, select};
use crate::triggers::{Gate, Triggers};

/// A plan as the card takes it.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// For the driver.
    pub program: driver::Program,
    /// For each position of the program: its name and its clauses with the plan's events.
    pub positions: Vec<(PositionKey, Vec<MergedClause>)>,
    /// For each rule of the program: the index of its event.
    pub rules: Vec<usize>,
}

/// Compiles a checked plan; the seed decides what is left to chance.
///
/// Events that contradict each other are mistakes of a plan ([`Plan::parse`] finds them); here
/// the later one gives way.
pub fn compile(plan: &Plan, seed: u64) -> Compiled {
    let (triggers, _) = Triggers::of(&plan.events);
    let mut templates = Templates::default();
    let selectors = if plan.selectors.is_empty() {
        vec![
            driver::Selector::any(driver::Transport::Tcp),
            driver::Selector::any(driver::Transport::Roce),
        ]
    } else {
        plan.selectors.iter().flat_map(selector).collect()
    };
    let positions: Vec<_> = merge::by_position(&plan.events)
        .into_iter()
        .map(|(key, mut events)| {
            loop {
                match merge::merge(&events, &triggers) {
                    Ok(clauses) => break (key, clauses),
                    Err(conflict) => events.retain(|(index, _)| *index != conflict.second),
                }
            }
        })
        .collect();
    let rules: Vec<(usize, driver::Rule)> = plan
        .events
        .iter()
        .enumerate()
        .filter_map(|(index, event)| match select(event) {
            Ok(Selection::Rule(rule)) => {
                let rule = self::rule(
                    rule,
                    event,
                    triggers.gate(index),
                    index,
                    seed,
                    &mut templates,
                );
                Some((index, rule))
            }
            _ => None,
        })
        .collect();
    let (rules, program_rules) = rules.into_iter().unzip();
    let program = driver::Program {
        selectors,
        rules: program_rules,
        positions: positions
            .iter()
            .map(|(key, clauses)| position(key, clauses, &mut templates))
            .collect(),
        templates: templates.list(),
        reorder_timeout: Some(driver::Nanos(plan.timeouts.reorder.as_nanos())),
        ..driver::Program::default()
    };
    Compiled {
        program,
        positions,
        rules,
    }
}

impl Compiled {
    /// With connections that are known beforehand: those that a selector of the plan admits are
    /// counted in their order, and there are no others.
    pub fn of(mut self, plan: &Plan, flows: &[Flow]) -> Self {
        if !flows.is_empty() {
            let admitted = |flow: &&Flow| {
                let mut selectors = plan.selectors.iter();
                plan.selectors.is_empty() || selectors.any(|selector| admits(selector, flow))
            };
            self.program.selectors.clear();
            self.program.declared = flows.iter().filter(admitted).map(declared).collect();
        }
        self
    }

    /// The map from what a record names (lane, slot, iteration) to events, with the slots that
    /// the card gave and nothing counted yet.
    pub fn records(&self, slots: &[driver::SlotId]) -> Vec<PositionRecord> {
        self.positions
            .iter()
            .zip(slots)
            .map(|((key, clauses), slot)| PositionRecord {
                direction: key.direction,
                slot: slot.slot,
                connection: key.connection,
                at: key.position,
                clauses: clauses
                    .iter()
                    .map(|clause| ClauseRecord {
                        first: clause.first,
                        last: clause.last,
                        gate: clause.gate,
                        events: clause.events.iter().map(|&index| number(index)).collect(),
                    })
                    .collect(),
                seen: 0,
                fired: 0,
                last_packet_id: None,
            })
            .collect()
    }

    /// The same for rules.
    pub fn rule_records(&self, slots: &[driver::SlotId]) -> Vec<RuleRecord> {
        self.rules
            .iter()
            .zip(&self.program.rules)
            .zip(slots)
            .map(|((&index, rule), slot)| RuleRecord {
                event: number(index),
                slot: slot.slot,
                rule: rule.clone(),
                seen: 0,
                fired: 0,
                last_packet_id: None,
            })
            .collect()
    }
}

/// Number of an event, from 1, from its index in the plan.
fn number(index: usize) -> u32 {
    u32::try_from(index + 1).unwrap_or(u32::MAX)
}

/// The events that act on the packet of a record: numbers in the plan, from 1.
pub fn events_at<'a>(recorded: &'a Recorded, record: &Record) -> &'a [u32] {
    let Some(slot) = record.slot else { return &[] };
    let lane = record.packet_lane();
    if slot & driver::RULE_SLOT != 0 {
        let mut rules = recorded.rules.iter();
        let rule = rules.find(|rule| rule.rule.lane == lane && rule.slot == slot);
        return rule.map_or(&[], |rule| std::slice::from_ref(&rule.event));
    }
    let mut positions = recorded.positions.iter();
    let Some(position) = positions.find(|p| p.direction == lane && p.slot == slot) else {
        return &[];
    };
    // Whether a trigger was armed is not in the record, but what was done is.
    let nothing_done = record.actions.0 == 0;
    position
        .clauses
        .iter()
        .filter(|clause| (clause.first..=clause.last).contains(&record.iteration))
        .find(|clause| clause.gate.armed_by.is_none() || !nothing_done)
        .map_or(&[], |clause| &clause.events)
}

/// What a packet that an event touched is told to be: `event 3: drop, connection 0 packet 5,
/// iteration 1`.
pub fn comment(event: &Event, number: u32, iteration: u8) -> String {
    format!(
        "event {number}: {}, {}, iteration {iteration}",
        event.action,
        event.identity_text()
    )
}

/// As the card does with what it has to learn.
fn admits(selector: &Selector, flow: &Flow) -> bool {
    let within = |network: Option<Network>, address| network.is_none_or(|n| n.contains(address));
    selector.transport != Some(Transport::Tcp)
        && selector.port.is_none()
        && selector.qp.is_none_or(|qp| qp == flow.queue_pair)
        && selector.from.is_none_or(|from| from == flow.from)
        && within(selector.source, flow.source)
        && within(selector.destination, flow.destination)
}

fn declared(flow: &Flow) -> driver::DeclaredConnection {
    driver::DeclaredConnection {
        lane: lane_from(flow.from),
        source: flow.source,
        destination: flow.destination,
        queue_pair: flow.queue_pair,
        first_psn: Some(flow.first_psn),
    }
}

/// One for each transport that it leaves open.
fn selector(selector: &Selector) -> Vec<driver::Selector> {
    let prefix = |net: Network| driver::Prefix {
        address: net.address,
        length: net.prefix,
    };
    let transports: &[driver::Transport] = match selector.transport {
        Some(Transport::Tcp) => &[driver::Transport::Tcp],
        Some(Transport::Roce) => &[driver::Transport::Roce],
        None if selector.port.is_some() => &[driver::Transport::Tcp],
        None if selector.qp.is_some() => &[driver::Transport::Roce],
        None => &[driver::Transport::Tcp, driver::Transport::Roce],
    };
    transports
        .iter()
        .map(|&transport| driver::Selector {
            lane: selector.from.map(lane_from),
            source: selector.source.map(prefix),
            destination: selector.destination.map(prefix),
            destination_port: selector.port.map(u32::from).or(selector.qp),
            ..driver::Selector::any(transport)
        })
        .collect()
}

fn position(
    key: &PositionKey,
    clauses: &[MergedClause],
    templates: &mut Templates,
) -> driver::PositionEvents {
    driver::PositionEvents {
        lane: key.direction,
        // A plan's numbers are below 65535.
        connection: u16::try_from(key.connection).unwrap_or(u16::MAX),
        at: match key.position {
            Position::Packet(kind, n) => driver::Position::Nth {
                kind: kind.into(),
                n,
            },
            Position::Byte(byte) => driver::Position::Byte(byte),
            Position::Psn(psn) => driver::Position::Psn(psn),
        },
        clauses: clauses
            .iter()
            .map(|clause| driver::Clause {
                first: clause.first,
                last: (clause.last != Iterations::END).then_some(clause.last),
                armed_by: clause.gate.armed_by,
                action: action(&clause.action, clause.gate, key.direction, templates),
            })
            .collect(),
    }
}

/// The rule of an event, with what [`select`] leaves open.
fn rule(
    rule: driver::Rule,
    event: &Event,
    gate: Gate,
    index: usize,
    seed: u64,
    templates: &mut Templates,
) -> driver::Rule {
    let seed = chance::derive(seed, index as u64);
    driver::Rule {
        chance: match (event.probability, event.burst) {
            (Some(probability), _) => driver::RuleChance::Random {
                seed,
                chance: probability.chance(),
            },
            (None, Some(burst)) => driver::RuleChance::Burst {
                seed,
                good: burst.outside.chance(),
                bad: burst.inside.chance(),
                to_bad: burst.begins.chance(),
                to_good: burst.ends.chance(),
            },
            (None, None) => driver::RuleChance::Always,
        },
        armed_by: gate.armed_by,
        action: action(&event.action, gate, event.direction, templates),
        ..rule
    }
}

fn base(base: Base) -> driver::Base {
    match base {
        Base::Frame => driver::Base::Frame,
        Base::Ip => driver::Base::Ip,
        Base::Transport => driver::Base::Transport,
        Base::Payload => driver::Base::Payload,
    }
}

fn action(action: &Action, gate: Gate, way: Lane, templates: &mut Templates) -> driver::Action {
    // A checked plan's can be carried out.
    let set = action.set.as_ref().and_then(|set| set.write().ok());
    let mend = action.mend().ok().flatten().unwrap_or_default();
    driver::Action {
        drop: action.drop,
        ecn: action.ecn.map(|ecn| match ecn {
            Ecn::NotEct => driver::Ecn::NotEct,
            Ecn::Ect1 => driver::Ecn::Ect1,
            Ecn::Ect0 => driver::Ecn::Ect0,
            Ecn::Ce => driver::Ecn::Ce,
        }),
        set: set.map(|write| driver::Set {
            base: base(write.base),
            offset: write.offset,
            mask: write.mask,
            value: write.value,
            ip6: match write.ip6_earlier {
                0 => driver::Ip6Place::Same,
                4 => driver::Ip6Place::NibbleBefore,
                _ => driver::Ip6Place::ByteBefore,
            },
        }),
        corrupt: action.corrupt.map(|corrupt| driver::Corrupt {
            base: base(corrupt.at),
            offset: corrupt.offset,
            mask: corrupt.mask,
        }),
        broken: driver::Broken {
            fcs: action.broken.fcs,
            ip: action.broken.ip,
            transport: action.broken.l4,
            icrc: action.broken.icrc,
        },
        mended: driver::Mended {
            ip: mend.ip,
            transport: mend.l4,
            icrc: mend.icrc,
        },
        truncate: action
            .truncate
            .map(|bytes| u16::try_from(bytes).unwrap_or(u16::MAX)),
        delay: action.delay.map(|delay| driver::Nanos(delay.as_nanos())),
        reorder: action.reorder.map(|reorder| driver::Reorder {
            // A plan's numbers are in range.
            packets: u16::try_from(reorder.after).unwrap_or(u16::MAX),
            of: match reorder.of {
                ReorderScope::Connection => driver::ReorderScope::Connection,
                ReorderScope::Lane => driver::ReorderScope::Lane,
            },
        }),
        duplicate: action.duplicate.map(|duplicate| driver::Duplicate {
            copies: u8::try_from(duplicate.copies).unwrap_or(u8::MAX),
            gap: driver::Nanos(duplicate.gap.as_nanos()),
        }),
        inject: templates.number(action, way),
        arm: gate.arm,
        disarm: gate.disarm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn plan(rest: &str) -> Plan {
        let text = format!(
            "version: 1\nname: x\nendpoints: {{a: {{pcap: {{in: f}}}}, b: {{pcap: {{}}}}}}\n{rest}"
        );
        Plan::parse("x.yaml", &text).unwrap()
    }

    fn compiled(rest: &str) -> Compiled {
        compile(&plan(rest), 1)
    }

    #[test]
    fn events_of_one_position_share_a_slot() {
        let compiled = compiled(
            "events:
  - {connection: 3, direction: b-to-a, kind: ack, packet: 2, action: ecn}
  - {direction: a-to-b, packet: 5, iterations: 1-3, action: {delay: 1ms}}
  - {direction: a-to-b, packet: 5, iterations: 3-, action: ecn}
  - {direction: a-to-b, psn: 7, action: {corrupt: {at: ip, offset: 8, mask: 0x80}}}
",
        );
        let positions = &compiled.program.positions;
        assert_eq!(positions.len(), 3);
        let five = positions
            .iter()
            .position(|p| {
                p.at == driver::Position::Nth {
                    kind: driver::Kind::Data,
                    n: 5,
                }
            })
            .unwrap();
        let delay = Some(driver::Nanos(1_000_000));
        let none = driver::Action::default();
        assert_eq!(
            positions[five].clauses,
            [
                driver::Clause {
                    first: 1,
                    last: Some(2),
                    armed_by: None,
                    action: driver::Action { delay, ..none }
                },
                driver::Clause {
                    first: 3,
                    last: Some(3),
                    armed_by: None,
                    action: driver::Action {
                        delay,
                        ecn: Some(driver::Ecn::Ce),
                        ..none
                    }
                },
                driver::Clause {
                    first: 4,
                    last: None,
                    armed_by: None,
                    action: driver::Action {
                        ecn: Some(driver::Ecn::Ce),
                        ..none
                    }
                },
            ]
        );
        let ack = positions.iter().find(|p| p.connection == 3).unwrap();
        assert_eq!(ack.lane, driver::Lane::BtoA);
        let psn = positions
            .iter()
            .find(|p| p.at == driver::Position::Psn(7))
            .unwrap();
        let corrupt = driver::Corrupt {
            base: driver::Base::Ip,
            offset: 8,
            mask: 0x80,
        };
        assert_eq!(psn.clauses[0].action.corrupt, Some(corrupt));

        // The way back.
        let slots: Vec<_> = positions
            .iter()
            .zip(10..)
            .map(|(position, slot)| driver::SlotId {
                lane: position.lane,
                slot,
            })
            .collect();
        let recorded = Recorded {
            positions: compiled.records(&slots),
            ..crate::fixture::recorded()
        };
        let at = |lane, iteration| {
            let record = Record {
                lane,
                slot: Some(slots[five].slot),
                iteration,
                ..Record::default()
            };
            events_at(&recorded, &record)
        };
        let there = |iteration| at(Lane::AtoB, iteration);
        assert_eq!(
            (there(1), there(3), there(200)),
            (&[2][..], &[2, 3][..], &[3][..])
        );
        assert_eq!(at(Lane::BtoA, 1), &[] as &[u32]);
        assert_eq!(there(0), &[] as &[u32]);
    }

    #[test]
    fn selectors_name_each_transport() {
        let program = compiled("").program;
        assert_eq!(program.selectors.len(), 2);
        let program = compiled(
            "selectors:
  - {port: 80, from: b}
  - {source: 10.0.0.0/8}
  - {qp: 17}
",
        )
        .program;
        let transports: Vec<_> = program.selectors.iter().map(|s| s.transport).collect();
        use driver::Transport::{Roce, Tcp};
        assert_eq!(transports, [Tcp, Tcp, Roce, Roce]);
        assert_eq!(program.selectors[0].lane, Some(driver::Lane::BtoA));
        assert_eq!(program.selectors[0].destination_port, Some(80));
        assert_eq!(program.selectors[1].source.map(|p| p.length), Some(8));
        assert_eq!(program.selectors[3].destination_port, Some(17));
    }

    #[test]
    fn a_comment_names_event_and_identity() {
        let plan = plan("events: [{direction: a-to-b, packet: 5, iterations: 1-2, action: drop}]");
        assert_eq!(
            comment(&plan.events[0], 3, 1),
            "event 3: drop, connection 0 packet 5, iteration 1"
        );
    }
}
