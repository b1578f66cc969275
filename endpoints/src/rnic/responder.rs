// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The half of a queue pair that answers: it carries requests out in their order, each once, and
//! says so (InfiniBand specification, volume 1, 9.7).

use std::collections::VecDeque;

use midwire_trace::build;
use midwire_trace::packet::{Aeth, AtomicEth, Reth, Roce, opcode, syndrome};

use super::Picoseconds;
use super::qp::{Context, Opcodes, Outgoing, QpConfig, packets};
use super::requester::wrong;
use crate::payload::Stream;

const RESPONSE: Opcodes = Opcodes {
    first: opcode::READ_RESPONSE_FIRST,
    middle: opcode::READ_RESPONSE_MIDDLE,
    last: opcode::READ_RESPONSE_LAST,
    only: opcode::READ_RESPONSE_ONLY,
};

/// A message that has begun and not ended.
enum Message {
    Send,
    /// Bytes that are to come.
    Write {
        left: u64,
    },
}

/// What is to be sent, in the order of the requests.
enum Answer {
    Ack {
        psn: u64,
        syndrome: u8,
        msn: u32,
    },
    /// Responses of a READ from a PSN on.
    Read {
        psn: u64,
        offset: u64,
        left: u64,
        msn: u32,
        first: bool,
    },
    Atomic {
        psn: u64,
        value: u64,
        msn: u32,
    },
}

struct Due {
    answer: Answer,
    at: Picoseconds,
}

/// Why a request is refused.
struct Refusal(u8);

/// The responder.
pub(super) struct Responder {
    mtu: u64,
    region: u64,
    region_bytes: u64,
    key: u32,
    min_rnr_timer: u8,
    repost: Picoseconds,
    max_reads: usize,
    takes: Stream,
    gives: Stream,
    /// The PSN that is due.
    expected: u64,
    msn: u32,
    /// A NAK was sent; nothing more is said until the PSN comes that is due.
    nak_sent: bool,
    failed: bool,
    message: Option<Message>,
    /// Where in the stream the next byte goes.
    offset: u64,
    receives: u64,
    /// When receives are posted again.
    reposts: VecDeque<Picoseconds>,
    cell: u64,
    /// The last atomic operations and what they found, for the case that they come again.
    atomics: VecDeque<(u64, u64)>,
    answers: VecDeque<Due>,
    /// Bytes that SENDs and WRITEs brought, and how many were wrong.
    pub bytes: u64,
    pub wrong_bytes: u64,
}

impl Responder {
    pub fn new(qp: &QpConfig) -> Self {
        Self {
            mtu: qp.mtu.into(),
            region: qp.region,
            region_bytes: qp.region_bytes,
            key: qp.key,
            min_rnr_timer: qp.min_rnr_timer & 0x1f,
            repost: qp.repost,
            max_reads: qp.max_reads,
            takes: qp.stream(false),
            gives: qp.stream(true),
            expected: u64::from(qp.peer_psn.get()) | 1 << 24,
            msn: 0,
            nak_sent: false,
            failed: false,
            message: None,
            offset: 0,
            receives: qp.receives,
            reposts: VecDeque::new(),
            cell: 0,
            atomics: VecDeque::new(),
            answers: VecDeque::new(),
            bytes: 0,
            wrong_bytes: 0,
        }
    }

    /// When the next answer is to be sent, and whether it carries data.
    pub fn ready(&self) -> Option<(Picoseconds, bool)> {
        let due = self.answers.front()?;
        Some((due.at, matches!(due.answer, Answer::Read { .. })))
    }

    /// The next answer.
    pub fn take(&mut self) -> Option<Outgoing> {
        let due = self.answers.front_mut()?;
        let aeth = |syndrome, msn| build::aeth(Aeth { syndrome, msn });
        let plain = |opcode, psn, extension| Outgoing {
            opcode,
            psn,
            ack_req: false,
            extension,
            payload: Vec::new(),
        };
        let (outgoing, over) = match &mut due.answer {
            Answer::Ack { psn, syndrome, msn } => {
                (plain(opcode::ACK, *psn, aeth(*syndrome, *msn)), true)
            }
            Answer::Atomic { psn, value, msn } => {
                let mut extension = aeth(syndrome::NO_CREDITS, *msn);
                extension.extend(value.to_be_bytes());
                (plain(opcode::ATOMIC_ACK, *psn, extension), true)
            }
            Answer::Read {
                psn,
                offset,
                left,
                msn,
                first,
            } => {
                let length = self.mtu.min(*left);
                let mut payload = vec![0; length as usize];
                self.gives.fill(*offset, &mut payload);
                let last = *left == length;
                let opcode = RESPONSE.at(*first, last);
                let extension = match *first || last {
                    true => aeth(syndrome::NO_CREDITS, *msn),
                    false => Vec::new(),
                };
                let outgoing = Outgoing {
                    payload,
                    ..plain(opcode, *psn, extension)
                };
                *psn += 1;
                *offset += length;
                *left -= length;
                *first = false;
                (outgoing, last)
            }
        };
        if over {
            self.answers.pop_front();
        }
        Some(outgoing)
    }

    fn answer(&mut self, answer: Answer, at: Picoseconds) {
        self.answers.push_back(Due { answer, at });
    }

    /// Acknowledges all that was carried out. One that still waits to be sent serves for both.
    fn acknowledge(&mut self, at: Picoseconds) {
        let (last, msn_now) = (self.expected - 1, self.msn);
        match self.answers.back_mut() {
            Some(Due {
                answer:
                    Answer::Ack {
                        psn,
                        syndrome: syndrome::NO_CREDITS,
                        msn,
                    },
                ..
            }) => (*psn, *msn) = (last, msn_now),
            _ => self.answer(
                Answer::Ack {
                    psn: last,
                    syndrome: syndrome::NO_CREDITS,
                    msn: msn_now,
                },
                at,
            ),
        }
    }

    /// A packet that asks; `payload` is without pad.
    pub fn request(&mut self, context: &mut Context<'_>, roce: &Roce, payload: &[u8]) {
        if self.failed {
            return;
        }
        let psn = roce.bth.sequence().nearest(self.expected);
        if psn < self.expected {
            context.counters.duplicate_request += 1;
            return self.repeat(context, psn, roce);
        }
        if psn > self.expected {
            context.counters.out_of_sequence += 1;
            return self.refuse(context, syndrome::SEQUENCE_ERROR);
        }
        self.nak_sent = false;
        match self.carry_out(context, roce, payload) {
            Ok(()) => {
                if roce.bth.ack_req && !is_answered(roce) {
                    self.acknowledge(context.now + context.latency.ack);
                }
            }
            Err(Refusal(code)) => {
                self.refuse(context, code);
                // Only a receiver that is not ready may be asked again.
                self.failed = code & syndrome::CLASS != syndrome::NOT_READY;
            }
        }
    }

    /// Says once why the PSN that is due was not carried out.
    fn refuse(&mut self, context: &Context<'_>, code: u8) {
        if std::mem::replace(&mut self.nak_sent, true) {
            return;
        }
        let answer = Answer::Ack {
            psn: self.expected,
            syndrome: code,
            msn: self.msn,
        };
        self.answer(answer, context.now + context.latency.nak);
    }

    /// A request that was carried out before comes again (9.7.5.1.4).
    fn repeat(&mut self, context: &mut Context<'_>, psn: u64, roce: &Roce) {
        if !is_answered(roce) {
            if roce.bth.ack_req {
                self.acknowledge(context.now + context.latency.ack);
            }
            return;
        }
        // What is still to be sent from there on is asked for again too.
        let from = |due: &Due| match due.answer {
            Answer::Ack { psn, .. } | Answer::Read { psn, .. } | Answer::Atomic { psn, .. } => psn,
        };
        self.answers.retain(|due| from(due) < psn);
        let found = self.atomics.iter().find(|(known, _)| *known == psn);
        match (roce.reth, found) {
            (Some(reth), _) if self.reaches(reth) => {
                context.counters.rx_read_requests += 1;
                self.read(context, psn, reth);
            }
            (None, Some(&(_, value))) => {
                let msn = self.msn;
                let at = context.now + context.latency.ack;
                self.answer(Answer::Atomic { psn, value, msn }, at);
            }
            _ => {}
        }
    }

    fn reaches(&self, reth: Reth) -> bool {
        let length = reth.dma_len.into();
        reth.rkey == self.key
            && reth.va >= self.region
            && (reth.va - self.region)
                .checked_add(length)
                .is_some_and(|end| end <= self.region_bytes)
    }

    fn is_cell(&self, atomic: AtomicEth) -> bool {
        atomic.rkey == self.key && atomic.va == self.region
    }

    fn read(&mut self, context: &Context<'_>, psn: u64, reth: Reth) {
        let answer = Answer::Read {
            psn,
            offset: reth.va - self.region,
            left: reth.dma_len.into(),
            msn: self.msn,
            first: true,
        };
        self.answer(answer, context.now + context.latency.read_response);
    }

    fn count_message(&mut self) {
        self.msn = (self.msn + 1) & 0xff_ffff;
    }

    /// The request that is due.
    fn carry_out(
        &mut self,
        context: &mut Context<'_>,
        roce: &Roce,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        let invalid = Refusal(syndrome::INVALID_REQUEST);
        let begins = self.message.is_none();
        match roce.bth.opcode {
            opcode::SEND_FIRST | opcode::SEND_ONLY if begins => {
                self.take_receive(context)?;
                self.message = Some(Message::Send);
            }
            opcode::WRITE_FIRST | opcode::WRITE_ONLY if begins => {
                let reth = reachable(roce.reth, |reth| self.reaches(reth), context)?;
                context.counters.rx_write_requests += 1;
                self.offset = reth.va - self.region;
                let left = reth.dma_len.into();
                self.message = Some(Message::Write { left });
            }
            opcode::SEND_MIDDLE | opcode::SEND_LAST | opcode::WRITE_MIDDLE | opcode::WRITE_LAST => {
            }
            opcode::READ_REQUEST if begins => {
                let reth = reachable(roce.reth, |reth| self.reaches(reth), context)?;
                context.counters.rx_read_requests += 1;
                self.count_message();
                self.read(context, self.expected, reth);
                self.expected += packets(reth.dma_len.into(), self.mtu);
                return Ok(());
            }
            opcode::FETCH_ADD | opcode::COMPARE_SWAP if begins => {
                let atomic = reachable(roce.atomic, |atomic| self.is_cell(atomic), context)?;
                context.counters.rx_atomic_requests += 1;
                self.atomic(context, roce.bth.opcode, atomic);
                return Ok(());
            }
            _ => return Err(invalid),
        }
        self.payload(context, roce.bth.opcode, payload)?;
        self.expected += 1;
        Ok(())
    }

    /// A packet of a SEND or WRITE.
    fn payload(
        &mut self,
        context: &mut Context<'_>,
        code: u8,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        let length = payload.len() as u64;
        let last = matches!(
            code,
            opcode::SEND_LAST | opcode::SEND_ONLY | opcode::WRITE_LAST | opcode::WRITE_ONLY
        );
        let of_send = code <= opcode::SEND_ONLY;
        let fits = match &mut self.message {
            Some(Message::Send) => of_send,
            Some(Message::Write { left }) if !of_send && length <= *left => {
                *left -= length;
                (*left == 0) == last
            }
            _ => false,
        };
        // Only the last packet may be short (9.7.4.1.6).
        if !fits || length > self.mtu || !last && length < self.mtu {
            context.counters.resp_local_length_error += 1;
            return Err(Refusal(syndrome::INVALID_REQUEST));
        }
        self.bytes += length;
        self.wrong_bytes += wrong(self.takes, self.offset, payload);
        self.offset += length;
        if last {
            self.message = None;
            self.count_message();
        }
        Ok(())
    }

    fn take_receive(&mut self, context: &mut Context<'_>) -> Result<(), Refusal> {
        while self.reposts.pop_front_if(|at| *at <= context.now).is_some() {
            self.receives += 1;
        }
        let Some(left) = self.receives.checked_sub(1) else {
            context.counters.out_of_buffer += 1;
            return Err(Refusal(syndrome::NOT_READY | self.min_rnr_timer));
        };
        self.receives = left;
        self.reposts.push_back(context.now + self.repost);
        Ok(())
    }

    fn atomic(&mut self, context: &Context<'_>, code: u8, atomic: AtomicEth) {
        let value = self.cell;
        match code {
            opcode::FETCH_ADD => self.cell = value.wrapping_add(atomic.swap_add),
            _ if value == atomic.compare => self.cell = atomic.swap_add,
            _ => {}
        }
        self.count_message();
        let (psn, msn) = (self.expected, self.msn);
        self.atomics.push_back((psn, value));
        if self.atomics.len() > self.max_reads {
            self.atomics.pop_front();
        }
        let at = context.now + context.latency.ack;
        self.answer(Answer::Atomic { psn, value, msn }, at);
        self.expected += 1;
    }
}

/// The memory that a request asks for, if it fits.
fn reachable<T: Copy>(
    asked: Option<T>,
    fits: impl Fn(T) -> bool,
    context: &mut Context<'_>,
) -> Result<T, Refusal> {
    asked.filter(|asked| fits(*asked)).ok_or_else(|| {
        context.counters.resp_remote_access_errors += 1;
        Refusal(syndrome::REMOTE_ACCESS)
    })
}

/// Whether a request has a response of its own instead of an acknowledgement.
fn is_answered(roce: &Roce) -> bool {
    matches!(
        roce.bth.opcode,
        opcode::READ_REQUEST | opcode::FETCH_ADD | opcode::COMPARE_SWAP
    )
}
