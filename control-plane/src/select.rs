// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the card finds the packets that an event means: by name, or by rule.
//!
//! What can be named is: one position of a connection, or some thousands, each a row of the
//! card's tables that counts its own iterations. All else is a rule, of which the card has few.

use midwire_driver::{Action, Measure, Proto, Rule, RuleChance, Scope};

use crate::merge::{Position, PositionKey};
use crate::plan::{Connections, Event, Iterations, Kind, Numbers};

/// Positions that one event is split into at most.
pub const MAX_POSITIONS: u64 = 4096;
/// Rules of a lane.
pub const MAX_RULES: usize = 64;

/// How the card finds the packets of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// By their names.
    Positions(Vec<PositionKey>),
    /// By a rule, without seed, trigger and action.
    Rule(Rule),
}

/// Why the packets of an event can't be found: the key that is wrong, and the reason.
pub type Fault = (&'static str, String);

/// How the card finds the packets of an event.
pub fn select(event: &Event) -> Result<Selection, Fault> {
    let Some((key, numbers)) = event.numbers() else {
        return Err((
            "direction",
            "expected one of packet, byte, psn and count".to_owned(),
        ));
    };
    match positions(event, key, numbers) {
        Some(keys) => Ok(Selection::Positions(keys)),
        None => rule(event, key, numbers).map(Selection::Rule),
    }
}

/// The positions, when all can be named.
fn positions(event: &Event, key: &str, numbers: &Numbers) -> Option<Vec<PositionKey>> {
    let (Connections::One(connection), &[kind]) = (event.connection, event.kinds()) else {
        return None;
    };
    let drawn = event.probability.is_some() || event.burst.is_some();
    if drawn || event.times.is_some() || key == "count" {
        return None;
    }
    // A segment covers many bytes: a range of them is not so many segments.
    let few = match key {
        "byte" => numbers.single().is_some(),
        _ => numbers.count().is_some_and(|n| n <= MAX_POSITIONS),
    };
    let every = event.every.filter(|&n| n > 0).unwrap_or(1);
    if !few || numbers.ranges().len() > 1 && every > 1 {
        return None;
    }
    let all = numbers
        .ranges()
        .iter()
        .flat_map(|&(first, last)| first..=last);
    all.step_by(every as usize)
        .map(|n| {
            let position = match key {
                "byte" => Position::Byte(n),
                "psn" => Position::Psn(u32::try_from(n).ok()?),
                _ => Position::Packet(kind, u32::try_from(n).ok()?),
            };
            Some(PositionKey {
                direction: event.direction,
                connection,
                position,
            })
        })
        .collect()
}

fn rule(event: &Event, key: &'static str, numbers: &Numbers) -> Result<Rule, Fault> {
    let fault = |key, reason: &str| Err((key, reason.to_owned()));
    let kinds = event.kinds();
    let plain = event.connection == Connections::None;
    if plain && kinds != [Kind::Any] {
        return fault(
            "kind",
            "packets of no connection have no kind, expected any",
        );
    }
    if plain && matches!(key, "byte" | "psn") {
        return fault(key, "packets of no connection are counted, expected packet");
    }
    if event.probability.is_some() && event.burst.is_some() {
        return fault("burst", "expected probability or burst, not both");
    }
    if event.every == Some(0) {
        return fault("every", "every 0th packet is never, expected 1 or more");
    }
    if event.times == Some(0) {
        return fault("times", "0 times is never, expected 1 or more");
    }
    if key == "byte" && event.every.is_some_and(|n| n != 1) {
        return fault(
            "every",
            "segments cover bytes as they please, expected packet or count",
        );
    }
    let &[(first, last)] = numbers.ranges() else {
        return fault(
            key,
            &format!(
                "a list is looked up number by number, which needs an end, one connection, one \
                 kind and at most {MAX_POSITIONS} numbers, and neither every, times, probability \
                 nor burst"
            ),
        );
    };
    let last = (last != Numbers::END).then_some(last);
    let highest = if key == "byte" {
        (1 << 47) - 1
    } else {
        u64::from(u32::MAX)
    };
    if numbers.highest() > highest {
        return Err((key, format!("{} is above {highest}", numbers.highest())));
    }
    let fresh_or_again = match &event.iterations {
        iterations if *iterations == Iterations::first() => (true, false),
        iterations if *iterations == Iterations::again() => (false, true),
        iterations if *iterations == Iterations::all() => (true, true),
        _ => {
            return fault(
                "iterations",
                "of packets that are not named one by one, the card tells the first time from \
                 later ones, expected 1, 2- or all",
            );
        }
    };
    let all = numbers.is_all();
    let tcp_data = key == "packet" && kinds.contains(&Kind::Data) && !all;
    if tcp_data && fresh_or_again.1 {
        return fault(
            "iterations",
            &format!(
                "a TCP retransmission has no number of its own, expected packet: all, a range of \
                 bytes, or at most {MAX_POSITIONS} packets of one connection"
            ),
        );
    }
    let measure = match key {
        "byte" => Measure::Byte,
        "count" => Measure::Count,
        "packet" if plain => Measure::Count,
        _ => Measure::Position,
    };
    Ok(Rule {
        lane: event.direction,
        scope: match event.connection {
            // A plan's numbers are below 65535.
            Connections::One(number) => {
                Scope::Connection(u16::try_from(number).unwrap_or(u16::MAX))
            }
            Connections::All => Scope::Tracked,
            Connections::None => Scope::Plain,
        },
        protos: match key {
            "psn" => vec![Proto::Roce],
            "byte" => vec![Proto::Tcp],
            _ if tcp_data => vec![Proto::Tcp],
            _ => Vec::new(),
        },
        kinds: match key {
            "psn" => vec![midwire_trace::Kind::Data, midwire_trace::Kind::ReadRequest],
            _ => kinds.iter().map(|&kind| kind.into()).collect(),
        },
        fresh: fresh_or_again.0,
        again: fresh_or_again.1,
        measure,
        first,
        last,
        every: event.every.unwrap_or(1),
        chance: RuleChance::Always,
        times: event.times,
        armed_by: None,
        action: Action::default(),
    })
}

/// How often an event has to fire; nothing when once is enough.
pub fn wanted(event: &Event) -> Option<u32> {
    let open = |iterations: &Iterations| {
        let mut ranges = iterations.ranges().iter();
        ranges.any(|range| range.last == Iterations::END)
    };
    let each: u32 = event
        .iterations
        .ranges()
        .iter()
        .filter(|range| range.last != Iterations::END)
        .map(|range| u32::from(range.last - range.first) + 1)
        .sum();
    let waits = event.after.is_some();
    match select(event).ok()? {
        _ if waits || open(&event.iterations) => None,
        Selection::Positions(keys) => Some(each.saturating_mul(keys.len() as u32)),
        Selection::Rule(rule) => {
            let one = matches!(rule.scope, Scope::Connection(_)) || rule.measure == Measure::Count;
            let drawn = event.probability.is_some() || event.burst.is_some();
            let numbered = rule.measure != Measure::Byte && event.kinds().len() == 1;
            let last = rule.last.filter(|_| one && numbered && !drawn)?;
            let n = (last - rule.first) / u64::from(rule.every) + 1;
            let n = u32::try_from(n).unwrap_or(u32::MAX);
            Some(rule.times.map_or(n, |times| n.min(times)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midwire_trace::Lane;

    fn event(text: &str) -> Event {
        serde_saphyr::from_str(&format!("{{direction: a-to-b, action: drop, {text}}}")).unwrap()
    }

    fn named(text: &str) -> Vec<Position> {
        match select(&event(text)) {
            Ok(Selection::Positions(keys)) => keys.into_iter().map(|key| key.position).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn rule(text: &str) -> Rule {
        match select(&event(text)) {
            Ok(Selection::Rule(rule)) => rule,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_can_be_named_is() {
        use Position::{Byte, Packet, Psn};
        assert_eq!(named("packet: 5"), [Packet(Kind::Data, 5)]);
        assert_eq!(
            named("kind: ack, packet: 5-7"),
            [5, 6, 7].map(|n| Packet(Kind::Ack, n))
        );
        assert_eq!(named("psn: [9, 1-2]"), [1, 2, 9].map(Psn));
        assert_eq!(named("byte: 9"), [Byte(9)]);
        assert_eq!(
            named("packet: 10-40, every: 10"),
            [10, 20, 30, 40].map(|n| Packet(Kind::Data, n))
        );
        assert_eq!(named("packet: 1-4096, iterations: 2-3").len(), 4096);
        assert_eq!(wanted(&event("packet: 5-7, iterations: 1-2")), Some(6));
        assert_eq!(wanted(&event("packet: 5-7, iterations: 2-")), None);
    }

    #[test]
    fn what_cannot_is_a_rule() {
        let one = rule("packet: 1-4097");
        assert_eq!(
            (one.scope, one.first, one.last, one.fresh, one.again),
            (Scope::Connection(0), 1, Some(4097), true, false)
        );
        assert_eq!(one.protos, [Proto::Tcp]);
        assert_eq!(wanted(&event("packet: 1-4097")), Some(4097));
        assert_eq!(
            wanted(&event("packet: 1-5000, every: 10, times: 7")),
            Some(7)
        );

        let open = rule("connection: all, kind: [ack, nak], packet: all, every: 3");
        assert_eq!(
            (open.scope, open.first, open.last),
            (Scope::Tracked, 0, None)
        );
        assert_eq!(open.every, 3);
        assert_eq!(
            open.kinds,
            [midwire_trace::Kind::Ack, midwire_trace::Kind::Nak]
        );

        let plain = rule("connection: none, packet: 10-20");
        assert_eq!((plain.scope, plain.measure), (Scope::Plain, Measure::Count));
        assert_eq!(plain.kinds, [midwire_trace::Kind::Any]);
        assert_eq!(wanted(&event("connection: none, packet: 10-20")), Some(11));

        let again = rule("packet: all, iterations: 2-, times: 1");
        assert_eq!(
            (again.fresh, again.again, again.times),
            (false, true, Some(1))
        );
        assert!(again.protos.is_empty());
        assert_eq!(rule("psn: 5-, iterations: all").protos, [Proto::Roce]);
        assert_eq!(
            rule("byte: 100-900, iterations: all").measure,
            Measure::Byte
        );
        assert_eq!(rule("packet: 5, probability: 1%").first, 5);
        assert_eq!(wanted(&event("packet: 1-9, probability: 1%")), None);
        assert_eq!(rule("count: 100-").measure, Measure::Count);
        assert_eq!(event("count: 100-").direction, Lane::AtoB);
    }

    #[test]
    fn what_can_be_neither_is_told() {
        for (text, key) in [
            ("packet: [1, 3-]", "packet"),
            ("packet: [1, 3], times: 1", "packet"),
            ("packet: 1-, iterations: all", "iterations"),
            ("packet: all, iterations: 2-3", "iterations"),
            ("packet: 1-5000, iterations: 2", "iterations"),
            ("connection: none, kind: ack, packet: 1-", "kind"),
            ("connection: none, byte: 1-9", "byte"),
            ("packet: 1-, every: 0", "every"),
            ("packet: 1-, times: 0", "times"),
            ("byte: 1-, every: 2", "every"),
            ("packet: 1-4294967296", "packet"),
            (
                "packet: 1-, probability: 1%, burst: {begins: 1%, ends: 1%}",
                "burst",
            ),
        ] {
            assert_eq!(select(&event(text)).unwrap_err().0, key, "{text}");
        }
    }
}
