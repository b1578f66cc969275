// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the analysis of TCP says of a run, in the run's own terms, and the page for people.

use std::collections::BTreeMap;

use midwire_analysis::report::{self, Check, EventRow, Picture, Report};
use midwire_analysis::roce;
use midwire_analysis::tcp::{self, Retransmission, TcpPacket};
use midwire_analysis::view;
use midwire_trace::Capture;
use midwire_trace::inside::Moment;

use crate::compile::events_at;
use crate::run_file::{Recorded, RunFile};

/// The TCP connections of a capture.
#[derive(Debug, Default)]
pub(crate) struct TcpView {
    connections: Vec<(tcp::Connection, Vec<TcpPacket>)>,
    /// What the kernels of hosts noted of each.
    inside: BTreeMap<u16, Vec<Moment>>,
    start_ns: u64,
}

impl TcpView {
    pub fn read(capture: &Capture, recorded: &Recorded, moments: Vec<Moment>) -> TcpView {
        let mut inside: BTreeMap<u16, Vec<Moment>> = BTreeMap::new();
        for moment in moments {
            if let Some(connection) = moment.connection {
                inside.entry(connection).or_default().push(moment);
            }
        }
        let event = |record: &midwire_trace::Record| events_at(recorded, record).first().copied();
        let view = view::read(capture, event);
        TcpView {
            inside,
            start_ns: view.start_ns,
            connections: view
                .connections
                .into_iter()
                .map(|(number, packets)| (tcp::analyze(number, &packets), packets))
                .collect(),
        }
    }

    pub fn retransmissions(&self) -> Vec<Retransmission> {
        self.connections
            .iter()
            .flat_map(|(connection, _)| connection.retransmissions.iter().cloned())
            .collect()
    }
}

/// The page.
pub(crate) fn html(run: &RunFile, tcp: &TcpView) -> String {
    let (recorded, findings) = (&run.recorded, &run.findings);
    let plan = &recorded.plan.parsed;
    let mut facts = vec![
        ("Started", recorded.started.clone()),
        ("Ended", recorded.ended.clone()),
        ("Host", recorded.host.clone()),
        ("midwire", recorded.midwire.clone()),
        ("Seed", recorded.seed.to_string()),
    ];
    if recorded.repeat.1 > 1 {
        facts.push((
            "Repetition",
            format!("{} of {}", recorded.repeat.0, recorded.repeat.1),
        ));
    }
    if let Some(card) = &recorded.card {
        facts.push((
            "Card",
            format!("{}, {} bits", card.place, card.parameters["data_width"]),
        ));
    }
    for entry in &recorded.traffic {
        facts.push(("Traffic", format!("{}: {}", entry.what, entry.summary)));
    }
    for inside in &recorded.inside {
        facts.push(("Inside", inside.to_string()));
    }
    let reasons = run.verdict.reasons.join("; ");
    let title = |number: u16| {
        let known = recorded
            .connections
            .iter()
            .find(|c| c.number == u32::from(number));
        known.map_or_else(String::new, |connection| connection.text.clone())
    };
    report::html(&Report {
        name: run.name.clone(),
        description: plan.description.clone(),
        verdict: format!("{}: {reasons}", run.verdict.outcome.headline()),
        passed: run.verdict.exit_code == 0,
        facts: facts
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        events: findings
            .events
            .iter()
            .map(|event| EventRow {
                number: event.number,
                asked: event.asked.clone(),
                fired: event.fired,
                wanted: event.wanted,
                measured: event.measured.clone(),
                passed: event.done,
            })
            .collect(),
        expectations: findings
            .expectations
            .iter()
            .map(|e| Check {
                what: e.expected.clone(),
                found: e.found.clone(),
                holds: e.met,
            })
            .collect(),
        integrity: findings.integrity.checks.clone(),
        tables: findings
            .roce
            .as_ref()
            .map_or_else(Vec::new, |read| roce::tables(&read.analysis)),
        pictures: tcp
            .connections
            .iter()
            .map(|(connection, packets)| Picture {
                title: title(connection.connection),
                connection,
                packets,
                inside: (tcp.inside.get(&connection.connection)).map_or(&[], Vec::as_slice),
            })
            .collect(),
        start_ns: tcp.start_ns,
        plan: recorded.plan.text.clone(),
    })
}
