// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long an end takes to say that something is missing, and to send it again.
//!
//! The specification names no time. [`SLOW_NS`] is a yardstick: NICs that do it in hardware take a
//! few microseconds.

use super::{Finding, Found, Recovery, Rule, Verb};
use crate::text::span;

/// More than this is slow.
const SLOW_NS: u64 = 100_000;

/// What took too long, once for each rule and verb.
pub(super) fn findings(
    recoveries: &[Recovery],
    timeout_ns: impl Fn(u32) -> Option<u64>,
) -> Vec<Finding> {
    // A read that is asked for again as late as this may be so for its timer.
    let timer = |r: &Recovery| match r.found {
        Found::ImpliedNak => timeout_ns(r.connection).map_or(0, |timeout| timeout / 10 * 9),
        _ => u64::MAX,
    };
    let told = [Found::SequenceNak, Found::ImpliedNak];
    let of = &|rule, verb| {
        let slow: Vec<(&Recovery, u64)> = recoveries
            .iter()
            .filter(|r| r.verb == verb && told.contains(&r.found))
            .filter_map(|r| Some((r, least(rule, r)?)))
            .filter(|(r, time)| *time > SLOW_NS && *time < timer(r))
            .collect();
        let (first, _) = slow.first()?;
        let (cites, does) = match rule {
            Rule::SlowNak => ([first.out_of_order, first.nak], "asked for"),
            _ => ([first.nak, first.again], "sent again"),
        };
        let longest = slow.iter().map(|(_, time)| *time).max()?;
        Some(Finding {
            rule,
            connection: Some(first.connection),
            packets: cites.into_iter().flatten().map(|c| c.packet).collect(),
            what: format!(
                "what is missing of a {verb} is {does} after {} at least, {} in all; more than \
                 {} is slow",
                span(longest),
                crate::text::times(slow.len() as u64),
                span(SLOW_NS)
            ),
        })
    };
    [Rule::SlowNak, Rule::SlowReaction]
        .into_iter()
        .flat_map(|rule| Verb::ALL.into_iter().filter_map(move |verb| of(rule, verb)))
        .collect()
}

/// The time without the round trip to that end, if that is known.
fn least(rule: Rule, r: &Recovery) -> Option<u64> {
    let (time, trip) = match rule {
        Rule::SlowNak => (r.generation_ns, r.generation_round_trip_ns),
        _ => (r.reaction_ns, r.reaction_round_trip_ns),
    };
    Some(time?.saturating_sub(trip.unwrap_or(0)))
}
