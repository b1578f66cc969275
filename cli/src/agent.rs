// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire agent`: the program on hosts that sends RDMA messages, which is built apart.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use midwire_endpoints::agent::program;

use crate::Failure;

/// Becomes the agent; comes back when it can't.
pub fn become_it() -> Result<u8, Failure> {
    let program = program(None).map_err(Failure::environment)?;
    let error = Command::new(&program).exec();
    let message = format!("can't run {}: {error}", program.display());
    Err(Failure::environment(message))
}
