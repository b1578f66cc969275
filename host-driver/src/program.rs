// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the card is to do: which connections it follows and what happens at which of their
//! positions. A [`Program`] is checked and turned into table rows as a whole, so that a card
//! gets either all of it or nothing.

use crate::card::CardInfo;
use crate::error::{Error, Result};
use crate::hash::Placement;
use crate::row::Row;
use crate::types::{IpVersion, Transport};
use midwire_trace::{Kind, Lane, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};

/// Which connections are followed, and what happens to their packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// A connection is followed when one of these admits the packet that opens it.
    pub selectors: Vec<Selector>,
    /// RoCE connections known beforehand. Number `i` of them is connection
    /// [`CardInfo::declared_number`]`(i)`.
    pub declared: Vec<DeclaredConnection>,
    /// What happens where.
    pub positions: Vec<PositionEvents>,
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
    /// A frame is made from it and sent: index of the template.
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

/// Numbers of the tables, docs/tables.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Exact = 0,
    Page = 1,
    Slot = 2,
    State = 3,
    Action = 4,
    Selector = 5,
    Connection = 6,
    Flow = 7,
}

/// A row and where it belongs.
#[derive(Clone, Debug)]
pub(crate) struct Entry512 {
    pub table: Table,
    pub lane: Lane,
    pub index: u32,
    pub row: Row,
}

/// A program as the card takes it: rows in the order in which they must be written.
#[derive(Debug)]
pub(crate) struct Image {
    pub rows: Vec<Entry512>,
    /// Registers kinds_ab and kinds_ba.
    pub kinds: [u32; 2],
    pub reorder_timeout_ns: u32,
    pub loaded: Loaded,
}

const MAX_CLAUSES: usize = 4;
const MAX_ITERATION: u8 = 254;
const WITHOUT_END: u8 = 255;
const MAX_BYTE: u64 = (1 << 48) - 1;
const MAX_DELAY: u64 = (1 << 40) - 1;
const MAX_OFFSET: u16 = (1 << 12) - 1;
const MAX_FRAME: u16 = 10240;
const MAX_GAP: u64 = u32::MAX as u64;
const TRIGGERS: u8 = 64;
const QUEUE_PAIRS: u32 = 1 << 24;
const KINDS_PAGES: u32 = 1 << 16;

const EXACT_KEY: usize = 52;
const PAGE_KEY: usize = 56;
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
            kinds: [0; 2],
            reorder_timeout_ns: self.reorder_timeout_ns()?,
            loaded: Loaded {
                slots: Vec::with_capacity(self.positions.len()),
                declared: Vec::with_capacity(self.declared.len()),
            },
        };
        self.selectors(card, &mut image)?;
        self.declared(card, &mut image)?;
        self.positions(card, &mut image)?;
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
            let number = card.declared_number(index).ok_or_else(|| {
                wrong(format!("the card follows {} connections", card.connections))
            })?;
            if let Some(first) = seen.insert(key, index) {
                return Err(wrong(format!("is the same as declared connection {first}")));
            }
            if !flows.insert(key) {
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
        for (index, entry) in flows.rows() {
            image.rows.push(Entry512 {
                table: Table::Flow,
                lane: Lane::AtoB,
                index,
                row: rows[entry].1.with_bit(347, true).with_bit(348, true),
            });
        }
        Ok(())
    }

    fn positions(&self, card: &CardInfo, image: &mut Image) -> Result<()> {
        let mut actions = Actions::new(card.actions);
        let mut slots = Vec::with_capacity(self.positions.len());
        let mut lanes = [LaneRows::new(card), LaneRows::new(card)];
        for (index, position) in self.positions.iter().enumerate() {
            let wrong = wrong("position", index);
            if u32::from(position.connection) >= card.connections {
                return Err(wrong(format!(
                    "connection {} is beyond the {} that the card follows",
                    position.connection, card.connections
                )));
            }
            let lane = &mut lanes[position.lane.index()];
            let slot = lane.slots;
            if slot >= card.slots {
                return Err(Error::TableFull {
                    table: "slot",
                    fit: index,
                    asked: self.positions.len(),
                });
            }
            lane.slots += 1;
            lane.add(position, index, slot).map_err(&wrong)?;
            slots.push(Entry512 {
                table: Table::Slot,
                lane: position.lane,
                index: slot,
                row: slot_row(&position.clauses, &mut actions).map_err(&wrong)?,
            });
            image.loaded.slots.push(SlotId {
                lane: position.lane,
                slot,
            });
        }
        // What a row names is there before the row.
        image.rows.extend(actions.rows());
        image.rows.append(&mut slots);
        for (&lane, rows) in Lane::ALL.iter().zip(lanes) {
            image.kinds[lane.index()] = rows.kinds;
            image.rows.extend(rows.place(lane)?);
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

/// Action programs in use; equal ones are shared.
struct Actions {
    numbers: HashMap<Action, u32>,
    list: Vec<Action>,
    limit: u32,
}

impl Actions {
    fn new(limit: u32) -> Self {
        Self {
            numbers: HashMap::new(),
            list: Vec::new(),
            limit,
        }
    }

    fn number(&mut self, action: &Action) -> std::result::Result<u32, String> {
        match self.numbers.entry(*action) {
            Entry::Occupied(entry) => Ok(*entry.get()),
            Entry::Vacant(entry) => {
                action.check()?;
                let number = self.list.len() as u32;
                if number >= self.limit {
                    return Err(format!(
                        "needs one more action than the {} different ones that the card holds",
                        self.limit
                    ));
                }
                self.list.push(*action);
                Ok(*entry.insert(number))
            }
        }
    }

    fn rows(&self) -> impl Iterator<Item = Entry512> + '_ {
        (0..).zip(&self.list).map(|(index, action)| Entry512 {
            table: Table::Action,
            lane: Lane::AtoB,
            index,
            row: action.row(),
        })
    }
}

impl Action {
    fn check(&self) -> std::result::Result<(), String> {
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
        for trigger in [self.arm, self.disarm].into_iter().flatten() {
            if trigger >= TRIGGERS {
                return Err(format!("trigger {trigger} is not below {TRIGGERS}"));
            }
        }
        // In the row's layout, but not in the core: it would pass over them in silence.
        let missing = [
            (
                self.ecn.is_some_and(|ecn| ecn != Ecn::Ce),
                "an ECN code point other than CE",
            ),
            (self.set.is_some(), "set"),
            (self.truncate.is_some(), "truncate"),
            (self.broken != Broken::default(), "broken checksums"),
            (self.mended != Mended::default(), "mended checksums"),
            (self.inject.is_some(), "inject"),
        ];
        match missing.iter().find(|(asked, _)| *asked) {
            Some((_, what)) => Err(format!("the card does not carry out {what}")),
            None => Ok(()),
        }
    }

    fn row(&self) -> Row {
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
                .with(147, 64, u64::from_le_bytes(set.value).into());
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

fn slot_row(clauses: &[Clause], actions: &mut Actions) -> std::result::Result<Row, String> {
    if clauses.len() > MAX_CLAUSES {
        return Err(format!(
            "has {} clauses, the card takes {MAX_CLAUSES}",
            clauses.len()
        ));
    }
    let mut row = Row::default();
    for (n, clause) in clauses.iter().enumerate() {
        let last = clause.last.unwrap_or(WITHOUT_END);
        if clause.first == 0 || clause.first > MAX_ITERATION {
            return Err(format!(
                "clause {n}: first iteration {} is not in 1 to {MAX_ITERATION}",
                clause.first
            ));
        }
        if clause.last.is_some_and(|last| last > MAX_ITERATION) {
            return Err(format!(
                "clause {n}: last iteration is above {MAX_ITERATION}; leave it out for no end"
            ));
        }
        if last < clause.first {
            return Err(format!(
                "clause {n}: last iteration {last} is below the first, {}",
                clause.first
            ));
        }
        let overlap = clauses[..n].iter().position(|other| {
            clause.first <= other.last.unwrap_or(WITHOUT_END) && other.first <= last
        });
        if let Some(other) = overlap {
            return Err(format!("clauses {other} and {n} overlap"));
        }
        let action = actions
            .number(&clause.action)
            .map_err(|e| format!("clause {n}: {e}"))?;
        let low = 48 * n;
        row = row
            .with(low, 8, last.into())
            .with(low + 8, 8, clause.first.into())
            .with_bit(low + 16, true)
            .with(low + 32, 16, action.into());
    }
    Ok(row)
}

/// Rows of a lane's exact and page tables on their way to a place.
struct LaneRows {
    slots: u32,
    kinds: u32,
    exact: Hashed,
    page: Hashed,
    /// Position that has a key of the exact table, or that very byte.
    taken: HashMap<(u16, Position), usize>,
    /// Byte positions in a page of a connection.
    in_page: HashMap<crate::hash::Key, u32>,
    ways: u32,
}

/// Rows for one hash table.
struct Hashed {
    placement: Placement,
    rows: Vec<Row>,
    fit: usize,
}

impl Hashed {
    fn new(ways: u32, rows_log2: u32) -> Self {
        Self {
            placement: Placement::new(ways, rows_log2),
            rows: Vec::new(),
            fit: 0,
        }
    }

    fn add(&mut self, row: Row, key_bits: usize) {
        // All are counted, so that a full table can say how many were asked for; once one
        // does not fit the rest is not tried.
        if self.fit == self.rows.len() && self.placement.insert(row.key(key_bits)) {
            self.fit += 1;
        }
        self.rows.push(row);
    }

    fn place(self, table: Table, name: &'static str, lane: Lane) -> Result<Vec<Entry512>> {
        if self.fit < self.rows.len() {
            return Err(Error::TableFull {
                table: name,
                fit: self.fit,
                asked: self.rows.len(),
            });
        }
        let rows = self.placement.rows().into_iter();
        Ok(rows
            .map(|(index, entry)| Entry512 {
                table,
                lane,
                index,
                row: self.rows[entry],
            })
            .collect())
    }
}

impl LaneRows {
    fn new(card: &CardInfo) -> Self {
        Self {
            slots: 0,
            kinds: 0,
            exact: Hashed::new(card.ways, card.exact_rows_log2),
            page: Hashed::new(card.ways, card.page_rows_log2),
            taken: HashMap::new(),
            in_page: HashMap::new(),
            ways: card.ways,
        }
    }

    fn add(
        &mut self,
        position: &PositionEvents,
        index: usize,
        slot: u32,
    ) -> std::result::Result<(), String> {
        let connection = position.connection;
        match position.at {
            Position::Nth { kind, n } => {
                if n == 0 {
                    return Err("positions of a kind count from 1".into());
                }
                // Only TCP has data by the number of its segment; PSNs are `Psn`.
                self.exact(connection, kind, n, kind == Kind::Data, index, slot)
            }
            // The card looks read requests up as data.
            Position::Psn(psn) => self.exact(connection, Kind::Data, psn, false, index, slot),
            Position::Byte(byte) => self.byte(connection, byte, index, slot),
        }
    }

    fn take(
        &mut self,
        connection: u16,
        at: Position,
        index: usize,
    ) -> std::result::Result<(), String> {
        match self.taken.insert((connection, at), index) {
            Some(first) => Err(format!(
                "is the same position as position {first}; put their clauses together"
            )),
            None => Ok(()),
        }
    }

    fn exact(
        &mut self,
        connection: u16,
        kind: Kind,
        n: u32,
        bind: bool,
        index: usize,
        slot: u32,
    ) -> std::result::Result<(), String> {
        if kind == Kind::ReadRequest {
            return Err("a read request is named by its PSN".into());
        }
        if matches!(kind, Kind::Injected | Kind::Other) {
            return Err(format!("packets of kind {kind} have no positions"));
        }
        let number = kind.number();
        self.take(connection, Position::Nth { kind, n }, index)?;
        self.kinds |= 1 << number;
        let row = Row::default()
            .with(0, 32, n.into())
            .with(32, 4, number.into())
            .with(36, 16, connection.into())
            .with(52, 24, slot.into())
            .with_bit(76, bind)
            .with_bit(77, true);
        self.exact.add(row, EXACT_KEY);
        Ok(())
    }

    fn byte(
        &mut self,
        connection: u16,
        byte: u64,
        index: usize,
        slot: u32,
    ) -> std::result::Result<(), String> {
        if byte > MAX_BYTE {
            return Err(format!("byte {byte} is not below 2^48"));
        }
        self.take(connection, Position::Byte(byte), index)?;
        self.kinds |= KINDS_PAGES;
        let row = Row::default()
            .with(0, 40, (byte >> 8).into())
            .with(40, 16, connection.into())
            .with(56, 24, slot.into())
            .with(80, 8, (byte & 0xff).into())
            .with_bit(88, true);
        let count = self.in_page.entry(row.key(PAGE_KEY)).or_default();
        *count += 1;
        if *count > self.ways {
            return Err(format!(
                "byte {byte}: the card takes {} byte positions among bytes {} to {} of a connection",
                self.ways,
                byte & !0xff,
                byte | 0xff
            ));
        }
        self.page.add(row, PAGE_KEY);
        Ok(())
    }

    fn place(self, lane: Lane) -> Result<Vec<Entry512>> {
        let mut rows = self.exact.place(Table::Exact, "exact", lane)?;
        rows.append(&mut self.page.place(Table::Page, "page", lane)?);
        Ok(rows)
    }
}

#[cfg(test)]
#[path = "program_test.rs"]
mod tests;
