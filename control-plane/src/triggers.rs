// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that wait for others: the card's triggers that stand for `after` and `until`.
//!
//! A trigger belongs to a pair of names: the event that arms it, and the one that disarms it, if
//! any. All events that wait for the same pair share it.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::plan::Event;

/// Triggers of a card.
const TRIGGERS: usize = 64;

/// The triggers that an event has to do with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// It happens only while this one is armed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub armed_by: Option<u8>,
    /// It arms this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<u8>,
    /// It disarms this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disarm: Option<u8>,
}

impl Gate {
    /// Those of two events that happen together.
    pub fn with(self, other: Gate) -> Result<Gate, &'static str> {
        let one = |a: Option<u8>, b: Option<u8>, reason| match (a, b) {
            (Some(a), Some(b)) if a != b => Err(reason),
            (a, b) => Ok(a.or(b)),
        };
        Ok(Gate {
            armed_by: one(
                self.armed_by,
                other.armed_by,
                "they wait for different events",
            )?,
            arm: one(self.arm, other.arm, "different events wait for both")?,
            disarm: one(self.disarm, other.disarm, "both end what others wait for")?,
        })
    }
}

/// The gate of each event of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Triggers(Vec<Gate>);

/// What is wrong with how an event waits: its index, the key, and the reason.
pub type Fault = (usize, &'static str, String);

impl Triggers {
    /// The gates of a plan's events, and what is wrong with them.
    pub fn of(events: &[Event]) -> (Triggers, Vec<Fault>) {
        let mut faults = Vec::new();
        let mut named: HashMap<&str, usize> = HashMap::new();
        for (index, event) in events.iter().enumerate() {
            let Some(name) = &event.name else { continue };
            if let Some(&other) = named.get(name.as_str()) {
                let reason = format!("event {} has this name already", other + 1);
                faults.push((index, "name", reason));
            } else {
                named.insert(name, index);
            }
        }
        let mut gates = vec![Gate::default(); events.len()];
        let mut numbers: BTreeMap<(usize, Option<usize>), u8> = BTreeMap::new();
        for (index, event) in events.iter().enumerate() {
            let mut find = |key: &'static str, name: &Option<String>| {
                let name = name.as_ref()?;
                let found = named.get(name.as_str()).copied();
                if found.is_none() {
                    faults.push((index, key, format!("no event has the name {name}")));
                }
                found
            };
            let (after, until) = (find("after", &event.after), find("until", &event.until));
            let Some(after) = after else {
                if event.until.is_some() && event.after.is_none() {
                    let reason = "expected after too: what is armed can be disarmed".to_owned();
                    faults.push((index, "until", reason));
                }
                continue;
            };
            if after == index {
                faults.push((index, "after", "it would wait for itself".to_owned()));
                continue;
            }
            if until == Some(after) {
                let reason = format!("it would begin and end with {}", name(&events[after]));
                faults.push((index, "until", reason));
                continue;
            }
            let next = numbers.len();
            if next >= TRIGGERS && !numbers.contains_key(&(after, until)) {
                let reason = format!("the card has {TRIGGERS} triggers, and more are waited for");
                faults.push((index, "after", reason));
                continue;
            }
            let trigger = *numbers.entry((after, until)).or_insert(next as u8);
            gates[index].armed_by = Some(trigger);
            if gates[after]
                .arm
                .replace(trigger)
                .is_some_and(|t| t != trigger)
            {
                let reason = format!(
                    "others wait for {} until something else: an event arms one trigger",
                    name(&events[after])
                );
                faults.push((index, "until", reason));
            }
            if let Some(until) = until
                && gates[until]
                    .disarm
                    .replace(trigger)
                    .is_some_and(|t| t != trigger)
            {
                let reason = format!(
                    "{} ends already what waits for another event: it disarms one trigger",
                    name(&events[until])
                );
                faults.push((index, "until", reason));
            }
        }
        (Triggers(gates), faults)
    }

    /// The gate of an event.
    pub fn gate(&self, index: usize) -> Gate {
        self.0.get(index).copied().unwrap_or_default()
    }

    /// Whether other events wait for an event.
    pub fn works(&self, index: usize) -> bool {
        let gate = self.gate(index);
        gate.arm.is_some() || gate.disarm.is_some()
    }
}

fn name(event: &Event) -> &str {
    event.name.as_deref().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(events: &str) -> (Vec<Gate>, Vec<(usize, &'static str)>) {
        let events: Vec<Event> = serde_saphyr::from_str(events).unwrap();
        let (triggers, faults) = Triggers::of(&events);
        let faults = faults.into_iter().map(|(index, key, _)| (index, key));
        (triggers.0, faults.collect())
    }

    fn gate(armed_by: Option<u8>, arm: Option<u8>, disarm: Option<u8>) -> Gate {
        Gate {
            armed_by,
            arm,
            disarm,
        }
    }

    #[test]
    fn those_who_wait_for_the_same_share_a_trigger() {
        let (gates, faults) = gates(
            "- {name: x, direction: a-to-b, packet: 1, action: drop}
- {direction: a-to-b, packet: 2, after: x, action: drop}
- {name: z, direction: b-to-a, packet: 3, after: x, action: drop}
- {name: e, direction: b-to-a, packet: 4, after: z, until: e, action: drop}",
        );
        assert_eq!(faults, []);
        assert_eq!(
            gates,
            [
                gate(None, Some(0), None),
                gate(Some(0), None, None),
                gate(Some(0), Some(1), None),
                gate(Some(1), None, Some(1)),
            ]
        );
    }

    #[test]
    fn what_cannot_be_waited_for_is_told() {
        let first = "- {name: x, direction: a-to-b, packet: 1, action: drop}\n- ";
        for (event, key) in [
            (
                "{name: x, direction: a-to-b, packet: 2, action: drop}",
                "name",
            ),
            (
                "{direction: a-to-b, packet: 2, after: y, action: drop}",
                "after",
            ),
            (
                "{direction: a-to-b, packet: 2, until: x, action: drop}",
                "until",
            ),
            (
                "{direction: a-to-b, packet: 2, after: x, until: x, action: drop}",
                "until",
            ),
            (
                "{name: y, direction: a-to-b, packet: 2, after: y, action: drop}",
                "after",
            ),
        ] {
            assert_eq!(gates(&format!("{first}{event}")).1, [(1, key)], "{event}");
        }
        let (_, faults) = gates(
            "- {name: x, direction: a-to-b, packet: 1, action: drop}
- {name: y, direction: a-to-b, packet: 2, action: drop}
- {direction: a-to-b, packet: 3, after: x, action: drop}
- {direction: a-to-b, packet: 4, after: x, until: y, action: drop}",
        );
        assert_eq!(faults, [(3, "until")]);
    }

    #[test]
    fn a_card_has_so_many_triggers() {
        let mut text = String::new();
        for n in 1..=65 {
            text += &format!("- {{name: e{n}, direction: a-to-b, packet: {n}, action: drop}}\n");
            text += &format!("- {{direction: b-to-a, packet: {n}, after: e{n}, action: drop}}\n");
        }
        assert_eq!(gates(&text).1, [(129, "after")]);
    }
}
