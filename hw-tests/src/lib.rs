// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole card under test: the core's RTL under Verilator, driven by the driver, with
//! frames at both ports, against a model of what the documents say that it does.
//!
//! - [`InProcess`] lets the driver reach a virtual card in the same process.
//! - [`Rig`] runs frames through a card in virtual time and brings back all that came of it.
//! - [`Model`] is what the documents say, and [`check`] holds a run against it.
//! - [`traffic`] makes random frames and events.
//! - [`line_rate`] drives a card at the rate of the line and measures.

mod answer;
mod backend;
mod check;
mod edit;
pub mod line_rate;
mod model;
mod rig;
pub mod traffic;

pub use backend::InProcess;
pub use check::check;
pub use model::{Arrival, Expected, Made, Model, arrivals};
pub use rig::{DROP, Delivered, MARK, Outcome, Rig, Sent, Settings, on_all};
