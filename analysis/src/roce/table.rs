// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The analysis as a person reads it.

use super::{
    Analysis, Cite, CounterCheck, Found, NotificationPoint, Performance, Recovery, Spread,
};
use crate::text::{Align::Left, Align::Right, Table, span};

/// Rows that a table lists; the rest is counted.
const LISTED: usize = 40;

/// The analysis as tables.
pub fn tables(analysis: &Analysis) -> Vec<Table> {
    let tables = [
        connections(analysis),
        recoveries(&analysis.recoveries),
        performance(&analysis.performance),
        notifications(&analysis.notifications),
        counters(&analysis.counters),
        findings(analysis),
    ];
    let mut tables = Vec::from(tables);
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

fn connections(analysis: &Analysis) -> Table {
    let rows: Vec<_> = analysis
        .connections
        .iter()
        .take(LISTED)
        .map(|c| {
            let verbs: Vec<String> = c.verbs.keys().map(ToString::to_string).collect();
            let counts = &c.counts;
            vec![
                c.number.to_string(),
                c.requester.to_string(),
                c.responder.to_string(),
                verbs.join(", "),
                c.first_psn.to_string(),
                counts.requests.to_string(),
                counts.responses.to_string(),
                counts.again.to_string(),
                (counts.sequence_naks + counts.not_ready + c.refusals.len() as u64).to_string(),
                counts.timeouts.to_string(),
                or_dash(c.responder_round_trip_ns, span),
            ]
        })
        .collect();
    let heading = vec![
        ("connection", Right),
        ("requester", Left),
        ("responder", Left),
        ("verbs", Left),
        ("first PSN", Right),
        ("requests", Right),
        ("responses", Right),
        ("again", Right),
        ("NAKs", Right),
        ("timeouts", Right),
        ("round trip", Right),
    ];
    Table {
        title: "Connections",
        heading,
        rows,
        more: analysis.connections.len().saturating_sub(LISTED),
    }
}

fn recoveries(all: &[Recovery]) -> Table {
    let packet = |cite: Option<Cite>| or_dash(cite, |cite| cite.packet.to_string());
    let rows: Vec<_> = all
        .iter()
        .take(LISTED)
        .map(|r| {
            let time = match r.found {
                Found::Timeout => or_dash(r.waited_ns, span),
                _ => or_dash(r.generation_ns, span),
            };
            let rules: Vec<String> = r.broken.iter().map(|rule| rule.name()).collect();
            vec![
                r.connection.to_string(),
                r.verb.to_string(),
                r.psn.to_string(),
                format!("{:+}", r.position),
                r.lost.to_string(),
                match r.retry {
                    Some(n) if n > 1 => format!("{} {n}", r.found),
                    _ => r.found.to_string(),
                },
                packet(r.out_of_order),
                packet(r.nak),
                time,
                packet(r.again),
                or_dash(r.from, |from| format!("{from:+}")),
                r.requests.to_string(),
                or_dash(r.reaction_ns, span),
                match rules.as_slice() {
                    [] if r.again.is_none() => "open".to_owned(),
                    [] => "yes".to_owned(),
                    rules => format!("NO: {}", rules.join(", ")),
                },
            ]
        })
        .collect();
    let heading = vec![
        ("connection", Right),
        ("verb", Left),
        ("PSN", Right),
        ("", Right),
        ("lost", Left),
        ("found by", Left),
        ("too early", Right),
        ("NAK", Right),
        ("after", Right),
        ("again", Right),
        ("from", Right),
        ("sent", Right),
        ("after", Right),
        ("as specified", Left),
    ];
    Table {
        title: "Losses",
        heading,
        rows,
        more: all.len().saturating_sub(LISTED),
    }
}

/// From the least to the most, the median between.
fn spread(spread: Option<Spread>) -> [String; 3] {
    match spread {
        Some(s) => [s.least_ns, s.median_ns, s.most_ns].map(span),
        None => [(); 3].map(|()| "–".to_owned()),
    }
}

fn performance(all: &[Performance]) -> Table {
    let mut rows = Vec::new();
    for p in all {
        let found: Vec<String> = p
            .found
            .iter()
            .map(|(way, n)| format!("{way} {n}"))
            .collect();
        let mut what = format!("{}: {}", p.verb, found.join(", "));
        let mut row = |name: &str, times: Option<Spread>, without: Option<Spread>| {
            if times.is_some() {
                let head = [std::mem::take(&mut what), name.to_owned()];
                rows.push([&head[..], &spread(times), &spread(without)].concat());
            }
        };
        row(
            "NAK generation",
            p.generation,
            p.generation_without_round_trip,
        );
        row("NAK reaction", p.reaction, p.reaction_without_round_trip);
        row("timeout", p.timeouts, None);
        if !what.is_empty() {
            rows.push([&[what][..], &[(); 7].map(|()| String::new())].concat());
        }
    }
    let heading = vec![
        ("verb", Left),
        ("time", Left),
        ("least", Right),
        ("median", Right),
        ("most", Right),
        ("less round trip: least", Right),
        ("median", Right),
        ("most", Right),
    ];
    Table {
        title: "Retransmission",
        heading,
        rows,
        more: 0,
    }
}

fn notifications(all: &[NotificationPoint]) -> Table {
    let rows: Vec<_> = all
        .iter()
        .map(|n| {
            let addresses: Vec<String> = n.addresses.iter().map(ToString::to_string).collect();
            let scopes: Vec<&str> = n.scopes.iter().map(|scope| scope.name()).collect();
            vec![
                addresses.join(", "),
                n.marked.to_string(),
                n.notifications.to_string(),
                n.with_nak.to_string(),
                or_dash(n.delay, |delay| span(delay.least_ns)),
                or_dash(n.interval, |interval| span(interval.least_ns)),
                or_dash(n.interval, |interval| span(interval.median_ns)),
                match scopes.as_slice() {
                    [] => "–".to_owned(),
                    _ if n.held_back == 0 => "no limit seen".to_owned(),
                    scopes => format!("per {}", scopes.join(" or ")),
                },
            ]
        })
        .collect();
    let heading = vec![
        ("notification point", Left),
        ("marked", Right),
        ("CNPs", Right),
        ("with a NAK", Right),
        ("delay", Right),
        ("least interval", Right),
        ("median", Right),
        ("limit", Left),
    ];
    Table {
        title: "Congestion notifications",
        heading,
        rows,
        more: 0,
    }
}

fn counters(all: &[CounterCheck]) -> Table {
    let rows = all
        .iter()
        .filter(|check| check.says > 0 || check.least > 0)
        .map(|check| {
            vec![
                check.nic.clone(),
                check.counter.clone(),
                check.says.to_string(),
                check.allowed(),
                if check.agrees() { "yes" } else { "NO" }.to_owned(),
            ]
        })
        .collect();
    Table {
        title: "Counters against the capture",
        heading: vec![
            ("NIC", Left),
            ("counter", Left),
            ("says", Right),
            ("in the capture", Right),
            ("agrees", Left),
        ],
        rows,
        more: 0,
    }
}

fn findings(analysis: &Analysis) -> Table {
    let rows: Vec<_> = analysis
        .findings
        .iter()
        .take(LISTED)
        .map(|f| {
            let packets: Vec<String> = f.packets.iter().map(ToString::to_string).collect();
            vec![
                or_dash(f.connection, |c| c.to_string()),
                f.rule.name(),
                packets.join(", "),
                f.what.clone(),
            ]
        })
        .collect();
    let heading = vec![
        ("connection", Right),
        ("rule", Left),
        ("packets", Left),
        ("found", Left),
    ];
    Table {
        title: "Findings",
        heading,
        rows,
        more: analysis.findings.len().saturating_sub(LISTED),
    }
}
