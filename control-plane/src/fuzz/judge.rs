// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run says of the devices: how odd it is, and what counts as a finding. All of it from what
//! was captured, counted and measured; what is wrong with a model NIC is not looked at.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use midwire_analysis::roce::{self, Rule};
use midwire_endpoints::rnic::RdmaReport;
use midwire_endpoints::{Port, rnic};
use midwire_trace::Capture;
use midwire_trace::units::line_bytes;
use serde::{Deserialize, Serialize};

use super::case::Space;
use crate::plan::{Endpoint, Numbers, RdmaTraffic};
use crate::run_file::{NicRecord, RunFile, TrafficRecord, files};

/// What shows that something is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sign {
    /// Queue pairs that no event touched took far longer than without events.
    Innocent,
    /// A counter of a NIC that has to stay 0 did not.
    Counter {
        /// The NIC.
        endpoint: Port,
        /// Its counter.
        name: String,
    },
    /// A rule of the specification was not kept.
    Rule(Rule),
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sign::Innocent => f.write_str("innocent queue pairs suffer"),
            Sign::Counter { endpoint, name } => write!(f, "{name} of {endpoint} is not 0"),
            Sign::Rule(rule) => write!(f, "rule {}", rule.name()),
        }
    }
}

/// What a run comes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// How odd it is, in thousandths.
    pub score: u64,
    /// What shows that something is wrong.
    pub signs: BTreeSet<Sign>,
    /// Events of the variant that did not fire, by their places.
    pub unfired: Vec<usize>,
    /// Queue pairs that no event touched.
    pub innocent: Vec<u32>,
    /// What one of their messages took at most, ns; nothing when one failed or there are none.
    pub innocent_ns: Option<u64>,
    /// What it may take: more than that is a finding, ns. Known when it had to be looked up.
    pub allowed_ns: Option<u64>,
}

/// What messages took, and what they need.
struct Times<'a> {
    report: &'a RdmaReport,
    needed_ns: u64,
}

/// A queue pair that failed counts as if its message had taken this long.
const FAILED_NS: u64 = 1_000_000_000;

impl Times<'_> {
    /// What the slowest message of a queue pair took; nothing when one failed.
    fn slowest(&self, qp: u32) -> Option<u64> {
        let qp = self.report.qps.get(qp as usize)?;
        let times = qp.completion_times.filter(|_| qp.error.is_none())?;
        Some(times.max_ns)
    }

    /// How many times longer than needed, as a power of two.
    fn excess(&self, qp: u32) -> f64 {
        let slowest = self.slowest(qp).unwrap_or(FAILED_NS);
        (slowest as f64 / self.needed_ns as f64).log2().max(0.0)
    }
}

/// What became of the messages of a run.
pub(super) fn messages(run: &RunFile) -> Result<RdmaReport, String> {
    let traffic = run.recorded.traffic.first();
    traffic
        .and_then(TrafficRecord::rdma)
        .ok_or_else(|| "it had no RDMA traffic".to_owned())
}

/// Reads what a run of a variant has left.
pub(super) fn judge(space: &Space, run: &RunFile, directory: &Path) -> Result<Judgement, String> {
    let report = messages(run)?;
    let asked = match run.recorded.plan.parsed.traffic.as_slice() {
        [crate::plan::Traffic::Rdma(rdma)] => rdma,
        _ => return Err("it had no RDMA traffic".to_owned()),
    };
    let capture = Capture::open(directory.join(files::CAPTURE)).map_err(|e| e.to_string())?;
    let touched = roce::touched(&capture);
    let is_innocent = |qp: &rnic::QpReport| {
        let ends = [(qp.source, qp.qp), (qp.destination, qp.peer_qp)];
        !ends.iter().any(|end| touched.contains(end))
    };
    let innocent: Vec<u32> = (0..)
        .zip(&report.qps)
        .filter(|(_, qp)| is_innocent(qp))
        .map(|(number, _)| number)
        .collect();
    let findings = (run.findings.roce.iter()).flat_map(|read| &read.analysis.findings);
    let rules: BTreeSet<Rule> = findings.map(|finding| finding.rule).collect();
    let times = Times {
        report: &report,
        needed_ns: needed_ns(space, asked),
    };
    let limits = &space.target.findings;
    let counters = (run.recorded.nics.iter()).flat_map(|nic| {
        let odd = |name: &&String| nic.counters.get(*name).is_some_and(|value| *value != 0);
        let counter = |name: &String| Sign::Counter {
            endpoint: nic.endpoint,
            name: name.clone(),
        };
        limits.counters.iter().filter(odd).map(counter)
    });
    let broken = rules.iter().filter(|_| limits.rules);
    let base = space.base.events.len();
    Ok(Judgement {
        score: score(space, &run.recorded.nics, &times, &innocent, rules.len()),
        signs: counters.chain(broken.copied().map(Sign::Rule)).collect(),
        unfired: (run.findings.events.iter().skip(base).enumerate())
            .filter(|(_, event)| !event.done)
            .map(|(place, _)| place)
            .collect(),
        innocent_ns: (innocent.iter().map(|qp| times.slowest(*qp)))
            .collect::<Option<Vec<u64>>>()
            .and_then(|times| times.into_iter().max()),
        innocent,
        allowed_ns: None,
    })
}

/// What any message takes at most when nothing is in its way but those of all queue pairs that may
/// be under way with it, ns.
fn needed_ns(space: &Space, asked: &RdmaTraffic) -> u64 {
    // Headers of Ethernet, IPv4, UDP and BTH with RETH or AETH, and ICRC.
    const HEADERS: usize = 14 + 20 + 8 + 12 + 16 + 4;
    /// What the NICs take for what they do.
    const REACTIONS_NS: u64 = 10_000;
    let mtu = u64::from(asked.mtu);
    let packets = asked.size.0.div_ceil(mtu).max(1);
    let packet = line_bytes(HEADERS + mtu.min(asked.size.0) as usize);
    let under_way = u64::from(asked.qps) * u64::from(asked.tx_depth.min(asked.messages));
    let byte_ps = space.base.byte_ps();
    let line_ps = packets
        .saturating_mul(packet)
        .saturating_mul(under_way)
        .saturating_mul(byte_ps);
    let delay = |end: &Endpoint| match end {
        Endpoint::Rnic(nic) => nic.delay.as_nanos(),
        _ => 0,
    };
    let delays = delay(&space.base.endpoints.a) + delay(&space.base.endpoints.b);
    line_ps / 1000 + 2 * delays + REACTIONS_NS
}

/// Counters that only say how much went by.
fn is_volume(name: &str) -> bool {
    ["_packets_phy", "_bytes_phy", "_requests"]
        .iter()
        .any(|end| name.ends_with(end))
}

fn score(
    space: &Space,
    nics: &[NicRecord],
    times: &Times<'_>,
    innocent: &[u32],
    rules: usize,
) -> u64 {
    let weights = &space.target.score;
    let counters: f64 = nics
        .iter()
        .flat_map(|nic| &nic.counters)
        .filter(|(name, _)| !is_volume(name))
        .map(|(_, value)| (1.0 + *value as f64).log2())
        .sum();
    let qps = times.report.qps.len();
    let completion: f64 = (0..qps as u32).map(|qp| times.excess(qp)).sum();
    let innocent = (innocent.iter().map(|qp| times.excess(*qp))).fold(0.0, f64::max);
    let score = weights.counters * counters
        + weights.completion * completion
        + weights.innocent * innocent
        + weights.rules * rules as f64;
    (score * 1000.0) as u64
}

impl Judgement {
    /// Whether innocent queue pairs took so long that it has to be looked up what they take
    /// without events.
    pub(super) fn suspects(&self, space: &Space, asked: &RdmaTraffic) -> bool {
        let limit = space.target.findings.innocent;
        let allowed = needed_ns(space, asked) as f64 * limit;
        let late = self
            .innocent_ns
            .is_none_or(|slowest| slowest as f64 > allowed);
        limit > 0.0 && !self.innocent.is_empty() && late
    }

    /// Judges innocent queue pairs by the same traffic without events.
    pub(super) fn compare(&mut self, space: &Space, undisturbed: &RdmaReport) {
        let needed_ns = 1;
        let times = Times {
            report: undisturbed,
            needed_ns,
        };
        let slowest = self.innocent.iter().map(|qp| times.slowest(*qp));
        // What fails without events is no neighbour's doing.
        let Some(slowest) = slowest.collect::<Option<Vec<u64>>>() else {
            return;
        };
        let slowest = slowest.into_iter().max().unwrap_or(0);
        let allowed = (slowest as f64 * space.target.findings.innocent) as u64;
        self.allowed_ns = Some(allowed.next_multiple_of(1000));
        if self
            .innocent_ns
            .is_none_or(|slowest| Some(slowest) > self.allowed_ns)
        {
            self.signs.insert(Sign::Innocent);
        }
    }

    /// The innocent queue pairs, as a plan names them.
    pub(super) fn innocent_numbers(&self) -> Option<Numbers> {
        Numbers::of(self.innocent.iter().map(|qp| u64::from(*qp)))
    }
}
