// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire fuzz`.

use std::path::PathBuf;
use std::thread::available_parallelism;

use clap::Args;
use midwire_control::fuzz::{self, FuzzOutcome, Selection, State};
use midwire_control::verdict::Outcome;

use crate::provider::{Place, Provider};
use crate::run::{bar, interrupt};
use crate::{Failure, print_json, say};

/// Options of `midwire fuzz`.
#[derive(Args)]
pub struct Fuzz {
    /// What is searched for: a target, as docs/fuzz.md has it
    target: PathBuf,
    /// Seed of all that is chosen: the same seed finds the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Variants of the plan that are run, to whole generations
    #[arg(long, value_name = "RUNS", default_value_t = 200)]
    budget: u32,
    /// Directory for the search; it must be new or empty [default: runs/fuzz-NAME-SEED]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs at the same time [default: one for each core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Take up a search that was broken off
    #[arg(long)]
    resume: bool,
    /// Which variants are kept to make others of: those that score well, or any
    #[arg(long, value_enum, default_value = "guided")]
    search: Search,
    /// End with the first finding, without reducing it
    #[arg(long)]
    first: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Search {
    Guided,
    Random,
}

impl Fuzz {
    /// Searches; the exit code.
    pub fn carry_out(self) -> Result<u8, Failure> {
        let interrupt = interrupt()?;
        let bar = bar();
        let mut show = |state: &State, step: &str| {
            bar.set_message(format!(
                "{step}: {} runs, best score {:.1}, {} found",
                state.runs,
                state.best as f64 / 1000.0,
                state.findings.len()
            ));
        };
        let cores = available_parallelism().map_or(1, usize::from);
        let options = fuzz::Options {
            out: self.out,
            seed: self.seed,
            budget: self.budget,
            jobs: self.jobs.map_or(cores, usize::from),
            resume: self.resume,
            selection: match self.search {
                Search::Guided => Selection::Guided,
                Search::Random => Selection::Random,
            },
            first: self.first,
            progress: &mut show,
            interrupt: &interrupt,
            providers: &|| Box::new(Provider::new(Place::Virtual)),
        };
        let outcome = fuzz::fuzz(&self.target, options);
        bar.finish_and_clear();
        let outcome = outcome?;
        if self.json {
            print_json(&outcome.state)?;
        } else {
            say(&text(&outcome))?;
        }
        Ok(match () {
            () if outcome.interrupted => Outcome::Interrupted.exit_code(),
            () if outcome.state.findings.is_empty() => Outcome::Pass.exit_code(),
            () => Outcome::ExpectationFailed.exit_code(),
        })
    }
}

fn text(outcome: &FuzzOutcome) -> String {
    let FuzzOutcome {
        directory,
        state,
        interrupted,
    } = outcome;
    let mut text = String::new();
    for (number, finding) in (1..).zip(&state.findings) {
        let signs: Vec<_> = finding.signs.iter().map(ToString::to_string).collect();
        let reduced = &finding.reduced;
        text += &format!(
            "Finding {number}  run {}: {}\n",
            finding.run,
            signs.join("; ")
        );
        text += &format!(
            "           {} × {} × {}, {} queue pairs, {} events\n",
            reduced.traffic.verb.as_str(),
            reduced.traffic.messages,
            reduced.traffic.size,
            reduced.traffic.qps,
            reduced.hits.len(),
        );
        if !finding.plan.as_os_str().is_empty() {
            text += &format!("           {}\n", directory.join(&finding.plan).display());
        }
    }
    text += &format!("Search     {} runs", state.runs);
    if state.reducing_runs > 0 {
        text += &format!(", and {} to reduce what was found", state.reducing_runs);
    }
    text += &format!("\nState      {}", directory.display());
    if *interrupted {
        text += "\nbroken off; --resume takes it up";
    }
    text
}
