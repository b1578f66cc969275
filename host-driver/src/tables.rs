// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What lies in the tables of a card that runs a program: actions, slots, and the keys by which
//! packets find them. A change, also one while packets pass, is the rows that must be written
//! and their order: what a row names is there before it, and a key that moves is in its new
//! place before the old one goes, so that no look-up misses it.

use crate::card::CardInfo;
use crate::error::{Error, Result};
use crate::hash::{Key, Placement};
use crate::program::{Action, Clause, Position, PositionEvents, SlotId};
use crate::row::Row;
use crate::rule::{RULE_SLOT, Rule};
use midwire_trace::{Kind, Lane};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

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
    Template = 8,
    Rule = 9,
    RuleState = 10,
}

/// A row and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry512 {
    pub table: Table,
    pub lane: Lane,
    pub index: u32,
    pub row: Row,
}

/// Triggers of a card.
const TRIGGERS: u8 = 64;
/// Clauses of one position.
pub const MAX_CLAUSES: usize = 4;
const MAX_ITERATION: u8 = 254;
const WITHOUT_END: u8 = 255;
const MAX_BYTE: u64 = (1 << 48) - 1;
const KINDS_PAGES: u32 = 1 << 16;
const EXACT_KEY: usize = 52;
const PAGE_KEY: usize = 56;
/// Bit of an exact row that says that it counts.
const EXACT_VALID: usize = 77;

/// What an entry of a program is told by when it is wrong.
type Checked<T> = std::result::Result<T, String>;

/// A trigger as a row holds it.
pub(crate) fn trigger(number: u8) -> Checked<u128> {
    match number {
        0..TRIGGERS => Ok(number.into()),
        _ => Err(format!("trigger {number} is not below {TRIGGERS}")),
    }
}

/// Action programs in use; equal ones are shared.
#[derive(Debug)]
struct Actions {
    numbers: HashMap<Action, u32>,
    /// By number; `None` when it is free.
    list: Vec<Option<(Action, u32)>>,
    limit: u32,
    /// Of the program.
    templates: usize,
}

impl Actions {
    fn new(limit: u32, templates: usize) -> Self {
        Self {
            numbers: HashMap::new(),
            list: Vec::new(),
            limit,
            templates,
        }
    }

    /// Number of an action, for one more user of it.
    fn number(&mut self, action: &Action) -> Checked<u32> {
        let vacant = match self.numbers.entry(*action) {
            Entry::Occupied(entry) => {
                let number = *entry.get();
                if let Some((_, users)) = &mut self.list[number as usize] {
                    *users += 1;
                }
                return Ok(number);
            }
            Entry::Vacant(vacant) => vacant,
        };
        action.check(self.templates)?;
        let free = self.list.iter().position(Option::is_none);
        let number = free.unwrap_or(self.list.len());
        if number >= self.limit as usize {
            return Err(format!(
                "needs one more action than the {} different ones that the card holds",
                self.limit
            ));
        }
        self.list.resize(self.list.len().max(number + 1), None);
        self.list[number] = Some((*action, 1));
        Ok(*vacant.insert(number as u32))
    }

    /// One of its users has gone.
    fn release(&mut self, number: u32) {
        let entry = &mut self.list[number as usize];
        if let Some((action, users)) = entry {
            *users -= 1;
            if *users == 0 {
                self.numbers.remove(action);
                *entry = None;
            }
        }
    }

    /// Rows of all of them.
    fn rows(&self) -> impl Iterator<Item = Entry512> + '_ {
        let used = (0..).zip(&self.list);
        used.filter_map(|(index, entry)| entry.map(|(action, _)| Self::row(index, &action)))
    }

    fn row(index: u32, action: &Action) -> Entry512 {
        Entry512 {
            table: Table::Action,
            lane: Lane::AtoB,
            index,
            row: action.row(),
        }
    }
}

/// Checks a slot's clauses and numbers their actions.
fn slot_row(clauses: &[Clause], actions: &mut Actions) -> Checked<(Row, Vec<u32>)> {
    if clauses.len() > MAX_CLAUSES {
        return Err(format!(
            "has {} clauses, the card takes {MAX_CLAUSES}",
            clauses.len()
        ));
    }
    let mut row = Row::default();
    let mut used = Vec::with_capacity(clauses.len());
    let mut fill = || {
        for (n, clause) in clauses.iter().enumerate() {
            let (bits, action) = clause_row(clause, &clauses[..n], actions)
                .map_err(|reason| format!("clause {n}: {reason}"))?;
            used.push(action);
            row = row.with(48 * n, 48, bits);
        }
        Ok(())
    };
    match fill() {
        Ok(()) => Ok((row, used)),
        Err(reason) => {
            used.into_iter().for_each(|action| actions.release(action));
            Err(reason)
        }
    }
}

/// Bits of a clause, which comes behind `earlier` ones, and its action.
fn clause_row(clause: &Clause, earlier: &[Clause], actions: &mut Actions) -> Checked<(u128, u32)> {
    let last = clause.last.unwrap_or(WITHOUT_END);
    if clause.first == 0 || clause.first > MAX_ITERATION {
        return Err(format!(
            "first iteration {} is not in 1 to {MAX_ITERATION}",
            clause.first
        ));
    }
    if clause.last.is_some_and(|last| last > MAX_ITERATION) {
        return Err(format!(
            "last iteration is above {MAX_ITERATION}; leave it out for no end"
        ));
    }
    if last < clause.first {
        return Err(format!(
            "last iteration {last} is below the first, {}",
            clause.first
        ));
    }
    // One that a trigger guards leaves the packet to the next when it is not armed.
    let overlap = earlier.iter().position(|other| {
        other.armed_by.is_none()
            && clause.first <= other.last.unwrap_or(WITHOUT_END)
            && other.first <= last
    });
    if let Some(other) = overlap {
        return Err(format!("overlaps clause {other}"));
    }
    let guard = match clause.armed_by {
        Some(number) => 1 | trigger(number)? << 1,
        None => 0,
    };
    let action = actions.number(&clause.action)?;
    let row = Row::default()
        .with(0, 8, last.into())
        .with(8, 8, clause.first.into())
        .with_bit(16, true)
        .with(17, 7, guard)
        .with(32, 16, action.into());
    Ok((row.get(0, 48), action))
}

/// Checks a rule and numbers its action.
fn rule_row(rule: &Rule, connections: u32, actions: &mut Actions) -> Checked<(Row, u32)> {
    rule.check(connections)?;
    let action = actions.number(&rule.action)?;
    Ok((rule.row(action), action))
}

/// A hash table of the card.
#[derive(Debug)]
struct Hashed {
    table: Table,
    name: &'static str,
    placement: Placement,
    rows: Vec<Row>,
}

impl Hashed {
    fn new(table: Table, name: &'static str, ways: u32, rows_log2: u32) -> Self {
        Self {
            table,
            name,
            placement: Placement::new(ways, rows_log2),
            rows: Vec::new(),
        }
    }

    /// Entries that it holds.
    fn len(&self) -> usize {
        self.placement.len()
    }

    /// Adds an entry: its number and the rows to write in order; `None` when it is full.
    fn add(&mut self, lane: Lane, row: Row, key_bits: usize) -> Option<(usize, Vec<Entry512>)> {
        let (entry, cells) = self.placement.insert(row.key(key_bits))?;
        self.rows.resize(self.rows.len().max(entry + 1), row);
        self.rows[entry] = row;
        let cells = cells.into_iter();
        let rows = cells.map(|(index, entry)| self.row(lane, index, self.rows[entry]));
        Some((entry, rows.collect()))
    }

    /// Takes an entry away: the row to write.
    fn remove(&mut self, lane: Lane, entry: usize) -> Option<Entry512> {
        let index = self.placement.remove(entry)?;
        Some(self.row(lane, index, Row::default()))
    }

    fn all(&self, lane: Lane) -> impl Iterator<Item = Entry512> + '_ {
        let cells = self.placement.cells().into_iter();
        cells.map(move |(index, entry)| self.row(lane, index, self.rows[entry]))
    }

    fn row(&self, lane: Lane, index: u32, row: Row) -> Entry512 {
        Entry512 {
            table: self.table,
            lane,
            index,
            row,
        }
    }
}

/// A position in the tables.
#[derive(Debug)]
struct Placed {
    slot: u32,
    row: Row,
    actions: Vec<u32>,
    /// Entry of the exact table; none for a byte.
    exact: Option<usize>,
    /// The card may have added keys of its own for the slot.
    bound: bool,
}

/// Tables of a lane.
#[derive(Debug)]
struct LaneTables {
    lane: Lane,
    slots: u32,
    slots_limit: u32,
    free_slots: Vec<u32>,
    /// Register kinds_ab or kinds_ba.
    kinds: u32,
    exact: Hashed,
    page: Hashed,
    positions: HashMap<(u16, Position), Placed>,
    /// Byte positions in a page of a connection.
    in_page: HashMap<Key, u32>,
    ways: u32,
    /// Row and action of each rule.
    rules: Vec<(Row, u32)>,
    rules_limit: usize,
}

/// A key to be added.
struct Addition {
    row: Row,
    kinds: u32,
    bound: bool,
}

/// Why a position cannot be added.
pub(crate) enum Refusal {
    /// It is wrong.
    Wrong(String),
    /// A table is full: its name, and how many entries it holds.
    Full(&'static str, usize),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self::Wrong(reason)
    }
}

/// Tables of a card.
#[derive(Debug)]
pub(crate) struct Tables {
    actions: Actions,
    lanes: [LaneTables; 2],
    connections: u32,
}

impl Tables {
    pub fn new(card: &CardInfo, templates: usize) -> Self {
        Self {
            actions: Actions::new(card.actions, templates),
            lanes: Lane::ALL.map(|lane| LaneTables::new(lane, card)),
            connections: card.connections,
        }
    }

    /// Registers kinds_ab and kinds_ba.
    pub fn kinds(&self) -> [u32; 2] {
        [0, 1].map(|lane| self.lanes[lane].kinds)
    }

    /// Every row, in an order in which they can be written.
    pub fn rows(&self) -> Vec<Entry512> {
        let mut rows: Vec<_> = self.actions.rows().collect();
        for lane in &self.lanes {
            rows.extend(lane.slot_rows());
            rows.extend(lane.exact.all(lane.lane));
            rows.extend(lane.page.all(lane.lane));
            let rules = (0..).zip(&lane.rules);
            rows.extend(rules.map(|(number, &(row, _))| lane.rule_entry(number, row)));
        }
        rows
    }

    /// Adds a position before the program is loaded; its slot.
    pub fn add(&mut self, events: &PositionEvents) -> std::result::Result<u32, Refusal> {
        self.lanes[events.lane.index()]
            .add(self.connections, events, &mut self.actions)
            .map(|(slot, _)| slot)
    }

    /// Adds a rule before the program is loaded; its slot.
    pub fn add_rule(&mut self, rule: &Rule) -> std::result::Result<u32, Refusal> {
        let lane = &mut self.lanes[rule.lane.index()];
        if lane.rules.len() >= lane.rules_limit {
            return Err(Refusal::Full("rule", lane.rules.len()));
        }
        let number = lane.rules.len() as u32;
        lane.rules
            .push(rule_row(rule, self.connections, &mut self.actions)?);
        Ok(RULE_SLOT | number)
    }

    /// Puts another rule in a rule's place while the card runs; the rows to write in order.
    pub fn put_rule(&mut self, slot: SlotId, rule: &Rule) -> Result<Vec<Entry512>> {
        let wrong = |reason| Error::Program {
            entry: "rule".into(),
            reason,
        };
        let lane = &mut self.lanes[slot.lane.index()];
        let number = slot.slot & !RULE_SLOT;
        let is_rule = slot.slot & RULE_SLOT != 0 && slot.lane == rule.lane;
        let Some(place) = lane.rules.get_mut(number as usize).filter(|_| is_rule) else {
            return Err(wrong("is not one of the program's on this lane".into()));
        };
        let new = rule_row(rule, self.connections, &mut self.actions).map_err(wrong)?;
        let (_, before) = std::mem::replace(place, new);
        let (row, action) = *place;
        self.actions.release(before);
        let mut rows = action_rows(&self.actions, &[action]);
        rows.push(lane.rule_entry(number, row));
        Ok(rows)
    }

    /// Adds a position while the card runs, or changes what happens at one: its slot, and the
    /// rows to write in order. A refusal leaves everything as it was.
    pub fn put(&mut self, events: &PositionEvents) -> Result<(u32, Vec<Entry512>)> {
        let wrong = |reason| Error::Program {
            entry: "position".into(),
            reason,
        };
        let lane = &mut self.lanes[events.lane.index()];
        match lane.positions.contains_key(&key(events)) {
            true => lane.replace(events, &mut self.actions).map_err(wrong),
            false if matches!(events.at, Position::Byte(_)) => {
                let reason = "bytes cannot be added while the card runs: it adds some itself";
                Err(wrong(reason.into()))
            }
            false => lane
                .add(self.connections, events, &mut self.actions)
                .map_err(|refusal| match refusal {
                    Refusal::Wrong(reason) => wrong(reason),
                    Refusal::Full(table, fit) => Error::TableFull {
                        table,
                        fit,
                        asked: fit + 1,
                    },
                }),
        }
    }

    /// Takes a position away while the card runs; `None` when it is not there.
    pub fn remove(&mut self, lane: Lane, connection: u16, at: Position) -> Option<Vec<Entry512>> {
        self.lanes[lane.index()].remove(connection, at, &mut self.actions)
    }
}

/// What names a position: a PSN is a number of data.
fn key(events: &PositionEvents) -> (u16, Position) {
    (events.connection, canonical(events.at))
}

pub(crate) fn canonical(at: Position) -> Position {
    match at {
        Position::Psn(n) => Position::Nth {
            kind: Kind::Data,
            n,
        },
        at => at,
    }
}

impl LaneTables {
    fn new(lane: Lane, card: &CardInfo) -> Self {
        Self {
            lane,
            slots: 0,
            slots_limit: card.slots,
            free_slots: Vec::new(),
            kinds: 0,
            exact: Hashed::new(Table::Exact, "exact", card.ways, card.exact_rows_log2),
            page: Hashed::new(Table::Page, "page", card.ways, card.page_rows_log2),
            positions: HashMap::new(),
            in_page: HashMap::new(),
            ways: card.ways,
            rules: Vec::new(),
            rules_limit: card.rules as usize,
        }
    }

    fn rule_entry(&self, number: u32, row: Row) -> Entry512 {
        Entry512 {
            table: Table::Rule,
            lane: self.lane,
            index: number,
            row,
        }
    }

    fn slot_rows(&self) -> Vec<Entry512> {
        let placed = self.positions.values();
        let mut rows: Vec<_> = placed.map(|p| self.slot_entry(p.slot, p.row)).collect();
        rows.sort_unstable_by_key(|entry| entry.index);
        rows
    }

    fn slot_entry(&self, slot: u32, row: Row) -> Entry512 {
        Entry512 {
            table: Table::Slot,
            lane: self.lane,
            index: slot,
            row,
        }
    }

    /// Adds a position that is not there: its slot, and the rows to write in order.
    fn add(
        &mut self,
        connections: u32,
        events: &PositionEvents,
        actions: &mut Actions,
    ) -> std::result::Result<(u32, Vec<Entry512>), Refusal> {
        if u32::from(events.connection) >= connections {
            return Err(Refusal::Wrong(format!(
                "connection {} is beyond the {connections} that the card follows",
                events.connection
            )));
        }
        let slot = match self.free_slots.last() {
            Some(&slot) => slot,
            None if self.slots < self.slots_limit => self.slots,
            None => return Err(Refusal::Full("slot", self.slots as usize)),
        };
        let addition = self.addition(events, slot)?;
        let (row, used) = slot_row(&events.clauses, actions)?;
        let byte = matches!(events.at, Position::Byte(_));
        let (hashed, key_bits) = match byte {
            true => (&mut self.page, PAGE_KEY),
            false => (&mut self.exact, EXACT_KEY),
        };
        let Some((entry, keys)) = hashed.add(self.lane, addition.row, key_bits) else {
            let full = Refusal::Full(hashed.name, hashed.len());
            used.into_iter().for_each(|action| actions.release(action));
            return Err(full);
        };
        if byte {
            *self.in_page.entry(addition.row.key(PAGE_KEY)).or_default() += 1;
        }
        if self.free_slots.pop().is_none() {
            self.slots += 1;
        }
        self.kinds |= addition.kinds;
        let mut rows = action_rows(actions, &used);
        // The slot may have been another's.
        rows.push(Entry512 {
            table: Table::State,
            ..self.slot_entry(slot, Row::default())
        });
        rows.push(self.slot_entry(slot, row));
        rows.extend(keys);
        let placed = Placed {
            slot,
            row,
            actions: used,
            exact: (!byte).then_some(entry),
            bound: addition.bound,
        };
        self.positions.insert(key(events), placed);
        Ok((slot, rows))
    }

    /// Changes what happens at a position that is there: one row, at one stroke.
    fn replace(
        &mut self,
        events: &PositionEvents,
        actions: &mut Actions,
    ) -> Checked<(u32, Vec<Entry512>)> {
        let (row, used) = slot_row(&events.clauses, actions)?;
        let mut rows = action_rows(actions, &used);
        let Some(placed) = self.positions.get_mut(&key(events)) else {
            return Err("is not in the card".into());
        };
        placed.row = row;
        let before = std::mem::replace(&mut placed.actions, used);
        let slot = placed.slot;
        before
            .into_iter()
            .for_each(|action| actions.release(action));
        rows.push(self.slot_entry(slot, row));
        Ok((slot, rows))
    }

    fn remove(
        &mut self,
        connection: u16,
        at: Position,
        actions: &mut Actions,
    ) -> Option<Vec<Entry512>> {
        let name = (connection, canonical(at));
        let placed = self.positions.get_mut(&name)?;
        placed.row = Row::default();
        let used = std::mem::take(&mut placed.actions);
        used.into_iter().for_each(|action| actions.release(action));
        let (slot, bound) = (placed.slot, placed.bound);
        let mut rows = Vec::new();
        // A byte keeps its key, to a slot that does nothing any more.
        if let Some(entry) = placed.exact {
            rows.extend(self.exact.remove(self.lane, entry));
            self.positions.remove(&name);
            if !bound {
                self.free_slots.push(slot);
            }
        }
        rows.push(self.slot_entry(slot, Row::default()));
        Some(rows)
    }

    /// Checks a position; its key and what goes with it.
    fn addition(&self, events: &PositionEvents, slot: u32) -> Checked<Addition> {
        let connection = events.connection;
        match events.at {
            Position::Nth { n: 0, .. } => Err("positions of a kind count from 1".into()),
            Position::Nth {
                kind: Kind::ReadRequest,
                ..
            } => Err("a read request is named by its PSN".into()),
            Position::Nth {
                kind: kind @ (Kind::Injected | Kind::Other),
                ..
            } => Err(format!("packets of kind {kind} have no positions")),
            // Only TCP has data by the number of its segment; PSNs are `Psn`.
            Position::Nth { kind, n } => Ok(exact(connection, kind, n, kind == Kind::Data, slot)),
            // The card looks read requests up as data.
            Position::Psn(psn) => Ok(exact(connection, Kind::Data, psn, false, slot)),
            Position::Byte(byte) if byte > MAX_BYTE => {
                Err(format!("byte {byte} is not below 2^48"))
            }
            Position::Byte(byte) => {
                let row = Row::default()
                    .with(0, 40, (byte >> 8).into())
                    .with(40, 16, connection.into())
                    .with(56, 24, slot.into())
                    .with(80, 8, (byte & 0xff).into())
                    .with_bit(88, true);
                let count = self.in_page.get(&row.key(PAGE_KEY)).copied();
                if count.unwrap_or_default() >= self.ways {
                    return Err(format!(
                        "byte {byte}: the card takes {} byte positions among bytes {} to {} of a connection",
                        self.ways,
                        byte & !0xff,
                        byte | 0xff
                    ));
                }
                Ok(Addition {
                    row,
                    kinds: KINDS_PAGES,
                    bound: false,
                })
            }
        }
    }
}

fn exact(connection: u16, kind: Kind, n: u32, bound: bool, slot: u32) -> Addition {
    let number = kind.number();
    let row = Row::default()
        .with(0, 32, n.into())
        .with(32, 4, number.into())
        .with(36, 16, connection.into())
        .with(52, 24, slot.into())
        .with_bit(76, bound)
        .with_bit(EXACT_VALID, true);
    Addition {
        row,
        kinds: 1 << number,
        bound,
    }
}

/// Rows of some actions; those that others use too are written once more as they are.
fn action_rows(actions: &Actions, used: &[u32]) -> Vec<Entry512> {
    let entry = |&n: &u32| {
        let (action, _) = actions.list[n as usize].as_ref()?;
        Some(Actions::row(n, action))
    };
    used.iter().filter_map(entry).collect()
}
