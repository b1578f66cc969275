// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agents: programs on hosts that set up queue pairs with verbs and send RDMA messages over them,
//! as a [`Session`] asks. A session is a state machine without input or output of its own, so it is
//! the same over SSH as over the console of a host in virtual time.

use std::path::{Path, PathBuf};

use crate::Error;

mod process;
pub mod protocol;
mod session;

pub use process::{Agents, Reach};
pub use session::{Flow, Session};

/// Name of the program.
pub const PROGRAM: &str = "midwire-agent";

/// The program: the one named, or the one that is where this program is.
pub fn program(named: Option<&Path>) -> Result<PathBuf, Error> {
    let own = || Some(std::env::current_exe().ok()?.with_file_name(PROGRAM));
    let path = named.map(Path::to_owned).or_else(own).unwrap_or_default();
    match path.is_file() {
        true => Ok(path),
        false => Err(Error::NoAgent(path)),
    }
}
