// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The half of a queue pair that asks: work requests become packets, and what comes back
//! completes them or has them sent again (InfiniBand specification, volume 1, 9.7).
//!
//! PSNs are counted in 64 bits here, so that none of the comparisons knows of the wrap.

use std::collections::VecDeque;

use midwire_trace::build;
use midwire_trace::packet::{Aeth, AtomicEth, Reth, Roce, opcode, syndrome};

use super::faults::{MORE_RETRIES, adaptive_timeout};
use super::qp::{Context, Opcodes, Outgoing, QpConfig, packets};
use super::{Counters, MICROSECOND, Operation, Picoseconds, Status};
use crate::payload::Stream;

/// Packets after which an acknowledgement is asked for, also in the middle of a message.
const ACK_EVERY: u64 = 64;

const SEND: Opcodes = Opcodes {
    first: opcode::SEND_FIRST,
    middle: opcode::SEND_MIDDLE,
    last: opcode::SEND_LAST,
    only: opcode::SEND_ONLY,
};

const WRITE: Opcodes = Opcodes {
    first: opcode::WRITE_FIRST,
    middle: opcode::WRITE_MIDDLE,
    last: opcode::WRITE_LAST,
    only: opcode::WRITE_ONLY,
};

/// A work request.
#[derive(Clone, Debug)]
struct Work {
    /// What the application calls it.
    id: u64,
    operation: Operation,
    length: u64,
    /// Where it begins in the stream of its direction.
    offset: u64,
    /// Its PSNs; for a READ those of the responses.
    first: u64,
    end: u64,
}

impl Work {
    /// Where the packet with this PSN begins in the stream, and how much of the message is left
    /// from there on.
    fn rest(&self, psn: u64, mtu: u64) -> (u64, u64) {
        let done = (psn - self.first) * mtu;
        (self.offset + done, self.length.saturating_sub(done))
    }
}

/// A work request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    pub id: u64,
    pub status: Status,
}

/// The requester.
pub(super) struct Requester {
    mtu: u64,
    timeout: Option<Picoseconds>,
    /// Chooses its time-outs itself.
    adaptive: bool,
    /// Times that the timer has run out in a row.
    timeouts: usize,
    retries: u8,
    rnr_retries: u8,
    max_reads: usize,
    region: u64,
    key: u32,
    /// What SENDs and WRITEs carry, and what READs must bring.
    sends: Stream,
    reads: Stream,
    /// Posted and not complete, in order.
    work: VecDeque<Work>,
    /// PSN of the next work request.
    next: u64,
    /// The lowest PSN that is not acknowledged.
    una: u64,
    /// The next PSN to be sent.
    cursor: u64,
    /// Behind the highest PSN sent.
    sent: u64,
    /// Behind the highest PSN for which an answer was asked, since the last go-back.
    asked: u64,
    /// Packets sent since then.
    unasked: u64,
    /// Nothing is sent before: it takes time to go back, and the peer may have asked for it.
    held: Picoseconds,
    timer: Option<Picoseconds>,
    retries_left: u8,
    rnr_retries_left: u8,
    /// Went back for a response that came too early; more of these mean nothing.
    gap: bool,
    failed: bool,
    completions: Vec<Completion>,
    /// Bytes that READs brought, and how many of them were wrong.
    pub read_bytes: u64,
    pub wrong_bytes: u64,
}

impl Requester {
    pub fn new(qp: &QpConfig, adaptive: bool) -> Self {
        // So that there are numbers below the first.
        let first = u64::from(qp.first_psn.get()) | 1 << 24;
        let retries = qp.retries + if adaptive { MORE_RETRIES } else { 0 };
        Self {
            mtu: qp.mtu.into(),
            timeout: qp.timeout(),
            adaptive,
            timeouts: 0,
            retries,
            rnr_retries: qp.rnr_retries,
            max_reads: qp.max_reads,
            region: qp.region,
            key: qp.key,
            sends: qp.stream(true),
            reads: qp.stream(false),
            work: VecDeque::new(),
            next: first,
            una: first,
            cursor: first,
            sent: first,
            asked: first,
            unasked: 0,
            held: 0,
            timer: None,
            retries_left: retries,
            rnr_retries_left: qp.rnr_retries,
            gap: false,
            failed: false,
            completions: Vec::new(),
            read_bytes: 0,
            wrong_bytes: 0,
        }
    }

    pub fn post(&mut self, id: u64, operation: Operation, length: u64, offset: u64) {
        if self.failed {
            let status = Status::Flushed;
            return self.completions.push(Completion { id, status });
        }
        let first = self.next;
        self.next += packets(length, self.mtu);
        self.work.push_back(Work {
            id,
            operation,
            length,
            offset,
            first,
            end: self.next,
        });
    }

    /// Takes what has completed.
    pub fn completions(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.completions)
    }

    /// The work request that a PSN belongs to.
    fn at(&self, psn: u64) -> Option<&Work> {
        let index = self.work.partition_point(|work| work.end <= psn);
        self.work.get(index).filter(|work| work.first <= psn)
    }

    /// When there is a packet to be sent.
    pub fn ready(&self) -> Option<Picoseconds> {
        let work = self.at(self.cursor)?;
        let answered = |work: &&Work| work.operation.is_answered();
        let asked = self.work.iter().take_while(|w| w.end <= self.cursor);
        let blocked = answered(&work) && asked.filter(answered).count() >= self.max_reads;
        (!blocked).then_some(self.held)
    }

    /// Whether a READ waits for a response that was lost.
    pub fn is_recovering(&self) -> bool {
        self.gap && !self.failed
    }

    /// When the acknowledgement timer runs out.
    pub fn timer(&self) -> Option<Picoseconds> {
        self.timer
    }

    /// The next packet.
    pub fn take(&mut self, now: Picoseconds) -> Option<Outgoing> {
        let work = self.at(self.cursor)?.clone();
        let psn = self.cursor;
        let (offset, left) = work.rest(psn, self.mtu);
        let reth = |length: u64| {
            build::reth(Reth {
                va: self.region + offset,
                rkey: self.key,
                dma_len: length as u32,
            })
        };
        let atomic = |swap_add, compare| {
            build::atomic(AtomicEth {
                va: self.region,
                rkey: self.key,
                swap_add,
                compare,
            })
        };
        let (first, last) = (psn == work.first, psn + 1 == work.end);
        let (opcode, extension) = match work.operation {
            Operation::Send => (SEND.at(first, last), Vec::new()),
            Operation::Write => (
                WRITE.at(first, last),
                if first { reth(work.length) } else { Vec::new() },
            ),
            // What is missing of it.
            Operation::Read => (opcode::READ_REQUEST, reth(left)),
            // Both count up by one: the value that comes back is the number of the operation.
            Operation::FetchAdd => (opcode::FETCH_ADD, atomic(1, 0)),
            Operation::CompareSwap => (opcode::COMPARE_SWAP, atomic(work.offset + 1, work.offset)),
        };
        let payload = match work.operation {
            Operation::Send | Operation::Write => {
                let mut payload = vec![0; left.min(self.mtu) as usize];
                self.sends.fill(offset, &mut payload);
                payload
            }
            _ => Vec::new(),
        };
        let answered = work.operation.is_answered();
        self.cursor = if answered { work.end } else { psn + 1 };
        self.sent = self.sent.max(self.cursor);
        self.unasked += 1;
        let ack_req = last || answered || self.unasked >= ACK_EVERY;
        if ack_req {
            self.unasked = 0;
            self.asked = self.asked.max(self.cursor);
            if self.timer.is_none() {
                self.restart(now);
            }
        }
        Some(Outgoing {
            opcode,
            psn,
            ack_req,
            extension,
            payload,
        })
    }

    fn restart(&mut self, now: Picoseconds) {
        self.timer = self.timeout.map(|timeout| {
            let time = match self.adaptive {
                true => adaptive_timeout(timeout, self.timeouts),
                false => timeout,
            };
            now.saturating_add(time)
        });
    }

    /// The first PSN of a response that is due.
    fn due(&self) -> Option<u64> {
        let due = self.work.iter().find(|work| work.operation.is_answered())?;
        Some(due.first.max(self.una))
    }

    /// All below `to` has been answered for.
    fn advance(&mut self, to: u64, now: Picoseconds) {
        self.una = to;
        self.cursor = self.cursor.max(to);
        self.asked = self.asked.max(to);
        self.timeouts = 0;
        self.retries_left = self.retries;
        self.rnr_retries_left = self.rnr_retries;
        self.gap = false;
        self.timer = None;
        if self.asked > to {
            self.restart(now);
        }
        while let Some(work) = self.work.pop_front_if(|work| work.end <= to) {
            self.completions.push(Completion {
                id: work.id,
                status: Status::Success,
            });
        }
    }

    /// Everything below `to` was acknowledged, but for responses that are due: then they were
    /// lost. True when nothing is missing.
    fn acknowledged(&mut self, to: u64, context: &mut Context<'_>) -> bool {
        let due = self.due().unwrap_or(u64::MAX);
        let reached = to.min(due);
        if reached > self.una {
            self.advance(reached, context.now);
        }
        if to > due {
            self.missed(context);
        }
        to <= due
    }

    /// A response was lost: an implied NAK.
    fn missed(&mut self, context: &mut Context<'_>) {
        if !self.gap {
            context.counters.implied_nak_seq_err += 1;
            self.go_back(context.now + context.latency.read_again, context.counters);
            self.gap = true;
        }
    }

    /// Begins again with what is not acknowledged, if it may.
    fn go_back(&mut self, held: Picoseconds, counters: &mut Counters) {
        let Some(left) = self.retries_left.checked_sub(1) else {
            return self.fail(Status::RetryExceeded, counters);
        };
        self.retries_left = left;
        self.rewind(held);
    }

    fn rewind(&mut self, held: Picoseconds) {
        self.cursor = self.una;
        self.asked = self.una;
        self.unasked = 0;
        self.timer = None;
        self.gap = false;
        self.held = held;
    }

    /// The first work request failed, and with it the queue pair.
    fn fail(&mut self, status: Status, counters: &mut Counters) {
        self.failed = true;
        self.timer = None;
        let statuses = std::iter::once(status).chain(std::iter::repeat(Status::Flushed));
        for (work, status) in self.work.drain(..).zip(statuses) {
            counters.req_cqe_error += 1;
            counters.req_cqe_flush_error += u64::from(status == Status::Flushed);
            self.completions.push(Completion {
                id: work.id,
                status,
            });
        }
    }

    /// The timer has run out.
    pub fn expire(&mut self, context: &mut Context<'_>) {
        context.counters.local_ack_timeout_err += 1;
        self.timeouts += 1;
        self.go_back(context.now, context.counters);
    }

    /// A packet that answers.
    pub fn response(&mut self, context: &mut Context<'_>, roce: &Roce, payload: &[u8]) {
        let psn = roce.bth.sequence().nearest(self.una);
        // What answers nothing that was asked is a ghost (9.7.5.1.1).
        if self.failed || psn >= self.sent {
            return;
        }
        match (roce.bth.opcode, roce.aeth) {
            (opcode::ACK, Some(aeth)) => self.acknowledge(context, psn, aeth),
            (opcode::ATOMIC_ACK, _) => {
                let expected = self.at(psn).map(|work| work.offset);
                if self.brings(context, psn, true) {
                    self.read_bytes += 8;
                    self.wrong_bytes += if roce.atomic_ack == expected { 0 } else { 8 };
                    self.advance(psn + 1, context.now);
                }
            }
            (_, _) => {
                let Some(work) = self.at(psn) else { return };
                let (offset, left) = work.rest(psn, self.mtu);
                let length = left.min(self.mtu);
                if length == payload.len() as u64 && self.brings(context, psn, false) {
                    self.read_bytes += length;
                    self.wrong_bytes += wrong(self.reads, offset, payload);
                    self.advance(psn + 1, context.now);
                }
            }
        }
    }

    /// Whether a response is the one that is due. It acknowledges all requests before its own.
    fn brings(&mut self, context: &mut Context<'_>, psn: u64, atomic: bool) -> bool {
        let Some(work) = self.at(psn).filter(|_| psn >= self.una) else {
            return false;
        };
        let fits = match work.operation {
            Operation::Read => !atomic,
            Operation::FetchAdd | Operation::CompareSwap => atomic,
            Operation::Send | Operation::Write => false,
        };
        fits && self.acknowledged(psn, context)
    }

    fn acknowledge(&mut self, context: &mut Context<'_>, psn: u64, aeth: Aeth) {
        match aeth.syndrome & syndrome::CLASS {
            syndrome::ACK => {
                if psn >= self.una {
                    self.acknowledged(psn + 1, context);
                }
                return;
            }
            _ if psn < self.una => return,
            _ => {}
        }
        // A NAK acknowledges what is before it.
        if !self.acknowledged(psn, context) {
            return;
        }
        let Context {
            now,
            latency,
            counters,
        } = context;
        match aeth.syndrome {
            syndrome::SEQUENCE_ERROR => {
                counters.packet_seq_err += 1;
                self.go_back(*now + latency.go_back, counters);
            }
            syndrome::INVALID_REQUEST => {
                counters.req_remote_invalid_request += 1;
                self.fail(Status::RemoteInvalidRequest, counters);
            }
            syndrome::REMOTE_ACCESS => {
                counters.req_remote_access_errors += 1;
                self.fail(Status::RemoteAccess, counters);
            }
            code if code & syndrome::CLASS == syndrome::NOT_READY => {
                // 7 stands for no limit.
                if self.rnr_retries != 7 {
                    let Some(left) = self.rnr_retries_left.checked_sub(1) else {
                        counters.rnr_nak_retry_err += 1;
                        return self.fail(Status::RnrRetryExceeded, counters);
                    };
                    self.rnr_retries_left = left;
                }
                self.rewind(*now + syndrome::not_ready_us(code) * MICROSECOND);
            }
            _ => self.fail(Status::RemoteOperation, counters),
        }
    }
}

/// How many of `bytes` are not those of the stream from `offset` on.
pub(super) fn wrong(stream: Stream, offset: u64, bytes: &[u8]) -> u64 {
    let mut right = vec![0; bytes.len()];
    stream.fill(offset, &mut right);
    let differ = bytes.iter().zip(&right).filter(|(a, b)| a != b);
    differ.count() as u64
}
