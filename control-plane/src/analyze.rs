// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the capture to findings and verdict, and to the files that tell them.

use std::fs;
use std::path::Path;

use midwire_analysis::report::Check;
use midwire_trace::{Accounting, Capture};

use crate::expect::{self, Facts};
use crate::measure::{self, TouchedPackets};
use crate::plan::Event;
use crate::report::{self, RoceView, TcpView};
use crate::run_file::{self, CaptureRecord, Findings, Integrity, Recorded, RunFile, files};
use crate::twin::Twin;
use crate::verdict::judge;
use crate::{Error, compile, inside, junit, retrace, roce};

/// Does everything again that follows from `run.json` and the capture of a run's directory, and
/// writes `run.json`, `junit.xml` and `report.html` anew.
pub fn analyze(directory: &Path) -> Result<RunFile, Error> {
    let run = RunFile::read(directory)?;
    conclude(directory, run.recorded)
}

/// Works out findings and verdict, and writes the files.
pub(crate) fn conclude(directory: &Path, recorded: Recorded) -> Result<RunFile, Error> {
    let capture = Capture::open(directory.join(files::CAPTURE));
    let tcp = match &capture {
        Ok(capture) => TcpView::read(capture, &recorded, inside::read(directory)?),
        Err(_) => TcpView::default(),
    };
    let findings = findings(&capture, &tcp, &recorded);
    let roce = match (&capture, &findings.roce) {
        (Ok(capture), Some(read)) => RoceView::read(capture, &recorded, &read.analysis),
        _ => RoceView::default(),
    };
    let verdict = judge(&recorded, &findings);
    let run = RunFile {
        version: run_file::VERSION,
        name: recorded.plan.parsed.name.clone(),
        verdict,
        findings,
        recorded,
    };
    run.write(directory)?;
    let replay = retrace::read_replay(directory)?;
    for (name, text) in [
        (files::JUNIT, junit::xml(&run)),
        (files::REPORT, report::html(&run, &tcp, &roce, replay)),
    ] {
        let path = directory.join(name);
        fs::write(&path, text).map_err(Error::file("write", &path))?;
    }
    Ok(run)
}

/// What a packet of the run is told to be in exports: the events that touched it, or the events
/// whose position it is without being asked for. Nothing for all other packets.
pub fn comment(recorded: &Recorded, record: &midwire_trace::Record) -> Option<String> {
    let slot = record.slot?;
    let touched = compile::events_at(recorded, record);
    if touched.is_empty() {
        let mut positions = recorded.positions.iter();
        let position = positions.find(|p| p.direction == record.lane && p.slot == slot)?;
        return Some(format!(
            "position of event {}: connection {} {}, iteration {}, nothing asked",
            position.event_numbers(),
            position.connection,
            position.at,
            record.iteration
        ));
    }
    let comments: Vec<String> = touched
        .iter()
        .filter_map(|&number| {
            let event = event(recorded, number)?;
            Some(compile::comment(event, number, record.iteration))
        })
        .collect();
    Some(comments.join("; "))
}

/// An event of the plan by its number.
fn event(recorded: &Recorded, number: u32) -> Option<&Event> {
    let index = usize::try_from(number.checked_sub(1)?).ok()?;
    recorded.plan.parsed.events.get(index)
}

fn findings(
    capture: &midwire_trace::Result<Capture>,
    tcp: &TcpView,
    recorded: &Recorded,
) -> Findings {
    let plan = &recorded.plan.parsed;
    let roce = capture
        .as_ref()
        .ok()
        .and_then(|capture| roce::read(capture, recorded));
    let (events, integrity) = match capture {
        Ok(capture) => {
            let touched = TouchedPackets::read(capture);
            let account = Accounting::of(capture);
            // Packets that are not in the capture can't be named.
            let twin = account.complete.then(|| Twin::read(recorded, capture));
            let (events, mut checks) = measure::events(recorded, &touched, twin.as_ref());
            if let Some(twin) = &twin {
                checks.extend(twin.check(recorded, &touched));
            }
            (events, integrity(&account, &recorded.capture, checks))
        }
        Err(error) => {
            let (events, _) = measure::events(recorded, &TouchedPackets::default(), None);
            let summary = format!("there is no capture: {error}");
            (
                events,
                Integrity {
                    complete: false,
                    summary,
                    checks: Vec::new(),
                },
            )
        }
    };
    let retransmissions = tcp.retransmissions();
    let facts = Facts {
        connections: &recorded.connections,
        traffic: &recorded.traffic,
        retransmissions: &retransmissions,
        nics: &recorded.nics,
        roce: roce.as_ref().map(|read| &read.analysis),
    };
    let expectations = expect::evaluate(&plan.expect, facts);
    Findings {
        events,
        integrity,
        retransmissions,
        roce,
        expectations,
    }
}

/// The account of the capture, as statements for people.
fn integrity(account: &Accounting, capture: &CaptureRecord, slots: Vec<Check>) -> Integrity {
    let mut checks: Vec<Check> = account
        .ports
        .iter()
        .map(|port| {
            let lost = port.lost_ingress + port.rx_lost;
            Check {
                what: format!(
                    "every frame that came in at port {} is in the capture",
                    port.port
                ),
                found: format!(
                    "{} frames = {} records + {lost} lost",
                    port.frames_received, port.ingress_records
                ),
                holds: port.frames_received == port.ingress_records && lost == 0,
            }
        })
        .chain(account.ports.iter().map(|port| {
            let added = port.copied + port.injected;
            let gone = port.tx_frames + port.dropped + port.rx_lost;
            let came = match added {
                0 => format!("{} frames", port.frames_received),
                _ => format!(
                    "{} frames + {} copies + {} injected",
                    port.frames_received, port.copied, port.injected
                ),
            };
            Check {
                what: format!(
                    "every frame that came in at port {} left or was dropped by an event",
                    port.port
                ),
                found: format!(
                    "{came} = {} left + {} dropped + {} lost",
                    port.tx_frames, port.dropped, port.rx_lost
                ),
                holds: port.frames_received + added == gone && port.rx_lost == 0,
            }
        }))
        .collect();
    checks.push(Check {
        what: "sequence, times and packet ids have no gap, and the final block is there".to_owned(),
        found: match account.problems.as_slice() {
            [] => format!("{} records in {} blocks", account.records, account.blocks),
            problems => problems.join(" "),
        },
        holds: account.complete,
    });
    if let Some(error) = &capture.error {
        checks.push(Check {
            what: "the driver ended the capture in order".to_owned(),
            found: error.clone(),
            holds: false,
        });
    }
    checks.extend(slots);
    let complete = checks.iter().all(|check| check.holds);
    let frames: u64 = account.ports.iter().map(|port| port.frames_received).sum();
    let lost: u64 = account
        .ports
        .iter()
        .map(|port| port.rx_lost + port.lost_ingress + port.lost_egress + port.lost_snapshots)
        .sum();
    let summary = format!(
        "{}: {frames} frames, {} records, {lost} lost",
        if complete { "complete" } else { "NOT COMPLETE" },
        account.records
    );
    Integrity {
        complete,
        summary,
        checks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use midwire_trace::{Lane, Record};

    #[test]
    fn a_packet_at_a_position_says_whose_it_is() {
        let recorded = fixture::recorded();
        let told = |lane, slot, iteration| {
            let record = Record {
                lane,
                slot,
                iteration,
                ..Record::default()
            };
            comment(&recorded, &record)
        };
        let at = |iteration| told(Lane::AtoB, Some(0), iteration).unwrap();
        assert_eq!(at(2), "event 1: drop, connection 0 packet 5, iteration 2");
        assert_eq!(
            at(3),
            "position of event 1: connection 0 packet 5, iteration 3, nothing asked"
        );
        for (lane, slot) in [
            (Lane::AtoB, None),
            (Lane::AtoB, Some(1)),
            (Lane::BtoA, Some(0)),
        ] {
            assert_eq!(told(lane, slot, 1), None);
        }
    }
}
