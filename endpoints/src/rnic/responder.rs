// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The half of a queue pair that answers: it carries requests out in their order, each once, and
//! says so (InfiniBand specification, volume 1, 9.7).

use std::collections::VecDeque;

use midwire_trace::build;
use midwire_trace::packet::{Aeth, AtomicEth, Reth, Roce, opcode, syndrome};

use super::qp::{Outgoing, QpConfig, packets};
use super::requester::wrong;
use super::{Counters, Latency, Picoseconds};
use crate::payload::Stream;

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
    /// Messages and bytes that SENDs and WRITEs brought, and how many were wrong.
    pub messages: u64,
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
            messages: 0,
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
                let opcode = match (*first, last) {
                    (true, true) => opcode::READ_RESPONSE_ONLY,
                    (true, false) => opcode::READ_RESPONSE_FIRST,
                    (false, true) => opcode::READ_RESPONSE_LAST,
                    (false, false) => opcode::READ_RESPONSE_MIDDLE,
                };
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
    pub fn request(
        &mut self,
        now: Picoseconds,
        roce: &Roce,
        payload: &[u8],
        latency: &Latency,
        counters: &mut Counters,
    ) {
        if self.failed {
            return;
        }
        let psn = roce.bth.sequence().nearest(self.expected);
        if psn < self.expected {
            counters.duplicate_request += 1;
            return self.repeat(now, psn, roce, latency, counters);
        }
        if psn > self.expected {
            counters.out_of_sequence += 1;
            return self.refuse(now, syndrome::SEQUENCE_ERROR, latency);
        }
        self.nak_sent = false;
        match self.carry_out(now, roce, payload, latency, counters) {
            Ok(()) => {
                if roce.bth.ack_req && !is_answered(roce) {
                    self.acknowledge(now + latency.ack);
                }
            }
            Err(Refusal(code)) => {
                self.refuse(now, code, latency);
                // Only a receiver that is not ready may be asked again.
                self.failed = code & syndrome::CLASS != syndrome::NOT_READY;
            }
        }
    }

    /// Says once why the PSN that is due was not carried out.
    fn refuse(&mut self, now: Picoseconds, code: u8, latency: &Latency) {
        if std::mem::replace(&mut self.nak_sent, true) {
            return;
        }
        let answer = Answer::Ack {
            psn: self.expected,
            syndrome: code,
            msn: self.msn,
        };
        self.answer(answer, now + latency.nak);
    }

    /// A request that was carried out before comes again (9.7.5.1.4).
    fn repeat(
        &mut self,
        now: Picoseconds,
        psn: u64,
        roce: &Roce,
        latency: &Latency,
        counters: &mut Counters,
    ) {
        if !is_answered(roce) {
            if roce.bth.ack_req {
                self.acknowledge(now + latency.ack);
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
                counters.rx_read_requests += 1;
                self.read(now, psn, reth, latency);
            }
            (None, Some(&(_, value))) => {
                let msn = self.msn;
                self.answer(Answer::Atomic { psn, value, msn }, now + latency.ack);
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

    fn read(&mut self, now: Picoseconds, psn: u64, reth: Reth, latency: &Latency) {
        let answer = Answer::Read {
            psn,
            offset: reth.va - self.region,
            left: reth.dma_len.into(),
            msn: self.msn,
            first: true,
        };
        self.answer(answer, now + latency.read_response);
    }

    fn count_message(&mut self) {
        self.msn = (self.msn + 1) & 0xff_ffff;
    }

    /// The request that is due.
    fn carry_out(
        &mut self,
        now: Picoseconds,
        roce: &Roce,
        payload: &[u8],
        latency: &Latency,
        counters: &mut Counters,
    ) -> Result<(), Refusal> {
        let invalid = Refusal(syndrome::INVALID_REQUEST);
        let begins = self.message.is_none();
        match roce.bth.opcode {
            opcode::SEND_FIRST | opcode::SEND_ONLY if begins => {
                self.take_receive(now, counters)?;
                self.message = Some(Message::Send);
            }
            opcode::WRITE_FIRST | opcode::WRITE_ONLY if begins => {
                let reth = self.reach(roce.reth, counters)?;
                counters.rx_write_requests += 1;
                self.offset = reth.va - self.region;
                let left = reth.dma_len.into();
                self.message = Some(Message::Write { left });
            }
            opcode::SEND_MIDDLE | opcode::SEND_LAST | opcode::WRITE_MIDDLE | opcode::WRITE_LAST => {
            }
            opcode::READ_REQUEST if begins => {
                let reth = self.reach(roce.reth, counters)?;
                counters.rx_read_requests += 1;
                self.count_message();
                self.read(now, self.expected, reth, latency);
                self.expected += packets(reth.dma_len.into(), self.mtu);
                return Ok(());
            }
            opcode::FETCH_ADD | opcode::COMPARE_SWAP if begins => {
                let atomic = self.reach_atomic(roce.atomic, counters)?;
                counters.rx_atomic_requests += 1;
                self.atomic(now, roce.bth.opcode, atomic, latency);
                return Ok(());
            }
            _ => return Err(invalid),
        }
        self.payload(roce.bth.opcode, payload, counters)?;
        self.expected += 1;
        Ok(())
    }

    /// A packet of a SEND or WRITE.
    fn payload(
        &mut self,
        code: u8,
        payload: &[u8],
        counters: &mut Counters,
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
            counters.resp_local_length_error += 1;
            return Err(Refusal(syndrome::INVALID_REQUEST));
        }
        self.bytes += length;
        self.wrong_bytes += wrong(self.takes, self.offset, payload);
        self.offset += length;
        if last {
            self.message = None;
            self.messages += 1;
            self.count_message();
        }
        Ok(())
    }

    fn take_receive(&mut self, now: Picoseconds, counters: &mut Counters) -> Result<(), Refusal> {
        while self.reposts.pop_front_if(|at| *at <= now).is_some() {
            self.receives += 1;
        }
        let Some(left) = self.receives.checked_sub(1) else {
            counters.out_of_buffer += 1;
            return Err(Refusal(syndrome::NOT_READY | self.min_rnr_timer));
        };
        self.receives = left;
        self.reposts.push_back(now + self.repost);
        Ok(())
    }

    fn reach(&self, reth: Option<Reth>, counters: &mut Counters) -> Result<Reth, Refusal> {
        reth.filter(|reth| self.reaches(*reth)).ok_or_else(|| {
            counters.resp_remote_access_errors += 1;
            Refusal(syndrome::REMOTE_ACCESS)
        })
    }

    fn reach_atomic(
        &self,
        atomic: Option<AtomicEth>,
        counters: &mut Counters,
    ) -> Result<AtomicEth, Refusal> {
        let fits = |a: &AtomicEth| a.rkey == self.key && a.va == self.region;
        atomic.filter(fits).ok_or_else(|| {
            counters.resp_remote_access_errors += 1;
            Refusal(syndrome::REMOTE_ACCESS)
        })
    }

    fn atomic(&mut self, now: Picoseconds, code: u8, atomic: AtomicEth, latency: &Latency) {
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
        self.answer(Answer::Atomic { psn, value, msn }, now + latency.ack);
        self.expected += 1;
    }
}

/// Whether a request has a response of its own instead of an acknowledgement.
fn is_answered(roce: &Roce) -> bool {
    matches!(
        roce.bth.opcode,
        opcode::READ_REQUEST | opcode::FETCH_ADD | opcode::COMPARE_SWAP
    )
}
