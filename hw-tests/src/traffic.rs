// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random traffic and random events for it, the same for the same seed.

use crate::rig::Sent;
use midwire_driver::{
    Action, Answer, Base, Clause, Corrupt, Duplicate, Ecn, Ip6Place, IpVersion, Kind, Lane, Mended,
    Nanos, Pause, Position, PositionEvents, Program, Reorder, ReorderScope, RoceAnswer,
    RoceMessage, Selector, SequenceNumber, Set, TcpAnswer, Template, Toward, Transport,
};
use midwire_driver::{Chance, Measure, Proto, Rule, RuleChance, Scope};
use midwire_trace::Packet;
use midwire_trace::build::{Path, TcpSegment, aeth, reth, roce, tcp, udp};
use midwire_trace::packet::tcp_flags::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};
use midwire_trace::packet::{Aeth, Bth, Reth, ethertype, opcode, transport_checksum};
use midwire_virtual_card::Width;

/// Numbers without a pattern (splitmix64).
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n
    }

    /// One time in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of a list.
    pub fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// A lane and the way on it.
#[derive(Clone)]
struct Way {
    lane: Lane,
    path: Path,
}

impl Way {
    fn random(random: &mut Random, n: u16) -> Self {
        let lane = random.one_of(&Lane::ALL);
        let mut path = match random.one_in(2) {
            true => Path::ipv4(10_000 + n, 5001),
            false => Path::ipv6(10_000 + n, 5001),
        };
        if random.one_in(2) {
            path = path.reversed();
        }
        for _ in 0..random.below(3) {
            path.vlan.push(random.below(4096) as u16);
        }
        if path.src.is_ipv4() && random.one_in(3) {
            path.ip_options = vec![1; 4 * (1 + random.below(10) as usize)];
        }
        Self { lane, path }
    }

    fn back(&self) -> Self {
        let lane = if self.lane == Lane::AtoB {
            Lane::BtoA
        } else {
            Lane::AtoB
        };
        Self {
            lane,
            path: self.path.reversed(),
        }
    }
}

struct TcpFlow {
    /// Of the one that opens it, and of the other.
    ways: [Way; 2],
    /// Sequence number of the SYN.
    isn: [u32; 2],
    /// Bytes sent by each.
    sent: [u32; 2],
    opened: u32,
}

impl TcpFlow {
    fn new(random: &mut Random, n: u16) -> Self {
        let way = Way::random(random, n);
        let ways = [way.back(), way];
        // Half of them wrap soon.
        let isn = [0, 1].map(|_| match random.one_in(2) {
            true => (random.below(20_000) as u32).wrapping_neg(),
            false => random.number() as u32,
        });
        Self {
            ways,
            isn,
            sent: [0; 2],
            opened: 0,
        }
    }

    fn next(&mut self, random: &mut Random) -> (Way, Vec<u8>) {
        let side = match self.opened {
            0 => 0,
            1 => 1,
            _ => random.below(2) as usize,
        };
        let way = self.ways[side].clone();
        let base = self.isn[side].wrapping_add(1);
        let sent = self.sent[side];
        let mut segment = TcpSegment {
            seq: base.wrapping_add(sent),
            ack: self.isn[1 - side]
                .wrapping_add(1)
                .wrapping_add(self.sent[1 - side]),
            flags: ACK | random.one_of(&[0, 0, PSH, URG, ECE, CWR]),
            window: random.number() as u16,
            options: vec![1; random.below(11) as usize * 4],
        };
        let mut path = way.path.clone();
        path.traffic_class = random.number() as u8;
        self.opened += 1;
        if self.opened <= 2 || random.one_in(60) {
            // The first two open it; later ones are retransmissions.
            segment.seq = self.isn[side];
            segment.flags = if side == 0 {
                SYN | random.one_of(&[0, ECE | CWR])
            } else {
                SYN | ACK
            };
            if side == 0 {
                segment.ack = 0;
            }
            return (way, tcp(&path, &segment, b""));
        }
        let len = match random.below(4) {
            0 => 1 + random.below(20),
            1 => 1 + random.below(300),
            _ => 1 + random.below(1400),
        } as u32;
        let (from, len) = match random.below(12) {
            0..=4 => (sent, len),
            // Behind a gap.
            5 => (sent + random.below(3000) as u32, len),
            // Something of what was sent, cut anew.
            6..=8 if sent > 0 => {
                let from = random.below(u64::from(sent)) as u32;
                (from, len)
            }
            // The end of what was sent, and something new.
            9 if sent > 0 => (
                sent - 1 - random.below(u64::from(sent.min(200))) as u32,
                200 + len,
            ),
            10 if random.one_in(6) => {
                segment.flags |= random.one_of(&[FIN, RST, FIN | PSH]);
                (sent, 0)
            }
            _ => (sent, 0),
        };
        if len > 0 && random.one_in(30) {
            segment.flags |= FIN;
        }
        segment.seq = base.wrapping_add(from);
        self.sent[side] = sent.max(from + len);
        let fill = random.number() as u8;
        (way, tcp(&path, &segment, &vec![fill; len as usize]))
    }
}

struct RoceFlow {
    way: Way,
    queue_pair: u32,
    first_psn: u32,
    /// PSNs sent.
    sent: u32,
}

impl RoceFlow {
    fn new(random: &mut Random, n: u16) -> Self {
        let first_psn = match random.one_in(2) {
            true => 0xff_ffff - random.below(30) as u32,
            false => random.below(1 << 24) as u32,
        };
        let queue_pair = random.below(1 << 16) as u32 * 64 + u32::from(n);
        Self {
            way: Way::random(random, n),
            queue_pair,
            first_psn,
            sent: 0,
        }
    }

    fn next(&mut self, random: &mut Random) -> (Way, Vec<u8>) {
        let psn = match random.below(8) {
            0 | 1 if self.sent > 0 => random.below(u64::from(self.sent)) as u32,
            2 => self.sent + random.below(4) as u32,
            _ => self.sent,
        };
        let mut bth = Bth {
            opcode: 0,
            byte1: random.one_of(&[0, 0x40, 0x80]),
            pkey: 0xffff,
            byte4: random.one_of(&[0, 0, 0x80, 0x40]),
            dest_qp: self.queue_pair,
            ack_req: random.one_in(2),
            psn: self.first_psn.wrapping_add(psn) & 0xff_ffff,
        };
        let len = random.below(1100) as usize;
        let mut taken = true;
        let (code, extension, payload) = match random.below(12) {
            0..=2 => (
                random.one_of(&[opcode::SEND_FIRST, opcode::SEND_MIDDLE, opcode::SEND_ONLY]),
                vec![],
                len,
            ),
            3 | 4 => {
                let reth = reth(Reth {
                    va: random.number(),
                    rkey: 1,
                    dma_len: 4096,
                });
                (
                    random.one_of(&[opcode::WRITE_FIRST, opcode::WRITE_ONLY]),
                    reth,
                    len,
                )
            }
            5 => {
                let reth = reth(Reth {
                    va: random.number(),
                    rkey: 1,
                    dma_len: 4096,
                });
                (opcode::READ_REQUEST, reth, 0)
            }
            6 => {
                let aeth = aeth(Aeth {
                    syndrome: 0x1f,
                    msn: psn,
                });
                (
                    random.one_of(&[opcode::READ_RESPONSE_FIRST, opcode::READ_RESPONSE_ONLY]),
                    aeth,
                    len,
                )
            }
            7 | 8 => {
                taken = false;
                let syndrome = random.one_of(&[0, 0x1f]);
                (
                    opcode::ACK,
                    aeth(Aeth {
                        syndrome,
                        msn: random.below(1 << 24) as u32,
                    }),
                    0,
                )
            }
            9 => {
                taken = false;
                let syndrome = random.one_of(&[0x60, 0x20, 0x61]);
                (opcode::ACK, aeth(Aeth { syndrome, msn: 7 }), 0)
            }
            10 => {
                taken = false;
                (opcode::CNP, vec![0; 16], 0)
            }
            _ => (opcode::WRITE_MIDDLE, vec![], len),
        };
        bth.opcode = code;
        if taken {
            self.sent = self.sent.max(psn + 1);
        }
        let mut path = self.way.path.clone();
        path.traffic_class = random.number() as u8;
        let payload = vec![random.number() as u8; payload];
        let mut frame = roce(&path, &bth, &extension, &payload);
        if random.one_in(2) {
            add_udp_checksum(&mut frame);
        }
        (self.way.clone(), frame)
    }
}

/// RoCE may go without a UDP checksum, and mostly does.
fn add_udp_checksum(frame: &mut [u8]) {
    let packet = Packet::parse(frame);
    let at = packet.l4_offset;
    let end = packet.payload_offset + packet.payload_len + 4;
    if let Some(net) = packet.net {
        let sum = match transport_checksum(&net, &frame[at..end]) {
            0 => 0xffff,
            sum => sum,
        };
        frame[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Makes traffic.
pub struct Traffic {
    random: Random,
    tcp: Vec<TcpFlow>,
    roce: Vec<RoceFlow>,
}

/// Connections that random traffic opens.
const FLOWS: u16 = 12;

impl Traffic {
    /// Of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let tcp = (0..FLOWS).map(|n| TcpFlow::new(&mut random, n)).collect();
        let roce = (0..FLOWS).map(|n| RoceFlow::new(&mut random, n)).collect();
        Self { random, tcp, roce }
    }

    /// `n` frames on both lanes, at a load that leaves gaps.
    pub fn frames(&mut self, width: Width, n: usize) -> Vec<Sent> {
        let mut at = 0;
        let mut frames = Vec::with_capacity(n);
        for serial in 0..n {
            let (lane, mut data) = self.frame();
            // No two frames are alike.
            if let Some(source) = data.get_mut(8..12) {
                source.copy_from_slice(&(serial as u32).to_be_bytes());
            }
            let bad = self.random.one_in(50);
            let line = (data.len() as u64 + 24) * width.byte_ps() / 1000;
            // Mostly as fast as a lane can, at times with a pause.
            at += match self.random.below(8) {
                0 => 3 * line + self.random.below(2000),
                _ => line + 32 * width.clock_ps() / 1000,
            };
            frames.push(Sent {
                lane,
                at,
                data,
                bad,
            });
        }
        frames
    }

    fn frame(&mut self) -> (Lane, Vec<u8>) {
        let random = &mut self.random;
        let flow = random.below(u64::from(FLOWS)) as usize;
        let kind = random.below(24);
        let (way, mut frame) = match kind {
            0..=12 => self.tcp[flow].next(random),
            13..=20 => self.roce[flow].next(random),
            21 => (Way::random(random, 77), Vec::new()),
            _ => {
                // Lies and cuts, of a packet that no flow has sent.
                let way = Way::random(random, 99);
                let frame = match random.below(3) {
                    0 => {
                        let bth = Bth {
                            opcode: random.below(0x15) as u8,
                            byte1: 0,
                            pkey: 0,
                            byte4: 0,
                            dest_qp: 0x99_9999,
                            ack_req: false,
                            psn: 0,
                        };
                        roce(&way.path, &bth, &[], &[1; 20])
                    }
                    1 => udp(&way.path, &vec![2; random.below(200) as usize]),
                    _ => tcp(
                        &way.path,
                        &TcpSegment {
                            flags: ACK,
                            ..TcpSegment::default()
                        },
                        &[3; 40],
                    ),
                };
                return (way.lane, broken(random, &frame));
            }
        };
        if kind == 21 {
            frame = other(random, &way);
        }
        (way.lane, frame)
    }
}

/// A frame of no transport that is followed.
fn other(random: &mut Random, way: &Way) -> Vec<u8> {
    let raw = |kind: u16, len: usize, fill: u8| {
        let mut frame = vec![fill; len.max(14)];
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        frame
    };
    match random.below(6) {
        0 => raw(0x0806, 42, 1), // ARP
        1 => raw(0x88b5, 14 + random.below(1500) as usize, 7),
        2 => raw(0x05dc, 60, 9), // a length instead of a type
        3 => udp(&way.path, &vec![5; random.below(1400) as usize]),
        // Runts.
        4 => vec![0xaa; 14 + random.below(46) as usize],
        _ => vec![0x55; 9000 + random.below(3000) as usize],
    }
}

/// Breaks a packet somewhere in its headers.
fn mangle(random: &mut Random, mut frame: Vec<u8>) -> Vec<u8> {
    if random.one_in(4) {
        frame.truncate(12 + random.below(60) as usize);
        return frame;
    }
    let headers = frame.len().min(70) as u64 - 14;
    for _ in 0..=random.below(2) {
        let at = 14 + random.below(headers) as usize;
        frame[at] = random.number() as u8;
    }
    frame
}

/// A broken packet that the documents leave no doubt about: no IPv6 extension header,
/// no SYN that is a RST, no opcode that nobody has defined.
fn broken(random: &mut Random, frame: &[u8]) -> Vec<u8> {
    loop {
        let frame = mangle(random, frame.to_vec());
        let packet = Packet::parse_snapshot(&frame, 1 << 17);
        let ip = packet.l3_offset;
        let extended = packet.ethernet.ethertype == ethertype::IPV6
            && frame
                .get(ip + 6)
                .is_some_and(|next| ![6, 17, 58].contains(next));
        let opcode = packet.roce().map_or(0, |roce| roce.bth.opcode);
        let both = packet.tcp().is_some_and(|tcp| tcp.has(SYN | RST));
        if !extended && !both && (opcode < 0x15 || opcode == opcode::CNP) {
            return frame;
        }
    }
}

/// Random events for random traffic.
pub fn program(seed: u64, events: usize) -> Program {
    let mut random = Random::new(seed ^ 0xe4e5);
    let mut all = Selector::any(Transport::Tcp);
    all.ip = Some(IpVersion::V4);
    let mut v6 = all.clone();
    v6.ip = Some(IpVersion::V6);
    let selectors = vec![all, v6, Selector::any(Transport::Roce)];
    // As many different ones as a card holds.
    let actions: Vec<_> = (0..250).map(|_| action(&mut random)).collect();
    let templates = (0..TEMPLATES).map(|_| template(&mut random)).collect();
    let mut positions: Vec<PositionEvents> = Vec::new();
    while positions.len() < events {
        let at = match random.below(12) {
            0..=3 => Position::Nth {
                kind: Kind::Data,
                n: 1 + random.below(30) as u32,
            },
            4 | 5 => Position::Psn(random.below(60) as u32),
            6 | 7 => Position::Byte(random.below(20_000)),
            8 => Position::Nth {
                kind: Kind::Any,
                n: 1 + random.below(100) as u32,
            },
            9 => Position::Nth {
                kind: Kind::Ack,
                n: 1 + random.below(15) as u32,
            },
            10 => Position::Nth {
                kind: random.one_of(&[Kind::Syn, Kind::Fin, Kind::Rst]),
                n: 1 + random.below(3) as u32,
            },
            _ => Position::Nth {
                kind: random.one_of(&[Kind::Nak, Kind::Cnp]),
                n: 1 + random.below(8) as u32,
            },
        };
        let event = PositionEvents {
            lane: random.one_of(&Lane::ALL),
            connection: random.below(2 * u64::from(FLOWS)) as u16,
            at,
            clauses: clauses(&mut random, &actions),
        };
        // PSN n and the n-th segment of data are one to the card, which does not know the
        // transport of a connection beforehand.
        let key = |at| match at {
            Position::Psn(n) => Position::Nth {
                kind: Kind::Data,
                n,
            },
            at => at,
        };
        let same = |p: &PositionEvents| {
            (p.lane, p.connection, key(p.at)) == (event.lane, event.connection, key(event.at))
        };
        if !positions.iter().any(same) {
            positions.push(event);
        }
    }
    Program {
        selectors,
        positions,
        rules: (0..random.below(24))
            .map(|_| rule(&mut random, &actions))
            .collect(),
        templates,
        reorder_timeout: Some(Nanos::from_micros(200)),
        ..Program::default()
    }
}

/// Frames that are made in random programs.
const TEMPLATES: u64 = 24;

fn template(random: &mut Random) -> Template {
    let [msn, queue_pair] = [(); 2].map(|()| match random.one_in(2) {
        true => None,
        false => Some(random.below(1 << 24) as u32),
    });
    let answer = match random.below(8) {
        0..=2 => Answer::Tcp(TcpAnswer {
            flags: random.one_of(&[RST | ACK, ACK, FIN | PSH | ACK, SYN]),
            window: random.number() as u16,
            number: random.one_of(&[SequenceNumber::First, SequenceNumber::Next]),
        }),
        3..=5 => Answer::Roce(RoceAnswer {
            message: match random.below(3) {
                0 => RoceMessage::Cnp,
                _ => RoceMessage::Ack {
                    syndrome: random.number() as u8,
                    msn,
                },
            },
            queue_pair,
            traffic_class: random.number() as u8,
        }),
        6 => Answer::Pause(Pause {
            priorities: random.one_of(&[None, Some(1 << 3), Some(0x81)]),
            quanta: random.number() as u16,
        }),
        _ => {
            let length = random.one_of(&[14, 59, 60, 64, 65, 300]);
            Answer::Bytes((0..length).map(|_| random.number() as u8).collect())
        }
    };
    Template {
        toward: random.one_of(&[Toward::Sender, Toward::Receiver]),
        answer,
    }
}

/// A rule that hits some packets of random traffic.
fn rule(random: &mut Random, actions: &[Action]) -> Rule {
    let kinds = [
        &[Kind::Data][..],
        &[Kind::Data, Kind::ReadRequest],
        &[Kind::Any],
        &[Kind::Ack, Kind::Nak, Kind::Cnp],
        &[Kind::Fin, Kind::Syn, Kind::Rst],
    ];
    let mut rule = Rule::all(random.one_of(&Lane::ALL), Kind::Any);
    rule.kinds = random.one_of(&kinds).to_vec();
    rule.scope = match random.below(4) {
        0 => Scope::Connection(random.below(2 * u64::from(FLOWS)) as u16),
        1 | 2 => Scope::Tracked,
        _ => random.one_of(&[Scope::Plain, Scope::All]),
    };
    rule.protos = match random.below(3) {
        0 => vec![random.one_of(&Proto::ALL)],
        _ => vec![],
    };
    (rule.fresh, rule.again) = random.one_of(&[(true, true), (true, false), (false, true)]);
    rule.measure = match rule.scope {
        Scope::Plain | Scope::All => Measure::Count,
        _ if rule.kinds.contains(&Kind::Data) && random.one_in(4) => Measure::Byte,
        _ => random.one_of(&[Measure::Position, Measure::Count]),
    };
    let scale = if rule.measure == Measure::Byte {
        800
    } else {
        1
    };
    rule.first = random.below(20) * scale;
    rule.last = match random.below(3) {
        0 => Some(rule.first + random.below(60) * scale),
        _ => None,
    };
    if rule.measure != Measure::Byte && random.one_in(2) {
        rule.every = 1 + random.below(12) as u32;
    }
    let seed = random.number();
    let of = random.below(3);
    let mut chance = |most| Chance::of(random.below(most) as f64 / 100.0).unwrap_or(Chance::NEVER);
    rule.chance = match of {
        0 => RuleChance::Random {
            seed,
            chance: chance(50),
        },
        1 => RuleChance::Burst {
            seed,
            good: chance(10),
            bad: chance(100),
            to_bad: chance(30),
            to_good: chance(60),
        },
        _ => RuleChance::Always,
    };
    rule.times = Some(1 + random.below(40) as u32);
    rule.action = random.one_of(actions);
    if rule.action.delay.is_some() || rule.action.reorder.is_some() || rule.action.inject.is_some()
    {
        // There is room for so many frames at a time.
        rule.times = Some(1 + random.below(3) as u32);
    }
    rule
}

fn clauses(random: &mut Random, actions: &[Action]) -> Vec<Clause> {
    let ranges: &[(u8, Option<u8>)] = match random.below(6) {
        0 => &[],
        1 => &[(1, Some(1)), (2, Some(3)), (5, None)],
        2 => &[(2, Some(2))],
        3 => &[(1, Some(2))],
        _ => &[(1, None)],
    };
    let clause = |&(first, last)| Clause {
        first,
        last,
        armed_by: None,
        action: random.one_of(actions),
    };
    ranges.iter().map(clause).collect()
}

fn action(random: &mut Random) -> Action {
    let mut action = Action::default();
    // One thing by itself, or several at once.
    let parts = random.one_of(&[1, 1, 2, 3, 6]);
    for _ in 0..parts {
        match random.below(19) {
            0 | 1 if parts == 1 => action.drop = true,
            2 | 3 => {
                action.ecn = Some(random.one_of(&[Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce]))
            }
            4 | 5 => {
                let (base, offset) = place(random);
                action.corrupt = Some(Corrupt {
                    base,
                    offset,
                    mask: 1 << random.below(8),
                });
            }
            6 | 7 => action.delay = Some(Nanos(random.one_of(&[1, 100, 1000, 20_000, 300_000]))),
            8 | 9 => action.set = Some(set(random)),
            // Within headers, or of the payload, or behind the end.
            10 | 11 => {
                action.truncate = Some(random.one_of(&[14, 20, 33, 60, 61, 80, 130, 700, 9000]))
            }
            12 => match random.below(4) {
                0 => action.broken.fcs = true,
                1 => action.broken.ip = true,
                2 => action.broken.transport = true,
                _ => action.broken.icrc = true,
            },
            13 => {
                action.reorder = Some(Reorder {
                    packets: random.one_of(&[1, 2, 3, 10]),
                    of: random.one_of(&[ReorderScope::Connection, ReorderScope::Lane]),
                });
            }
            14..=16 => {
                action.inject = Some(random.below(TEMPLATES) as u8);
                // An answer instead of the packet.
                action.drop = random.one_in(3);
            }
            _ => {
                action.duplicate = Some(Duplicate {
                    copies: random.one_of(&[1, 1, 2, 5]),
                    gap: Nanos(random.one_of(&[0, 10, 1000, 10_000])),
                });
            }
        }
    }
    action.mended = match random.below(3) {
        0 => Mended::default(),
        n => Mended {
            ip: n == 1 || random.one_in(2),
            transport: n == 1 || random.one_in(2),
            icrc: n == 1 || random.one_in(2),
        },
    };
    action
}

/// Within headers, within the payload, at times behind the frame; but for the addresses, by
/// which frames are told from each other.
fn place(random: &mut Random) -> (Base, u16) {
    let offset = random.one_of(&[0, 1, 4, 10, 11, 13, 17, 63, 64, 200, 1500]);
    match random.one_of(&[Base::Frame, Base::Ip, Base::Transport, Base::Payload]) {
        Base::Frame => (Base::Frame, 12 + offset),
        base => (base, offset),
    }
}

fn set(random: &mut Random) -> Set {
    let (base, offset) = place(random);
    let bytes = 1 + random.below(8) as usize;
    let mut mask = [0; 8];
    mask[..bytes].fill_with(|| random.one_of(&[0xff, 0xff, 0x0f, 0x80]));
    let ip6 = match base {
        Base::Ip => random.one_of(&[Ip6Place::Same, Ip6Place::NibbleBefore, Ip6Place::ByteBefore]),
        _ => Ip6Place::Same,
    };
    if ip6 == Ip6Place::NibbleBefore {
        mask[7] &= 0xf0;
    }
    let value = mask.map(|mask| mask & random.number() as u8);
    Set {
        ip6,
        base,
        offset,
        mask,
        value,
    }
}
