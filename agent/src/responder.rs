// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end that answers: has receives posted, and says what has arrived.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use midwire_endpoints::agent::protocol::Arrived;
use midwire_endpoints::rnic::{NANOSECOND, Operation};

use crate::error::Error;
use crate::transfer::{Activity, Lane, Transfer, id, lane_of, receives};
use crate::verbs::Completion;

/// Receives of a queue pair.
#[derive(Clone, Copy, Default)]
struct Inbox {
    posted: u64,
    completed: u64,
    arrived: Arrived,
}

/// A transfer that is served.
pub struct Service<'a> {
    transfer: &'a Transfer,
    /// Places of SENDs among the operations that are done in turn.
    sends: Vec<u64>,
    inboxes: Vec<Inbox>,
    found: Vec<Completion>,
    /// Queue pairs that get a receive again, and when.
    due: VecDeque<(Instant, usize)>,
}

impl Activity for Service<'_> {
    /// The other end says when it is over.
    fn is_open(&self) -> bool {
        false
    }

    fn look(&mut self) -> Result<bool, Error> {
        self.transfer.receives.poll(&mut self.found)?;
        Ok(!self.found.is_empty())
    }

    fn go_on(&mut self, now: Instant) -> Result<(), Error> {
        let repost = Duration::from_nanos(self.transfer.config.repost / NANOSECOND);
        let mut found = std::mem::take(&mut self.found);
        for completion in found.drain(..).filter(|c| c.error.is_none()) {
            let index = lane_of(completion.id);
            self.take(index, completion.bytes.into());
            self.due.push_back((now + repost, index));
        }
        self.found = found;
        while let Some((_, index)) = self.due.pop_front_if(|(at, _)| *at <= now) {
            self.post(index)?;
        }
        Ok(())
    }
}

impl<'a> Service<'a> {
    /// Posts receives.
    pub fn new(transfer: &'a Transfer) -> Result<Self, Error> {
        let turn = (0..).zip(&transfer.config.operations);
        let sends = turn.filter(|(_, operation)| **operation == Operation::Send);
        let mut service = Self {
            transfer,
            sends: sends.map(|(place, _)| place).collect(),
            inboxes: vec![Inbox::default(); transfer.lanes.len()],
            found: Vec::new(),
            due: VecDeque::new(),
        };
        for lane in 0..transfer.lanes.len() {
            for _ in 0..receives(&transfer.config) {
                service.post(lane)?;
            }
        }
        Ok(service)
    }

    /// The message that the n-th receive takes.
    fn message(&self, n: u64) -> u64 {
        let turn = self.transfer.config.operations.len() as u64;
        let count = self.sends.len().max(1) as u64;
        let place = self.sends.get((n % count) as usize).copied().unwrap_or(0);
        n / count * turn + place
    }

    /// Posts a receive, if there is a message for it.
    fn post(&mut self, index: usize) -> Result<(), Error> {
        let Transfer {
            config,
            layout,
            lanes,
            ..
        } = self.transfer;
        let lane = &lanes[index];
        let n = self.inboxes[index].posted;
        let message = self.message(n);
        if message >= config.messages {
            return Ok(());
        }
        layout.spoil(&lane.pair.memory, lane.start, message, lane.incoming);
        let length = u32::try_from(config.size).unwrap_or(u32::MAX);
        let place = lane.start + layout.incoming(message);
        lane.pair.post_receive(id(index, n), place, length)?;
        self.inboxes[index].posted += 1;
        Ok(())
    }

    /// Whether anything comes into receives.
    pub fn receives(&self) -> bool {
        self.inboxes.iter().any(|inbox| inbox.posted > 0)
    }

    fn take(&mut self, index: usize, bytes: u64) {
        let Transfer {
            config,
            layout,
            lanes,
            ..
        } = self.transfer;
        let (lane, message) = (&lanes[index], self.message(self.inboxes[index].completed));
        let missing = layout.missing(&lane.pair.memory, lane.start, message, lane.incoming);
        let inbox = &mut self.inboxes[index];
        inbox.completed += 1;
        inbox.arrived.bytes += bytes;
        inbox.arrived.wrong_bytes += missing + bytes.abs_diff(config.size);
    }

    /// What has arrived, when the other end has seen so many messages of each queue pair completed.
    pub fn check(&self, messages: &[u64]) -> Vec<Arrived> {
        let lanes = self.transfer.lanes.iter().zip(&self.inboxes).zip(messages);
        lanes
            .map(|((lane, inbox), completed)| Arrived {
                wrong_bytes: inbox.arrived.wrong_bytes + self.wrong(lane, inbox, *completed),
                ..inbox.arrived
            })
            .collect()
    }

    /// What is wrong in the memory now. A slot that waits for a message again has been made so.
    fn wrong(&self, lane: &Lane, inbox: &Inbox, completed: u64) -> u64 {
        let layout = &self.transfer.layout;
        let waits: Vec<u64> = (inbox.completed..inbox.posted)
            .map(|n| layout.slot(self.message(n)))
            .collect();
        let comes_here = |message: &u64| {
            let operation = self.transfer.operation(*message);
            matches!(operation, Operation::Send | Operation::Write)
                && !waits.contains(&layout.slot(*message))
        };
        let last = layout.last(completed).filter(comes_here);
        layout.wrong_bytes(&lane.pair.memory, lane.start, last, lane.incoming)
    }
}
