// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the network did to the packets of a connection, where the recording does not say it.

use midwire_trace::packet::tcp_flags::{ECE, SYN};
use midwire_trace::{Lane, Nanos};

use super::trail::{Seen, Segment, Trail};

/// From a frame's first bit in to its first bit out of the card, when it is held back, beyond what
/// was asked for.
const LATENCY: Nanos = Nanos(140);
/// Changed frames take longer than others; what takes longer than this was held back.
const HELD: Nanos = Nanos(500);
/// Congestion experienced.
pub const CE: u8 = 3;
/// How much sooner a packet is taken to arrive than it may have.
const SLACK: Nanos = Nanos(200);

impl Trail {
    /// Has `left` say when a packet came to the line that untouched packets were seen on; and its
    /// ECN field be what the other end got.
    pub fn on_the_line(&mut self) {
        for seen in &mut self.packets {
            let held = seen.left.map(|left| left.since(seen.time));
            // What was overtaken on its way to that line has left when it was seen there.
            if let Some(held) = held.filter(|_| seen.is_timely()) {
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

    /// Works out what happened before and behind the place of recording.
    pub fn infer_network(&mut self) {
        let responses = self.responses();
        self.complete(responses);
        self.find_lost(responses);
        self.find_late(responses);
        self.find_unheard(responses);
        self.find_marked(responses);
    }

    /// Finds packets that were seen and did not arrive: bytes that were sent again, before which
    /// nothing said that they had come.
    fn find_lost(&mut self, responses: [Nanos; 2]) {
        let lost: Vec<_> = (0..self.packets.len())
            .filter(|&at| self.was_lost(at, responses))
            .collect();
        for at in lost {
            self.packets[at].left = None;
        }
    }

    fn was_lost(&self, at: usize, responses: [Nanos; 2]) -> bool {
        let seen = &self.packets[at];
        if !seen.segment.takes_numbers() || !seen.is_recorded() {
            return false;
        }
        let Some(again) = self.again(at) else {
            return false;
        };
        // What answers the later one comes no sooner than this.
        let until = again.time + responses[seen.lane.other().index()];
        let mut told = self.answers(at).take_while(|p| p.time < until);
        !told.any(|p| tells(&p.segment, &seen.segment))
            && self.told_twice(at, again.number).is_none()
    }

    /// Holds packets back that the other end got behind later ones.
    fn find_late(&mut self, responses: [Nanos; 2]) {
        for at in 0..self.packets.len() {
            let seen = &self.packets[at];
            let response = responses[seen.lane.other().index()];
            let known = seen
                .left
                .filter(|_| seen.out.is_none() && seen.is_recorded());
            if let Some((left, told)) = known.zip(self.told_late(at, response)) {
                // Sooner rather than later: its answer can be held back.
                self.packets[at].left = Some(left.max(told - response - SLACK));
            }
        }
    }

    /// Finds acknowledgements that were seen and did not come to the sender, or not before it had sent
    /// again what they tell of.
    fn find_unheard(&mut self, responses: [Nanos; 2]) {
        for again in 0..self.packets.len() {
            for (at, left) in self.unheard(again, responses) {
                self.packets[at].left = left;
            }
        }
    }

    /// The acknowledgements of what a packet brings that its sender had not heard when it sent it, and
    /// when each came to it.
    fn unheard(&self, at: usize, responses: [Nanos; 2]) -> Vec<(usize, Option<Nanos>)> {
        let again = &self.packets[at];
        let response = responses[again.lane.index()];
        let own = |p: &&Seen| p.lane == again.lane && p.is_recorded();
        let before = self.packets[..at].iter().rfind(own).map(|p| p.time);
        // A timer made it leave, and no queue held it up: the sender was silent before.
        let heard = again.time - response - response;
        let silent = before.is_some_and(|before| before < heard);
        if !silent || !again.segment.takes_numbers() || !again.is_recorded() {
            return Vec::new();
        }
        let told = |(_, p): &(usize, &Seen)| {
            let other = p.lane != again.lane && p.is_recorded();
            other && p.time < heard && tells(&p.segment, &again.segment)
        };
        let unheard: Vec<_> = (self.packets[..at].iter().enumerate())
            .filter(told)
            .collect();
        // Of bytes of its own the sender said that they have come.
        let came = |(at, p): &(usize, &Seen)| {
            p.segment.takes_numbers() && self.answers(*at).any(|q| tells(&q.segment, &p.segment))
        };
        if unheard.iter().any(came) {
            return Vec::new();
        }
        let late = self.heard_late(at, response);
        let first = unheard.first().map(|(_, p)| p.time).unwrap_or_default();
        (unheard.into_iter())
            .filter(|(_, p)| p.left.is_some())
            .map(|(at, p)| (at, late.map(|late| late + (p.time - first))))
            .collect()
    }

    /// When the first of them came to it, if it went on as one that had heard that sooner than it could
    /// hear of the bytes that it sent again.
    fn heard_late(&self, at: usize, response: Nanos) -> Option<Nanos> {
        let again = &self.packets[at];
        let answer = self.answers(at).find(|p| tells(&p.segment, &again.segment));
        let until = answer.map_or(Nanos(u64::MAX), |answer| answer.time + response);
        let highest = self.packets[..at].iter().filter(|p| p.lane == again.lane);
        let highest = highest.map(|p| p.segment.end()).max()?;
        let new = |p: &&Seen| p.lane == again.lane && p.segment.end() > highest;
        let new = self.packets[at + 1..].iter().find(new)?;
        (new.time + SLACK < until).then(|| (new.time - response - SLACK).max(again.time))
    }

    /// Marks packets of which the other end echoes a mark that was not seen.
    fn find_marked(&mut self, responses: [Nanos; 2]) {
        let mut echoed = [true; 2];
        let mut marked = Vec::new();
        for (number, ack) in self.packets.iter().enumerate() {
            let begins = ack.segment.has(ECE) && !echoed[ack.lane.index()];
            echoed[ack.lane.index()] = ack.segment.has(ECE) || ack.segment.has(SYN);
            let until = ack.time - responses[ack.lane.index()] + SLACK;
            let before = self.packets[..number].iter().rposition(|seen| {
                let came = seen.left.is_some_and(|left| left <= until);
                let capable = seen.ecn_out().unwrap_or(seen.segment.ecn) != 0;
                seen.lane != ack.lane && came && capable
            });
            marked.extend(before.filter(|_| begins));
        }
        for at in marked {
            self.packets[at].segment.ecn = CE;
        }
    }

    /// When the other end said that it had a packet, if it said so of a later one before.
    fn told_late(&self, at: usize, response: Nanos) -> Option<Nanos> {
        let seen = &self.packets[at];
        let told = self
            .answers(at)
            .find(|p| tells(&p.segment, &seen.segment))?;
        let behind = |block: &(u32, u32)| block.0 >= seen.segment.end();
        let overtaken = (self.answers(at))
            .take_while(|p| p.number < told.number)
            .any(|p| p.segment.sack.iter().any(behind));
        if seen.segment.payload == 0 || !overtaken {
            return None;
        }
        match self.again(at) {
            // It was that one which came first.
            Some(again) if again.time + response <= told.time => self.told_twice(at, again.number),
            _ => Some(told.time),
        }
    }

    /// When the other end said of the later packet that it had its bytes already (RFC 2883).
    fn told_twice(&self, at: usize, again: u64) -> Option<Nanos> {
        let seen = &self.packets[at];
        let others = self.answers(at).filter(|p| p.number > again);
        let twice = others.filter_map(|p| p.segment.sack.first().map(|block| (p, *block)));
        let mut twice = twice.filter(|(p, (_, to))| *to <= p.segment.ack);
        let first =
            twice.find(|(_, (from, to))| *from <= seen.segment.seq && seen.segment.seq < *to);
        Some(first?.0.time)
    }

    /// The next packet recorded that brings its first byte again.
    fn again(&self, at: usize) -> Option<&Seen> {
        let seen = &self.packets[at];
        self.packets[at + 1..].iter().find(|later| {
            let same = later.lane == seen.lane && later.is_recorded();
            same && later.segment.brings(seen.segment.seq)
        })
    }

    /// What was recorded of the other end behind a packet.
    fn answers(&self, at: usize) -> impl Iterator<Item = &Seen> {
        let others = move |p: &&Seen| p.lane != self.packets[at].lane && p.is_recorded();
        self.packets[at + 1..].iter().filter(others)
    }

    /// The least time from a packet that comes to the end at A, and at B, to one that it sends.
    pub fn responses(&self) -> [Nanos; 2] {
        Lane::ALL.map(|lane| {
            let mut least = Nanos(u64::MAX);
            let mut heard = None;
            for seen in self.packets.iter().filter(|seen| seen.is_timely()) {
                if seen.lane != lane {
                    heard = Some(seen);
                    continue;
                }
                // The first answer to what takes numbers.
                if let Some(other) = heard.take()
                    && other.segment.takes_numbers()
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
pub(super) fn tells(ack: &Segment, of: &Segment) -> bool {
    let covers = |(from, to): &(u32, u32)| *from <= of.seq && of.end() <= *to;
    let syn = of.has(SYN) && ack.has(SYN);
    syn || ack.ack >= of.end() || ack.sack.iter().any(covers)
}
