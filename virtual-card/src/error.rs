// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with a virtual card.

use std::io;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a virtual card could not be made, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A socket of a card that is alive.
    #[error("another card serves {}", .0.display())]
    SocketInUse(PathBuf),
    /// The path of the socket is taken by something else.
    #[error("{} is there and is no socket", .0.display())]
    NotASocket(PathBuf),
    /// Frames come from a file that cannot be read.
    #[error("cannot read frames from {}: {reason}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The settings do not fit each other.
    #[error("{0}")]
    Config(String),
    /// The verilated core does not have the ports that this crate drives, or no memory.
    #[error("the core cannot be simulated: {0}")]
    Core(String),
    /// The simulation did not come to rest.
    #[error("the card did not come to rest within {0} s")]
    Busy(f64),
    /// The card was shut down.
    #[error("the card is shut down")]
    Stopped,
    /// A participant of the calendar gave up; the text says why.
    #[error("{0}")]
    Participant(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn errno(what: impl Into<String>) -> impl FnOnce(nix::Error) -> Self {
        let what = what.into();
        move |e| Self::Io {
            what,
            source: e.into(),
        }
    }
}
