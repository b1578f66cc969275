// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A first connection through the whole card.

use midwire_driver::{
    Action, Base, Clause, Corrupt, Ecn, Kind, Lane, Nanos, Position, PositionEvents, Program,
    Selector, Transport,
};
use midwire_hw_tests::{Rig, Sent, Settings};
use midwire_trace::build::{Path, TcpSegment, tcp};
use midwire_trace::packet::tcp_flags::{ACK, SYN};
use midwire_trace::{Actions, Tap};
use midwire_virtual_card::Width;

fn event(n: u32, action: Action) -> PositionEvents {
    PositionEvents {
        lane: Lane::AtoB,
        connection: 0,
        at: Position::Nth {
            kind: Kind::Data,
            n,
        },
        clauses: vec![Clause {
            first: 1,
            last: Some(1),
            armed_by: None,
            action,
        }],
    }
}

fn first_light(width: Width) {
    let program = Program {
        selectors: vec![Selector::any(Transport::Tcp)],
        positions: vec![
            event(
                2,
                Action {
                    drop: true,
                    ..Action::default()
                },
            ),
            event(
                3,
                Action {
                    delay: Some(Nanos(50_000)),
                    ..Action::default()
                },
            ),
            event(
                4,
                Action {
                    ecn: Some(Ecn::Ce),
                    ..Action::default()
                },
            ),
            event(
                5,
                Action {
                    corrupt: Some(Corrupt {
                        base: Base::Payload,
                        offset: 7,
                        mask: 0xff,
                    }),
                    ..Action::default()
                },
            ),
        ],
        ..Program::default()
    };
    let path = Path::ipv4(40000, 5001);
    let segment = |seq, flags| TcpSegment {
        seq,
        flags,
        ack: 9001,
        ..TcpSegment::default()
    };
    let mut frames = vec![
        Sent::new(Lane::AtoB, 0, tcp(&path, &segment(999, SYN), b"")),
        Sent::new(
            Lane::BtoA,
            5_000,
            tcp(&path.reversed(), &segment(9000, SYN | ACK), b""),
        ),
    ];
    let data: Vec<_> = (0..6u32)
        .map(|n| tcp(&path, &segment(1000 + 1000 * n, ACK), &[n as u8; 1000]))
        .collect();
    for (n, frame) in data.iter().enumerate() {
        frames.push(Sent::new(
            Lane::AtoB,
            10_000 + 2_000 * n as u64,
            frame.clone(),
        ));
    }
    let rig = Rig::new(&Settings::new(width));
    let outcome = rig.run(&program, &frames);

    assert_eq!(outcome.accounting.problems, [""; 0]);
    assert!(outcome.summary.complete);
    let out: Vec<_> = outcome.delivered[0]
        .iter()
        .map(|f| f.data.clone())
        .collect();
    assert_eq!(out.len(), 6, "the SYN and all data but one");
    assert_eq!(out[1], data[0]);
    let marked = tcp(
        &Path {
            traffic_class: 3,
            ..path.clone()
        },
        &segment(4000, ACK),
        &[3; 1000],
    );
    assert_eq!(out[2], marked);
    let mut corrupt = data[4].clone();
    corrupt[14 + 20 + 20 + 7] ^= 0xff;
    assert_eq!(out[3], corrupt);
    assert_eq!(out[4], data[5]);
    assert_eq!(out[5], data[2], "the delayed one comes last");
    assert_eq!(outcome.delivered[1].len(), 1);

    let touched: Vec<_> = outcome
        .records
        .iter()
        .filter(|(record, _)| record.tap == Tap::Egress)
        .map(|(record, _)| (record.packet_id, record.actions, record.iteration))
        .collect();
    assert_eq!(
        touched,
        [
            (4, Actions::ECN, 1),
            (5, Actions::CORRUPT, 1),
            (3, Actions::DELAY, 1)
        ]
    );
    for slot in &outcome.loaded.slots {
        let state = rig.card.slot_state(*slot).expect("a state");
        assert_eq!((state.seen, state.fired), (1, 1));
    }
    assert_eq!(rig.card.connections().expect("connections").len(), 1);
}

#[test]
fn first_light_512() {
    first_light(Width::W512);
}

#[test]
fn first_light_64() {
    first_light(Width::W64);
}
