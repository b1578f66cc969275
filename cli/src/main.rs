// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `midwire`: runs plans, shows what came of them, and serves a virtual card.
//!
//! Only what a person types and reads is here; what it does is in the other crates.

mod agent;
mod analyze;
mod export;
mod fuzz;
mod import;
mod participant;
mod provider;
mod rerun;
mod retrace;
mod run;
mod serve;
mod suite;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use midwire_control::fuzz::schema as fuzz_schema;
use midwire_control::plan::{self, Plan};
use midwire_control::verdict::BAD_PLAN;

/// Test what NICs, RDMA and TCP stacks do about loss, delay and marks: a card in the middle of
/// the cable does to chosen packets exactly what a plan says, and records every packet.
#[derive(Parser)]
#[command(name = "midwire", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 passed, 1 an expectation about the device under test failed, 2 bad plan or usage,
3 capture not complete, 4 an event never fired, 5 card or environment (or interrupted).";

#[derive(Subcommand)]
enum Command {
    /// Carry out a plan and judge it
    Run(run::Run),
    /// Repeat a run in virtual time, and prove that it is the same to the last bit
    Rerun(rerun::Rerun),
    /// Replay a TCP connection with two Linux hosts in virtual time, and hold it against what was
    /// recorded, packet for packet
    Retrace(retrace::Retrace),
    /// Say whether two runs are the same, and if not, where and how they part
    Diff {
        /// Directories of the runs
        #[arg(num_args = 2, value_names = ["RUN", "OTHER"])]
        runs: Vec<PathBuf>,
        /// Draw it: what both send over time, and how far apart the times of their packets are (SVG)
        #[arg(long, value_name = "FILE")]
        picture: Option<PathBuf>,
    },
    /// Search for plans that show something wrong with NICs
    Fuzz(fuzz::Fuzz),
    /// Check plans without running them
    Validate {
        /// Plans
        #[arg(required = true)]
        plans: Vec<PathBuf>,
    },
    /// Print the JSON Schema of plans
    Schema {
        /// Of the targets of fuzz instead
        #[arg(long)]
        target: bool,
    },
    /// Work out findings and verdict of a run again, or say what RDMA NICs did in a pcap or pcapng
    /// file
    Analyze(analyze::Analyze),
    /// Write the capture of a run in another format
    Export(export::Export),
    /// Make a plan of a test of another tool
    #[command(subcommand)]
    Import(import::Import),
    /// Run all tests of a kind of device, and say what was found beside what is known
    #[command(subcommand)]
    Suite(suite::Suite),
    /// Print the plan of a run with what happened, packet by packet, in place of its events
    Events {
        /// Directory of the run
        #[arg(long, value_name = "RUN")]
        from: PathBuf,
    },
    /// Send RDMA messages from this host, as asked on standard input: what midwire run starts on
    /// hosts of agent endpoints
    Agent,
    /// Virtual cards
    #[command(subcommand)]
    Card(CardCommand),
}

#[derive(Subcommand)]
enum CardCommand {
    /// Serve a virtual card as a PCI device on a vfio-user socket, until SIGINT or SIGTERM
    Serve(serve::Serve),
    /// Say what a card is and what it has counted
    Info {
        /// The card: socket:PATH or pci:ADDRESS
        #[arg(long)]
        card: provider::Place,
    },
}

/// What ends a command: a sentence for a person, and the exit code.
pub struct Failure {
    message: String,
    code: u8,
}

/// Exit code for a card or an environment that failed.
const ENVIRONMENT: u8 = 5;

impl Failure {
    fn environment(message: impl ToString) -> Self {
        Self {
            message: message.to_string(),
            code: ENVIRONMENT,
        }
    }
}

impl From<midwire_control::Error> for Failure {
    fn from(error: midwire_control::Error) -> Self {
        Self {
            message: error.to_string(),
            code: error.exit_code(),
        }
    }
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(run) => run.carry_out(),
        Command::Rerun(rerun) => rerun.carry_out(),
        Command::Retrace(retrace) => retrace.carry_out(),
        Command::Diff { runs, picture } => rerun::diff(&runs, picture.as_deref()),
        Command::Fuzz(fuzz) => fuzz.carry_out(),
        Command::Validate { plans } => validate(&plans),
        Command::Schema { target: false } => print_json(&plan::schema()).map(|()| 0),
        Command::Schema { target: true } => print_json(&fuzz_schema()).map(|()| 0),
        Command::Analyze(analyze) => analyze.carry_out(),
        Command::Export(export) => export.write(),
        Command::Import(import) => import.write(),
        Command::Suite(suite) => suite.carry_out(),
        Command::Events { from } => events(&from),
        Command::Agent => agent::become_it(),
        Command::Card(CardCommand::Serve(serve)) => serve.run(),
        Command::Card(CardCommand::Info { card }) => card.info(),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("midwire: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn validate(plans: &[PathBuf]) -> Result<u8, Failure> {
    let mut code = 0;
    for path in plans {
        match Plan::read(path) {
            Ok((plan, _)) => say(&format!(
                "{}: {}, {} events, {} expectations",
                path.display(),
                plan.name,
                plan.events.len(),
                plan.expect.len()
            ))?,
            Err(error) => {
                eprintln!("midwire: {error}");
                code = BAD_PLAN;
            }
        }
    }
    Ok(code)
}

fn events(run: &Path) -> Result<u8, Failure> {
    let plan = midwire_control::explicit(run)?;
    say(plan.trim_end())?;
    Ok(0)
}

/// A line on standard output. A reader that has gone away is no reason to panic.
fn say(text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{text}")
        .map_err(|e| Failure::environment(format!("can't write to standard output: {e}")))
}

fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::environment)?;
    say(&text)
}
