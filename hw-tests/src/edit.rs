// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an action makes of the bytes of a frame, written from the definitions of the
//! checksums: sums are taken modulo 65535 and CRCs of whole packets, before and after.

use crate::model::reserved;
use midwire_driver::{Action, Base, Broken, Ip6Place, Mended};
use midwire_trace::{Actions, Packet, Proto};

/// Adds to what is asked of a packet what another event asks: all of both, and where that can't
/// be, what came first, or the longest delay (docs/tables.md).
pub(crate) fn join(all: &mut Action, more: &Action) {
    all.drop |= more.drop;
    all.ecn = all.ecn.or(more.ecn);
    all.corrupt = all.corrupt.or(more.corrupt);
    all.delay = all.delay.max(more.delay);
    all.set = all.set.or(more.set);
    all.truncate = all.truncate.or(more.truncate);
    all.broken = Broken {
        fcs: all.broken.fcs || more.broken.fcs,
        ip: all.broken.ip || more.broken.ip,
        transport: all.broken.transport || more.broken.transport,
        icrc: all.broken.icrc || more.broken.icrc,
    };
    all.mended = Mended {
        ip: all.mended.ip || more.mended.ip,
        transport: all.mended.transport || more.mended.transport,
        icrc: all.mended.icrc || more.mended.icrc,
    };
    all.reorder = all.reorder.or(more.reorder);
    all.duplicate = all.duplicate.or(more.duplicate);
    all.inject = all.inject.or(more.inject);
    all.arm = all.arm.or(more.arm);
    all.disarm = all.disarm.or(more.disarm);
}

/// What the ingress record says that is asked of a packet.
pub(crate) fn asked(action: &Action) -> Actions {
    let corrupt = action.corrupt.is_some() || action.broken != Broken::default();
    union([
        (action.drop, Actions::DROP),
        (action.ecn.is_some(), Actions::ECN),
        (corrupt, Actions::CORRUPT),
        (action.delay.is_some(), Actions::DELAY),
        (action.set.is_some(), Actions::SET),
        (action.reorder.is_some(), Actions::REORDER),
        (action.duplicate.is_some(), Actions::DUPLICATE),
        (action.truncate.is_some(), Actions::TRUNCATE),
    ])
}

fn union<const N: usize>(bits: [(bool, Actions); N]) -> Actions {
    let set = bits.into_iter().filter(|(set, _)| *set);
    set.fold(Actions(0), |all, (_, bit)| all | bit)
}

/// Changes the bytes of a frame; what was done.
pub(crate) fn carry_out(action: &Action, packet: &Packet<'_>, frame: &mut Vec<u8>) -> Actions {
    let edit = Edit::new(action, packet, frame);
    let (bytes, mut done) = edit.result(frame);
    if edit.bound < frame.len() {
        done = done | Actions::TRUNCATE;
    }
    *frame = bytes;
    frame.truncate(edit.bound);
    done | union([
        (action.delay.is_some(), Actions::DELAY),
        (action.reorder.is_some(), Actions::REORDER),
    ])
}

/// An action, and where it meets a frame.
struct Edit<'a> {
    action: &'a Action,
    /// What lies here or behind is not there, or is cut off.
    bound: usize,
    /// Where the headers begin, and what they carry.
    ip: usize,
    transport: usize,
    payload: usize,
    /// Where the data that the transport covers ends: RoCE's before its ICRC.
    end: usize,
    is_ip4: bool,
    is_ip6: bool,
    is_malformed: bool,
    proto: Proto,
}

/// Sum modulo 65535 of the 16-bit words that these bytes are part of; all offsets are even.
fn sum(frame: &[u8], bytes: impl Iterator<Item = usize>) -> u32 {
    let weight = |at: usize| if at.is_multiple_of(2) { 256 } else { 1 };
    let bytes = bytes.filter(|&at| at < frame.len());
    bytes.fold(0, |sum, at| {
        (sum + u32::from(frame[at]) * weight(at)) % 65535
    })
}

impl<'a> Edit<'a> {
    fn new(action: &'a Action, packet: &Packet<'_>, frame: &[u8]) -> Self {
        let keep = action.truncate.map_or(usize::MAX, usize::from);
        let net = packet.net.filter(|_| packet.malformed.is_none());
        let ip6 = net.is_some_and(|net| net.src.is_ipv6());
        Self {
            action,
            bound: keep.min(frame.len()),
            ip: packet.l3_offset,
            transport: packet.l4_offset,
            payload: packet.payload_offset + reserved(packet),
            end: packet.payload_offset + packet.payload_len,
            is_ip4: net.is_some() && !ip6,
            is_ip6: ip6,
            is_malformed: packet.malformed.is_some(),
            proto: match packet.malformed {
                Some(_) => Proto::Other,
                None => packet.proto(),
            },
        }
    }

    /// Where an offset lies, if the frame has the header from which it counts.
    fn offset(&self, base: Base, offset: u16) -> Option<usize> {
        let (is_there, base) = match base {
            Base::Frame => (true, 0),
            Base::Ip => (self.is_ip4 || self.is_ip6, self.ip),
            Base::Transport => (self.proto != Proto::Other, self.transport),
            Base::Payload => (!self.is_malformed, self.payload),
        };
        is_there.then_some(base + usize::from(offset))
    }

    fn is_udp(&self) -> bool {
        matches!(self.proto, Proto::Udp | Proto::Roce)
    }

    fn transport_checksum(&self) -> usize {
        self.transport + if self.proto == Proto::Tcp { 16 } else { 6 }
    }

    /// The whole ICRC is there and stays.
    fn has_icrc(&self) -> bool {
        self.proto == Proto::Roce && self.end + 4 <= self.bound
    }

    fn set(&self, frame: &mut [u8]) -> Actions {
        let mut done = Actions(0);
        if let Some(set) = self.action.set
            && let Some(at) = self.offset(set.base, set.offset)
        {
            // Bit by bit, the highest of a byte first.
            let earlier = match set.ip6 {
                _ if !self.is_ip6 => 0,
                Ip6Place::Same => 0,
                Ip6Place::NibbleBefore => 4,
                Ip6Place::ByteBefore => 8,
            };
            let [mask, value] = [set.mask, set.value].map(u64::from_be_bytes);
            for n in (0..64).filter(|n| mask >> (63 - n) & 1 == 1) {
                let bit = 8 * at + n - earlier;
                if bit / 8 < self.bound {
                    let place = 7 - bit % 8;
                    let now = (value >> (63 - n) & 1) as u8;
                    frame[bit / 8] = frame[bit / 8] & !(1 << place) | now << place;
                    done = Actions::SET;
                }
            }
        }
        done
    }

    fn ecn(&self, frame: &mut [u8]) -> Actions {
        let at = self.ip + 1;
        match self.action.ecn {
            Some(ecn) if (self.is_ip4 || self.is_ip6) && at < self.bound => {
                // The low two bits of the traffic class.
                let shift = if self.is_ip6 { 4 } else { 0 };
                frame[at] = frame[at] & !(3 << shift) | (ecn as u8) << shift;
                Actions::ECN
            }
            _ => Actions(0),
        }
    }

    fn corrupt(&self, frame: &mut [u8]) -> Actions {
        let Some(corrupt) = self.action.corrupt else {
            return Actions(0);
        };
        match self.offset(corrupt.base, corrupt.offset) {
            Some(at) if at < self.bound => {
                frame[at] ^= corrupt.mask;
                Actions::CORRUPT
            }
            _ => Actions(0),
        }
    }

    /// All that is changed directly, in its order.
    fn apply(&self, frame: &mut [u8]) -> Actions {
        self.set(frame) | self.ecn(frame) | self.corrupt(frame)
    }

    fn result(&self, old: &[u8]) -> (Vec<u8>, Actions) {
        let Action { broken, mended, .. } = self.action;
        let mut frame = old.to_vec();
        let mut done = Actions(0);
        let mut leave_broken = |broken: bool, at: usize| {
            if broken && at < self.bound {
                done = Actions::CORRUPT;
            }
            broken
        };
        if self.has_icrc() {
            let mut new = old.to_vec();
            self.apply(&mut new);
            let mut flip = 0;
            if mended.icrc {
                flip = self.icrc(old, old) ^ self.icrc(&new, old);
            }
            if leave_broken(broken.icrc, self.end) {
                flip = !flip;
            }
            for (byte, flip) in frame[self.end..].iter_mut().zip(flip.to_le_bytes()) {
                *byte ^= flip;
            }
        }
        let mut new = frame.clone();
        self.apply(&mut new);
        if self.is_ip4 {
            let at = self.ip + 10;
            let header = (self.ip..self.transport).filter(|byte| !(at..at + 2).contains(byte));
            let (mut from, mut to) = (old.to_vec(), new.clone());
            if !mended.ip {
                // Only the ECN field counts.
                self.set(&mut from);
                to = from.clone();
                self.ecn(&mut to);
            }
            let broken = leave_broken(broken.ip, at);
            mend(&mut frame, at, false, broken, &from, &to, header);
        }
        if self.proto != Proto::Other {
            let at = self.transport_checksum();
            let addresses = if self.is_ip6 {
                self.ip + 8..self.ip + 40
            } else {
                self.ip + 12..self.ip + 20
            };
            let end = self.end + if self.has_icrc() { 4 } else { 0 };
            let segment = self.transport..end.min(old.len());
            let covered = addresses.chain(segment);
            let covered = covered.filter(|byte| mended.transport && !(at..at + 2).contains(byte));
            let broken = leave_broken(broken.transport, at);
            mend(&mut frame, at, self.is_udp(), broken, old, &new, covered);
        }
        if broken.fcs {
            done = Actions::CORRUPT;
        }
        done = done | self.apply(&mut frame);
        (frame, done)
    }

    /// The ICRC of a packet whose header is that of `old` (InfiniBand specification volume 1,
    /// annex A17): of eight bytes of ones, then the packet with ones in what may change on the way.
    fn icrc(&self, frame: &[u8], old: &[u8]) -> u32 {
        let mut packet = frame[self.ip..self.end].to_vec();
        let udp = self.transport - self.ip;
        let (half, ones) = match old[self.ip] >> 4 {
            4 => (0x00, [1, 1, 8, 10, 11]),
            _ => (0x0f, [1, 2, 3, 7, 7]),
        };
        packet[0] |= half;
        for at in ones.into_iter().chain([6, 7, 12].map(|at| udp + at)) {
            packet[at] = 0xff;
        }
        let bytes = [0xff; 8].into_iter().chain(packet);
        !bytes.fold(!0, |crc, byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| {
                crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
            })
        })
    }
}

/// Makes a checksum good by what it covers changed, and breaks it.
fn mend(
    frame: &mut [u8],
    at: usize,
    is_udp: bool,
    broken: bool,
    old: &[u8],
    new: &[u8],
    covered: impl Iterator<Item = usize> + Clone,
) {
    let mut checksum = u16::from_be_bytes([frame[at], frame[at + 1]]);
    // Of UDP 0 says that there is none.
    let changed = (covered.clone()).any(|at| at < old.len() && old[at] != new[at])
        && !(is_udp && checksum == 0);
    if changed {
        let grown = 65535 + sum(new, covered.clone()) - sum(old, covered);
        // The complement of the sum, which is not 0.
        checksum = ((u32::from(checksum) + 2 * 65535 - grown) % 65535) as u16;
    }
    if is_udp && changed && checksum == 0 {
        checksum = 0xffff;
    }
    if broken {
        checksum ^= 0x5555;
        if is_udp && checksum == 0 {
            checksum = 0xffff;
        }
    }
    frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}
