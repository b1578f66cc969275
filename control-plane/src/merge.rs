// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of one position become disjoint ranges of iterations, each with one action.
//!
//! The card looks a position up once and has one list of clauses there; a plan may name the
//! position as often as reads well.

use std::collections::BTreeMap;
use std::fmt;

use midwire_trace::Lane;
use serde::{Deserialize, Serialize};

use crate::plan::{Action, Event, Iterations, Kind};
use crate::select::{Selection, select};
use crate::triggers::{Gate, Triggers};

/// What names a position in the card: everything of an identity but the iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PositionKey {
    /// Direction of the packet.
    pub direction: Lane,
    /// Connection, from 0.
    pub connection: u32,
    /// Place in it.
    pub position: Position,
}

/// A place in one direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Position {
    /// The n-th packet of a kind, from 1.
    Packet(Kind, u32),
    /// The TCP segment that covers a byte.
    Byte(u64),
    /// The RoCE data packet or read request with a relative PSN.
    Psn(u32),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Packet(Kind::Data, n) => write!(f, "packet {n}"),
            Position::Packet(kind, n) => write!(f, "{kind} {n}"),
            Position::Byte(byte) => write!(f, "byte {byte}"),
            Position::Psn(psn) => write!(f, "psn {psn}"),
        }
    }
}

/// A range of iterations of one position, what happens in it, and the events that ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedClause {
    /// First iteration, from 1.
    pub first: u8,
    /// Last iteration; [`Iterations::END`] without end.
    pub last: u8,
    /// What all events together ask for.
    pub action: Action,
    /// Triggers that it waits for and works.
    pub gate: Gate,
    /// Indices of the events in the plan, ascending.
    pub events: Vec<usize>,
}

/// Two events that can't both be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Index of the earlier event.
    pub first: usize,
    /// Index of the later one.
    pub second: usize,
    /// First iteration at which they meet.
    pub iteration: u8,
    /// Why not.
    pub reason: &'static str,
}

/// Both actions in one, where that has a meaning.
fn combine(a: &Action, b: &Action) -> Result<Action, &'static str> {
    let none = Action::default();
    if *a == none || *b == none {
        return Ok(if *a == none { b.clone() } else { a.clone() });
    }
    if a.drop && b.drop {
        return Err("both drop it");
    }
    if (a.drop || b.drop) && (*a != a.of_dropped() || *b != b.of_dropped()) {
        return Err("a packet that is dropped can't have another event but inject");
    }
    if a.ecn.is_some() && b.ecn.is_some() {
        return Err("both mark it");
    }
    if a.set.is_some() && b.set.is_some() {
        return Err("both set bytes of it, and there is one set for a packet");
    }
    if a.corrupt.is_some() && b.corrupt.is_some() {
        return Err("both corrupt it, and one byte can be changed");
    }
    if a.delay.is_some() && b.delay.is_some() {
        return Err("both delay it");
    }
    if a.reorder.is_some() && b.reorder.is_some() {
        return Err("both reorder it");
    }
    if a.duplicate.is_some() && b.duplicate.is_some() {
        return Err("both duplicate it");
    }
    if a.truncate.is_some() && b.truncate.is_some() {
        return Err("both truncate it");
    }
    if a.inject.is_some() && b.inject.is_some() {
        return Err("both inject, and one frame is made in answer to a packet");
    }
    let both = Action {
        drop: a.drop || b.drop,
        ecn: a.ecn.or(b.ecn),
        set: a.set.clone().or_else(|| b.set.clone()),
        corrupt: a.corrupt.or(b.corrupt),
        broken: a.broken.and(b.broken),
        truncate: a.truncate.or(b.truncate),
        delay: a.delay.or(b.delay),
        reorder: a.reorder.or(b.reorder),
        duplicate: a.duplicate.or(b.duplicate),
        inject: a.inject.clone().or_else(|| b.inject.clone()),
    };
    match both.mend() {
        Ok(_) => Ok(both),
        Err(()) => Err("set and corrupt change it together: expected the same mend at both"),
    }
}

/// What the card makes of the actions of several events that hit a packet: flags are joined, of
/// all else the first that is given counts, but the longest delay.
pub fn join(a: &Action, b: &Action) -> Action {
    let inject = a.inject.clone().or_else(|| b.inject.clone());
    if a.drop || b.drop {
        return Action {
            drop: true,
            inject,
            ..Action::default()
        };
    }
    let mut both = Action {
        drop: false,
        ecn: a.ecn.or(b.ecn),
        set: a.set.clone().or_else(|| b.set.clone()),
        corrupt: a.corrupt.or(b.corrupt),
        broken: a.broken.and(b.broken),
        truncate: a.truncate.or(b.truncate),
        delay: a.delay.max(b.delay),
        reorder: a.reorder.or(b.reorder),
        duplicate: a.duplicate.or(b.duplicate),
        inject,
    };
    if let (Some(set), Some(corrupt)) = (&mut both.set, &mut both.corrupt) {
        set.mend = set.mend.and(corrupt.mend);
        corrupt.mend = set.mend;
    }
    both
}

/// The clauses of one position from the events that name it, given with their indices.
///
/// Where some wait for a trigger and others do not, there are two clauses: what all do together
/// while it is armed, and behind all such what the others do while it is not.
pub fn merge(
    events: &[(usize, &Event)],
    triggers: &Triggers,
) -> Result<Vec<MergedClause>, Conflict> {
    let ranges = || {
        events
            .iter()
            .flat_map(|(_, event)| event.iterations.ranges())
    };
    // Where something begins, or something else has just ended.
    let mut starts: Vec<u16> = ranges()
        .flat_map(|range| [u16::from(range.first), u16::from(range.last) + 1])
        .filter(|&start| start <= u16::from(Iterations::END))
        .collect();
    starts.sort_unstable();
    starts.dedup();

    let mut clauses: Vec<MergedClause> = Vec::new();
    for (i, &start) in starts.iter().enumerate() {
        let first = start as u8;
        let last = starts
            .get(i + 1)
            .map_or(Iterations::END, |&next| (next - 1) as u8);
        let covering: Vec<_> = events
            .iter()
            .filter(|(_, event)| event.iterations.contains(first))
            .copied()
            .collect();
        let waits = |index: usize| triggers.gate(index).armed_by.is_some();
        let open: Vec<_> = covering
            .iter()
            .filter(|(index, _)| !waits(*index))
            .copied()
            .collect();
        let guarded = open.len() < covering.len();
        for (events, wanted) in [(&covering, guarded), (&open, true)] {
            if events.is_empty() || !wanted {
                continue;
            }
            let (action, gate) = together(events, triggers, first)?;
            let indices: Vec<_> = events.iter().map(|(index, _)| *index).collect();
            let before = clauses.iter_mut().rev().find(|before| {
                before.events == indices && before.last.checked_add(1) == Some(first)
            });
            match before {
                Some(before) => before.last = last,
                None => clauses.push(MergedClause {
                    first,
                    last,
                    action,
                    gate,
                    events: indices,
                }),
            }
        }
    }
    clauses.sort_by_key(|clause| clause.gate.armed_by.is_none());
    Ok(clauses)
}

/// What events that meet at an iteration come to.
fn together(
    events: &[(usize, &Event)],
    triggers: &Triggers,
    iteration: u8,
) -> Result<(Action, Gate), Conflict> {
    let mut met: Option<(Action, Gate)> = None;
    for &(index, event) in events {
        let gate = triggers.gate(index);
        met = Some(match met {
            None => (event.action.clone(), gate),
            Some((action, before)) => {
                let both = combine(&action, &event.action).and_then(|action| {
                    let gate = before.with(gate)?;
                    Ok((action, gate))
                });
                both.map_err(|reason| Conflict {
                    first: events[0].0,
                    second: index,
                    iteration,
                    reason,
                })?
            }
        });
    }
    Ok(met.unwrap_or_default())
}

/// Events by position, each with its index, in the order of the plan. Events that the card
/// chooses by rule are left out.
pub fn by_position(events: &[Event]) -> BTreeMap<PositionKey, Vec<(usize, &Event)>> {
    let mut positions: BTreeMap<PositionKey, Vec<(usize, &Event)>> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        if let Ok(Selection::Positions(keys)) = select(event) {
            for key in keys {
                positions.entry(key).or_default().push((index, event));
            }
        }
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<Event> {
        serde_saphyr::from_str(text).unwrap()
    }

    /// First and last iteration, action and events of each clause.
    type Told = Vec<(u8, u8, String, Vec<usize>)>;

    fn merged(text: &str) -> Result<Told, Conflict> {
        let events = events(text);
        let indexed: Vec<_> = events.iter().enumerate().collect();
        let (triggers, _) = Triggers::of(&events);
        Ok(merge(&indexed, &triggers)?
            .into_iter()
            .map(|c| (c.first, c.last, c.action.to_string(), c.events))
            .collect())
    }

    #[test]
    fn disjoint_iterations_stay_apart() {
        let clauses = merged(
            "- {direction: a-to-b, packet: 5, iterations: 1-2, action: drop}
- {direction: a-to-b, packet: 5, iterations: [4], action: ecn}",
        );
        assert_eq!(
            clauses.unwrap(),
            [
                (1, 2, "drop".into(), vec![0]),
                (4, 4, "ecn".into(), vec![1])
            ]
        );
    }

    #[test]
    fn overlapping_actions_combine_where_they_meet() {
        let clauses = merged(
            "- {direction: a-to-b, packet: 5, iterations: 1-3, action: {delay: 1ms}}
- {direction: a-to-b, packet: 5, iterations: 2-, action: ecn}",
        );
        assert_eq!(
            clauses.unwrap(),
            [
                (1, 1, "delay 1ms".into(), vec![0]),
                (2, 3, "ecn + delay 1ms".into(), vec![0, 1]),
                (4, 255, "ecn".into(), vec![1]),
            ]
        );
    }

    #[test]
    fn neighbours_of_one_event_join() {
        let clauses =
            merged("- {direction: a-to-b, packet: 5, iterations: [1, 2, 3-4, 200-], action: drop}");
        assert_eq!(
            clauses.unwrap(),
            [
                (1, 4, "drop".into(), vec![0]),
                (200, 255, "drop".into(), vec![0])
            ]
        );
    }

    #[test]
    fn what_waits_for_a_trigger_comes_before_what_does_not() {
        let events = events(
            "- {direction: a-to-b, packet: 5, iterations: 1-3, action: ecn}
- {direction: a-to-b, packet: 5, iterations: 2-4, after: loss, action: {delay: 1ms}}
- {name: loss, direction: a-to-b, packet: 1, action: drop}",
        );
        let (triggers, faults) = Triggers::of(&events);
        assert_eq!(faults, []);
        let at_five: Vec<_> = events.iter().enumerate().take(2).collect();
        let clauses = merge(&at_five, &triggers).unwrap();
        let told: Vec<_> = clauses
            .iter()
            .map(|c| (c.first, c.last, c.gate.armed_by, c.action.to_string()))
            .collect();
        assert_eq!(
            told,
            [
                (2, 3, Some(0), "ecn + delay 1ms".to_owned()),
                (4, 4, Some(0), "delay 1ms".to_owned()),
                (1, 3, None, "ecn".to_owned()),
            ]
        );
        let loss = merge(&[(2, &events[2])], &triggers).unwrap();
        assert_eq!(loss[0].gate.arm, Some(0));
    }

    #[test]
    fn what_cannot_be_combined_names_both_events() {
        let conflict = merged(
            "- {direction: a-to-b, packet: 5, iterations: 1-3, action: drop}
- {direction: a-to-b, packet: 5, iterations: 3-4, action: ecn}",
        )
        .unwrap_err();
        assert_eq!(
            (conflict.first, conflict.second, conflict.iteration),
            (0, 1, 3)
        );
    }
}
