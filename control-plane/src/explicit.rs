// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run did, as a plan that does it again: each packet that an event touched, by its name.
//!
//! Rules, chance and triggers have made their decisions then; what is left is the list of them.

use midwire_driver::MAX_CLAUSES;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use midwire_trace::identity::Identity;
use midwire_trace::{Accounting, Capture, Kind as PacketKind};
use serde_json::Value;

use crate::Error;
use crate::merge::join;
use crate::plan::{Action, Connections, Event, Iterations, Kind, Kinds, Numbers, Plan};
use crate::run_file::{Recorded, RunFile, files};
use crate::twin::walk;

/// The plan of a run with a list of its decisions in place of its events, as text.
pub fn explicit(directory: &Path) -> Result<String, Error> {
    let run = RunFile::read(directory)?;
    let recorded = &run.recorded;
    let events = decided(directory, &run)?;
    let plan = &recorded.plan;
    let text = replaced(&plan.text, &events);
    let wanted = Plan {
        events,
        ..plan.parsed.clone()
    };
    let name = &plan.file;
    // What can't be replaced in the text as it stands is written anew.
    let text = match text.map(|text| (Plan::parse(name, &text), text)) {
        Some((Ok(read), text)) if read == wanted => text,
        _ => anew(&wanted),
    };
    Plan::parse(name, &text)?;
    Ok(format!(
        "# What happened in the run {} (seed {}), packet by packet.\n{text}",
        directory.display(),
        recorded.seed
    ))
}

/// What a run in this directory did, as events.
pub(crate) fn decided(directory: &Path, run: &RunFile) -> Result<Vec<Event>, Error> {
    let incomplete = |reason: String| Error::Incomplete {
        path: directory.to_owned(),
        reason,
    };
    let capture =
        Capture::open(directory.join(files::CAPTURE)).map_err(|e| incomplete(e.to_string()))?;
    let account = Accounting::of(&capture);
    if !account.complete {
        return Err(incomplete(account.problems.join(" ")));
    }
    Ok(decisions(&run.recorded, &capture))
}

/// An event for each packet to which something happened, in the order of time.
fn decisions(recorded: &Recorded, capture: &Capture) -> Vec<Event> {
    let mut events = Vec::new();
    let mut used: HashMap<String, usize> = HashMap::new();
    // Packets of no connection so far.
    let mut plain = [0u64; 2];
    walk(recorded, capture, |packet, finds| {
        let lane = packet.record.lane;
        if packet.identity.is_none() {
            plain[lane.index()] += 1;
        }
        let all = &recorded.plan.parsed.events;
        let actions = finds
            .iter()
            .flat_map(|find| find.events)
            .filter_map(|&number| Some(&all.get(number.checked_sub(1)? as usize)?.action));
        let action = actions.fold(Action::default(), |joined, action| join(&joined, action));
        if action == Action::default() {
            return;
        }
        let Some(identity) = &packet.identity else {
            let count = Numbers::from(plain[lane.index()]);
            events.push(Event {
                connection: Connections::None,
                packet: Some(count),
                ..Event::new(lane, action)
            });
            return;
        };
        let named = [
            by_number(identity, action.clone()),
            by_count(identity, action),
        ];
        for named in named.into_iter().flatten() {
            let times = used
                .entry(named.identity_text() + lane.as_str())
                .or_default();
            if *times < MAX_CLAUSES {
                *times += 1;
                events.push(named);
                return;
            }
        }
    });
    events
}

/// A packet by its place among those of its kind; nothing when it has none of its own.
fn by_number(identity: &Identity<'_>, action: Action) -> Option<Event> {
    let kind = match identity.kind {
        PacketKind::Data | PacketKind::ReadRequest => Kind::Data,
        PacketKind::Ack => Kind::Ack,
        PacketKind::Nak => Kind::Nak,
        PacketKind::Cnp => Kind::Cnp,
        PacketKind::Syn => Kind::Syn,
        PacketKind::Fin => Kind::Fin,
        PacketKind::Rst => Kind::Rst,
        _ => return None,
    };
    let place = identity.place(identity.kind)?;
    let position = Numbers::from(u64::try_from(place.position).ok()?);
    let iteration = u8::try_from(place.iteration).ok()?;
    if iteration == Iterations::END {
        return None;
    }
    // RoCE data goes by its PSN, TCP data by the number of its segment.
    let psn = kind == Kind::Data && identity.byte.is_none();
    let (packet, psn) = match psn {
        true => (None, Some(position)),
        false => (Some(position), None),
    };
    Some(Event {
        connection: Connections::One(identity.connection),
        kind: (kind != Kind::Data).then_some(Kinds::One(kind)),
        packet,
        psn,
        iterations: Iterations::range(iteration, iteration),
        ..Event::new(identity.lane, action)
    })
}

/// A packet by its place among all of its connection and direction.
fn by_count(identity: &Identity<'_>, action: Action) -> Option<Event> {
    let place = identity.place(PacketKind::Any)?;
    Some(Event {
        connection: Connections::One(identity.connection),
        kind: Some(Kinds::One(Kind::Any)),
        packet: Some(Numbers::from(u64::try_from(place.position).ok()?)),
        ..Event::new(identity.lane, action)
    })
}

/// The events as lines of YAML: who, where, which, and then what happens.
fn lines(events: &[Event]) -> String {
    let mut text = String::from(if events.is_empty() {
        "events: []\n"
    } else {
        "events:\n"
    });
    let last = |key: &str| match key {
        "action" => 2,
        "packet" | "psn" | "iterations" => 1,
        _ => 0,
    };
    for event in events {
        let value = serde_json::to_value(event).unwrap_or_default();
        let mut entries: Vec<_> = value.as_object().into_iter().flatten().collect();
        entries.sort_by_key(|(key, _)| last(key));
        let drop = serde_json::json!({"drop": true});
        let entries = entries
            .into_iter()
            .map(|(key, value)| match *value == drop {
                true => format!("{key}: drop"),
                false => format!("{key}: {}", flow(value)),
            });
        let entries: Vec<_> = entries.collect();
        let _ = writeln!(text, "  - {{{}}}", entries.join(", "));
    }
    text
}

/// A value as flow YAML, without quotes where none are needed.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|(key, value)| format!("{key}: {}", flow(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(flow).collect();
            format!("[{}]", values.join(", "))
        }
        Value::String(text) => {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let plain = text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.chars().all(word)
                && serde_saphyr::from_str::<Value>(text).is_ok_and(|read| read == *value);
            if plain {
                text.clone()
            } else {
                value.to_string()
            }
        }
        other => other.to_string(),
    }
}

/// The text of a plan with other events, all else as it is; nothing when its events are not a
/// block of lines.
fn replaced(text: &str, events: &[Event]) -> Option<String> {
    let all: Vec<&str> = text.lines().collect();
    let begin = all.iter().position(|line| line.starts_with("events:"))?;
    let of_block = |line: &&str| line.is_empty() || line.starts_with([' ', '-', '#', '\t']);
    let length = all[begin + 1..]
        .iter()
        .take_while(|line| of_block(line))
        .count();
    let join = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let (before, after) = (&all[..begin], &all[begin + 1 + length..]);
    Some(join(before) + &lines(events) + &join(after))
}

/// A plan written from what it means: a line for each part.
pub(crate) fn anew(plan: &Plan) -> String {
    let value = serde_json::to_value(plan).unwrap_or_default();
    let mut text = String::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        match key.as_str() {
            "events" => text += &lines(&plan.events),
            _ => {
                let _ = writeln!(text, "{key}: {}", flow(value));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
version: 1
name: x  # a plan
endpoints: {a: {pcap: {in: f}}, b: {pcap: {}}}
events:
  # loss
  - {connection: all, direction: a-to-b, packet: all, probability: 1%, action: drop}

timeouts: {quiet: 1s}
";

    fn event_of(text: &str) -> Event {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn events_are_replaced_and_all_else_stays() {
        let events = [
            event_of("{direction: a-to-b, packet: 5, iterations: 2, action: drop}"),
            event_of(
                "{connection: 3, direction: b-to-a, kind: nak, packet: 1, action: {delay: 5ms}}",
            ),
        ];
        let text = replaced(TEXT, &events).unwrap();
        let plan = Plan::parse("x", &text).unwrap();
        assert_eq!(plan.events, events);
        assert!(text.contains("# a plan") && text.ends_with("timeouts: {quiet: 1s}\n"));
        assert!(!text.contains("loss"));
        // A plan that is one line of JSON has no such block.
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(replaced(&json, &events), None);
        assert_eq!(Plan::parse("x", &anew(&plan)).unwrap(), plan);
    }

    #[test]
    fn what_reads_as_something_else_is_quoted() {
        for (text, told) in [
            ("drop", "drop"),
            ("1-2", "1-2"),
            ("true", "\"true\""),
            ("5", "\"5\""),
            ("a: b", "\"a: b\""),
            ("", "\"\""),
        ] {
            let value = Value::from(text);
            assert_eq!(flow(&value), told);
            assert_eq!(serde_saphyr::from_str::<Value>(told).unwrap(), value);
        }
    }
}
