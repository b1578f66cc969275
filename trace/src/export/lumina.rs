// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packet dumps of Lumina (Yu et al., SIGCOMM 2023), as its analyzers read them: pcap with
//! every RoCEv2 packet as it came in, in one order, and what the card noted of it in header fields.
//!
//! Source MAC: sequence number, 31 bits, from 1. Destination MAC: ns, 48 bits. TTL: the event. The
//! mirror's UDP port 9741, by which its dumpers know these packets, they turn back to RoCE's own.

use std::io::Write;

use crate::block::Entry;
use crate::capture::Capture;
use crate::error::Result;
use crate::packet::{Packet, internet_checksum};
use crate::packet_file::ETHERNET;
use crate::record::Record;
use crate::units::{Actions, Flags, Tap};

/// Highest sequence number; the next one is 1.
const LAST_SEQUENCE: u32 = 0x7fff_ffff;
/// Bits of IPv4's second byte that say: congestion experienced.
const CONGESTION_EXPERIENCED: u8 = 3;
/// Longest packet that a reader has to expect.
const SNAPSHOT: u32 = 65_535;

/// What was exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Packets written, by the lane that they came in on.
    pub packets: [u64; 2],
    /// Of these, dropped by an event.
    pub dropped: [u64; 2],
    /// Of these, touched by events that Lumina has no code for.
    pub nameless: u64,
    /// RoCEv2 packets left out, for too few of their bytes were captured.
    pub cut: u64,
    /// Packets left out, for they are not RoCEv2 over IPv4 without tags, or came with a wrong FCS.
    pub others: u64,
}

/// What happened to a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    None = 0,
    Drop = 1,
    Ecn = 2,
    BitError = 3,
}

impl Event {
    fn of(record: &Record) -> Self {
        let has = |action| record.actions.contains(action);
        match () {
            () if has(Actions::DROP) => Self::Drop,
            () if has(Actions::CORRUPT) => Self::BitError,
            () if has(Actions::ECN) => Self::Ecn,
            () => Self::None,
        }
    }
}

/// Writes the capture, up to damage if there is any.
pub fn write(capture: &Capture, mut out: impl Write) -> Result<Exported> {
    // Nanoseconds; version 2.4.
    out.write_all(&0xa1b2_3c4d_u32.to_le_bytes())?;
    out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    out.write_all(&SNAPSHOT.to_le_bytes())?;
    out.write_all(&u32::from(ETHERNET).to_le_bytes())?;
    let mut exported = Exported::default();
    let mut sequence = 0;
    let mut entries = capture.by_time();
    while let Some(entry) = entries.next_entry() {
        let record = &entry.record;
        if record.tap != Tap::Ingress {
            continue;
        }
        let next = if sequence == LAST_SEQUENCE {
            1
        } else {
            sequence + 1
        };
        match rewritten(&entry, next) {
            Ok(frame) => {
                sequence = next;
                let (seconds, nanos) =
                    (record.time.0 / 1_000_000_000, record.time.0 % 1_000_000_000);
                let lengths = [frame.len() as u32, u32::from(record.length)];
                for word in [seconds as u32, nanos as u32].into_iter().chain(lengths) {
                    out.write_all(&word.to_le_bytes())?;
                }
                out.write_all(&frame)?;
                let event = Event::of(record);
                let lane = record.lane.index();
                exported.packets[lane] += 1;
                exported.dropped[lane] += u64::from(event == Event::Drop);
                let nameless = event == Event::None && !record.actions.is_empty();
                exported.nameless += u64::from(nameless);
            }
            Err(LeftOut::Cut) => exported.cut += 1,
            Err(LeftOut::Other) => exported.others += 1,
        }
    }
    out.flush()?;
    Ok(exported)
}

enum LeftOut {
    Cut,
    Other,
}

/// The frame as Lumina would have it.
fn rewritten(entry: &Entry<'_>, sequence: u32) -> std::result::Result<Vec<u8>, LeftOut> {
    let record = &entry.record;
    if record.proto != crate::Proto::Roce || record.flags.contains(Flags::ERROR) {
        return Err(LeftOut::Other);
    }
    let packet = Packet::parse_snapshot(entry.snapshot, usize::from(record.length));
    if packet.roce().is_none() || packet.payload_offset > entry.snapshot.len() {
        return Err(LeftOut::Cut);
    }
    let ip = packet.l3_offset;
    if ip != 14 || entry.snapshot[ip] >> 4 != 4 {
        return Err(LeftOut::Other);
    }
    let mut frame = entry.snapshot.to_vec();
    frame[..6].copy_from_slice(&record.time.0.to_be_bytes()[2..]);
    frame[6..12].copy_from_slice(&u64::from(sequence).to_be_bytes()[2..]);
    let event = Event::of(record);
    if event == Event::Ecn {
        frame[ip + 1] |= CONGESTION_EXPERIENCED;
    }
    frame[ip + 8] = event as u8;
    let header = usize::from(frame[ip] & 0xf) * 4;
    frame[ip + 10..ip + 12].fill(0);
    let checksum = internet_checksum(&frame[ip..ip + header]);
    frame[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
    Ok(frame)
}
