// SPDX-License-Identifier: Apache-2.0 OR MIT
//! pcapng, as draft-ietf-opsawg-pcapng has it: a strict [`Writer`], and the export of a capture.
//!
//! A capture has an interface for each port and tap point. The records of a packet before and
//! after an event carry the same `epb_packetid`, an event is told by a comment on the packets
//! that it touched, and frames without a record show as `epb_dropcount` of the next one.
//! Times are card time in nanoseconds.

use std::io::Write;

use crate::capture::Capture;
use crate::error::Result;
use crate::record::Record;
use crate::units::{Flags, Lane, Nanos, Port, Proto, Tap};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

const COMMENT: u16 = 1;
const LINKTYPE_ETHERNET: u16 = 1;

/// Error bits of `epb_flags`.
const FLAG_CRC_ERROR: u32 = 1 << 24;
const FLAG_TOO_LONG: u32 = 1 << 25;

/// Who captured.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The card.
    pub hardware: String,
    /// The operating system of the host.
    pub os: String,
    /// The program.
    pub application: String,
    /// Speed of the ports in bits per second, if known.
    pub speed: Option<u64>,
}

/// Which way a packet goes, seen from the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the card.
    Inbound = 1,
    /// Out of the card.
    Outbound = 2,
}

/// A packet to be written.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// Number of its interface.
    pub interface: u32,
    /// When.
    pub time: Nanos,
    /// What was captured of it.
    pub data: &'a [u8],
    /// Bytes that it had, without FCS.
    pub length: u32,
    /// Direction and error bits: [`Direction`] and link-layer errors.
    pub flags: u32,
    /// Name of the packet.
    pub id: Option<u64>,
    /// Packets of the interface lost since the one before.
    pub lost: u64,
    /// What the hardware decided on it: bits of [`Actions`](crate::Actions).
    pub verdict: Option<u8>,
    /// Comments.
    pub comments: &'a [String],
}

impl<'a> Frame<'a> {
    /// A packet that came in whole, and of which no more is known.
    pub fn received(interface: u32, time: Nanos, data: &'a [u8]) -> Self {
        Self {
            interface,
            time,
            data,
            length: data.len() as u32,
            flags: Direction::Inbound as u32,
            id: None,
            lost: 0,
            verdict: None,
            comments: &[],
        }
    }
}

/// Writes a pcapng section, block by block.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    body: Vec<u8>,
    interfaces: u32,
}

impl<W: Write> Writer<W> {
    /// Begins a section.
    pub fn new(out: W, about: &About) -> Result<Self> {
        let mut writer = Self {
            out,
            body: Vec::new(),
            interfaces: 0,
        };
        writer.body.extend(0x1a2b_3c4d_u32.to_le_bytes());
        writer.body.extend([1, 0, 0, 0]);
        // The length of the section is not known yet.
        writer.body.extend(u64::MAX.to_le_bytes());
        for (code, text) in [
            (2, &about.hardware),
            (3, &about.os),
            (4, &about.application),
        ] {
            writer.text(code, text);
        }
        writer.block(SECTION)?;
        Ok(writer)
    }

    /// Adds an Ethernet interface; returns its number. `snapshot` 0: frames are captured whole.
    pub fn interface(
        &mut self,
        name: &str,
        description: &str,
        speed: Option<u64>,
        snapshot: u32,
    ) -> Result<u32> {
        self.body.extend(LINKTYPE_ETHERNET.to_le_bytes());
        self.body.extend([0; 2]);
        self.body.extend(snapshot.to_le_bytes());
        self.text(2, name);
        self.text(3, description);
        if let Some(speed) = speed {
            self.option(8, &speed.to_le_bytes());
        }
        // Nanoseconds; no FCS.
        self.option(9, &[9]);
        self.option(13, &[0]);
        self.block(INTERFACE)?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Adds a packet.
    pub fn packet(&mut self, frame: &Frame<'_>) -> Result<()> {
        self.body.extend(frame.interface.to_le_bytes());
        self.time(frame.time);
        self.body.extend((frame.data.len() as u32).to_le_bytes());
        self.body.extend(frame.length.to_le_bytes());
        self.body.extend(frame.data);
        self.pad();
        for comment in frame.comments {
            self.text(COMMENT, comment);
        }
        self.option(2, &frame.flags.to_le_bytes());
        if frame.lost != 0 {
            self.option(4, &frame.lost.to_le_bytes());
        }
        if let Some(id) = frame.id {
            self.option(5, &id.to_le_bytes());
        }
        if let Some(verdict) = frame.verdict {
            // Kind 0: from hardware.
            self.option(7, &[0, verdict]);
        }
        self.block(PACKET)
    }

    /// Adds the statistics of an interface: packets that came by, and of those the ones lost.
    pub fn statistics(
        &mut self,
        interface: u32,
        time: Nanos,
        received: u64,
        lost: u64,
    ) -> Result<()> {
        self.body.extend(interface.to_le_bytes());
        self.time(time);
        self.option(4, &received.to_le_bytes());
        self.option(5, &lost.to_le_bytes());
        self.block(STATISTICS)
    }

    /// Ends the file.
    pub fn finish(mut self) -> Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    /// High word first, whatever the byte order.
    fn time(&mut self, time: Nanos) {
        self.body.extend(((time.0 >> 32) as u32).to_le_bytes());
        self.body.extend((time.0 as u32).to_le_bytes());
    }

    fn text(&mut self, code: u16, text: &str) {
        if !text.is_empty() {
            // An option is shorter than 64 KiB; a text is cut between two characters.
            self.option(
                code,
                &text.as_bytes()[..text.floor_char_boundary(usize::from(u16::MAX))],
            );
        }
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.body.extend(code.to_le_bytes());
        self.body.extend((value.len() as u16).to_le_bytes());
        self.body.extend(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    /// Writes the body gathered so far as a block; all blocks here have options to be ended.
    fn block(&mut self, kind: u32) -> Result<()> {
        self.body.extend([0; 4]);
        let length = (self.body.len() as u32 + 12).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&length)?;
        self.out.write_all(&self.body)?;
        self.out.write_all(&length)?;
        self.body.clear();
        Ok(())
    }
}

/// What was exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Packets written.
    pub packets: u64,
    /// Of those: without a byte, since their record has no snapshot.
    pub bare: u64,
}

/// The interfaces in the order of their numbers.
const TAPS: [(Port, Tap); 4] = [
    (Port::A, Tap::Ingress),
    (Port::A, Tap::Egress),
    (Port::B, Tap::Ingress),
    (Port::B, Tap::Egress),
];

const fn lane_of(port: Port, tap: Tap) -> Lane {
    match tap {
        Tap::Ingress => port.lane(),
        Tap::Egress => port.other().lane(),
    }
}

/// Exports a capture, up to damage if there is any, in the order of time. `describe` words what
/// an event did to a packet, such as `event 3: drop, connection 0 packet 5, iteration 1`; it is
/// asked for the records that have a slot.
pub fn write(
    capture: &Capture,
    out: impl Write,
    about: &About,
    mut describe: impl FnMut(&Record) -> Option<String>,
) -> Result<Exported> {
    let mut writer = Writer::new(out, about)?;
    let snapshot = capture
        .blocks()
        .next_block()
        .map_or(0, |block| block.header.snapshot_bytes);
    for (port, tap) in TAPS {
        let description = match tap {
            Tap::Ingress => "every frame, as it came in",
            Tap::Egress => "frames that an event touched or made, as they left",
        };
        writer.interface(
            &format!("port {port} {tap}"),
            description,
            about.speed,
            snapshot,
        )?;
    }

    let mut exported = Exported::default();
    let mut records = [0u64; 4];
    let mut next_id: [Option<u32>; 2] = [None; 2];
    let mut comments = Vec::new();
    let mut latest = Nanos::ZERO;
    let mut merged = capture.by_time();
    while let Some(entry) = merged.next_entry() {
        let record = &entry.record;
        let (port, direction) = match record.tap {
            Tap::Ingress => (record.lane.port_in(), Direction::Inbound),
            Tap::Egress => (record.lane.port_out(), Direction::Outbound),
        };
        let interface = port.index() * 2 + record.tap.index();
        records[interface] += 1;
        latest = latest.max(record.time);

        let lost = match record.tap {
            Tap::Ingress => missing(&mut next_id[record.lane.index()], record.packet_id),
            Tap::Egress => 0,
        };
        comments.clear();
        if let Some(slot) = record.slot {
            comments.extend(describe(record).or_else(|| Some(touched(record, slot))));
        }
        if entry.snapshot.is_empty() && record.length != 0 {
            comments.push(facts(record));
            exported.bare += 1;
        }
        exported.packets += 1;
        let error = |flag, bit| if record.flags.contains(flag) { bit } else { 0 };
        writer.packet(&Frame {
            interface: interface as u32,
            time: record.time,
            data: entry.snapshot,
            length: record.length.into(),
            flags: direction as u32
                | error(Flags::ERROR, FLAG_CRC_ERROR)
                | error(Flags::TRUNCATED, FLAG_TOO_LONG),
            id: Some(record.packet_key()),
            lost,
            verdict: (!record.actions.is_empty()).then_some(record.actions.0),
            comments: &comments,
        })?;
    }

    let counters = merged.counters();
    for (interface, (port, tap)) in TAPS.into_iter().enumerate() {
        let (i, lane) = (port.index(), lane_of(port, tap).index());
        let (received, lost) = match tap {
            Tap::Ingress => {
                let lost = u64::from(counters.lost_ingress[i]) + u64::from(counters.rx_lost[i]);
                (counters.rx_frames[i], lost)
            }
            Tap::Egress => {
                let lost = u64::from(counters.lost_egress[lane]);
                (records[interface] + lost, lost)
            }
        };
        writer.statistics(interface as u32, latest, received, lost)?;
    }
    writer.finish()?;
    Ok(exported)
}

/// Packets between the one expected and the one that came.
fn missing(next: &mut Option<u32>, id: u32) -> u64 {
    let ahead = next.map_or(0, |next| id.wrapping_sub(next));
    *next = Some(id.wrapping_add(1));
    // A packet id that goes back says nothing of losses.
    if ahead < 1 << 31 { ahead.into() } else { 0 }
}

/// What the record itself tells of the event that hit.
fn touched(record: &Record, slot: u32) -> String {
    let Record {
        actions, iteration, ..
    } = record;
    match record.connection {
        Some(connection) => {
            format!("slot {slot}: {actions}, connection {connection}, iteration {iteration}")
        }
        None => format!("slot {slot}: {actions}, iteration {iteration}"),
    }
}

/// What the record tells of a frame of which nothing was captured.
fn facts(record: &Record) -> String {
    let mut text = format!("no snapshot; {} {}", record.proto, record.kind);
    if let Some(connection) = record.connection {
        text += &format!(", connection {connection}");
    }
    match record.proto {
        Proto::Tcp => {
            text += &format!(
                ", seq {} ack {} window {} flags {:#04x}",
                record.f0, record.f1, record.f2, record.tcp_flags
            );
        }
        Proto::Roce => {
            text += &format!(", opcode {:#04x} psn {}", record.opcode(), record.psn());
        }
        Proto::Udp | Proto::Other => {}
    }
    text + &format!(", payload {}", record.payload_len)
}
