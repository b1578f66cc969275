// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the records of a capture to packets, each with its passage through the card.

use std::collections::{BTreeMap, HashMap};

use midwire_trace::packet::{Packet, TcpOption};
use midwire_trace::{Actions, Capture, Kind, Lane, Proto, Record, Tap};

use crate::tcp::TcpPacket;

/// How a packet passed the card.
#[derive(Clone, Debug)]
pub struct Passage {
    /// Number of the packet in the capture, from 1, for citing it.
    pub number: u64,
    /// Which way it went.
    pub lane: Lane,
    /// When its first beat came in.
    pub time_ns: u64,
    /// When its first beat left; `None` when it was dropped on the card.
    pub left_ns: Option<u64>,
    /// Broken by an event, so that the other end can't accept it.
    pub corrupted: bool,
    /// Held back by an event.
    pub delayed: bool,
    /// When the first beats of its copies left.
    pub copies_ns: Vec<u64>,
    /// Congestion experienced was set when it left.
    pub marked: bool,
    /// Number of the plan's event that touched it.
    pub event: Option<u32>,
}

impl Passage {
    /// Of a packet that goes on as it came.
    pub fn untouched(number: u64, lane: Lane, time_ns: u64) -> Self {
        Self {
            number,
            lane,
            time_ns,
            left_ns: Some(time_ns),
            corrupted: false,
            delayed: false,
            copies_ns: Vec::new(),
            marked: false,
            event: None,
        }
    }

    /// The other end can't have accepted it: dropped or corrupted on the card.
    pub fn lost(&self) -> bool {
        self.corrupted || self.left_ns.is_none()
    }

    /// It leaves, or a copy of it.
    fn leaves(&mut self, r: &Record) {
        if r.actions.contains(Actions::DUPLICATE) {
            self.copies_ns.push(r.time.0);
        } else {
            self.left_ns = Some(r.time.0);
            self.corrupted = r.actions.contains(Actions::CORRUPT);
            self.delayed = !r.actions.is_disjoint(Actions::DELAY | Actions::REORDER);
            self.marked = r.actions.contains(Actions::ECN);
        }
    }
}

/// Packets of a capture by what they belong to, each list in order of arrival.
#[derive(Debug)]
pub struct View<K, T> {
    /// The lists.
    pub packets: BTreeMap<K, Vec<T>>,
    /// Card time of the first record, ns.
    pub start_ns: u64,
}

/// Reads the packets that endpoints have sent: all that `of` knows, from their ingress records and
/// snapshots. `event` names the plan's event that touched a packet. Packets are numbered from 1 in
/// the order of time, records of both taps counted, as they are in the pcapng export.
pub fn read<K: Ord + Clone, T: AsMut<Passage>>(
    capture: &Capture,
    event: impl Fn(&Record) -> Option<u32>,
    of: impl Fn(&Record, &[u8], Passage) -> Option<(K, T)>,
) -> View<K, T> {
    let mut packets: BTreeMap<K, Vec<T>> = BTreeMap::new();
    let mut start_ns = 0;
    // Touched packets: key of the packet to its place.
    let mut open: HashMap<u64, (K, usize)> = HashMap::new();
    let mut entries = capture.by_time();
    let mut number = 0;
    while let Some(entry) = entries.next_entry() {
        number += 1;
        let r = &entry.record;
        if number == 1 {
            start_ns = r.time.0;
        }
        if r.tap == Tap::Egress {
            let place = open.get(&r.packet_key());
            if let Some(packet) = place.and_then(|(key, at)| packets.get_mut(key)?.get_mut(*at)) {
                packet.as_mut().leaves(r);
            }
            continue;
        }
        // What the card made neither endpoint sent.
        if r.kind == Kind::Injected {
            continue;
        }
        let touched = !r.actions.is_empty();
        let mut passage = Passage::untouched(number, r.lane, r.time.0);
        if touched {
            (passage.left_ns, passage.event) = (None, event(r));
        }
        let Some((key, packet)) = of(r, entry.snapshot, passage) else {
            continue;
        };
        let list = packets.entry(key.clone()).or_default();
        if touched {
            open.insert(r.packet_key(), (key, list.len()));
        }
        list.push(packet);
    }
    View { packets, start_ns }
}

/// The TCP packets of each connection that the card knew.
pub fn tcp(capture: &Capture, event: impl Fn(&Record) -> Option<u32>) -> View<u16, TcpPacket> {
    read(capture, event, |r, snapshot, at| {
        let connection = r.connection.filter(|_| r.proto == Proto::Tcp)?;
        let packet = TcpPacket {
            at,
            seq: r.f0,
            ack: r.f1,
            window: r.f2,
            flags: r.tcp_flags,
            payload: r.payload_len,
            sack: sack(snapshot, usize::from(r.length)),
        };
        Some((connection, packet))
    })
}

/// SACK blocks of a TCP packet; none when the snapshot does not hold them.
fn sack(snapshot: &[u8], length: usize) -> Vec<(u32, u32)> {
    let packet = Packet::parse_snapshot(snapshot, length);
    let Some(tcp) = packet.tcp() else {
        return Vec::new();
    };
    tcp.options()
        .filter_map(|o| match o {
            TcpOption::Sack(blocks) => Some(blocks),
            _ => None,
        })
        .flatten()
        .collect()
}

impl AsMut<Passage> for TcpPacket {
    fn as_mut(&mut self) -> &mut Passage {
        &mut self.at
    }
}

#[cfg(test)]
mod tests;
