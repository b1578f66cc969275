// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Searches for plans that show something wrong: a genetic search (Yu et al., Understanding the
//! Micro-Behaviors of Hardware Offloaded Network Stacks, SIGCOMM 2023, Algorithm 1).
//!
//! A pool of variants of a plan is made at random. Then, a generation at a time, variants of the
//! pool are picked and mutated, run, and scored by what the run says; what scores no less than the
//! median of the pool is kept, and some of the rest. What shows something wrong is reduced and
//! saved as a plan.
//!
//! The n-th variant is a function of the seed, n and the pool of its generation, so that a search
//! is the same whatever the number of jobs, and whether or not it was broken off and taken up again.

mod case;
mod judge;
mod reduce;
mod runner;
mod target;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use midwire_trace::chance::{Draws, derive};
use serde::{Deserialize, Serialize};

use crate::bench::Providers;
use crate::jobs::each;
use crate::plan::{
    CompletionExpectation, CounterExpectation, Duration, Expectation, FindingsExpectation, Plan,
};
use crate::{Error, explicit};
pub use case::{Case, Hit, Space};
pub use judge::{Judgement, Sign};
use reduce::{Reducer, Shown};
use runner::Runner;
pub use target::{Bounds, Events, Limits, Search, Target, VERSION, Vary, Weights, schema};

/// How a search is carried out.
pub struct Options<'a> {
    /// Its directory; by default one named after target and seed under [`crate::RUNS`].
    pub out: Option<PathBuf>,
    /// Seed of all that is chosen.
    pub seed: u64,
    /// Variants that are run, to whole generations.
    pub budget: u32,
    /// Runs at the same time.
    pub jobs: usize,
    /// Takes up a search that was broken off.
    pub resume: bool,
    /// What is kept.
    pub selection: Selection,
    /// Ends with the first finding, which is told as it is.
    pub first: bool,
    /// Hears how far the search is.
    pub progress: &'a mut dyn FnMut(&State, &str),
    /// Set to break the search off.
    pub interrupt: &'a AtomicBool,
    /// Where cards come from.
    pub providers: Providers<'a>,
}

/// Which variants are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// Those that score no less than the median, instead of the worst.
    Guided,
    /// All, instead of any other.
    Random,
}

/// A search as far as it is: the file `state.json` of its directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Version of this layout, 1.
    pub version: u32,
    /// What is searched for, as the target has it.
    pub target: String,
    /// The plan that is varied.
    pub plan: Plan,
    /// Seed of all that is chosen.
    pub seed: u64,
    /// What is kept.
    pub selection: Selection,
    /// Variants that were run.
    pub runs: u32,
    /// Runs that it took to reduce findings.
    pub reducing_runs: u32,
    /// Highest score so far.
    pub best: u64,
    /// Variants that new ones are made of.
    pub pool: Vec<Member>,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// A variant of the pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// The variant.
    pub case: Case,
    /// Its score, in thousandths.
    pub score: u64,
}

/// Something wrong that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Number of the run that showed it, from 1.
    pub run: u32,
    /// What shows it.
    pub signs: BTreeSet<Sign>,
    /// The variant that was found.
    pub found: Case,
    /// The smallest that shows it.
    pub reduced: Case,
    /// The plan, below the directory of the search.
    pub plan: PathBuf,
}

/// A search that has come to an end.
#[derive(Debug)]
pub struct FuzzOutcome {
    /// Its directory.
    pub directory: PathBuf,
    /// How far it came.
    pub state: State,
    /// It was broken off; what it did since the last whole generation is lost.
    pub interrupted: bool,
}

/// Why a search does not go on.
#[derive(Debug)]
enum Stop {
    Interrupted,
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Runs a variant.
trait Evaluate: Sync {
    fn evaluate(&self, case: &Case) -> Result<Judgement, Stop>;
}

/// Evaluates variants, some at a time; the judgements in the order of the variants.
fn judge_all(
    evaluator: &dyn Evaluate,
    cases: &[Case],
    jobs: usize,
) -> Result<Vec<Judgement>, Stop> {
    let judgements = each(cases, jobs, |case| evaluator.evaluate(case));
    judgements.into_iter().collect()
}

const STATE: &str = "state.json";
const LAYOUT: u32 = 1;

/// Searches.
pub fn fuzz(target: &Path, options: Options<'_>) -> Result<FuzzOutcome, Error> {
    let (space, text) = Target::read(target)?;
    let directory = options.out.clone().unwrap_or_else(|| {
        let name = format!("fuzz-{}-{}", space.target.name, options.seed);
        Path::new(crate::RUNS).join(name)
    });
    let new = State {
        version: LAYOUT,
        target: text,
        plan: space.base.clone(),
        seed: options.seed,
        selection: options.selection,
        runs: 0,
        reducing_runs: 0,
        best: 0,
        pool: Vec::new(),
        findings: Vec::new(),
    };
    let state = open(&directory, new, options.resume)?;
    let runner = Runner::new(&space, &directory, options.providers, options.interrupt)?;
    let mut fuzzer = Fuzzer {
        space: &space,
        evaluator: &runner,
        directory: &directory,
        jobs: options.jobs,
        first: options.first,
        progress: options.progress,
        state,
    };
    let result = fuzzer.search(options.budget, &|plan, out| runner.keep(plan, out));
    let state = fuzzer.state;
    let interrupted = match result {
        Ok(()) => false,
        Err(Stop::Interrupted) => true,
        Err(Stop::Error(error)) => return Err(error),
    };
    Ok(FuzzOutcome {
        directory,
        state,
        interrupted,
    })
}

/// The state of a search that is new, or was broken off.
fn open(directory: &Path, new: State, resume: bool) -> Result<State, Error> {
    let path = directory.join(STATE);
    if !resume {
        fs::create_dir_all(directory).map_err(Error::file("create", directory))?;
        let mut entries = fs::read_dir(directory).map_err(Error::file("use", directory))?;
        return match entries.next() {
            None => Ok(new),
            Some(_) => Err(Error::NotEmpty(directory.to_owned())),
        };
    }
    let refuse = |reason: String| Error::Resume {
        path: directory.to_owned(),
        reason,
    };
    let text = fs::read(&path).map_err(Error::file("read", &path))?;
    let state: State = serde_json::from_slice(&text)
        .map_err(|error| refuse(format!("{STATE} can't be understood: {error}")))?;
    for (same, what) in [
        (state.version == new.version, "version"),
        (state.target == new.target, "target"),
        (state.plan == new.plan, "plan"),
        (state.seed == new.seed, "seed"),
        (state.selection == new.selection, "search"),
    ] {
        if !same {
            return Err(refuse(format!("its {what} is another one")));
        }
    }
    Ok(state)
}

struct Fuzzer<'a> {
    space: &'a Space,
    evaluator: &'a dyn Evaluate,
    directory: &'a Path,
    jobs: usize,
    first: bool,
    progress: &'a mut dyn FnMut(&State, &str),
    state: State,
}

/// Runs a plan once more, into a directory that is kept.
type Keep<'a> = &'a dyn Fn(&Plan, &Path) -> Result<(), Stop>;

impl Fuzzer<'_> {
    fn search(&mut self, budget: u32, keep: Keep<'_>) -> Result<(), Stop> {
        let over = |state: &State, first: bool| first && !state.findings.is_empty();
        while self.state.runs < budget && !over(&self.state, self.first) {
            (self.progress)(&self.state, "searching");
            // What a generation did counts when it is whole.
            let mut state = self.state.clone();
            let (cases, draws): (Vec<_>, Vec<_>) = self.offspring().into_iter().unzip();
            let judgements = judge_all(self.evaluator, &cases, self.jobs)?;
            for ((case, draws), judgement) in cases.into_iter().zip(draws).zip(judgements) {
                state.runs += 1;
                self.take(&mut state, case, judgement, draws, keep)?;
            }
            self.state = state;
            self.save()?;
        }
        Ok(())
    }

    /// The variants of the next generation, and what goes on drawing for each.
    fn offspring(&self) -> Vec<(Case, Draws)> {
        let State {
            seed, runs, pool, ..
        } = &self.state;
        let search = &self.space.target.search;
        let size = match pool.is_empty() {
            true => search.pool,
            false => search.generation,
        };
        let run = |number: u32| {
            let mut draws = Draws::new(derive(*seed, number.into()));
            let parent = pool.get(draws.below(pool.len() as u64) as usize);
            let case = match parent {
                Some(parent) => self.space.mutate(&parent.case, &mut draws),
                None => self.space.fresh(&mut draws),
            };
            (case, draws)
        };
        (*runs..*runs + size).map(run).collect()
    }

    /// What a variant comes to: a place in the pool, a finding.
    fn take(
        &mut self,
        state: &mut State,
        mut case: Case,
        judgement: Judgement,
        mut draws: Draws,
        keep: Keep<'_>,
    ) -> Result<(), Stop> {
        // An event that did not fire did nothing.
        let mut place = 0;
        case.hits.retain(|_| {
            place += 1;
            !judgement.unfired.contains(&(place - 1))
        });
        state.best = state.best.max(judgement.score);
        let member = Member {
            case: case.clone(),
            score: judgement.score,
        };
        self.select(state, member, &mut draws);
        let mut shown = Shown { case, judgement };
        while let Some(sign) = news(state, &shown.judgement.signs) {
            if self.first {
                let signs = shown.judgement.signs.clone();
                state.findings.push(Finding {
                    run: state.runs,
                    signs,
                    found: shown.case.clone(),
                    reduced: shown.case.clone(),
                    plan: PathBuf::new(),
                });
                return Ok(());
            }
            shown = self.report(state, shown, &sign, keep)?;
        }
        Ok(())
    }

    fn select(&self, state: &mut State, member: Member, draws: &mut Draws) {
        let search = &self.space.target.search;
        let pool = &mut state.pool;
        if pool.len() < search.pool as usize {
            return pool.push(member);
        }
        let mut scores: Vec<u64> = pool.iter().map(|member| member.score).collect();
        scores.sort_unstable();
        let median = scores[scores.len() / 2];
        let kept = search.keep.chance().falls(draws.draw() as u32);
        let place = match state.selection {
            Selection::Random => Some(draws.below(pool.len() as u64) as usize),
            Selection::Guided if member.score >= median || kept => {
                (0..pool.len()).min_by_key(|place| pool[*place].score)
            }
            Selection::Guided => None,
        };
        if let Some(member_of) = place.and_then(|place| pool.get_mut(place)) {
            *member_of = member;
        }
    }

    /// Reduces and saves a finding; the variant that it was found with.
    fn report(
        &mut self,
        state: &mut State,
        shown: Shown,
        sign: &Sign,
        keep: Keep<'_>,
    ) -> Result<Shown, Stop> {
        (self.progress)(state, "reducing a finding");
        let mut reducer = Reducer {
            space: self.space,
            evaluator: self.evaluator,
            jobs: self.jobs,
            sign,
            runs: 0,
        };
        let reduced = reducer.reduce(Shown {
            case: shown.case.clone(),
            judgement: shown.judgement.clone(),
        })?;
        state.reducing_runs += reducer.runs;
        let mut signs = reduced.judgement.signs.clone();
        signs.insert(sign.clone());
        let below = PathBuf::from(format!("finding-{}", state.findings.len() + 1));
        let path = below.join("plan.yaml");
        let plan = Plan {
            expect: expectations(&reduced.judgement),
            ..self.space.plan(&reduced.case)
        };
        self.write(
            &self.directory.join(&path),
            explicit::anew(&plan).as_bytes(),
        )?;
        keep(&plan, &self.directory.join(&below))?;
        state.findings.push(Finding {
            run: state.runs,
            signs,
            found: shown.case.clone(),
            reduced: reduced.case,
            plan: path,
        });
        Ok(shown)
    }

    fn save(&self) -> Result<(), Error> {
        let path = self.directory.join(STATE);
        let text = serde_json::to_vec_pretty(&self.state).unwrap_or_default();
        self.write(&path, &text)
    }

    /// Writes a file as a whole or not at all.
    fn write(&self, path: &Path, text: &[u8]) -> Result<(), Error> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Error::file("create", parent))?;
        }
        let new = path.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, path))
            .map_err(Error::file("write", path))
    }
}

/// The first sign that no finding has.
fn news(state: &State, signs: &BTreeSet<Sign>) -> Option<Sign> {
    let known = |sign: &&Sign| {
        state
            .findings
            .iter()
            .any(|found| found.signs.contains(sign))
    };
    signs.iter().find(|sign| !known(sign)).cloned()
}

/// What is asked of the devices, that they do not do.
fn expectations(judgement: &Judgement) -> Vec<Expectation> {
    let expectation = |sign: &Sign| match sign {
        Sign::Innocent => Some(Expectation::Completion(CompletionExpectation {
            traffic: 1,
            queue_pairs: judgement.innocent_numbers()?,
            within: Duration(judgement.allowed_ns?),
        })),
        Sign::Counter { endpoint, name } => Some(Expectation::Counter(CounterExpectation {
            endpoint: *endpoint,
            name: name.clone(),
            at_least: None,
            at_most: Some(0),
        })),
        Sign::Rule(rule) => Some(Expectation::Findings(FindingsExpectation {
            rule: Some(*rule),
            at_least: None,
            at_most: Some(0),
        })),
    };
    judgement.signs.iter().filter_map(expectation).collect()
}
