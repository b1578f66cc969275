// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When untouched packets left the card, which notes only when they came.
//!
//! The order in which packets get to the receiver counts for what it has to do about them. A lane
//! keeps the order of all packets that no event holds back, and each takes the card's latency.
//! Both are told by the packets that an event touched: these have a record of their leaving.

use std::collections::HashMap;

use midwire_trace::{Actions, Capture, Kind, Lane, Nanos, Record, Tap};

/// Of both lanes.
pub(super) struct Departures([OfLane; 2]);

#[derive(Default)]
struct OfLane {
    /// Least time from coming to leaving, ns.
    latency_ns: u64,
    /// Packets that were touched and not held back, and when they left.
    touched: Vec<(u32, u64)>,
    /// Those of them that came before the last packet asked for.
    passed: usize,
    /// When the last of these had left.
    latest: u64,
}

impl Departures {
    pub fn read(capture: &Capture) -> Self {
        Self(Lane::ALL.map(|lane| OfLane::read(capture, lane)))
    }

    /// When an untouched packet left. Packets of a lane are asked for in their order.
    pub fn of(&mut self, record: &Record) -> Nanos {
        let lane = &mut self.0[record.lane.index()];
        while let Some(&(id, left)) = lane.touched.get(lane.passed)
            && id < record.packet_id
        {
            // Behind it.
            lane.latest = lane.latest.max(left + 1);
            lane.passed += 1;
        }
        Nanos((record.time.0 + lane.latency_ns).max(lane.latest))
    }
}

impl OfLane {
    fn read(capture: &Capture, lane: Lane) -> Self {
        let mut left: HashMap<u32, u64> = HashMap::new();
        let mut entries = capture.entries_of(lane, Tap::Egress);
        while let Some(entry) = entries.next_entry() {
            let record = &entry.record;
            let held = [Actions::DELAY, Actions::REORDER];
            let held = held.iter().any(|held| record.actions.contains(*held));
            if record.kind != Kind::Injected && !held {
                left.entry(record.packet_id).or_insert(record.time.0);
            }
        }
        if left.is_empty() {
            return Self::default();
        }
        let mut latency_ns = u64::MAX;
        let mut entries = capture.entries_of(lane, Tap::Ingress);
        while let Some(entry) = entries.next_entry() {
            let record = &entry.record;
            if !record.actions.is_empty()
                && let Some(left) = left.get(&record.packet_id)
            {
                latency_ns = latency_ns.min(left.saturating_sub(record.time.0));
            }
        }
        let mut touched: Vec<_> = left.into_iter().collect();
        touched.sort_unstable();
        Self {
            latency_ns,
            touched,
            ..Self::default()
        }
    }
}
