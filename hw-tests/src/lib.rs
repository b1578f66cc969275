// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole card under test: the core's RTL under Verilator, driven by the driver, with
//! frames at both ports, against a model of what the documents say that it does.
//!
//! - [`InProcess`] lets the driver reach a virtual card in the same process.
//! - [`Rig`] runs frames through a card in virtual time and brings back all that came of it.

mod backend;
mod rig;

pub use backend::InProcess;
pub use rig::{Delivered, Outcome, Rig, Sent, Settings};
