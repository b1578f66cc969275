// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The crate's error.

use std::io;

/// Why something can't be done, as a sentence for who asked for it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The verbs, or the system, refused it.
    #[error("{what}: {source}")]
    Refused {
        /// What was being done.
        what: String,
        /// The answer.
        source: io::Error,
    },
    /// It was asked for what it has not.
    #[error("{0}")]
    Asked(String),
}

impl Error {
    /// Of what the system has just refused.
    pub fn last(what: impl Into<String>) -> Self {
        Self::refused(what)(io::Error::last_os_error())
    }

    /// Wraps the system's answer.
    pub fn refused(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Refused { what, source }
    }

    /// Of what verbs return: 0, or a number of an error.
    pub fn check(what: &str, answer: i32) -> Result<(), Self> {
        match answer {
            0 => Ok(()),
            number => Err(Self::refused(what)(io::Error::from_raw_os_error(number))),
        }
    }
}
