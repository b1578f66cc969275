// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans and runs: what a test is, how it is carried out, and what it comes to.
//!
//! A [`plan::Plan`] is read from YAML and checked; [`compile()`] makes of it what the
//! driver loads into the card. [`run()`] carries it out with a card from a
//! [`bench::CardProvider`] and leaves a directory: what was [recorded](run_file::Recorded), what
//! was [found](run_file::Findings) in the capture, and the [verdict]. [`analyze()`]
//! finds it once more, [`explicit()`] makes a plan of what happened. [`table::text`] is what a
//! person reads.

mod analyze;
mod answers;
pub mod bench;
pub mod compare;
mod compile;
mod draw;
mod edits;
mod error;
pub mod expect;
mod explicit;
#[cfg(test)]
mod fixture;
pub mod fuzz;
mod inputs;
pub mod inside;
mod jobs;
pub mod junit;
mod linux_run;
pub mod lumina;
mod measure;
pub mod merge;
pub mod plan;
mod rdma_run;
mod report;
pub mod rerun;
pub mod retrace;
mod roce;
mod run;
pub mod run_file;
pub mod select;
pub mod suite;
pub mod table;
mod text;
pub mod triggers;
mod twin;
pub mod verdict;

pub use analyze::{analyze, comment};
pub use compile::{Compiled, compile};
pub use error::Error;
pub use explicit::explicit;
pub use run::{Again, Options, Progress, RUNS, RunOutcome, run};
