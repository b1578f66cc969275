// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two ends that keep to the specification, a capture between them, and chance: the analyzers
//! find nothing, whatever is lost.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use midwire_analysis::roce::{self, Found, Limit, Seen, Settings, Timer, Verb};
use midwire_trace::packet::opcode;
use proptest::prelude::*;

use crate::conversation::{Conversation, Frame, dump, observed};

const TIMEOUT: u64 = 1 << 20;
/// From the capture to either end.
const WAYS: [u64; 2] = [700, 1_900];

#[derive(Clone, Copy, Debug)]
struct Message {
    verb: Verb,
    first: i64,
    count: i64,
}

#[derive(Clone, Copy)]
enum Packet {
    Request(Message, i64),
    Ack(i64),
    Nak(i64),
    /// Of a read that is answered from the first number on, up to the second.
    Response(i64, i64, i64),
}

#[derive(Clone, Copy)]
enum Event {
    /// The end can send.
    Send(usize),
    /// A packet of an end is at the capture.
    Here(usize, Packet),
    /// It is at the other end.
    There(usize, Packet),
    /// The timer that was started so many times runs out.
    Timer(u32),
}

/// What is lost. Several losses that the capture does not show can't be told from faults.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// One packet in so many, where the capture is taken.
    Here(u64),
    /// One packet before the capture, after so many.
    Before(u32),
    /// One packet behind it.
    Behind(u32),
}

struct World {
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    scheduled: Vec<Event>,
    seed: u64,
    loss: Loss,
    out: Conversation,
    messages: Vec<Message>,
    depth: usize,
    // The requester.
    cursor: i64,
    unacked: i64,
    retrying: bool,
    timer: u32,
    went_back: u32,
    // The responder.
    expected: i64,
    nak_sent: bool,
    queue: VecDeque<Packet>,
}

impl World {
    fn lost_here(&mut self) -> bool {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        matches!(self.loss, Loss::Here(one_in) if one_in > 0 && (self.seed >> 33).is_multiple_of(one_in))
    }

    fn schedule(&mut self, after: u64, event: Event) {
        let number = self.scheduled.len() as u64;
        self.scheduled.push(event);
        self.events.push(Reverse((self.now + after, number)));
    }

    fn message(&self, psn: i64) -> Option<Message> {
        let of = |m: &&Message| (m.first..m.first + m.count).contains(&psn);
        self.messages.iter().find(of).copied()
    }

    fn run(mut self) -> Self {
        self.schedule(0, Event::Send(0));
        self.schedule(0, Event::Send(1));
        let end = self.messages.last().map_or(0, |m| m.first + m.count);
        while let Some(Reverse((time, number))) = self.events.pop() {
            self.now = time;
            assert!(time < 60_000_000_000, "it never ends");
            match self.scheduled[number as usize] {
                Event::Send(0) => {
                    self.request();
                    if self.unacked < end {
                        self.schedule(200, Event::Send(0));
                    }
                }
                Event::Send(_) => {
                    if let Some(packet) = self.queue.pop_front() {
                        self.leave(1, packet);
                    }
                    if self.unacked < end {
                        self.schedule(150, Event::Send(1));
                    }
                }
                Event::Here(from, packet) => self.here(from, packet),
                Event::There(0, packet) => self.respond(packet),
                Event::There(_, packet) => self.hear(packet),
                Event::Timer(n) => {
                    if n == self.timer && self.unacked < end {
                        (self.cursor, self.retrying) = (self.unacked, false);
                        self.start_timer();
                    }
                }
            }
        }
        assert_eq!(self.unacked, end);
        self
    }

    fn start_timer(&mut self) {
        self.timer += 1;
        self.schedule(TIMEOUT, Event::Timer(self.timer));
    }

    fn request(&mut self) {
        let Some(m) = self.message(self.cursor) else {
            return;
        };
        let open = self.messages.iter();
        let open = open.filter(|o| o.first + o.count > self.unacked && o.first < m.first);
        if open.count() >= self.depth {
            return;
        }
        self.leave(0, Packet::Request(m, self.cursor));
        self.cursor = match m.verb {
            Verb::Read => m.first + m.count,
            _ => self.cursor + 1,
        };
        self.start_timer();
    }

    fn leave(&mut self, from: usize, packet: Packet) {
        // A NAK that is lost before the capture can't be told from one that was not sent.
        if let (Loss::Before(rest), false) = (&mut self.loss, matches!(packet, Packet::Nak(_))) {
            *rest = rest.wrapping_sub(1);
            if *rest == 0 {
                return;
            }
        }
        self.schedule(WAYS[from], Event::Here(from, packet));
    }

    fn here(&mut self, from: usize, packet: Packet) {
        let mut lost = self.lost_here();
        self.out.at(self.now);
        if lost {
            self.out.dropped();
        }
        match packet {
            Packet::Request(m, psn) => match m.verb {
                Verb::Read => self.out.read(m.first, m.count, psn),
                Verb::Write => self.out.write(m.first, m.count, psn),
                _ => self.out.send(psn),
            },
            Packet::Ack(psn) => self.out.ack(psn),
            Packet::Nak(psn) => self.out.nak(psn),
            Packet::Response(from, to, psn) => self.out.response(from, to - from, psn),
        };
        if let Loss::Behind(rest) = &mut self.loss {
            *rest = rest.wrapping_sub(1);
            lost = *rest == 0;
        }
        if !lost {
            self.schedule(WAYS[1 - from], Event::There(from, packet));
        }
    }

    fn respond(&mut self, packet: Packet) {
        let Packet::Request(m, psn) = packet else {
            return;
        };
        let end = m.first + m.count;
        if psn > self.expected {
            if !std::mem::replace(&mut self.nak_sent, true) {
                self.queue.push_back(Packet::Nak(self.expected));
            }
            return;
        }
        let new = psn == self.expected;
        if new {
            self.nak_sent = false;
            self.expected = if m.verb == Verb::Read { end } else { psn + 1 };
        }
        match m.verb {
            Verb::Read => {
                let responses = (psn..end).map(|n| Packet::Response(psn, end, n));
                self.queue.extend(responses);
            }
            _ if psn + 1 == end => self.queue.push_back(Packet::Ack(psn)),
            _ => {}
        }
    }

    fn hear(&mut self, packet: Packet) {
        match packet {
            Packet::Request(..) => {}
            Packet::Ack(psn) => self.progress(psn + 1),
            Packet::Nak(psn) => {
                self.progress(psn);
                if psn == self.unacked {
                    self.cursor = psn;
                    self.went_back += 1;
                    self.start_timer();
                }
            }
            Packet::Response(_, _, psn) => {
                let read = self.message(self.unacked).filter(|m| m.verb == Verb::Read);
                let earlier = (self.unacked..psn)
                    .any(|n| self.message(n).is_some_and(|m| m.verb == Verb::Read));
                if earlier && psn > self.unacked {
                    self.progress(psn);
                } else if psn >= self.unacked || read.is_none() {
                    self.unacked = self.unacked.max(psn + 1);
                    self.cursor = self.cursor.max(self.unacked);
                    self.retrying = false;
                    self.start_timer();
                }
            }
        }
    }

    /// Everything before is acknowledged, up to a read that has not been answered in full.
    fn progress(&mut self, to: i64) {
        let read =
            (self.unacked..to).find(|&n| self.message(n).is_some_and(|m| m.verb == Verb::Read));
        let to = read.unwrap_or(to);
        if to > self.unacked {
            self.unacked = to;
            self.cursor = self.cursor.max(to);
            self.retrying = false;
            self.start_timer();
        }
        if let Some(psn) = read
            && !std::mem::replace(&mut self.retrying, true)
        {
            self.cursor = psn;
            self.went_back += 1;
            self.start_timer();
        }
    }
}

fn world(seed: u64, psn: u32, loss: Loss, depth: usize, messages: &[(u8, i64)]) -> World {
    let mut first = 0;
    let messages = messages.iter().map(|&(verb, count)| {
        let verb = [Verb::Send, Verb::Write, Verb::Read][usize::from(verb)];
        let count = if verb == Verb::Send { 1 } else { count };
        first += count;
        Message {
            verb,
            first: first - count,
            count,
        }
    });
    World {
        now: 0,
        events: BinaryHeap::new(),
        scheduled: Vec::new(),
        seed,
        loss,
        out: Conversation::new(psn),
        messages: messages.collect(),
        depth,
        cursor: 0,
        unacked: 0,
        retrying: false,
        timer: 0,
        went_back: 0,
        expected: 0,
        nak_sent: false,
        queue: VecDeque::new(),
    }
    .run()
}

fn losses() -> impl Strategy<Value = Loss> {
    prop_oneof![
        (0..60u64).prop_map(|one_in| Loss::Here(if one_in < 3 { 0 } else { one_in })),
        (1..60u32).prop_map(Loss::Before),
        (1..60u32).prop_map(Loss::Behind),
    ]
}

fn messages() -> impl Strategy<Value = Vec<(u8, i64)>> {
    prop::collection::vec((0..3u8, 1..9i64), 1..30)
}

/// What chance found once.
#[test]
fn nothing_is_found_in_hard_cases() {
    type Case = (u64, Loss, usize, &'static [(u8, i64)]);
    let cases: [Case; 2] = [
        // A response that comes too early acknowledges what is before its read.
        (
            16_206_507_670_280_450_660,
            Loss::Here(5),
            2,
            &[(1, 6), (1, 6), (0, 1), (2, 4)],
        ),
        // The first of two responses is lost before the capture, which doesn't tell the MTU yet.
        (
            0,
            Loss::Before(13),
            4,
            &[
                (0, 1),
                (0, 1),
                (0, 1),
                (0, 1),
                (2, 2),
                (0, 1),
                (0, 1),
                (0, 1),
            ],
        ),
    ];
    for (seed, loss, depth, messages) in cases {
        let world = world(seed, 0, loss, depth, messages);
        let analysis = world.out.analysis_with(Settings::default());
        let found = &analysis.findings;
        assert!(found.is_empty(), "{found:#?}\n{}", dump(&world.out.frames));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_is_found_where_all_keep_to_the_rules(
        seed: u64,
        psn in prop_oneof![0..=0xff_ffffu32, 0xff_ffe0..=0xff_ffffu32],
        loss in losses(),
        depth in 1..5usize,
        messages in messages(),
    ) {
        let world = world(seed, psn, loss, depth, &messages);
        let timer = Timer { timeout: Some(8), ..Timer::default() };
        let settings = Settings { timer, ..Settings::default() };
        let analysis = world.out.analysis_with(settings);
        prop_assert!(analysis.findings.is_empty(), "{:#?}\n{}", analysis.findings, dump(&world.out.frames));
        prop_assert_eq!(analysis.unpaired, 0);
        prop_assert!(analysis.recoveries.iter().all(|r| r.found != Found::NotYet));
        if matches!(loss, Loss::Here(_)) {
            let told = [Found::SequenceNak, Found::ImpliedNak];
            let back = analysis.recoveries.iter().filter(|r| told.contains(&r.found)).count();
            prop_assert!(back as u32 >= world.went_back);
        }
    }

    /// Connections at the same time, with queue pairs and PSNs of their own.
    #[test]
    fn connections_are_told_apart(
        seed: u64,
        count in 2..6u32,
        psn in 0..=0xff_ffffu32,
        // With the same PSNs, their UDP ports tell them apart.
        same_psn: bool,
        messages in messages(),
    ) {
        let loss = Loss::Here(40);
        let mut frames: Vec<Frame> = Vec::new();
        let mut alone = Vec::new();
        for n in 0..count {
            let (psn, port) = match same_psn {
                true => (psn, 50_000 + n as u16),
                false => (psn.wrapping_add(n << 20) & 0xff_ffff, 50_000),
            };
            let mut world = world(seed ^ u64::from(n), psn, loss, 2, &messages);
            world.out.relabel([0x1000 + n, 0x2000 + n], port);
            let mut analysis = world.out.analysis();
            alone.push((analysis.connections.remove(0).counts, analysis.recoveries.len()));
            frames.append(&mut world.out.frames);
        }
        frames.sort_by_key(|frame| frame.time);
        let analysis = roce::analyze(observed(&frames), Settings::default());
        prop_assert!(analysis.findings.is_empty(), "{:#?}\n{}", analysis.findings, dump(&frames));
        let together: Vec<_> = (0..count)
            .map(|n| {
                let c = analysis.connections.iter().find(|c| c.responder.qp == Some(0x2000 + n));
                let c = c.expect("connection");
                let recoveries = analysis.recoveries.iter();
                let recoveries = recoveries.filter(|r| r.connection == c.number).count();
                prop_assert_eq!(c.requester.qp, Some(0x1000 + n));
                Ok((c.counts, recoveries))
            })
            .collect::<Result<_, _>>()?;
        prop_assert_eq!(together, alone);
    }

    /// Whatever the packets are, and in whatever order.
    #[test]
    fn any_packets_are_read_without_panic(
        packets in prop::collection::vec((0..2usize, 0..0x20u8, any::<u32>(), 0..8i64, any::<u8>(), 0..3u8), 0..200),
        psn: u32,
    ) {
        let mut c = Conversation::new(psn);
        for (from, code, word, near, syndrome, seen) in packets {
            c.after(u64::from(word & 0xffff));
            let psn = if word & 7 == 0 { i64::from(word) } else { near };
            let ext = [&[syndrome, 0, 0, 1][..], &[0; 6], &word.to_be_bytes(), &[0; 24]].concat();
            let code = if code == 0x1f { opcode::CNP } else { code };
            c.packet(from, code, psn, &ext, (word >> 20) as usize);
            if let Some(frame) = c.frames.last_mut() {
                frame.seen = [Seen::Passing, Seen::Sent, Seen::Delivered][usize::from(seen)];
            }
        }
        let settings = Settings {
            timer: Timer {
                timeout: Some(3),
                retry_count: Some(1),
            },
            notification: Limit {
                notifies: None,
                notification_interval_ns: Some(4_000),
                notification_scope: Some(roce::Scope::Ip),
            },
            ..Settings::default()
        };
        let analysis = c.analysis_with(settings);
        roce::tables(&analysis);
        serde_json::to_string(&analysis).expect("JSON");
    }
}
