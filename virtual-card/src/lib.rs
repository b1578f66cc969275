// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card's RTL under Verilator, as a PCI device over vfio-user.
//!
//! A [`VirtualCard`] is the core that a board carries, and around it what a board has in
//! silicon: two MACs with something plugged into them ([`PortConfig`]), and a PCI function
//! that the host drives, over a vfio-user socket or, within the process, a [`HostBus`].
//!
//! ```text
//!   port A ─ MAC ─┐                    ┌─ MAC ─ port B
//!                 └─ Core (Verilator) ─┘
//!                       │ registers, DMA, interrupt
//!                  PCI function ── HostBus ── vfio-user socket
//! ```
//!
//! It lives in wall time, for endpoints that live there too (TAPs), or in virtual time, where
//! a [calendar](Participant) decides what comes next and every run is the same to the bit.

mod calendar;
mod card;
mod core;
mod dma;
mod error;
mod file;
mod function;
mod mac;
mod serve;
mod server;
mod sim;
mod stats;
mod tap;

pub use crate::core::{Core, DMA_BYTES, Width};
pub use calendar::{Frame, INPUT_START, Participant, Picoseconds};
pub use card::{Config, Line, PortConfig, Time, VirtualCard, after_start};
pub use error::{Error, Result};
pub use file::Pace;
pub use function::{BAR0, BAR4, CONFIG, DEVICE_ID, HostBus, VECTORS, VENDOR_ID};
pub use serve::serve;
pub use stats::{PortStats, Stats};
