// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The application: posts messages to queue pairs, and keeps when each began and ended.

use serde::{Deserialize, Serialize};

use super::requester::Completion;
use super::{Operation, Picoseconds, Status};

/// Messages over queue pairs of one NIC.
#[derive(Clone, Debug)]
pub struct TransferConfig {
    /// What the messages are, in turn.
    pub operations: Vec<Operation>,
    /// Places of the queue pairs at the NIC that asks.
    pub qps: Vec<usize>,
    /// Messages of each queue pair.
    pub messages: u64,
    /// Bytes of each message.
    pub size: u64,
    /// Messages of a queue pair that are posted at a time.
    pub tx_depth: u64,
    /// Posts the next `tx_depth` messages of each queue pair only when all have completed theirs.
    pub barrier: bool,
}

/// A message to be posted.
pub(super) struct Post {
    pub id: u64,
    pub operation: Operation,
    pub length: u64,
    pub offset: u64,
}

/// A message that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// When it was posted.
    pub posted: Picoseconds,
    /// When it completed.
    pub completed: Picoseconds,
}

/// What became of the messages of a queue pair.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    posted: u64,
    /// When those were posted that have not ended.
    waiting: Vec<(u64, Picoseconds)>,
    /// Those that completed, in their order.
    pub messages: Vec<Message>,
    /// Why the others did not.
    pub error: Option<Status>,
}

impl Flow {
    fn is_over(&self, messages: u64) -> bool {
        self.waiting.is_empty() && (self.posted == messages || self.error.is_some())
    }

    fn complete(&mut self, now: Picoseconds, completion: Completion) {
        let place = (self.waiting.iter()).position(|(id, _)| *id == completion.id);
        let Some((_, posted)) = place.map(|place| self.waiting.remove(place)) else {
            return;
        };
        match completion.status {
            Status::Success => self.messages.push(Message {
                posted,
                completed: now,
            }),
            status => {
                self.error.get_or_insert(status);
            }
        }
    }
}

/// A transfer under way.
#[derive(Clone, Debug)]
pub struct Transfer {
    config: TransferConfig,
    flows: Vec<Flow>,
    start: Option<Picoseconds>,
    begun: bool,
    end: Option<Picoseconds>,
    /// With a barrier: messages that each queue pair may have posted by now.
    round: u64,
}

impl Transfer {
    pub(super) fn new(config: TransferConfig) -> Self {
        Self {
            flows: vec![Flow::default(); config.qps.len()],
            start: None,
            begun: false,
            end: None,
            round: config.tx_depth,
            config,
        }
    }

    pub(super) fn start(&mut self, at: Picoseconds) {
        self.start = Some(at);
    }

    /// When it has to be looked after by itself: at its beginning.
    pub(super) fn next(&self) -> Option<Picoseconds> {
        self.start.filter(|_| !self.begun)
    }

    pub(super) fn is_running(&self, now: Picoseconds) -> bool {
        self.start.is_some_and(|start| start <= now) && self.end.is_none()
    }

    /// How it was asked for.
    pub fn config(&self) -> &TransferConfig {
        &self.config
    }

    /// What became of each queue pair's messages.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// When the first message was posted.
    pub fn begun(&self) -> Option<Picoseconds> {
        self.start.filter(|_| self.begun)
    }

    /// When the last message ended.
    pub fn end(&self) -> Option<Picoseconds> {
        self.end
    }

    /// Takes what has completed on each queue pair.
    pub(super) fn complete(
        &mut self,
        now: Picoseconds,
        mut completions: impl FnMut(usize) -> Vec<Completion>,
    ) {
        for (flow, qp) in self.flows.iter_mut().zip(&self.config.qps) {
            for completion in completions(*qp) {
                flow.complete(now, completion);
            }
        }
    }

    pub(super) fn post(&mut self, now: Picoseconds, mut post: impl FnMut(usize, Post)) {
        self.begun = true;
        let TransferConfig {
            messages,
            size,
            tx_depth,
            barrier,
            ..
        } = self.config;
        let mut reached = self.flows.iter().filter(|flow| flow.error.is_none());
        if barrier && reached.all(|flow| flow.messages.len() as u64 >= self.round) {
            self.round += tx_depth;
        }
        let allowed = if barrier {
            self.round.min(messages)
        } else {
            messages
        };
        let operations = self.config.operations.len() as u64;
        for (flow, qp) in self.flows.iter_mut().zip(&self.config.qps) {
            while flow.error.is_none()
                && flow.posted < allowed
                && (flow.waiting.len() as u64) < tx_depth
            {
                let id = flow.posted;
                let operation = self.config.operations[(id % operations) as usize];
                let before = id / operations;
                let (length, offset) = match operation.is_atomic() {
                    true => (8, before),
                    false => (size, before * size),
                };
                flow.posted += 1;
                flow.waiting.push((id, now));
                post(
                    *qp,
                    Post {
                        id,
                        operation,
                        length,
                        offset,
                    },
                );
            }
        }
        if self.flows.iter().all(|flow| flow.is_over(messages)) {
            self.end = Some(now);
        }
    }
}

/// Times that messages took to complete, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionTimes {
    /// The shortest.
    pub min_ns: u64,
    /// Their mean.
    pub mean_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// What 9 of 10 do not exceed.
    pub p90_ns: u64,
    /// What 99 of 100 do not exceed.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl CompletionTimes {
    /// Of messages; nothing when there are none.
    pub fn of<'a>(messages: impl Iterator<Item = &'a Message>) -> Option<Self> {
        let mut times: Vec<u64> = messages.map(|m| (m.completed - m.posted) / 1000).collect();
        times.sort_unstable();
        let (min, max) = (*times.first()?, *times.last()?);
        let count = times.len();
        let percentile = |percent: usize| times[(count * percent).div_ceil(100).max(1) - 1];
        Some(Self {
            min_ns: min,
            mean_ns: times.iter().sum::<u64>() / count as u64,
            p50_ns: percentile(50),
            p90_ns: percentile(90),
            p99_ns: percentile(99),
            max_ns: max,
        })
    }
}
