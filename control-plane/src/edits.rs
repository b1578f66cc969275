// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was to change in the bytes of a packet, held against the bytes that left.
//!
//! Everything is found by the packet as it came: its own headers say where fields and checksums
//! stand, and what the checksums cover.

use midwire_trace::packet::{
    self, Net, Packet, Transport, icrc, internet_checksum, transport_checksum,
};

use crate::plan::{Action, Base, Corrupt, Set};
use crate::run_file::{ChecksumAsked, ChecksumMeasure, ChecksumName};

/// Bytes of a CNP behind its BTH, which are reserved and no payload (InfiniBand specification,
/// volume 1, annex A17.9.3).
const CNP_RESERVED: usize = 16;

/// A byte of a frame that is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    pub offset: usize,
    /// Bits that change, and what they become.
    pub mask: u8,
    pub value: u8,
}

/// A packet as it came, as far as the snapshot shows it.
pub(crate) struct Came<'a> {
    packet: Packet<'a>,
    snapshot: &'a [u8],
}

impl<'a> Came<'a> {
    pub fn new(snapshot: &'a [u8], length: usize) -> Self {
        Came {
            packet: Packet::parse_snapshot(snapshot, length),
            snapshot,
        }
    }

    fn net(&self) -> Option<&Net> {
        let packet = &self.packet;
        packet.net.as_ref().filter(|_| packet.malformed.is_none())
    }

    fn has_transport(&self) -> bool {
        self.net().is_some() && !matches!(self.packet.transport, Transport::None)
    }

    fn has_ip_checksum(&self) -> bool {
        self.net().is_some_and(|net| net.src.is_ipv4())
    }

    fn has_icrc(&self) -> bool {
        self.net().is_some() && self.packet.roce().is_some()
    }

    fn base(&self, base: Base) -> Option<usize> {
        let packet = &self.packet;
        match base {
            Base::Frame => Some(0),
            Base::Ip => self.net().map(|_| packet.l3_offset),
            Base::Transport => self.has_transport().then_some(packet.l4_offset),
            Base::Payload => {
                let is_cnp = |roce: &packet::Roce| roce.bth.opcode == packet::opcode::CNP;
                let reserved = match packet.roce().is_some_and(is_cnp) {
                    true => CNP_RESERVED,
                    false => 0,
                };
                let sound = packet.malformed.is_none();
                sound.then_some(packet.payload_offset + reserved)
            }
        }
    }

    /// Bytes that a `set` writes to, in their order; none when the packet lacks the header.
    pub fn set(&self, set: &Set) -> Vec<Written> {
        let Ok(write) = set.write() else {
            return Vec::new();
        };
        let Some(base) = self.base(write.base) else {
            return Vec::new();
        };
        let is_ip6 = self.net().is_some_and(|net| net.src.is_ipv6());
        let earlier = if is_ip6 { write.ip6_earlier } else { 0 };
        // From the byte before the first on, so that there is room to move.
        let moved = |bytes: [u8; 8]| {
            let bits = u128::from(u64::from_be_bytes(bytes)) << 56 << earlier;
            bits.to_be_bytes()
        };
        let first = base + usize::from(write.offset);
        let (mask, value) = (moved(write.mask), moved(write.value));
        (0..mask.len())
            .filter(|&n| mask[n] != 0)
            .filter_map(|n| {
                Some(Written {
                    offset: (first + n).checked_sub(1)?,
                    mask: mask[n],
                    value: value[n],
                })
            })
            .collect()
    }

    /// The byte that a `corrupt` changes.
    pub fn corrupt(&self, corrupt: &Corrupt) -> Option<usize> {
        Some(self.base(corrupt.at)? + usize::from(corrupt.offset))
    }

    /// The byte with the ECN field, and the place of its lowest bit.
    fn ecn(&self) -> Option<(usize, u8)> {
        let shift = if self.net()?.src.is_ipv6() { 4 } else { 0 };
        Some((self.packet.l3_offset + 1, shift))
    }

    /// Bytes in which what was asked for is not what left, as far as both snapshots show it: the
    /// first of them.
    pub fn difference(&self, action: &Action, left: &[u8]) -> Option<usize> {
        let mut asked = self.snapshot.to_vec();
        let mut written = Vec::new();
        for Written {
            offset,
            mask,
            value,
        } in action.set.iter().flat_map(|set| self.set(set))
        {
            if let Some(byte) = asked.get_mut(offset) {
                *byte = *byte & !mask | value;
                written.push((offset, mask));
            }
        }
        if let Some(ecn) = action.ecn
            && let Some((offset, shift)) = self.ecn()
            && let Some(byte) = asked.get_mut(offset)
        {
            *byte = *byte & !(3 << shift) | (ecn as u8) << shift;
            written.push((offset, 3 << shift));
        }
        if let Some(corrupt) = action.corrupt
            && let Some(offset) = self.corrupt(&corrupt)
            && let Some(byte) = asked.get_mut(offset)
        {
            *byte ^= corrupt.mask;
            written.push((offset, 0xff));
        }
        let differs = |&(at, mask): &(usize, u8)| {
            let left = left.get(at);
            left.is_some_and(|left| (left ^ asked[at]) & mask != 0)
        };
        written.into_iter().find(differs).map(|(at, _)| at)
    }

    /// Where the data that the transport covers ends; RoCE's before its ICRC.
    fn end(&self) -> usize {
        self.packet.payload_offset + self.packet.payload_len
    }

    /// Where a checksum stands.
    fn checksum(&self, name: ChecksumName) -> Option<std::ops::Range<usize>> {
        let (l3, l4) = (self.packet.l3_offset, self.packet.l4_offset);
        match (name, &self.packet.transport) {
            (ChecksumName::Ip, _) => self.has_ip_checksum().then_some(l3 + 10..l3 + 12),
            (ChecksumName::L4, Transport::Tcp(_)) => Some(l4 + 16..l4 + 18),
            (ChecksumName::L4, _) => self.has_transport().then_some(l4 + 6..l4 + 8),
            (ChecksumName::Icrc, _) => self.has_icrc().then_some(self.end()..self.end() + 4),
            (ChecksumName::Fcs, _) => None,
        }
    }

    /// Whether a checksum of this frame, which has the packet's headers, is right. Nothing when
    /// the frame has none, or is not there as a whole.
    fn is_right(&self, name: ChecksumName, frame: &[u8]) -> Option<bool> {
        let at = self.checksum(name)?;
        let (l3, l4) = (self.packet.l3_offset, self.packet.l4_offset);
        let net = self.net()?;
        match name {
            ChecksumName::Ip => Some(internet_checksum(frame.get(l3..l4)?) == 0),
            ChecksumName::L4 => {
                let is_udp = !matches!(self.packet.transport, Transport::Tcp(_));
                let icrc = if self.has_icrc() { 4 } else { 0 };
                let segment = frame.get(l4..self.end() + icrc)?;
                if is_udp && frame.get(at)? == [0, 0] {
                    return None;
                }
                let addresses = Packet::parse_snapshot(frame, frame.len()).net;
                let mut net = *net;
                if let Some(now) = addresses {
                    (net.src, net.dst) = (now.src, now.dst);
                }
                Some(transport_checksum(&net, segment) == 0)
            }
            ChecksumName::Icrc => {
                let expected = icrc(frame.get(l3..self.end())?, l4 - l3)?;
                Some(frame.get(at)? == expected.to_le_bytes())
            }
            ChecksumName::Fcs => None,
        }
    }

    /// The checksums that an action breaks or makes good, but for the FCS, before and after.
    /// Those that it writes to are left out.
    pub fn checksums(&self, action: &Action, left: &[u8]) -> Vec<ChecksumMeasure> {
        let mend = action.mend().ok().flatten().unwrap_or_default();
        let changes = action.set.is_some() || action.corrupt.is_some();
        let written: Vec<usize> = (action.set.iter())
            .flat_map(|set| self.set(set))
            .map(|written| written.offset)
            .chain(action.corrupt.and_then(|corrupt| self.corrupt(&corrupt)))
            .collect();
        [
            (
                ChecksumName::Ip,
                action.broken.ip,
                mend.ip || action.ecn.is_some() && !changes,
            ),
            (ChecksumName::L4, action.broken.l4, mend.l4),
            (ChecksumName::Icrc, action.broken.icrc, mend.icrc),
        ]
        .into_iter()
        .filter(|(_, broken, mended)| *broken || *mended)
        .filter_map(|(name, broken, _)| {
            let at = self.checksum(name)?;
            let asked = match broken {
                true => ChecksumAsked::Broken,
                false => ChecksumAsked::Mended,
            };
            (!written.iter().any(|byte| at.contains(byte))).then(|| ChecksumMeasure {
                name,
                asked,
                before: self.is_right(name, self.snapshot),
                after: self.is_right(name, left),
            })
        })
        .collect()
    }

    /// A checksum that an action is to break and the packet does not have.
    pub fn lacks(&self, action: &Action) -> Option<ChecksumName> {
        [
            (ChecksumName::Ip, action.broken.ip),
            (ChecksumName::L4, action.broken.l4),
            (ChecksumName::Icrc, action.broken.icrc),
        ]
        .into_iter()
        .find(|&(name, broken)| broken && self.checksum(name).is_none())
        .map(|(name, _)| name)
    }
}
