// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run.json`: everything a run was, recorded and found.
//!
//! [`Recorded`] is what can't be had again: it is written once, when the run ends. [`Findings`]
//! follow from it and from the capture, so they can be worked out again at any time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use midwire_analysis::report::Check;
use midwire_analysis::roce;
use midwire_analysis::tcp::Retransmission;
use midwire_driver::Rule;
use midwire_endpoints::rnic::RdmaReport;
use midwire_trace::{Lane, Port};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::merge::Position;
use crate::plan::Plan;
use crate::triggers::Gate;
use crate::verdict::Verdict;

/// Version of the layout of `run.json`.
pub const VERSION: u32 = 2;

/// Names of the files of a run.
pub mod files {
    /// The run itself.
    pub const RUN: &str = "run.json";
    /// The blocks as the card wrote them.
    pub const CAPTURE: &str = "capture.mwc";
    /// Events and expectations as test cases.
    pub const JUNIT: &str = "junit.xml";
    /// Calls of functions in the kernels of hosts.
    pub const CALLS: &str = "calls.csv";
    /// What the kernels of hosts noted of their sockets.
    pub const INSIDE: &str = "inside.csv";
    /// The page for people.
    pub const REPORT: &str = "report.html";
    /// A replayed connection against the recorded one.
    pub const RETRACE: &str = "retrace.txt";
    /// The same for the page.
    pub const REPLAY: &str = "retrace.json";
}

/// A run: the whole of `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// Version of this layout, 2.
    pub version: u32,
    /// Name of the plan.
    pub name: String,
    /// What the run comes to.
    pub verdict: Verdict,
    /// What was read from the capture.
    pub findings: Findings,
    /// What was set up, and what card and endpoints said.
    pub recorded: Recorded,
}

/// What can't be had again once the run is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Version of midwire that ran it.
    pub midwire: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Which of several runs of the plan, from 1, and of how many.
    pub repeat: (u32, u32),
    /// The run that it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun: Option<Rerun>,
    /// Files that it read besides the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputRecord>,
    /// UTC, beginning and end.
    pub started: String,
    /// UTC, when the capture had ended.
    pub ended: String,
    /// Host system and machine.
    pub host: String,
    /// The plan.
    pub plan: PlanRecord,
    /// The card; nothing when it could not be opened.
    pub card: Option<CardRecord>,
    /// Connections that the card was told of before there were packets of them, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declared: Vec<midwire_driver::DeclaredConnection>,
    /// Positions that were loaded into the card, with what the card counted there.
    pub positions: Vec<PositionRecord>,
    /// Rules that were loaded into the card, with what the card counted of each.
    pub rules: Vec<RuleRecord>,
    /// What the driver wrote.
    pub capture: CaptureRecord,
    /// What the card counted; nothing when it was gone.
    pub counters: Option<serde_json::Value>,
    /// Connections that the card learnt.
    pub connections: Vec<ConnectionRecord>,
    /// What became of the traffic.
    pub traffic: Vec<TrafficRecord>,
    /// What went through the interfaces of the hosts, when there are hosts.
    pub hosts: Option<serde_json::Value>,
    /// What the kernels of hosts noted of themselves, when they were to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<InsideRecord>,
    /// What model NICs counted, or Soft-RoCE of Linux hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<NicRecord>,
    /// The run was broken off by the user.
    pub interrupted: bool,
    /// Why it could not be carried out.
    pub error: Option<String>,
}

/// What a run repeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rerun {
    /// Directory of the other run.
    pub of: PathBuf,
    /// Card time at which its hosts are stopped to be looked at, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
}

/// A file that a run read: a kernel, an initramfs, frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRecord {
    /// File.
    pub path: PathBuf,
    /// Hash of its contents.
    pub sha256: String,
}

/// The plan of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// File that it was read from.
    pub file: String,
    /// Its text as it was.
    pub text: String,
    /// As it was understood.
    pub parsed: Plan,
}

/// The card of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CardRecord {
    /// Where it is: virtual, a socket or a PCI address.
    pub place: String,
    /// Identity and parameters as its registers say.
    pub parameters: serde_json::Value,
}

/// The capture of a run, as the driver left it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureRecord {
    /// Blocks in the file.
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Why it ended before its end.
    pub error: Option<String>,
}

/// A position that events name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionRecord {
    /// Direction of its packets.
    pub direction: Lane,
    /// Slot of the card's lane.
    pub slot: u32,
    /// Connection.
    pub connection: u32,
    /// Place in it.
    pub at: Position,
    /// Ranges of iterations; the first that holds one, and whose trigger is armed, counts.
    pub clauses: Vec<ClauseRecord>,
    /// Times that the card saw the position.
    pub seen: u64,
    /// Times that the card did something there.
    pub fired: u64,
    /// Packet of the lane to which it did so last.
    pub last_packet_id: Option<u32>,
}

impl PositionRecord {
    /// Whether what happens depends on other events.
    pub fn waits(&self) -> bool {
        self.clauses
            .iter()
            .any(|clause| clause.gate.armed_by.is_some())
    }

    /// Whether anything is asked for the n-th packet at the position, all triggers armed.
    pub fn acts(&self, iteration: u8) -> bool {
        self.clauses
            .iter()
            .any(|clause| (clause.first..=clause.last).contains(&iteration))
    }

    /// Numbers of the events that name the position, ascending.
    pub fn events(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self
            .clauses
            .iter()
            .flat_map(|c| &c.events)
            .copied()
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The same as text.
    pub fn event_numbers(&self) -> String {
        let numbers: Vec<_> = self.events().iter().map(u32::to_string).collect();
        numbers.join(", ")
    }
}

/// A range of iterations and the events that it serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClauseRecord {
    /// First iteration.
    pub first: u8,
    /// Last iteration; 255: without end.
    pub last: u8,
    /// Triggers that it waits for and works.
    #[serde(flatten)]
    pub gate: Gate,
    /// Numbers of the events in the plan, from 1.
    pub events: Vec<u32>,
}

/// A rule of the card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRecord {
    /// Number of its event in the plan, from 1.
    pub event: u32,
    /// Slot of the card's lane.
    pub slot: u32,
    /// What was loaded.
    pub rule: Rule,
    /// Packets that passed its filter.
    pub seen: u64,
    /// Those that it hit.
    pub fired: u64,
    /// The one of the lane that it hit last.
    pub last_packet_id: Option<u32>,
}

/// A connection as the card learnt it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionRecord {
    /// Its number, from 0.
    pub number: u32,
    /// In words: transport, addresses and ports.
    pub text: String,
    /// The direction of the packet that opened it.
    pub opener: Lane,
}

/// A model NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicRecord {
    /// The endpoint that it is.
    pub endpoint: midwire_endpoints::Port,
    /// Its counters by name.
    pub counters: BTreeMap<String, u64>,
}

/// What the kernel of a host noted of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideRecord {
    /// The endpoint that it is.
    pub endpoint: midwire_endpoints::Port,
    /// How often it noted something of a socket.
    pub moments: u64,
    /// Calls of functions that it noted.
    #[serde(default)]
    pub calls: u64,
    /// Events for which it had no room.
    pub lost: u64,
}

impl std::fmt::Display for InsideRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let InsideRecord {
            endpoint,
            moments,
            calls,
            lost,
        } = self;
        write!(f, "host {endpoint} noted {moments} moments of its sockets")?;
        if *calls > 0 {
            write!(f, " and {calls} calls of functions")?;
        }
        match lost {
            0 => Ok(()),
            lost => write!(f, ", and LOST {lost}: give it more memory"),
        }
    }
}

/// What became of an entry of the traffic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrafficRecord {
    /// Number of the entry in the plan, from 1.
    pub number: u32,
    /// What it was, in words.
    pub what: String,
    /// It ended by itself and without error.
    pub completed: bool,
    /// How it ended, in words.
    pub summary: String,
    /// All that is known of it.
    pub details: serde_json::Value,
}

impl TrafficRecord {
    /// What became of messages, when they were those of model NICs.
    pub fn rdma(&self) -> Option<RdmaReport> {
        RdmaReport::deserialize(&self.details).ok()
    }
}

/// What follows from the capture.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Each event of the plan: asked, fired, measured.
    pub events: Vec<EventRecord>,
    /// Whether every packet is accounted for.
    pub integrity: Integrity,
    /// TCP segments that were sent again.
    pub retransmissions: Vec<Retransmission>,
    /// What RDMA NICs did, when there is RoCE in the capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roce: Option<roce::source::Read>,
    /// Each expectation of the plan and what was found.
    pub expectations: Vec<ExpectationRecord>,
}

/// An event: what was asked, and what the capture shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Number in the plan, from 1.
    pub number: u32,
    /// What the plan asks for, in words.
    pub asked: String,
    /// Times that it has to fire; nothing when the plan leaves it open (then once at least).
    pub wanted: Option<u32>,
    /// Packets at its position, or that its rule chose from.
    pub seen: u64,
    /// Times that it fired and was carried out, by the records.
    pub fired: u32,
    /// It fired as often as it has to, each time as asked.
    pub done: bool,
    /// What was measured, in words.
    pub measured: String,
    /// Each time that it fired, the first thousand.
    pub firings: Vec<Firing>,
}

/// One time that an event fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// Packet of the lane, as in the records.
    pub packet_id: u32,
    /// The n-th time that the position was seen, or the n-th packet that the rule chose from.
    pub iteration: u32,
    /// Card time of the packet's first beat at ingress, ns.
    pub time_ns: u64,
    /// Card time of its first beat at egress, ns; nothing when it did not leave.
    pub left_ns: Option<u64>,
    /// What is wrong with it: asked and not done.
    pub failure: Option<String>,
    /// Delay asked against delay measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<DelayMeasure>,
    /// Packets that were to leave before it, and those that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<MoveMeasure>,
    /// Its copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopiesMeasure>,
    /// The frame that was made in answer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerMeasure>,
    /// ECN field before and after, 0 to 3, when the snapshots hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<(u8, u8)>,
    /// Bytes of the snapshots that differ, mended checksums included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ChangedByte>,
    /// Bytes that a set wrote to, as far as the snapshots show them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<ChangedByte>,
    /// The byte that a corruption changed, when the snapshots show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupted: Option<ChangedByte>,
    /// Checksums that were to be made good or to be left wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checksums: Vec<ChecksumMeasure>,
    /// Bytes of the frame before and after it was cut off, without FCS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<(u16, u16)>,
}

/// A frame that was made in answer to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerMeasure {
    /// Port at which it left.
    pub port: Port,
    /// When its first beat left, card time.
    pub left_ns: u64,
    /// How much later than the packet's first beat came in.
    pub after_ns: u64,
    /// Bytes of the frame without FCS.
    pub length: u16,
}

/// A checksum of a packet, asked against found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumMeasure {
    /// Which.
    pub name: ChecksumName,
    /// What was to happen to it.
    pub asked: ChecksumAsked,
    /// It was right as the packet came; nothing when the snapshot does not tell.
    pub before: Option<bool>,
    /// It was right as the packet left.
    pub after: Option<bool>,
}

/// Names a checksum, as plans do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChecksumName {
    /// The frame's.
    Fcs,
    /// That of the IPv4 header.
    Ip,
    /// TCP's or UDP's.
    L4,
    /// RoCE's invariant CRC.
    Icrc,
}

impl std::fmt::Display for ChecksumName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ChecksumName::Fcs => "FCS",
            ChecksumName::Ip => "IP checksum",
            ChecksumName::L4 => "L4 checksum",
            ChecksumName::Icrc => "ICRC",
        })
    }
}

/// What was to happen to a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChecksumAsked {
    /// Changes are made good in it.
    Mended,
    /// It leaves wrong.
    Broken,
}

/// A delay, asked and measured from first beat at ingress to first beat at egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayMeasure {
    /// What the plan asks for, ns.
    pub asked_ns: u64,
    /// What the records show, ns.
    pub measured_ns: u64,
    /// Measured less asked, ns.
    pub error_ns: i64,
}

/// How far a packet moved back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveMeasure {
    /// Later packets that the plan wants to leave before it.
    pub asked: u32,
    /// Those that left before it.
    pub places: u32,
}

/// Copies of a packet, asked and measured from first beat to first beat at egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiesMeasure {
    /// How many the plan asks for.
    pub asked: u32,
    /// How many left.
    pub left: u32,
    /// What the plan asks for from one to the next, ns.
    pub asked_gap_ns: u64,
    /// The shortest and the longest gap that the records show, ns.
    pub gaps_ns: Option<(u64, u64)>,
}

/// A byte that left other than it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedByte {
    /// From the start of the frame.
    pub offset: u32,
    /// As it came.
    pub before: u8,
    /// As it left.
    pub after: u8,
}

impl std::fmt::Display for ChangedByte {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ChangedByte {
            offset,
            before,
            after,
        } = self;
        write!(
            f,
            "byte {offset} of the frame {before:#04x} became {after:#04x}"
        )
    }
}

/// Whether every packet is accounted for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Integrity {
    /// Everything holds and nothing was lost: a verdict on the device can be given.
    pub complete: bool,
    /// In words.
    pub summary: String,
    /// Each statement of the proof.
    pub checks: Vec<Check>,
}

/// An expectation and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectationRecord {
    /// Number in the plan, from 1.
    pub number: u32,
    /// What was expected, in words.
    pub expected: String,
    /// What was found, in words.
    pub found: String,
    /// Whether it was met.
    pub met: bool,
}

impl RunFile {
    /// Reads `run.json` of a run's directory.
    pub fn read(dir: &Path) -> Result<RunFile, Error> {
        let path = dir.join(files::RUN);
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let unreadable = |source| Error::RunFile {
            path: path.clone(),
            source,
        };
        let Versioned { version } = serde_json::from_str(&text).map_err(unreadable)?;
        if version != VERSION {
            return Err(Error::RunVersion {
                path,
                found: version,
            });
        }
        serde_json::from_str(&text).map_err(unreadable)
    }

    /// Writes `run.json` as a whole: a reader never sees half of it.
    pub fn write(&self, dir: &Path) -> Result<PathBuf, Error> {
        let path = dir.join(files::RUN);
        let partial = dir.join("run.json.part");
        let mut text = serde_json::to_string_pretty(self).map_err(|source| Error::RunFile {
            path: path.clone(),
            source,
        })?;
        text.push('\n');
        fs::write(&partial, text).map_err(Error::file("write", &partial))?;
        fs::rename(&partial, &path).map_err(Error::file("write", &path))?;
        Ok(path)
    }
}
