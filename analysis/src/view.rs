// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the records of a capture to the TCP packets of each connection.

use std::collections::{BTreeMap, HashMap};

use midwire_trace::packet::{Packet, TcpOption};
use midwire_trace::{Actions, Capture, Kind, Proto, Record, Tap};

use crate::tcp::TcpPacket;

/// The TCP packets of a capture by connection, each in order of arrival.
#[derive(Debug, Default)]
pub struct View {
    /// Packets of each connection that the card knew.
    pub connections: BTreeMap<u16, Vec<TcpPacket>>,
    /// Card time of the first record, ns.
    pub start_ns: u64,
}

/// Reads a capture. `event` names the plan's event that touched a packet, from its ingress
/// record. Packets are numbered from 1 in the order of time, records of both taps counted, as
/// they are in the pcapng export.
pub fn read(capture: &Capture, event: impl Fn(&Record) -> Option<u32>) -> View {
    let mut view = View::default();
    // Touched packets: key of the packet to its place.
    let mut open: HashMap<u64, (u16, usize)> = HashMap::new();
    let mut entries = capture.by_time();
    let mut number = 0;
    while let Some(entry) = entries.next_entry() {
        number += 1;
        let r = &entry.record;
        if number == 1 {
            view.start_ns = r.time.0;
        }
        let Some(connection) = r.connection.filter(|_| r.proto == Proto::Tcp) else {
            continue;
        };
        let packets = view.connections.entry(connection).or_default();
        // What the card made neither endpoint sent.
        if r.kind == Kind::Injected {
            continue;
        }
        if r.tap == Tap::Egress {
            let place = open.get(&r.packet_key()).filter(|(c, _)| *c == connection);
            let Some(packet) = place.and_then(|(_, i)| packets.get_mut(*i)) else {
                continue;
            };
            if r.actions.contains(Actions::DUPLICATE) {
                packet.copies_ns.push(r.time.0);
            } else {
                packet.left_ns = Some(r.time.0);
                packet.corrupted = r.actions.contains(Actions::CORRUPT);
                packet.delayed = !r.actions.is_disjoint(Actions::DELAY | Actions::REORDER);
                packet.marked = r.actions.contains(Actions::ECN);
            }
            continue;
        }
        let asked = r.actions;
        if !asked.is_empty() {
            open.insert(r.packet_key(), (connection, packets.len()));
        }
        packets.push(TcpPacket {
            number,
            lane: r.lane,
            time_ns: r.time.0,
            left_ns: asked.is_empty().then_some(r.time.0),
            corrupted: false,
            delayed: false,
            copies_ns: Vec::new(),
            seq: r.f0,
            ack: r.f1,
            window: r.f2,
            flags: r.tcp_flags,
            payload: r.payload_len,
            sack: sack(entry.snapshot, usize::from(r.length)),
            marked: false,
            event: if asked.is_empty() { None } else { event(r) },
        });
    }
    view
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

#[cfg(test)]
mod tests;
