// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong outside the device under test.

use std::io;
use std::path::{Path, PathBuf};

use crate::plan::PlanError;
use crate::verdict::{BAD_PLAN, Outcome};

/// A run that could not be carried out, or a file that could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan's file can't be read.
    #[error("can't read the plan {}: {source}", path.display())]
    ReadPlan {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The target's file can't be read.
    #[error("can't read the target {}: {source}", path.display())]
    ReadTarget {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The plan, or the target, has mistakes.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A file that the plan names can't be read.
    #[error("can't read {}, which the plan names: {source}", path.display())]
    Input {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A figure can't be drawn.
    #[error("can't draw {of}: {reason}")]
    Figure {
        /// The figure, or the run that it needs.
        of: String,
        /// Cause.
        reason: String,
    },
    /// The directory for a run holds something.
    #[error("{} is not empty: a run gets a directory of its own", .0.display())]
    NotEmpty(PathBuf),
    /// A file of the run can't be read or written.
    #[error("can't {what} {}: {source}", path.display())]
    File {
        /// What was attempted.
        what: &'static str,
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// `run.json` can't be understood.
    #[error("{} is no run of midwire: {source}", path.display())]
    RunFile {
        /// File.
        path: PathBuf,
        /// Cause.
        source: serde_json::Error,
    },
    /// `run.json` is of another version.
    #[error("{} has version {found}, this midwire reads version {}", path.display(), crate::run_file::VERSION)]
    RunVersion {
        /// File.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A run can't be repeated.
    #[error("{} can't be repeated: {reason}", path.display())]
    Rerun {
        /// Its directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A connection can't be replayed.
    #[error("can't replay a connection of {}: {reason}", path.display())]
    Retrace {
        /// Run or file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A run that a command needs could not be carried out.
    #[error("a run could not be carried out: {0}")]
    Run(String),
    /// A search can't be taken up again.
    #[error("the search in {} can't go on: {reason}", path.display())]
    Resume {
        /// Its directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A run of a search said nothing about the devices.
    #[error("a run of the search, left in {}, says nothing: {reason}", directory.display())]
    Search {
        /// Its directory, which is left there.
        directory: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// The packets of a run can't be named.
    #[error("the packets of {} can't be named, for its capture is not complete: {reason}", path.display())]
    Incomplete {
        /// Directory of the run.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
}

impl Error {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |source| Error::File { what, path, source }
    }

    /// Exit code of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::ReadPlan { .. }
            | Error::ReadTarget { .. }
            | Error::Plan(_)
            | Error::Input { .. }
            | Error::NotEmpty(_)
            | Error::Rerun { .. }
            | Error::Retrace { .. }
            | Error::Resume { .. } => BAD_PLAN,
            Error::Incomplete { .. } => Outcome::CaptureIncomplete.exit_code(),
            Error::File { .. }
            | Error::RunFile { .. }
            | Error::RunVersion { .. }
            | Error::Figure { .. }
            | Error::Run(_)
            | Error::Search { .. } => Outcome::Environment.exit_code(),
        }
    }
}
