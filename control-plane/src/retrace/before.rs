// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happened to packets before they came to the place of recording: some were overtaken, and
//! some never came. All get their places in the order in which they were sent, in which the card of
//! a replay sees them.

use std::collections::{BTreeMap, HashSet};

use midwire_trace::packet::tcp_flags::{ACK, FIN, PSH, RST};
use midwire_trace::units::line_bytes;
use midwire_trace::{Lane, Nanos};

use super::network::tells;
use super::settings;
use super::trail::{Before, Seen, Segment, Trail};

/// Linux sends nothing again sooner when nobody answers, but to probe for a lost tail.
const LEAST_TIMEOUT: Nanos = Nanos(200_000_000);
/// Of acknowledgements that make the sender send again.
const DUPLICATES: usize = 3;
/// A hole of more segments is not one that a network makes.
const LONGEST_HOLE: u32 = 1 << 14;
/// Of ends that leave no trace of their rates.
const FASTEST_MBPS: u32 = 100_000;

impl Trail {
    /// Puts packets into the order in which they were sent, and those in that the recording does
    /// not have.
    pub(super) fn complete(&mut self, responses: [Nanos; 2]) {
        let mut sent = Lane::ALL.map(|lane| self.sent(lane, responses));
        for sent in &mut sent {
            find_overtaken(sent);
        }
        let rates =
            (sent.each_ref()).map(|sent| settings::rate(sent.iter().map(|sent| &sent.seen)));
        let mut all = Vec::new();
        for (lane, sent) in Lane::ALL.into_iter().zip(sent) {
            let rate = rates[lane.index()].or(rates[lane.other().index()]);
            let mut direction = Direction {
                trail: self,
                lane,
                responses,
                rate_mbps: rate.unwrap_or(FASTEST_MBPS),
                longest: self
                    .of(lane)
                    .map(|seen| seen.segment.payload)
                    .max()
                    .unwrap_or(0),
                next: 0,
                placed: Vec::new(),
            };
            for at in 0..sent.len() {
                direction.take(&sent[at..]);
            }
            all.extend(direction.timed());
        }
        all.sort_by_key(|(rank, seen)| (seen.time, *rank));
        self.packets = all.into_iter().map(|(_, seen)| seen).collect();
    }

    /// The recorded packets of a direction as they were sent.
    fn sent(&self, lane: Lane, responses: [Nanos; 2]) -> Vec<Sent> {
        let recorded: Vec<&Seen> = self.of(lane).collect();
        let Some(places) = counted(&recorded) else {
            return self.sorted(&recorded, responses);
        };
        let mut all: Vec<_> = places.into_iter().zip(recorded).collect();
        all.sort_by_key(|(place, _)| *place);
        let mut before = None;
        let sent = all.into_iter().map(|(place, seen)| {
            let missing = match (before, place) {
                (Some(before), Some(place)) => usize::try_from(place - before - 1).unwrap_or(0),
                _ => 0,
            };
            before = place;
            Sent {
                seen: seen.clone(),
                missing: Some(missing),
            }
        });
        sent.collect()
    }

    /// The same by what the packets say.
    fn sorted(&self, recorded: &[&Seen], responses: [Nanos; 2]) -> Vec<Sent> {
        let mut sent: Vec<&Seen> = Vec::new();
        let (mut bytes, mut acked) = (0, 0);
        for seen in recorded {
            let s = &seen.segment;
            let back = match s.takes_numbers() {
                true => s.end() <= bytes,
                false => s.ack < acked && !s.has(RST),
            };
            let by = back
                .then(|| self.overtaken_by(&sent, seen, responses))
                .flatten();
            sent.insert(by.unwrap_or(sent.len()), seen);
            (bytes, acked) = (bytes.max(s.end()), acked.max(s.ack));
        }
        let sent = sent.into_iter().map(|seen| Sent {
            seen: seen.clone(),
            missing: None,
        });
        sent.collect()
    }

    /// The first of the packets so far that has overtaken another one; nothing when that was sent
    /// behind them all.
    fn overtaken_by(&self, sent: &[&Seen], seen: &Seen, responses: [Nanos; 2]) -> Option<usize> {
        let s = &seen.segment;
        if !s.takes_numbers() {
            // Acknowledgement numbers never go back.
            return sent.iter().position(|p| p.segment.ack > s.ack);
        }
        let behind = |p: &&Seen| p.segment.takes_numbers() && p.segment.seq >= s.end();
        let at = sent.iter().position(behind)?;
        if sent.iter().any(|p| p.segment.brings(s.seq)) {
            return None;
        }
        let by = sent[at];
        let first = match (by.instance().time, seen.instance().time) {
            (Some(by), Some(own)) if by != own => own.wrapping_sub(by) > u32::MAX / 2,
            // Sooner than one could be sent again.
            _ => {
                let others = self.of(seen.lane.other()).filter(|p| p.time > by.time);
                let mut told = others.filter(|p| p.segment.ack <= s.seq).map(|p| p.time);
                let again = match told.nth(DUPLICATES - 1) {
                    Some(told) => told + responses[seen.lane.index()],
                    None => by.time + LEAST_TIMEOUT,
                };
                seen.time < again
            }
        };
        first.then_some(at)
    }
}

/// A recorded packet in the order in which packets were sent.
struct Sent {
    seen: Seen,
    /// Packets that are missing before it, where that is known.
    missing: Option<usize>,
}

/// The places of packets as IPv4's identification counts them, as it does for each socket of Linux;
/// nothing where it does not count.
fn counted(recorded: &[&Seen]) -> Option<Vec<Option<i64>>> {
    let mut known = HashSet::new();
    let mut highest: Option<i64> = None;
    let mut places = Vec::new();
    for seen in recorded {
        // What no socket has sent, such as an answer to a SYN, has 0.
        let id = seen.instance().id.filter(|id| *id != 0);
        let place = id.map(|id| {
            let highest = highest.unwrap_or(i64::from(id));
            highest + i64::from(id.wrapping_sub(highest as u16).cast_signed())
        });
        // Without one, or as a copy, it stays where it came.
        let place = place.filter(|place| known.insert(*place));
        highest = highest.max(place);
        places.push(place.or(highest));
    }
    let range = known.iter().max()? - known.iter().min()? + 1;
    let count = known.len() as i64;
    // Other ways to number packets leave more of them out.
    (count > 2 && range <= count + count / 2).then_some(places)
}

/// Packets that came behind later ones; they are taken to have been where these were.
fn find_overtaken(sent: &mut [Sent]) {
    let mut next = Nanos(u64::MAX);
    for Sent { seen, .. } in sent.iter_mut().rev() {
        if seen.time > next {
            (seen.before, seen.time) = (Before::Overtaken, next);
        }
        next = seen.time;
    }
}

/// A direction that is being completed.
struct Direction<'a> {
    trail: &'a Trail,
    lane: Lane,
    responses: [Nanos; 2],
    rate_mbps: u32,
    /// Longest payload.
    longest: u32,
    /// Number of the next new byte.
    next: u32,
    placed: Vec<Placed>,
}

struct Placed {
    seen: Seen,
    /// It was sent with what is before it, rather than with what follows.
    follows: bool,
}

impl Direction<'_> {
    /// Takes the first of the packets that are left, in the order in which they were sent, and what
    /// is missing before it.
    fn take(&mut self, left: &[Sent]) {
        let Some(Sent { seen, .. }) = left.first() else {
            return;
        };
        if let Some(before) = self.placed.last().map(|placed| placed.seen.clone())
            && !seen.segment.has(RST)
        {
            self.fill(&before, left);
        }
        self.next = self.next.max(seen.segment.end());
        self.place(seen.clone(), false);
    }

    /// Puts in what is missing before the first of the packets that are left.
    fn fill(&mut self, before: &Seen, left: &[Sent]) {
        let Sent { seen, missing } = &left[0];
        let start = self.placed.len();
        let (hole, mut more) = self.hole(left);
        while more > 0
            && let Some(again) = self.send_again(seen, true)
        {
            self.place(self.missing(Some(again), before), false);
            more -= 1;
        }
        let mut tail = Vec::new();
        if more > 0 {
            let acks = self.heard(before, seen).min(more);
            for _ in 0..acks {
                self.place(self.missing(None, before), false);
            }
            more -= acks;
            if self.waited(before, seen) {
                tail = self.pieces(seen.segment.seq, self.last(), more);
                more -= tail.len();
            }
        } else if missing.is_none() && self.waited(before, seen) && self.had_more(before, seen) {
            tail.push((seen.segment.seq, seen.segment.end()));
        }
        // New bytes were sent last, or with what is before them if they had to be sent again.
        let first = !tail.is_empty();
        if first {
            let rest = self.placed.split_off(start);
            self.place_new(hole.iter().chain(&tail), before, true);
            self.placed.extend(rest);
        }
        for _ in 0..more {
            self.place(self.missing(self.send_again(seen, false), before), false);
        }
        if !first {
            self.place_new(hole.iter(), before, false);
        }
    }

    /// New bytes that are missing before the first of the packets that are left, and how many other
    /// packets are.
    fn hole(&self, left: &[Sent]) -> (Vec<(u32, u32)>, usize) {
        let Some(missing) = left[0].missing else {
            return (self.new_bytes(left[0].seen.segment.seq), 0);
        };
        let newer = |sent: &Sent| {
            let s = &sent.seen.segment;
            s.end() > self.next && !s.has(RST)
        };
        let until = match missing {
            0 => 0,
            _ => left.iter().position(newer).unwrap_or(0),
        };
        // They may be in the gaps before others that were sent again.
        let mut hole = self.new_bytes(left[until].seen.segment.seq);
        let behind = left[1..=until].iter().filter_map(|sent| sent.missing).sum();
        let least = hole.len().saturating_sub(behind);
        let others = (missing + behind).saturating_sub(hole.len());
        let more = missing.saturating_sub(least).min(others);
        hole.truncate(least.max(missing.saturating_sub(more)));
        (hole, more)
    }

    fn place_new<'b>(
        &mut self,
        pieces: impl Iterator<Item = &'b (u32, u32)>,
        before: &Seen,
        follows: bool,
    ) {
        for bytes in pieces {
            let mut seen = self.missing(Some(*bytes), before);
            if let Some(Placed { seen: last, .. }) = self.placed.last().filter(|_| follows) {
                seen.time = last.time + self.takes(last);
            }
            self.next = bytes.1;
            self.place(seen, follows);
        }
    }

    fn place(&mut self, seen: Seen, follows: bool) {
        self.placed.push(Placed { seen, follows });
    }

    /// A packet has new bytes, and came so long after another one that they may have been sent and
    /// lost in between.
    fn waited(&self, before: &Seen, seen: &Seen) -> bool {
        let waited = seen.time.since(before.time) >= self.round_trip() + self.round_trip();
        waited && seen.segment.takes_numbers() && seen.segment.seq >= self.next
    }

    /// New bytes up to a number, if they can have been lost.
    fn new_bytes(&self, to: u32) -> Vec<(u32, u32)> {
        match to.saturating_sub(self.next) / self.longest.max(1) {
            ..LONGEST_HOLE => self.pieces(self.next, to, usize::MAX),
            _ => Vec::new(),
        }
    }

    /// Bytes, cut as those packets that brought them did, up to a number of pieces.
    fn pieces(&self, from: u32, to: u32, most: usize) -> Vec<(u32, u32)> {
        let (mut at, mut pieces) = (from, Vec::new());
        if from == 0 || self.longest == 0 {
            return pieces;
        }
        while at < to && pieces.len() < most {
            let by = self.brought_by(at).map(|by| &by.segment);
            let cut = by.map_or(to, Segment::end);
            // A FIN has a number, but no byte.
            let fin = by.is_some_and(|by| by.has(FIN));
            let end = cut
                .min(to)
                .min(at.saturating_add(self.longest + u32::from(fin)));
            pieces.push((at, end));
            at = end;
        }
        pieces
    }

    /// The first packet recorded that has a byte.
    fn brought_by(&self, byte: u32) -> Option<&Seen> {
        self.trail
            .of(self.lane)
            .find(|seen| seen.segment.brings(byte))
    }

    /// The number behind the last byte.
    fn last(&self) -> u32 {
        let ends = self.trail.of(self.lane).map(|seen| seen.segment.end());
        ends.max().unwrap_or(0)
    }

    /// What the other end said or sent.
    fn others(&self) -> impl DoubleEndedIterator<Item = &Seen> {
        let other = self.lane.other();
        self.trail
            .packets
            .iter()
            .filter(move |seen| seen.lane == other)
    }

    /// Packets between two that were sent which may have wanted an acknowledgement.
    fn heard(&self, before: &Seen, seen: &Seen) -> usize {
        let from = before.time - self.responses[self.lane.index()];
        let between = |p: &&Seen| p.segment.takes_numbers() && p.time > from && p.time < seen.time;
        let heard = self.others().filter(between).count();
        heard.max(usize::from(seen.segment.ack > before.segment.ack))
    }

    /// The sender had more to send and could, but sent nothing for long: a write goes on behind what
    /// has no push flag.
    fn had_more(&self, before: &Seen, seen: &Seen) -> bool {
        let goes_on = before.segment.payload > 0 && !before.segment.has(PSH | FIN);
        let until = seen.time - self.round_trip();
        let told = self.others().rev().find(|p| p.time < until);
        let scale = |p: &Seen| p.segment.offer?.scale;
        let scale = self.others().find_map(scale).unwrap_or(0);
        goes_on
            && told.is_some_and(|told| {
                let window = u32::from(told.segment.window) << scale.min(14);
                told.segment.ack == seen.segment.seq && window >= seen.segment.payload
            })
    }

    /// From one end to the other and back, at the least.
    fn round_trip(&self) -> Nanos {
        self.responses[0] + self.responses[1]
    }

    /// Bytes that may have been sent again before a packet, as nobody had said that they have come;
    /// only such as were said to be missing and sent once, or any.
    fn send_again(&self, before: &Seen, due: bool) -> Option<(u32, u32)> {
        let told = || self.others().filter(|p| p.time < before.time);
        let acked = told().map(|p| p.segment.ack).max().unwrap_or(0);
        let mut sent: BTreeMap<(u32, u32), Vec<Nanos>> = BTreeMap::new();
        let data = (self.placed.iter().map(|placed| &placed.seen)).filter(|seen| {
            let s = &seen.segment;
            s.takes_numbers() && s.end() > acked && !told().any(|p| tells(&p.segment, s))
        });
        for Seen { segment, time, .. } in data {
            sent.entry((segment.seq, segment.end()))
                .or_default()
                .push(*time);
        }
        let missed = |seq, end, times: &[Nanos]| {
            told().any(|p| {
                let behind = p.segment.sack.iter().any(|block| block.0 >= end);
                p.time > times[0] && (behind || p.segment.ack == seq)
            })
        };
        let all = sent.iter().map(|((seq, end), times)| {
            let missed = missed(*seq, *end, times);
            ((!missed, times.len()), (*seq, *end))
        });
        let may = |(rank, _): &((bool, usize), (u32, u32))| !due || *rank == (false, 1);
        let (_, bytes) = all.filter(may).min()?;
        Some(bytes)
    }

    /// A packet that was not recorded, with bytes or as an acknowledgement, sent behind another one.
    fn missing(&self, bytes: Option<(u32, u32)>, before: &Seen) -> Seen {
        let mut seen = Seen {
            number: 0,
            before: Before::Missing,
            left: None,
            copies: Vec::new(),
            frame: Vec::new(),
            out: None,
            length: before.length.saturating_sub(before.segment.payload),
            segment: Segment {
                flags: ACK,
                seq: self.next,
                payload: 0,
                sack: Vec::new(),
                offer: None,
                ..before.segment.clone()
            },
            ..before.clone()
        };
        if let Some((seq, end)) = bytes {
            let by = self.brought_by(seq).unwrap_or(before);
            // Only its own part has the end of the stream.
            let fin = by.segment.has(FIN) && by.segment.end() == end;
            seen.segment.seq = seq;
            seen.segment.payload = end - seq - u32::from(fin);
            seen.segment.flags = match by.segment.end() == end {
                true => by.segment.flags & (ACK | PSH | FIN),
                false => ACK,
            };
            seen.length += seen.segment.payload;
            seen.left = self.came(&seen.segment).then_some(seen.time);
        }
        seen
    }

    /// The other end has got bytes before a packet was recorded that has them: it is only the
    /// recording that does not have the one that brought them.
    fn came(&self, segment: &Segment) -> bool {
        let by = self.brought_by(segment.seq);
        let response = self.responses[self.lane.other().index()];
        let until = by.map_or(Nanos(u64::MAX), |by| by.time + response);
        self.others()
            .take_while(|p| p.time < until)
            .any(|p| tells(&p.segment, segment))
    }

    /// The packets with their times, each with the number of the recorded one that it was not
    /// behind.
    fn timed(mut self) -> Vec<(u64, Seen)> {
        let mut next = (u64::MAX, Nanos(u64::MAX));
        let mut ranks = Vec::new();
        for at in (0..self.placed.len()).rev() {
            let takes = self.takes(&self.placed[at].seen);
            let Placed { seen, follows } = &mut self.placed[at];
            if seen.is_timely() {
                next.0 = seen.number;
            } else if *follows {
                seen.time = seen.time.min(next.1);
            } else {
                seen.time = next.1 - takes;
            }
            next.1 = seen.time;
            ranks.push(next.0);
        }
        let mut last = Nanos(0);
        for Placed { seen, .. } in &mut self.placed {
            // They may have been sent faster than anything that was recorded.
            seen.time = seen.time.max(last);
            last = seen.time;
            if !seen.is_recorded() {
                seen.left = seen.left.map(|_| last);
            }
        }
        let seen = self.placed.into_iter().map(|placed| placed.seen);
        ranks.into_iter().rev().zip(seen).collect()
    }

    /// How long the sender's line takes for a packet.
    fn takes(&self, seen: &Seen) -> Nanos {
        let bits = line_bytes(seen.length as usize) * 8;
        Nanos(bits * 1_000 / u64::from(self.rate_mbps))
    }
}
