// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The crate's error.

use std::io;
use std::path::PathBuf;

use crate::Port;

/// Why a host or its traffic could not be set up. What happens to the traffic itself (a
/// connection that fails, a command that exits with an error) is a result, not an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This machine lets this user have no network namespaces with TAPs.
    #[error("cannot make hosts on this machine: {0}")]
    Environment(String),
    /// The system refused a step of setting up a host or a program in it.
    #[error("host {port}: {what}: {source}")]
    Host {
        /// The host.
        port: Port,
        /// What was being done.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused a program on this machine itself.
    #[error("{what}: {source}")]
    Here {
        /// What was being done.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A Linux host in virtual time that does not go on.
    #[error("host {port}: {what}; its console at the end:\n{console}")]
    Guest {
        /// The host.
        port: Port,
        /// What happened.
        what: String,
        /// The last lines on its console.
        console: String,
    },
    /// There is no agent on this machine.
    #[error(
        "{0} is not there: run `make agent`, which builds the program that sends RDMA messages with \
         verbs"
    )]
    NoAgent(PathBuf),
    /// An agent that can't do what it is asked for, or can't be reached.
    #[error("agent at port {port}: {what}")]
    Agent {
        /// The port of its host.
        port: Port,
        /// What happened, and what to do.
        what: String,
    },
    /// An option of a host that cannot be granted.
    #[error("host {port}: {message}")]
    Option {
        /// The host.
        port: Port,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// An option of the traffic that cannot be granted.
    #[error("traffic: {0}")]
    Traffic(String),
    /// A value that does not read.
    #[error("{text:?} is not {expected}")]
    Value {
        /// The text.
        text: String,
        /// What was expected.
        expected: &'static str,
    },
}

impl Error {
    /// Wraps the answer of the system with the step, and the host if it was done there.
    pub(crate) fn at<E: Into<io::Error>>(
        port: Option<Port>,
        what: impl Into<String>,
    ) -> impl FnOnce(E) -> Error {
        let what = what.into();
        move |source| {
            let source = source.into();
            match port {
                Some(port) => Error::Host { port, what, source },
                None => Error::Here { what, source },
            }
        }
    }

    /// Wraps the answer of the system with the host and the step.
    pub(crate) fn host<E: Into<io::Error>>(
        port: Port,
        what: impl Into<String>,
    ) -> impl FnOnce(E) -> Error {
        Error::at(Some(port), what)
    }
}
