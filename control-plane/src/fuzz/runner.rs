// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs variants: each as `midwire run` would, in a directory that is removed when the run has been
//! judged.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::case::{Case, Space};
use super::judge::{Judgement, judge, messages};
use super::{Evaluate, Stop};
use crate::bench::Providers;
use crate::plan::Plan;
use crate::run_file::RunFile;
use crate::verdict::Outcome;
use crate::{Error, explicit, run};

/// The seed of `midwire run`, so that plans that are saved do the same.
const SEED: u64 = 1;

pub(super) struct Runner<'a> {
    space: &'a Space,
    /// Where runs have their directories.
    work: PathBuf,
    providers: Providers<'a>,
    interrupt: &'a AtomicBool,
    begun: AtomicU32,
}

impl<'a> Runner<'a> {
    pub fn new(
        space: &'a Space,
        directory: &Path,
        providers: Providers<'a>,
        interrupt: &'a AtomicBool,
    ) -> Result<Self, Error> {
        let work = directory.join("work");
        // What a search that was killed has left.
        remove(&work)?;
        Ok(Self {
            space,
            work,
            providers,
            interrupt,
            begun: AtomicU32::new(0),
        })
    }

    /// Runs a plan into a directory. A plan that the card can't carry out is an error here.
    fn run(&self, plan: &Plan, directory: &Path, file: PathBuf) -> Result<RunFile, Stop> {
        let text = explicit::anew(plan);
        let plan = Plan::parse(&file.display().to_string(), &text).map_err(Error::from)?;
        let options = run::Options {
            plan_file: file,
            plan_text: text,
            out: Some(directory.to_owned()),
            seed: SEED,
            repeat: (1, 1),
            rerun: None,
            progress: &mut |_| {},
            interrupt: self.interrupt,
        };
        let run = run::run(&plan, options, &mut *(self.providers)())?.run;
        let reason = || run.verdict.reasons.join("; ");
        match run.verdict.outcome {
            _ if self.interrupt.load(Ordering::Relaxed) => Err(Stop::Interrupted),
            Outcome::Pass | Outcome::EventNotFired | Outcome::ExpectationFailed => Ok(run),
            Outcome::Interrupted => Err(Stop::Interrupted),
            Outcome::CaptureIncomplete | Outcome::Environment => {
                Err(Stop::Error(self.failed(directory, reason())))
            }
        }
    }

    fn failed(&self, directory: &Path, reason: String) -> Error {
        let directory = directory.to_owned();
        Error::Search { directory, reason }
    }

    /// Runs a variant; what `read` makes of it.
    fn with<T>(
        &self,
        case: &Case,
        read: impl FnOnce(&RunFile, &Path) -> Result<T, String>,
    ) -> Result<T, Stop> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let directory = self.work.join(number.to_string());
        let file = directory.join("plan.yaml");
        let run = self.run(&self.space.plan(case), &directory, file)?;
        let result = read(&run, &directory).map_err(|reason| self.failed(&directory, reason))?;
        remove(&directory)?;
        Ok(result)
    }

    /// Runs a plan that was saved, next to it.
    pub fn keep(&self, plan: &Plan, directory: &Path) -> Result<(), Stop> {
        let out = directory.join("run");
        remove(&out)?;
        self.run(plan, &out, directory.join("plan.yaml"))
            .map(|_| ())
    }
}

impl Evaluate for Runner<'_> {
    fn evaluate(&self, case: &Case) -> Result<Judgement, Stop> {
        let mut judgement = self.with(case, |run, at| judge(self.space, run, at))?;
        if judgement.suspects(self.space, &case.traffic) {
            let undisturbed = Case {
                hits: Vec::new(),
                ..case.clone()
            };
            let report = self.with(&undisturbed, |run, _| messages(run))?;
            judgement.compare(self.space, &report);
        }
        Ok(judgement)
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        // Empty when all went well; what is in it otherwise is told of.
        let _ = fs::remove_dir(&self.work);
    }
}

fn remove(directory: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::file("remove", directory)(error))
        }
        _ => Ok(()),
    }
}
