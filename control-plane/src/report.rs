// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the analysis of TCP says of a run, in the run's own terms, and the page for people.

use midwire_analysis::report::{self, EventRow, Picture, Report};
use midwire_analysis::tcp::{self, TcpPacket};
use midwire_analysis::view;
use midwire_trace::Capture;

use crate::compile::{direction, events_at};
use crate::run_file::{Cause, Check, Recorded, Retransmission, RunFile};

/// The TCP connections of a capture.
#[derive(Debug, Default)]
pub(crate) struct TcpView {
    connections: Vec<(tcp::Connection, Vec<TcpPacket>)>,
}

impl TcpView {
    pub fn read(capture: &Capture, recorded: &Recorded) -> TcpView {
        let event = |record: &midwire_trace::Record| {
            let lane = direction(record.lane);
            events_at(&recorded.positions, lane, record.slot?, record.iteration)
                .first()
                .copied()
        };
        let connections = view::read(capture, event).connections;
        TcpView {
            connections: connections
                .into_iter()
                .map(|(number, packets)| (tcp::analyze(number, &packets), packets))
                .collect(),
        }
    }

    pub fn retransmissions(&self) -> Vec<Retransmission> {
        self.connections
            .iter()
            .flat_map(|(connection, _)| {
                let number = connection.connection.into();
                connection
                    .retransmissions
                    .iter()
                    .map(move |r| retransmission(number, r))
            })
            .collect()
    }
}

fn retransmission(connection: u32, r: &tcp::Retransmission) -> Retransmission {
    Retransmission {
        connection,
        direction: direction(r.direction),
        packet: r.segment,
        byte: r.byte,
        bytes: r.bytes.into(),
        transmission: r.transmission,
        time_ns: r.time_ns,
        after_ns: r.after_ns,
        previous_lost: r.previous_lost,
        cause: match r.cause {
            tcp::Cause::Fast => Cause::Fast,
            tcp::Cause::Timeout => Cause::Timeout,
            tcp::Cause::AfterTimeout => Cause::AfterTimeout,
            tcp::Cause::TailProbe => Cause::TailProbe,
            tcp::Cause::Unknown => Cause::Unknown,
        },
        evidence: match r.duplicate_acks {
            0 => String::new(),
            1 => "1 duplicate ACK".to_owned(),
            n => format!("{n} duplicate ACKs"),
        },
    }
}

/// The page.
pub(crate) fn html(run: &RunFile, tcp: &TcpView) -> String {
    let (recorded, findings) = (&run.recorded, &run.findings);
    let plan = &recorded.plan.parsed;
    let check = |what: &str, found: &str, passed| report::Check {
        what: what.to_owned(),
        found: found.to_owned(),
        passed,
    };
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
                fired: event.fired.into(),
                measured: event.measured.clone(),
                passed: event.done,
            })
            .collect(),
        expectations: findings
            .expectations
            .iter()
            .map(|e| check(&e.expected, &e.found, e.met))
            .collect(),
        integrity: findings
            .integrity
            .checks
            .iter()
            .map(|Check { what, found, holds }| check(what, found, *holds))
            .collect(),
        pictures: tcp
            .connections
            .iter()
            .map(|(connection, packets)| Picture {
                title: title(connection.connection),
                connection,
                packets,
            })
            .collect(),
        plan: recorded.plan.text.clone(),
    })
}
