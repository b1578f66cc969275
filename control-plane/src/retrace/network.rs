// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the network did to the packets of a connection, where the recording does not say it.

use midwire_trace::packet::tcp_flags::SYN;
use midwire_trace::{Lane, Nanos};

use super::trail::{Segment, Trail};

/// From a frame's first bit in to its first bit out of the card, when it is held back, beyond what
/// was asked for.
const LATENCY: Nanos = Nanos(140);
/// Changed frames take longer than others; what takes longer than this was held back.
const HELD: Nanos = Nanos(500);

impl Trail {
    /// Has `left` say when a packet came to the line that untouched packets were seen on; and its
    /// ECN field be what the other end got.
    pub fn on_the_line(&mut self) {
        for seen in &mut self.packets {
            let held = seen.left.map(|left| left.since(seen.time));
            if let Some(held) = held {
                let held = if held > HELD {
                    held - LATENCY
                } else {
                    Nanos(0)
                };
                seen.left = Some(seen.time + held);
            }
            if let Some(ecn) = seen.ecn_out() {
                seen.segment.ecn = ecn;
            }
        }
    }

    /// Marks packets that were seen and did not arrive: bytes that were sent again, before which
    /// nothing said that they had come.
    pub fn find_lost(&mut self, responses: [Nanos; 2]) {
        let lost: Vec<_> = (0..self.packets.len())
            .filter(|&at| self.was_lost(at, responses))
            .collect();
        for at in lost {
            self.packets[at].left = None;
        }
    }

    fn was_lost(&self, at: usize, responses: [Nanos; 2]) -> bool {
        let seen = &self.packets[at];
        let takes_numbers = seen.segment.end() != seen.segment.seq;
        if !takes_numbers {
            return false;
        }
        let again = self.packets[at + 1..].iter().find(|later| {
            let (s, l) = (&seen.segment, &later.segment);
            later.lane == seen.lane && l.end() != l.seq && l.seq <= s.seq && s.seq < l.end()
        });
        let Some(again) = again else {
            return false;
        };
        // What answers the later one comes no sooner than this.
        let until = again.time + responses[seen.lane.other().index()];
        let told = self.packets[at + 1..]
            .iter()
            .filter(|p| p.lane != seen.lane);
        let mut told = told.take_while(|p| p.time < until);
        !told.any(|p| tells(&p.segment, &seen.segment)) && !self.was_needless(at, again.number)
    }

    /// The other end said of the later packet that it had its bytes already (RFC 2883).
    fn was_needless(&self, at: usize, again: u64) -> bool {
        let seen = &self.packets[at];
        let later = self.packets[at + 1..].iter();
        let others = later.filter(|p| p.lane != seen.lane && p.number > again);
        let twice = others.filter_map(|p| p.segment.sack.first().map(|block| (p, *block)));
        let mut twice = twice.filter(|(p, (_, to))| *to <= p.segment.ack);
        twice.any(|(_, (from, to))| from <= seen.segment.seq && seen.segment.seq < to)
    }

    /// The least time from a packet that comes to the end at A, and at B, to one that it sends.
    pub fn responses(&self) -> [Nanos; 2] {
        [Lane::AtoB, Lane::BtoA].map(|lane| {
            let mut least = Nanos(u64::MAX);
            let mut heard = None;
            for seen in &self.packets {
                if seen.lane != lane {
                    heard = Some(seen);
                    continue;
                }
                // The first answer to what takes numbers.
                if let Some(other) = heard.take()
                    && other.segment.end() != other.segment.seq
                    && seen.segment.ack == other.segment.end()
                {
                    least = least.min(seen.time.since(other.time));
                }
            }
            match least {
                Nanos(u64::MAX) => Nanos(2_000),
                least => least,
            }
        })
    }
}

/// Whether an acknowledgement says that a segment has come.
fn tells(ack: &Segment, of: &Segment) -> bool {
    let covers = |(from, to): &(u32, u32)| *from <= of.seq && of.end() <= *to;
    let syn = of.has(SYN) && ack.has(SYN);
    syn || ack.ack >= of.end() || ack.sack.iter().any(covers)
}
