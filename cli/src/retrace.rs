// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire retrace`.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::Args;
use midwire_control::retrace::{self, Alike, Compared, Known, Means, Set};
use midwire_control::verdict::Outcome;
use midwire_control::{Again, Options, Progress};

use crate::provider::{Place, Provider};
use crate::run::{Shown, in_virtual_time, interrupt};
use crate::{Failure, say};

/// Options of `midwire retrace`.
#[derive(Args)]
pub struct Retrace {
    /// Directory of a run, or a pcap or pcapng file with both directions of the connection
    input: PathBuf,
    /// The connection, by its number in the run, or in the order in which they begin in the file
    #[arg(long, value_name = "N", default_value_t = 0)]
    connection: u32,
    /// Directory for the new run; it must be new or empty [default: runs/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A setting of host a or b that is to be another one, by its name in plans:
    /// a.congestion_control=reno, b.sysctls.net.ipv4.tcp_sack=0
    #[arg(long, value_name = "HOST.KEY=VALUE")]
    set: Vec<Set>,
    /// What the kernels noted of socket calls, the inside.csv of a run; otherwise calls are inferred
    /// from the packets
    #[arg(long, value_name = "FILE")]
    calls: Option<PathBuf>,
}

impl Retrace {
    /// Replays it; the exit code.
    pub fn carry_out(self) -> Result<u8, Failure> {
        let interrupt = interrupt()?;
        // Who gives calls wants these, and not the commands of a run.
        let compared = match self.calls.is_none() && retrace::is_own(&self.input)? {
            true => self.repeat(&interrupt)?,
            false => self.rebuild(&interrupt)?,
        };
        Ok(match compared.matching.holds() {
            true => Outcome::Pass.exit_code(),
            false => Outcome::ExpectationFailed.exit_code(),
        })
    }

    /// Replays a run of Linux hosts from its plan.
    fn repeat(&self, interrupt: &AtomicBool) -> Result<Compared, Failure> {
        let of = retrace::prepare(&self.input, &self.set)?;
        let shown = Shown::new();
        let options = Options {
            plan_file: PathBuf::from(&of.run.recorded.plan.file),
            plan_text: retrace::text(&of.plan),
            out: self.out.clone(),
            seed: of.run.recorded.seed,
            repeat: (1, 1),
            rerun: Some(Again {
                rerun: of.rerun,
                shell: None,
            }),
            progress: &mut |progress| shown.show(progress),
            interrupt,
        };
        let (directory, run) = in_virtual_time(&of.plan, options, &shown)?;
        say(&format!("Run      {}", directory.display()))?;
        // Another setting makes other random numbers of all that follows.
        let how = match self.set.is_empty() {
            true => Alike::Bytes,
            false => Alike::Segments,
        };
        let directories = [&*self.input, &*directory];
        let compared = Compared::of_run([&of.run, &run], directories, self.connection, how)?;
        say(compared.tell(&directory)?.trim_end())?;
        Ok(compared)
    }

    /// Replays a connection of which only the packets are known.
    fn rebuild(&self, interrupt: &AtomicBool) -> Result<Compared, Failure> {
        let recorded = retrace::read(&self.input, self.connection)?;
        let calls = self.calls.as_ref();
        let known = Known {
            set: self.set.clone(),
            calls: (calls.map(|file| retrace::read_calls(file, self.connection))).transpose()?,
        };
        let shown = Shown::new();
        let means = Means {
            provider: &mut Provider::new(Place::Virtual),
            interrupt,
            heard: &mut |round| shown.say(round.to_string()),
        };
        let found = retrace::find(&self.input, &recorded, &known, means);
        shown.clear();
        let found = found?;
        let shown = Shown::new();
        let progress = &mut |progress: &Progress| shown.show(progress);
        let options = retrace::options(&found.plan, self.out.clone(), progress, interrupt);
        let (directory, run) = in_virtual_time(&found.plan, options, &shown)?;
        say(&format!("Run      {}", directory.display()))?;
        say(&format!("Rounds   {}", found.rounds))?;
        let compared = Compared::found(&recorded, &found, &run, &directory)?;
        say(compared.tell(&directory)?.trim_end())?;
        Ok(compared)
    }
}
