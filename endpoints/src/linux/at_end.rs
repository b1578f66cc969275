// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a host does when all else is over. Its cable is cut by then, so that nothing of it has a say
//! in the run, and its clock goes on by itself.

use super::host::Host;
use super::{Config, setup, trace};
use crate::Error;
use crate::rnic::Picoseconds;

/// Names of scripts, as those of commands are numbers.
pub(super) const STATE: &str = "state";
const SHELL: &str = "shell";
const TRACE: &str = "trace";
pub(super) const SCRIPTS: [&str; 3] = [STATE, SHELL, TRACE];

/// Is told what a stopped host has said, and asks what it is to run next; nothing: no more.
pub type Shell = Box<dyn FnMut(&str) -> Option<String> + Send>;

pub(super) struct AtEnd {
    shows_state: bool,
    pub shell: Option<Shell>,
    /// The script that reads out what its kernel has noted.
    pub trace: Option<String>,
}

impl AtEnd {
    pub fn of(config: &Config) -> Self {
        Self {
            shows_state: config.shows_state,
            shell: None,
            trace: (!config.trace.is_empty()).then(|| trace::script(&config.trace)),
        }
    }

    /// Has a host do it, from this time on.
    pub fn carry_out(&mut self, host: &mut Host, mut at: Picoseconds) -> Result<(), Error> {
        host.cut_off();
        let mut said = String::new();
        if self.shows_state {
            (said, at) = host.run_script(at, STATE, setup::STATE)?;
        }
        if let Some(shell) = &mut self.shell {
            while let Some(command) = shell(&said) {
                (said, at) = host.run_script(at, SHELL, &command)?;
            }
        }
        if let Some(script) = &self.trace {
            host.run_script(at, TRACE, script)?;
        }
        Ok(())
    }
}
