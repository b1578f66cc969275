// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire rerun`.

use std::path::PathBuf;

use clap::Args;
use midwire_control::verdict::Outcome;
use midwire_control::{Options, RunOutcome, rerun};
use midwire_endpoints::Port;
use midwire_endpoints::linux::Trace;

use crate::provider::{Place, Provider};
use crate::run::{Shown, interrupt};
use crate::{Failure, say};

/// Options of `midwire rerun`.
#[derive(Args)]
pub struct Rerun {
    /// Directory of the run
    run: PathBuf,
    /// Directory for the new run; it must be new or empty [default: runs/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Stop the Linux hosts when this packet is seen, and show what they know at that moment;
    /// packets are numbered as in the report and in pcapng
    #[arg(long, value_name = "PACKET")]
    until: Option<u64>,
    /// What the kernels of Linux hosts note of themselves: tcp_probe, tcp_retransmit, sockets
    #[arg(long, value_name = "WHAT,…", value_delimiter = ',', value_parser = trace)]
    trace: Vec<Trace>,
}

fn trace(text: &str) -> Result<Trace, String> {
    serde_json::from_value(text.into())
        .map_err(|_| "expected tcp_probe, tcp_retransmit or sockets".to_owned())
}

impl Rerun {
    /// Runs it again; the exit code.
    pub fn carry_out(self) -> Result<u8, Failure> {
        let asked = rerun::Asked {
            until: self.until,
            trace: self.trace,
        };
        let of = rerun::prepare(&self.run, &asked)?;
        let interrupt = interrupt()?;
        let until_ns = of.rerun.until_ns;
        let shown = Shown::new();
        let options = Options {
            plan_file: PathBuf::from(&of.run.recorded.plan.file),
            plan_text: of.run.recorded.plan.text.clone(),
            out: self.out,
            seed: of.run.recorded.seed,
            repeat: (1, 1),
            rerun: Some(of.rerun),
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
        let proof = rerun::prove(&of.run, &run, [&self.run, &directory], self.until)?;
        say(&format!("Run      {}", directory.display()))?;
        for inside in &run.recorded.inside {
            say(&format!("Inside   {inside}"))?;
        }
        say(&format!("Capture  {}", proof.text().trim_end()))?;
        if let Some(ns) = until_ns {
            for port in [Port::A, Port::B] {
                let state = rerun::state(&directory, port)?;
                say(&format!("\nHost {port} at {ns} ns\n{}", state.trim_end()))?;
            }
        }
        Ok(match proof.holds() {
            true => Outcome::Pass.exit_code(),
            false => Outcome::ExpectationFailed.exit_code(),
        })
    }
}
