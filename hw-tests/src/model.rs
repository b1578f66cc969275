// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the card must do with each frame, written from docs/formats.md, docs/card.md and
//! docs/tables.md: which events hit, what leaves, and every field of its records.
//!
//! Headers are read and packets are named by midwire-trace, which does both in software and
//! independently of the core.

use crate::answer::answer;
use crate::edit::{asked, carry_out, join};
use crate::rig::Sent;
use midwire_driver::{
    Action, IpVersion, Kind, Lane, Loaded, Nanos, Position, Prefix, Program, RuleState, Selector,
    Sight, Toward, Transport,
};
use midwire_trace::identity::{Identifier, Place};
use midwire_trace::packet::tcp_flags::FIN;
use midwire_trace::packet::{Transport as Headers, opcode};
use midwire_trace::{Actions, Flags, Packet, Record, Tap};
use midwire_virtual_card::{Picoseconds, Width, after_start};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

/// The shortest frame that leaves, and the longest.
const MIN_FRAME: usize = 60;
const MAX_FRAME: usize = 10240;
/// Bytes of a CNP behind its BTH, which are reserved and no payload (InfiniBand specification,
/// annex A17.9.3).
const CNP_RESERVED: usize = 16;
/// Bytes of a frame that the card waits for at the most before it reads the headers.
const HEAD: usize = 128;

/// What must come of a frame.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Its ingress record.
    pub ingress: Record,
    /// Its egress record but for the time.
    pub egress: Option<Record>,
    /// What leaves, unless it is dropped.
    pub leaves: Option<Vec<u8>>,
    /// What leaves has a wrong FCS.
    pub bad: bool,
    /// What events ask of it.
    pub action: Action,
    /// What is made in answer to it.
    pub answer: Option<Made>,
}

/// A frame that the card makes.
#[derive(Clone, Debug)]
pub struct Made {
    /// The lane on which it leaves.
    pub lane: Lane,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its record but for the time.
    pub record: Record,
}

impl Expected {
    /// It does not leave at once.
    pub fn held(&self) -> bool {
        self.leaves.is_some() && (self.action.delay.is_some() || self.action.reorder.is_some())
    }
}

/// When frames are on the line, and what time the card has then.
#[derive(Clone, Copy)]
pub struct Arrival {
    /// The preamble begins, picoseconds from the start of all input.
    pub begins: Picoseconds,
    /// The frame has come in as far as the card waits for before it reads the headers.
    pub head: Picoseconds,
    /// Card time of the first beat.
    pub stamp: Nanos,
}

/// Arrivals of frames that are sent in this order, each on its lane's line as soon as that is
/// free (IEEE 802.3: 8 bytes of preamble, 4 of FCS, 12 of gap).
pub fn arrivals(width: Width, frames: &[Sent]) -> Vec<Arrival> {
    let byte = width.byte_ps();
    let clock = width.clock_ps();
    // Per lane: when the line is free, and the clock of the last beat so far.
    let mut lanes = [(0, 0); 2];
    frames
        .iter()
        .map(|frame| {
            let (free, last) = &mut lanes[frame.lane.index()];
            let begins = (*free).max(after_start(frame.at) - after_start(0));
            let len = frame.data.len() as u64;
            *free = begins + (8 + len + 4 + 12) * byte;
            let due = |bytes: u64| (after_start(0) + begins + (8 + bytes) * byte).div_ceil(clock);
            let beat = width.bytes() as u64;
            let first = due(len.min(beat)).max(*last + 1);
            // A beat a clock at the most.
            *last =
                (1..len.div_ceil(beat)).fold(first, |c, n| due(len.min((n + 1) * beat)).max(c + 1));
            let stamp = Nanos(first * clock / 1000);
            let head = begins + (8 + len.min(HEAD as u64)) * byte;
            Arrival {
                begins,
                head,
                stamp,
            }
        })
        .collect()
}

/// The twin of a card's tables and what they have counted.
pub struct Model {
    program: Program,
    loaded: Loaded,
    identifier: Identifier,
    /// Packets that hit each position's slot.
    seen: Vec<u32>,
    /// Packets for which one of its clauses was carried out.
    fired: Vec<u32>,
    /// The first byte of the segment that a position names, which it is followed by.
    begins: HashMap<usize, i64>,
    /// Kinds that events of a lane are about.
    kinds: [Vec<Kind>; 2],
    rules: Vec<RuleState>,
    /// Triggers that are armed, by their number, and when each was last worked.
    armed: u64,
    worked: [Option<Nanos>; 64],
    next_id: [u32; 2],
    snapshots: bool,
}

/// A slot that a packet hits: in which step of the look-up, and which position of the program.
type Hit = (usize, usize);

impl Model {
    /// A card with a program, as it was loaded.
    pub fn new(program: &Program, loaded: &Loaded, snapshots: bool) -> Self {
        let selectors = program.selectors.clone();
        let admits =
            move |lane, packet: &Packet<'_>| selectors.iter().any(|s| admits(s, lane, packet));
        let mut kinds = [Vec::new(), Vec::new()];
        for events in &program.positions {
            kinds[events.lane.index()].extend(match events.at {
                Position::Nth { kind, .. } => vec![kind],
                Position::Psn(_) => vec![Kind::Data],
                Position::Byte(_) => vec![],
            });
        }
        Self {
            program: program.clone(),
            loaded: loaded.clone(),
            identifier: Identifier::admitting(admits),
            seen: vec![0; program.positions.len()],
            fired: vec![0; program.positions.len()],
            begins: HashMap::new(),
            kinds,
            rules: vec![RuleState::default(); program.rules.len()],
            armed: 0,
            worked: [None; 64],
            next_id: [0; 2],
            snapshots,
        }
    }

    /// Packets that hit a position of the program, and those of them that had a clause.
    pub fn counts(&self, position: usize) -> (u32, u32) {
        (self.seen[position], self.fired[position])
    }

    /// Packets that passed the filter of a rule of the program, and those for which it fired.
    pub fn rule_counts(&self, rule: usize) -> (u32, u32) {
        (self.rules[rule].seen, self.rules[rule].fired)
    }

    /// What must come of the next frame. Where the documents leave a choice it goes with
    /// `seen`, the frame's ingress record, and `left`, all that left its lane: in which order
    /// bytes in one page come, and whether a lie about where the frame ends shows before its end.
    pub fn frame(
        &mut self,
        frame: &Sent,
        stamp: Nanos,
        seen: &Record,
        left: &HashMap<&[u8], usize>,
    ) -> Expected {
        let truncated = frame.data.len() > MAX_FRAME;
        let data = &frame.data[..frame.data.len().min(MAX_FRAME)];
        let longer = [data, &[0; 1 << 17]].concat();
        let mut packet = Packet::parse(data);
        if data.len() > HEAD / 2 {
            // The headers may be read before the frame has ended.
            let early = Packet::parse(&longer);
            let headers = |flags: Flags| flags.0 & (Flags::MALFORMED | Flags::IP6).0;
            if headers(describe(&early).flags) == headers(seen.flags) {
                packet = early;
            }
        }
        let id = &mut self.next_id[frame.lane.index()];
        let packet_id = *id;
        *id = id.wrapping_add(1);
        let mut ingress = describe(&packet);
        ingress.time = stamp;
        ingress.lane = frame.lane;
        ingress.length = data.len() as u16;
        ingress.packet_id = packet_id;
        for (set, flag) in [
            (frame.bad || truncated, Flags::ERROR),
            (truncated, Flags::TRUNCATED),
            (self.snapshots, Flags::SNAPSHOT),
        ] {
            if set {
                ingress.flags = ingress.flags | flag;
            }
        }
        let (hits, sight) = self.identify(&packet, frame.lane, &mut ingress);
        let counted = self.count(&hits, &sight, &ingress);
        let mut fits: Vec<_> = orders(&counted)
            .into_iter()
            .map(|order| expect(&order, ingress, data, &packet))
            .collect();
        let copies = |e: &Expected| e.action.duplicate.map_or(0, |d| usize::from(d.copies));
        let seems = |expected: &Expected| {
            let leaves = expected.leaves.as_deref();
            let times = |bytes| left.get(bytes).copied().unwrap_or(0);
            expected.ingress.slot == seen.slot
                && leaves.is_none_or(|bytes| times(bytes) > copies(expected))
        };
        for expected in &mut fits {
            expected.answer = self.answer(expected, &packet, data);
        }
        let choice = (0..fits.len())
            .filter(|&n| seems(&fits[n]))
            .min_by_key(|&n| Reverse(copies(&fits[n])));
        fits.swap_remove(choice.unwrap_or(0))
    }

    /// What is made in answer to a frame.
    fn answer(&self, to: &Expected, packet: &Packet<'_>, data: &[u8]) -> Option<Made> {
        let template = &self.program.templates[usize::from(to.action.inject?)];
        let bytes = answer(template, packet, data)?;
        let back = template.toward == Toward::Sender;
        let lane = if back {
            to.ingress.lane.other()
        } else {
            to.ingress.lane
        };
        let record = Record {
            lane,
            tap: Tap::Egress,
            kind: Kind::Injected,
            length: bytes.len() as u16,
            f2: back.into(),
            actions: Actions(0),
            flags: Flags(to.ingress.flags.0 & !(Flags::ERROR | Flags::TRUNCATED).0),
            ..to.ingress
        };
        Some(Made {
            lane,
            bytes,
            record,
        })
    }

    /// Names the packet and finds what hits it, and what rules see of it.
    fn identify(
        &mut self,
        packet: &Packet<'_>,
        lane: Lane,
        record: &mut Record,
    ) -> (Vec<Hit>, Sight) {
        let Some(identity) = self.identifier.packet(lane, packet) else {
            return (Vec::new(), Sight::plain(record.proto));
        };
        let sight = Sight::of(&identity, record.proto);
        record.connection = Some(identity.connection as u16);
        record.kind = identity.kind;
        if identity.below {
            record.flags = record.flags | Flags::BELOW;
        }
        let tcp_data = identity.kind == Kind::Data && identity.byte.is_some();
        let new = identity.new && tcp_data;
        // The n-th step looks up the n-th of the packet's kinds that has a position and that
        // any event of the lane is about, and the n-th page that is covered.
        const EXACT: usize = 0;
        const PAGE: usize = 1;
        // Read requests are numbered with data.
        let named = |kind| match kind {
            Kind::ReadRequest => Kind::Data,
            kind => kind,
        };
        let mut kinds = vec![named(identity.kind), Kind::Any];
        if identity.kind == Kind::Data && record.tcp_flags & FIN != 0 {
            kinds.push(Kind::Fin);
        }
        kinds.retain(|kind| self.kinds[lane.index()].contains(kind));
        if tcp_data && !new {
            kinds.retain(|kind| *kind != Kind::Data);
        }
        let step = |kind| 2 * kinds.iter().position(|k| *k == kind).unwrap_or_default() + EXACT;
        let page = |byte: i64| {
            let from = identity.byte.unwrap_or_default() >> 8;
            2 * ((byte >> 8) - from) as usize + PAGE
        };
        // The place of new data is the last of its kind.
        let number = identity
            .places
            .iter()
            .rev()
            .find(|place| place.kind == Kind::Data);
        let number = number.filter(|_| new).map(|place| place.position);
        let mut hits = Vec::new();
        for (index, events) in self.program.positions.iter().enumerate() {
            if events.lane != lane || u32::from(events.connection) != identity.connection {
                continue;
            }
            let is = |p: &Place, kind, position| {
                named(p.kind) == kind && p.position == i64::from(position)
            };
            let has = |kind, n| identity.places.iter().any(|p| is(p, kind, n));
            let at = match events.at {
                // It stays with the first byte of the segment.
                Position::Nth {
                    kind: Kind::Data,
                    n,
                } if tcp_data => {
                    let begins = identity.byte.unwrap_or_default();
                    has(Kind::Data, n).then(|| match number == Some(i64::from(n)) {
                        true => {
                            self.begins.insert(index, begins);
                            step(Kind::Data)
                        }
                        false => page(self.begins[&index]),
                    })
                }
                Position::Nth { kind, n } => has(kind, n).then(|| step(kind)),
                Position::Byte(byte) => identity.covers(byte as i64).then(|| page(byte as i64)),
                // A position of data or of a read request by its number, whatever the transport.
                Position::Psn(n) if tcp_data => {
                    (number == Some(i64::from(n))).then(|| step(Kind::Data))
                }
                Position::Psn(n) => has(Kind::Data, n).then(|| step(Kind::Data)),
            };
            hits.extend(at.map(|at| (at, index)));
        }
        (hits, sight)
    }

    /// Whether what a trigger guards is open for a packet, if any does. The documents leave open
    /// for how many clocks a change does not count.
    fn open(&self, guard: Option<u8>, stamp: Nanos) -> bool {
        let Some(trigger) = guard else { return true };
        if let Some(worked) = self.worked[usize::from(trigger)] {
            let since = stamp.0.abs_diff(worked.0);
            assert!(
                since > 1000,
                "{since} ns from a trigger are too few to tell"
            );
        }
        self.armed >> trigger & 1 == 1
    }

    /// Counts at the slots and rules, and works the triggers.
    fn count(&mut self, hits: &[Hit], sight: &Sight, record: &Record) -> Vec<Counted> {
        let mut counted = Vec::new();
        for &(step, index) in hits {
            self.seen[index] += 1;
            let iteration = self.seen[index].min(255) as u8;
            let clauses = &self.program.positions[index].clauses;
            let clause = clauses.iter().find(|c| {
                let holds = c.first <= iteration && iteration <= c.last.unwrap_or(255);
                holds && self.open(c.armed_by, record.time)
            });
            self.fired[index] += u32::from(clause.is_some());
            counted.push(Counted {
                step,
                slot: self.loaded.slots[index].slot,
                iteration,
                action: clause.map(|clause| clause.action),
            });
        }
        // Behind the slots, in their order.
        let steps = hits.iter().map(|hit| hit.0).max().unwrap_or(0) + 1;
        for (index, rule) in self.program.rules.iter().enumerate() {
            let passes = rule.lane == record.lane && rule.passes(sight).is_some();
            if !passes || !self.open(rule.armed_by, record.time) {
                continue;
            }
            let state = &mut self.rules[index];
            if state.hits(rule, sight) {
                counted.push(Counted {
                    step: steps + index,
                    slot: self.loaded.rules[index].slot,
                    iteration: state.seen.min(255) as u8,
                    action: Some(rule.action),
                });
            }
        }
        for action in counted.iter().filter_map(|hit| hit.action) {
            if let Some(trigger) = action.arm {
                self.armed |= 1 << trigger;
            }
            if let Some(trigger) = action.disarm {
                self.armed &= !(1 << trigger);
            }
            for trigger in [action.arm, action.disarm].into_iter().flatten() {
                self.worked[usize::from(trigger)] = Some(record.time);
            }
        }
        counted
    }
}

/// A slot or a rule that was hit, and what is to be done for it.
#[derive(Clone, Copy)]
struct Counted {
    step: usize,
    slot: u32,
    iteration: u8,
    action: Option<Action>,
}

/// All orders of hits that the look-ups allow: step by step, in a step any.
fn orders(hits: &[Counted]) -> Vec<Vec<Counted>> {
    let Some(first) = hits.iter().map(|hit| hit.step).min() else {
        return vec![Vec::new()];
    };
    let mut all = Vec::new();
    for (n, hit) in hits.iter().enumerate().filter(|(_, h)| h.step == first) {
        let rest = [&hits[..n], &hits[n + 1..]].concat();
        all.extend(
            orders(&rest)
                .iter()
                .map(|rest| [&[*hit], &rest[..]].concat()),
        );
    }
    all
}

/// What must come of a frame whose ingress record is this but for the events that hit.
fn expect(hits: &[Counted], mut ingress: Record, data: &[u8], packet: &Packet<'_>) -> Expected {
    let mut action = Action::default();
    let fired = hits.iter().filter_map(|hit| hit.action);
    fired.for_each(|more| join(&mut action, &more));
    ingress.actions = asked(&action);
    let acts = hits.iter().find(|hit| hit.action.is_some());
    if let Some(shown) = acts.or(hits.first()) {
        ingress.slot = Some(shown.slot);
        ingress.iteration = shown.iteration;
    }
    if hits.len() > 1 {
        ingress.flags = ingress.flags | Flags::MULTI;
    }
    let mut expected = Expected {
        ingress,
        egress: None,
        leaves: None,
        bad: ingress.flags.contains(Flags::ERROR) || action.broken.fcs,
        action,
        answer: None,
    };
    if action.drop {
        return expected;
    }
    let mut leaves = data.to_vec();
    let done = carry_out(&action, packet, &mut leaves);
    leaves.resize(leaves.len().max(MIN_FRAME), 0);
    let mut egress = Record {
        tap: Tap::Egress,
        length: leaves.len() as u16,
        actions: done,
        ..ingress
    };
    if expected.bad {
        egress.flags = egress.flags | Flags::ERROR;
    }
    expected.egress = (!ingress.actions.is_empty()).then_some(egress);
    expected.leaves = Some(leaves);
    expected
}

/// What a record says of a packet by itself.
fn describe(packet: &Packet<'_>) -> Record {
    let mut record = Record {
        proto: packet.proto(),
        ..Record::default()
    };
    if packet.net.is_some_and(|net| net.src.is_ipv6()) {
        record.flags = record.flags | Flags::IP6;
    }
    if packet.malformed.is_some() {
        record.flags = record.flags | Flags::MALFORMED;
        return record;
    }
    match &packet.transport {
        Headers::None => {}
        Headers::Udp(_) => record.payload_len = packet.payload_len as u16,
        Headers::Tcp(tcp) => {
            record.payload_len = packet.payload_len as u16;
            record.f0 = tcp.seq;
            record.f1 = tcp.ack;
            record.f2 = tcp.window;
            record.tcp_flags = tcp.flags;
        }
        Headers::Roce(_, roce) => {
            let bth = &roce.bth;
            record.payload_len = (packet.payload_len - reserved(packet)) as u16;
            record.f0 = u32::from(bth.opcode) << 24 | bth.psn;
            record.f1 = roce.aeth.map_or(0, |a| u32::from(a.syndrome) << 24 | a.msn);
            let low = bth.byte4 & 0xc0 | u8::from(bth.ack_req) << 5;
            record.f2 = u16::from_be_bytes([bth.byte1, low]);
        }
    }
    record
}

/// Bytes that stand before the payload and are part of no header.
pub(crate) fn reserved(packet: &Packet<'_>) -> usize {
    match packet.roce() {
        Some(roce) if roce.bth.opcode == opcode::CNP => CNP_RESERVED,
        _ => 0,
    }
}

fn admits(selector: &Selector, lane: Lane, packet: &Packet<'_>) -> bool {
    let Some(net) = packet.net else { return false };
    let (transport, source_port, destination) = match &packet.transport {
        Headers::Tcp(tcp) => (Transport::Tcp, tcp.src_port, u32::from(tcp.dst_port)),
        Headers::Roce(udp, roce) => (Transport::Roce, udp.src_port, roce.bth.dest_qp),
        _ => return false,
    };
    selector.transport == transport
        && selector.lane.is_none_or(|l| l == lane)
        && selector.ip.is_none_or(|ip| ip == IpVersion::of(net.src))
        && selector.source.is_none_or(|prefix| holds(prefix, net.src))
        && selector
            .destination
            .is_none_or(|prefix| holds(prefix, net.dst))
        && selector.source_port.is_none_or(|port| port == source_port)
        && selector
            .destination_port
            .is_none_or(|port| port == destination)
}

fn holds(prefix: Prefix, address: IpAddr) -> bool {
    let (a, b, width) = match (prefix.address, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a), u128::from(b), 128),
        _ => return false,
    };
    (a ^ b)
        .checked_shr(width - u32::from(prefix.length))
        .unwrap_or(0)
        == 0
}
