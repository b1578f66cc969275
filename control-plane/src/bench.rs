// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a run gets its card from, and what it asks of it.
//!
//! Whoever starts runs implements [`CardProvider`]: it starts a virtual card, or opens one that
//! is there. The run itself knows the card through [`Device`], which is the driver's card but
//! in tests.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use midwire_driver as driver;
use midwire_endpoints::{linux, rnic};

use crate::plan::CardTime;

/// What a run asks for.
#[derive(Debug)]
pub struct CardRequest {
    /// Bits of the data path of a card that is made for the run.
    pub width: u32,
    /// What the time of such a card follows.
    pub time: CardTime,
    /// What is plugged into ports A and B.
    pub ports: [PortFeed; 2],
    /// Directory of the run, for what the card has to say.
    pub directory: PathBuf,
}

/// What is plugged into a port.
#[derive(Debug)]
pub enum PortFeed {
    /// The other side of a TAP: one read or write is one frame.
    Tap(OwnedFd),
    /// A model NIC, in virtual time.
    Rnic(rnic::Plug),
    /// A Linux host, in virtual time.
    Linux(linux::Plug),
    /// Files.
    Pcap {
        /// Frames that come in; none without it.
        input: Option<PathBuf>,
        /// Back to back instead of at their recorded times.
        line_rate: bool,
        /// Frames that leave.
        output: Option<PathBuf>,
    },
    /// What the user has plugged into a card that is there already.
    External,
}

/// A card, and the hold on what feeds its ports.
pub struct Provided {
    /// The card.
    pub device: Box<dyn Device>,
    /// What feeds its ports.
    pub feed: Box<dyn Feed>,
}

/// Brings up the card that a run asks for.
pub trait CardProvider {
    /// The card, ready to be programmed, with frames held back until [`Feed::play`]. The error
    /// is a sentence.
    fn provide(&mut self, request: CardRequest) -> Result<Provided, String>;
}

/// Makes providers, one for each run of many.
pub type Providers<'a> = &'a (dyn Fn() -> Box<dyn CardProvider> + Sync);

/// What feeds the ports of a card. Dropping it ends a card that was started for the run.
pub trait Feed {
    /// Lets frames of files, model NICs and Linux hosts come in.
    fn play(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// True when every frame of them has come in and come to rest; always true for
    /// TAPs.
    fn played(&mut self) -> Result<bool, String> {
        Ok(true)
    }

    /// Lets files be finished, after the capture has ended.
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// A card as a run uses it.
pub trait Device {
    /// Identity and parameters.
    fn info(&self) -> driver::CardInfo;
    /// Empties the card and writes a program into it.
    fn load(&self, program: &driver::Program) -> driver::Result<driver::Loaded>;
    /// Lets the card learn connections and carry out events, or stops it.
    fn track(&self, on: bool) -> driver::Result<()>;
    /// Starts the capture.
    fn start_capture(&self, config: driver::CaptureConfig) -> driver::Result<Box<dyn Capturing>>;
    /// All counters.
    fn counters(&self) -> driver::Result<driver::Counters>;
    /// Connections by number.
    fn connections(&self) -> driver::Result<Vec<driver::Connection>>;
    /// What became of a slot.
    fn slot_state(&self, slot: driver::SlotId) -> driver::Result<driver::SlotState>;
}

/// A capture that runs.
pub trait Capturing {
    /// How far it is.
    fn progress(&self) -> driver::CaptureProgress;
    /// Ends it.
    fn stop(self: Box<Self>) -> driver::Result<driver::CaptureSummary>;
}

impl Device for driver::Card {
    fn info(&self) -> driver::CardInfo {
        driver::Card::info(self).clone()
    }
    fn load(&self, program: &driver::Program) -> driver::Result<driver::Loaded> {
        driver::Card::load(self, program)
    }
    fn track(&self, on: bool) -> driver::Result<()> {
        driver::Card::track(self, on)
    }
    fn start_capture(&self, config: driver::CaptureConfig) -> driver::Result<Box<dyn Capturing>> {
        Ok(Box::new(driver::Card::start_capture(self, config)?))
    }
    fn counters(&self) -> driver::Result<driver::Counters> {
        driver::Card::counters(self)
    }
    fn connections(&self) -> driver::Result<Vec<driver::Connection>> {
        driver::Card::connections(self)
    }
    fn slot_state(&self, slot: driver::SlotId) -> driver::Result<driver::SlotState> {
        driver::Card::slot_state(self, slot)
    }
}

impl Capturing for driver::Capture {
    fn progress(&self) -> driver::CaptureProgress {
        driver::Capture::progress(self)
    }
    fn stop(self: Box<Self>) -> driver::Result<driver::CaptureSummary> {
        driver::Capture::stop(*self)
    }
}
