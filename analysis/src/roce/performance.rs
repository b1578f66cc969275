// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How fast losses were found and mended, by verb.
//!
//! The capture is taken between the two ends, so what it shows of an end's reaction has the round
//! trip to that end in it. The least round trip that was seen is an upper bound of that, for the
//! end took some time to answer. What is left without it and what was seen bound the truth.

use serde::{Deserialize, Serialize};

use super::{Found, Recovery, Verb};

/// Of several times, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// The least.
    pub least_ns: u64,
    /// The one in the middle; of two, the lesser.
    pub median_ns: u64,
    /// The most.
    pub most_ns: u64,
}

impl Spread {
    pub(super) fn of(times: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut times: Vec<u64> = times.into_iter().collect();
        times.sort_unstable();
        Some(Self {
            count: times.len() as u64,
            least_ns: *times.first()?,
            median_ns: times[(times.len() - 1) / 2],
            most_ns: *times.last()?,
        })
    }
}

/// Recoveries of one verb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Performance {
    /// The verb.
    pub verb: Verb,
    /// How losses were found, and how often.
    pub found: Vec<(Found, u64)>,
    /// From the packet out of order to the NAK, as seen.
    pub generation: Option<Spread>,
    /// The same without the round trip to that end.
    pub generation_without_round_trip: Option<Spread>,
    /// From the NAK to what was sent again, as seen.
    pub reaction: Option<Spread>,
    /// The same without the round trip to that end.
    pub reaction_without_round_trip: Option<Spread>,
    /// Timeouts.
    pub timeouts: Option<Spread>,
}

const WAYS: [Found; 5] = [
    Found::SequenceNak,
    Found::ImpliedNak,
    Found::NotReady,
    Found::Timeout,
    Found::NotYet,
];

/// By verb.
pub(super) fn of(recoveries: &[Recovery]) -> Vec<Performance> {
    let of_verb = |verb| {
        let all = || recoveries.iter().filter(move |r| r.verb == verb);
        // What a receiver that is not ready asks for is no latency.
        let lost = || all().filter(|r| r.found != Found::NotReady);
        all().next()?;
        let without = |time: Option<u64>, trip: Option<u64>| Some(time?.saturating_sub(trip?));
        Some(Performance {
            verb,
            found: WAYS
                .into_iter()
                .map(|way| (way, all().filter(|r| r.found == way).count() as u64))
                .filter(|(_, count)| *count > 0)
                .collect(),
            generation: Spread::of(lost().filter_map(|r| r.generation_ns)),
            generation_without_round_trip: Spread::of(
                lost().filter_map(|r| without(r.generation_ns, r.generation_round_trip_ns)),
            ),
            reaction: Spread::of(lost().filter_map(|r| r.reaction_ns)),
            reaction_without_round_trip: Spread::of(
                lost().filter_map(|r| without(r.reaction_ns, r.reaction_round_trip_ns)),
            ),
            timeouts: Spread::of(all().filter_map(|r| r.waited_ns)),
        })
    };
    Verb::ALL.into_iter().filter_map(of_verb).collect()
}
