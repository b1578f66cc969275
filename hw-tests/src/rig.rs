// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs frames through a card in virtual time and brings back all that came of it.

use crate::backend::InProcess;
use midwire_driver::{
    Action, CaptureConfig, CaptureSummary, Card, Counters, Ecn, Loaded, Nanos, PositionEvents,
    Program, Rule, Selector, Transport,
};
use midwire_trace::{Accounting, Lane, Port, Record};
use midwire_virtual_card::{
    Config, Frame, Line, PortConfig, Stats, Time, VirtualCard, Width, after_start,
};
use std::time::Duration;
use tempfile::TempDir;

/// Wall time after which a run is given up.
const PATIENCE: Duration = Duration::from_secs(300);

/// Drops a packet.
pub const DROP: Action = Action {
    drop: true,
    ..Action::NOTHING
};
/// Marks a packet as one that met congestion.
pub const MARK: Action = Action {
    ecn: Some(Ecn::Ce),
    ..Action::NOTHING
};

/// Events on whatever connections there are.
pub fn on_all(positions: Vec<PositionEvents>, rules: Vec<Rule>) -> Program {
    Program {
        selectors: vec![
            Selector::any(Transport::Tcp),
            Selector::any(Transport::Roce),
        ],
        positions,
        rules,
        ..Program::default()
    }
}

/// A frame for the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The way that it takes.
    pub lane: Lane,
    /// Nanoseconds from the start of all input, before which it does not begin.
    pub at: u64,
    /// From the destination address on, without FCS.
    pub data: Vec<u8>,
    /// It has a wrong FCS.
    pub bad: bool,
}

impl Sent {
    /// A sound frame.
    pub fn new(lane: Lane, at: u64, data: Vec<u8>) -> Self {
        Self {
            lane,
            at,
            data,
            bad: false,
        }
    }
}

/// A frame that left the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// When its first bit was on the line: picoseconds from the start of all input.
    pub at: u64,
    /// The frame.
    pub data: Vec<u8>,
    /// It has a wrong FCS.
    pub bad: bool,
}

/// How a card is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which core.
    pub width: Width,
    /// Jump over idle clocks.
    pub skip_idle: bool,
    /// The host's accesses go on while packets pass.
    pub prompt_access: bool,
    /// Settings of the capture; the path is the rig's.
    pub capture: CaptureConfig,
}

impl Settings {
    /// With whole frames in the capture.
    pub fn new(width: Width) -> Self {
        let capture = CaptureConfig {
            snapshot_bytes: 10240,
            ring_blocks: 64,
            flush: Nanos::from_millis(1),
            ..CaptureConfig::new("")
        };
        Self {
            width,
            skip_idle: true,
            prompt_access: false,
            capture,
        }
    }
}

/// A card, what is plugged into it, and the driver that has it.
pub struct Rig {
    /// The driver's side.
    pub card: Card,
    /// The simulation.
    pub simulation: VirtualCard,
    /// The lines at port A and B.
    pub lines: [Line; 2],
    directory: TempDir,
    capture: CaptureConfig,
}

/// Everything that a run left.
pub struct Outcome {
    /// What the card made of the program.
    pub loaded: Loaded,
    /// Frames that left by lane, in their order.
    pub delivered: [Vec<Delivered>; 2],
    /// Records and their snapshots, in the capture's order.
    pub records: Vec<(Record, Vec<u8>)>,
    /// The driver's account of the capture.
    pub summary: CaptureSummary,
    /// The account of the file.
    pub accounting: Accounting,
    /// The file.
    pub capture: Vec<u8>,
    /// The card's counters.
    pub counters: Counters,
    /// Those of the simulation.
    pub stats: Stats,
}

impl Rig {
    /// Makes a card in virtual time and opens it.
    pub fn new(settings: &Settings) -> Self {
        let simulation = VirtualCard::spawn(Config {
            width: settings.width,
            time: Time::Virtual,
            ports: [PortConfig::Line, PortConfig::Line],
            skip_idle: settings.skip_idle,
            prompt_access: settings.prompt_access,
            ..Config::default()
        })
        .expect("a virtual card");
        let card = Card::open(Box::new(InProcess::new(simulation.host_bus()))).expect("a card");
        let lines = Port::ALL.map(|port| simulation.line(port).expect("a line"));
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("capture.mwc");
        let capture = CaptureConfig {
            path,
            ..settings.capture.clone()
        };
        Self {
            card,
            simulation,
            lines,
            directory,
            capture,
        }
    }

    /// The settings of the rig's capture.
    pub fn capture(&self) -> CaptureConfig {
        self.capture.clone()
    }

    /// Queues a frame at the port where its lane begins.
    pub fn send(&self, frame: &Sent) {
        let at = after_start(frame.at);
        let sent = Frame {
            at,
            data: frame.data.clone(),
            bad: frame.bad,
        };
        self.lines[frame.lane.index()]
            .send_frame(sent)
            .expect("a running card");
    }

    /// Lets the card run until nothing happens any more.
    pub fn settle(&self) {
        self.simulation.start_inputs().expect("a running card");
        self.simulation
            .wait_quiescent(PATIENCE)
            .expect("the card comes to rest");
    }

    /// Frames that left by lane.
    pub fn delivered(&self) -> [Vec<Delivered>; 2] {
        let start = after_start(0);
        // A lane ends at the other port.
        [1, 0].map(|port: usize| {
            let line = &self.lines[port];
            std::iter::from_fn(|| line.try_receive())
                .map(|f| Delivered {
                    at: f.at - start,
                    data: f.data,
                    bad: f.bad,
                })
                .collect()
        })
    }

    /// Runs frames through the card while it carries out a program and captures.
    pub fn run(&self, program: &Program, frames: &[Sent]) -> Outcome {
        let loaded = self.card.load(program).expect("a program");
        let capture = self.card.start_capture(self.capture()).expect("a capture");
        self.card.track(true).expect("tracking");
        frames.iter().for_each(|frame| self.send(frame));
        self.settle();
        let summary = capture.stop().expect("a whole capture");
        let file = midwire_trace::Capture::open(&self.capture.path).expect("a file");
        let mut records = Vec::new();
        let mut entries = file.entries();
        while let Some(entry) = entries.next_entry() {
            records.push((entry.record, entry.snapshot.to_vec()));
        }
        Outcome {
            loaded,
            delivered: self.delivered(),
            records,
            summary,
            accounting: Accounting::of(&file),
            capture: std::fs::read(&self.capture.path).expect("a file"),
            counters: self.card.counters().expect("counters"),
            stats: self.simulation.stats(),
        }
    }

    /// A directory that lives as long as the rig.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }
}
