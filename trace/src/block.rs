// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block: unit of DMA and of the capture file. A header of 160 bytes, then records, each
//! with its snapshot if it has one.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::record::{Record, UNIT, WireRecord};
use crate::units::{Flags, Nanos};

/// Bytes of a block's header.
pub const HEADER_BYTES: usize = 160;
/// Smallest block.
pub const MIN_BLOCK_BYTES: u32 = 1 << 12;
/// Largest block.
pub const MAX_BLOCK_BYTES: u32 = 1 << 22;
/// Longest snapshot: a whole frame of the longest kind.
pub const MAX_SNAPSHOT_BYTES: u32 = 10240;

/// Begins every block.
pub const MAGIC: u32 = u32::from_le_bytes(*b"MWB1");
const VERSION: u16 = 2;
const FLAG_FINAL: u16 = 1 << 0;
const FLAG_FLUSHED: u16 = 1 << 1;
const CRC_OFFSET: usize = 156;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireHeader {
    magic: U32,
    version: U16,
    flags: U16,
    number: U64,
    time_ns: U64,
    first_seq: U64,
    records: U32,
    used_bytes: U32,
    block_bytes: U32,
    snapshot_bytes: U32,
    rx_frames: [U64; 2],
    tx_frames: [U64; 2],
    rx_lost: [U32; 2],
    dropped: [U32; 2],
    lost_ingress: [U32; 2],
    lost_egress: [U32; 2],
    lost_snapshots: [U32; 2],
    copied: [U32; 2],
    injected: [U32; 2],
    reserved: [U32; 5],
    crc: U32,
}

const _: () = assert!(size_of::<WireHeader>() == HEADER_BYTES);

/// Totals since the capture started, at the time a block was closed. Index 0 is port A and lane
/// A to B, index 1 port B and lane B to A.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    /// Frames that came in at the port.
    pub rx_frames: [u64; 2],
    /// Frames that left at the end of the lane, copies and injected ones among them.
    pub tx_frames: [u64; 2],
    /// Of the frames that came in: lost because the lane was full.
    pub rx_lost: [u32; 2],
    /// Of the frames that came in: dropped by an event.
    pub dropped: [u32; 2],
    /// Ingress records of the lane that were lost.
    pub lost_ingress: [u32; 2],
    /// Egress records of the lane that were lost.
    pub lost_egress: [u32; 2],
    /// Records of the lane that were kept without their snapshot.
    pub lost_snapshots: [u32; 2],
    /// Copies of frames that left at the end of the lane.
    pub copied: [u32; 2],
    /// Frames made by the card that left at the end of the lane.
    pub injected: [u32; 2],
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The last block of its capture: all frames have come to rest.
    pub last: bool,
    /// Closed by the flush timer before it was full.
    pub flushed: bool,
    /// Counts the blocks of the capture from 0.
    pub number: u64,
    /// Full time of the first record; of closing when there is none.
    pub time: Nanos,
    /// Sequence number of the first record.
    pub first_seq: u64,
    /// Records in this block.
    pub records: u32,
    /// Bytes of header and units.
    pub used_bytes: u32,
    /// Bytes that the block takes in ring and file.
    pub block_bytes: u32,
    /// Configured length of snapshots.
    pub snapshot_bytes: u32,
    /// Counters when the block was closed.
    pub counters: Counters,
}

impl BlockHeader {
    /// Reads the header and checks magic, version and sizes, but not the checksum. Asks only for
    /// the header's own bytes.
    pub fn peek(bytes: &[u8]) -> Result<Self> {
        let (wire, _) = WireHeader::ref_from_prefix(bytes).map_err(|_| Error::CutOff {
            needed: HEADER_BYTES,
            have: bytes.len(),
        })?;
        if wire.magic.get() != MAGIC {
            return Err(Error::Magic(wire.magic.get()));
        }
        if wire.version.get() != VERSION {
            return Err(Error::Version(wire.version.get()));
        }
        let header = Self {
            last: wire.flags.get() & FLAG_FINAL != 0,
            flushed: wire.flags.get() & FLAG_FLUSHED != 0,
            number: wire.number.get(),
            time: Nanos(wire.time_ns.get()),
            first_seq: wire.first_seq.get(),
            records: wire.records.get(),
            used_bytes: wire.used_bytes.get(),
            block_bytes: wire.block_bytes.get(),
            snapshot_bytes: wire.snapshot_bytes.get(),
            counters: Counters {
                rx_frames: wire.rx_frames.map(U64::get),
                tx_frames: wire.tx_frames.map(U64::get),
                rx_lost: wire.rx_lost.map(U32::get),
                dropped: wire.dropped.map(U32::get),
                lost_ingress: wire.lost_ingress.map(U32::get),
                lost_egress: wire.lost_egress.map(U32::get),
                lost_snapshots: wire.lost_snapshots.map(U32::get),
                copied: wire.copied.map(U32::get),
                injected: wire.injected.map(U32::get),
            },
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<()> {
        let wrong = |field, value| Err(Error::Size { field, value });
        let (block, used, snap) = (self.block_bytes, self.used_bytes, self.snapshot_bytes);
        if !block.is_power_of_two() || !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&block) {
            return wrong("block_bytes", block);
        }
        if !used.is_multiple_of(UNIT as u32) || !(HEADER_BYTES as u32..=block).contains(&used) {
            return wrong("used_bytes", used);
        }
        if !snap.is_multiple_of(UNIT as u32) || snap > MAX_SNAPSHOT_BYTES {
            return wrong("snapshot_bytes", snap);
        }
        if self.records > (used - HEADER_BYTES as u32) / UNIT as u32 {
            return wrong("records", self.records);
        }
        Ok(())
    }

    /// Checks the checksum of the block that begins with this header.
    pub fn verify_crc(&self, bytes: &[u8]) -> Result<()> {
        let used = self.used_bytes as usize;
        if bytes.len() < used || used < HEADER_BYTES {
            return Err(Error::CutOff {
                needed: used.max(HEADER_BYTES),
                have: bytes.len(),
            });
        }
        let field = &bytes[CRC_OFFSET..HEADER_BYTES];
        let found = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
        let computed = checksum(&bytes[..used]);
        if found == computed {
            Ok(())
        } else {
            Err(Error::Crc { found, computed })
        }
    }

    fn encode(&self) -> WireHeader {
        let c = &self.counters;
        WireHeader {
            magic: U32::new(MAGIC),
            version: U16::new(VERSION),
            flags: U16::new(
                if self.last { FLAG_FINAL } else { 0 }
                    | if self.flushed { FLAG_FLUSHED } else { 0 },
            ),
            number: U64::new(self.number),
            time_ns: U64::new(self.time.0),
            first_seq: U64::new(self.first_seq),
            records: U32::new(self.records),
            used_bytes: U32::new(self.used_bytes),
            block_bytes: U32::new(self.block_bytes),
            snapshot_bytes: U32::new(self.snapshot_bytes),
            rx_frames: c.rx_frames.map(U64::new),
            tx_frames: c.tx_frames.map(U64::new),
            rx_lost: c.rx_lost.map(U32::new),
            dropped: c.dropped.map(U32::new),
            lost_ingress: c.lost_ingress.map(U32::new),
            lost_egress: c.lost_egress.map(U32::new),
            lost_snapshots: c.lost_snapshots.map(U32::new),
            copied: c.copied.map(U32::new),
            injected: c.injected.map(U32::new),
            reserved: [U32::new(0); 5],
            crc: U32::new(0),
        }
    }
}

/// CRC-32C over the units, then the header without its checksum: the card knows the header last.
fn checksum(used: &[u8]) -> u32 {
    let (header, units) = used.split_at(HEADER_BYTES);
    crc32c::crc32c_append(crc32c::crc32c(units), &header[..CRC_OFFSET])
}

/// A whole block whose checksum and layout hold.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Its header.
    pub header: BlockHeader,
    units: &'a [u8],
}

impl<'a> Block<'a> {
    /// Reads a block from the bytes that begin with it. Everything is checked; any bytes will do.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let header = BlockHeader::peek(bytes)?;
        header.verify_crc(bytes)?;
        let block = Self {
            header,
            units: &bytes[HEADER_BYTES..header.used_bytes as usize],
        };
        if block.is_filled() {
            Ok(block)
        } else {
            Err(Error::Units {
                records: header.records,
                used_bytes: header.used_bytes,
            })
        }
    }

    /// Whether the records with their snapshots fill the units exactly.
    fn is_filled(&self) -> bool {
        if self.header.snapshot_bytes == 0 {
            return self.units.len() == self.header.records as usize * UNIT;
        }
        let mut records = self.records();
        records.by_ref().count() == self.header.records as usize && records.at == self.units.len()
    }

    /// A block that has been parsed before, from the header found then.
    pub(crate) fn trusted(header: BlockHeader, bytes: &'a [u8]) -> Self {
        Self {
            header,
            units: &bytes[HEADER_BYTES..header.used_bytes as usize],
        }
    }

    /// Its records in order.
    #[inline]
    pub fn records(&self) -> Records<'a> {
        self.records_from(0, self.header.records)
    }

    /// Its last `left` records, of which the first begins at unit byte `at`.
    #[inline]
    pub(crate) fn records_from(&self, at: usize, left: u32) -> Records<'a> {
        Records {
            units: self.units,
            at,
            left,
            seq: (self.header.first_seq).wrapping_add(u64::from(self.header.records - left)),
            near: self.header.time,
            snapshot_bytes: self.header.snapshot_bytes,
        }
    }
}

/// A record in its place.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Number in the capture, from 0.
    pub seq: u64,
    /// The record.
    pub record: Record,
    /// First bytes of the frame; empty without snapshot.
    pub snapshot: &'a [u8],
}

/// Iterator over the records of a block.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    units: &'a [u8],
    at: usize,
    left: u32,
    seq: u64,
    near: Nanos,
    snapshot_bytes: u32,
}

impl Records<'_> {
    /// Where the next record begins, and the records from it on.
    pub(crate) fn place(&self) -> (usize, u32) {
        (self.at, self.left)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        let left = self.left.checked_sub(1)?;
        let (wire, rest) = WireRecord::ref_from_prefix(self.units.get(self.at..)?).ok()?;
        let len = wire.snapshot_len(self.snapshot_bytes);
        let padded = len.next_multiple_of(UNIT);
        let snapshot = rest.get(..padded)?.get(..len)?;
        let entry = Entry {
            seq: self.seq,
            record: Record::decode(wire, self.near),
            snapshot,
        };
        self.at += UNIT + padded;
        self.left = left;
        self.seq = self.seq.wrapping_add(1);
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left as usize))
    }
}

/// Writes blocks as the card does: for tests, and for models of the card.
#[derive(Clone, Debug)]
pub struct BlockBuilder {
    bytes: Vec<u8>,
    used: usize,
    header: BlockHeader,
}

impl BlockBuilder {
    /// Begins a capture of blocks of `block_bytes` with snapshots of up to `snapshot_bytes`.
    pub fn new(block_bytes: u32, snapshot_bytes: u32) -> Result<Self> {
        let header = BlockHeader {
            last: false,
            flushed: false,
            number: 0,
            time: Nanos::ZERO,
            first_seq: 0,
            records: 0,
            used_bytes: HEADER_BYTES as u32,
            block_bytes,
            snapshot_bytes,
            counters: Counters::default(),
        };
        header.check()?;
        Ok(Self {
            bytes: vec![0; block_bytes as usize],
            used: HEADER_BYTES,
            header,
        })
    }

    /// Counters that the next finished block will show.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.header.counters
    }

    /// Records in the block so far.
    pub fn records(&self) -> u32 {
        self.header.records
    }

    /// Adds a record, with a snapshot of `frame` if it is given; the record's length and snapshot
    /// flag are taken as they follow from that. False: no room, finish the block first.
    pub fn push(&mut self, mut record: Record, frame: Option<&[u8]>) -> bool {
        record.flags.0 &= !Flags::SNAPSHOT.0;
        if let Some(frame) = frame {
            record.length = u16::try_from(frame.len()).unwrap_or(u16::MAX);
            record.flags = record.flags | Flags::SNAPSHOT;
        }
        let wire = record.encode();
        let len = wire.snapshot_len(self.header.snapshot_bytes);
        let body = self.used + UNIT;
        let end = body + len.next_multiple_of(UNIT);
        if end > self.bytes.len() {
            return false;
        }
        self.bytes[self.used..body].copy_from_slice(wire.as_bytes());
        if let Some(frame) = frame {
            self.bytes[body..body + len].copy_from_slice(&frame[..len]);
        }
        if self.header.records == 0 {
            self.header.time = record.time;
        }
        self.header.records += 1;
        self.used = end;
        true
    }

    /// Closes the block and begins the next. `last` marks the final one; `now` is the time of a
    /// block without records.
    pub fn finish(&mut self, last: bool, now: Nanos) -> Vec<u8> {
        let header = &mut self.header;
        header.last = last;
        header.used_bytes = self.used as u32;
        if header.records == 0 {
            header.time = now;
        }
        let empty = vec![0; self.bytes.len()];
        let mut bytes = std::mem::replace(&mut self.bytes, empty);
        bytes[..HEADER_BYTES].copy_from_slice(header.encode().as_bytes());
        let crc = checksum(&bytes[..self.used]);
        bytes[CRC_OFFSET..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        header.number += 1;
        header.first_seq += u64::from(header.records);
        header.records = 0;
        self.used = HEADER_BYTES;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut builder = BlockBuilder::new(4096, 64).unwrap();
        builder.counters().rx_frames = [3, 0];
        let at = |ns| Record {
            time: Nanos(ns),
            ..Record::default()
        };
        assert!(builder.push(at(0x1_ffff_fff0), Some(&[0xaa; 60])));
        assert!(builder.push(at(0x2_0000_0010), Some(&[0xbb; 100])));
        assert!(builder.push(at(0x2_0000_0020), None));
        builder.finish(true, Nanos(0))
    }

    #[test]
    fn header_lies_where_the_format_says() {
        let mut builder = BlockBuilder::new(8192, 32).unwrap();
        builder.finish(false, Nanos(0));
        *builder.counters() = Counters {
            rx_frames: [0x11, 0x22],
            tx_frames: [0x33, 0x44],
            rx_lost: [0x55, 0x66],
            dropped: [0x77, 0x88],
            lost_ingress: [0x99, 0xaa],
            lost_egress: [0xbb, 0xcc],
            lost_snapshots: [0xdd, 0xee],
            copied: [0xf0, 0xf1],
            injected: [0xf2, 0xf3],
        };
        let bytes = builder.finish(true, Nanos(0x1234_5678_9abc));
        assert_eq!(bytes.len(), 8192);
        assert_eq!(&bytes[..8], b"MWB1\x02\x00\x01\x00");
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(
            [u64_at(8), u64_at(16), u64_at(24)],
            [1, 0x1234_5678_9abc, 0]
        );
        assert_eq!(
            [u32_at(32), u32_at(36), u32_at(40), u32_at(44)],
            [0, 160, 8192, 32]
        );
        assert_eq!([48, 56, 64, 72].map(u64_at), [0x11, 0x22, 0x33, 0x44]);
        let words: Vec<_> = (80..156).step_by(4).map(u32_at).collect();
        assert_eq!(
            words,
            [
                0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xf0, 0xf1, 0xf2, 0xf3,
                0, 0, 0, 0, 0
            ]
        );
        assert_eq!(u32_at(156), bitwise_crc32c(&[&bytes[..156]]));
    }

    /// From the definition: reflected polynomial of Castagnoli, a bit at a time.
    fn bitwise_crc32c(parts: &[&[u8]]) -> u32 {
        let mut crc = !0u32;
        for byte in parts.iter().copied().flatten() {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 {
                    crc >> 1 ^ 0x82f6_3b78
                } else {
                    crc >> 1
                };
            }
        }
        !crc
    }

    #[test]
    fn checksum_takes_the_units_first() {
        let bytes = sample();
        let used = 160 + 3 * 32 + 64 + 64;
        let found = u32::from_le_bytes(bytes[156..160].try_into().unwrap());
        assert_eq!(found, bitwise_crc32c(&[&bytes[160..used], &bytes[..156]]));
    }

    #[test]
    fn records_come_back_with_full_time_and_snapshot() {
        let bytes = sample();
        let block = Block::parse(&bytes).unwrap();
        assert!(block.header.last);
        let entries: Vec<_> = block.records().collect();
        assert_eq!(entries.iter().map(|e| e.seq).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(
            entries.iter().map(|e| e.record.time.0).collect::<Vec<_>>(),
            [0x1_ffff_fff0, 0x2_0000_0010, 0x2_0000_0020]
        );
        assert_eq!(entries[0].snapshot, [0xaa; 60]);
        assert_eq!(entries[1].snapshot, [0xbb; 64]);
        assert_eq!(
            (entries[1].record.length, entries[2].snapshot.len()),
            (100, 0)
        );
    }

    #[test]
    fn every_flipped_bit_of_the_used_part_is_found() {
        let bytes = sample();
        let used = Block::parse(&bytes).unwrap().header.used_bytes as usize;
        for bit in 0..used * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(Block::parse(&broken).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_right_checksum_does_not_hide_a_wrong_count() {
        let mut bytes = sample();
        bytes[32] = 2;
        let used = Block::parse(&sample()).unwrap().header.used_bytes as usize;
        let crc = checksum(&bytes[..used]);
        bytes[156..160].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(
            Block::parse(&bytes),
            Err(Error::Units { records: 2, .. })
        ));
    }

    #[test]
    fn cut_off_anywhere_is_an_error() {
        let bytes = sample();
        let used = Block::parse(&bytes).unwrap().header.used_bytes as usize;
        for len in 0..used {
            assert!(Block::parse(&bytes[..len]).is_err());
        }
    }
}
