// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What RDMA NICs did about loss and congestion, read from their packets, and whether the
//! InfiniBand specification has it so.
//!
//! The analyzers are fed with packets in the order of their numbers, from wherever they come:
//! [`source`] reads them from pcap and pcapng files and from captures of the card. A packet
//! between two queue pairs belongs to the PSNs of whoever made the request: requests and what
//! answers them make an *exchange*, read by [`exchange`] as the two state machines of the
//! specification, requester and responder. Which flow answers which is learnt from the PSNs that
//! are answered. [`notification`] reads congestion notifications.
//!
//! All that is said is what was visible where the capture was taken. What a NIC sent is known
//! there, and what the other end got, but for losses behind it.

pub mod cm;
mod connection;
mod counters;
mod departures;
mod exchange;
mod finding;
mod impact;
mod latency;
pub mod notification;
mod packet;
mod performance;
mod recovery;
mod scheduler;
mod settings;
pub mod source;
mod table;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;

use midwire_trace::packet::{Net, Packet, Roce, Transport, ack_timeout_ns, opcode};
use midwire_trace::{Kind, Nanos};
use serde::{Deserialize, Serialize};

pub use cm::Introduction;
pub use connection::{Connection, Counts, End, Verb};
pub use counters::CounterCheck;
use counters::Tallies;
use exchange::Exchange;
pub use finding::{Finding, Rule};
use notification::Notifications;
pub use notification::{NotificationPoint, Scope};
pub use packet::{Place, RocePacket, packets, touched};
pub use performance::{Performance, Spread};
pub use recovery::{Found, Lost, Recovery};
use scheduler::Scheduler;
pub use settings::{Limit, NicSettings, QpSettings, Settings, Timer};
pub use table::tables;

/// At which side of the capture point a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It came by: the sender sent it, and it goes on to the receiver.
    Passing,
    /// The sender sent it, and it did not go on like this: dropped, held back or changed.
    Sent,
    /// It goes on to the receiver, and the sender has not sent it like this or now.
    Delivered,
}

impl Seen {
    /// The sender sent it.
    pub fn sent(self) -> bool {
        self != Self::Delivered
    }

    /// It goes on to the receiver.
    pub fn delivered(self) -> bool {
        self != Self::Sent
    }
}

/// A RoCEv2 packet as the analyzers need it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Number in the capture, from 1, for citing it.
    pub number: u64,
    /// When it was seen.
    pub time: Nanos,
    /// When it goes on to the receiver, if it does.
    pub arrives: Nanos,
    /// Where it was seen.
    pub seen: Seen,
    /// Its ICRC is right, as far as it could be checked; a receiver takes no other packet.
    pub intact: bool,
    /// Link-layer address of the sender, which stands for its port.
    pub src_mac: [u8; 6],
    /// IP header.
    pub net: Net,
    /// UDP source port.
    pub src_port: u16,
    /// Transport headers.
    pub roce: Roce,
    /// Bytes of payload, without pad.
    pub payload: u32,
    /// Bytes of the frame, without FCS.
    pub length: usize,
    /// What its sender tells of itself, before it sends requests.
    pub introduction: Option<Introduction>,
}

impl Observed {
    /// Reads the first bytes of a frame that was `length` bytes long. `None` when it is not
    /// RoCEv2, or its headers are not whole.
    pub fn read(number: u64, time: Nanos, seen: Seen, data: &[u8], length: usize) -> Option<Self> {
        let packet = Packet::parse_snapshot(data, length);
        let Transport::Roce(udp, roce) = packet.transport else {
            return None;
        };
        if packet.malformed.is_some() || packet.payload_offset > data.len() {
            return None;
        }
        let right = packet.expected_icrc(data);
        Some(Self {
            introduction: Introduction::read(&packet, &roce),
            number,
            time,
            arrives: time,
            seen,
            intact: right.is_none() || right == roce.icrc,
            src_mac: packet.ethernet.src,
            net: packet.net?,
            src_port: udp.src_port,
            payload: packet.payload_len.saturating_sub(roce.bth.pad().into()) as u32,
            length,
            roce,
        })
    }

    /// It goes on to a receiver that takes it.
    fn is_taken(&self) -> bool {
        self.seen.delivered() && self.intact
    }

    /// For citing it.
    fn cite(&self) -> Cite {
        Cite {
            packet: self.number,
            time_ns: self.time.0,
        }
    }
}

/// A packet of the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cite {
    /// Its number.
    pub packet: u64,
    /// When it was seen, ns.
    pub time_ns: u64,
}

/// All that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// RoCEv2 packets read.
    pub packets: u64,
    /// Of these, the ones with a wrong ICRC.
    pub broken: u64,
    /// Of these, the ones of other transports than reliable connections.
    pub other_transports: u64,
    /// Answers for which no request was seen.
    pub unpaired: u64,
    /// What the NICs were asked to do.
    pub settings: Settings,
    /// Every flow of requests.
    pub connections: Vec<Connection>,
    /// Every time that a requester went back, or should have.
    pub recoveries: Vec<Recovery>,
    /// How fast that was, by verb.
    pub performance: Vec<Performance>,
    /// Congestion notifications, by the NIC that sends them.
    pub notifications: Vec<NotificationPoint>,
    /// Counters of the NICs, when they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<CounterCheck>,
    /// What the specification does not allow, or what was asked for.
    pub findings: Vec<Finding>,
}

/// Reads all packets.
pub fn analyze(packets: impl IntoIterator<Item = Observed>, settings: Settings) -> Analysis {
    let mut analyzer = Analyzer::new(settings);
    for packet in packets {
        analyzer.packet(&packet);
    }
    analyzer.finish()
}

/// One direction to one queue pair. They count from 0 in order of appearance, as the card's
/// connections do.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FlowKey {
    src: IpAddr,
    dst: IpAddr,
    dest_qp: u32,
}

struct Flow {
    key: FlowKey,
    src_port: u16,
    /// The flow that goes the other way between the same two queue pairs.
    peer: Option<usize>,
    /// The requests in this flow, and what answers them in its peer.
    exchange: Exchange,
    /// What source and destination did and met, whatever the packets are.
    tallies: [Tallies; 2],
}

/// A packet in its flow.
#[derive(Clone, Copy)]
struct Part {
    flow: usize,
    role: Role,
}

#[derive(Clone, Copy)]
enum Role {
    Request,
    /// To a flow of requests, if that is known.
    Response {
        requests: Option<usize>,
    },
    Notification,
}

/// A packet that was sent and has not gone on yet.
struct Underway {
    part: Part,
    p: Box<Observed>,
}

impl Underway {
    /// What goes on first is least.
    fn order(&self) -> (Nanos, u64) {
        (self.p.arrives, self.p.number)
    }
}

impl Ord for Underway {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Underway {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Underway {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Underway {}

/// Reads packets one by one.
pub struct Analyzer {
    settings: Settings,
    flows: Vec<Flow>,
    by_key: HashMap<FlowKey, usize>,
    /// Flows without a peer, by source and destination.
    single: HashMap<(IpAddr, IpAddr), Vec<usize>>,
    requests: cm::Requests,
    notifications: Notifications,
    scheduler: Scheduler,
    underway: BinaryHeap<Reverse<Underway>>,
    packets: u64,
    broken: u64,
    other_transports: u64,
    unpaired: u64,
    latest: u64,
}

impl Analyzer {
    /// Has read nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            flows: Vec::new(),
            by_key: HashMap::new(),
            single: HashMap::new(),
            requests: cm::Requests::default(),
            notifications: Notifications::default(),
            scheduler: Scheduler::default(),
            underway: BinaryHeap::new(),
            packets: 0,
            broken: 0,
            other_transports: 0,
            unpaired: 0,
            latest: 0,
        }
    }

    /// Reads the next packet.
    pub fn packet(&mut self, p: &Observed) {
        self.packets += 1;
        self.broken += u64::from(!p.intact);
        self.latest = self.latest.max(p.time.0);
        self.go_on(p.time);
        if let Some(told) = p.introduction.filter(|_| p.is_taken()) {
            self.told(p, told);
        }
        let Some(part) = self.part(p) else {
            return;
        };
        if p.seen.sent() {
            self.sent(part, p);
        }
        if p.seen.delivered() && p.arrives > p.time {
            let p = Box::new(p.clone());
            self.underway.push(Reverse(Underway { part, p }));
        } else if p.seen.delivered() {
            self.delivered(part, p);
        }
    }

    /// Learns of a connection, unless all is known of it.
    fn told(&mut self, p: &Observed, told: Introduction) {
        let ends = [p.net.src, p.net.dst];
        if let Some(mut learnt) = self.requests.told(ends, told) {
            let [(address, qp), _] = learnt.ends;
            let asked = self.settings.timer;
            learnt.timer = Timer {
                timeout: asked.timeout.or(learnt.timer.timeout),
                retry_count: asked.retry_count.or(learnt.timer.retry_count),
            };
            if self.settings.queue_pair(address, qp).is_none() {
                self.settings.queue_pairs.push(learnt);
            }
        }
    }

    /// What a packet is in which flow.
    fn part(&mut self, p: &Observed) -> Option<Part> {
        let code = p.roce.bth.opcode;
        // Whatever the transport, for the card numbers them all.
        let flow = self.flow(p);
        if !connection::is_reliable(code) {
            self.other_transports += 1;
            return None;
        }
        let role = if code == opcode::CNP {
            Role::Notification
        } else if connection::is_response(code) {
            let requests = self.answered(flow, p);
            self.unpaired += u64::from(requests.is_none());
            Role::Response { requests }
        } else {
            Role::Request
        };
        Some(Part { flow, role })
    }

    /// Its sender sends a packet.
    fn sent(&mut self, Part { flow, role }: Part, p: &Observed) {
        self.notifications.sent(flow, p);
        self.scheduler.sent(flow, p, || {
            let FlowKey { dst, dest_qp, .. } = self.flows[flow].key;
            let asked = self.settings.queue_pair(dst, dest_qp);
            let class = asked.and_then(|asked| asked.class);
            class.unwrap_or(p.net.traffic_class >> 2)
        });
        let [source, _] = &mut self.flows[flow].tallies;
        source.sent.add(p.number);
        if let Role::Notification = role {
            source.notified.add(p.number);
        }
        match role {
            Role::Request => self.flows[flow].exchange.sends(p),
            Role::Response { requests: Some(n) } => self.flows[n].exchange.answers(p),
            Role::Response { requests: None } | Role::Notification => {}
        }
    }

    /// A packet goes on to its receiver.
    fn delivered(&mut self, Part { flow, role }: Part, p: &Observed) {
        let [_, destination] = &mut self.flows[flow].tallies;
        if !p.intact {
            destination.broken.add(p.number);
            return;
        }
        destination.received.add(p.number);
        if let Role::Notification = role {
            destination.slowed.add(p.number);
        } else if p.net.is_marked() {
            destination.marked.add(p.number);
        }
        self.notifications.taken(flow, p);
        if let Some(sender) = self.flows[flow].peer {
            let slowed = matches!(role, Role::Notification);
            let anew = p.roce.bth.opcode == opcode::READ_REQUEST;
            if slowed || anew || p.roce.kind() == Kind::Nak {
                self.scheduler.interrupted(sender, slowed);
            }
        }
        match role {
            Role::Request => self.flows[flow].exchange.takes(p),
            Role::Response { requests: Some(n) } => self.flows[n].exchange.hears(p),
            Role::Response { requests: None } | Role::Notification => {}
        }
    }

    /// What was on its way goes on, up to a time.
    fn go_on(&mut self, to: Nanos) {
        while let Some(Reverse(next)) = self.underway.peek()
            && next.p.arrives <= to
            && let Some(Reverse(Underway { part, p })) = self.underway.pop()
        {
            self.delivered(part, &p);
        }
    }

    fn flow(&mut self, p: &Observed) -> usize {
        let key = FlowKey {
            src: p.net.src,
            dst: p.net.dst,
            dest_qp: p.roce.bth.dest_qp,
        };
        *self.by_key.entry(key).or_insert_with(|| {
            let number = self.flows.len();
            let timer = self.settings.timer_of(key.dst, key.dest_qp);
            let mtu = self.settings.mtu_of(key.dst, key.dest_qp);
            self.flows.push(Flow {
                key,
                src_port: p.src_port,
                peer: None,
                exchange: Exchange::new(number as u32, timer, mtu),
                tallies: Default::default(),
            });
            let ends = (key.src, key.dst);
            self.single.entry(ends).or_default().push(number);
            number
        })
    }

    /// The flow whose requests this answers. When it is not known which queue pairs belong
    /// together: the only one that awaits such a PSN, or the one with the same UDP source port,
    /// which NICs work out from both queue pairs, or the first.
    fn answered(&mut self, flow: usize, p: &Observed) -> Option<usize> {
        if let Some(peer) = self.flows[flow].peer {
            return Some(peer);
        }
        let key = self.flows[flow].key;
        let awaiting = |&&n: &&usize| n != flow && self.flows[n].exchange.awaits(p.roce.bth.psn);
        let candidates = || {
            let single = self.single.get(&(key.dst, key.src));
            single.into_iter().flatten().filter(awaiting).copied()
        };
        let peer = match self.settings.other_end(key.dst, key.dest_qp) {
            Some((address, dest_qp)) => *self.by_key.get(&FlowKey {
                src: key.dst,
                dst: address,
                dest_qp,
            })?,
            None => candidates()
                .find(|&n| self.flows[n].src_port == p.src_port)
                .or_else(|| candidates().next())?,
        };
        for (one, other) in [(flow, peer), (peer, flow)] {
            self.flows[one].peer = Some(other);
            let FlowKey { src, dst, .. } = self.flows[one].key;
            if let Some(single) = self.single.get_mut(&(src, dst)) {
                single.retain(|&n| n != one);
            }
        }
        Some(peer)
    }

    /// Draws the conclusions.
    pub fn finish(mut self) -> Analysis {
        self.go_on(Nanos(u64::MAX));
        let mut connections = Vec::new();
        let mut recoveries = Vec::new();
        let mut findings = Vec::new();
        let keys: Vec<FlowKey> = self.flows.iter().map(|flow| flow.key).collect();
        let peers: Vec<Option<usize>> = self.flows.iter().map(|flow| flow.peer).collect();
        let mut tallies = Vec::new();
        for flow in self.flows {
            let addresses = [flow.key.src, flow.key.dst];
            tallies.extend(addresses.into_iter().zip(flow.tallies));
            let ends = [
                End {
                    address: flow.key.src,
                    qp: flow.peer.map(|peer| keys[peer].dest_qp),
                },
                End {
                    address: flow.key.dst,
                    qp: Some(flow.key.dest_qp),
                },
            ];
            let Some(mut done) = flow.exchange.finish(ends, self.latest) else {
                continue;
            };
            connections.push(done.connection);
            tallies.extend(addresses.into_iter().zip(done.tallies));
            recoveries.append(&mut done.recoveries);
            findings.append(&mut done.findings);
        }
        let (notifications, mut of_notifications) =
            self.notifications.finish(&peers, &self.settings);
        findings.append(&mut of_notifications);
        let (counters, mut of_counters) = counters::check(&self.settings.nics, &tallies);
        findings.append(&mut of_counters);
        findings.append(&mut self.scheduler.findings());
        findings.append(&mut impact::findings(&connections, &recoveries));
        let timeout = |number| {
            let own = connections.binary_search_by_key(&number, |c| c.number);
            let End { address, qp } = connections.get(own.ok()?)?.responder;
            ack_timeout_ns(self.settings.timer_of(address, qp?).timeout?)
        };
        findings.append(&mut latency::findings(&recoveries, timeout));
        recoveries.sort_by_key(Recovery::first_packet);
        // The first and the last can be the same.
        for finding in &mut findings {
            finding.packets.dedup();
        }
        findings.sort_by_key(|finding| finding.packets.last().copied());
        Analysis {
            packets: self.packets,
            broken: self.broken,
            other_transports: self.other_transports,
            unpaired: self.unpaired,
            settings: self.settings,
            performance: performance::of(&recoveries),
            connections,
            recoveries,
            notifications,
            counters,
            findings,
        }
    }
}
