// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire rerun`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use midwire_control::run_file::RunFile;
use midwire_control::verdict::Outcome;
use midwire_control::{Again, Options, rerun};
use midwire_endpoints::Port;
use midwire_endpoints::linux::{self, Trace};

use crate::run::{Shown, in_virtual_time, interrupt};
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
    /// What the kernels of Linux hosts note of themselves: tcp_probe, tcp_retransmit, sockets,
    /// function_graph:FUNCTION
    #[arg(long, value_name = "WHAT,…", value_delimiter = ',', value_parser = trace)]
    trace: Vec<Trace>,
    /// Run the commands of standard input, a line each, on this host when it is stopped: a or b
    #[arg(long, value_name = "HOST", requires = "until", value_parser = host)]
    shell: Option<Port>,
}

fn host(text: &str) -> Result<Port, String> {
    serde_json::from_value(text.into()).map_err(|_| "expected a or b".to_owned())
}

/// Shows what a host has said, and reads what it is to run next.
fn shell(host: Port) -> linux::Shell {
    Box::new(move |said| {
        let mut out = std::io::stdout();
        let mut line = String::new();
        // Without anybody to read or to type there is nothing more to run.
        write!(out, "{said}host {host}> ").ok()?;
        out.flush().ok()?;
        match std::io::stdin().read_line(&mut line).ok()? {
            0 => {
                writeln!(out).ok()?;
                None
            }
            _ => Some(line),
        }
    })
}

fn trace(text: &str) -> Result<Trace, String> {
    if let Some(function) = text.strip_prefix("function_graph:") {
        return Ok(Trace::FunctionGraph(function.to_owned()));
    }
    serde_json::from_value(text.into()).map_err(|_| {
        "expected tcp_probe, tcp_retransmit, sockets or function_graph:FUNCTION".to_owned()
    })
}

/// Compares two runs, and draws how they part; the exit code.
pub fn diff(runs: &[PathBuf], picture: Option<&Path>) -> Result<u8, Failure> {
    let [a, b] = runs else {
        return Err(Failure::environment("two runs are compared"));
    };
    let directories = [a.as_path(), b.as_path()];
    let [first, second] = directories.map(RunFile::read);
    let proof = rerun::prove(&first?, &second?, directories, None)?;
    say(&format!("Captures {}", proof.text().trim_end()))?;
    if !proof.holds() {
        let parting = rerun::parting(directories)?;
        say(&format!("\nPackets  {}", parting.text().trim_end()))?;
    }
    if let Some(file) = picture {
        let svg = rerun::picture(directories)?;
        std::fs::write(file, svg)
            .map_err(|e| Failure::environment(format!("can't write {}: {e}", file.display())))?;
        say(&format!("Picture  {}", file.display()))?;
    }
    Ok(exit_code(&proof))
}

fn exit_code(proof: &rerun::Proof) -> u8 {
    match proof.holds() {
        true => Outcome::Pass.exit_code(),
        false => Outcome::ExpectationFailed.exit_code(),
    }
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
        let shown = Shown::unless(self.shell.is_some());
        let options = Options {
            plan_file: PathBuf::from(&of.run.recorded.plan.file),
            plan_text: of.run.recorded.plan.text.clone(),
            out: self.out,
            seed: of.run.recorded.seed,
            repeat: (1, 1),
            rerun: Some(Again {
                rerun: of.rerun,
                shell: self.shell.map(|host| (host, shell(host))),
            }),
            progress: &mut |progress| shown.show(progress),
            interrupt: &interrupt,
        };
        let (directory, run) = in_virtual_time(&of.plan, options, &shown)?;
        let proof = rerun::prove(&of.run, &run, [&self.run, &directory], self.until)?;
        say(&format!("Run      {}", directory.display()))?;
        for inside in &run.recorded.inside {
            say(&format!("Inside   {inside}"))?;
        }
        say(&format!("Capture  {}", proof.text().trim_end()))?;
        if let Some(ns) = until_ns {
            // Whoever had a shell has seen that host's.
            let told = |port: &Port| Some(*port) != self.shell;
            for port in Port::ALL.into_iter().filter(told) {
                let state = rerun::state(&directory, port)?;
                say(&format!("\nHost {port} at {ns} ns\n{}", state.trim_end()))?;
            }
        }
        Ok(exit_code(&proof))
    }
}
