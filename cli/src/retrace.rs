// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire retrace`.

use std::path::PathBuf;

use clap::Args;
use midwire_control::retrace::{self, Alike, Compared, Set};
use midwire_control::verdict::Outcome;
use midwire_control::{Again, Options, RunOutcome};

use crate::provider::{Place, Provider};
use crate::run::{Shown, interrupt};
use crate::{Failure, say};

/// Options of `midwire retrace`.
#[derive(Args)]
pub struct Retrace {
    /// Directory of a run
    input: PathBuf,
    /// The connection, by its number in the run
    #[arg(long, value_name = "N", default_value_t = 0)]
    connection: u32,
    /// Directory for the new run; it must be new or empty [default: runs/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A setting of host a or b that is to be another one, by its name in plans:
    /// a.congestion_control=reno, b.sysctls.net.ipv4.tcp_sack=0
    #[arg(long, value_name = "HOST.KEY=VALUE")]
    set: Vec<Set>,
}

impl Retrace {
    /// Replays it; the exit code.
    pub fn carry_out(self) -> Result<u8, Failure> {
        let of = retrace::prepare(&self.input, &self.set)?;
        let interrupt = interrupt()?;
        let shown = Shown::new();
        let options = Options {
            plan_file: PathBuf::from(&of.run.recorded.plan.file),
            plan_text: retrace::text(&of.plan),
            out: self.out,
            seed: of.run.recorded.seed,
            repeat: (1, 1),
            rerun: Some(Again {
                rerun: of.rerun,
                shell: None,
            }),
            progress: &mut |progress| shown.show(progress),
            interrupt: &interrupt,
        };
        let mut provider = Provider::new(Place::Virtual);
        let outcome = midwire_control::run(&of.plan, options, &mut provider);
        shown.clear();
        let RunOutcome { directory, run } = outcome?;
        if let Outcome::Environment | Outcome::Interrupted = run.verdict.outcome {
            return Err(Failure::environment(run.verdict.reasons.join("; ")));
        }
        let directories = [&*self.input, &*directory];
        // Another setting makes other random numbers of all that follows.
        let how = match self.set.is_empty() {
            true => Alike::Bytes,
            false => Alike::Segments,
        };
        let compared = Compared::of_run([&of.run, &run], directories, self.connection, how)?;
        say(&format!("Run      {}", directory.display()))?;
        say(compared.tell(&directory)?.trim_end())?;
        Ok(match compared.matching.holds() {
            true => Outcome::Pass.exit_code(),
            false => Outcome::ExpectationFailed.exit_code(),
        })
    }
}
