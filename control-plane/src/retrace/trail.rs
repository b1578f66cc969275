// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of one TCP connection, as one point between its ends saw them: from a run, or from
//! a pcap or pcapng file of any origin.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use midwire_trace::packet::{Packet, TcpOption, tcp_flags};
use midwire_trace::packet_file::{ETHERNET, FilePacket, PacketFile};
use midwire_trace::{Capture, Kind, Lane, Nanos, Proto, Record, Tap};

use crate::run_file::{ConnectionRecord, RunFile, files};

/// A connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Trail {
    /// Its ends, as text.
    pub name: String,
    /// The direction of its first SYN.
    pub opener: Lane,
    /// Addresses and ports of the ends at A and at B.
    pub ends: [SocketAddr; 2],
    /// In the order in which they came.
    pub packets: Vec<Seen>,
}

/// A packet.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its number in what it was read from, from 1.
    pub number: u64,
    /// Its direction.
    pub lane: Lane,
    /// The card made it.
    pub made: bool,
    /// What happened to it before it came to where it was recorded.
    pub before: Before,
    /// When it came.
    pub time: Nanos,
    /// When it went on; nothing when it is known that it did not.
    pub left: Option<Nanos>,
    /// When copies of it followed.
    pub copies: Vec<Nanos>,
    /// Bytes of the frame, as it came, as far as they are known.
    pub frame: Vec<u8>,
    /// The same as it went on, where something happened to it.
    pub out: Option<Vec<u8>>,
    /// Bytes that the frame had.
    pub length: u32,
    /// What it says.
    pub segment: Segment,
}

/// What happened to a packet before it came to the place of recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// Later ones came before it: it has the time that it would have come at, and left when it came.
    Overtaken,
    /// It was lost, or if it has left, it was not recorded: what it said and when is inferred.
    Missing,
}

/// What a packet says, in numbers that count from the beginning of the connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Segment {
    /// CWR ECE URG ACK PSH RST SYN FIN, high to low.
    pub flags: u8,
    /// Of its first byte; the SYN is 0.
    pub seq: u32,
    /// Of the next byte that the other end is to send.
    pub ack: u32,
    /// Bytes of payload.
    pub payload: u32,
    /// As it stands in the header.
    pub window: u16,
    /// Blocks that were received out of order.
    pub sack: Vec<(u32, u32)>,
    /// ECN field of IP.
    pub ecn: u8,
    /// What a SYN offers.
    pub offer: Option<Offer>,
}

/// Options of a SYN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Offer {
    /// Longest segment.
    pub mss: Option<u16>,
    /// Shift of the window.
    pub scale: Option<u8>,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Timestamps.
    pub timestamps: bool,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mss, scale, .. } = self;
        write!(f, "MSS {}", mss.unwrap_or(536))?;
        if let Some(scale) = scale {
            write!(f, ", scale {scale}")?;
        }
        for (there, name) in [(self.sack, "SACK"), (self.timestamps, "timestamps")] {
            if there {
                write!(f, ", {name}")?;
            }
        }
        Ok(())
    }
}

impl Segment {
    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The number behind its last byte; SYN and FIN have one of their own.
    pub fn end(&self) -> u32 {
        let extra = [tcp_flags::SYN, tcp_flags::FIN].map(|flag| u32::from(self.has(flag)));
        self.seq.wrapping_add(self.payload + extra[0] + extra[1])
    }

    /// It has bytes, or a SYN or FIN.
    pub fn takes_numbers(&self) -> bool {
        self.end() != self.seq
    }

    /// Whether it has a byte.
    pub fn brings(&self, byte: u32) -> bool {
        (self.seq..self.end()).contains(&byte)
    }
}

/// Initial sequence numbers of the ends at A and at B, as they are learnt.
#[derive(Default)]
struct Bases([Option<u32>; 2]);

impl Bases {
    fn segment(&mut self, lane: Lane, packet: &Packet<'_>) -> Option<Segment> {
        let (tcp, net) = (packet.tcp()?, packet.net?);
        if tcp.has(tcp_flags::SYN) {
            self.0[lane.index()].get_or_insert(tcp.seq);
        }
        let [own, other] = [lane, lane.other()].map(|lane| self.0[lane.index()].unwrap_or(0));
        let mut offer = Offer::default();
        let mut sack = Vec::new();
        for option in tcp.options() {
            match option {
                TcpOption::Mss(mss) => offer.mss = Some(mss),
                TcpOption::WindowScale(scale) => offer.scale = Some(scale),
                TcpOption::SackPermitted => offer.sack = true,
                TcpOption::Timestamps { .. } => offer.timestamps = true,
                TcpOption::Sack(blocks) => {
                    let relative = |at: u32| at.wrapping_sub(other);
                    sack.extend(blocks.map(|(from, to)| (relative(from), relative(to))));
                }
                TcpOption::Other { .. } => {}
            }
        }
        Some(Segment {
            flags: tcp.flags,
            seq: tcp.seq.wrapping_sub(own),
            ack: match tcp.has(tcp_flags::ACK) {
                true => tcp.ack.wrapping_sub(other),
                false => 0,
            },
            payload: u32::try_from(packet.payload_len).unwrap_or(u32::MAX),
            window: tcp.window,
            sack,
            ecn: net.ecn(),
            offer: tcp.has(tcp_flags::SYN).then_some(offer),
        })
    }
}

/// Source and destination of a TCP packet.
fn ends(packet: &Packet<'_>) -> Option<[SocketAddr; 2]> {
    let (tcp, net) = (packet.tcp()?, packet.net?);
    Some([
        (net.src, tcp.src_port).into(),
        (net.dst, tcp.dst_port).into(),
    ])
}

/// Sentences for people.
type Read<T> = Result<T, String>;

impl Trail {
    /// A connection of a run.
    pub fn of_run(run: &RunFile, directory: &Path, connection: u32) -> Read<Self> {
        let known = &run.recorded.connections;
        let found = known.iter().find(|c| c.number == connection);
        let ConnectionRecord { text, opener, .. } = found.ok_or_else(|| {
            let all = known.iter().map(|c| (c.number, c.text.clone()));
            unknown(connection, all.collect())
        })?;
        let capture = Capture::open(directory.join(files::CAPTURE)).map_err(|e| e.to_string())?;
        let mut packets: Vec<Seen> = Vec::new();
        let (mut bases, mut both) = (Bases::default(), None);
        // Packets that an event touched: where they are.
        let mut open: HashMap<u64, usize> = HashMap::new();
        let mut entries = capture.by_time();
        let mut number = 0;
        while let Some(entry) = entries.next_entry() {
            number += 1;
            let r: &Record = &entry.record;
            if r.connection.map(u32::from) != Some(connection) {
                continue;
            }
            if r.proto != Proto::Tcp {
                return Err(format!("connection {connection} is {}, not TCP", r.proto));
            }
            let made = r.kind == Kind::Injected;
            if r.tap == Tap::Egress && !made {
                if let Some(seen) = open.get(&r.packet_key()).map(|&at| &mut packets[at]) {
                    seen.leaves(r.time, entry.snapshot);
                }
                continue;
            }
            let packet = Packet::parse_snapshot(entry.snapshot, r.length.into());
            // A frame that the card made has the connection of the packet that it answers.
            let (Some(ends), Some(segment)) = (ends(&packet), bases.segment(r.lane, &packet))
            else {
                continue;
            };
            both.get_or_insert(ordered(ends, r.lane));
            let touched = !r.actions.is_empty() && !made;
            if touched {
                open.insert(r.packet_key(), packets.len());
            }
            packets.push(Seen {
                made,
                left: (!touched).then_some(r.time),
                ..Seen::new(
                    number,
                    r.lane,
                    r.time,
                    entry.snapshot,
                    r.length.into(),
                    segment,
                )
            });
        }
        let ends = both.ok_or_else(|| format!("connection {connection} has no packets"))?;
        Ok(Self {
            name: text.clone(),
            opener: *opener,
            ends,
            packets,
        })
    }

    /// A connection of a pcap or pcapng file. Who opens it is at A.
    pub fn of_file(path: &Path, connection: u32) -> Read<Self> {
        let mut all = read_file(path)?;
        let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        if count == 0 {
            return Err("no TCP connection begins in it: there is no SYN".to_owned());
        }
        if connection >= count {
            let names = all.into_iter().map(|trail| trail.name);
            return Err(unknown(connection, (0..).zip(names).collect()));
        }
        Ok(all.swap_remove(connection as usize))
    }

    /// When its first packet came.
    pub fn start(&self) -> Nanos {
        self.packets.first().map_or(Nanos(0), |seen| seen.time)
    }

    /// From its first packet to its last, in ns.
    pub fn length(&self) -> u64 {
        let last = self
            .packets
            .iter()
            .map(|seen| seen.left.unwrap_or(seen.time))
            .max();
        last.map_or(0, |last| last.since(self.start()).0)
    }

    /// Both ends have closed it, or one has given it up.
    pub fn closed(&self) -> bool {
        let said = |lane, flag| self.of(lane).any(|seen| seen.segment.has(flag));
        (Lane::ALL.into_iter()).all(|lane| said(lane, tcp_flags::FIN))
            || (Lane::ALL.into_iter()).any(|lane| said(lane, tcp_flags::RST))
    }

    /// Packets that the recording has.
    pub fn recorded(&self) -> impl Iterator<Item = &Seen> {
        self.packets.iter().filter(|seen| seen.is_recorded())
    }

    /// Packets of one direction.
    pub fn of(&self, lane: Lane) -> impl Iterator<Item = &Seen> {
        self.packets.iter().filter(move |seen| seen.lane == lane)
    }
}

impl Seen {
    fn new(
        number: u64,
        lane: Lane,
        time: Nanos,
        frame: &[u8],
        length: u32,
        segment: Segment,
    ) -> Self {
        Self {
            number,
            lane,
            made: false,
            before: Before::Nothing,
            time,
            left: Some(time),
            copies: Vec::new(),
            frame: frame.to_owned(),
            out: None,
            length,
            segment,
        }
    }

    fn leaves(&mut self, time: Nanos, frame: &[u8]) {
        match self.left {
            Some(_) => self.copies.push(time),
            None => (self.left, self.out) = (Some(time), Some(frame.to_owned())),
        }
    }
}

/// What tells transmissions of the same bytes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instance {
    /// IPv4's identification.
    pub id: Option<u16>,
    /// The timestamp.
    pub time: Option<u32>,
}

/// The source first when a packet comes from A.
fn ordered([source, destination]: [SocketAddr; 2], lane: Lane) -> [SocketAddr; 2] {
    match lane {
        Lane::AtoB => [source, destination],
        Lane::BtoA => [destination, source],
    }
}

fn unknown(connection: u32, all: Vec<(u32, String)>) -> String {
    let lines = all
        .iter()
        .take(20)
        .map(|(n, name)| format!("\n  {n}  {name}"));
    let lines: String = lines.collect();
    match all.len() {
        0 => "it has no connections".to_owned(),
        n if n > 20 => format!("it has no connection {connection}, but{lines}\n  … of {n}"),
        _ => format!("it has no connection {connection}, but{lines}"),
    }
}

/// All connections that begin in a file, in the order in which they do.
fn read_file(path: &Path) -> Read<Vec<Trail>> {
    let mut file = PacketFile::open(path).map_err(|e| e.to_string())?;
    let mut trails: Vec<(Trail, Bases)> = Vec::new();
    let mut flows: HashMap<[SocketAddr; 2], usize> = HashMap::new();
    let mut raw = FilePacket::default();
    let mut number = 0;
    // A file that was cut off gives the packets before.
    while let Ok(true) = file.read(&mut raw) {
        number += 1;
        let interface = &file.interfaces()[raw.interface];
        if interface.link_type != ETHERNET {
            continue;
        }
        // As `midwire export --pcapng` names the place behind the card.
        let behind = (interface.name.as_ref()).is_some_and(|name| name.ends_with(" egress"));
        let packet = Packet::parse_snapshot(&raw.data, raw.length as usize);
        let Some([from, to]) = ends(&packet) else {
            continue;
        };
        let tcp = packet
            .tcp()
            .filter(|tcp| tcp.has(tcp_flags::SYN) && !tcp.has(tcp_flags::ACK));
        if let Some(syn) = tcp {
            let known = flows.get(&[from, to]).or(flows.get(&[to, from]));
            let again = known.is_some_and(|&at| trails[at].1.0[0] == Some(syn.seq));
            if !again && !behind {
                flows.remove(&[to, from]);
                flows.insert([from, to], trails.len());
                let trail = Trail {
                    name: format!("TCP {from} > {to}"),
                    opener: Lane::AtoB,
                    ends: [from, to],
                    packets: Vec::new(),
                };
                trails.push((trail, Bases::default()));
            }
        }
        let (lane, at) = match (flows.get(&[from, to]), flows.get(&[to, from])) {
            (Some(&at), _) => (Lane::AtoB, at),
            (_, Some(&at)) => (Lane::BtoA, at),
            _ => continue,
        };
        let (trail, bases) = &mut trails[at];
        let Some(segment) = bases.segment(lane, &packet) else {
            continue;
        };
        let seen = Seen::new(number, lane, raw.time, &raw.data, raw.length, segment);
        if !behind {
            trail.packets.push(seen);
        } else if let Some(before) = (trail.packets.iter_mut().rev()).find(|p| p.is(&seen)) {
            (before.left, before.out) = (Some(seen.time), Some(seen.frame));
        }
    }
    Ok(trails.into_iter().map(|(trail, _)| trail).collect())
}

impl Seen {
    /// Whether the recording has it.
    pub fn is_recorded(&self) -> bool {
        self.before != Before::Missing
    }

    /// Whether its time is recorded; of others it is inferred.
    pub fn is_timely(&self) -> bool {
        self.before == Before::Nothing
    }

    /// Whether this is the very packet, seen at another place.
    fn is(&self, other: &Seen) -> bool {
        let name = |seen: &Seen| {
            let Segment {
                seq, ack, payload, ..
            } = seen.segment;
            (seen.lane, seq, ack, payload, seen.instance())
        };
        self.out.is_none() && name(self) == name(other)
    }

    /// What tells transmissions of the same bytes apart.
    pub(super) fn instance(&self) -> Instance {
        let packet = Packet::parse_snapshot(&self.frame, self.length as usize);
        let v4 = packet.net.is_some_and(|net| net.src.is_ipv4());
        let id = self.frame.get(packet.l3_offset + 4..packet.l3_offset + 6);
        let id = id.and_then(|id| id.try_into().ok()).filter(|_| v4);
        let id = id.map(u16::from_be_bytes);
        let mut options = packet.tcp().into_iter().flat_map(|tcp| tcp.options());
        let time = options.find_map(|option| match option {
            TcpOption::Timestamps { value, .. } => Some(value),
            _ => None,
        });
        Instance { id, time }
    }

    /// The ECN field of the frame that the other end got.
    pub fn ecn_out(&self) -> Option<u8> {
        let out = self.out.as_deref()?;
        let packet = Packet::parse_snapshot(out, self.length as usize);
        Some(packet.net?.ecn())
    }
}
