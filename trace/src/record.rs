// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record of a packet: 32 bytes on the wire, and the same as a plain struct.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::units::{Actions, Flags, Kind, Lane, Nanos, Proto, Tap};

/// Bytes of a record, and the grain of a block.
pub const UNIT: usize = 32;

const CONNECTION_NONE: u16 = 0xffff;
const SLOT_NONE: u32 = 0xff_ffff;

/// A record as it lies in a block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct WireRecord {
    time: U32,
    kind: u8,
    flags: u8,
    length: U16,
    packet_id: U32,
    connection: U16,
    payload_len: U16,
    f0: U32,
    f1: U32,
    f2: U16,
    tcp_flags: u8,
    iteration: u8,
    slot: [u8; 3],
    action: u8,
}

const _: () = assert!(size_of::<WireRecord>() == UNIT);

impl WireRecord {
    /// Bytes of the snapshot that follows, when `snapshot_bytes` is the configured length.
    #[inline]
    pub(crate) fn snapshot_len(&self, snapshot_bytes: u32) -> usize {
        if self.flags & Flags::SNAPSHOT.0 == 0 {
            0
        } else {
            u32::from(self.length.get()).min(snapshot_bytes) as usize
        }
    }
}

/// What the card noted of one packet at one tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// First beat at ingress, or at egress.
    pub time: Nanos,
    /// Direction through the card.
    pub lane: Lane,
    /// Where the record was made.
    pub tap: Tap,
    /// Transport.
    pub proto: Proto,
    /// First of the kinds that the packet is of.
    pub kind: Kind,
    /// What else there is to say.
    pub flags: Flags,
    /// Bytes of the frame without FCS, as received (ingress) or sent (egress).
    pub length: u16,
    /// Counts the frames that came in on this lane; the same in both records of a packet.
    pub packet_id: u32,
    /// Number of the connection, when the packet is of one.
    pub connection: Option<u16>,
    /// TCP or UDP payload; RoCE payload and pad.
    pub payload_len: u16,
    /// TCP sequence number; RoCE `opcode << 24 | psn`.
    pub f0: u32,
    /// TCP acknowledgement number; RoCE AETH or 0.
    pub f1: u32,
    /// TCP window; RoCE: high byte BTH byte 1, low byte bit 7 FECN, 6 BECN, 5 AckReq. At egress
    /// docs/formats.md says when it is something else.
    pub f2: u16,
    /// CWR ECE URG ACK PSH RST SYN FIN, high to low; 0 when not TCP.
    pub tcp_flags: u8,
    /// Of the position that `slot` names, from 1, saturates at 255; 0 without slot.
    pub iteration: u8,
    /// Event slot of the lane that hit.
    pub slot: Option<u32>,
    /// Ingress: what the event asks for; egress: what was done.
    pub actions: Actions,
}

impl Record {
    /// From its bytes in a block of time `near`.
    #[inline]
    pub fn decode(wire: &WireRecord, near: Nanos) -> Self {
        let connection = wire.connection.get();
        let [s0, s1, s2] = wire.slot;
        let slot = u32::from_le_bytes([s0, s1, s2, 0]);
        Self {
            time: near.nearest(wire.time.get()),
            lane: Lane::from_bit(wire.kind),
            tap: if wire.kind & 2 == 0 {
                Tap::Ingress
            } else {
                Tap::Egress
            },
            proto: Proto::from_bits(wire.kind >> 2),
            kind: Kind::from_bits(wire.kind >> 4),
            flags: Flags(wire.flags),
            length: wire.length.get(),
            packet_id: wire.packet_id.get(),
            connection: (connection != CONNECTION_NONE).then_some(connection),
            payload_len: wire.payload_len.get(),
            f0: wire.f0.get(),
            f1: wire.f1.get(),
            f2: wire.f2.get(),
            tcp_flags: wire.tcp_flags,
            iteration: wire.iteration,
            slot: (slot != SLOT_NONE).then_some(slot),
            actions: Actions(wire.action),
        }
    }

    /// To its bytes; the time loses its high half.
    pub fn encode(&self) -> WireRecord {
        let [s0, s1, s2, _] = self.slot.unwrap_or(SLOT_NONE).to_le_bytes();
        WireRecord {
            time: U32::new(self.time.0 as u32),
            kind: self.lane as u8
                | (self.tap as u8) << 1
                | (self.proto as u8) << 2
                | self.kind.number() << 4,
            flags: self.flags.0,
            length: U16::new(self.length),
            packet_id: U32::new(self.packet_id),
            connection: U16::new(self.connection.unwrap_or(CONNECTION_NONE)),
            payload_len: U16::new(self.payload_len),
            f0: U32::new(self.f0),
            f1: U32::new(self.f1),
            f2: U16::new(self.f2),
            tcp_flags: self.tcp_flags,
            iteration: self.iteration,
            slot: [s0, s1, s2],
            action: self.actions.0,
        }
    }

    /// The lane on which the packet came: of a frame that the card made, the one that it answers.
    pub const fn packet_lane(&self) -> Lane {
        match self.kind {
            Kind::Injected if self.f2 != 0 => self.lane.other(),
            _ => self.lane,
        }
    }

    /// The packet, named alike in its ingress record, in its egress records and in that of its
    /// answer, and unlike on the two lanes.
    pub const fn packet_key(&self) -> u64 {
        (self.packet_lane() as u64) << 32 | self.packet_id as u64
    }

    /// RoCE packet sequence number.
    pub const fn psn(&self) -> u32 {
        self.f0 & 0xff_ffff
    }

    /// RoCE opcode.
    pub const fn opcode(&self) -> u8 {
        (self.f0 >> 24) as u8
    }
}

/// A frame of no known protocol on lane A to B, all else zero: a start for writing one's own.
impl Default for Record {
    fn default() -> Self {
        Self {
            time: Nanos::ZERO,
            lane: Lane::AtoB,
            tap: Tap::Ingress,
            proto: Proto::Other,
            kind: Kind::Other,
            flags: Flags(0),
            length: 60,
            packet_id: 0,
            connection: None,
            payload_len: 0,
            f0: 0,
            f1: 0,
            f2: 0,
            tcp_flags: 0,
            iteration: 0,
            slot: None,
            actions: Actions(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/formats.md, offset by offset.
    #[test]
    fn bytes_are_where_the_format_says() {
        let record = Record {
            time: Nanos(0x9_0403_0201),
            lane: Lane::BtoA,
            tap: Tap::Egress,
            proto: Proto::Roce,
            kind: Kind::Nak,
            flags: Flags::BELOW | Flags::MULTI,
            length: 0x0605,
            packet_id: 0x0a09_0807,
            connection: Some(0x0c0b),
            payload_len: 0x0e0d,
            f0: 0x1211_100f,
            f1: 0x1615_1413,
            f2: 0x1817,
            tcp_flags: 0x19,
            iteration: 0x1a,
            slot: Some(0x1d_1c1b),
            actions: Actions::DELAY,
        };
        let wire = record.encode();
        assert_eq!(
            wire.as_bytes(),
            [
                1, 2, 3, 4, 0x3b, 0x41, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                21, 22, 23, 24, 25, 26, 27, 28, 29, 8
            ]
        );
        assert_eq!(Record::decode(&wire, Nanos(0x9_0000_0000)), record);
    }

    #[test]
    fn all_ones_mean_none() {
        let wire = Record::default().encode();
        assert_eq!(wire.as_bytes()[12..14], [0xff, 0xff]);
        assert_eq!(wire.as_bytes()[28..31], [0xff, 0xff, 0xff]);
        let back = Record::decode(&wire, Nanos(0));
        assert_eq!((back.connection, back.slot), (None, None));
    }
}
