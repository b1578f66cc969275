// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that the card makes in answer to packets, and how they are laid out in its table.

use crate::row::Row;
use crate::tables::{Entry512, Table};
use midwire_trace::packet::{ROCE_PORT, opcode};
use midwire_trace::{Lane, Proto};
use serde::{Deserialize, Serialize};

/// A frame that is made from a packet and sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Template {
    /// Where it leaves.
    pub toward: Toward,
    /// What it is.
    pub answer: Answer,
}

/// One of the two ends of the packet that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Toward {
    /// Where the packet came from, as if the one it was sent to had answered.
    Sender,
    /// Where the packet goes, as if it came from the same sender.
    Receiver,
}

/// What a frame that is made is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A TCP segment without options and data, of the packet's connection. Packets of other
    /// protocols get no answer.
    Tcp(TcpAnswer),
    /// A RoCEv2 packet between the packet's addresses. Packets of other protocols get no answer.
    Roce(RoceAnswer),
    /// Asks for a pause in sending.
    Pause(Pause),
    /// These bytes, from the destination address on and without FCS.
    Bytes(Vec<u8>),
}

/// A TCP segment. As an answer to the sender it has the packet's acknowledgement number as its sequence
/// number, and acknowledges [`TcpAnswer::number`]; to the receiver it has that as its sequence
/// number, and acknowledges what the packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TcpAnswer {
    /// Flags byte.
    pub flags: u8,
    /// Window.
    pub window: u16,
    /// Which of the packet's numbers counts.
    pub number: SequenceNumber,
}

/// A sequence number that a packet tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SequenceNumber {
    /// Its own.
    First,
    /// The one that follows it.
    Next,
}

/// A RoCEv2 packet with the packet's UDP source port, partition and, but for CNP, PSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RoceAnswer {
    /// What it says.
    pub message: RoceMessage,
    /// Destination queue pair, 24 bits; the packet's own when `None`.
    pub queue_pair: Option<u32>,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
}

/// What a RoCEv2 packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoceMessage {
    /// Acknowledge, also negative.
    Ack {
        /// Of the AETH.
        syndrome: u8,
        /// Message number, 24 bits; the packet's own when `None`, which must then have an AETH.
        msn: Option<u32>,
    },
    /// Congestion notification.
    Cnp,
}

/// Asks for a pause (IEEE 802.3 annex 31B; 802.1Q clause 36).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pause {
    /// Priorities that shall pause, a bit each; all traffic when `None`.
    pub priorities: Option<u8>,
    /// How long, in times of 512 bits; 0 ends it.
    pub quanta: u16,
}

/// Templates that a card holds, and rows of 64 bytes for them.
const TEMPLATES: usize = 64;
const BYTE_ROWS: usize = 512 - 2 * TEMPLATES;
const BYTES: usize = 64;
const MAX_STEPS: usize = 24;
const SHORTEST: usize = 14;
const LONGEST: usize = 2047;

const TTL: u8 = 64;
const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_HEADER: u16 = 20;
const BTH: u16 = 12;
const ICRC: u16 = 4;
/// MigReq: the path is the one in use, as it is of a queue pair that knows only one.
const MIGRATED: u8 = 0x40;
const BECN: u8 = 0x40;
const PAUSE_ADDRESS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0x01];
const MAC_CONTROL: [u8; 2] = [0x88, 0x08];
const OPCODE_PAUSE: [u8; 2] = [0, 1];
const OPCODE_PRIORITY_PAUSE: [u8; 2] = [1, 1];

type Checked<T> = std::result::Result<T, String>;

/// Where bytes of a packet are taken from.
#[derive(Clone, Copy)]
enum From {
    Frame = 0,
    Ip = 1,
    Transport = 2,
}

/// What a row of a template says: steps, and the bytes that are its own.
#[derive(Default, PartialEq)]
struct Layout {
    steps: Vec<u16>,
    bytes: Vec<u8>,
    /// Of the pseudo header, but for the addresses.
    sum: u16,
}

impl Layout {
    /// Bytes of its own.
    fn own(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let bytes = bytes.as_ref();
        self.steps.push(1 | (bytes.len() as u16) << 2);
        self.bytes.extend(bytes);
        self
    }

    /// Bytes of the packet.
    fn seen(&mut self, from: From, offset: u16, bytes: u16) -> &mut Self {
        self.steps
            .push(2 | (from as u16) << 2 | (bytes - 1) << 4 | offset << 9);
        self
    }

    fn work(&mut self, what: u16) -> &mut Self {
        self.steps.push(3 | what << 2);
        self
    }
    fn tags(&mut self) -> &mut Self {
        self.work(0)
    }
    fn ip_begins(&mut self) -> &mut Self {
        self.work(1)
    }
    fn transport_begins(&mut self) -> &mut Self {
        self.work(2)
    }
    fn next_number(&mut self) -> &mut Self {
        self.work(3)
    }
    fn ip_checksum(&mut self) -> &mut Self {
        self.work(4)
    }
    fn transport_checksum(&mut self) -> &mut Self {
        self.work(5)
    }
    fn icrc(&mut self) -> &mut Self {
        self.work(6)
    }

    /// Link layer and IP headers for `length` bytes of transport.
    fn head(&mut self, ip6: bool, toward: Toward, protocol: u8, class: u8, length: u16) {
        match toward {
            Toward::Sender => self.seen(From::Frame, 6, 6).seen(From::Frame, 0, 6),
            Toward::Receiver => self.seen(From::Frame, 0, 12),
        };
        self.tags().ip_begins();
        let (addresses, size) = if ip6 {
            let [high, low] = length.to_be_bytes();
            let (class_high, class_low) = (class >> 4, class << 4);
            self.own([0x60 | class_high, class_low, 0, 0, high, low, protocol, TTL]);
            (8, 16)
        } else {
            let [high, low] = (20 + length).to_be_bytes();
            // Identification 0, don't fragment (RFC 6864).
            self.own([0x45, class, high, low, 0, 0, 0x40, 0, TTL, protocol])
                .ip_checksum();
            (12, 4)
        };
        self.in_direction(toward, From::Ip, addresses, size)
            .transport_begins();
        self.sum = u16::from(protocol) + length;
    }

    /// Two things of the packet that stand one behind the other, the sender's first.
    fn in_direction(&mut self, toward: Toward, from: From, at: u16, size: u16) -> &mut Self {
        match toward {
            Toward::Sender => self.seen(from, at + size, size).seen(from, at, size),
            Toward::Receiver => self.seen(from, at, 2 * size),
        }
    }

    fn tcp(ip6: bool, toward: Toward, answer: &TcpAnswer) -> Self {
        const SEQUENCE: u16 = 4;
        const ACKNOWLEDGED: u16 = 8;
        let mut layout = Self::default();
        layout.head(ip6, toward, TCP, 0, TCP_HEADER);
        layout.in_direction(toward, From::Transport, 0, 2);
        let number = |layout: &mut Self| {
            match answer.number {
                SequenceNumber::First => layout.seen(From::Transport, SEQUENCE, 4),
                SequenceNumber::Next => layout.next_number(),
            };
        };
        match toward {
            Toward::Sender => {
                layout.seen(From::Transport, ACKNOWLEDGED, 4);
                number(&mut layout);
            }
            Toward::Receiver => {
                number(&mut layout);
                layout.seen(From::Transport, ACKNOWLEDGED, 4);
            }
        }
        let [high, low] = answer.window.to_be_bytes();
        layout
            .own([0x50, answer.flags, high, low])
            .transport_checksum()
            .own([0, 0]);
        layout
    }

    fn roce(ip6: bool, toward: Toward, answer: &RoceAnswer) -> Self {
        // In the packet's BTH, behind UDP.
        const PARTITION: u16 = 8 + 2;
        const QUEUE_PAIR: u16 = 8 + 5;
        const PSN: u16 = 8 + 9;
        const MSN: u16 = 8 + 12 + 1;
        let three = |number: u32| {
            let [_, bytes @ ..] = number.to_be_bytes();
            bytes
        };
        let (code, becn, extension) = match answer.message {
            RoceMessage::Ack { .. } => (opcode::ACK, 0, 4),
            RoceMessage::Cnp => (opcode::CNP, BECN, 16),
        };
        let length = 8 + BTH + extension + ICRC;
        let [high, low] = length.to_be_bytes();
        let [port_high, port_low] = ROCE_PORT.to_be_bytes();
        let mut layout = Self::default();
        layout.head(ip6, toward, UDP, answer.traffic_class, length);
        layout
            .seen(From::Transport, 0, 2)
            .own([port_high, port_low, high, low, 0, 0, code, MIGRATED])
            .seen(From::Transport, PARTITION, 2)
            .own([becn]);
        match answer.queue_pair {
            Some(number) => layout.own(three(number)),
            None => layout.seen(From::Transport, QUEUE_PAIR, 3),
        };
        layout.own([0]);
        match answer.message {
            RoceMessage::Ack { syndrome, msn } => {
                layout.seen(From::Transport, PSN, 3).own([syndrome]);
                match msn {
                    Some(number) => layout.own(three(number)),
                    None => layout.seen(From::Transport, MSN, 3),
                };
            }
            RoceMessage::Cnp => {
                layout.own([0; 3 + 16]);
            }
        }
        layout.icrc();
        layout
    }

    fn pause(toward: Toward, pause: &Pause) -> Self {
        let mut layout = Self::default();
        layout.own(PAUSE_ADDRESS);
        // From the address of the one at the other end of the link's traffic.
        match toward {
            Toward::Sender => layout.seen(From::Frame, 0, 6),
            Toward::Receiver => layout.seen(From::Frame, 6, 6),
        };
        let quanta = pause.quanta.to_be_bytes();
        match pause.priorities {
            None => layout.own([MAC_CONTROL, OPCODE_PAUSE, quanta].concat()),
            Some(priorities) => {
                let times = (0..8).map(|n| match priorities >> n & 1 {
                    0 => [0; 2],
                    _ => quanta,
                });
                let head = [MAC_CONTROL, OPCODE_PRIORITY_PAUSE, [0, priorities]];
                layout.own(head.into_iter().chain(times).flatten().collect::<Vec<u8>>())
            }
        };
        layout
    }

    /// Rows of its own bytes.
    fn rows(&self) -> impl ExactSizeIterator<Item = Row> + '_ {
        self.bytes.chunks(BYTES).map(|chunk| {
            let bytes = chunk.iter().enumerate();
            bytes.fold(Row::default(), |row, (n, &byte)| {
                row.with(8 * n, 8, byte.into())
            })
        })
    }

    /// The row of a valid template whose own bytes begin in row `first`.
    fn row(&self, first: usize) -> Row {
        debug_assert!(self.steps.len() <= MAX_STEPS);
        let row = Row::default()
            .with_bit(0, true)
            .with(6, 16, self.sum.into())
            .with(22, 9, first as u128);
        let steps = self.steps.iter().enumerate();
        steps.fold(row, |row, (n, &step)| {
            row.with(128 + 16 * n, 16, step.into())
        })
    }
}

impl Template {
    /// Whether a card holds all of these; of the first one that it can't have, the number and why.
    pub fn fit(templates: &[Self]) -> std::result::Result<(), (usize, String)> {
        rows(templates).map(|_| ())
    }

    fn check(&self) -> Checked<()> {
        let three = |name: &str, number: Option<u32>| match number {
            Some(number) if number >= 1 << 24 => Err(format!("{name} {number} is not below 2^24")),
            _ => Ok(()),
        };
        match &self.answer {
            Answer::Roce(roce) => {
                three("queue pair", roce.queue_pair)?;
                match roce.message {
                    RoceMessage::Ack { msn, .. } => three("message number", msn),
                    RoceMessage::Cnp => Ok(()),
                }
            }
            Answer::Pause(Pause {
                priorities: Some(0),
                ..
            }) => Err("a pause of no priority asks for nothing".into()),
            Answer::Bytes(bytes) if !(SHORTEST..=LONGEST).contains(&bytes.len()) => Err(format!(
                "a frame of {} bytes is not in {SHORTEST} to {LONGEST}",
                bytes.len()
            )),
            _ => Ok(()),
        }
    }

    fn layout(&self, ip6: bool) -> Layout {
        match &self.answer {
            Answer::Tcp(answer) => Layout::tcp(ip6, self.toward, answer),
            Answer::Roce(answer) => Layout::roce(ip6, self.toward, answer),
            Answer::Pause(pause) => Layout::pause(self.toward, pause),
            Answer::Bytes(bytes) => {
                let mut layout = Layout::default();
                layout.own(bytes);
                layout
            }
        }
    }

    /// Bit n admits packets of protocol n.
    fn protos(&self) -> u128 {
        match self.answer {
            Answer::Tcp(_) => 1 << Proto::Tcp as u8,
            Answer::Roce(_) => 1 << Proto::Roce as u8,
            Answer::Pause(_) | Answer::Bytes(_) => 0xf,
        }
    }
}

/// Rows of all templates: the bytes before what names them. Of a template that cannot be had, its
/// number and why.
pub(crate) fn rows(templates: &[Template]) -> std::result::Result<Vec<Entry512>, (usize, String)> {
    let entry = |index: usize, row: Row| Entry512 {
        table: Table::Template,
        lane: Lane::AtoB,
        index: index as u32,
        row,
    };
    let mut bytes = Vec::new();
    let mut heads = Vec::with_capacity(2 * templates.len());
    for (number, template) in templates.iter().enumerate() {
        let wrong = |reason| (number, reason);
        if number >= TEMPLATES {
            return Err(wrong(format!("the card holds {TEMPLATES} templates")));
        }
        template.check().map_err(wrong)?;
        let mut before = None;
        for ip6 in [false, true] {
            let layout = template.layout(ip6);
            if before.as_ref() != Some(&layout) {
                bytes.extend(layout.rows());
                if bytes.len() > BYTE_ROWS {
                    return Err(wrong(format!(
                        "needs more bytes than the {BYTE_ROWS} rows of {BYTES} that the card holds"
                    )));
                }
            }
            let first = 2 * TEMPLATES + bytes.len() - layout.rows().len();
            heads.push(entry(
                2 * number + usize::from(ip6),
                layout
                    .row(first)
                    .with(1, 4, template.protos())
                    .with_bit(5, template.toward == Toward::Sender),
            ));
            before = Some(layout);
        }
    }
    let bytes = (2 * TEMPLATES..).zip(bytes);
    let mut rows: Vec<_> = bytes.map(|(index, row)| entry(index, row)).collect();
    rows.append(&mut heads);
    Ok(rows)
}

#[cfg(test)]
#[path = "template_test.rs"]
mod tests;
