// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a variant that shows a sign as small as it gets: events are taken away, then numbers of
//! the traffic are lowered, until nothing more can go. Each step is run.

use super::case::{Case, Hit, Knob, Space};
use super::judge::{Judgement, Sign};
use super::{Evaluate, Stop, judge_all};

/// Variants that are run at a time, however many jobs there are: the first that shows the sign
/// counts, and what is run must not depend on the jobs.
const BATCH: usize = 4;
/// Runs after which what there is has to do.
const MOST_RUNS: u32 = 400;

/// Reduces variants.
pub(super) struct Reducer<'a> {
    pub space: &'a Space,
    pub evaluator: &'a dyn Evaluate,
    pub jobs: usize,
    pub sign: &'a Sign,
    /// Runs so far.
    pub runs: u32,
}

/// A variant that shows the sign, and how.
pub(super) struct Shown {
    pub case: Case,
    pub judgement: Judgement,
}

impl Reducer<'_> {
    pub fn reduce(&mut self, mut shown: Shown) -> Result<Shown, Stop> {
        loop {
            let before = shown.case.clone();
            shown = self.fewer_hits(shown)?;
            shown = self.first(shown, |case| vec![plainer(case)])?.0;
            for knob in Knob::ALL {
                shown = self.lower(shown, knob)?;
            }
            if shown.case == before || self.runs >= MOST_RUNS {
                return Ok(shown);
            }
        }
    }

    /// The first of the variants that shows the sign, or the one that is known; whether it is a
    /// new one.
    fn first(
        &mut self,
        shown: Shown,
        variants: impl FnOnce(&Case) -> Vec<Case>,
    ) -> Result<(Shown, bool), Stop> {
        let mut variants = variants(&shown.case);
        variants.retain(|case| case.is_whole() && *case != shown.case);
        for batch in variants.chunks(BATCH) {
            if self.runs >= MOST_RUNS {
                break;
            }
            self.runs += batch.len() as u32;
            let judgements = judge_all(self.evaluator, batch, self.jobs)?;
            for (case, judgement) in batch.iter().zip(judgements) {
                if judgement.signs.contains(self.sign) && judgement.unfired.is_empty() {
                    let case = case.clone();
                    return Ok((Shown { case, judgement }, true));
                }
            }
        }
        Ok((shown, false))
    }

    /// Takes hits away, ever smaller parts of them (Zeller and Hildebrandt, Simplifying and
    /// Isolating Failure-Inducing Input, 2002).
    fn fewer_hits(&mut self, mut shown: Shown) -> Result<Shown, Stop> {
        let mut part = shown.case.hits.len();
        while part > 0 {
            let without = |case: &Case| {
                let places = (0..case.hits.len()).step_by(part);
                let without = |from: usize| Case {
                    hits: skipping(&case.hits, from, part),
                    ..case.clone()
                };
                places.map(without).collect()
            };
            let fewer;
            (shown, fewer) = self.first(shown, without)?;
            part = match fewer {
                true => part.min(shown.case.hits.len()),
                false => part / 2,
            };
        }
        Ok(shown)
    }

    /// Lowers a number as far as it goes, by ever smaller steps.
    fn lower(&mut self, mut shown: Shown, knob: Knob) -> Result<Shown, Stop> {
        let Some(bounds) = self.space.target.vary.bounds(knob) else {
            return Ok(shown);
        };
        let value = |shown: &Shown| knob.get(&shown.case.traffic);
        let mut step = value(&shown).saturating_sub(bounds.least);
        while step > 0 {
            let before = value(&shown);
            let lowered = |case: &Case| {
                let steps = std::iter::successors(Some(step), |step| Some(step / 2));
                let steps = steps.take_while(|step| *step > 0);
                let values = steps.filter_map(|step| before.checked_sub(step));
                let values = values.filter(|value| *value >= bounds.least);
                let with = |value| {
                    let mut lowered = case.clone();
                    knob.set(&mut lowered.traffic, value);
                    lowered
                };
                values.map(with).collect()
            };
            shown = self.first(shown, lowered)?.0;
            step = (before - value(&shown)) / 2;
        }
        Ok(shown)
    }
}

fn skipping(hits: &[Hit], from: usize, many: usize) -> Vec<Hit> {
    let end = (from + many).min(hits.len());
    [&hits[..from], &hits[end..]].concat()
}

/// The same hits on the first connections, with the PSN of the first.
fn plainer(case: &Case) -> Case {
    let mut connections: Vec<u32> = case.hits.iter().map(|hit| hit.connection).collect();
    connections.dedup();
    let psn = case.hits.iter().map(|hit| hit.psn).min().unwrap_or(0);
    let alone = connections.len() == case.hits.len();
    let plainer = |hit: &Hit| Hit {
        connection: connections.partition_point(|known| *known < hit.connection) as u32,
        psn: if alone { psn } else { hit.psn },
        ..*hit
    };
    Case {
        hits: case.hits.iter().map(plainer).collect(),
        ..case.clone()
    }
}
