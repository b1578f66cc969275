// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the analysis of TCP says of a run, in the run's own terms, and the page for people.

use std::collections::{BTreeMap, HashSet};

use midwire_analysis::report::{self, Check, EventRow, Picture, Replay, Report, RocePicture};
use midwire_analysis::roce::{self, RocePacket};
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
        let view = view::tcp(capture, event);
        TcpView {
            inside,
            start_ns: view.start_ns,
            connections: view
                .packets
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

/// The connections of RoCE that the report shows.
#[derive(Debug, Default)]
pub(crate) struct RoceView {
    packets: BTreeMap<roce::Place, Vec<RocePacket>>,
    /// How many more there are to which something happened.
    more: usize,
}

impl RoceView {
    /// Of all to which something happened, the first ones.
    const SHOWN: usize = 8;

    pub fn read(capture: &Capture, recorded: &Recorded, analysis: &roce::Analysis) -> Self {
        let touched = roce::touched(capture);
        let happened = |connection: &&roce::Connection| {
            let mut places = places(connection);
            connection.counts.again > 0 || places.any(|place| touched.contains(&place))
        };
        let all: Vec<_> = analysis.connections.iter().filter(happened).collect();
        let shown: HashSet<_> = (all.iter().take(Self::SHOWN))
            .flat_map(|connection| places(connection))
            .collect();
        let event = |record: &midwire_trace::Record| events_at(recorded, record).first().copied();
        Self {
            packets: roce::packets(capture, event, |place| shown.contains(place)).packets,
            more: all.len().saturating_sub(Self::SHOWN),
        }
    }

    fn picture<'a>(&'a self, connection: &'a roce::Connection) -> Option<RocePicture<'a>> {
        let [to_responder, to_requester] =
            [connection.responder, connection.requester].map(|end| {
                let place = end.qp.map(|qp| (end.address, qp));
                place.and_then(|place| self.packets.get(&place))
            });
        Some(RocePicture {
            connection,
            to_responder: to_responder?,
            to_requester: to_requester.map_or(&[], Vec::as_slice),
        })
    }
}

/// Where packets of a connection go to.
fn places(connection: &roce::Connection) -> impl Iterator<Item = roce::Place> {
    let ends = [connection.responder, connection.requester].into_iter();
    ends.filter_map(|end| Some((end.address, end.qp?)))
}

/// The page.
pub(crate) fn html(
    run: &RunFile,
    tcp: &TcpView,
    seen: &RoceView,
    replay: Option<Replay>,
) -> String {
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
        replay,
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
        roce_pictures: (findings.roce.iter())
            .flat_map(|read| &read.analysis.connections)
            .filter_map(|connection| seen.picture(connection))
            .collect(),
        more_roce: seen.more,
        start_ns: tcp.start_ns,
        plan: recorded.plan.text.clone(),
    })
}
