// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire run`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use midwire_control::plan::{Endpoint, Plan};
use midwire_control::run_file::RunFile;
use midwire_control::verdict::Outcome;
use midwire_control::{Options, Progress, RunOutcome, table};

use crate::provider::{Place, Provider};
use crate::{Failure, print_json, say};

/// Options of `midwire run`.
#[derive(Args)]
pub struct Run {
    /// The plan
    plan: PathBuf,
    /// Directory for the run; it must be new or empty [default: runs/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print run.json instead of the table
    #[arg(long)]
    json: bool,
    /// Seed of everything random, such as the traffic's payload
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run the plan this many times; the worst run decides the exit code
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// The card: virtual, socket:PATH (a vfio-user socket) or pci:ADDRESS (a board)
    #[arg(long, default_value = "virtual")]
    card: Place,
}

impl Run {
    /// Runs the plan; the exit code.
    pub fn carry_out(self) -> Result<u8, Failure> {
        let (plan, text) = Plan::read(&self.plan)?;
        if matches!(plan.endpoints.a, Endpoint::Tap(_)) {
            // Before any other thread: a user namespace is entered by a single-threaded process.
            midwire_endpoints::privilege::enter().map_err(Failure::environment)?;
        }
        let interrupt = interrupt()?;
        let mut code = 0;
        for n in 1..=self.repeat {
            let out = match (&self.out, self.repeat) {
                (Some(out), 1) => Some(out.clone()),
                (Some(out), _) => Some(out.join(n.to_string())),
                (None, _) => None,
            };
            let shown = Shown::new();
            let options = Options {
                plan_file: self.plan.clone(),
                plan_text: text.clone(),
                out,
                seed: self.seed,
                repeat: (n, self.repeat),
                rerun: None,
                progress: &mut |progress| shown.show(progress),
                interrupt: &interrupt,
            };
            let mut provider = Provider::new(self.card.clone());
            let outcome = midwire_control::run(&plan, options, &mut provider);
            shown.clear();
            let RunOutcome { directory, run } = outcome?;
            if self.json {
                print_json(&run)?;
            } else {
                say(table::text(&run, &directory).trim_end())?;
            }
            let this = run.verdict.exit_code;
            code = worse(code, this);
            if interrupt.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(code)
    }
}

/// Carries out a plan in virtual time, for a command that goes on with its run: where it is, and
/// what it has recorded.
pub fn in_virtual_time(
    plan: &Plan,
    options: Options<'_>,
    shown: &Shown,
) -> Result<(PathBuf, RunFile), Failure> {
    let outcome = midwire_control::run(plan, options, &mut Provider::new(Place::Virtual));
    shown.clear();
    let RunOutcome { directory, run } = outcome?;
    match run.verdict.outcome {
        Outcome::Environment | Outcome::Interrupted => {
            Err(Failure::environment(run.verdict.reasons.join("; ")))
        }
        _ => Ok((directory, run)),
    }
}

/// How a run goes, on a terminal.
pub struct Shown(ProgressBar);

impl Shown {
    pub fn new() -> Self {
        Self(bar())
    }

    /// Nothing where others have the terminal.
    pub fn unless(others: bool) -> Self {
        match others {
            true => Self(ProgressBar::hidden()),
            false => Self::new(),
        }
    }

    pub fn show(&self, progress: &Progress) {
        match progress {
            Progress::Step(step) => self.0.set_message(*step),
            Progress::Capture {
                records,
                bytes,
                lost,
            } => self.0.set_message(format!(
                "{} records, {}{}",
                HumanCount(*records),
                HumanBytes(*bytes),
                if *lost > 0 {
                    format!(", {} lost", HumanCount(*lost))
                } else {
                    String::new()
                }
            )),
        }
    }

    /// Shows a sentence.
    pub fn say(&self, text: String) {
        self.0.set_message(text);
    }

    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// Of the exit codes of two runs, the one that counts, by the order of the verdict's rules.
pub fn worse(a: u8, b: u8) -> u8 {
    const ORDER: [u8; 4] = [5, 3, 4, 1];
    ORDER
        .into_iter()
        .find(|code| [a, b].contains(code))
        .unwrap_or(0)
}

/// Set by SIGINT and SIGTERM; a second one ends the program at once.
pub fn interrupt() -> Result<Arc<AtomicBool>, Failure> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            crate::ENVIRONMENT.into(),
            Arc::clone(&flag),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
        .map_err(|e| Failure::environment(format!("can't listen to signals: {e}")))?;
    }
    Ok(flag)
}

/// A spinner on a terminal, nothing in a pipe.
pub fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
