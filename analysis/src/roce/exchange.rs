// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The requests of one queue pair and what answers them: the two state machines of a reliable
//! connection (InfiniBand specification, volume 1, 9.7), fed with what the capture shows.
//!
//! The responder takes requests in the order of their PSNs. One that comes too early it answers
//! by a NAK with the PSN that is missing, once; it drops all others until that one has come. The
//! requester goes back to the PSN that a NAK names, or to the oldest one that is not acknowledged
//! when its timer runs out, and sends everything from there again (Go-back-N). A read takes as
//! many PSNs as it has responses. Its loss is the requester's to find: a response that comes too
//! early, or an answer to a later request, implies a NAK, and the rest of the read is asked for
//! again from its first missing PSN.

mod log;
mod requester;
mod responder;
mod retransmission;

use std::collections::{HashMap, VecDeque};

use midwire_trace::Psn;
use midwire_trace::packet::{opcode, syndrome};

use super::connection::{Connection, Counts, End, Verb};
use super::counters::Tallies;
use super::finding::{Finding, Rule};
use super::recovery::{Found, Lost, Recovery};
use super::{Cite, Observed, Timer};
use log::Log;

pub(super) struct Done {
    pub connection: Connection,
    pub recoveries: Vec<Recovery>,
    pub findings: Vec<Finding>,
    /// What requester and responder did and met.
    pub tallies: [Tallies; 2],
}

/// A multiple of the space of PSNs: places before the first are counted too.
const ORIGIN: i64 = 1 << 40;
/// PSNs before the first that was seen that an answer is believed to be for.
const FIRST_LOST: i64 = 1024;

/// The PSN that comes next. It is a range behind a read whose number of responses isn't known.
#[derive(Clone, Copy, Default)]
struct Next {
    least: i64,
    most: i64,
    /// First PSN and bytes of the read that leaves it open.
    open: Option<(i64, u32)>,
}

impl Next {
    fn at(psn: i64) -> Self {
        Self {
            least: psn,
            most: psn,
            open: None,
        }
    }

    /// Behind a request.
    fn after(psn: i64, verb: Verb, dma_len: u32, mtu: Option<u32>) -> Self {
        if verb != Verb::Read {
            return Self::at(psn + 1);
        }
        match mtu {
            Some(mtu) => Self::at(psn + responses(dma_len, mtu)),
            None => Self {
                least: psn + responses(dma_len, 4096),
                most: psn + responses(dma_len, 256),
                open: Some((psn, dma_len)),
            },
        }
    }

    fn learn(&mut self, mtu: u32) {
        if let Some((psn, dma_len)) = self.open {
            *self = Self::at(psn + responses(dma_len, mtu));
        }
    }
}

/// Responses that a read of so many bytes has.
fn responses(dma_len: u32, mtu: u32) -> i64 {
    i64::from(dma_len.div_ceil(mtu).max(1))
}
/// Why a requester has to go back.
#[derive(Clone, Copy)]
struct Reason {
    found: Found,
    /// Where to.
    psn: i64,
    out_of_order: Option<Cite>,
    /// The NAK; implied: the packet that tells.
    told: Cite,
    /// No sooner than after this time.
    wait_ns: u64,
    /// It was asked for again already: what came too early may have been on its way before.
    stale: bool,
    /// It was asked for again already, and has not come since: a requester that still awaits it may
    /// leave it to its timer to ask once more.
    retried: bool,
}

impl Reason {
    /// From the packet that came too early to the NAK.
    fn generation_ns(&self) -> Option<u64> {
        let early = self
            .out_of_order
            .filter(|_| self.found == Found::SequenceNak)?;
        Some(self.told.time_ns.saturating_sub(early.time_ns))
    }
}

/// A read or an atomic operation whose answer the requester awaits.
#[derive(Clone, Copy)]
struct Awaited {
    psn: i64,
    /// Of the response that comes next.
    next: i64,
    dma_len: u32,
    va: u64,
    /// It was asked for again from `next`, and the answer to that has not begun.
    asked_again: bool,
    /// It was asked for again from `next`.
    retried: bool,
}

impl Awaited {
    /// Whether a PSN at or behind its first is one of its responses'.
    fn covers(&self, psn: i64, mtu: Option<u32>) -> bool {
        let most = responses(self.dma_len, mtu.unwrap_or(256));
        psn < self.psn + most
    }
}

/// A read or an atomic operation that came to the responder.
#[derive(Clone, Copy)]
struct Asked {
    psn: i64,
    dma_len: u32,
    verb: Verb,
    cite: Cite,
}

impl Asked {
    fn end(&self, mtu: u32) -> i64 {
        self.psn + responses(self.dma_len, mtu)
    }
}

/// What the responder is answering.
#[derive(Clone, Copy)]
struct Answering {
    asked: Asked,
    next: i64,
}

impl Answering {
    /// A PSN behind the next one is still of this read.
    fn covers(&self, psn: i64, mtu: Option<u32>) -> bool {
        psn > self.next && mtu.is_some_and(|mtu| psn < self.asked.end(mtu))
    }
}

#[derive(Default)]
struct Requester {
    /// Behind what was sent last.
    cursor: Next,
    /// Behind the highest that was sent.
    next: Next,
    /// First that is not acknowledged.
    unacked: i64,
    /// Something has been acknowledged.
    heard: bool,
    awaited: VecDeque<Awaited>,
    reason: Option<Reason>,
    /// The last one that was answered before the requester could be seen to obey it.
    overtaken: Option<Reason>,
    /// The recovery that is under way, and the PSN at which it ends.
    recovering: Option<(usize, i64)>,
    timeouts: u32,
    /// Shortest and longest timeout, with the packet that ended it.
    waited: Option<[(u64, u64); 2]>,
    /// When it last sent something, and when it last heard of progress.
    sent_ns: u64,
    progress_ns: u64,
    /// Since everything is acknowledged.
    idle_ns: Option<u64>,
    round_trip_ns: Option<u64>,
    log: Log,
}

impl Requester {
    /// The read or atomic operation that awaits an answer with this PSN.
    fn awaiting(&self, psn: i64, mtu: Option<u32>) -> Option<&Awaited> {
        let mut latest = self.awaited.iter().rev();
        latest.find(|a| a.psn <= psn && a.covers(psn, mtu))
    }
}

/// A NAK: PSN sequence error.
#[derive(Clone, Copy)]
struct Denied {
    psn: i64,
    cite: Cite,
    out_of_order: Option<Cite>,
}

#[derive(Default)]
struct Responder {
    expected: Next,
    /// The first request that came too early.
    out_of_order: Option<Cite>,
    /// The NAK whose PSN has not come.
    nak: Option<Denied>,
    asked: VecDeque<Asked>,
    answering: Option<Answering>,
    /// A request that asks for an acknowledgement, and when it came.
    probe: Option<(i64, u64)>,
    round_trip_ns: Option<u64>,
    /// The highest acknowledgement that did not reach the requester.
    lost_ack: Option<(i64, u64)>,
    log: Log,
}

/// An exchange under observation.
pub(super) struct Exchange {
    number: u32,
    timer: Timer,
    base: Option<u32>,
    /// Number of the first request, and whether it had MigReq 0.
    first: (u64, bool),
    first_answer: Option<u64>,
    mtu: Option<u32>,
    requester: Requester,
    responder: Responder,
    /// Reads that were asked for again, with their recoveries.
    reasked: Vec<(i64, usize)>,
    verbs: [u64; Verb::ALL.len()],
    counts: Counts,
    refusals: Vec<(u64, u8)>,
    /// What requester and responder did and met.
    tallies: [Tallies; 2],
    recoveries: Vec<Recovery>,
    findings: Vec<Finding>,
}

impl Exchange {
    pub fn new(number: u32, timer: Timer, mtu: Option<u32>) -> Self {
        Self {
            number,
            timer,
            base: None,
            first: (0, false),
            first_answer: None,
            mtu,
            requester: Requester::default(),
            responder: Responder::default(),
            reasked: Vec::new(),
            verbs: [0; Verb::ALL.len()],
            counts: Counts::default(),
            refusals: Vec::new(),
            tallies: Default::default(),
            recoveries: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// The place of a PSN on a line without wraps that begins at the first: the one nearest to
    /// the highest that was sent.
    fn place(&self, psn: u32) -> i64 {
        let first = ORIGIN + i64::from(self.base.unwrap_or(psn));
        let near = first + self.requester.next.least;
        Psn::new(psn.into()).nearest(near as u64) as i64 - first
    }

    /// The PSN at a place.
    fn psn(&self, place: i64) -> u32 {
        let first = ORIGIN + i64::from(self.base.unwrap_or(0));
        Psn::new((first + place) as u64).get()
    }

    /// The place of a request, which may be the first.
    fn requested(&mut self, p: &Observed) -> i64 {
        if self.base.is_none() {
            self.base = Some(p.roce.bth.psn);
            self.first = (p.number, !p.roce.bth.mig_req());
        }
        self.answered(p)
    }

    /// The place of an answer.
    fn answered(&mut self, p: &Observed) -> i64 {
        let psn = self.place(p.roce.bth.psn);
        self.learn_mtu(p);
        psn
    }

    /// A request with this PSN is not answered yet.
    pub fn awaits(&self, psn: u32) -> bool {
        let r = &self.requester;
        // The first ones can have been lost before the capture.
        let from = r.unacked - if r.heard { 0 } else { FIRST_LOST };
        self.base.is_some() && (from..r.next.most).contains(&self.place(psn))
    }

    fn find(&mut self, rule: Rule, packets: impl IntoIterator<Item = u64>, what: String) {
        self.findings.push(Finding {
            rule,
            connection: Some(self.number),
            packets: packets.into_iter().collect(),
            what,
        });
    }

    fn learn_mtu(&mut self, p: &Observed) {
        if self.mtu.is_none()
            && opcode::goes_on(p.roce.bth.opcode)
            && p.payload.is_power_of_two()
            && (256..=4096).contains(&p.payload)
        {
            self.mtu = Some(p.payload);
            self.requester.cursor.learn(p.payload);
            self.requester.next.learn(p.payload);
            self.responder.expected.learn(p.payload);
        }
    }

    /// What is to be said of it; nothing when it has no request.
    pub fn finish(mut self, [requester, responder]: [End; 2], latest: u64) -> Option<Done> {
        let first_psn = self.base?;
        self.unfinished(latest);
        self.count();
        self.judge();
        self.varying_timeouts();
        let (near, far) = (self.requester.round_trip_ns, self.responder.round_trip_ns);
        for recovery in &mut self.recoveries {
            let ends = match recovery.found {
                Found::ImpliedNak => [near, far],
                _ => [far, near],
            };
            [
                recovery.generation_round_trip_ns,
                recovery.reaction_round_trip_ns,
            ] = ends;
        }
        Some(Done {
            connection: Connection {
                number: self.number,
                requester,
                responder,
                verbs: Verb::ALL
                    .into_iter()
                    .zip(self.verbs)
                    .filter(|(_, packets)| *packets > 0)
                    .collect(),
                first_psn,
                first_packet: self.first.0,
                migration_cleared: self.first.1,
                first_answer: self.first_answer,
                mtu: self.mtu,
                counts: self.counts,
                responder_round_trip_ns: far,
                requester_round_trip_ns: near,
                refusals: self.refusals,
            },
            recoveries: self.recoveries,
            findings: self.findings,
            tallies: self.tallies,
        })
    }

    /// What recoveries tell of requester and responder.
    fn count(&mut self) {
        let [requester, responder] = &mut self.tallies;
        for recovery in &self.recoveries {
            let packet = recovery.first_packet();
            match recovery.found {
                Found::ImpliedNak if recovery.nak.is_some() => requester.implied.add(packet),
                Found::Timeout => requester.timeouts.add(packet),
                _ => {}
            }
            if let Lost::Behind(packet) = recovery.lost {
                requester.lost.add(packet);
                responder.lost.add(packet);
            }
        }
        let last = self.requester.log.latest();
        if self.requester.unacked < self.requester.next.least
            && let Some(last) = last
        {
            requester.open.add(last);
        }
    }

    /// The rules that were not kept on the way of each recovery: those whose findings cite its
    /// NAK or what was sent again.
    fn judge(&mut self) {
        let mut by_packet: HashMap<u64, Vec<usize>> = HashMap::new();
        for (index, recovery) in self.recoveries.iter().enumerate() {
            for cite in [recovery.nak, recovery.again].into_iter().flatten() {
                by_packet.entry(cite.packet).or_default().push(index);
            }
        }
        for finding in &self.findings {
            for index in finding
                .packets
                .iter()
                .filter_map(|n| by_packet.get(n))
                .flatten()
            {
                let broken = &mut self.recoveries[*index].broken;
                if !broken.contains(&finding.rule) {
                    broken.push(finding.rule);
                }
            }
        }
    }
}

/// The least of what was seen so far.
fn sample(least: &mut Option<u64>, value: u64) {
    *least = Some(least.map_or(value, |least| least.min(value)));
}

/// The last response to a read, or the answer to an atomic operation.
fn ends_answer(p: &Observed) -> bool {
    matches!(
        p.roce.bth.opcode & 0x1f,
        opcode::READ_RESPONSE_LAST | opcode::READ_RESPONSE_ONLY | opcode::ATOMIC_ACK
    )
}

/// What an answer says.
enum Answer {
    Ack,
    SequenceNak,
    /// Its syndrome.
    NotReady(u8),
    /// Its syndrome.
    Refusal(u8),
    Data,
}

impl Answer {
    fn of(p: &Observed) -> Self {
        if p.roce.bth.opcode & 0x1f != opcode::ACK {
            return Self::Data;
        }
        match p.roce.aeth.map_or(0, |aeth| aeth.syndrome) {
            syndrome::SEQUENCE_ERROR => Self::SequenceNak,
            code => match code & syndrome::CLASS {
                syndrome::NOT_READY => Self::NotReady(code),
                syndrome::NAK => Self::Refusal(code),
                _ => Self::Ack,
            },
        }
    }
}
