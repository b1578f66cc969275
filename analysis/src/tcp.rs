// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the senders of a TCP connection did about loss, read from their packets.
//!
//! The view is the card's: it stands between the two ends, so it knows what each sent and, of
//! each packet, whether it was let through. For every segment that begins below the highest byte
//! already sent it says which transmission of these bytes it is, how long after the one before,
//! and what made the sender send it (RFC 5681 duplicate ACKs, RFC 6675 and RFC 8985 selective
//! acknowledgements, RFC 8985 tail loss probe, RFC 6298 timeout).

use std::collections::BTreeMap;

use midwire_trace::units::Lane;
use serde::{Deserialize, Serialize};

use crate::view::Passage;

/// One TCP packet of one connection, as the analysis needs it. Times are card time in ns.
#[derive(Clone, Debug)]
pub struct TcpPacket {
    /// How it passed the card.
    pub at: Passage,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number, meaningful with the ACK flag.
    pub ack: u32,
    /// Window field, unscaled.
    pub window: u16,
    /// TCP flags byte.
    pub flags: u8,
    /// Payload bytes.
    pub payload: u16,
    /// SACK blocks of its options, when the snapshot held them.
    pub sack: Vec<(u32, u32)>,
}

/// FIN, SYN, RST, ACK and ECE bits of the flags byte (RFC 9293, 3.1; RFC 3168, 6.1).
const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// Shortest retransmission timeout of the stacks in use (Linux: 200 ms; RFC 6298 asks for 1 s).
const RTO_MIN_NS: u64 = 190_000_000;
/// RFC 5681, 3.2: duplicate acknowledgements that start a fast retransmit.
const DUP_THRESHOLD: u32 = 3;

/// What made a sender send bytes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Duplicate or selective acknowledgements told it of the loss.
    Fast,
    /// Nothing came back for a retransmission timeout.
    Timeout,
    /// Sent in the wake of a timeout: the bytes behind the one that timed out.
    AfterTimeout,
    /// The last segment again, before any timeout, to provoke an acknowledgement.
    TailProbe,
    /// None of these explains it.
    Unknown,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Cause::Fast => "fast retransmit",
            Cause::Timeout => "timeout",
            Cause::AfterTimeout => "after a timeout",
            Cause::TailProbe => "tail loss probe",
            Cause::Unknown => "unknown",
        })
    }
}

/// A segment that was sent again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retransmission {
    /// Number of its connection.
    pub connection: u16,
    /// Number of the packet in the capture.
    pub packet: u64,
    /// Which way it went.
    pub direction: Lane,
    /// The segment of new data that first carried its first byte, from 1; 0 for SYN.
    pub segment: u32,
    /// Relative byte of its first byte; SYN: 0.
    pub byte: u64,
    /// Bytes of payload.
    pub bytes: u16,
    /// Which transmission of that byte this is; the first retransmission is 2.
    pub transmission: u32,
    /// Card time, ns.
    pub time_ns: u64,
    /// Since the transmission before, ns.
    pub after_ns: u64,
    /// Packet number of the transmission before.
    pub previous: u64,
    /// The transmission before did not get past the card whole.
    pub previous_lost: bool,
    /// What made the sender send it.
    pub cause: Cause,
    /// Duplicate acknowledgements seen since the transmission before.
    pub duplicate_acks: u32,
    /// From the evidence that was enough (third duplicate or first selective acknowledgement) to
    /// this packet, ns; includes the way from the card to the sender and back.
    pub reaction_ns: Option<u64>,
}

impl Retransmission {
    /// The cause with its evidence.
    pub fn why(&self) -> String {
        match self.duplicate_acks {
            0 => self.cause.to_string(),
            1 => format!("{}, 1 duplicate ACK", self.cause),
            n => format!("{}, {n} duplicate ACKs", self.cause),
        }
    }

    /// The segment of new data by its number, or the SYN.
    pub fn what(&self) -> String {
        match self.segment {
            0 => "SYN".to_owned(),
            n => n.to_string(),
        }
    }
}

/// One direction of a connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Direction {
    /// Segments that brought new data.
    pub segments: u32,
    /// Bytes of new data.
    pub bytes: u64,
    /// Segments sent again, SYN included.
    pub retransmitted: u32,
    /// Of these, the ones whose transmission before had got past the card whole.
    pub unneeded: u32,
    /// Packets with payload that did not get past the card.
    pub lost: u32,
    /// Least time from a data packet to the acknowledgement that covered it first, ns: the round
    /// trip between the card and the receiver.
    pub rtt_far_ns: Option<u64>,
}

/// What happened in one connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Connection {
    /// Its number.
    pub connection: u16,
    /// From the first SYN to its SYN-ACK's acknowledgement, ns.
    pub handshake_ns: Option<u64>,
    /// First and last packet, ns.
    pub span_ns: (u64, u64),
    /// Both directions, A to B first.
    pub directions: [Direction; 2],
    /// In time order.
    pub retransmissions: Vec<Retransmission>,
    /// Each end closed in order.
    pub closed: bool,
    /// Packet that reset the connection.
    pub reset: Option<u64>,
}

/// How bytes from a position on were sent last.
#[derive(Clone, Copy)]
struct Sent {
    end: u64,
    segment: u32,
    transmissions: u32,
    time: u64,
    packet: u64,
    lost: bool,
}

/// What a sender has sent and heard.
#[derive(Default)]
struct Sender {
    connection: u16,
    base: Option<u32>,
    highest: u64,
    segments: u32,
    sent: BTreeMap<u64, Sent>,
    syn: Option<Sent>,
    last_data_ns: u64,
    /// Highest acknowledgement that reached the card from the other end, relative.
    acked: u64,
    last_ack_window: u16,
    /// Times of duplicate acknowledgements since `acked` last moved.
    duplicates: Vec<u64>,
    /// Relative ranges selectively acknowledged, with the time each was first seen.
    sacked: Vec<(u64, u64, u64)>,
    /// Highest byte at the time of a timeout: what is sent again below it is in its wake.
    timeout_until: u64,
    /// Highest byte at the time of a fast retransmit (RFC 6582's recover).
    recover: u64,
    fin: bool,
}

impl Sender {
    /// Relative 64-bit position of `seq`, by serial arithmetic about `near`.
    fn relative(&self, seq: u32, near: u64) -> Option<u64> {
        let rel = seq.wrapping_sub(self.base?);
        let step = rel.wrapping_sub(near as u32) as i32;
        near.checked_add_signed(i64::from(step))
    }

    fn data(&mut self, p: &TcpPacket, out: &mut Direction) -> Option<Retransmission> {
        let start = self.relative(p.seq, self.highest)?;
        let len = u64::from(p.payload);
        let end = start + len;
        if p.at.lost() {
            out.lost += 1;
        }
        // RFC 9293, 3.8.4: a keep-alive repeats the byte before the first unacknowledged one.
        if len <= 1 && start + 1 == self.acked && self.acked == self.highest {
            return None;
        }
        let again = if start < self.highest {
            self.covering(start)
                .map(|s| (s, self.cause(p, start, end, &s)))
        } else {
            None
        };
        let (segment, transmissions) = match &again {
            Some((s, _)) => (s.segment, s.transmissions + 1),
            None => (self.segments + 1, 1),
        };
        if end > self.highest {
            self.segments += 1;
            out.segments += 1;
            out.bytes += end - self.highest.max(start);
            self.highest = end;
        }
        let this = Sent {
            end,
            segment,
            transmissions,
            time: p.at.time_ns,
            packet: p.at.number,
            lost: p.at.lost(),
        };
        // Later parts of what this covers now have this transmission as their last one.
        let covered: Vec<u64> = self.sent.range(start..end).map(|(k, _)| *k).collect();
        for key in covered {
            if let Some(s) = self.sent.get_mut(&key) {
                s.time = p.at.time_ns;
                s.packet = p.at.number;
                s.lost = p.at.lost();
                if key != start {
                    s.transmissions += 1;
                }
            }
        }
        self.sent
            .entry(start)
            .and_modify(|s| {
                s.transmissions = transmissions;
                s.end = s.end.max(end)
            })
            .or_insert(this);
        self.last_data_ns = p.at.time_ns;
        let (before, (cause, duplicate_acks, reaction_ns)) = again?;
        match cause {
            Cause::Timeout => self.timeout_until = self.highest,
            Cause::Fast => self.recover = self.highest,
            _ => {}
        }
        out.retransmitted += 1;
        out.unneeded += u32::from(!before.lost);
        Some(Retransmission {
            connection: self.connection,
            packet: p.at.number,
            direction: p.at.lane,
            segment,
            byte: start,
            bytes: p.payload,
            transmission: transmissions,
            time_ns: p.at.time_ns,
            after_ns: p.at.time_ns.saturating_sub(before.time),
            previous: before.packet,
            previous_lost: before.lost,
            cause,
            duplicate_acks,
            reaction_ns,
        })
    }

    /// The last transmission of the byte at `start`.
    fn covering(&self, start: u64) -> Option<Sent> {
        self.sent
            .range(..=start)
            .next_back()
            .map(|(_, s)| *s)
            .filter(|s| s.end > start)
    }

    fn cause(
        &self,
        p: &TcpPacket,
        start: u64,
        end: u64,
        before: &Sent,
    ) -> (Cause, u32, Option<u64>) {
        let since = p.at.time_ns.saturating_sub(before.time);
        let silent = p.at.time_ns.saturating_sub(self.last_data_ns);
        let duplicates: Vec<u64> = if start <= self.acked + u64::from(p.payload) {
            self.duplicates
                .iter()
                .copied()
                .filter(|t| *t > before.time)
                .collect()
        } else {
            Vec::new()
        };
        let count = duplicates.len() as u32;
        let sack = self
            .sacked
            .iter()
            .filter(|(_, above, t)| *above > end && *t > before.time)
            .map(|(_, _, t)| *t)
            .min();
        let third = duplicates.get(DUP_THRESHOLD as usize - 1).copied();
        let evidence = match (sack, third) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let cause = if silent >= RTO_MIN_NS && since >= RTO_MIN_NS {
            Cause::Timeout
        } else if evidence.is_some() {
            Cause::Fast
        } else if start < self.timeout_until {
            Cause::AfterTimeout
        } else if end >= self.highest {
            Cause::TailProbe
        } else if start < self.recover {
            Cause::Fast
        } else {
            Cause::Unknown
        };
        let reaction = evidence
            .filter(|_| cause == Cause::Fast)
            .map(|t| p.at.time_ns.saturating_sub(t));
        (cause, count, reaction)
    }

    /// An acknowledgement from the other end that got past the card at some time.
    fn acknowledge(&mut self, p: &TcpPacket, at: u64, out: &mut Direction) {
        let Some(ack) = self.relative(p.ack, self.acked) else {
            return;
        };
        // The FIN takes one number behind the last byte.
        let ack = ack.min(self.highest + u64::from(self.fin));
        if ack > self.acked {
            if let Some((_, s)) = self.sent.range(..ack).next_back()
                && s.transmissions == 1
                && s.end == ack
            {
                let rtt = at.saturating_sub(s.time);
                out.rtt_far_ns = Some(out.rtt_far_ns.map_or(rtt, |r| r.min(rtt)));
            }
            self.acked = ack;
            self.duplicates.clear();
            self.sacked.retain(|(_, end, _)| *end > ack);
        } else if ack == self.acked
            && p.payload == 0
            && p.flags & (SYN | FIN) == 0
            && self.highest > self.acked
            && (p.window == self.last_ack_window || !p.sack.is_empty())
        {
            self.duplicates.push(at);
        }
        self.last_ack_window = p.window;
        for (from, to) in &p.sack {
            let (Some(from), Some(to)) = (
                self.relative(*from, self.acked),
                self.relative(*to, self.acked),
            ) else {
                continue;
            };
            // RFC 2883: a block below the acknowledgement reports a duplicate, not a gap.
            if from > self.acked
                && to > from
                && !self.sacked.iter().any(|(f, t, _)| *f <= from && *t >= to)
            {
                self.sacked.push((from, to, at));
            }
        }
    }
}

/// Reads one connection. `packets` are all its packets in the order in which they came in.
pub fn analyze(connection: u16, packets: &[TcpPacket]) -> Connection {
    let mut senders = [(); 2].map(|()| Sender {
        connection,
        ..Sender::default()
    });
    let mut directions = [Direction::default(), Direction::default()];
    let mut retransmissions = Vec::new();
    let mut reset = None;
    let mut first_syn = None;
    let mut handshake_ns = None;
    // What an end sends, and what of it gets past the card to the other end, in order of time.
    let mut steps: Vec<(u64, bool, &TcpPacket)> = Vec::with_capacity(2 * packets.len());
    for p in packets {
        steps.push((p.at.time_ns, false, p));
        if !p.at.lost() {
            let times = p.at.left_ns.iter().chain(&p.at.copies_ns);
            steps.extend(times.map(|&at| (at, true, p)));
        }
    }
    steps.sort_by_key(|&(at, ..)| at);
    for (at, passed, p) in steps {
        let (me, other) = match p.at.lane {
            Lane::AtoB => (0, 1),
            Lane::BtoA => (1, 0),
        };
        if passed {
            if p.flags & ACK != 0 {
                senders[other].acknowledge(p, at, &mut directions[other]);
                if handshake_ns.is_none() && p.flags & SYN == 0 && senders[other].syn.is_some() {
                    handshake_ns = first_syn.map(|t| at.saturating_sub(t));
                }
            }
            continue;
        }
        if p.flags & SYN != 0 {
            let base = p.seq.wrapping_add(1);
            let repeated = senders[me].syn.filter(|_| senders[me].base == Some(base));
            let transmissions = repeated.map_or(1, |s| s.transmissions + 1);
            if let Some(s) = repeated {
                directions[me].retransmitted += 1;
                directions[me].unneeded += u32::from(!s.lost);
                retransmissions.push(Retransmission {
                    connection,
                    packet: p.at.number,
                    direction: p.at.lane,
                    segment: 0,
                    byte: 0,
                    bytes: 0,
                    transmission: transmissions,
                    time_ns: p.at.time_ns,
                    after_ns: p.at.time_ns.saturating_sub(s.time),
                    previous: s.packet,
                    previous_lost: s.lost,
                    cause: if p.at.time_ns.saturating_sub(s.time) >= RTO_MIN_NS {
                        Cause::Timeout
                    } else {
                        Cause::Unknown
                    },
                    duplicate_acks: 0,
                    reaction_ns: None,
                });
            }
            let s = &mut senders[me];
            s.base = Some(base);
            s.syn = Some(Sent {
                end: 0,
                segment: 0,
                transmissions,
                time: p.at.time_ns,
                packet: p.at.number,
                lost: p.at.lost(),
            });
            first_syn.get_or_insert(p.at.time_ns);
        }
        if p.payload > 0
            && let Some(r) = senders[me].data(p, &mut directions[me])
        {
            retransmissions.push(r);
        }
        if p.flags & FIN != 0 {
            senders[me].fin = true;
        }
        if p.flags & RST != 0 {
            reset.get_or_insert(p.at.number);
        }
    }
    let span = |f: fn(&[TcpPacket]) -> Option<&TcpPacket>| f(packets).map_or(0, |p| p.at.time_ns);
    Connection {
        connection,
        handshake_ns,
        span_ns: (span(|p| p.first()), span(|p| p.last())),
        closed: senders.iter().all(|s| s.fin),
        directions,
        retransmissions,
        reset,
    }
}

#[cfg(test)]
mod tests;
