// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the card is to do: which connections it follows and what happens at which of their
//! positions. A [`Program`] is checked and turned into table rows as a whole, so that a card
//! gets either all of it or nothing.

use crate::card::CardInfo;
use crate::error::{Error, Result};
use crate::hash::Placement;
use crate::row::Row;
use crate::rule::Rule;
use crate::tables::{Entry512, Refusal, Table, Tables, canonical, trigger};
use crate::template::{self, Template};
use crate::types::{IpVersion, Transport};
use midwire_trace::{Kind, Lane, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// Which connections are followed, and what happens to their packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// A connection is followed when one of these admits the packet that opens it.
    pub selectors: Vec<Selector>,
    /// RoCE connections known beforehand. Number `i` of them is connection
    /// [`CardInfo::declared_number`]`(i)`, or `i` when nothing is learnt, for want of selectors.
    pub declared: Vec<DeclaredConnection>,
    /// What happens where.
    pub positions: Vec<PositionEvents>,
    /// What happens to packets of some kind. Of several rules that hit a packet the earlier come
    /// first, and all of them behind `positions`.
    pub rules: Vec<Rule>,
    /// Frames that are made in answer to packets.
    #[serde(default)]
    pub templates: Vec<Template>,
    /// A packet that waits until others have overtaken it leaves after this time at the latest;
    /// [`Program::REORDER_TIMEOUT`] when `None`.
    #[serde(default)]
    pub reorder_timeout: Option<Nanos>,
}

/// Admits connections by the packet that opens them: TCP's SYN, RoCE's first packet. What is
/// `None` may be anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector {
    /// TCP or RoCEv2.
    pub transport: Transport,
    /// The lane that the opening packet takes.
    pub lane: Option<Lane>,
    /// IP version; that of a prefix when there is one.
    pub ip: Option<IpVersion>,
    /// Source address.
    pub source: Option<Prefix>,
    /// Destination address.
    pub destination: Option<Prefix>,
    /// Source port, TCP or UDP.
    pub source_port: Option<u16>,
    /// TCP destination port, or RoCE destination queue pair (24 bits).
    pub destination_port: Option<u32>,
}

impl Selector {
    /// Admits every connection of a transport.
    pub fn any(transport: Transport) -> Self {
        Self {
            transport,
            lane: None,
            ip: None,
            source: None,
            destination: None,
            source_port: None,
            destination_port: None,
        }
    }
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// An address in it.
    pub address: IpAddr,
    /// Leading bits that count.
    pub length: u8,
}

impl From<IpAddr> for Prefix {
    /// The one address.
    fn from(address: IpAddr) -> Self {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }
}

/// One direction of a RoCE queue pair, declared instead of learnt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredConnection {
    /// Lane that its packets take.
    pub lane: Lane,
    /// Their source address.
    pub source: IpAddr,
    /// Their destination address.
    pub destination: IpAddr,
    /// Their destination queue pair, 24 bits.
    pub queue_pair: u32,
    /// PSN of position 0; that of the first data or read request when `None`.
    pub first_psn: Option<u32>,
}

/// A position of a connection and what happens there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionEvents {
    /// The lane of the packets.
    pub lane: Lane,
    /// Number of the connection.
    pub connection: u16,
    /// The position.
    pub at: Position,
    /// What happens at which iteration; ranges must not overlap. Without clauses the card
    /// counts the packets of the position.
    pub clauses: Vec<Clause>,
}

impl PositionEvents {
    /// One action, at every iteration.
    pub fn always(lane: Lane, connection: u16, at: Position, action: Action) -> Self {
        let clause = Clause {
            first: 1,
            last: None,
            armed_by: None,
            action,
        };
        Self {
            lane,
            connection,
            at,
            clauses: vec![clause],
        }
    }
}

/// Where in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// The n-th packet of a kind, from 1. TCP data: the n-th segment of new data, and every
    /// later one that covers its first byte.
    Nth {
        /// The kind.
        kind: Kind,
        /// From 1.
        n: u32,
    },
    /// TCP: the segments that cover this byte, counted from 0 behind the SYN.
    Byte(u64),
    /// RoCE: data or read request with this PSN, relative to the first.
    Psn(u32),
}

/// A range of iterations and what happens to their packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clause {
    /// First iteration, from 1.
    pub first: u8,
    /// Last iteration, at most 254; `None` for all from `first` on.
    pub last: Option<u8>,
    /// Trigger that has to be armed, below 64. While it is not, the next clause whose range holds
    /// the iteration counts.
    pub armed_by: Option<u8>,
    /// What happens.
    pub action: Action,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Action {
    /// It is lost.
    pub drop: bool,
    /// Its ECN field becomes this.
    pub ecn: Option<Ecn>,
    /// One byte of it changes.
    pub corrupt: Option<Corrupt>,
    /// It is held back for this time.
    pub delay: Option<Nanos>,
    /// Up to 8 bytes of it are rewritten.
    pub set: Option<Set>,
    /// So many bytes of it are kept, without FCS.
    pub truncate: Option<u16>,
    /// Checksums that it leaves with wrong.
    pub broken: Broken,
    /// Checksums in which `set` and `corrupt` are made good.
    pub mended: Mended,
    /// Later packets overtake it.
    pub reorder: Option<Reorder>,
    /// It is sent more than once.
    pub duplicate: Option<Duplicate>,
    /// A frame is made from it, as it came, and sent: index in [`Program::templates`]. It counts
    /// for a packet that is dropped, too.
    pub inject: Option<u8>,
    /// Trigger that it arms, below 64.
    pub arm: Option<u8>,
    /// Trigger that it disarms, below 64.
    pub disarm: Option<u8>,
}

/// Value of the ECN field (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ecn {
    /// The transport does not speak ECN.
    NotEct = 0,
    /// ECT(1).
    Ect1 = 1,
    /// ECT(0).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

/// A change of one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Corrupt {
    /// Where counting begins.
    pub base: Base,
    /// Bytes from there, at most 4095.
    pub offset: u16,
    /// XORed into the byte; not 0.
    pub mask: u8,
}

/// A rewrite of some bits of 8 bytes. Those that lie behind the end of the frame are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Set {
    /// Where counting begins.
    pub base: Base,
    /// Bytes from there, at most 4095.
    pub offset: u16,
    /// Bits that change, in the frame's order; not all 0.
    pub mask: [u8; 8],
    /// What these bits become; 0 elsewhere.
    pub value: [u8; 8],
    /// Where they lie in an IPv6 packet.
    #[serde(default)]
    pub ip6: Ip6Place,
}

/// Where bits of the IP header lie in IPv6, against IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ip6Place {
    /// In the same place.
    #[default]
    Same = 0,
    /// 4 bits before: the traffic class.
    NibbleBefore = 1,
    /// 8 bits before: the hop limit.
    ByteBefore = 2,
}

/// Where an offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// First byte of the frame.
    Frame,
    /// First byte of the IP header.
    Ip,
    /// First byte of the TCP or UDP header.
    Transport,
    /// First byte of the payload.
    Payload,
}

/// Checksums that a packet leaves with wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Broken {
    /// The frame's.
    pub fcs: bool,
    /// That of the IPv4 header.
    pub ip: bool,
    /// TCP's or UDP's.
    pub transport: bool,
    /// RoCE's invariant CRC.
    pub icrc: bool,
}

/// Checksums in which a change is made good. One that was wrong stays wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Mended {
    /// That of the IPv4 header.
    pub ip: bool,
    /// TCP's or UDP's.
    pub transport: bool,
    /// RoCE's invariant CRC.
    pub icrc: bool,
}

/// Later packets go before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reorder {
    /// So many, from 1.
    pub packets: u16,
    /// Whose.
    pub of: ReorderScope,
}

/// Whose packets a [`Reorder`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReorderScope {
    /// Of the packet's connection, in its direction.
    Connection,
    /// Of the whole lane.
    Lane,
}

/// Copies of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Duplicate {
    /// How many besides the packet itself, from 1.
    pub copies: u8,
    /// Time between the packet and its first copy, and between copies, below 2^32 ns.
    pub gap: Nanos,
}

/// What a card made of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    /// Slot of each position, in the program's order.
    pub slots: Vec<SlotId>,
    /// That of each rule.
    pub rules: Vec<SlotId>,
    /// Number of each declared connection, in the program's order.
    pub declared: Vec<u16>,
}

/// Names a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlotId {
    /// The lane whose slot it is.
    pub lane: Lane,
    /// Its number there, as in the records.
    pub slot: u32,
}

/// A program as the card takes it: rows in the order in which they must be written.
#[derive(Debug)]
pub(crate) struct Image {
    pub rows: Vec<Entry512>,
    /// What of them can change while the card runs.
    pub tables: Tables,
    pub reorder_timeout_ns: u32,
    pub loaded: Loaded,
}

const MAX_DELAY: u64 = (1 << 40) - 1;
const MAX_OFFSET: u16 = (1 << 12) - 1;
const MAX_FRAME: u16 = 10240;
const MAX_GAP: u64 = u32::MAX as u64;
const QUEUE_PAIRS: u32 = 1 << 24;

pub(crate) const FLOW_KEY: usize = 299;

pub(crate) fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u32::from(a).into(),
        IpAddr::V6(a) => u128::from(a),
    }
}

pub(crate) fn address_from(bits: u128, ip6: bool) -> IpAddr {
    if ip6 {
        IpAddr::V6(Ipv6Addr::from(bits))
    } else {
        IpAddr::V4((bits as u32).into())
    }
}

fn wrong(entry: &str, index: usize) -> impl Fn(String) -> Error {
    let entry = format!("{entry} {index}");
    move |reason| Error::Program {
        entry: entry.clone(),
        reason,
    }
}

impl Program {
    /// How long a packet waits for others to overtake it when the program does not say.
    pub const REORDER_TIMEOUT: Nanos = Nanos::from_millis(100);

    /// Checks the program against the card and lays out its tables.
    pub(crate) fn compile(&self, card: &CardInfo) -> Result<Image> {
        let mut image = Image {
            rows: Vec::new(),
            tables: Tables::new(card, self.templates.len()),
            reorder_timeout_ns: self.reorder_timeout_ns()?,
            loaded: Loaded {
                slots: Vec::with_capacity(self.positions.len()),
                rules: Vec::with_capacity(self.rules.len()),
                declared: Vec::with_capacity(self.declared.len()),
            },
        };
        self.selectors(card, &mut image)?;
        let templates = template::rows(&self.templates);
        let templates = templates.map_err(|(index, reason)| wrong("template", index)(reason))?;
        image.rows.extend(templates);
        self.declared(card, &mut image)?;
        self.positions(&mut image)?;
        self.rules(&mut image)?;
        image.rows.extend(image.tables.rows());
        Ok(image)
    }

    fn reorder_timeout_ns(&self) -> Result<u32> {
        let timeout = self.reorder_timeout.unwrap_or(Self::REORDER_TIMEOUT);
        u32::try_from(timeout.0).map_err(|_| Error::Program {
            entry: "reorder time-out".into(),
            reason: format!("{timeout} is above {}", Nanos(u32::MAX.into())),
        })
    }

    /// Rows of all selectors of the card: those that the program leaves free are disabled.
    fn selectors(&self, card: &CardInfo, image: &mut Image) -> Result<()> {
        if self.selectors.len() > card.selectors as usize {
            return Err(wrong("selector", card.selectors as usize)(format!(
                "the card has {} selectors, the program has {}",
                card.selectors,
                self.selectors.len()
            )));
        }
        for index in 0..card.selectors as usize {
            let (value, mask) = match self.selectors.get(index) {
                Some(selector) => selector.rows().map_err(wrong("selector", index))?,
                None => Default::default(),
            };
            // The mask first: a value with its enable bit never meets an old mask.
            for (part, row) in [(1, mask), (0, value)] {
                image.rows.push(Entry512 {
                    table: Table::Selector,
                    lane: Lane::AtoB,
                    index: (index as u32) << 1 | part,
                    row,
                });
            }
        }
        Ok(())
    }

    fn declared(&self, card: &CardInfo, image: &mut Image) -> Result<()> {
        let mut flows = Placement::new(card.ways, card.flow_rows_log2);
        let mut rows = Vec::with_capacity(self.declared.len());
        let mut seen = HashMap::new();
        for (index, connection) in self.declared.iter().enumerate() {
            let wrong = wrong("declared connection", index);
            let key = connection.key().map_err(&wrong)?;
            let number = match self.selectors.is_empty() {
                true => u16::try_from(index)
                    .ok()
                    .filter(|n| u32::from(*n) < card.connections),
                false => card.declared_number(index),
            };
            let number = number.ok_or_else(|| {
                wrong(format!("the card follows {} connections", card.connections))
            })?;
            if let Some(first) = seen.insert(key, index) {
                return Err(wrong(format!("is the same as declared connection {first}")));
            }
            if flows.insert(key).is_none() {
                return Err(Error::TableFull {
                    table: "flow",
                    fit: index,
                    asked: self.declared.len(),
                });
            }
            let lane = connection.lane;
            let key_row = connection.key_row();
            image.rows.push(Entry512 {
                table: Table::Connection,
                lane: Lane::AtoB,
                index: number.into(),
                row: connection.connection_row(&key_row),
            });
            image.loaded.declared.push(number);
            rows.push((lane, key_row.with(299, 16, number.into())));
        }
        for (index, entry) in flows.cells() {
            image.rows.push(Entry512 {
                table: Table::Flow,
                lane: Lane::AtoB,
                index,
                row: rows[entry].1.with_bit(347, true).with_bit(348, true),
            });
        }
        Ok(())
    }

    fn positions(&self, image: &mut Image) -> Result<()> {
        let mut places = HashMap::new();
        for (index, position) in self.positions.iter().enumerate() {
            let wrong = wrong("position", index);
            let place = (position.lane, position.connection, canonical(position.at));
            if let Some(first) = places.insert(place, index) {
                return Err(wrong(format!(
                    "is the same position as position {first}; put their clauses together"
                )));
            }
            let slot = image
                .tables
                .add(position)
                .map_err(|refusal| match refusal {
                    Refusal::Wrong(reason) => wrong(reason),
                    Refusal::Full(table, fit) => Error::TableFull {
                        table,
                        fit,
                        asked: self.wanting(table, position.lane),
                    },
                })?;
            image.loaded.slots.push(SlotId {
                lane: position.lane,
                slot,
            });
        }
        Ok(())
    }

    /// Positions of a lane that want a row of a table.
    fn wanting(&self, table: &str, lane: Lane) -> usize {
        let wants = |position: &&PositionEvents| {
            let byte = matches!(position.at, Position::Byte(_));
            position.lane == lane
                && match table {
                    "page" => byte,
                    "exact" => !byte,
                    _ => true,
                }
        };
        self.positions.iter().filter(wants).count()
    }

    fn rules(&self, image: &mut Image) -> Result<()> {
        for (index, rule) in self.rules.iter().enumerate() {
            let slot = image
                .tables
                .add_rule(rule)
                .map_err(|refusal| match refusal {
                    Refusal::Wrong(reason) => wrong("rule", index)(reason),
                    Refusal::Full(table, fit) => {
                        let of_lane = |other: &&Rule| other.lane == rule.lane;
                        let asked = self.rules.iter().filter(of_lane).count();
                        Error::TableFull { table, fit, asked }
                    }
                })?;
            image.loaded.rules.push(SlotId {
                lane: rule.lane,
                slot,
            });
        }
        Ok(())
    }
}

impl Selector {
    /// Value and mask.
    fn rows(&self) -> std::result::Result<(Row, Row), String> {
        let mut ip = self.ip;
        for prefix in [self.source, self.destination].into_iter().flatten() {
            let version = IpVersion::of(prefix.address);
            if ip.is_some_and(|ip| ip != version) {
                return Err("IPv4 and IPv6 do not go together".into());
            }
            ip = Some(version);
        }
        let mut value = Row::default()
            .with(297, 2, self.transport.bits())
            .with_bit(300, true);
        let mut mask = Row::default().with(297, 2, 3);
        if let Some(ip) = ip {
            value = value.with_bit(296, ip == IpVersion::V6);
            mask = mask.with_bit(296, true);
        }
        if let Some(lane) = self.lane {
            value = value.with_bit(299, lane == Lane::BtoA);
            mask = mask.with_bit(299, true);
        }
        for (low, prefix) in [(168, self.source), (40, self.destination)] {
            if let Some(prefix) = prefix {
                let bits = prefix.mask()?;
                value = value.with(low, 128, address_bits(prefix.address) & bits);
                mask = mask.with(low, 128, bits);
            }
        }
        if let Some(port) = self.source_port {
            value = value.with(24, 16, port.into());
            mask = mask.with(24, 16, 0xffff);
        }
        if let Some(port) = self.destination_port {
            let limit = match self.transport {
                Transport::Tcp => 1 << 16,
                Transport::Roce => QUEUE_PAIRS,
            };
            if port >= limit {
                return Err(format!("destination {port} is not below {limit}"));
            }
            value = value.with(0, 24, port.into());
            mask = mask.with(0, 24, 0xff_ffff);
        }
        Ok((value, mask))
    }
}

impl Prefix {
    fn mask(&self) -> std::result::Result<u128, String> {
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        if self.length > width {
            return Err(format!(
                "prefix length {} is above {width} in {}/{0}",
                self.length, self.address
            ));
        }
        let host = u32::from(width - self.length);
        let all = u128::MAX >> (128 - u32::from(width));
        Ok(all & u128::MAX.checked_shl(host).unwrap_or(0))
    }
}

impl DeclaredConnection {
    fn key(&self) -> std::result::Result<crate::hash::Key, String> {
        if self.source.is_ipv4() != self.destination.is_ipv4() {
            return Err("source and destination are not of one IP version".into());
        }
        if self.queue_pair >= QUEUE_PAIRS {
            return Err(format!("queue pair {} is not below 2^24", self.queue_pair));
        }
        if self.first_psn.is_some_and(|psn| psn >= 1 << 24) {
            return Err("the first PSN is not below 2^24".into());
        }
        Ok(self.key_row().key(FLOW_KEY))
    }

    fn key_row(&self) -> Row {
        Row::default()
            .with(0, 24, self.queue_pair.into())
            .with(40, 128, address_bits(self.destination))
            .with(168, 128, address_bits(self.source))
            .with_bit(296, self.source.is_ipv6())
            .with(297, 2, Transport::Roce.bits())
    }

    fn connection_row(&self, key: &Row) -> Row {
        let lane = self.lane.index();
        let mut row = Row::default()
            .with_bit(0, true)
            .with_bit(67, self.lane == Lane::BtoA)
            .with(69, 128, key.get(0, 128))
            .with(197, 128, key.get(128, 128))
            .with(325, 43, key.get(256, 43));
        if let Some(psn) = self.first_psn {
            row = row
                .with(1 + 32 * lane, 32, psn.into())
                .with_bit(65 + lane, true);
        }
        row
    }
}

impl Action {
    /// Nothing happens.
    pub const NOTHING: Self = Self {
        drop: false,
        ecn: None,
        corrupt: None,
        delay: None,
        set: None,
        truncate: None,
        broken: Broken {
            fcs: false,
            ip: false,
            transport: false,
            icrc: false,
        },
        mended: Mended {
            ip: false,
            transport: false,
            icrc: false,
        },
        reorder: None,
        duplicate: None,
        inject: None,
        arm: None,
        disarm: None,
    };

    /// Whether the card can do it; the program has so many templates.
    pub(crate) fn check(&self, templates: usize) -> std::result::Result<(), String> {
        if let Some(delay) = self.delay
            && !(1..=MAX_DELAY).contains(&delay.0)
        {
            return Err(format!(
                "a delay of {} ns is not in 1 to {MAX_DELAY}",
                delay.0
            ));
        }
        if let Some(corrupt) = self.corrupt {
            if corrupt.offset > MAX_OFFSET {
                return Err(format!(
                    "corrupt offset {} is above {MAX_OFFSET}",
                    corrupt.offset
                ));
            }
            if corrupt.mask == 0 {
                return Err("corrupt mask 0 changes nothing".into());
            }
        }
        if let Some(set) = self.set {
            if set.offset > MAX_OFFSET {
                return Err(format!("set offset {} is above {MAX_OFFSET}", set.offset));
            }
            if set.mask == [0; 8] {
                return Err("set mask 0 changes nothing".into());
            }
            if (set.mask.iter().zip(set.value)).any(|(mask, value)| value & !mask != 0) {
                return Err("the value of set has bits outside its mask".into());
            }
            if set.ip6 != Ip6Place::Same && set.base != Base::Ip {
                return Err("only bits of the IP header have another place in IPv6".into());
            }
            if set.ip6 == Ip6Place::NibbleBefore && set.mask[7] & 0x0f != 0 {
                return Err(
                    "of bits that lie a nibble before, the last 4 of 64 can't be set".into(),
                );
            }
        }
        if let Some(bytes) = self.truncate
            && !(1..=MAX_FRAME).contains(&bytes)
        {
            return Err(format!(
                "truncation to {bytes} bytes is not in 1 to {MAX_FRAME}"
            ));
        }
        if self.reorder.is_some_and(|reorder| reorder.packets == 0) {
            return Err("a packet that none overtakes is not reordered".into());
        }
        if let Some(duplicate) = self.duplicate {
            if duplicate.copies == 0 {
                return Err("0 copies duplicate nothing".into());
            }
            if duplicate.gap.0 > MAX_GAP {
                return Err(format!(
                    "a gap of {} ns is above {MAX_GAP}",
                    duplicate.gap.0
                ));
            }
        }
        for number in [self.arm, self.disarm].into_iter().flatten() {
            trigger(number)?;
        }
        if let Some(inject) = self.inject
            && usize::from(inject) >= templates
        {
            return Err(format!(
                "there is no template {inject}, the program has {templates}"
            ));
        }
        Ok(())
    }

    pub(crate) fn row(&self) -> Row {
        let mut row = Row::default()
            .with_bit(0, self.drop)
            .with_bit(1, self.ecn.is_some())
            .with_bit(2, self.corrupt.is_some())
            .with_bit(3, self.delay.is_some());
        if let Some(delay) = self.delay {
            row = row.with(4, 40, delay.0.into());
        }
        if let Some(corrupt) = self.corrupt {
            row = row
                .with(44, 2, corrupt.base as u128)
                .with(46, 12, corrupt.offset.into())
                .with(58, 8, corrupt.mask.into());
        }
        if let Some(ecn) = self.ecn {
            row = row.with(66, 2, ecn as u128);
        }
        if let Some(set) = self.set {
            row = row
                .with_bit(68, true)
                .with(69, 2, set.base as u128)
                .with(71, 12, set.offset.into())
                .with(83, 64, u64::from_le_bytes(set.mask).into())
                .with(147, 64, u64::from_le_bytes(set.value).into())
                .with(315, 2, set.ip6 as u128);
        }
        if let Some(bytes) = self.truncate {
            row = row.with_bit(211, true).with(212, 14, bytes.into());
        }
        row = row
            .with_bit(226, self.broken.fcs)
            .with_bit(227, self.broken.ip)
            .with_bit(228, self.broken.transport)
            .with_bit(229, self.broken.icrc)
            .with_bit(230, self.mended.ip)
            .with_bit(231, self.mended.transport)
            .with_bit(232, self.mended.icrc);
        if let Some(reorder) = self.reorder {
            row = row
                .with_bit(233, true)
                .with_bit(234, reorder.of == ReorderScope::Lane)
                .with(235, 16, reorder.packets.into());
        }
        if let Some(duplicate) = self.duplicate {
            row = row
                .with_bit(251, true)
                .with(252, 8, duplicate.copies.into())
                .with(260, 32, duplicate.gap.0.into());
        }
        if let Some(template) = self.inject {
            row = row.with_bit(292, true).with(293, 8, template.into());
        }
        if let Some(trigger) = self.arm {
            row = row.with_bit(301, true).with(302, 6, trigger.into());
        }
        if let Some(trigger) = self.disarm {
            row = row.with_bit(308, true).with(309, 6, trigger.into());
        }
        row
    }
}

#[cfg(test)]
#[path = "program_test.rs"]
mod tests;
