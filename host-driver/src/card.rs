// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open card: what it is, its tables, its counters.

use crate::backend::Backend;
use crate::capture::{Capture, CaptureConfig};
use crate::error::{Error, Result};
use crate::hash::MAX_WAYS;
use crate::program::{FLOW_KEY, Loaded, Position, PositionEvents, Program, SlotId, address_from};
use crate::registers::Registers;
use crate::regs;
use crate::row::Row;
use crate::rule::{RULE_SLOT, Rule};
use crate::tables::{Entry512, Table, Tables};
use crate::types::Transport;
use midwire_trace::{Lane, Nanos};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the ID register of every card reads.
pub(crate) const ID: u32 = 0x4d57_4952;
/// Major version of the core that this driver works with.
const MAJOR: u16 = 0;

/// Emptying the largest tables takes a few hundred thousand clocks, which a simulation on a
/// busy machine may need seconds for.
const CLEAR_LIMIT: Duration = Duration::from_secs(20);
const TABLE_LIMIT: Duration = Duration::from_secs(2);
const RESET_LIMIT: Duration = Duration::from_secs(2);

/// What a card says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardInfo {
    /// Where it is, such as `card 0000:01:00.0`.
    pub name: String,
    /// Version of the core.
    pub version: (u16, u16),
    /// Hash of the register map.
    pub map_hash: u32,
    /// Bits of the port streams.
    pub data_width: u32,
    /// Period of the core clock in picoseconds.
    pub clock_ps: u32,
    /// Connections that it follows at a time.
    pub connections: u32,
    /// Rows of a way of the flow table, log2.
    pub flow_rows_log2: u32,
    /// Event slots of a lane.
    pub slots: u32,
    /// Rows of a way of the exact table, log2.
    pub exact_rows_log2: u32,
    /// Rows of a way of the page table, log2.
    pub page_rows_log2: u32,
    /// Ways of every hash table.
    pub ways: u32,
    /// Selectors.
    pub selectors: u32,
    /// Different actions.
    pub actions: u32,
    /// Rules of a lane.
    pub rules: u32,
    /// Frames that a lane can store at a time, to hold them back or to send them again.
    pub delay_slots: u32,
    /// Longest frame without FCS, bytes.
    pub max_frame: u32,
}

impl CardInfo {
    /// Number of the declared connection `index` of a program. The card counts those that it
    /// learns from 0, so declared ones are taken from the top.
    pub fn declared_number(&self, index: usize) -> Option<u16> {
        // 0xffff means none in records.
        let usable = self.connections.min(0xffff);
        let index = u32::try_from(index).ok()?;
        let number = usable.checked_sub(index)?.checked_sub(1)?;
        u16::try_from(number).ok()
    }
}

/// Counters of a card, all taken at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Card time of that instant.
    pub now: Nanos,
    /// Port A, B.
    pub ports: [PortCounters; 2],
    /// Lane A to B, B to A.
    pub lanes: [LaneCounters; 2],
    /// Connections learnt.
    pub connections: u32,
    /// Packets that would have opened a connection when a table was full.
    pub connections_lost: u32,
}

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident, $module:ident, $($(#[$doc:meta])* $field:ident = $register:ident,)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl $name {
            fn read(registers: &Registers, n: u32) -> Result<Self> {
                Ok(Self {
                    $($field: registers.read64(regs::$module::at(n, regs::$module::$register))?,)*
                })
            }
        }
    };
}

counters! {
    /// Counters of a port.
    PortCounters, port,
    /// Frames that came in, whole or not.
    rx_frames = RX_FRAMES,
    /// Bytes of frames that came in, without FCS.
    rx_bytes = RX_BYTES,
    /// Frames that the MAC marked as bad.
    rx_errors = RX_ERRORS,
    /// Frames shorter than 60 bytes without FCS.
    rx_runts = RX_RUNTS,
    /// Frames that were too long and were cut.
    rx_truncated = RX_TRUNCATED,
    /// Frames lost at ingress because the lane was full.
    rx_lost = RX_LOST,
    /// Frames that left.
    tx_frames = TX_FRAMES,
    /// Bytes that left, without FCS.
    tx_bytes = TX_BYTES,
}

counters! {
    /// Counters of a lane.
    LaneCounters, lane,
    /// Frames dropped by an event.
    dropped = DROPPED,
    /// Frames of which an event set the ECN field.
    marked = MARKED,
    /// Frames of which an event changed a byte or left a checksum wrong.
    corrupted = CORRUPTED,
    /// Frames of which an event set bytes.
    rewritten = REWRITTEN,
    /// Frames truncated by an event.
    shortened = SHORTENED,
    /// Frames delayed by an event.
    delayed = DELAYED,
    /// Frames not delayed, reordered or duplicated because the store was full.
    delay_full = DELAY_FULL,
    /// Frames that were not changed because too many waited for their checksums.
    mend_full = MEND_FULL,
    /// Frames taken aside until others had overtaken them.
    reordered = REORDERED,
    /// Copies that left.
    copied = COPIED,
    /// Frames made by the card that left at the end of the lane.
    injected = INJECTED,
    /// Frames that could not be made of packets of the lane.
    inject_lost = INJECT_LOST,
    /// Frames with a header that lies or is cut.
    malformed = MALFORMED,
    /// Frames for which not every event was looked up because the matcher was overloaded.
    unmatched = UNMATCHED,
    /// Positions that could not be followed into their retransmissions.
    bind_full = BIND_FULL,
    /// Ingress records written since capture started.
    records_ingress = RECORDS_INGRESS,
    /// Egress records written since capture started.
    records_egress = RECORDS_EGRESS,
    /// Ingress records lost since capture started.
    lost_ingress = LOST_INGRESS,
    /// Egress records lost since capture started.
    lost_egress = LOST_EGRESS,
    /// Records kept without their snapshot since capture started.
    lost_snapshots = LOST_SNAPSHOTS,
}

/// What became of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotState {
    /// Packets that hit it; saturates at 2^24 - 1, that of a rule at 2^32 - 1.
    pub seen: u32,
    /// Those for which something was carried out; saturates likewise.
    pub fired: u32,
    /// Packet id of the last of these.
    pub last_packet_id: Option<u32>,
}

/// A connection that the card follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Its number.
    pub number: u16,
    /// Its transport.
    pub transport: Transport,
    /// Lane of the packet that opened it.
    pub opener_lane: Lane,
    /// Address of the endpoint that opened it.
    pub source: IpAddr,
    /// Address of the other one.
    pub destination: IpAddr,
    /// TCP port of the endpoint that opened it; 0 for RoCE.
    pub source_port: u16,
    /// TCP port of the other one, or destination queue pair.
    pub destination_port: u32,
    /// Of each lane: TCP sequence number of the first byte behind the SYN, or first PSN.
    pub base: [Option<u32>; 2],
}

/// An open card. Dropping it stops tracking and capture and leaves a plain wire.
pub struct Card {
    pub(crate) shared: Arc<Shared>,
}

/// What a card and its running capture both use.
pub(crate) struct Shared {
    pub registers: Registers,
    pub backend: Arc<dyn Backend>,
    info: CardInfo,
    /// What was last written to the control register, without its pulses.
    control: Mutex<u32>,
    table: Mutex<TableBus>,
    /// A capture runs.
    pub capturing: AtomicBool,
}

/// Numbers that the host keeps of the tables.
#[derive(Default)]
struct TableBus {
    /// What table_write holds; `None` when that is not known.
    written: Option<Row>,
    /// Connections declared by the program that is loaded.
    declared: Vec<u16>,
    /// What the tables hold of it; `None` when that is not known.
    tables: Option<Tables>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Card {
    /// Opens a card: checks that it is one and speaks this driver's register map, and stops
    /// what an earlier program may have left running.
    pub fn open(backend: Box<dyn Backend>) -> Result<Self> {
        let backend: Arc<dyn Backend> = backend.into();
        let registers = Registers::new(backend.clone())?;
        let info = identify(&registers, backend.describe())?;
        let card = Self {
            shared: Arc::new(Shared {
                registers,
                backend,
                info,
                control: Mutex::new(0),
                table: Mutex::default(),
                capturing: AtomicBool::new(false),
            }),
        };
        card.quiet()?;
        Ok(card)
    }

    fn quiet(&self) -> Result<()> {
        let registers = &self.shared.registers;
        registers.write(regs::CONTROL, 0)?;
        if registers.read(regs::STATUS)? & regs::status::CAPTURE_ACTIVE != 0 {
            // A capture whose host died can wait for ever for room in a ring that is gone.
            let name = self.shared.backend.describe();
            self.shared
                .backend
                .reset()
                .map_err(Error::io(format!("reset {name}")))?;
            let what = "stop an earlier capture";
            registers.wait_idle(regs::status::CAPTURE_ACTIVE, what, RESET_LIMIT)?;
        }
        Ok(())
    }

    /// What the card is.
    pub fn info(&self) -> &CardInfo {
        &self.shared.info
    }

    /// Empties the card and writes a program into it. Tracking is off afterwards;
    /// [`track`](Self::track) starts it. A program that is refused leaves the card as it was.
    pub fn load(&self, program: &Program) -> Result<Loaded> {
        let image = program.compile(self.info())?;
        self.clear()?;
        let shared = &*self.shared;
        let mut bus = lock(&shared.table);
        let registers = &shared.registers;
        bus.write_all(registers, &image.rows)?;
        registers.write(regs::REORDER_TIMEOUT_NS, image.reorder_timeout_ns)?;
        look_up(registers, image.tables.kinds())?;
        bus.declared.clone_from(&image.loaded.declared);
        bus.tables = Some(image.tables);
        Ok(image.loaded)
    }

    /// Adds a position to the program that is loaded, or changes what happens at one of its
    /// positions. Packets may pass meanwhile: each finds the position as it was or as it became,
    /// and every other position as ever. Iterations count from when the position was added.
    pub fn put(&self, events: &PositionEvents) -> Result<SlotId> {
        self.shared.change(|tables| {
            let (slot, rows) = tables.put(events)?;
            let lane = events.lane;
            Ok((SlotId { lane, slot }, rows))
        })
    }

    /// Takes a position from the program that is loaded; packets may pass meanwhile. One that is
    /// not there is no mistake.
    pub fn remove(&self, lane: Lane, connection: u16, at: Position) -> Result<()> {
        self.shared.change(|tables| {
            let rows = tables.remove(lane, connection, at);
            Ok(((), rows.unwrap_or_default()))
        })
    }

    /// Puts another rule in the place of one of the program that is loaded, and begins its counts
    /// anew. Packets may pass meanwhile: each meets the one or the other.
    pub fn put_rule(&self, slot: SlotId, rule: &Rule) -> Result<()> {
        self.shared
            .change(|tables| Ok(((), tables.put_rule(slot, rule)?)))
    }

    /// Forgets connections, positions and events. Tracking is off afterwards.
    pub fn clear(&self) -> Result<()> {
        let shared = &*self.shared;
        let mut bus = lock(&shared.table);
        bus.declared.clear();
        bus.tables = None;
        shared.set_control(regs::control::TRACK, false)?;
        look_up(&shared.registers, [0; 2])?;
        shared.pulse(regs::control::CLEAR)?;
        shared
            .registers
            .wait_idle(regs::status::CLEAR_BUSY, "clear its tables", CLEAR_LIMIT)?;
        Ok(())
    }

    /// Lets the card learn connections and carry out events, or stops it.
    pub fn track(&self, on: bool) -> Result<()> {
        self.shared.set_control(regs::control::TRACK, on)
    }

    /// What became of a slot of the program that is loaded, a position's or a rule's.
    pub fn slot_state(&self, slot: SlotId) -> Result<SlotState> {
        let shared = &*self.shared;
        let (table, index, width) = match slot.slot & RULE_SLOT {
            0 => (Table::State, slot.slot, 24),
            _ => (Table::RuleState, slot.slot & !RULE_SLOT, 32),
        };
        let mut bus = lock(&shared.table);
        let row = bus.read(&shared.registers, table, slot.lane, index, STATE_WORDS)?;
        let fired = row.get(width, width) as u32;
        Ok(SlotState {
            seen: row.get(0, width) as u32,
            fired,
            last_packet_id: (fired > 0).then(|| row.get(2 * width, 32) as u32),
        })
    }

    /// Connections that the card follows, by number.
    pub fn connections(&self) -> Result<Vec<Connection>> {
        let shared = &*self.shared;
        let learnt = shared.registers.read(regs::CONNECTIONS)?;
        let mut bus = lock(&shared.table);
        let learnt = learnt.min(shared.info.connections);
        let declared = bus.declared.iter().map(|&n| u32::from(n));
        let mut numbers: Vec<u32> = (0..learnt)
            .chain(declared.filter(|&n| n >= learnt))
            .collect();
        numbers.sort_unstable();
        let mut connections = Vec::with_capacity(numbers.len());
        for number in numbers {
            let row = bus.read(
                &shared.registers,
                Table::Connection,
                Lane::AtoB,
                number,
                CONNECTION_WORDS,
            )?;
            connections.extend(Connection::from_row(number as u16, &row));
        }
        Ok(connections)
    }

    /// All counters of one instant.
    pub fn counters(&self) -> Result<Counters> {
        let shared = &*self.shared;
        let registers = &shared.registers;
        // Held to the end, so that nobody takes the next snapshot meanwhile.
        let control = shared.latch()?;
        let counters = Counters {
            now: Nanos(registers.read64(regs::NOW)?),
            ports: [
                PortCounters::read(registers, 0)?,
                PortCounters::read(registers, 1)?,
            ],
            lanes: [
                LaneCounters::read(registers, 0)?,
                LaneCounters::read(registers, 1)?,
            ],
            connections: registers.read(regs::CONNECTIONS)?,
            connections_lost: registers.read(regs::CONNECTIONS_LOST)?,
        };
        drop(control);
        Ok(counters)
    }

    /// Card time.
    pub fn now(&self) -> Result<Nanos> {
        let control = self.shared.latch()?;
        let now = self.shared.registers.read64(regs::NOW)?;
        drop(control);
        Ok(Nanos(now))
    }

    /// Starts a capture; one can run at a time.
    pub fn start_capture(&self, config: CaptureConfig) -> Result<Capture> {
        Capture::start(self.shared.clone(), config)
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // A card that cannot be reached any more is in nobody's hands.
        let mut control = lock(&self.shared.control);
        *control = 0;
        let _ = self.shared.registers.write(regs::CONTROL, 0);
    }
}

impl Shared {
    /// Sets or clears bits of the control register.
    pub fn set_control(&self, bits: u32, on: bool) -> Result<()> {
        let mut control = lock(&self.control);
        let value = if on {
            *control | bits
        } else {
            *control & !bits
        };
        self.registers.write(regs::CONTROL, value)?;
        *control = value;
        Ok(())
    }

    fn pulse(&self, bit: u32) -> Result<()> {
        let control = lock(&self.control);
        self.registers.write(regs::CONTROL, *control | bit)
    }

    /// Changes the tables of a program that is loaded.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Tables) -> Result<(T, Vec<Entry512>)>,
    ) -> Result<T> {
        let mut bus = lock(&self.table);
        let Some(mut tables) = bus.tables.take() else {
            return Err(Error::Program {
                entry: "change".into(),
                reason: "no program is loaded".into(),
            });
        };
        let changed = change(&mut tables);
        // A refusal has changed nothing; half a change on the card is not known any more.
        if let Ok((_, rows)) = &changed {
            bus.write_all(&self.registers, rows)?;
            look_up(&self.registers, tables.kinds())?;
        }
        bus.tables = Some(tables);
        changed.map(|(value, _)| value)
    }

    fn latch(&self) -> Result<MutexGuard<'_, u32>> {
        let control = lock(&self.control);
        self.registers
            .write(regs::CONTROL, *control | regs::control::LATCH)?;
        Ok(control)
    }
}

const STATE_WORDS: usize = 3;
const CONNECTION_WORDS: usize = 12;

/// Says which kinds of each lane are looked up.
fn look_up(registers: &Registers, kinds: [u32; 2]) -> Result<()> {
    registers.write(regs::KINDS_AB, kinds[0])?;
    registers.write(regs::KINDS_BA, kinds[1])
}

impl TableBus {
    fn address(table: Table, lane: Lane, index: u32) -> u32 {
        (table as u32) << regs::table_address::TBL_SHIFT
            | (lane.index() as u32 * regs::table_address::LANE)
            | index << regs::table_address::INDEX_SHIFT
    }

    fn write_all(&mut self, registers: &Registers, rows: &[Entry512]) -> Result<()> {
        rows.iter().try_for_each(|entry| {
            self.write(registers, entry.table, entry.lane, entry.index, &entry.row)
        })
    }

    fn write(
        &mut self,
        registers: &Registers,
        table: Table,
        lane: Lane,
        index: u32,
        row: &Row,
    ) -> Result<()> {
        // Rows of a table are alike, and most of their words are 0: only what changes is sent.
        let before = self.written.take();
        for (n, &word) in row.0.iter().enumerate() {
            if before.is_none_or(|before| before.0[n] != word) {
                registers.write(regs::TABLE_WRITE + 4 * n as u32, word)?;
            }
        }
        self.written = Some(*row);
        self.run(
            registers,
            Self::address(table, lane, index),
            regs::table_command::WRITE,
        )
    }

    /// Reads the first `words` words of a row; the others are left 0.
    fn read(
        &mut self,
        registers: &Registers,
        table: Table,
        lane: Lane,
        index: u32,
        words: usize,
    ) -> Result<Row> {
        self.run(
            registers,
            Self::address(table, lane, index),
            regs::table_command::READ,
        )?;
        let mut row = Row::default();
        for (n, word) in row.0.iter_mut().take(words).enumerate() {
            *word = registers.read(regs::TABLE_READ + 4 * n as u32)?;
        }
        Ok(row)
    }

    fn run(&mut self, registers: &Registers, address: u32, command: u32) -> Result<()> {
        registers.write(regs::TABLE_ADDRESS, address)?;
        registers.write(regs::TABLE_COMMAND, command)?;
        registers.wait_idle(
            regs::status::TABLE_BUSY,
            "finish a table access",
            TABLE_LIMIT,
        )?;
        Ok(())
    }
}

impl Connection {
    fn from_row(number: u16, row: &Row) -> Option<Self> {
        if !row.bit(0) {
            return None;
        }
        // The key is that of the flow row, from bit 69.
        let key = |low: usize, width: usize| {
            debug_assert!(low + width <= FLOW_KEY);
            row.get(69 + low, width)
        };
        let transport = match key(297, 2) {
            1 => Transport::Tcp,
            2 => Transport::Roce,
            _ => return None,
        };
        let ip6 = key(296, 1) == 1;
        let lo = (address_from(key(168, 128), ip6), key(24, 16) as u16);
        let hi = (address_from(key(40, 128), ip6), key(0, 24) as u32);
        let (source, source_port, destination, destination_port) =
            if transport == Transport::Tcp && row.bit(68) {
                (hi.0, hi.1 as u16, lo.0, lo.1.into())
            } else {
                (lo.0, lo.1, hi.0, hi.1)
            };
        Some(Self {
            number,
            transport,
            opener_lane: Lane::ALL[usize::from(row.bit(67))],
            source,
            destination,
            source_port,
            destination_port,
            base: [0, 1].map(|lane| {
                row.bit(65 + lane)
                    .then(|| row.get(1 + 32 * lane, 32) as u32)
            }),
        })
    }
}

/// Reads who the card is; refuses one that this driver cannot drive.
fn identify(registers: &Registers, name: String) -> Result<CardInfo> {
    let found = registers.read(regs::ID)?;
    if found != ID {
        return Err(Error::NotACard { card: name, found });
    }
    let version = registers.read(regs::VERSION)?;
    let version = ((version >> 16) as u16, version as u16);
    if version.0 != MAJOR {
        return Err(Error::Version {
            card: name,
            found: format!("{}.{}", version.0, version.1),
            expected: MAJOR,
        });
    }
    let map_hash = registers.read(regs::MAP_HASH)?;
    if map_hash != regs::EXPECTED_MAP_HASH {
        return Err(Error::MapHash {
            card: name,
            found: map_hash,
            expected: regs::EXPECTED_MAP_HASH,
        });
    }
    let parameter = |register, parameter, limit| {
        let value = registers.read(register)?;
        if value == 0 || value > limit {
            return Err(Error::Parameter {
                card: name.clone(),
                parameter,
                value,
            });
        }
        Ok(value)
    };
    let rows_limit = 20; // with the bits of the way, an index has 24
    Ok(CardInfo {
        version,
        map_hash,
        data_width: parameter(regs::DATA_WIDTH, "data_width", 4096)?,
        clock_ps: parameter(regs::CLOCK_PS, "clock_ps", u32::MAX)?,
        connections: 1 << parameter(regs::CONNS_LOG2, "conns_log2", 16)?,
        flow_rows_log2: parameter(regs::FLOW_ROWS_LOG2, "flow_rows_log2", rows_limit)?,
        slots: 1 << parameter(regs::SLOTS_LOG2, "slots_log2", 22)?,
        exact_rows_log2: parameter(regs::EXACT_ROWS_LOG2, "exact_rows_log2", rows_limit)?,
        page_rows_log2: parameter(regs::PAGE_ROWS_LOG2, "page_rows_log2", rows_limit)?,
        ways: parameter(regs::WAYS, "ways", MAX_WAYS)?,
        selectors: parameter(regs::SELECTORS, "selectors", 1 << 16)?,
        actions: parameter(regs::ACTIONS, "actions", 1 << 16)?,
        rules: parameter(regs::RULES, "rules", 1 << 10)?,
        delay_slots: parameter(regs::DELAY_SLOTS, "delay_slots", u32::MAX)?,
        max_frame: parameter(regs::MAX_FRAME, "max_frame", 0xffff)?,
        name,
    })
}
