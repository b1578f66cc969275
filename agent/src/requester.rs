// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end that asks: posts messages, and keeps how long each took.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use midwire_endpoints::agent::protocol::{Arrived, Ran, RanPair};
use midwire_endpoints::rnic::{CompletionTimes, Operation, RdmaTransfer};

use crate::error::Error;
use crate::layout::WORD;
use crate::responder::Service;
use crate::transfer::{Activity, Lane, Transfer, Wait, id, lane_of};
use crate::verbs::{Completion, Work};

/// Times in nanoseconds, to three digits.
type Times = Histogram<u32>;

/// The messages of a queue pair.
struct Flow {
    posted: u64,
    /// When those were posted that have not ended: they end in their order.
    waiting: VecDeque<Instant>,
    completed: u64,
    begun: Option<Instant>,
    ended: Option<Instant>,
    times: Times,
    arrived: Arrived,
    error: Option<String>,
}

impl Flow {
    fn new() -> Result<Self, Error> {
        Ok(Self {
            posted: 0,
            waiting: VecDeque::new(),
            completed: 0,
            begun: None,
            ended: None,
            times: times()?,
            arrived: Arrived::default(),
            error: None,
        })
    }

    fn is_over(&self, messages: u64) -> bool {
        self.waiting.is_empty() && (self.posted == messages || self.error.is_some())
    }
}

fn times() -> Result<Times, Error> {
    Times::new(3).map_err(|e| Error::Asked(e.to_string()))
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn summary(times: &Times) -> Option<CompletionTimes> {
    let quantile = |quantile| times.value_at_quantile(quantile);
    (!times.is_empty()).then(|| CompletionTimes {
        min_ns: times.min(),
        mean_ns: times.mean() as u64,
        p50_ns: quantile(0.5),
        p90_ns: quantile(0.9),
        p99_ns: quantile(0.99),
        max_ns: times.max(),
    })
}

/// A transfer that runs.
struct Run<'a> {
    transfer: &'a Transfer,
    flows: Vec<Flow>,
    /// Of all messages.
    times: Times,
    /// Messages that each queue pair may have posted by now.
    round: u64,
    /// Those that have not come to their end.
    open: usize,
    found: Vec<Completion>,
    begun: Instant,
    /// How far it has come.
    now: Instant,
}

/// Carries transfers out, all at the same time, while those of the other end are served.
pub fn run(transfers: &[&Transfer], services: &mut [Service]) -> Result<Vec<Ran>, Error> {
    let mut wait = Wait::new();
    let runs = transfers.iter().map(|transfer| Run::begin(transfer));
    let mut runs = runs.collect::<Result<Vec<_>, _>>()?;
    let active = runs.iter_mut().map(|run| run as &mut dyn Activity);
    let serving = services
        .iter_mut()
        .map(|service| service as &mut dyn Activity);
    let mut all: Vec<_> = active.chain(serving).collect();
    while all.iter().any(|activity| activity.is_open()) {
        wait.step(&mut all)?;
    }
    Ok(runs.into_iter().map(Run::result).collect())
}

impl Activity for Run<'_> {
    fn is_open(&self) -> bool {
        self.open > 0 && self.now - self.begun < self.transfer.limit
    }

    fn look(&mut self) -> Result<bool, Error> {
        self.transfer.sends.poll(&mut self.found)?;
        Ok(!self.found.is_empty())
    }

    fn go_on(&mut self, now: Instant) -> Result<(), Error> {
        let mut found = std::mem::take(&mut self.found);
        if self.is_open() {
            self.now = now;
            for completion in &found {
                self.complete(completion, now)?;
            }
            let config = &self.transfer.config;
            if config.barrier && self.reached() {
                self.round = (self.round + config.tx_depth).min(config.messages);
                self.post_all()?;
            }
        }
        found.clear();
        self.found = found;
        Ok(())
    }
}

impl<'a> Run<'a> {
    /// Posts the first messages of a transfer.
    fn begin(transfer: &'a Transfer) -> Result<Self, Error> {
        let config = &transfer.config;
        let flows = transfer.lanes.iter().map(|_| Flow::new());
        let flows = flows.collect::<Result<_, _>>()?;
        let times = times()?;
        let begun = Instant::now();
        let mut run = Self {
            transfer,
            flows,
            times,
            round: match config.barrier {
                true => config.tx_depth.min(config.messages),
                false => config.messages,
            },
            open: transfer.lanes.len(),
            found: Vec::new(),
            begun,
            now: begun,
        };
        run.post_all()?;
        Ok(run)
    }

    fn post_all(&mut self) -> Result<(), Error> {
        (0..self.flows.len()).try_for_each(|lane| self.post(lane))
    }

    /// Posts what a queue pair may have under way.
    fn post(&mut self, index: usize) -> Result<(), Error> {
        let config = &self.transfer.config;
        let (lane, flow) = (&self.transfer.lanes[index], &mut self.flows[index]);
        while flow.error.is_none()
            && flow.posted < self.round
            && (flow.waiting.len() as u64) < config.tx_depth
        {
            let work = self
                .transfer
                .work(lane, id(index, flow.posted), flow.posted)?;
            let now = Instant::now();
            lane.pair.post(&work)?;
            flow.begun.get_or_insert(now);
            flow.waiting.push_back(now);
            flow.posted += 1;
        }
        Ok(())
    }

    fn complete(&mut self, completion: &Completion, now: Instant) -> Result<(), Error> {
        let index = lane_of(completion.id);
        let Transfer { config, lanes, .. } = self.transfer;
        let flow = &mut self.flows[index];
        let Some(posted) = flow.waiting.pop_front() else {
            return Ok(());
        };
        match &completion.error {
            Some(error) => {
                flow.error.get_or_insert_with(|| error.clone());
            }
            None => {
                let time = ns(now - posted);
                // They grow with what they hold.
                let kept = flow
                    .times
                    .record(time)
                    .and_then(|()| self.times.record(time));
                kept.map_err(|e| Error::Asked(e.to_string()))?;
                flow.ended = Some(now);
                self.transfer
                    .take(&lanes[index], flow.completed, &mut flow.arrived);
                flow.completed += 1;
            }
        }
        if flow.is_over(config.messages) {
            self.open -= 1;
            return Ok(());
        }
        match config.barrier {
            true => Ok(()),
            false => self.post(index),
        }
    }

    /// Whether all queue pairs have completed what they may.
    fn reached(&self) -> bool {
        let mut alive = self.flows.iter().filter(|flow| flow.error.is_none());
        self.open > 0 && alive.all(|flow| flow.completed >= self.round)
    }

    fn result(mut self) -> Ran {
        let Transfer { config, lanes, .. } = self.transfer;
        let time = self.now - self.begun;
        for (flow, lane) in self.flows.iter_mut().zip(lanes) {
            if !flow.is_over(config.messages) {
                let left = config.messages - flow.completed;
                let message = format!("{left} messages did not complete in {time:?}");
                flow.error.get_or_insert(message);
            }
            flow.arrived.wrong_bytes += self.transfer.wrong_reads(lane, flow.completed);
        }
        let pair = |flow: &Flow| RanPair {
            messages: flow.completed,
            arrived: flow.arrived,
            duration_ns: flow.begun.zip(flow.ended).map(|(from, to)| ns(to - from)),
            times: summary(&flow.times),
            error: flow.error.clone(),
        };
        Ran {
            duration_ns: (self.open == 0).then(|| ns(time)),
            times: summary(&self.times),
            qps: self.flows.iter().map(pair).collect(),
        }
    }
}

impl Transfer {
    /// A message that is to be posted.
    fn work(&self, lane: &Lane, id: u64, message: u64) -> Result<Work, Error> {
        let unconnected = || Error::Asked("the queue pair is not connected".to_owned());
        let peer = lane.peer.ok_or_else(unconnected)?;
        let operation = self.operation(message);
        let RdmaTransfer { size, .. } = self.config;
        let (offset, remote, length) = match operation {
            Operation::Send => (self.layout.outgoing(message), 0, size),
            Operation::Write => {
                let remote = self.layout.incoming(message);
                (self.layout.outgoing(message), remote, size)
            }
            Operation::Read => {
                let memory = &lane.pair.memory;
                self.layout
                    .spoil(memory, lane.start, message, lane.incoming);
                let remote = self.layout.outgoing(message);
                (self.layout.incoming(message), remote, size)
            }
            Operation::FetchAdd | Operation::CompareSwap => {
                (self.layout.word(message), 0, WORD as u64)
            }
        };
        Ok(Work {
            id,
            operation,
            offset: lane.start + offset,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            remote: peer.memory + remote as u64,
            remote_key: peer.key,
            operand: match operation {
                Operation::CompareSwap => message,
                _ => 1,
            },
        })
    }

    /// Takes into account what a completed message has brought, here or to the other end.
    fn take(&self, lane: &Lane, message: u64, arrived: &mut Arrived) {
        let memory = &lane.pair.memory;
        match self.operation(message) {
            // The other end counts these.
            Operation::Send => {}
            Operation::Write => arrived.bytes += self.config.size,
            Operation::Read => {
                arrived.bytes += self.config.size;
                arrived.wrong_bytes +=
                    (self.layout).missing(memory, lane.start, message, lane.incoming);
            }
            // Each finds what the one before it has left.
            Operation::FetchAdd | Operation::CompareSwap => {
                let mut word = [0; WORD];
                memory.read(lane.start + self.layout.word(message), &mut word);
                arrived.bytes += WORD as u64;
                arrived.wrong_bytes += match u64::from_ne_bytes(word) == message {
                    true => 0,
                    false => WORD as u64,
                };
            }
        }
    }

    /// What is wrong in what READs have brought, when nothing comes any more.
    fn wrong_reads(&self, lane: &Lane, completed: u64) -> u64 {
        let last = self.layout.last(completed);
        let reads = last.filter(|message| self.operation(*message) == Operation::Read);
        let memory = &lane.pair.memory;
        (self.layout).wrong_bytes(memory, lane.start, reads, lane.incoming)
    }
}
