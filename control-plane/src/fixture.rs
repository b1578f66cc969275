// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small run that passes, for tests to break.

use midwire_analysis::report::Check;
use midwire_analysis::tcp::{Cause, Retransmission};
use midwire_trace::Lane;

use crate::merge::Position;
use crate::plan::{Kind, Plan};
use crate::run_file::*;
use crate::triggers::Gate;
use crate::verdict;

const TEXT: &str = "\
version: 1
name: fixture
description: What does <this> TCP do?
endpoints:
  a: {tap: {address: 10.77.0.1/24}}
  b: {tap: {address: 10.77.0.2/24}}
traffic:
  - tcp: {from: a, to: b, bytes: 2MB}
events:
  - {direction: a-to-b, packet: 5, iterations: 1-2, action: drop}
expect:
  - traffic: completes
";

pub fn recorded() -> Recorded {
    let parsed = Plan::parse("fixture.yaml", TEXT).unwrap();
    Recorded {
        midwire: "0.1.0".into(),
        seed: 1,
        repeat: (1, 1),
        rerun: None,
        inputs: Vec::new(),
        started: "2026-01-01T00:00:00.000Z".into(),
        ended: "2026-01-01T00:00:02.000Z".into(),
        host: "Linux".into(),
        plan: PlanRecord {
            file: "fixture.yaml".into(),
            text: TEXT.into(),
            parsed,
        },
        card: Some(CardRecord {
            place: "virtual".into(),
            parameters: serde_json::json!({}),
        }),
        declared: Vec::new(),
        positions: vec![PositionRecord {
            direction: Lane::AtoB,
            slot: 0,
            connection: 0,
            at: Position::Packet(Kind::Data, 5),
            clauses: vec![ClauseRecord {
                first: 1,
                last: 2,
                gate: Gate::default(),
                events: vec![1],
            }],
            seen: 3,
            fired: 2,
            last_packet_id: Some(20),
        }],
        rules: Vec::new(),
        capture: CaptureRecord {
            blocks: 1,
            records: 2_100,
            bytes: 65_536,
            error: None,
        },
        counters: None,
        connections: vec![ConnectionRecord {
            number: 0,
            text: "TCP 10.77.0.1:40000 > 10.77.0.2:5001".into(),
            opener: Lane::AtoB,
        }],
        traffic: vec![TrafficRecord {
            number: 1,
            what: "tcp a to b".into(),
            completed: true,
            summary: "2000000 bytes in 1.2 s".into(),
            details: serde_json::json!({}),
        }],
        hosts: None,
        inside: Vec::new(),
        nics: Vec::new(),
        interrupted: false,
        error: None,
    }
}

fn retransmission(
    transmission: u32,
    after_ns: u64,
    cause: Cause,
    duplicate_acks: u32,
) -> Retransmission {
    Retransmission {
        connection: 0,
        direction: Lane::AtoB,
        packet: 25,
        segment: 5,
        byte: 5_792,
        bytes: 1_448,
        transmission,
        time_ns: 2_000_000 + after_ns,
        after_ns,
        previous_lost: true,
        cause,
        previous: 8,
        duplicate_acks,
        reaction_ns: None,
    }
}

pub fn findings() -> Findings {
    let firing = |packet_id, iteration| Firing {
        packet_id,
        iteration,
        time_ns: 1_000_000,
        left_ns: None,
        failure: None,
        delay: None,
        moved: None,
        copies: None,
        answer: None,
        ecn: None,
        changed: Vec::new(),
        set: Vec::new(),
        corrupted: None,
        checksums: Vec::new(),
        length: None,
    };
    Findings {
        events: vec![EventRecord {
            number: 1,
            asked: "drop, connection 0 a-to-b, packet 5, iteration 1-2".into(),
            wanted: Some(2),
            seen: 3,
            fired: 2,
            done: true,
            measured: "lost on the card 2 times".into(),
            firings: vec![firing(8, 1), firing(20, 2)],
        }],
        integrity: Integrity {
            complete: true,
            summary: "complete: 2100 frames, 2100 ingress records, nothing lost".into(),
            checks: vec![Check {
                what: "frames a".into(),
                found: "1400 = 1400".into(),
                holds: true,
            }],
        },
        retransmissions: vec![
            retransmission(2, 300_000, Cause::Fast, 3),
            retransmission(3, 204_000_000, Cause::Timeout, 0),
        ],
        roce: None,
        expectations: vec![ExpectationRecord {
            number: 1,
            expected: "traffic completes".into(),
            found: "2000000 bytes in 1.2 s".into(),
            met: true,
        }],
    }
}

pub fn run() -> RunFile {
    let (recorded, findings) = (recorded(), findings());
    let verdict = verdict::judge(&recorded, &findings);
    RunFile {
        version: VERSION,
        name: recorded.plan.parsed.name.clone(),
        verdict,
        findings,
        recorded,
    }
}
