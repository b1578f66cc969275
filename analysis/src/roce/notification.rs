// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Congestion notifications: which marks were told of, how far apart, and what the limit on them
//! counts for.
//!
//! A notification point tells the sender of a marked packet by a congestion notification packet,
//! but no sooner than some time after the one before. What that time counts for is inferred: for
//! each scope it is the least time between two notifications in that scope, and a scope does not
//! explain what was seen when a mark came later than that after the last notification in its
//! scope, and was not told of.

use std::collections::HashMap;
use std::net::IpAddr;

use midwire_trace::Kind;
use midwire_trace::packet::opcode;
use serde::{Deserialize, Serialize};

use super::performance::Spread;
use super::{Finding, Observed, Rule, Settings};
use crate::text::span;

/// What the limit on notifications counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Each queue pair.
    Qp,
    /// Each address that is notified.
    Ip,
    /// The NIC's port.
    Port,
}

impl Scope {
    const ALL: [Self; 3] = [Self::Qp, Self::Ip, Self::Port];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Qp => "QP",
            Scope::Ip => "IP",
            Scope::Port => "port",
        }
    }
}

/// What one NIC's port did about marks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationPoint {
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Marked packets that went to it.
    pub marked: u64,
    /// Notifications that it sent.
    pub notifications: u64,
    /// Of these, the ones that went with a NAK and no mark.
    pub with_nak: u64,
    /// From the first mark of a queue pair to the notification of it, ns, as seen.
    pub delay: Option<Spread>,
    /// Between the notifications in the scope of the limit, ns.
    pub interval: Option<Spread>,
    /// What the limit may count for. All three: nothing in the capture tells them apart.
    pub scopes: Vec<Scope>,
    /// Marks that were not told of, because the limit did not allow it.
    pub held_back: u64,
}

/// A marked packet, or a notification.
#[derive(Clone, Copy)]
struct Signal {
    time: u64,
    number: u64,
    /// The flow of the notification: from the notification point to one queue pair.
    flow: usize,
}

impl Signal {
    fn of(flow: usize, p: &Observed) -> Self {
        Self {
            time: p.time.0,
            number: p.number,
            flow,
        }
    }
}

/// Where a flow comes from and goes to.
#[derive(Clone, Copy)]
struct Ends {
    src: IpAddr,
    dst: IpAddr,
    src_mac: [u8; 6],
}

#[derive(Default)]
pub(super) struct Notifications {
    ends: Vec<Option<Ends>>,
    marks: Vec<Signal>,
    notifications: Vec<Signal>,
    naks: HashMap<usize, Vec<u64>>,
}

/// A NAK and a notification this close belong together.
const WITH_NAK_NS: u64 = 10_000;

impl Notifications {
    fn ends(&mut self, flow: usize, p: &Observed) {
        if self.ends.len() <= flow {
            self.ends.resize(flow + 1, None);
        }
        self.ends[flow].get_or_insert(Ends {
            src: p.net.src,
            dst: p.net.dst,
            src_mac: p.src_mac,
        });
    }

    /// Reads a packet that its sender sends.
    pub fn sent(&mut self, flow: usize, p: &Observed) {
        self.ends(flow, p);
        if p.roce.bth.opcode == opcode::CNP {
            self.notifications.push(Signal::of(flow, p));
        } else if p.roce.kind() == Kind::Nak {
            self.naks.entry(flow).or_default().push(p.time.0);
        }
    }

    /// Reads a packet that its receiver takes.
    pub fn taken(&mut self, flow: usize, p: &Observed) {
        self.ends(flow, p);
        if p.net.is_marked() && p.roce.bth.opcode != opcode::CNP {
            self.marks.push(Signal::of(flow, p));
        }
    }

    /// `peers`: the flow that goes the other way, of each flow.
    pub fn finish(
        mut self,
        peers: &[Option<usize>],
        settings: &Settings,
    ) -> (Vec<NotificationPoint>, Vec<Finding>) {
        self.marks.sort_unstable_by_key(|mark| mark.number);
        // Marks of a flow that nothing answers can't be told from those that are told of.
        self.marks.retain_mut(|mark| match peers[mark.flow] {
            Some(peer) => {
                mark.flow = peer;
                true
            }
            None => false,
        });
        let mut ports: Vec<[u8; 6]> = Vec::new();
        for signal in self.marks.iter().chain(&self.notifications) {
            if let Some(ends) = self.ends[signal.flow]
                && !ports.contains(&ends.src_mac)
            {
                ports.push(ends.src_mac);
            }
        }
        let mut findings = Vec::new();
        let points = ports
            .into_iter()
            .map(|port| self.point(port, settings, &mut findings))
            .collect();
        (points, findings)
    }

    fn point(
        &self,
        port: [u8; 6],
        settings: &Settings,
        findings: &mut Vec<Finding>,
    ) -> NotificationPoint {
        let here =
            |signal: &&Signal| self.ends[signal.flow].is_some_and(|ends| ends.src_mac == port);
        let marks: Vec<Signal> = self.marks.iter().filter(here).copied().collect();
        let told: Vec<Signal> = self.notifications.iter().filter(here).copied().collect();
        let mut find = |rule, packets: Vec<u64>, what| {
            findings.push(Finding {
                rule,
                connection: None,
                packets,
                what,
            });
        };
        let mut addresses: Vec<IpAddr> = marks
            .iter()
            .chain(&told)
            .filter_map(|signal| Some(self.ends[signal.flow]?.src))
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        let whose = addresses
            .first()
            .map_or_else(String::new, IpAddr::to_string);

        let (with_nak, unfounded) = self.without_mark(&marks, &told);
        if let Some(first) = unfounded.first() {
            let what = format!(
                "{whose} notifies of congestion though no marked packet came by: {} times",
                unfounded.len()
            );
            find(Rule::NotificationUnfounded, vec![*first], what);
        }
        let mut point = NotificationPoint {
            addresses,
            marked: marks.len() as u64,
            notifications: told.len() as u64,
            with_nak,
            delay: None,
            interval: None,
            scopes: Vec::new(),
            held_back: 0,
        };
        let (Some(first), Some(last)) = (marks.first(), marks.last()) else {
            return point;
        };
        let asked = settings.notification_of(&point.addresses);
        if told.is_empty() {
            if asked.notifies == Some(false) {
                return point;
            }
            let what = format!("{whose} tells of none of {} marked packets", marks.len());
            find(
                Rule::NotificationMissing,
                vec![first.number, last.number],
                what,
            );
            return point;
        }

        point.delay = Spread::of(delays(&marks, &told));
        let delay = point.delay.map_or(0, |delay| delay.least_ns);
        let judged = |scope| {
            let intervals = self.intervals(scope, &told);
            let least = intervals.iter().copied().min()?;
            let missed = self.missed(scope, least + least / 20, delay, &marks, &told);
            Some((scope, intervals, missed.len()))
        };
        let judged: Vec<_> = Scope::ALL.into_iter().filter_map(judged).collect();
        let fewest = judged.iter().map(|(.., missed)| *missed).min();
        // A mark at the very end of an interval can go either way.
        let fits =
            |missed: usize| fewest.is_some_and(|fewest| missed <= fewest + marks.len() / 100);
        point.scopes = judged
            .iter()
            .filter(|(.., missed)| fits(*missed))
            .map(|(scope, ..)| *scope)
            .collect();
        let best = judged.iter().find(|(.., missed)| fits(*missed));
        point.interval = best.and_then(|(_, intervals, _)| Spread::of(intervals.iter().copied()));
        let on_marks = (told.len() as u64).saturating_sub(with_nak + unfounded.len() as u64);
        point.held_back = point.marked.saturating_sub(on_marks);

        if let Some(asked) = asked.notification_scope
            && !point.scopes.is_empty()
            && !point.scopes.contains(&asked)
        {
            let scope = point.scopes[0].name();
            let what = format!(
                "{whose} limits notifications per {scope}, where {} was asked for",
                asked.name()
            );
            find(Rule::NotificationScope, vec![told[0].number], what);
        }
        if let Some(asked) = asked.notification_interval_ns {
            let scope = point.scopes.first().copied().unwrap_or(Scope::Qp);
            let least = point
                .interval
                .map_or(u64::MAX, |interval| interval.least_ns);
            if least < asked - asked / 10 {
                let what = format!(
                    "{whose} notifies after {}, where {} was asked for",
                    span(least),
                    span(asked)
                );
                find(Rule::NotificationInterval, vec![told[0].number], what);
            }
            let missed = self.missed(scope, asked + asked / 10, delay, &marks, &told);
            if let Some(first) = missed.first().filter(|_| missed.len() > marks.len() / 100) {
                let what = format!(
                    "{whose} does not tell of {} marks that came more than {} after the last \
                     notification: it waits {}",
                    missed.len(),
                    span(asked),
                    span(least)
                );
                find(Rule::NotificationInterval, vec![*first], what);
            }
        }
        point
    }

    /// Notifications of a queue pair that no mark came before since the last one: how many went
    /// with a NAK, and the numbers of the others.
    fn without_mark(&self, marks: &[Signal], told: &[Signal]) -> (u64, Vec<u64>) {
        let mut latest_mark: HashMap<usize, u64> = HashMap::new();
        let mut with_nak = 0;
        let mut unfounded = Vec::new();
        let mut marks = marks.iter().peekable();
        for n in told {
            while let Some(mark) = marks.next_if(|mark| mark.time <= n.time) {
                latest_mark.insert(mark.flow, mark.time);
            }
            if latest_mark.remove(&n.flow).is_some() {
                continue;
            }
            let near = |nak: &u64| nak.abs_diff(n.time) <= WITH_NAK_NS;
            if self
                .naks
                .get(&n.flow)
                .is_some_and(|naks| naks.iter().any(near))
            {
                with_nak += 1;
            } else {
                unfounded.push(n.number);
            }
        }
        (with_nak, unfounded)
    }

    /// Two signals with the same key are of one scope.
    fn key(&self, scope: Scope, flow: usize) -> (Option<IpAddr>, usize) {
        match scope {
            Scope::Qp => (None, flow),
            Scope::Ip => (self.ends[flow].map(|ends| ends.dst), 0),
            Scope::Port => (None, 0),
        }
    }

    /// Times between the notifications of a scope.
    fn intervals(&self, scope: Scope, told: &[Signal]) -> Vec<u64> {
        let mut latest = HashMap::new();
        let mut intervals = Vec::new();
        for n in told {
            if let Some(before) = latest.insert(self.key(scope, n.flow), n.time) {
                intervals.push(n.time.saturating_sub(before));
            }
        }
        intervals
    }

    /// Marks that were not told of though the last notification in their scope was `interval`
    /// or more before. A notification takes `delay` from the mark.
    fn missed(
        &self,
        scope: Scope,
        interval: u64,
        delay: u64,
        marks: &[Signal],
        told: &[Signal],
    ) -> Vec<u64> {
        let mut in_scope: HashMap<_, Vec<u64>> = HashMap::new();
        let mut of_flow: HashMap<usize, Vec<u64>> = HashMap::new();
        for n in told {
            let key = self.key(scope, n.flow);
            in_scope.entry(key).or_default().push(n.time);
            of_flow.entry(n.flow).or_default().push(n.time);
        }
        let slack = delay.max(1_000);
        // Behind the last notification the capture may have ended.
        let end = told.last().map_or(0, |n| n.time);
        let missed = |mark: &&Signal| {
            let due = mark.time + delay;
            let scope = in_scope.get(&self.key(scope, mark.flow));
            let before = scope.and_then(|times| {
                let at = times.partition_point(|&time| time <= due + slack);
                times.get(at.checked_sub(1)?)
            });
            let allowed = before.is_none_or(|&before| due.saturating_sub(before) >= interval);
            let answered = of_flow.get(&mark.flow).is_some_and(|times| {
                let at = times.partition_point(|&time| time + slack < due);
                times.get(at).is_some_and(|&time| time <= due + slack)
            });
            allowed && !answered && due + slack <= end
        };
        marks
            .iter()
            .filter(missed)
            .map(|mark| mark.number)
            .collect()
    }
}

/// From the first mark of each queue pair to its first notification.
fn delays(marks: &[Signal], told: &[Signal]) -> Vec<u64> {
    let mut first: HashMap<usize, u64> = HashMap::new();
    for mark in marks {
        first.entry(mark.flow).or_insert(mark.time);
    }
    told.iter()
        .filter_map(|n| n.time.checked_sub(first.remove(&n.flow)?))
        .collect()
}
