// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one error type of the driver. Every message is a sentence for the person at the terminal.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What the driver returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong between the host and the card.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The card cannot be opened; the sentence says why and what to do.
    #[error("{0}")]
    Unavailable(String),
    /// Another program has the card.
    #[error("{0} is in use by another program; a card serves one at a time")]
    InUse(String),
    /// Something answers, but it is no midwire card.
    #[error(
        "{card} is not a midwire card: its ID register reads {found:#010x}, a card's reads {:#010x}",
        crate::card::ID
    )]
    NotACard {
        /// Where the card was looked for.
        card: String,
        /// What its ID register reads.
        found: u32,
    },
    /// The core speaks another major version.
    #[error(
        "{card} has core version {found}, this driver needs {expected}.x; \
         use the driver and the core of one release"
    )]
    Version {
        /// Where the card is.
        card: String,
        /// Version of the core, `major.minor`.
        found: String,
        /// Major version that this driver needs.
        expected: u16,
    },
    /// The register maps differ.
    #[error(
        "{card} has register map {found:#010x}, this driver was built for {expected:#010x}; \
         use the driver and the core of one build"
    )]
    MapHash {
        /// Where the card is.
        card: String,
        /// Hash of the card's map.
        found: u32,
        /// Hash of the driver's map.
        expected: u32,
    },
    /// A parameter register holds a value that no core of this version can have.
    #[error("{card} reports {parameter} = {value}, which this driver cannot handle")]
    Parameter {
        /// Where the card is.
        card: String,
        /// Name of the register.
        parameter: &'static str,
        /// What it reads.
        value: u32,
    },
    /// Reaching the card failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The card did not finish in time.
    #[error("the card did not {what} within {} ms", after.as_millis())]
    Timeout {
        /// What it should have done.
        what: &'static str,
        /// How long the driver waited.
        after: Duration,
    },
    /// An entry of a program is wrong.
    #[error("{entry}: {reason}")]
    Program {
        /// Which one, such as `position 3`.
        entry: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A table of the card cannot take all entries.
    #[error("the card's {table} table is full: {fit} of {asked} entries fit")]
    TableFull {
        /// Name of the table.
        table: &'static str,
        /// Entries that found a place.
        fit: usize,
        /// Entries that wanted one.
        asked: usize,
    },
    /// A setting of a capture is out of range.
    #[error("capture setting {setting}: {reason}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A capture runs already.
    #[error("a capture is running on this card already")]
    Capturing,
    /// The capture file could not be written.
    #[error("capture ended early: cannot write {}: {source}; the {blocks} blocks before it are whole", path.display())]
    Disk {
        /// The capture file.
        path: PathBuf,
        /// Whole blocks in it.
        blocks: u64,
        /// Why it failed.
        source: io::Error,
    },
    /// The final block never came.
    #[error(
        "capture cut off: {reason} after {blocks} blocks, so nothing proves that it is complete"
    )]
    CutOff {
        /// Whole blocks in the file.
        blocks: u64,
        /// Why it ended.
        reason: String,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
