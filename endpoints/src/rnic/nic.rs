// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The NIC: takes frames, keeps its queue pairs' timers, and shares the line among them.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use midwire_trace::Psn;
use midwire_trace::build::{self, Path};
use midwire_trace::packet::{Bth, Packet, Roce, opcode};
use midwire_trace::units::{MIN_FRAME, line_bytes};

use super::dcqcn::Rate;
use super::faults::{Fault, NOISY, SLOW_START, SLOW_START_PACKETS, SLOW_STARTS};
use super::qp::{Context, Outgoing};
use super::requester::Requester;
use super::responder::Responder;
use super::transfer::{Transfer, TransferConfig};
use super::{CnpScope, Config, Counters, Frame, Picoseconds, QpConfig};

struct Qp {
    config: QpConfig,
    requester: Requester,
    responder: Responder,
    rate: Rate,
    /// Its next data may go out.
    paced: Picoseconds,
    /// When its first packet with MigReq 0 came, and how many have come since.
    unmigrated: Option<(Picoseconds, u32)>,
}

/// A class of the transmission scheduler (IEEE 802.1Qaz).
struct Class {
    weight: u64,
    /// Bytes that it has sent, by weight; of the classes that have something to send, the one with
    /// the least goes first.
    served: u64,
    /// The queue pair whose turn it is.
    turn: usize,
    /// Without a work-conserving scheduler: when its share allows it the next packet.
    free: Picoseconds,
}

/// What may go out.
#[derive(Clone, Copy)]
enum Source {
    Cnp,
    Answer(usize),
    Data { class: usize, qp: usize },
}

/// A model of an RDMA NIC. It has no clock: it is told how far time has come, and says when it
/// will act next.
pub struct Rnic {
    config: Config,
    counters: Counters,
    qps: Vec<Qp>,
    numbers: HashMap<u32, usize>,
    now: Picoseconds,
    line_free: Picoseconds,
    arrivals: VecDeque<(Picoseconds, Frame)>,
    /// Queue pairs whose peers are to be notified of congestion.
    cnps: VecDeque<(Picoseconds, usize)>,
    notified: HashMap<Option<(IpAddr, u32)>, Picoseconds>,
    classes: Vec<Class>,
    /// What the classes that have something to send are at.
    served: u64,
    transfers: Vec<Transfer>,
}

impl Rnic {
    /// A NIC without queue pairs.
    pub fn new(config: Config) -> Self {
        let class = |weight: &u64| Class {
            weight: (*weight).max(1),
            served: 0,
            turn: 0,
            free: 0,
        };
        Self {
            classes: config.classes.iter().map(class).collect(),
            config: config.with_times_of_faults(),
            counters: Counters::default(),
            qps: Vec::new(),
            numbers: HashMap::new(),
            now: 0,
            line_free: 0,
            arrivals: VecDeque::new(),
            cnps: VecDeque::new(),
            notified: HashMap::new(),
            served: 0,
            transfers: Vec::new(),
        }
    }

    /// Adds a queue pair; its place.
    pub fn add(&mut self, config: QpConfig) -> usize {
        self.numbers.insert(config.number, self.qps.len());
        self.qps.push(Qp {
            requester: Requester::new(&config, self.config.has(Fault::AdaptiveRetransmission)),
            responder: Responder::new(&config),
            rate: Rate::new(self.config.line_rate()),
            paced: 0,
            unmigrated: None,
            config,
        });
        self.qps.len() - 1
    }

    /// Gives the NIC work, to begin when it is [started](Self::start); its number.
    pub fn add_transfer(&mut self, config: TransferConfig) -> usize {
        self.transfers.push(Transfer::new(config));
        self.transfers.len() - 1
    }

    /// Starts work.
    pub fn start(&mut self, transfer: usize, at: Picoseconds) {
        self.transfers[transfer].start(at);
    }

    /// Work and what became of it.
    pub fn transfer(&self, number: usize) -> &Transfer {
        &self.transfers[number]
    }

    /// How it is made.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes that the peer's SENDs and WRITEs brought to a queue pair, and how many of them were
    /// wrong.
    pub fn taken(&self, qp: usize) -> (u64, u64) {
        let responder = &self.qps[qp].responder;
        (responder.bytes, responder.wrong_bytes)
    }

    /// Bytes that its own READs and atomic operations brought, and how many of them were wrong.
    pub fn fetched(&self, qp: usize) -> (u64, u64) {
        let requester = &self.qps[qp].requester;
        (requester.read_bytes, requester.wrong_bytes)
    }

    /// When it will act next if nothing comes in.
    pub fn next(&self) -> Option<Picoseconds> {
        let arrival = self.arrivals.front().map(|(at, _)| *at);
        let timers = self.qps.iter().filter_map(|qp| qp.requester.timer());
        let starts = self.transfers.iter().filter_map(Transfer::next);
        let sends = self.sources().map(|(at, _)| at.max(self.line_free)).min();
        let next = timers.chain(starts).chain(arrival).chain(sends).min()?;
        Some(next.max(self.now))
    }

    /// Takes a frame, the last bit of which arrives at `at`. Frames come in order.
    pub fn receive(&mut self, at: Picoseconds, frame: Frame) {
        self.arrivals.push_back((at, frame));
    }

    /// Runs to just before `to`; adds what it sends, with the times at which the first bits leave.
    pub fn advance(&mut self, to: Picoseconds, sent: &mut Vec<Frame>) {
        while let Some(now) = self.next().filter(|now| *now < to) {
            self.now = now;
            while let Some((_, frame)) = self.arrivals.pop_front_if(|(at, _)| *at <= now) {
                self.take(now, &frame);
            }
            for qp in &mut self.qps {
                if qp.requester.timer().is_some_and(|at| at <= now) {
                    qp.requester.expire(&mut Context {
                        now,
                        latency: &self.config.latency,
                        counters: &mut self.counters,
                    });
                }
            }
            self.work(now);
            if self.line_free <= now
                && let Some(source) = self.choose(now)
            {
                let frame = self.send(now, source);
                sent.push(frame);
            }
        }
    }

    // ---- in ----

    fn take(&mut self, now: Picoseconds, frame: &Frame) {
        if frame.bad {
            self.counters.rx_crc_errors_phy += 1;
            return;
        }
        self.counters.rx_packets_phy += 1;
        self.counters.rx_bytes_phy += frame.data.len() as u64;
        let packet = Packet::parse(&frame.data);
        let (Some(net), Some(roce)) = (packet.net, packet.roce()) else {
            return;
        };
        let is_mine =
            packet.ethernet.dst == self.config.mac && self.config.addresses.contains(&net.dst);
        if !is_mine || packet.malformed.is_some() {
            return;
        }
        if packet.expected_icrc(&frame.data) != roce.icrc {
            self.counters.rx_icrc_encapsulated += 1;
            return;
        }
        let Some(&index) = self.numbers.get(&roce.bth.dest_qp) else {
            return;
        };
        if self.qps[index].config.path.dst.ip() != net.src {
            return;
        }
        if self.discards(now, index, roce) {
            self.counters.rx_discards_phy += 1;
            return;
        }
        let payload = packet
            .payload_len
            .checked_sub(roce.bth.pad().into())
            .and_then(|length| packet.payload.get(..length));
        let Some(payload) = payload else { return };
        if roce.bth.opcode == opcode::CNP {
            return self.slow_down(now, index);
        }
        if net.is_marked() {
            self.notify(now, index);
        }
        self.dispatch(now, index, roce, payload);
    }

    /// Whether a fault costs a packet to a queue pair.
    fn discards(&mut self, now: Picoseconds, index: usize, roce: &Roce) -> bool {
        let recovers = |qp: &Qp| qp.requester.is_recovering();
        let noisy = self.config.has(Fault::NoisyNeighbour)
            && !recovers(&self.qps[index])
            && self.qps.iter().filter(|qp| recovers(qp)).count() >= NOISY;
        if !self.config.has(Fault::MigReqSlowStart) || roce.bth.mig_req() {
            return noisy;
        }
        let (since, came) = self.qps[index].unmigrated.get_or_insert((now, 0));
        *came += 1;
        let too_many = *came > SLOW_START_PACKETS && now < *since + SLOW_START;
        let begins = |qp: &&Qp| (qp.unmigrated).is_some_and(|(since, _)| now < since + SLOW_START);
        noisy || too_many && self.qps.iter().filter(begins).count() >= SLOW_STARTS
    }

    fn dispatch(&mut self, now: Picoseconds, index: usize, roce: &Roce, payload: &[u8]) {
        let mut context = Context {
            now,
            latency: &self.config.latency,
            counters: &mut self.counters,
        };
        let qp = &mut self.qps[index];
        match roce.bth.opcode {
            opcode::READ_RESPONSE_FIRST..=opcode::ATOMIC_ACK => {
                let before = context.counters.implied_nak_seq_err;
                qp.requester.response(&mut context, roce, payload);
                if self.config.has(Fault::ImpliedNakSeqErrStuck) {
                    context.counters.implied_nak_seq_err = before;
                }
            }
            ..=opcode::READ_REQUEST | opcode::COMPARE_SWAP | opcode::FETCH_ADD => {
                qp.responder.request(&mut context, roce, payload);
            }
            _ => {}
        }
    }

    fn slow_down(&mut self, now: Picoseconds, index: usize) {
        let parameters = &self.config.reaction_point;
        if parameters.enabled {
            self.counters.rp_cnp_handled += 1;
            self.qps[index].rate.notified(now, parameters);
        } else {
            self.counters.rp_cnp_ignored += 1;
        }
    }

    /// A packet came with a congestion mark.
    fn notify(&mut self, now: Picoseconds, index: usize) {
        self.counters.np_ecn_marked_roce_packets += 1;
        let point = &self.config.notification_point;
        if !point.enabled {
            return;
        }
        let config = &self.qps[index].config;
        let key = match point.scope {
            CnpScope::Port => None,
            CnpScope::Ip => Some((config.path.dst.ip(), 0)),
            CnpScope::Qp => Some((config.path.dst.ip(), config.number)),
        };
        let last = self.notified.get(&key);
        if last.is_none_or(|last| now >= last + point.min_time_between_cnps) {
            self.notified.insert(key, now);
            self.cnps.push_back((now + self.config.latency.cnp, index));
        }
    }

    // ---- the application ----

    /// Hands completions to the transfers and posts what they ask for.
    fn work(&mut self, now: Picoseconds) {
        for transfer in &mut self.transfers {
            if !transfer.is_running(now) {
                continue;
            }
            transfer.complete(now, |qp| self.qps[qp].requester.completions());
            transfer.post(now, |qp, post| {
                let requester = &mut self.qps[qp].requester;
                requester.post(post.id, post.operation, post.length, post.offset);
            });
        }
    }

    // ---- out ----

    /// What is to be sent, and when.
    fn sources(&self) -> impl Iterator<Item = (Picoseconds, Source)> {
        let cnp = self.cnps.front().map(|(at, _)| (*at, Source::Cnp));
        let of_qps = self.qps.iter().enumerate().flat_map(|(qp, state)| {
            let class = state.config.class;
            let answer = state.responder.ready();
            let request = state.requester.ready();
            let responses = answer.filter(|(_, data)| *data).map(|(at, _)| at);
            let data = request.into_iter().chain(responses).min();
            [
                answer
                    .filter(|(_, data)| !data)
                    .map(|(at, _)| (at, Source::Answer(qp))),
                data.map(|at| {
                    let free = self.classes[class].free.max(state.paced);
                    (at.max(free), Source::Data { class, qp })
                }),
            ]
            .into_iter()
            .flatten()
        });
        cnp.into_iter().chain(of_qps)
    }

    /// Who sends now: notifications and acknowledgements before data, the oldest first; of the
    /// classes of data the one that is behind its share; in a class one queue pair after the
    /// other.
    fn choose(&self, now: Picoseconds) -> Option<Source> {
        let count = self.qps.len();
        // Kind; age, or the share of the class; the class; and whose turn it is.
        let rank = |(at, source): &(Picoseconds, Source)| match *source {
            Source::Cnp => (0, *at, 0, 0),
            Source::Answer(qp) => (1, *at, 0, qp),
            Source::Data { class, qp } => {
                let Class { served, turn, .. } = self.classes[class];
                let place = (qp + count - turn) % count;
                (2, served.max(self.served), class, place)
            }
        };
        let due = self.sources().filter(|(at, _)| *at <= now);
        due.min_by_key(rank).map(|(_, source)| source)
    }

    fn send(&mut self, now: Picoseconds, source: Source) -> Frame {
        let data = match source {
            Source::Cnp => self.congestion_notification(),
            Source::Answer(qp) => {
                let outgoing = self.qps[qp].responder.take();
                self.frame(qp, outgoing)
            }
            Source::Data { class, qp } => {
                let state = &mut self.qps[qp];
                let response = state.responder.ready();
                let outgoing = match response.filter(|(at, data)| *data && *at <= now) {
                    Some(_) => state.responder.take(),
                    None => state.requester.take(now),
                };
                let data = self.frame(qp, outgoing);
                self.charge(now, class, qp, on_the_line(&data));
                data
            }
        };
        self.line_free = now + on_the_line(&data) * self.config.byte_time;
        self.counters.tx_packets_phy += 1;
        self.counters.tx_bytes_phy += data.len() as u64;
        Frame {
            at: now,
            data,
            bad: false,
        }
    }

    /// Counts bytes of data against the share of its class and the rate of its queue pair.
    fn charge(&mut self, now: Picoseconds, class: usize, qp: usize, bytes: u64) {
        let weights: u64 = self.classes.iter().map(|class| class.weight).sum();
        let of_class = &mut self.classes[class];
        // A class that was idle has saved nothing up.
        self.served = of_class.served.max(self.served);
        // Scaled so that the division loses nothing that counts.
        of_class.served = self.served + (bytes << 16) / of_class.weight;
        of_class.turn = (qp + 1) % self.qps.len();
        if self.config.has(Fault::EtsNotWorkConserving) {
            let time = bytes * self.config.byte_time * weights / of_class.weight;
            of_class.free = of_class.free.max(now) + time;
        }
        let state = &mut self.qps[qp];
        state.paced = state.rate.send(now, bytes, &self.config.reaction_point);
    }

    fn bth(&self, opcode: u8, dest_qp: u32) -> Bth {
        let clear = self.config.has(Fault::MigReqClear);
        Bth {
            opcode,
            byte1: if clear { 0 } else { Bth::MIG_REQ },
            pkey: 0xffff,
            dest_qp,
            ..Bth::default()
        }
    }

    fn congestion_notification(&mut self) -> Vec<u8> {
        let Some((_, qp)) = self.cnps.pop_front() else {
            return Vec::new();
        };
        self.counters.np_cnp_sent += u64::from(!self.config.has(Fault::CnpSentStuck));
        let config = &self.qps[qp].config;
        let path = Path {
            traffic_class: self.config.notification_point.dscp << 2 | config.path.traffic_class & 3,
            ..config.path.clone()
        };
        let bth = Bth {
            byte4: Bth::BECN,
            ..self.bth(opcode::CNP, config.peer)
        };
        build::roce(&path, &bth, &[], &[0; 16])
    }

    fn frame(&self, qp: usize, outgoing: Option<Outgoing>) -> Vec<u8> {
        let Some(outgoing) = outgoing else {
            return Vec::new();
        };
        let config = &self.qps[qp].config;
        let bth = Bth {
            ack_req: outgoing.ack_req,
            psn: Psn::new(outgoing.psn).get(),
            ..self.bth(outgoing.opcode, config.peer)
        };
        build::roce(&config.path, &bth, &outgoing.extension, &outgoing.payload)
    }
}

/// Bytes that a frame takes on the line.
fn on_the_line(frame: &[u8]) -> u64 {
    line_bytes(frame.len().max(MIN_FRAME))
}
