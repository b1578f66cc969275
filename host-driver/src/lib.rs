// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card as the host sees it: backends, registers, tables, the ring and the capture to disk.
//!
//! A [`Backend`] reaches a PCI device: [`KernelVfio`] a board, [`VfioUser`] the virtual card.
//! [`Card::open`] makes sure that it is a midwire card of this driver's register map. A
//! [`Program`] says which connections the card follows and what happens to which packets;
//! [`Card::load`] checks it and writes it into the card's tables. [`Card::start_capture`]
//! gives the card a ring of blocks in host memory and brings the blocks to disk as they are.
//!
//! ```no_run
//! use midwire_driver::{Card, CaptureConfig, Program, Selector, Transport, VfioUser};
//!
//! # fn main() -> midwire_driver::Result<()> {
//! let card = Card::open(Box::new(VfioUser::connect("/run/midwire.sock")?))?;
//! card.load(&Program {
//!     selectors: vec![Selector::any(Transport::Tcp)],
//!     ..Program::default()
//! })?;
//! let capture = card.start_capture(CaptureConfig::new("capture.mwc"))?;
//! card.track(true)?;
//! // ... traffic ...
//! let summary = capture.stop()?;
//! println!("{} records, complete: {}", summary.records, summary.complete);
//! # Ok(())
//! # }
//! ```

pub mod backend;
mod capture;
mod card;
mod dma;
mod error;
mod file;
mod hash;
mod program;
mod registers;
#[allow(
    missing_docs,
    rustdoc::broken_intra_doc_links,
    reason = "generated; the registers' meaning is in docs/registers.html"
)]
pub mod regs;
mod row;
mod rule;
mod tables;
mod template;
mod types;

pub use backend::{Backend, KernelVfio, VfioUser};
pub use capture::{Capture, CaptureConfig, CaptureProgress, CaptureSummary, Wake};
pub use card::{Card, CardInfo, Connection, Counters, LaneCounters, PortCounters, SlotState};
pub use error::{Error, Result};
pub use midwire_trace::{Chance, Kind, Lane, Nanos, Proto};
pub use program::{
    Action, Base, Broken, Clause, Corrupt, DeclaredConnection, Duplicate, Ecn, Ip6Place, Loaded,
    Mended, Position, PositionEvents, Prefix, Program, Reorder, ReorderScope, Selector, Set,
    SlotId,
};
pub use rule::{Measure, RULE_SLOT, Rule, RuleChance, RuleState, Scope, Sight};
pub use tables::MAX_CLAUSES;
pub use template::{
    Answer, Pause, RoceAnswer, RoceMessage, SequenceNumber, TcpAnswer, Template, Toward,
};
pub use types::{IpVersion, Transport};
pub use vmm_sys_util::eventfd::EventFd;
