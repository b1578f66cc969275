// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How two runs part: which packets only one of them has, and how far the times of those that both
//! have go apart.

use std::collections::HashMap;

use midwire_trace::{Capture, Kind, Lane, Nanos, Record, Tap};

use crate::text::{Align::Left, Align::Right, columns};

/// What makes a packet the same one in two runs: all but its time. Acknowledgements count where
/// there is nothing else, and packets that are alike in their order.
type Key = (Lane, Option<u16>, Kind, u32, u32, u16, u32);

/// Packets of one capture that are not in the other are counted; of the others times are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parting {
    /// Packets that came in, in both runs.
    pub both: u64,
    /// Those that came in only in the first, and only in the second.
    pub only: [u64; 2],
    /// The first packet whose times are as far apart as no one's before by a power of ten.
    pub steps: Vec<Step>,
}

/// A packet that came in at two times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its number in the first run, as in reports and in pcapng.
    pub number: u64,
    /// When it came in there, from the first packet on.
    pub after: Nanos,
    /// By how much it came in earlier or later in the second run.
    pub apart: Nanos,
}

impl Parting {
    /// Of two captures.
    pub fn of(captures: [&Capture; 2]) -> Self {
        let mut parting = Self {
            both: 0,
            only: [0, 0],
            steps: Vec::new(),
        };
        let mut digits = 0;
        parting.only[1] = pairs(captures, |number, after, apart| {
            let Some(apart) = apart else {
                parting.only[0] += 1;
                return;
            };
            parting.both += 1;
            let now = apart.0.checked_ilog10().map_or(0, |log| log + 1);
            if now > digits {
                digits = now;
                parting.steps.push(Step {
                    number,
                    after,
                    apart,
                });
            }
        });
        parting
    }

    /// As a table.
    pub fn text(&self) -> String {
        let Self { both, only, steps } = self;
        let mut text = format!(
            "{both} packets in both, {} only in the first, {} only in the second\n",
            only[0], only[1]
        );
        if !steps.is_empty() {
            let row = |step: &Step| {
                let Step {
                    number,
                    after,
                    apart,
                } = step;
                vec![number.to_string(), after.to_string(), apart.to_string()]
            };
            let rows: Vec<_> = steps.iter().map(row).collect();
            let heading = [("packet", Right), ("at", Right), ("times apart", Left)];
            text += &columns(&heading, &rows);
        }
        text
    }
}

/// Calls `hear` with each packet that came in in the first run: its number, when it came, from the
/// first on, and by how much earlier or later in the second run, if there too. Returns how many came
/// only there.
pub(super) fn pairs(
    [first, second]: [&Capture; 2],
    mut hear: impl FnMut(u64, Nanos, Option<Nanos>),
) -> u64 {
    let mut others: HashMap<Key, Nanos> = HashMap::new();
    arrivals(second, |_, key, time| {
        others.insert(key, time);
    });
    let mut start = None;
    arrivals(first, |number, key, time| {
        let after = time.since(*start.get_or_insert(time));
        let apart = others.remove(&key);
        let apart = apart.map(|other| time.apart(other));
        hear(number, after, apart);
    });
    others.len() as u64
}

/// Calls `hear` with number, key and time of each packet that came in.
fn arrivals(capture: &Capture, mut hear: impl FnMut(u64, Key, Nanos)) {
    let mut alike: HashMap<_, u32> = HashMap::new();
    let mut entries = capture.by_time();
    let mut number = 0;
    while let Some(entry) = entries.next_entry() {
        number += 1;
        let r: Record = entry.record;
        if r.tap == Tap::Egress {
            continue;
        }
        let ack = if r.payload_len == 0 { r.f1 } else { 0 };
        let what = (r.lane, r.connection, r.kind, r.f0, ack, r.payload_len);
        let nth = alike.entry(what).or_default();
        let (lane, connection, kind, f0, ack, payload) = what;
        hear(
            number,
            (lane, connection, kind, f0, ack, payload, *nth),
            r.time,
        );
        *nth += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::capture;

    #[test]
    fn packets_are_paired_and_their_times_compared() {
        let at = |ns, f0| Record {
            time: Nanos(ns),
            payload_len: 100,
            f0,
            // Of data it has no say.
            f1: ns as u32,
            ..Record::default()
        };
        // 2 is sent twice, 5 and 6 come the other way round, 7 only once.
        let first = [
            at(1_000, 1),
            at(1_100, 2),
            at(1_200, 2),
            at(1_300, 5),
            at(1_400, 6),
            at(1_500, 7),
        ];
        let second = [
            at(1_000, 1),
            at(1_103, 2),
            at(1_250, 2),
            at(1_290, 6),
            at(1_800, 5),
            at(9_000, 8),
        ];
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = [("a", &first), ("b", &second)].map(|(name, records)| {
            let records: Vec<_> = records.iter().map(|record| (*record, 0)).collect();
            capture(&directory, name, &records)
        });
        let parting = Parting::of([&first, &second]);
        assert_eq!((parting.both, parting.only), (5, [1, 1]));
        let step = |number, after, apart| Step {
            number,
            after: Nanos(after),
            apart: Nanos(apart),
        };
        assert_eq!(
            parting.steps,
            [step(2, 100, 3), step(3, 200, 50), step(4, 300, 500)]
        );
        assert!(parting.text().contains("500 ns"));
        assert!(Parting::of([&first, &first]).steps.is_empty());
    }
}
