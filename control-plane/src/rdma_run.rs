// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The RDMA traffic of a plan, carried out by NICs of any kind: what becomes of it is recorded in
//! one way.

use std::path::Path;

use midwire_endpoints::Port;
use midwire_endpoints::agent::protocol::Open;
use midwire_endpoints::agent::{Agents, Session};
use midwire_endpoints::rnic::{RdmaNics, RdmaReport};

use crate::plan::{AgentEndpoint, Plan, RdmaTraffic, Traffic};
use crate::run::{Step, said};
use crate::run_file::{NicRecord, TrafficRecord};
use crate::text::time;
use crate::verdict::counted;

/// What agents of NICs are to do.
pub(crate) fn session(plan: &Plan, nics: [Open; 2], seed: u64) -> Session {
    let limit = plan.timeouts.traffic.as_nanos();
    Session::new(plan.transfers(), nics, seed, limit)
}

/// Starts the agents of real hosts.
pub(crate) fn agents(
    plan: &Plan,
    hosts: [&AgentEndpoint; 2],
    seed: u64,
    directory: &Path,
) -> Step<Agents> {
    let session = session(plan, hosts.map(AgentEndpoint::nic), seed);
    let [a, b] = hosts.map(AgentEndpoint::reach);
    Agents::start(directory, [&a, &b], session).map_err(said)
}

/// What became of the RDMA traffic of a plan, which has none else.
pub(crate) fn records(plan: &Plan, nics: &dyn RdmaNics) -> Vec<TrafficRecord> {
    let entries = plan.traffic.iter().enumerate();
    let record = |(index, traffic): (usize, &Traffic)| match traffic {
        Traffic::Rdma(rdma) => Some(record_of(index, rdma, &nics.report(index)?)),
        _ => None,
    };
    entries.filter_map(record).collect()
}

/// What the NICs at both ports have counted.
pub(crate) fn counters(nics: &dyn RdmaNics) -> Vec<NicRecord> {
    let record = |endpoint| NicRecord {
        endpoint,
        counters: nics.counters(endpoint),
    };
    Port::ALL.map(record).into()
}

fn record_of(index: usize, rdma: &RdmaTraffic, report: &RdmaReport) -> TrafficRecord {
    let mut summary = counted(report.messages as usize, "message");
    if let Some(duration) = report.duration_ns {
        summary += &format!(", {} bytes in {}", report.bytes, time(duration));
    }
    if let Some(goodput) = report.goodput_bps {
        summary += &format!(", {:.3} Gb/s", goodput as f64 / 1e9);
    }
    if let Some(times) = report.completion_times {
        summary += &format!(
            ", a message takes {} (median) to {}",
            time(times.p50_ns),
            time(times.max_ns)
        );
    }
    summary += match (report.completed, report.wrong_bytes) {
        (true, _) => ", every byte right",
        (false, 0) => "",
        (false, _) => ", WRONG BYTES",
    };
    for (number, qp) in report.qps.iter().enumerate().take(3) {
        if let Some(error) = &qp.error {
            summary += &format!(", queue pair {number}: {error}");
        }
    }
    TrafficRecord {
        number: u32::try_from(index + 1).unwrap_or(u32::MAX),
        what: format!(
            "rdma {} {} to {}, {} × {} × {}{}",
            rdma.verb.as_str(),
            rdma.from,
            rdma.to,
            counted(rdma.qps as usize, "queue pair"),
            counted(rdma.messages as usize, "message"),
            rdma.size,
            if rdma.together { ", together" } else { "" }
        ),
        completed: report.completed,
        summary,
        details: serde_json::to_value(report).unwrap_or_default(),
    }
}
