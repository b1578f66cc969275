// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The suite for RDMA NICs: tests for all that the authors of Lumina found in NICs of their day.
//!
//! Each test is a plan, and questions to what it leaves: packets, counters, and what the messages
//! took. The questions do not know which NIC they are about.

mod figures;
mod table;
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use midwire_analysis::roce::Analysis;
use midwire_endpoints::Port;
use midwire_endpoints::rnic::{Profile, QpReport};
use midwire_trace::Capture;
use serde::Serialize;

use crate::bench::Providers;
use crate::jobs::each;
use crate::plan::Plan;
use crate::run_file::{RunFile, files};
use crate::text::word;
use crate::verdict::Outcome;
use crate::{Error, Options, run};
pub use figures::{Figure, figures};
pub use table::{markdown, text};

/// A test.
struct Test {
    name: &'static str,
    plan: &'static str,
    questions: &'static [Question],
}

/// What is asked of the run of a plan.
struct Question {
    about: &'static str,
    /// What a NIC without fault does.
    allowed: &'static str,
    /// What the paper has.
    paper: &'static str,
    ask: fn(&Facts) -> Option<Answer>,
}

/// What was measured, and whether that is a finding.
struct Answer {
    measured: String,
    finding: bool,
}

/// What a run leaves.
struct Facts {
    run: RunFile,
    capture: Capture,
}

/// How a suite is run.
pub struct Setting<'a> {
    /// Directory of the runs; it must be new or empty.
    pub out: &'a Path,
    /// Seed of everything random.
    pub seed: u64,
    /// Runs at the same time.
    pub threads: usize,
    /// Where cards come from.
    pub providers: Providers<'a>,
    /// Hears which NIC's test is over, and how many of how many are.
    pub progress: &'a (dyn Fn(&str, usize, usize) + Sync),
    /// Set to break the suite off.
    pub interrupt: &'a AtomicBool,
}

impl Setting<'_> {
    /// Works on all of some jobs, and tells which are over by their names.
    fn each<T: Sync, R: Send>(
        &self,
        jobs: &[T],
        name: impl Fn(&T) -> String + Sync,
        work: impl Fn(&T) -> R + Sync,
    ) -> Vec<R> {
        let over = AtomicUsize::new(0);
        each(jobs, self.threads, |job| {
            let result = work(job);
            let done = over.fetch_add(1, Ordering::Relaxed) + 1;
            (self.progress)(&name(job), done, jobs.len());
            result
        })
    }
}

/// What a NIC's tests came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The model NIC.
    pub profile: Profile,
    /// A line for each question, in the order of the suite.
    pub lines: Vec<Line>,
}

/// What a question came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Name of the test, which is that of its plan.
    pub test: &'static str,
    /// What was asked.
    pub about: &'static str,
    /// What was measured; why not, where it could not be.
    pub measured: String,
    /// What a NIC without fault does.
    pub allowed: &'static str,
    /// What the paper has.
    pub paper: &'static str,
    /// What it is.
    pub result: Conclusion,
    /// Directory of the run.
    pub run: PathBuf,
}

/// What the answer to a question is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// As allowed.
    Fine,
    /// Not as allowed.
    Finding,
    /// The run does not answer it.
    Open,
}

impl Report {
    /// What was found: test and question.
    pub fn findings(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let found = |line: &&Line| line.result == Conclusion::Finding;
        self.lines
            .iter()
            .filter(found)
            .map(|line| (line.test, line.about))
    }

    /// Exit code of a program that ran this.
    pub fn exit_code(&self) -> u8 {
        if self
            .lines
            .iter()
            .any(|line| line.result == Conclusion::Open)
        {
            Outcome::Environment.exit_code()
        } else if self.findings().next().is_some() {
            Outcome::ExpectationFailed.exit_code()
        } else {
            Outcome::Pass.exit_code()
        }
    }
}

/// Runs all tests on each of the model NICs.
pub fn run_all(profiles: &[Profile], setting: &Setting<'_>) -> Result<Vec<Report>, Error> {
    let jobs: Vec<(Profile, &Test)> = profiles
        .iter()
        .flat_map(|profile| tests::ALL.iter().map(move |test| (*profile, test)))
        .collect();
    let name = |(profile, test): &(Profile, &Test)| format!("{} {}", word(profile), test.name);
    let run = |(profile, test): &(Profile, &Test)| test.run(*profile, setting);
    let mut results = setting.each(&jobs, name, run).into_iter();
    profiles
        .iter()
        .map(|profile| {
            let of_tests = results.by_ref().take(tests::ALL.len());
            let lines: Result<Vec<_>, _> = of_tests.collect();
            Ok(Report {
                profile: *profile,
                lines: lines?.into_iter().flatten().collect(),
            })
        })
        .collect()
}

/// A plan's text with another NIC in it.
fn with_profile(text: &str, profile: Profile) -> String {
    text.replace("profile: clean", &format!("profile: {}", word(&profile)))
}

/// Runs a plan. The inner error is why there is nothing to be read from the run.
fn carry_out(
    name: &str,
    text: String,
    directory: &Path,
    setting: &Setting<'_>,
) -> Result<Result<Facts, String>, Error> {
    let file = format!("{name}.yaml");
    let plan = Plan::parse(&file, &text)?;
    let options = Options {
        plan_file: file.into(),
        plan_text: text,
        out: Some(directory.to_owned()),
        seed: setting.seed,
        repeat: (1, 1),
        rerun: None,
        progress: &mut |_| {},
        interrupt: setting.interrupt,
    };
    let done = run(&plan, options, &mut *(setting.providers)())?;
    Ok(Facts::of(done.run, directory))
}

impl Test {
    fn run(&self, profile: Profile, setting: &Setting<'_>) -> Result<Vec<Line>, Error> {
        let directory = setting.out.join(word(&profile)).join(self.name);
        let text = with_profile(self.plan, profile);
        let facts = carry_out(self.name, text, &directory, setting)?;
        Ok(self.lines(&facts, &directory))
    }

    /// The answers to all questions.
    fn lines(&self, facts: &Result<Facts, String>, directory: &Path) -> Vec<Line> {
        let line = |question: &Question| {
            let answer = match facts {
                Ok(facts) => (question.ask)(facts).ok_or("the run does not show it"),
                Err(why) => Err(why.as_str()),
            };
            let (measured, result) = match answer {
                Ok(Answer {
                    measured,
                    finding: true,
                }) => (measured, Conclusion::Finding),
                Ok(Answer { measured, .. }) => (measured, Conclusion::Fine),
                Err(why) => (why.to_owned(), Conclusion::Open),
            };
            Line {
                test: self.name,
                about: question.about,
                measured,
                allowed: question.allowed,
                paper: question.paper,
                result,
                run: directory.to_owned(),
            }
        };
        self.questions.iter().map(line).collect()
    }
}

impl Facts {
    /// Of a run that went as planned, whatever the NICs did; else the reason.
    fn of(run: RunFile, directory: &Path) -> Result<Self, String> {
        if !matches!(
            run.verdict.outcome,
            Outcome::Pass | Outcome::ExpectationFailed
        ) {
            return Err(run.verdict.reasons.join(" "));
        }
        let capture = Capture::open(directory.join(files::CAPTURE)).map_err(|e| e.to_string())?;
        Ok(Self { run, capture })
    }

    /// What the NICs did.
    fn roce(&self) -> Option<&Analysis> {
        self.run.findings.roce.as_ref().map(|read| &read.analysis)
    }

    /// The queue pairs of model NICs.
    fn queue_pairs(&self) -> Option<Vec<QpReport>> {
        Some(self.run.recorded.traffic.first()?.rdma()?.qps)
    }

    /// A counter of a NIC.
    fn counter(&self, port: Port, name: &str) -> Option<u64> {
        let nics = &self.run.recorded.nics;
        let nic = nics.iter().find(|nic| nic.endpoint == port)?;
        nic.counters.get(name).copied()
    }
}
