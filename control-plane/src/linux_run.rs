// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a plan has Linux hosts in virtual time do, and what became of it.

use std::path::Path;

use midwire_endpoints::agent::protocol::Open;
use midwire_endpoints::linux::{Kind, Limits, Pair, Task};
use midwire_endpoints::rnic::NANOSECOND;
use midwire_endpoints::traffic::{CommandReport, Direction};
use midwire_endpoints::{Port, route};

use crate::plan::{Endpoint, LinuxEndpoint, LinuxPlace, Plan, TcpTraffic, Traffic};
use crate::rdma_run;
use crate::run::{Step, command_record, said, tcp_what};
use crate::run_file::{NicRecord, TrafficRecord};
use crate::text::time;

/// Starts the hosts of a plan for a run in this directory.
pub(crate) fn start(
    plan: &Plan,
    hosts: [&LinuxEndpoint; 2],
    place: LinuxPlace<'_>,
    directory: &Path,
) -> Step<Pair> {
    let [a, b] = hosts;
    let configs = [
        a.config(Port::A, b, place).map_err(said)?,
        b.config(Port::B, a, place).map_err(said)?,
    ];
    let entries = plan.traffic.iter();
    let tasks = entries.flat_map(|t| tasks(t, hosts, place.seed)).collect();
    let limits = Limits {
        traffic: plan.timeouts.traffic.as_nanos().saturating_mul(NANOSECOND),
        quiet: plan.timeouts.quiet.as_nanos().saturating_mul(NANOSECOND),
        until: place.until_ns.map(|ns| ns.saturating_mul(NANOSECOND)),
    };
    let mut pair = Pair::start(directory, configs, tasks, limits).map_err(said)?;
    if place.sends_rdma {
        let wanted = hosts.map(|host| Open {
            device: None,
            addresses: host.address.iter().map(|cidr| cidr.address).collect(),
            setup: Vec::new(),
        });
        let session = rdma_run::session(plan, wanted, place.seed);
        pair.prepare(session).map_err(said)?;
    }
    Ok(pair)
}

/// The commands of an entry of the traffic.
fn tasks(traffic: &Traffic, hosts: [&LinuxEndpoint; 2], seed: u64) -> Vec<Task> {
    match traffic {
        Traffic::Rdma(_) => Vec::new(),
        Traffic::Command(command) => (command.on.port().into_iter())
            .map(|on| Task {
                on,
                run: command.run.clone(),
                kind: match command.background {
                    true => Kind::Background,
                    false => Kind::Foreground,
                },
            })
            .collect(),
        Traffic::Tcp(tcp) => {
            let [a, b] = hosts;
            let (from, to) = match tcp.from {
                Port::A => (a, b),
                Port::B => (b, a),
            };
            let (_, remote) = route(&from.address, &to.address).unzip();
            let address = remote.map_or(String::new(), |cidr| cidr.address.to_string());
            let task = |on, verb, kind| Task {
                on,
                run: tcp_command(verb, &address, tcp, seed),
                kind,
            };
            vec![
                task(tcp.to, "listen", Kind::Listener),
                task(tcp.from, "connect", Kind::Foreground),
            ]
        }
    }
}

/// As hosts/tcp.c has it.
fn tcp_command(verb: &str, address: &str, tcp: &TcpTraffic, seed: u64) -> String {
    let direction = match tcp.direction {
        Direction::Send => "send",
        Direction::Receive => "receive",
        Direction::Both => "both",
    };
    format!(
        "midwire-tcp {verb} {address} {} {} {} {} {direction} '{}' {} {} {seed}",
        tcp.port,
        tcp.source_port.unwrap_or(0),
        tcp.connections,
        tcp.bytes.0,
        tcp.congestion_control.as_deref().unwrap_or_default(),
        u8::from(tcp.no_delay),
        tcp.write_size.0,
    )
}

/// What became of the traffic; nothing of entries that did not begin.
pub(crate) fn records(plan: &Plan, pair: &Pair, directory: &Path) -> Step<Vec<TrafficRecord>> {
    if let Some(session) = pair.session() {
        return Ok(rdma_run::records(plan, session));
    }
    let mut reports = pair.reports(directory).into_iter();
    let mut records = Vec::new();
    for (number, traffic) in (1..).zip(&plan.traffic) {
        match traffic {
            Traffic::Rdma(_) => {}
            Traffic::Command(_) => {
                if let Some(report) = reports.next().flatten() {
                    records.push(command_record(number, &report)?);
                }
            }
            Traffic::Tcp(tcp) => {
                let ends = [reports.next().flatten(), reports.next().flatten()];
                if let [Some(listener), Some(opener)] = ends {
                    records.push(tcp_ends(number, tcp, &listener, &opener)?);
                }
            }
        }
    }
    Ok(records)
}

/// What Soft-RoCE has counted in the hosts that have it.
pub(crate) fn nics(plan: &Plan, pair: &Pair, directory: &Path) -> Vec<NicRecord> {
    if let Some(session) = pair.session() {
        return rdma_run::counters(session);
    }
    let ends = plan.endpoints.both().into_iter();
    ends.filter(|(_, endpoint)| matches!(endpoint, Endpoint::Linux(host) if host.rdma))
        .map(|(endpoint, _)| NicRecord {
            endpoint,
            counters: Pair::rdma_counters(directory, endpoint),
        })
        .collect()
}

/// How long an end has received, by its own clock: `connection 0: 2000 bytes in 0.017016970 s`, a
/// line each.
fn receiving(stdout: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(stdout).ok()?;
    let line = |line: &str| {
        let (whole, ns) = line
            .strip_suffix(" s")?
            .rsplit_once(' ')?
            .1
            .split_once('.')?;
        Some(whole.parse::<u64>().ok()? * 1_000_000_000 + ns.parse::<u64>().ok()?)
    };
    text.lines().filter_map(line).max()
}

fn tcp_ends(
    number: u32,
    tcp: &TcpTraffic,
    listener: &CommandReport,
    opener: &CommandReport,
) -> Step<TrafficRecord> {
    let ends = [listener, opener];
    let completed = ends.iter().all(|report| report.completed());
    let ways = if tcp.direction == Direction::Both {
        2
    } else {
        1
    };
    let bytes = tcp.bytes.0 * u64::from(tcp.connections) * ways;
    let last_words = |report: &&CommandReport| {
        let text = std::fs::read_to_string(&report.stderr).unwrap_or_default();
        text.lines().last().map(|line| format!(", {line}"))
    };
    // Who only sends is done when the kernel has the bytes.
    let took = ends.iter().filter_map(|end| receiving(&end.stdout)).max();
    let mut summary = match completed {
        true => {
            let took = time(took.unwrap_or_default());
            format!("{bytes} bytes arrived in {took}, every one right")
        }
        false => "not every byte arrived and was right".to_owned(),
    };
    summary.extend(ends.iter().filter_map(last_words));
    Ok(TrafficRecord {
        number,
        what: tcp_what(tcp),
        completed,
        summary,
        details: serde_json::to_value(ends).map_err(said)?,
    })
}
