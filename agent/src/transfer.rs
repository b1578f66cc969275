// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One end of a transfer: its queue pairs and their memory.

use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use midwire_endpoints::agent::protocol::{Prepare, QueuePair};
use midwire_endpoints::payload::Stream;
use midwire_endpoints::rnic::{Operation, RdmaTransfer};

use crate::error::Error;
use crate::layout::{Content, Layout};
use crate::verbs::{Completions, Nic, Pair, PairConfig, Path};

/// ECT(0): packets that may be marked.
const ECN_CAPABLE: u8 = 2;

/// A queue pair, what goes over it, and its peer.
pub struct Lane {
    pub pair: Pair,
    pub first_psn: u32,
    /// Its part of the memory.
    pub start: usize,
    pub incoming: Content,
    pub peer: Option<QueuePair>,
}

pub struct Transfer {
    pub config: RdmaTransfer,
    pub layout: Layout,
    pub lanes: Vec<Lane>,
    pub sends: Rc<Completions>,
    pub receives: Rc<Completions>,
    /// How long it may take.
    pub limit: Duration,
}

/// Receives that the end that answers has posted at a time.
pub fn receives(config: &RdmaTransfer) -> u64 {
    let turn = config.operations.iter();
    let sends = turn.filter(|o| **o == Operation::Send).count() as u64;
    let all = (config.messages * sends).div_ceil(config.operations.len().max(1) as u64);
    config.receives.min(all)
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Transfer {
    /// Makes the queue pairs of transfer `n`, the first of which has a number among all of the
    /// session.
    pub fn prepare(nic: &Nic, wish: &Prepare, n: usize, first: u32) -> Result<Self, Error> {
        let config = wish.transfers[n].clone();
        let asks = config.from == wish.end;
        let layout = Layout::of(&config);
        let atomic = config.operations.iter().any(|o| o.is_atomic());
        let bytes = layout.bytes().saturating_mul(config.qps as usize);
        let memory = nic.memory(bytes, atomic)?;
        let (sends, receives) = match asks {
            true => (count(config.tx_depth.min(config.messages)), 0),
            false => (0, count(receives(&config))),
        };
        let queue = |each: u32| nic.completions(each.saturating_mul(config.qps).max(1));
        let queues = [queue(sends)?, queue(receives)?];
        let lane = |(index, first_psn): (usize, &u32)| {
            let gid = nic.gids[if config.multi_gid { index } else { 0 } % nic.gids.len()];
            let pair = PairConfig {
                gid,
                memory: Rc::clone(&memory),
                sends,
                receives,
                atomic,
            };
            let content = |from_opener| Stream::new(wish.seed, first + index as u32, from_opener);
            let start = index * layout.bytes();
            layout.fill(&memory, start, content(asks));
            Ok(Lane {
                pair: Pair::new(nic, pair, queues.clone())?,
                first_psn: *first_psn,
                start,
                incoming: content(!asks),
                peer: None,
            })
        };
        let lanes = wish.first_psns[n].iter().enumerate().map(lane);
        let lanes = lanes.collect::<Result<_, Error>>()?;
        let [sends, receives] = queues;
        Ok(Self {
            layout,
            lanes,
            sends,
            receives,
            limit: Duration::from_nanos(wish.limit_ns),
            config,
        })
    }

    /// What a message is: operations are done in turn.
    pub fn operation(&self, message: u64) -> Operation {
        let operations = &self.config.operations;
        operations[(message % operations.len() as u64) as usize]
    }

    /// What the peer has to know of its queue pairs.
    pub fn queue_pairs(&self) -> Vec<QueuePair> {
        let queue_pair = |lane: &Lane| QueuePair {
            address: lane.pair.address(),
            number: lane.pair.number(),
            first_psn: lane.first_psn,
            memory: lane.pair.memory.address(lane.start),
            key: lane.pair.memory.remote_key(),
        };
        self.lanes.iter().map(queue_pair).collect()
    }

    /// Connects them with those of the peer.
    pub fn connect(&mut self, peers: &[QueuePair]) -> Result<(), Error> {
        if peers.len() != self.lanes.len() {
            let (peers, own) = (peers.len(), self.lanes.len());
            let message = format!("the peer has {peers} queue pairs, this end {own}");
            return Err(Error::Asked(message));
        }
        for (lane, peer) in self.lanes.iter_mut().zip(peers) {
            lane.pair.connect(&Path {
                address: peer.address,
                number: peer.number,
                mtu: self.config.mtu,
                first_psn: lane.first_psn,
                peer_psn: peer.first_psn,
                timeout: self.config.timeout,
                retries: self.config.retries,
                rnr_retries: self.config.rnr_retries,
                min_rnr_timer: self.config.min_rnr_timer,
                max_reads: u8::try_from(self.config.max_reads).unwrap_or(u8::MAX),
                traffic_class: self.config.dscp << 2 | ECN_CAPABLE,
            })?;
            lane.peer = Some(*peer);
        }
        Ok(())
    }
}

/// What completions keep going.
pub trait Activity {
    /// Whether it is waited for.
    fn is_open(&self) -> bool;
    /// Takes what has ended from its queue; whether there is any.
    fn look(&mut self) -> Result<bool, Error>;
    /// Goes on with it.
    fn go_on(&mut self, now: Instant) -> Result<(), Error>;
}

/// Waits for completions.
pub struct Wait {
    since: Instant,
}

impl Wait {
    /// How long completions are waited for without a rest. Who waits for a timeout need not keep a
    /// processor busy: the rests after that are so small a part of the time waited.
    const RESTLESS: Duration = Duration::from_micros(100);
    const PART: u32 = 500;
    const LEAST: Duration = Duration::from_micros(1);

    pub fn new() -> Self {
        // SAFETY: the call reads numbers. A rest is then as short as was asked for; if not, it is
        // only longer.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        Self {
            since: Instant::now(),
        }
    }

    /// Lets all that goes on take what has ended.
    pub fn step(&mut self, all: &mut [&mut dyn Activity]) -> Result<(), Error> {
        let mut found = false;
        for activity in &mut *all {
            found |= activity.look()?;
        }
        let now = self.rest(found);
        all.iter_mut().try_for_each(|activity| activity.go_on(now))
    }

    /// Rests when nothing has ended; what time it was before.
    fn rest(&mut self, found: bool) -> Instant {
        // To read the clock takes time on a host in virtual time, which so goes on.
        let now = Instant::now();
        if found {
            self.since = now;
        } else if now - self.since > Self::RESTLESS {
            thread::sleep(((now - self.since) / Self::PART).max(Self::LEAST));
        } else {
            // Soft-RoCE computes where programs do, on a host of one processor only when they let it.
            thread::yield_now();
        }
        now
    }
}

/// Which queue pair a work request was for, and its message: the number that it has.
pub fn id(lane: usize, message: u64) -> u64 {
    (lane as u64) << 32 | message & 0xffff_ffff
}

/// The queue pair of a work request.
pub fn lane_of(id: u64) -> usize {
    (id >> 32) as usize
}
