// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The proof that a capture shows what happened: the statements of `docs/formats.md`, checked.
//!
//! A capture is *accounted for* when, per port, the frames received are the records and the
//! counted losses, sequence numbers have no other gap and time does not go back. It is *complete*
//! when nothing was lost besides. [`Blocks`](crate::capture::Blocks) already sees to it that blocks and sequence numbers
//! are consecutive; where they are not, reading stops there.

use serde::{Deserialize, Serialize};

use crate::block::{Block, Counters};
use crate::capture::{Capture, Stop};
use crate::record::Record;
use crate::units::{Actions, Flags, Kind, Nanos, Port, Tap};

/// What became of the frames that came in at a port, and what left at the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortAccount {
    /// The port.
    pub port: Port,
    /// Frames that came in.
    pub frames_received: u64,
    /// Their records in the capture.
    pub ingress_records: u64,
    /// Ingress records that were lost.
    pub lost_ingress: u64,
    /// Frames that the card itself lost because the lane was full.
    pub rx_lost: u64,
    /// Frames that an event dropped.
    pub dropped: u64,
    /// Frames that left at the other port.
    pub tx_frames: u64,
    /// Copies among them.
    pub copied: u64,
    /// Frames among them that the card made.
    pub injected: u64,
    /// Records of touched, copied and injected frames that left.
    pub egress_records: u64,
    /// Such records that were lost.
    pub lost_egress: u64,
    /// Records that were kept without their snapshot.
    pub lost_snapshots: u64,
}

/// The account of a whole capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounting {
    /// Whole good blocks.
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
    /// Time of the first record.
    pub first: Option<Nanos>,
    /// Latest time of a record.
    pub last: Option<Nanos>,
    /// By port A and B.
    pub ports: [PortAccount; 2],
    /// Every frame has its record or is counted as lost, and everything else fits.
    pub accounted_for: bool,
    /// Accounted for, and nothing was lost.
    pub complete: bool,
    /// Why it is not accounted for or not complete, in sentences.
    pub problems: Vec<String>,
}

impl Accounting {
    /// The account of a capture file.
    pub fn of(capture: &Capture) -> Self {
        let mut blocks = capture.blocks();
        let mut clerk = Clerk::default();
        while let Some(block) = blocks.next_block() {
            clerk.block(&block);
        }
        clerk.close(blocks.stop())
    }
}

/// Keeps the account while blocks go by, so that it can be had without reading them again.
#[derive(Clone, Debug, Default)]
pub struct Clerk {
    blocks: u64,
    records: u64,
    first: Option<Nanos>,
    last: Option<Nanos>,
    counters: Counters,
    finished: bool,
    lanes: [LaneClerk; 2],
}

#[derive(Clone, Debug, Default)]
struct LaneClerk {
    taps: [TapClerk; 2],
    next_id: Option<u32>,
    ids_missing: u64,
    /// Record whose packet id is not above that of the one before.
    id_back: Option<u64>,
    drops_asked: u64,
    touched: u64,
    copies: u64,
    injected: u64,
}

#[derive(Clone, Debug, Default)]
struct TapClerk {
    records: u64,
    bare: u64,
    latest: Option<Nanos>,
    back: u64,
    first_back: Option<u64>,
}

impl Clerk {
    /// Takes the next block of the capture. Blocks must be given in order and without a gap, as
    /// [`Blocks`](crate::capture::Blocks) does.
    pub fn block(&mut self, block: &Block<'_>) {
        self.blocks += 1;
        self.records += u64::from(block.header.records);
        self.counters = block.header.counters;
        self.finished = block.header.last;
        let snapshots = block.header.snapshot_bytes != 0;
        for entry in block.records() {
            let record = &entry.record;
            self.first = self.first.or(Some(record.time));
            self.last = self.last.max(Some(record.time));
            let lane = &mut self.lanes[record.lane.index()];
            lane.taps[record.tap.index()].record(entry.seq, record, snapshots);
            match record.tap {
                Tap::Ingress => lane.ingress(entry.seq, record),
                Tap::Egress => lane.egress(record),
            }
        }
    }

    /// The account, when no more blocks follow; `stop` is what [`Blocks::stop`](crate::capture::Blocks::stop) said.
    pub fn close(&self, stop: Option<&Stop>) -> Accounting {
        let ports = Port::ALL.map(|port| self.port(port));
        let mut problems = Vec::new();
        if let Some(stop) = stop {
            problems.push(format!("The capture can be read only up to {stop}."));
        }
        if !self.finished {
            problems.push("The capture has no final block: it was cut off, or still runs.".into());
        }
        for (account, lane) in ports.iter().zip(&self.lanes) {
            lane.check(account, self.finished, &mut problems);
        }
        let accounted_for = problems.is_empty();
        for account in &ports {
            account.losses(&mut problems);
        }
        Accounting {
            blocks: self.blocks,
            records: self.records,
            first: self.first,
            last: self.last,
            ports,
            accounted_for,
            complete: problems.is_empty(),
            problems,
        }
    }

    fn port(&self, port: Port) -> PortAccount {
        let (i, c) = (port.index(), &self.counters);
        let [ingress, egress] = &self.lanes[i].taps;
        PortAccount {
            port,
            frames_received: c.rx_frames[i],
            ingress_records: ingress.records,
            lost_ingress: c.lost_ingress[i].into(),
            rx_lost: c.rx_lost[i].into(),
            dropped: c.dropped[i].into(),
            tx_frames: c.tx_frames[i],
            copied: c.copied[i].into(),
            injected: c.injected[i].into(),
            egress_records: egress.records,
            lost_egress: c.lost_egress[i].into(),
            lost_snapshots: c.lost_snapshots[i].into(),
        }
    }
}

impl TapClerk {
    fn record(&mut self, seq: u64, record: &Record, snapshots: bool) {
        self.records += 1;
        self.bare += u64::from(snapshots && !record.flags.contains(Flags::SNAPSHOT));
        // At ingress no two frames begin in the same clock; at egress the record counts, which
        // may share its nanosecond with the one before.
        let back = self.latest.is_some_and(|latest| match record.tap {
            Tap::Ingress => record.time <= latest,
            Tap::Egress => record.time < latest,
        });
        if back {
            self.back += 1;
            self.first_back.get_or_insert(seq);
        }
        self.latest = Some(record.time);
    }
}

impl LaneClerk {
    fn ingress(&mut self, seq: u64, record: &Record) {
        let id = record.packet_id;
        let ahead = self.next_id.map_or(0, |next| id.wrapping_sub(next));
        if ahead < 1 << 31 {
            self.ids_missing += u64::from(ahead);
        } else {
            self.id_back.get_or_insert(seq);
        }
        self.next_id = Some(id.wrapping_add(1));
        if record.actions.contains(Actions::DROP) {
            self.drops_asked += 1;
        } else if !record.actions.is_empty() {
            self.touched += 1;
        }
    }

    fn egress(&mut self, record: &Record) {
        if record.kind == Kind::Injected {
            self.injected += 1;
        } else if record.actions.contains(Actions::DUPLICATE) {
            self.copies += 1;
        }
    }

    fn check(&self, account: &PortAccount, finished: bool, problems: &mut Vec<String>) {
        let a = account;
        let (port, lane) = (a.port, a.port.lane());
        for (tap, clerk) in Tap::ALL.iter().zip(&self.taps) {
            if let Some(seq) = clerk.first_back {
                problems.push(format!(
                    "Lane {lane}: time goes back {} times at {tap}, first at record {seq}.",
                    clerk.back
                ));
            }
        }
        if let Some(seq) = self.id_back {
            problems.push(format!("Lane {lane}: packet ids go back at record {seq}."));
        }
        let lost = a.lost_ingress + a.rx_lost;
        if self.ids_missing > lost {
            problems.push(format!(
                "Lane {lane}: {} packet ids have no record, but only {lost} losses are counted.",
                self.ids_missing
            ));
        }
        // Before the final block frames are still under way.
        if !finished {
            return;
        }
        if a.frames_received != a.ingress_records + lost {
            problems.push(format!(
                "Port {port}: {} frames came in, but there are {} records, {} lost records and {} \
                 lost frames.",
                a.frames_received, a.ingress_records, a.lost_ingress, a.rx_lost
            ));
        }
        // The sums are taken the long way: a damaged counter must not overflow them.
        let sum = |parts: &[u64]| parts.iter().copied().map(u128::from).sum::<u128>();
        if sum(&[a.frames_received, a.copied, a.injected])
            != sum(&[a.tx_frames, a.dropped, a.rx_lost])
        {
            problems.push(format!(
                "Port {port}: {} frames came in, {} copies and {} injected ones were added, but {} \
                 left, {} were dropped and {} were lost.",
                a.frames_received, a.copied, a.injected, a.tx_frames, a.dropped, a.rx_lost
            ));
        }
        if a.lost_egress == 0 && (self.copies, self.injected) != (a.copied, a.injected) {
            problems.push(format!(
                "Lane {lane}: {} copies and {} injected frames left, but there are {} and {} \
                 records of them.",
                a.copied, a.injected, self.copies, self.injected
            ));
        }
        if a.lost_ingress == 0 && self.drops_asked != a.dropped {
            problems.push(format!(
                "Lane {lane}: {} frames were dropped, but {} records ask for it.",
                a.dropped, self.drops_asked
            ));
        }
        let own = a.egress_records - self.copies - self.injected;
        if own + a.lost_egress < self.touched {
            problems.push(format!(
                "Lane {lane}: events changed {} frames, but only {own} records of them were made \
                 at egress and {} lost.",
                self.touched, a.lost_egress
            ));
        }
        let bare: u64 = self.taps.iter().map(|tap| tap.bare).sum();
        if bare != a.lost_snapshots {
            problems.push(format!(
                "Lane {lane}: {bare} records have no snapshot, but {} are counted.",
                a.lost_snapshots
            ));
        }
    }
}

impl PortAccount {
    fn losses(&self, problems: &mut Vec<String>) {
        let (port, lane) = (self.port, self.port.lane());
        if self.rx_lost != 0 {
            let lost = self.rx_lost;
            problems.push(format!(
                "Port {port}: {lost} frames were lost, the lane was full."
            ));
        }
        for (lost, what) in [
            (self.lost_ingress, "ingress records were lost"),
            (self.lost_egress, "egress records were lost"),
            (self.lost_snapshots, "records lost their snapshot"),
        ] {
            if lost != 0 {
                problems.push(format!("Lane {lane}: {lost} {what}."));
            }
        }
    }
}
