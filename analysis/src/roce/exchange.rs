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

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use midwire_trace::Psn;
use midwire_trace::packet::{ack_timeout_ns, opcode, syndrome};
use serde::{Deserialize, Serialize};

use super::finding::{Finding, Rule};
use super::{Cite, Observed, Settings};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Compare and swap, fetch and add.
    Atomic,
}

impl Verb {
    const ALL: [Self; 4] = [Self::Send, Self::Write, Self::Read, Self::Atomic];

    fn of(opcode: u8) -> Self {
        match opcode & 0x1f {
            // Up to the one with immediate data.
            opcode::WRITE_FIRST..=0x0b => Self::Write,
            opcode::READ_REQUEST => Self::Read,
            opcode::COMPARE_SWAP | opcode::FETCH_ADD => Self::Atomic,
            _ => Self::Send,
        }
    }

    /// Its answer carries data, so that the requester can tell what is missing.
    fn awaits_data(self) -> bool {
        matches!(self, Self::Read | Self::Atomic)
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verb::Send => "send",
            Verb::Write => "write",
            Verb::Read => "read",
            Verb::Atomic => "atomic",
        })
    }
}

/// Packets from the responder: read responses, acknowledgements, answers to atomic operations.
pub(super) fn is_response(opcode: u8) -> bool {
    matches!(
        opcode & 0x1f,
        opcode::READ_RESPONSE_FIRST..=opcode::ATOMIC_ACK
    )
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair; unknown when nothing was seen that went there.
    pub qp: Option<u32>,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.qp {
            Some(qp) => write!(f, "{} QP {qp:#x}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

/// How it was found that a packet was missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// A NAK: PSN sequence error.
    SequenceNak,
    /// A NAK: receiver not ready. Nothing was lost.
    NotReady,
    /// The requester saw it in the responses.
    ImpliedNak,
    /// No answer for as long as the timer runs.
    Timeout,
    /// Not by the end of the capture.
    NotYet,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Found::SequenceNak => "NAK, sequence error",
            Found::NotReady => "NAK, receiver not ready",
            Found::ImpliedNak => "implied NAK",
            Found::Timeout => "timeout",
            Found::NotYet => "not by the end",
        })
    }
}

/// Where the packet was lost that had to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "where", content = "packet")]
pub enum Lost {
    /// It never came to where the capture was taken.
    Before,
    /// There: an event dropped or broke it, or it came broken.
    Here(u64),
    /// Behind: it had come by whole.
    Behind(u64),
    /// It had come, and its acknowledgement was lost where the capture was taken.
    Answer(u64),
    /// Nothing was: the receiver was not ready.
    Nothing,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lost::Before => f.write_str("before the capture"),
            Lost::Here(n) => write!(f, "here, packet {n}"),
            Lost::Behind(n) => write!(f, "behind, packet {n}"),
            Lost::Answer(n) => write!(f, "its answer here, packet {n}"),
            Lost::Nothing => f.write_str("nothing"),
        }
    }
}

/// A time that a requester went back, or should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The flow of requests.
    pub connection: u32,
    /// What the first request that was sent again asks for.
    pub verb: Verb,
    /// The PSN that was missing.
    pub psn: u32,
    /// The same relative to the first PSN of the connection.
    pub position: i64,
    /// Where it was lost.
    pub lost: Lost,
    /// How that was found.
    pub found: Found,
    /// The packet that came too early and so told of it.
    pub out_of_order: Option<Cite>,
    /// The NAK; of a read, the request that asks again.
    pub nak: Option<Cite>,
    /// The first packet that was sent again; of a read with an implied NAK, the first response.
    pub again: Option<Cite>,
    /// The PSN from which was sent again, relative to the first.
    pub from: Option<i64>,
    /// Requests that were sent again.
    pub requests: u32,
    /// From the packet out of order to the NAK, ns, as seen at the capture.
    pub generation_ns: Option<u64>,
    /// From the NAK to the first packet that was sent again, ns, as seen at the capture.
    pub reaction_ns: Option<u64>,
    /// Timeout: since the requester last sent something or heard of progress, ns.
    pub waited_ns: Option<u64>,
    /// Timeout: the how-manieth without progress, from 1.
    pub retry: Option<u32>,
    /// At the generating end: least round trip from the capture, ns.
    pub generation_round_trip_ns: Option<u64>,
    /// At the reacting end: least round trip from the capture, ns.
    pub reaction_round_trip_ns: Option<u64>,
    /// Rules that were not kept on the way.
    pub broken: Vec<Rule>,
}

impl Recovery {
    /// The first packet that tells of it.
    pub fn first_packet(&self) -> u64 {
        let cites = [self.out_of_order, self.nak, self.again];
        cites.iter().flatten().map(|c| c.packet).min().unwrap_or(0)
    }
}

/// Packets of an exchange, as they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests, each packet of a message counted.
    pub requests: u64,
    /// Of these, the ones that were sent again.
    pub again: u64,
    /// Bytes of payload of requests and responses, what was sent again included.
    pub bytes: u64,
    /// Read responses and answers to atomic operations.
    pub responses: u64,
    /// Acknowledgements.
    pub acks: u64,
    /// NAKs: PSN sequence error.
    pub sequence_naks: u64,
    /// NAKs: receiver not ready.
    pub not_ready: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Implied NAKs.
    pub implied_naks: u64,
    /// Packets with a request of which the responder saw that one before was missing.
    pub out_of_sequence: u64,
}

/// A flow of requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Connection {
    /// Its number, in order of appearance of all directions to a queue pair.
    pub number: u32,
    /// Who asks.
    pub requester: End,
    /// Who answers.
    pub responder: End,
    /// Packets of requests by what they ask for.
    pub verbs: BTreeMap<Verb, u64>,
    /// First PSN.
    pub first_psn: u32,
    /// Bytes of payload of a full packet, if one was seen.
    pub mtu: Option<u32>,
    /// Packets counted.
    pub counts: Counts,
    /// Least time from a request to its answer, ns: the round trip from the capture to the
    /// responder.
    pub responder_round_trip_ns: Option<u64>,
    /// Least time from the last answer to the next request of an idle requester, ns: no less than
    /// the round trip from the capture to the requester.
    pub requester_round_trip_ns: Option<u64>,
    /// NAKs that end a connection: packet and syndrome.
    pub refusals: Vec<(u64, u8)>,
}

pub(super) struct Done {
    pub connection: Connection,
    pub recoveries: Vec<Recovery>,
    pub findings: Vec<Finding>,
}

/// A multiple of the space of PSNs: places before the first are counted too.
const ORIGIN: i64 = 1 << 40;
/// The shortest timeout there is, that of setting 1.
const SHORTEST_TIMEOUT_NS: u64 = 8_192;
/// A requester that has not obeyed a NAK for this long doesn't mean to.
const OBEYS_WITHIN_NS: u64 = 1_000_000_000;
/// PSNs before the first that was seen that an answer is believed to be for.
const FIRST_LOST: i64 = 1024;
/// A requester that goes back this long after a NAK may not have heard it.
const PATIENCE_NS: u64 = 1_000_000;
/// Packets of either direction that can still be cited when they are sent again.
const REMEMBERED: usize = 1024;

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

/// The packets seen last, for citing them.
#[derive(Default)]
struct Log {
    entries: VecDeque<Logged>,
}

#[derive(Clone, Copy)]
struct Logged {
    psn: i64,
    cite: Cite,
    delivered: bool,
    /// An acknowledgement, not a packet of its own PSN.
    ack: bool,
}

impl Log {
    fn push(&mut self, psn: i64, p: &Observed) {
        let ack = p.roce.bth.opcode & 0x1f == opcode::ACK;
        if self.entries.len() == REMEMBERED {
            self.entries.pop_front();
        }
        self.entries.push_back(Logged {
            psn,
            cite: p.cite(),
            delivered: p.seen.delivered() && p.intact,
            ack,
        });
    }

    /// The last time that the packet with a PSN was seen.
    fn last(&self, psn: i64) -> Option<Logged> {
        let mut latest = self.entries.iter().rev();
        latest.find(|e| e.psn == psn && !e.ack).copied()
    }

    /// The first packet behind a PSN that was delivered after that was last seen.
    fn first_behind(&self, psn: i64) -> Option<Cite> {
        let behind = |e: &&Logged| e.psn > psn && e.delivered;
        let latest = self.entries.iter().rev();
        let later = latest.take_while(|e| e.psn != psn || e.ack);
        later.filter(behind).last().map(|e| e.cite)
    }

    /// The last packet behind a PSN that was delivered.
    fn last_behind(&self, psn: i64) -> Option<Cite> {
        let mut latest = self.entries.iter().rev();
        latest.find(|e| e.psn > psn && e.delivered).map(|e| e.cite)
    }

    /// Where a PSN was lost that is sent again.
    fn lost(&self, psn: i64) -> Lost {
        match self.last(psn) {
            None => Lost::Before,
            Some(e) if e.delivered => Lost::Behind(e.cite.packet),
            Some(e) => Lost::Here(e.cite.packet),
        }
    }
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
}

/// A read or an atomic operation that came to the responder.
#[derive(Clone, Copy)]
struct Asked {
    psn: i64,
    dma_len: u32,
    verb: Verb,
    cite: Cite,
}

/// What the responder is answering.
#[derive(Clone, Copy)]
struct Answering {
    asked: Asked,
    next: i64,
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
    /// When it last sent something, and when it last sent something or heard of progress.
    sent_ns: u64,
    active_ns: u64,
    /// Since everything is acknowledged.
    idle_ns: Option<u64>,
    round_trip_ns: Option<u64>,
    log: Log,
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
    settings: Settings,
    base: Option<u32>,
    mtu: Option<u32>,
    requester: Requester,
    responder: Responder,
    /// Reads that were asked for again, with their recoveries.
    reasked: Vec<(i64, usize)>,
    verbs: [u64; Verb::ALL.len()],
    counts: Counts,
    refusals: Vec<(u64, u8)>,
    recoveries: Vec<Recovery>,
    findings: Vec<Finding>,
}

impl Exchange {
    pub fn new(number: u32, settings: Settings) -> Self {
        Self {
            number,
            settings,
            base: None,
            mtu: None,
            requester: Requester::default(),
            responder: Responder::default(),
            reasked: Vec::new(),
            verbs: [0; Verb::ALL.len()],
            counts: Counts::default(),
            refusals: Vec::new(),
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
        let full = matches!(
            p.roce.bth.opcode & 0x1f,
            opcode::SEND_FIRST
                | opcode::SEND_MIDDLE
                | opcode::WRITE_FIRST
                | opcode::WRITE_MIDDLE
                | opcode::READ_RESPONSE_FIRST
                | opcode::READ_RESPONSE_MIDDLE
        );
        if full
            && self.mtu.is_none()
            && p.payload.is_power_of_two()
            && (256..=4096).contains(&p.payload)
        {
            self.mtu = Some(p.payload);
            self.requester.cursor.learn(p.payload);
            self.requester.next.learn(p.payload);
            self.responder.expected.learn(p.payload);
        }
    }

    /// Reads a request.
    pub fn request(&mut self, p: &Observed) {
        self.base.get_or_insert(p.roce.bth.psn);
        let psn = self.place(p.roce.bth.psn);
        self.learn_mtu(p);
        let verb = Verb::of(p.roce.bth.opcode);
        if p.seen.sent() {
            self.sends(p, psn, verb);
        }
        if p.seen.delivered() && p.intact {
            self.takes(p, psn, verb);
        }
    }

    /// The requester sends a request.
    fn sends(&mut self, p: &Observed, psn: i64, verb: Verb) {
        self.verbs[verb as usize] += 1;
        self.counts.requests += 1;
        self.counts.bytes += u64::from(p.payload);
        let dma_len = p.roce.reth.map_or(0, |reth| reth.dma_len);
        let va = p.roce.reth.map_or(0, |reth| reth.va);
        let highest = self.requester.next;
        let cursor = self.requester.cursor;
        if psn < cursor.least {
            self.goes_back(p, psn, verb);
        } else if psn > cursor.most {
            self.skips(p, psn);
        }
        let r = &mut self.requester;
        r.recovering = r.recovering.filter(|&(_, end)| psn < end);
        if let Some((index, _)) = r.recovering {
            self.recoveries[index].requests += 1;
        }
        r.cursor = Next::after(psn, verb, dma_len, self.mtu);
        if psn >= highest.least {
            r.next = r.cursor;
            if let Some(idle) = r.idle_ns.take() {
                let trip = p.time.0.saturating_sub(idle);
                r.round_trip_ns = Some(r.round_trip_ns.map_or(trip, |least| least.min(trip)));
            }
        } else {
            self.counts.again += 1;
        }
        r.idle_ns = None;
        if verb.awaits_data() && psn >= r.unacked {
            let at = r.awaited.partition_point(|a| a.psn <= psn);
            let open = at.checked_sub(1).and_then(|i| r.awaited.get_mut(i));
            match open {
                // Asked for again, from its beginning or from within.
                Some(a) if psn <= a.next && (psn < highest.least) && a.covers(psn, self.mtu) => {
                    a.asked_again = true;
                }
                _ => r.awaited.insert(
                    at,
                    Awaited {
                        psn,
                        next: psn,
                        dma_len,
                        va,
                        asked_again: false,
                    },
                ),
            }
        }
        r.sent_ns = p.time.0;
        r.active_ns = p.time.0;
        r.log.push(psn, p);
    }

    /// The requester sends what it has sent before.
    fn goes_back(&mut self, p: &Observed, psn: i64, verb: Verb) {
        let now = p.cite();
        let unseen = self.unseen(psn, verb);
        let reason = match self.reason(psn, now) {
            Some(nak) if nak.found == Found::SequenceNak && psn < nak.psn => unseen.or(Some(nak)),
            reason => reason.or(unseen),
        };
        let index = self.recoveries.len();
        let missing = reason.map_or(psn.min(self.requester.unacked), |r| r.psn);
        let mut recovery = Recovery {
            connection: self.number,
            verb,
            psn: self.psn(missing),
            position: missing,
            lost: self.lost(missing),
            found: reason.map_or(Found::Timeout, |r| r.found),
            out_of_order: reason.and_then(|r| r.out_of_order),
            nak: None,
            again: Some(now),
            from: Some(psn),
            requests: 0,
            generation_ns: None,
            reaction_ns: None,
            waited_ns: None,
            retry: None,
            generation_round_trip_ns: None,
            reaction_round_trip_ns: None,
            broken: Vec::new(),
        };
        let from = self.psn(psn);
        match reason {
            Some(reason) => {
                let since = |cite: Cite| now.time_ns.saturating_sub(cite.time_ns);
                let told = reason.told;
                match reason.found {
                    Found::ImpliedNak => {
                        self.counts.implied_naks += 1;
                        recovery.nak = Some(now);
                        recovery.again = None;
                        recovery.generation_ns = Some(since(told));
                        self.reasked.push((psn, index));
                    }
                    found => {
                        recovery.nak = Some(told);
                        recovery.reaction_ns = Some(since(told));
                        if found == Found::NotReady {
                            recovery.lost = Lost::Nothing;
                        } else {
                            recovery.generation_ns = (reason.out_of_order)
                                .map(|early| told.time_ns.saturating_sub(early.time_ns));
                        }
                    }
                }
                let asked = self.psn(reason.psn);
                let cites = [told.packet, now.packet];
                if psn > reason.psn {
                    let what = format!("goes back to PSN {from}, where {asked} is missing");
                    self.find(Rule::ResumedAbove, cites, what);
                } else if psn < reason.psn && !self.begins_read(psn) {
                    let what = format!("goes back to PSN {from}, where {asked} was asked for");
                    self.find(Rule::ResumedBelow, cites, what);
                }
                if since(told) < reason.wait_ns {
                    let what = format!(
                        "tries again after {}, where the receiver asked for {}",
                        crate::text::span(since(told)),
                        crate::text::span(reason.wait_ns)
                    );
                    self.find(Rule::RnrTooEarly, cites, what);
                }
            }
            None => self.times_out(p, psn, &mut recovery),
        }
        if verb == Verb::Read {
            self.check_extent(p, psn);
        }
        self.recoveries.push(recovery);
        self.requester.recovering = Some((index, self.requester.next.least));
    }

    /// Why the requester goes back.
    fn reason(&mut self, psn: i64, now: Cite) -> Option<Reason> {
        let r = &mut self.requester;
        let early = |told: Cite| now.time_ns.saturating_sub(told.time_ns) < PATIENCE_NS;
        if let Some(overtaken) = r.overtaken.take()
            && r.reason.is_none_or(|reason| psn < reason.psn)
            && overtaken.found == Found::ImpliedNak
            && overtaken.psn <= psn
            && early(overtaken.told)
        {
            // It has got some answers since, and asks for the rest.
            return Some(Reason { psn, ..overtaken });
        }
        let reason = r.reason.take();
        reason.filter(|reason| !self.unheard(reason, psn, now))
    }

    /// A NAK that came by here and can't be why the requester goes back: it does so much later,
    /// and further than that asks for, or it had obeyed it before.
    fn unheard(&self, reason: &Reason, psn: i64, now: Cite) -> bool {
        let timeout = self.settings.timeout.and_then(ack_timeout_ns);
        let patience = timeout.map_or(PATIENCE_NS, |timeout| timeout / 2);
        (psn < reason.psn || reason.stale)
            && now.time_ns.saturating_sub(reason.told.time_ns) >= patience
    }

    /// The requester goes back, and nothing that was seen tells why: what was lost behind the
    /// capture shows in a read that is asked for again though later responses came by.
    fn unseen(&self, psn: i64, verb: Verb) -> Option<Reason> {
        if verb != Verb::Read || psn >= self.requester.unacked {
            return None;
        }
        let told = self.responder.log.first_behind(psn)?;
        Some(Reason {
            found: Found::ImpliedNak,
            psn,
            out_of_order: Some(told),
            told,
            wait_ns: 0,
            stale: false,
        })
    }

    /// Where the packet with a PSN was lost: a request, or a response to a read.
    fn lost(&self, psn: i64) -> Lost {
        let mut awaited = self.requester.awaited.iter().rev();
        let read = awaited.find(|a| a.psn <= psn && a.covers(psn, self.mtu));
        let request = self.requester.log.lost(read.map_or(psn, |a| a.psn));
        match (self.responder.log.lost(psn), request) {
            // Nothing came back: the request itself, if that was lost.
            (Lost::Before, Lost::Behind(_)) if read.is_some() => Lost::Before,
            (Lost::Before, request) => request,
            (response, _) => response,
        }
    }

    /// A read that is awaited begins here.
    fn begins_read(&self, psn: i64) -> bool {
        self.requester.awaited.iter().any(|a| a.psn == psn)
    }

    /// The requester goes back for want of an answer.
    fn times_out(&mut self, p: &Observed, psn: i64, recovery: &mut Recovery) {
        self.counts.timeouts += 1;
        let r = &mut self.requester;
        r.timeouts += 1;
        let (retry, unacked) = (r.timeouts, r.unacked);
        // What is acknowledged here but not to the requester was lost behind.
        let since = if psn < unacked {
            r.sent_ns
        } else {
            r.active_ns
        };
        let waited = p.time.0.saturating_sub(since);
        let this = (waited, p.number);
        let [shortest, longest] = r.waited.unwrap_or([this; 2]);
        r.waited = Some([shortest.min(this), longest.max(this)]);
        let before = r.log.last(psn).map(|e| e.cite.packet);
        let cites = || before.into_iter().chain([p.number]);
        recovery.waited_ns = Some(waited);
        recovery.retry = Some(retry);
        if let Lost::Behind(_) = recovery.lost
            && let Some((ack, packet)) = self.responder.lost_ack
            && ack >= psn
        {
            recovery.lost = Lost::Answer(packet);
        }
        let span = crate::text::span;
        if psn > unacked {
            let what = format!(
                "goes back to PSN {}, where {} is not acknowledged",
                self.psn(psn),
                self.psn(unacked)
            );
            self.find(Rule::ResumedAbove, cites(), what);
        }
        let missing = self.responder.expected.least;
        let denied = self.responder.nak.is_some_and(|nak| nak.psn <= missing);
        if let Some(early) = self.responder.out_of_order.filter(|_| !denied) {
            recovery.out_of_order = Some(early);
            let what = format!(
                "no NAK though packet {} came where PSN {} was missing",
                early.packet,
                self.psn(missing)
            );
            self.find(Rule::NakMissing, [early.packet, p.number], what);
        }
        if waited < SHORTEST_TIMEOUT_NS {
            let what = format!(
                "sent again after {}: no NAK, and shorter than any timeout",
                span(waited)
            );
            self.find(Rule::Unprovoked, cites(), what);
        }
        if let Some(setting) = self.settings.timeout
            && let Some(least) = ack_timeout_ns(setting)
        {
            let asked = format!(
                "after {}, where timeout {setting} is {} to {}",
                span(waited),
                span(least),
                span(4 * least)
            );
            if waited < least {
                self.find(Rule::TimeoutTooEarly, cites(), format!("timeout {asked}"));
            } else if waited > 4 * least {
                self.find(Rule::TimeoutTooLate, cites(), format!("timeout {asked}"));
            }
        }
        if let Some(most) = self.settings.retry_count
            && retry == u32::from(most) + 1
        {
            let what = format!(
                "tries again for the {retry}. time without progress, where {most} retries are allowed"
            );
            self.find(Rule::TooManyRetries, cites(), what);
        }
    }

    /// A read that is asked for again asks for what remains.
    fn check_extent(&mut self, p: &Observed, psn: i64) {
        let (Some(mtu), Some(reth)) = (self.mtu, p.roce.reth) else {
            return;
        };
        let awaited = self.requester.awaited.iter();
        let Some(a) = awaited
            .rev()
            .find(|a| a.psn <= psn && a.covers(psn, Some(mtu)))
        else {
            return;
        };
        let had = (psn - a.psn) as u64 * u64::from(mtu);
        let remain = u64::from(a.dma_len).saturating_sub(had);
        let va = a.va.wrapping_add(had);
        if u64::from(reth.dma_len) != remain || reth.va != va {
            let what = format!(
                "asks for {} bytes at {:#x}, where {remain} at {va:#x} remain from PSN {}",
                reth.dma_len,
                reth.va,
                self.psn(psn)
            );
            self.find(Rule::ReadExtent, [p.number], what);
        }
    }

    /// The requester leaves PSNs out, or they were lost on the way to the capture.
    fn skips(&mut self, p: &Observed, psn: i64) {
        let r = &self.requester;
        let (from, highest) = (r.cursor.least, r.next);
        let to_new = (highest.least..=highest.most).contains(&psn);
        if let Some((index, end)) = r.recovering
            && from < end
            && to_new
            && r.unacked < psn
        {
            let began = self.recoveries[index].again.or(self.recoveries[index].nak);
            let what = format!(
                "goes on with PSN {} without sending {} to {} again",
                self.psn(psn),
                self.psn(from),
                self.psn(psn - 1)
            );
            let cites = began.map(|c| c.packet).into_iter().chain([p.number]);
            self.find(Rule::NotGoBackN, cites, what);
        }
    }

    /// The responder gets a request.
    fn takes(&mut self, p: &Observed, psn: i64, verb: Verb) {
        let dma_len = p.roce.reth.map_or(0, |reth| reth.dma_len);
        let r = &mut self.responder;
        if psn > r.expected.most {
            r.out_of_order.get_or_insert(p.cite());
            self.counts.out_of_sequence += 1;
            return;
        }
        r.nak.take_if(|nak| nak.psn == psn);
        if psn >= r.expected.least {
            r.expected = Next::after(psn, verb, dma_len, self.mtu);
            r.out_of_order = None;
            if p.roce.bth.ack_req && r.probe.is_none() {
                r.probe = Some((psn, p.time.0));
            }
        }
        if verb.awaits_data() {
            r.asked.push_back(Asked {
                psn,
                dma_len,
                verb,
                cite: p.cite(),
            });
        }
    }

    /// Reads an answer.
    pub fn response(&mut self, p: &Observed) {
        let psn = self.place(p.roce.bth.psn);
        self.learn_mtu(p);
        if p.seen.sent() {
            self.answers(p, psn);
        }
        if p.seen.delivered() && p.intact {
            self.hears(p, psn);
        }
    }

    /// The responder sends an answer.
    fn answers(&mut self, p: &Observed, psn: i64) {
        let r = &mut self.responder;
        if let Some((probe, time)) = r.probe
            && psn >= probe
        {
            r.probe = None;
            if psn == probe {
                sample(&mut r.round_trip_ns, p.time.0.saturating_sub(time));
            }
        }
        let answer = Answer::of(p);
        if matches!(answer, Answer::Ack | Answer::Data) {
            r.nak.take_if(|nak| nak.psn <= psn);
        }
        match answer {
            Answer::Ack => {
                self.counts.acks += 1;
                if !(p.seen.delivered() && p.intact) {
                    r.lost_ack = Some((psn, p.number));
                }
                self.acknowledges(p, psn);
            }
            Answer::SequenceNak => {
                self.counts.sequence_naks += 1;
                self.denies(p, psn);
            }
            Answer::NotReady(_) => {
                self.counts.not_ready += 1;
                r.out_of_order = None;
            }
            Answer::Refusal(_) => {}
            Answer::Data => {
                self.counts.responses += 1;
                self.counts.bytes += u64::from(p.payload);
                self.returns(p, psn);
            }
        }
        self.responder.log.push(psn, p);
    }

    /// The responder acknowledges.
    fn acknowledges(&mut self, p: &Observed, psn: i64) {
        if psn < self.responder.expected.most {
            return;
        }
        let missing = self.psn(self.responder.expected.least);
        let early = self.responder.out_of_order.take();
        let what = format!(
            "acknowledges PSN {}, where {missing} has not come",
            self.psn(psn)
        );
        let cites = early.map(|c| c.packet).into_iter().chain([p.number]);
        self.find(Rule::AckUnfounded, cites, what);
        self.responder.expected = Next::at(psn + 1);
        self.responder.nak = None;
    }

    /// The responder sends a NAK: PSN sequence error.
    fn denies(&mut self, p: &Observed, psn: i64) {
        let expected = self.responder.expected;
        let asked = self.psn(psn);
        if psn > expected.most {
            let what = format!(
                "NAK asks for PSN {asked}, where {} is the first that is missing",
                self.psn(expected.least)
            );
            let early = self.responder.out_of_order.map(|c| c.packet);
            self.find(Rule::NakSkips, early.into_iter().chain([p.number]), what);
        } else if let Some(before) = self.responder.nak.filter(|nak| nak.psn == psn) {
            let what = format!("a second NAK for PSN {asked}, which has not come since");
            self.find(Rule::NakRepeated, [before.cite.packet, p.number], what);
        }
        let r = &mut self.responder;
        let log = &self.requester.log;
        let out_of_order = match psn < expected.least {
            // It came by here: lost behind, or sent again before this told of it.
            true => log.first_behind(psn).or_else(|| log.last_behind(psn)),
            false => r.out_of_order,
        };
        r.nak = Some(Denied {
            psn,
            cite: p.cite(),
            out_of_order,
        });
        if psn > expected.most {
            r.expected = Next::at(psn);
        }
        if out_of_order.is_none() {
            let what = format!("NAK for PSN {asked}, though no later request has come");
            self.find(Rule::NakUnfounded, [p.number], what);
        }
    }

    /// The responder sends a read response or the answer to an atomic operation.
    fn returns(&mut self, p: &Observed, psn: i64) {
        let mtu = self.mtu;
        let r = &mut self.responder;
        let continues = r.answering.is_some_and(|a| a.next == psn);
        if !continues {
            let begins = r.asked.iter().position(|a| a.psn == psn).or_else(|| {
                // Its first responses were lost on the way to the capture.
                let current = r.answering.is_some_and(|a| a.covers(psn, mtu));
                let of = |a: &Asked| psn > a.psn && mtu.is_none_or(|mtu| psn < a.end(mtu));
                let mut asked = r.asked.iter();
                match mtu {
                    Some(_) => asked.position(of),
                    // How far each goes can't be told yet.
                    None => asked.rposition(of),
                }
                .filter(|_| !current)
            });
            if let Some(asked) = begins.and_then(|at| r.asked.drain(..=at).next_back()) {
                r.answering = Some(Answering { asked, next: psn });
                sample(
                    &mut r.round_trip_ns,
                    p.time.0.saturating_sub(asked.cite.time_ns),
                );
                self.answers_again(p, asked);
            } else if let Some(a) = r.answering.filter(|a| psn > a.next) {
                // Those between were lost on the way to the capture.
                r.answering = Some(Answering { next: psn, ..a });
            } else if let Some(asked) = (r.asked.front().copied())
                .or_else(|| r.answering.map(|a| a.asked))
                .filter(|_| psn < self.requester.next.least)
            {
                let what = format!(
                    "answers with PSN {}, where packet {} asks from PSN {}",
                    self.psn(psn),
                    asked.cite.packet,
                    self.psn(asked.psn)
                );
                self.find(Rule::ResponseMisplaced, [asked.cite.packet, p.number], what);
                self.responder.answering = Some(Answering { asked, next: psn });
            }
        }
        let Some(a) = &mut self.responder.answering else {
            return;
        };
        a.next = psn + 1;
        let a = *a;
        let ends = ends_answer(p);
        let end = match (a.asked.verb, mtu) {
            (Verb::Read, Some(mtu)) => Some(a.asked.end(mtu)),
            (Verb::Read, None) => None,
            _ => Some(a.asked.psn + 1),
        };
        if end.is_some_and(|end| ends != (a.next == end)) {
            let what = format!(
                "{} PSN {}, where the {} bytes that packet {} asks for end with {}",
                if ends { "ends with" } else { "goes on behind" },
                self.psn(psn),
                a.asked.dma_len,
                a.asked.cite.packet,
                self.psn(end.unwrap_or_default() - 1),
            );
            self.find(Rule::ResponseCount, [a.asked.cite.packet, p.number], what);
            self.responder.answering = None;
        } else if ends {
            self.responder.answering = None;
        }
    }

    /// The responder begins to answer, maybe what was asked for again.
    fn answers_again(&mut self, p: &Observed, asked: Asked) {
        for awaited in &mut self.requester.awaited {
            awaited.asked_again &= awaited.psn > asked.psn || awaited.next < asked.psn;
        }
        let Some(at) = self.reasked.iter().position(|&(psn, _)| psn == asked.psn) else {
            return;
        };
        let (_, index) = self.reasked.swap_remove(at);
        let recovery = &mut self.recoveries[index];
        recovery.again = Some(p.cite());
        recovery.reaction_ns = Some(p.time.0.saturating_sub(asked.cite.time_ns));
    }

    /// The requester gets an answer.
    fn hears(&mut self, p: &Observed, psn: i64) {
        match Answer::of(p) {
            Answer::Ack => self.progress(p, psn + 1),
            Answer::SequenceNak => self.told(p, psn, Found::SequenceNak, 0),
            Answer::NotReady(code) => {
                let wait = syndrome::not_ready_us(code) * 1000;
                self.told(p, psn, Found::NotReady, wait);
            }
            Answer::Refusal(syndrome) => {
                self.progress(p, psn);
                self.refusals.push((p.number, syndrome));
            }
            Answer::Data => self.gets(p, psn),
        }
    }

    /// The requester gets a NAK that it has to obey.
    fn told(&mut self, p: &Observed, psn: i64, found: Found, wait_ns: u64) {
        self.progress(p, psn);
        let r = &mut self.requester;
        if !r.heard {
            // The first packets were lost before the capture.
            r.unacked = r.unacked.min(psn);
        }
        r.heard = true;
        let earlier = r.reason.is_some_and(|reason| reason.psn < psn);
        if psn < r.unacked || psn >= r.next.most || earlier {
            return;
        }
        self.requester.reason = Some(Reason {
            found,
            psn,
            out_of_order: (self.responder.nak)
                .filter(|nak| nak.psn == psn && found == Found::SequenceNak)
                .and_then(|nak| nak.out_of_order),
            told: p.cite(),
            wait_ns,
            stale: false,
        });
    }

    /// The requester gets a read response or the answer to an atomic operation.
    fn gets(&mut self, p: &Observed, psn: i64) {
        let Some(awaited) = self.requester.awaited.front_mut() else {
            return;
        };
        if psn > awaited.next {
            // The responder has come to this read: what is before it is done.
            self.progress(p, psn);
            return;
        }
        if psn < awaited.next {
            return;
        }
        awaited.next += 1;
        awaited.asked_again = false;
        if ends_answer(p) {
            self.requester.awaited.pop_front();
        }
        self.progress(p, psn + 1);
    }

    /// An answer to something later implies that the answer that the requester awaits is lost.
    fn implies(&mut self, p: &Observed) {
        let r = &mut self.requester;
        let Some(awaited) = r.awaited.front() else {
            return;
        };
        let (psn, stale) = (awaited.next, awaited.asked_again);
        let known = |reason: Reason| reason.psn == psn && (stale || !reason.stale);
        if !r.reason.is_some_and(known) {
            r.reason = Some(Reason {
                found: Found::ImpliedNak,
                psn,
                out_of_order: Some(p.cite()),
                told: p.cite(),
                wait_ns: 0,
                stale,
            });
        }
    }

    /// Everything before a PSN is acknowledged.
    fn progress(&mut self, p: &Observed, to: i64) {
        let r = &mut self.requester;
        let mut to = to.min(r.next.most);
        if let Some(awaited) = r.awaited.front().copied()
            && to > awaited.next
        {
            to = awaited.next;
            self.implies(p);
        }
        let r = &mut self.requester;
        if to > r.unacked {
            r.heard = true;
            r.unacked = to;
            r.timeouts = 0;
            r.active_ns = p.time.0;
            if let Some(reason) = r.reason.take_if(|reason| reason.psn < to) {
                r.overtaken = Some(reason);
            }
            if to >= r.next.least {
                r.idle_ns = Some(p.time.0);
            }
        }
    }

    /// What is to be said of it; nothing when it has no request.
    pub fn finish(mut self, [requester, responder]: [End; 2], latest: u64) -> Option<Done> {
        let first_psn = self.base?;
        self.unfinished(latest);
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
                mtu: self.mtu,
                counts: self.counts,
                responder_round_trip_ns: far,
                requester_round_trip_ns: near,
                refusals: self.refusals,
            },
            recoveries: self.recoveries,
            findings: self.findings,
        })
    }

    /// What is still missing when the capture ends.
    fn unfinished(&mut self, latest: u64) {
        let (requester, responder) = (&self.requester, &self.responder);
        let request = Some(responder.expected.least).filter(|&psn| psn < requester.next.least);
        let response = (requester.awaited.front())
            .map(|a| a.next)
            .filter(|&psn| matches!(responder.log.lost(psn), Lost::Here(_)));
        let reason = requester.reason.filter(|reason| !reason.stale);
        let Some(missing) = reason.map(|r| r.psn).or(request).or(response) else {
            return;
        };
        let found = reason.map_or(Found::NotYet, |r| r.found);
        let early = match reason {
            Some(reason) => reason.out_of_order,
            None => responder.out_of_order.filter(|_| request.is_some()),
        };
        let told = reason
            .map(|r| r.told)
            .filter(|_| found != Found::ImpliedNak);
        let generation_ns = match (told, early, found) {
            (Some(told), Some(early), Found::SequenceNak) => {
                Some(told.time_ns.saturating_sub(early.time_ns))
            }
            _ => None,
        };
        let read = self.begins_read(missing) || response == Some(missing);
        if let Some(Reason { told, wait_ns, .. }) = reason
            && latest.saturating_sub(told.time_ns) >= OBEYS_WITHIN_NS + wait_ns
        {
            let what = format!(
                "PSN {} is not sent again in {}",
                self.psn(missing),
                crate::text::span(latest.saturating_sub(told.time_ns))
            );
            self.find(Rule::NotResumed, [told.packet], what);
        }
        self.recoveries.push(Recovery {
            connection: self.number,
            verb: match self.verbs.iter().position(|&packets| packets > 0) {
                Some(verb) if !read => Verb::ALL[verb],
                _ => Verb::Read,
            },
            psn: self.psn(missing),
            position: missing,
            lost: match found {
                Found::NotReady => Lost::Nothing,
                _ => self.lost(missing),
            },
            found,
            out_of_order: early,
            nak: told,
            again: None,
            from: None,
            requests: 0,
            generation_ns,
            reaction_ns: None,
            waited_ns: None,
            retry: None,
            generation_round_trip_ns: None,
            reaction_round_trip_ns: None,
            broken: Vec::new(),
        });
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

    /// A timer of one setting runs between once and four times its time.
    fn varying_timeouts(&mut self) {
        let Some([shortest, longest]) = self.requester.waited else {
            return;
        };
        let round_trip = self.requester.round_trip_ns.unwrap_or(0);
        if self.settings.timeout.is_none()
            && longest.0 > shortest.0.saturating_mul(4).saturating_add(round_trip)
        {
            let what = format!(
                "timeouts from {} to {}: no setting allows both",
                crate::text::span(shortest.0),
                crate::text::span(longest.0)
            );
            self.find(Rule::TimeoutVaries, [shortest.1, longest.1], what);
        }
    }
}

fn sample(least: &mut Option<u64>, value: u64) {
    *least = Some(least.map_or(value, |least| least.min(value)));
}

impl Awaited {
    /// Whether a PSN at or behind its first is one of its responses'.
    fn covers(&self, psn: i64, mtu: Option<u32>) -> bool {
        let most = responses(self.dma_len, mtu.unwrap_or(256));
        psn < self.psn + most
    }
}

impl Asked {
    fn end(&self, mtu: u32) -> i64 {
        self.psn + responses(self.dma_len, mtu)
    }
}

impl Answering {
    /// A PSN behind the next one is still of this read.
    fn covers(&self, psn: i64, mtu: Option<u32>) -> bool {
        psn > self.next && mtu.is_some_and(|mtu| psn < self.asked.end(mtu))
    }
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
