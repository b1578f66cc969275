// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each packet is called: `(connection, lane, kind, position, iteration)`, worked out in
//! software as the card works it out in hardware, and independently of it.
//!
//! - A TCP connection is a pair of endpoints, opened by a SYN without ACK; a RoCE connection is
//!   one direction to one queue pair, opened by its first packet. They count from 0 in order of
//!   appearance.
//! - The position of RoCE data and read requests is the PSN relative to the first. TCP data is
//!   named by the number of the segment of new data, from 1; this stays with the segment's first
//!   byte, so that a later segment that covers the byte is an iteration of the same position. All
//!   else is the n-th packet of its kind, from 1.
//! - The iteration of a position is how often it has been seen. Here it is exact for every
//!   position; the card knows it for those that events name.
//!
//! Sequence numbers are compared by serial arithmetic, so positions go on through every wrap.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use crate::packet::{Packet, Transport, roce_kind, tcp_flags, tcp_kind};
use crate::record::Record;
use crate::units::{Kind, Lane, Proto, Tap};

/// A position of a packet, and the how-manieth time it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Kind whose position it is.
    pub kind: Kind,
    /// PSN relative to the first, number of a segment of new data, or n-th packet. Below zero
    /// only for a PSN before the first.
    pub position: i64,
    /// From 1.
    pub iteration: u32,
}

/// What a packet is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// Number of the connection.
    pub connection: u32,
    /// Direction.
    pub lane: Lane,
    /// First of the kinds that it is of.
    pub kind: Kind,
    /// Every position that it has: as any packet, of its kind, as FIN when it carries data too. A
    /// TCP retransmission has one for each segment whose first byte it covers, maybe none.
    pub places: &'a [Place],
    /// TCP data or RoCE data: brings something above the highest seen.
    pub new: bool,
    /// TCP data or RoCE data: begins below the highest seen.
    pub below: bool,
    /// The how-manieth of its connection and lane that begins below the highest seen; 0 when it
    /// does not.
    pub again: u32,
    /// TCP: relative byte of the first byte of payload. Below zero only for bytes before the first.
    pub byte: Option<i64>,
    /// TCP: bytes of payload.
    pub len: u32,
}

impl Identity<'_> {
    /// Whether this is TCP data that covers a relative byte.
    pub fn covers(&self, byte: i64) -> bool {
        self.kind == Kind::Data
            && self
                .byte
                .is_some_and(|from| (from..from + i64::from(self.len)).contains(&byte))
    }

    /// Its first place of a kind.
    pub fn place(&self, kind: Kind) -> Option<Place> {
        self.places.iter().find(|place| place.kind == kind).copied()
    }
}

/// Names packets, fed in the order in which they come in.
#[derive(Default)]
pub struct Identifier {
    /// By number; a connection that records speak of can have any.
    connections: Vec<Option<Box<Connection>>>,
    learnt: u32,
    flows: HashMap<FlowKey, Flow>,
    admits: Option<Box<Admits>>,
    places: Vec<Place>,
}

/// Decides which packets may open a connection.
type Admits = dyn FnMut(Lane, &Packet<'_>) -> bool + Send;

type Connection = [Side; 2];

/// TCP: the lower endpoint first. RoCE: source and destination, of which the port is the QP.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FlowKey {
    proto: Proto,
    ends: [(IpAddr, u32); 2],
}

#[derive(Clone, Copy)]
struct Flow {
    connection: u32,
    /// Sequence number of the SYN that opened it; 0 for RoCE.
    isn: u32,
}

/// One lane of one connection.
#[derive(Default)]
struct Side {
    /// Sequence number of relative byte or PSN 0.
    base: Option<u32>,
    /// Relative byte or PSN behind the highest seen.
    next: i64,
    /// Packets by kind.
    count: [i64; Kind::COUNT],
    /// Packets that began below `next`.
    again: u32,
    /// TCP segments of new data by their first bytes, and how often these were seen.
    segments: Vec<Segment>,
    /// RoCE: how often PSNs were seen, in pages.
    psns: HashMap<(Kind, i64), Box<[u16; PAGE as usize]>>,
}

struct Segment {
    byte: i64,
    number: u32,
    seen: u32,
}

const PAGE: i64 = 256;

/// What the rules need to know of a packet.
#[derive(Clone, Copy)]
struct Facts {
    proto: Proto,
    kind: Kind,
    /// TCP sequence number of the first byte of payload; PSN.
    seq: u32,
    len: u32,
    fin: bool,
}

impl Facts {
    fn tcp(flags: u8, seq: u32, len: u32) -> Self {
        // A SYN takes a number of its own before the payload (RFC 9293, 3.4).
        let syn = u32::from(flags & tcp_flags::SYN != 0);
        Self {
            proto: Proto::Tcp,
            kind: tcp_kind(flags, len as usize),
            seq: seq.wrapping_add(syn),
            len,
            fin: flags & tcp_flags::FIN != 0,
        }
    }

    fn roce(opcode: u8, syndrome: u8, psn: u32) -> Self {
        Self {
            proto: Proto::Roce,
            kind: roce_kind(opcode, syndrome),
            seq: psn,
            len: 0,
            fin: false,
        }
    }
}

impl Identifier {
    /// Admits every connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits a connection when `admits` says so of the packet that would open it.
    pub fn admitting(admits: impl FnMut(Lane, &Packet<'_>) -> bool + Send + 'static) -> Self {
        Self {
            admits: Some(Box::new(admits)),
            ..Self::default()
        }
    }

    /// Connections learnt from packets.
    pub fn learnt(&self) -> u32 {
        self.learnt
    }

    /// Sets where a lane of a connection begins: the sequence number of its first byte (ISN + 1),
    /// or its first PSN.
    pub fn declare(&mut self, connection: u16, lane: Lane, base: u32) {
        self.side(connection.into(), lane).base = Some(base);
    }

    /// Names the packet of an ingress record, in the connection that the card found. `None` for
    /// other records and for packets of no connection.
    pub fn record(&mut self, record: &Record) -> Option<Identity<'_>> {
        if record.tap != Tap::Ingress {
            return None;
        }
        let connection = record.connection?;
        let facts = match record.proto {
            Proto::Tcp => Facts::tcp(record.tcp_flags, record.f0, record.payload_len.into()),
            Proto::Roce => Facts::roce(record.opcode(), (record.f1 >> 24) as u8, record.psn()),
            Proto::Udp | Proto::Other => return None,
        };
        Some(self.identify(connection.into(), record.lane, facts))
    }

    /// Names a packet by itself, learning connections on the way. `None` for packets of none.
    pub fn packet(&mut self, lane: Lane, packet: &Packet<'_>) -> Option<Identity<'_>> {
        if packet.malformed.is_some() {
            return None;
        }
        let net = packet.net?;
        match &packet.transport {
            Transport::Tcp(tcp) => {
                let mut ends = [
                    (net.src, u32::from(tcp.src_port)),
                    (net.dst, u32::from(tcp.dst_port)),
                ];
                ends.sort();
                let key = FlowKey {
                    proto: Proto::Tcp,
                    ends,
                };
                let opens = tcp.has(tcp_flags::SYN) && !tcp.has(tcp_flags::ACK);
                let connection = match self.flows.get(&key) {
                    Some(flow) if !opens || flow.isn == tcp.seq => flow.connection,
                    _ if !opens => return None,
                    _ => self.learn(lane, packet, key, tcp.seq)?,
                };
                let facts = Facts::tcp(tcp.flags, tcp.seq, packet.payload_len as u32);
                Some(self.identify(connection, lane, facts))
            }
            Transport::Roce(_, roce) => {
                let ends = [(net.src, 0), (net.dst, roce.bth.dest_qp)];
                let key = FlowKey {
                    proto: Proto::Roce,
                    ends,
                };
                let connection = match self.flows.get(&key) {
                    Some(flow) => flow.connection,
                    None => self.learn(lane, packet, key, 0)?,
                };
                let syndrome = roce.aeth.map_or(0, |aeth| aeth.syndrome);
                let facts = Facts::roce(roce.bth.opcode, syndrome, roce.bth.psn);
                Some(self.identify(connection, lane, facts))
            }
            Transport::Udp(_) | Transport::None => None,
        }
    }

    /// Opens the next connection, if it is admitted; otherwise what the key meant is forgotten.
    fn learn(&mut self, lane: Lane, packet: &Packet<'_>, key: FlowKey, isn: u32) -> Option<u32> {
        if self
            .admits
            .as_mut()
            .is_some_and(|admits| !admits(lane, packet))
        {
            self.flows.remove(&key);
            return None;
        }
        let connection = self.learnt;
        self.learnt += 1;
        self.flows.insert(key, Flow { connection, isn });
        Some(connection)
    }

    fn side(&mut self, connection: u32, lane: Lane) -> &mut Side {
        let index = connection as usize;
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        &mut self.connections[index].get_or_insert_default()[lane.index()]
    }

    fn identify(&mut self, connection: u32, lane: Lane, facts: Facts) -> Identity<'_> {
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        let extent = self.side(connection, lane).place(facts, &mut places);
        self.places = places;
        let tcp = facts.proto == Proto::Tcp && facts.len != 0;
        Identity {
            connection,
            lane,
            kind: facts.kind,
            places: &self.places,
            new: extent.new,
            below: extent.below,
            again: extent.again,
            byte: extent.from.filter(|_| tcp),
            len: facts.len,
        }
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identifier")
            .field("learnt", &self.learnt)
            .finish_non_exhaustive()
    }
}

/// Where a packet lies in what its lane has sent.
#[derive(Clone, Copy, Default)]
struct Extent {
    from: Option<i64>,
    new: bool,
    below: bool,
    again: u32,
}

impl Side {
    /// Adds the places of a packet.
    fn place(&mut self, facts: Facts, places: &mut Vec<Place>) -> Extent {
        let nth = self.nth(Kind::Any);
        places.push(nth);
        let tcp_data = facts.proto == Proto::Tcp && facts.len != 0;
        let extent = match facts.kind {
            Kind::Other | Kind::Any => Extent::default(),
            Kind::Data if tcp_data => self.segment(facts, places),
            Kind::Data | Kind::ReadRequest => self.psn(facts, places),
            kind => {
                let nth = self.nth(kind);
                places.push(nth);
                if kind == Kind::Syn {
                    self.base.get_or_insert(facts.seq);
                    // Data in a SYN has been seen, though it is no segment of data by itself.
                    self.extend_tcp(facts)
                } else {
                    Extent::default()
                }
            }
        };
        if facts.kind == Kind::Data && facts.fin {
            let nth = self.nth(Kind::Fin);
            places.push(nth);
        }
        extent
    }

    fn nth(&mut self, kind: Kind) -> Place {
        let count = &mut self.count[usize::from(kind.number())];
        *count += 1;
        Place {
            kind,
            position: *count,
            iteration: 1,
        }
    }

    /// The relative number of a sequence number of `bits` bits: the one nearest to `next`.
    fn relative(&mut self, seq: u32, bits: u32) -> i64 {
        let base = *self.base.get_or_insert(seq);
        let expected = base.wrapping_add(self.next as u32);
        let unused = 32 - bits;
        let ahead = (seq.wrapping_sub(expected) << unused) as i32 >> unused;
        self.next + i64::from(ahead)
    }

    fn extend(&mut self, from: i64, len: i64) -> Extent {
        let (new, below) = (from + len > self.next, from < self.next);
        self.next = self.next.max(from + len);
        self.again += u32::from(below);
        Extent {
            from: Some(from),
            new,
            below,
            again: if below { self.again } else { 0 },
        }
    }

    fn extend_tcp(&mut self, facts: Facts) -> Extent {
        let from = self.relative(facts.seq, 32);
        if facts.len == 0 {
            Extent::default()
        } else {
            self.extend(from, facts.len.into())
        }
    }

    fn segment(&mut self, facts: Facts, places: &mut Vec<Place>) -> Extent {
        let extent = self.extend_tcp(facts);
        let from = extent.from.unwrap_or_default();
        let to = from + i64::from(facts.len);
        let first = match self.segments.last() {
            Some(last) if last.byte >= from => self.segments.partition_point(|s| s.byte < from),
            _ => self.segments.len(),
        };
        let mut end = first;
        for segment in self.segments[first..]
            .iter_mut()
            .take_while(|s| s.byte < to)
        {
            segment.seen = segment.seen.saturating_add(1);
            places.push(Place {
                kind: Kind::Data,
                position: segment.number.into(),
                iteration: segment.seen,
            });
            end += usize::from(segment.byte == from);
        }
        if extent.new {
            let nth = self.nth(Kind::Data);
            let number = nth.position as u32;
            self.segments.insert(
                end,
                Segment {
                    byte: from,
                    number,
                    seen: 1,
                },
            );
            places.push(nth);
        }
        extent
    }

    fn psn(&mut self, facts: Facts, places: &mut Vec<Place>) -> Extent {
        let psn = self.relative(facts.seq, 24);
        let key = (facts.kind, psn.div_euclid(PAGE));
        let page = self
            .psns
            .entry(key)
            .or_insert_with(|| Box::new([0; PAGE as usize]));
        let seen = &mut page[psn.rem_euclid(PAGE) as usize];
        *seen = seen.saturating_add(1);
        let iteration = (*seen).into();
        places.push(Place {
            kind: facts.kind,
            position: psn,
            iteration,
        });
        self.extend(psn, 1)
    }
}
