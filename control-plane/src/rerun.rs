// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs in virtual time once more: the plan, the seed and the files of a run give its capture
//! again, to the last bit. That is proved each time, and lets one look closer at what happened.

use std::path::{Path, PathBuf};

use midwire_endpoints::Port;
use midwire_endpoints::linux::{self, Trace};
use midwire_trace::{Capture, Nanos};

use crate::compare::{self, Comparison, Parting};
use crate::plan::{CardTime, Endpoint, Plan};
use crate::run_file::{InputRecord, Rerun, RunFile, files};
use crate::{Error, inputs};

/// What a run is repeated from.
#[derive(Debug)]
pub struct Prepared {
    /// The run.
    pub run: RunFile,
    /// Its plan, with the very files that it read.
    pub plan: Plan,
    /// For the run that repeats it.
    pub rerun: Rerun,
}

/// What a run is to show that is repeated.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The packet at which it ends: its number in the run, from 1, as in reports and in pcapng.
    pub until: Option<u64>,
    /// What its hosts note besides what they noted before.
    pub trace: Vec<Trace>,
}

/// Reads a run that is to be repeated.
pub fn prepare(of: &Path, asked: &Asked) -> Result<Prepared, Error> {
    let refused = |reason: String| Error::Rerun {
        path: of.to_owned(),
        reason,
    };
    let run = RunFile::read(of)?;
    let recorded = &run.recorded;
    let plan = &recorded.plan.parsed;
    if plan.time() != CardTime::Virtual {
        let reason = "its endpoints live in real time, in which no two runs are the same; \
                      linux, rnic and pcap endpoints live in virtual time";
        return Err(refused(reason.to_owned()));
    }
    let mut plan = inputs::restore(plan, &recorded.inputs).map_err(refused)?;
    for trace in &asked.trace {
        for endpoint in plan.endpoints.both_mut() {
            let Endpoint::Linux(host) = endpoint else {
                return Err(refused("only Linux hosts have an inside view".to_owned()));
            };
            if !host.trace.contains(trace) {
                host.trace.push(trace.clone());
            }
        }
    }
    let before = recorded.rerun.as_ref().and_then(|rerun| rerun.until_ns);
    let until_ns = match asked.until {
        None => before,
        Some(_) if !matches!(plan.endpoints.a, Endpoint::Linux(_)) => {
            let reason = "only Linux hosts can be stopped at a packet";
            return Err(refused(reason.to_owned()));
        }
        Some(number) => Some(time_of(&capture(of)?, number).map_err(refused)?.0),
    };
    let rerun = Rerun {
        of: of.to_owned(),
        until_ns,
    };
    Ok(Prepared { run, plan, rerun })
}

/// How two runs part.
pub fn parting(directories: [&Path; 2]) -> Result<Parting, Error> {
    let [first, second] = directories.map(capture);
    Ok(Parting::of([&first?, &second?]))
}

/// The picture of how two runs part, as SVG.
pub fn picture(directories: [&Path; 2]) -> Result<String, Error> {
    let [first, second] = directories.map(capture);
    compare::picture([&first?, &second?]).map_err(|e| Error::Figure {
        of: format!(
            "how {} and {} part",
            directories[0].display(),
            directories[1].display()
        ),
        reason: e.to_string(),
    })
}

fn capture(directory: &Path) -> Result<Capture, Error> {
    Capture::open(directory.join(files::CAPTURE)).map_err(|e| Error::Rerun {
        path: directory.to_owned(),
        reason: e.to_string(),
    })
}

/// When a packet was seen.
fn time_of(capture: &Capture, number: u64) -> Result<Nanos, String> {
    let mut entries = capture.by_time();
    for n in 1.. {
        match entries.next_entry() {
            Some(entry) if n == number => return Ok(entry.record.time),
            Some(_) => {}
            None => return Err(format!("it has {} packets, not {number}", n - 1)),
        }
    }
    Err(format!("it has no packet {number}"))
}

/// Whether a run has repeated another one.
#[derive(Debug)]
pub struct Proof {
    /// Hashes of both captures.
    pub sha256: [String; 2],
    /// Both captures, up to the packet at which the second was to end.
    pub comparison: Comparison,
    /// Directories of both.
    directories: [PathBuf; 2],
    until: Option<u64>,
    /// What may be why, when they are not the same.
    hints: Vec<String>,
}

/// Compares the captures of a run and of the one that repeats it, up to a packet if it is given.
pub fn prove(
    of: &RunFile,
    again: &RunFile,
    directories: [&Path; 2],
    until: Option<u64>,
) -> Result<Proof, Error> {
    let [a, b] = directories.map(|directory| directory.join(files::CAPTURE));
    let captures = [capture(directories[0])?, capture(directories[1])?];
    let mut hints = Vec::new();
    let cards = [of, again].map(|run| Some(&run.recorded.card.as_ref()?.parameters["map_hash"]));
    if cards[0] != cards[1] {
        hints.push("the map of the card's registers is another one".to_owned());
    }
    let versions = [of, again].map(|run| &run.recorded.midwire);
    if versions[0] != versions[1] {
        hints.push(format!(
            "midwire was {}, and is {}",
            versions[0], versions[1]
        ));
    }
    let [before, now] = [of, again].map(|run| &run.recorded.inputs);
    let other = before.iter().zip(now).find(|(a, b)| a.sha256 != b.sha256);
    if let Some((InputRecord { path, .. }, _)) = other {
        hints.push(format!(
            "{} is not what the other run has read",
            path.display()
        ));
    }
    Ok(Proof {
        sha256: [inputs::sha256(&a)?, inputs::sha256(&b)?],
        comparison: compare::captures([&captures[0], &captures[1]], until),
        directories: directories.map(Path::to_owned),
        until,
        hints,
    })
}

impl Proof {
    /// Whether the second run is the first one again, as far as it was to go.
    pub fn holds(&self) -> bool {
        let files = self.until.is_some() || self.sha256[0] == self.sha256[1];
        self.comparison.difference.is_none() && files
    }

    /// In words.
    pub fn text(&self) -> String {
        let Comparison { same, difference } = &self.comparison;
        let [first, second] = &self.sha256;
        let mut text = match (difference, self.until) {
            (Some(difference), _) => {
                let [a, b] = self
                    .directories
                    .each_ref()
                    .map(|path| path.display().to_string());
                format!(
                    "NOT the same from packet {} on, after {same} that are\n\n{}",
                    difference.number,
                    difference.text([&a, &b])
                )
            }
            (None, Some(until)) => format!("the same up to packet {until}, to the last bit"),
            (None, None) if first == second => {
                format!("the same to the last bit: {same} records, sha256 {first}")
            }
            (None, None) => format!(
                "NOT the same: all {same} records are, but the counters between them are not; \
                 sha256 {first} and {second}"
            ),
        };
        if !self.holds() && !self.hints.is_empty() {
            text = format!(
                "{}\nIt may be why that {}",
                text.trim_end(),
                self.hints.join(", and that ")
            );
        }
        text
    }
}

/// What a Linux host of a run that was stopped has shown of itself: sockets, queues, counters.
pub fn state(directory: &Path, port: Port) -> Result<String, Error> {
    linux::state(directory, port).map_err(Error::file("read the state of a host in", directory))
}
