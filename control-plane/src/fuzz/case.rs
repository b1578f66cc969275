// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A variant of the plan, and how new ones are made: from nothing, and from others.

use midwire_trace::chance::Draws;
use serde::{Deserialize, Serialize};

use super::target::{Bounds, Target, Vary};
use crate::plan::{
    Connections, Event, Iterations, Numbers, Plan, RdmaTraffic, Selector, Size, Traffic, Transport,
    Verb, lane_from,
};

/// A variant of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The traffic.
    pub traffic: RdmaTraffic,
    /// What happens to which data packets, in order.
    pub hits: Vec<Hit>,
}

/// Something happens to a data packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hit {
    /// Connection: the queue pairs in the order in which their data appears.
    pub connection: u32,
    /// Its PSN, relative to the first.
    pub psn: u32,
    /// Which time that it is seen.
    pub iteration: u8,
    /// Place of the action in the target.
    pub action: usize,
}

impl Default for Hit {
    fn default() -> Self {
        Self {
            connection: 0,
            psn: 0,
            iteration: 1,
            action: 0,
        }
    }
}

/// A number of the traffic that is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knob {
    Qps,
    Messages,
    Size,
    TxDepth,
}

impl Knob {
    pub const ALL: [Self; 4] = [Self::Qps, Self::Messages, Self::Size, Self::TxDepth];

    /// As target and plan call it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Qps => "qps",
            Self::Messages => "messages",
            Self::Size => "size",
            Self::TxDepth => "tx_depth",
        }
    }

    pub fn get(self, traffic: &RdmaTraffic) -> u64 {
        match self {
            Self::Qps => traffic.qps.into(),
            Self::Messages => traffic.messages.into(),
            Self::Size => traffic.size.0,
            Self::TxDepth => traffic.tx_depth.into(),
        }
    }

    pub fn set(self, traffic: &mut RdmaTraffic, value: u64) {
        let number = u32::try_from(value).unwrap_or(u32::MAX);
        match self {
            Self::Qps => traffic.qps = number,
            Self::Messages => traffic.messages = number,
            Self::Size => traffic.size = Size(value),
            Self::TxDepth => traffic.tx_depth = number,
        }
    }
}

impl Vary {
    pub(super) fn bounds(&self, knob: Knob) -> Option<Bounds> {
        match knob {
            Knob::Qps => self.qps,
            Knob::Messages => self.messages,
            Knob::Size => self.size,
            Knob::TxDepth => self.tx_depth,
        }
    }
}

impl Case {
    /// Data packets of each queue pair.
    pub(super) fn packets(&self) -> u64 {
        let RdmaTraffic {
            verb,
            messages,
            size,
            mtu,
            ..
        } = &self.traffic;
        let each = match verb {
            Verb::FetchAdd | Verb::CompareSwap => 1,
            _ => size.0.div_ceil((*mtu).into()).max(1),
        };
        each.saturating_mul((*messages).into())
    }

    /// Whether all hits are on packets that there are.
    pub(super) fn is_whole(&self) -> bool {
        let there =
            |hit: &Hit| hit.connection < self.traffic.qps && u64::from(hit.psn) < self.packets();
        self.hits.iter().all(there)
    }
}

/// All variants of a plan that a target allows.
#[derive(Debug)]
pub struct Space {
    /// The bounds.
    pub target: Target,
    /// The plan.
    pub base: Plan,
    /// Its traffic.
    pub traffic: RdmaTraffic,
}

/// Events that a variant made from nothing has at the most. It gets more by mutation.
const FIRST_EVENTS: u64 = 4;
/// Mutations that make a variant of another at the most.
const MUTATIONS: u64 = 3;

impl Space {
    /// The plan of a variant.
    pub fn plan(&self, case: &Case) -> Plan {
        let traffic = &case.traffic;
        // Queue pairs are counted by the packets that carry data.
        let sender = match traffic.verb {
            Verb::Read => traffic.to,
            _ => traffic.from,
        };
        let selector = Selector {
            transport: Some(Transport::Roce),
            from: Some(sender),
            ..Selector::default()
        };
        let actions = self.target.vary.events.iter().flat_map(|e| &e.actions);
        let actions: Vec<_> = actions.collect();
        let hits = case.hits.iter().filter_map(|hit| {
            Some(Event {
                connection: Connections::One(hit.connection),
                psn: Some(Numbers::from(u64::from(hit.psn))),
                iterations: Iterations::range(hit.iteration, hit.iteration),
                ..Event::new(lane_from(sender), (*actions.get(hit.action)?).clone())
            })
        });
        Plan {
            name: self.target.name.clone(),
            description: self.target.description.clone(),
            selectors: vec![selector],
            traffic: vec![Traffic::Rdma(traffic.clone())],
            events: self.base.events.iter().cloned().chain(hits).collect(),
            ..self.base.clone()
        }
    }

    /// A variant made from nothing.
    pub(super) fn fresh(&self, draws: &mut Draws) -> Case {
        let vary = &self.target.vary;
        let mut case = Case {
            traffic: self.traffic.clone(),
            hits: Vec::new(),
        };
        for knob in Knob::ALL {
            if let Some(bounds) = vary.bounds(knob) {
                knob.set(&mut case.traffic, any(bounds, draws));
            }
        }
        self.choose_verb(&mut case, draws);
        self.choose_mtu(&mut case, draws);
        if vary.events.is_some() {
            for _ in 0..=draws.below(FIRST_EVENTS) {
                case.hits.push(self.hit(&case, draws));
            }
        }
        self.mended(case)
    }

    /// A variant made from another.
    pub(super) fn mutate(&self, case: &Case, draws: &mut Draws) -> Case {
        let mut case = case.clone();
        for _ in 0..=draws.below(MUTATIONS) {
            // Events more often than all that the traffic has.
            match draws.below(3) {
                0 => self.mutate_traffic(&mut case, draws),
                _ => self.mutate_events(&mut case, draws),
            }
        }
        self.mended(case)
    }

    fn choose_verb(&self, case: &mut Case, draws: &mut Draws) {
        if let Some(verb) = pick(self.target.vary.verb.as_deref(), draws) {
            case.traffic.verb = verb;
        }
    }

    fn choose_mtu(&self, case: &mut Case, draws: &mut Draws) {
        if let Some(mtu) = pick(self.target.vary.mtu.as_deref(), draws) {
            case.traffic.mtu = mtu;
        }
    }

    fn mutate_traffic(&self, case: &mut Case, draws: &mut Draws) {
        match draws.below(6) {
            0 => self.choose_verb(case, draws),
            1 => self.choose_mtu(case, draws),
            n => {
                let knob = Knob::ALL[n as usize - 2];
                let Some(bounds) = self.target.vary.bounds(knob) else {
                    return;
                };
                let now = knob.get(&case.traffic);
                let value = match draws.below(5) {
                    0 => now.saturating_mul(2),
                    1 => now / 2,
                    2 => now.saturating_add(1),
                    3 => now.saturating_sub(1),
                    _ => any(bounds, draws),
                };
                knob.set(&mut case.traffic, value.clamp(bounds.least, bounds.most));
            }
        }
    }

    /// Adds, moves, spreads or takes away.
    fn mutate_events(&self, case: &mut Case, draws: &mut Draws) {
        if self.target.vary.events.is_none() {
            return;
        }
        let count = case.hits.len() as u64;
        if count == 0 {
            let hit = self.hit(case, draws);
            return case.hits.push(hit);
        }
        let one = draws.below(count) as usize;
        // Up to half of what there is, so that as many come as go.
        let many = 1 + draws.below(count.div_ceil(2));
        match draws.below(6) {
            0 => {
                let hit = self.hit(case, draws);
                case.hits.push(hit);
            }
            1 => case.hits[one] = self.hit(case, draws),
            2 | 3 => {
                let hit = case.hits[one];
                for _ in 0..many {
                    let connection = draws.below(case.traffic.qps.into()) as u32;
                    case.hits.push(Hit { connection, ..hit });
                }
            }
            _ => {
                for _ in 0..many {
                    let gone = draws.below(case.hits.len() as u64) as usize;
                    case.hits.swap_remove(gone);
                }
            }
        }
    }

    /// Something happens to any packet.
    fn hit(&self, case: &Case, draws: &mut Draws) -> Hit {
        let events = self.target.vary.events.as_ref();
        let iterations = events.map_or(1, |events| events.iterations);
        let actions = events.map_or(1, |events| events.actions.len());
        Hit {
            connection: draws.below(case.traffic.qps.into()) as u32,
            psn: draws.below(case.packets()) as u32,
            iteration: 1 + draws.below(iterations.into()) as u8,
            action: draws.below(actions as u64) as usize,
        }
    }

    /// With all hits on packets that there are, each once, and no more than are allowed.
    fn mended(&self, mut case: Case) -> Case {
        let (qps, packets) = (case.traffic.qps.max(1), case.packets().max(1));
        for hit in &mut case.hits {
            hit.connection %= qps;
            hit.psn = (u64::from(hit.psn) % packets) as u32;
        }
        let most = self.target.vary.events.as_ref().map_or(0, |e| e.most);
        case.hits.truncate(most as usize);
        case.hits.sort_unstable();
        (case.hits).dedup_by_key(|hit| (hit.connection, hit.psn, hit.iteration));
        case
    }
}

/// Any number within bounds.
fn any(bounds: Bounds, draws: &mut Draws) -> u64 {
    let Bounds { least, most } = bounds;
    least + draws.below((most - least).saturating_add(1))
}

fn pick<T: Copy>(choices: Option<&[T]>, draws: &mut Draws) -> Option<T> {
    let choices = choices?;
    choices
        .get(draws.below(choices.len() as u64) as usize)
        .copied()
}
