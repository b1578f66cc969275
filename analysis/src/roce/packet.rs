// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of reliable connections, each with its passage through the card.

use std::collections::HashSet;
use std::net::IpAddr;

use midwire_trace::packet::{Packet, Roce, Transport};
use midwire_trace::{Capture, Kind, Lane, Record, Tap};

use super::connection::{is_reliable, is_response};
use crate::view::{self, Passage, View};

/// A packet of a reliable connection.
#[derive(Clone, Debug)]
pub struct RocePacket {
    /// How it passed the card.
    pub at: Passage,
    /// What it is to its connection.
    pub kind: Kind,
    /// It comes from the responder.
    pub response: bool,
    /// Packet sequence number.
    pub psn: u32,
    /// Syndrome of its AETH; 0 without.
    pub syndrome: u8,
}

impl AsMut<Passage> for RocePacket {
    fn as_mut(&mut self) -> &mut Passage {
        &mut self.at
    }
}

/// An address and a queue pair.
pub type Place = (IpAddr, u32);

/// Where a packet of a reliable connection goes to, and its headers.
fn read(snapshot: &[u8], length: u16) -> Option<(Place, Roce)> {
    let packet = Packet::parse_snapshot(snapshot, usize::from(length));
    let Transport::Roce(_, roce) = packet.transport else {
        return None;
    };
    let net = (packet.net).filter(|_| is_reliable(roce.bth.opcode))?;
    Some(((net.dst, roce.bth.dest_qp), roce))
}

/// Packets of a capture by the place that they go to, of the places that are wanted.
pub fn packets(
    capture: &Capture,
    event: impl Fn(&Record) -> Option<u32>,
    wanted: impl Fn(&Place) -> bool,
) -> View<Place, RocePacket> {
    view::read(capture, event, |r, snapshot, at| {
        let (place, roce) = read(snapshot, r.length).filter(|(place, _)| wanted(place))?;
        let packet = RocePacket {
            at,
            kind: roce.kind(),
            response: is_response(roce.bth.opcode),
            psn: roce.bth.psn,
            syndrome: roce.aeth.map_or(0, |aeth| aeth.syndrome),
        };
        Some((place, packet))
    })
}

/// Where packets go to that an event touched.
pub fn touched(capture: &Capture) -> HashSet<Place> {
    let mut places = HashSet::new();
    for lane in Lane::ALL {
        let mut entries = capture.entries_of(lane, Tap::Ingress);
        while let Some(entry) = entries.next_entry() {
            let record = &entry.record;
            if !record.actions.is_empty() {
                let read = read(entry.snapshot, record.length);
                places.extend(read.map(|(place, _)| place));
            }
        }
    }
    places
}
