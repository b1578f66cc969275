// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules and triggers of the whole card, held against the model.

use midwire_driver::{
    Action, Chance, Clause, Kind, Lane, Measure, Position, PositionEvents, Program, Proto, Rule,
    RuleChance, Scope,
};
use midwire_hw_tests::{DROP, MARK, Outcome, Rig, Sent, Settings, check, on_all};
use midwire_trace::build::{Path, TcpSegment, aeth, roce, tcp, udp};
use midwire_trace::packet::tcp_flags::{ACK, SYN};
use midwire_trace::packet::{Aeth, Bth, opcode};
use midwire_trace::{Flags, Tap};
use midwire_virtual_card::Width;

const WIDTHS: [Width; 2] = [Width::W512, Width::W64];

/// Runs frames 3 us apart and holds all against the model.
fn run(width: Width, program: &Program, frames: &[(Lane, Vec<u8>)]) -> Outcome {
    let sent: Vec<_> = (0..)
        .zip(frames)
        .map(|(n, (lane, data))| Sent::new(*lane, 3_000 * n, data.clone()))
        .collect();
    let rig = Rig::new(&Settings::new(width));
    let outcome = rig.run(program, &sent);
    check(&rig, width, program, &sent, &outcome);
    outcome
}

/// Packet ids of a lane that rules or events dropped or marked.
fn touched(outcome: &Outcome, lane: Lane) -> Vec<u32> {
    let records = outcome.records.iter().map(|(record, _)| record);
    let of_lane = records.filter(|r| r.tap == Tap::Ingress && r.lane == lane);
    let asked = of_lane.filter(|r| r.actions.0 != 0);
    asked.map(|r| r.packet_id).collect()
}

/// A packet of a queue pair: requests go from A to B.
fn request(psn: u32) -> (Lane, Vec<u8>) {
    packet(Lane::AtoB, opcode::WRITE_MIDDLE, psn, vec![], &[7; 64])
}

fn answer(syndrome: u8, psn: u32) -> (Lane, Vec<u8>) {
    let aeth = aeth(Aeth { syndrome, msn: psn });
    packet(Lane::BtoA, opcode::ACK, psn, aeth, &[])
}

const NAK: u8 = 0x60;

fn packet(lane: Lane, code: u8, psn: u32, more: Vec<u8>, payload: &[u8]) -> (Lane, Vec<u8>) {
    let there = Path::ipv4(4791, 4791);
    let (path, dest_qp) = match lane {
        Lane::AtoB => (there, 0x11),
        Lane::BtoA => (there.reversed(), 0x22),
    };
    let bth = Bth {
        opcode: code,
        byte1: 0,
        pkey: 0xffff,
        byte4: 0,
        dest_qp,
        ack_req: false,
        psn,
    };
    (lane, roce(&path, &bth, &more, payload))
}

fn segment(from: u32, len: usize, flags: u8) -> (Lane, Vec<u8>) {
    let segment = TcpSegment {
        seq: 1000 + u32::from(flags & SYN == 0) + from,
        flags,
        ..TcpSegment::default()
    };
    (
        Lane::AtoB,
        tcp(&Path::ipv4(40_000, 5001), &segment, &vec![1; len]),
    )
}

/// "Drop the NAK that answers event 3."
#[test]
fn an_event_arms_what_hits_its_answer() {
    const TRIGGER: u8 = 41;
    let lost = Action {
        arm: Some(TRIGGER),
        ..DROP
    };
    let nak = Rule {
        armed_by: Some(TRIGGER),
        times: Some(1),
        action: DROP,
        ..Rule::all(Lane::BtoA, Kind::Nak)
    };
    let three = PositionEvents::always(Lane::AtoB, 0, Position::Psn(3), lost);
    let frames = [
        request(0),
        answer(NAK, 0), // of no event
        request(1),
        request(2),
        request(3), // lost
        answer(0, 2),
        answer(NAK, 3), // dropped
        request(3),     // lost again
        answer(NAK, 3), // once was enough
    ];
    for width in WIDTHS {
        let outcome = run(
            width,
            &on_all(vec![three.clone()], vec![nak.clone()]),
            &frames,
        );
        assert_eq!(touched(&outcome, Lane::AtoB), [3, 4]);
        assert_eq!(touched(&outcome, Lane::BtoA), [2]);
    }
}

/// "From the first retransmission on", until an event ends it.
#[test]
fn a_rule_arms_others_and_an_event_disarms_them() {
    let again = Rule {
        fresh: false,
        action: Action {
            arm: Some(0),
            ..Action::NOTHING
        },
        ..Rule::all(Lane::AtoB, Kind::Data)
    };
    let marked = Rule {
        armed_by: Some(0),
        action: MARK,
        ..Rule::all(Lane::AtoB, Kind::Data)
    };
    let end = Action {
        disarm: Some(0),
        ..Action::NOTHING
    };
    let nth = |n| Position::Nth {
        kind: Kind::Data,
        n,
    };
    let mut guarded = PositionEvents::always(Lane::AtoB, 0, nth(4), DROP);
    guarded.clauses[0].armed_by = Some(0);
    guarded.clauses.push(Clause {
        armed_by: None,
        action: MARK,
        ..guarded.clauses[0].clone()
    });
    let other = PositionEvents {
        at: nth(7),
        ..guarded.clone()
    };
    let events = vec![
        PositionEvents::always(Lane::AtoB, 0, nth(5), end),
        guarded,
        other,
    ];
    let frames = [
        segment(0, 0, SYN),
        segment(0, 100, ACK),
        segment(100, 100, ACK),
        segment(0, 100, ACK),   // again: what comes behind it is marked
        segment(200, 100, ACK), // 3, marked
        segment(300, 100, ACK), // 4, dropped because the trigger is armed
        segment(400, 100, ACK), // 5, marked, and the last
        segment(500, 100, ACK),
        segment(600, 100, ACK), // 7, marked because the trigger is not armed
    ];
    for width in WIDTHS {
        let outcome = run(
            width,
            &on_all(events.clone(), vec![again.clone(), marked.clone()]),
            &frames,
        );
        assert_eq!(touched(&outcome, Lane::AtoB), [4, 5, 6, 8]);
        assert_eq!(outcome.counters.lanes[0].dropped, 1);
    }
}

/// Ranges, every n-th, kinds, retransmissions, packets of no connection.
#[test]
fn rules_choose_by_position_kind_and_history() {
    let data = Rule::all(Lane::AtoB, Kind::Data);
    let psns = Rule {
        kinds: vec![Kind::Data, Kind::ReadRequest],
        first: 4,
        last: Some(12),
        every: 4,
        action: MARK,
        ..data.clone()
    };
    let again = Rule {
        scope: Scope::Connection(0),
        fresh: false,
        measure: Measure::Count,
        first: 2,
        last: Some(2),
        action: DROP,
        ..data
    };
    let plain = Rule {
        scope: Scope::Plain,
        protos: vec![Proto::Udp],
        measure: Measure::Count,
        first: 1,
        every: 3,
        action: DROP,
        ..Rule::all(Lane::AtoB, Kind::Any)
    };
    let mut frames: Vec<_> = (0..20).map(request).collect();
    frames.extend([5, 6, 7].map(request));
    frames.extend((0..8).map(|n| (Lane::AtoB, udp(&Path::ipv4(1, 2), &[n; 30]))));
    for width in WIDTHS {
        let rules = vec![psns.clone(), again.clone(), plain.clone()];
        let outcome = run(width, &on_all(vec![], rules), &frames);
        assert_eq!(touched(&outcome, Lane::AtoB), [4, 8, 12, 21, 23, 26, 29]);
    }
}

/// A decision by chance is the packet's own: neither other traffic nor time changes it.
#[test]
fn chance_is_a_function_of_seed_and_identity() {
    let lossy = |seed| Rule {
        chance: RuleChance::Random {
            seed,
            chance: Chance::of(0.2).expect("a probability"),
        },
        action: DROP,
        ..Rule::all(Lane::AtoB, Kind::Data)
    };
    let requests: Vec<_> = (0..200).map(request).collect();
    let lost = |width, seed, frames: &[(Lane, Vec<u8>)]| {
        let outcome = run(width, &on_all(vec![], vec![lossy(seed)]), frames);
        let records = outcome.records.iter().map(|(record, _)| record);
        let dropped = records.filter(|r| r.tap == Tap::Ingress && r.actions.0 & 1 == 1);
        dropped.map(|r| r.psn()).collect::<Vec<_>>()
    };
    let first = lost(Width::W512, 1, &requests);
    assert!((20..60).contains(&first.len()), "{first:?}");
    assert_eq!(lost(Width::W64, 1, &requests), first);
    assert_ne!(lost(Width::W512, 2, &requests), first);
    let noise = (0..200).map(|n| (Lane::AtoB, udp(&Path::ipv4(1, 2), &vec![9; n])));
    let mixed: Vec<_> = requests
        .iter()
        .cloned()
        .zip(noise)
        .flat_map(|(a, b)| [a, b])
        .collect();
    assert_eq!(lost(Width::W512, 1, &mixed), first);
}

/// More rules hit than the card can carry out at the rate of the line: every frame passes,
/// every record is there, and those that were not looked up say so and are counted.
#[test]
fn an_overload_of_rules_costs_no_frame() {
    let mut settings = Settings::new(Width::W512);
    settings.capture.snapshot_bytes = 0;
    let rig = Rig::new(&settings);
    let rules = (0..rig.card.info().rules).map(|n| Rule {
        scope: Scope::All,
        measure: Measure::Count,
        action: Action {
            arm: Some(n as u8),
            ..Action::NOTHING
        },
        ..Rule::all(Lane::AtoB, Kind::Any)
    });
    let rules: Vec<_> = rules.collect();
    assert_eq!(rules.len(), 64);
    let frame = udp(&Path::ipv4(1, 2), &[5; 18]);
    let frames: Vec<_> = (0..3000)
        .map(|_| Sent::new(Lane::AtoB, 0, frame.clone()))
        .collect();
    let outcome = rig.run(&on_all(vec![], rules), &frames);
    assert!(outcome.summary.complete, "{:?}", outcome.summary);
    assert_eq!(outcome.delivered[0].len(), frames.len());
    let unmatched = outcome
        .records
        .iter()
        .filter(|(r, _)| r.flags.contains(Flags::UNMATCHED));
    let unmatched = unmatched.count() as u64;
    assert!(unmatched > 1000, "{unmatched}");
    assert_eq!(outcome.counters.lanes[0].unmatched, unmatched);
    // The last rule was tried on the packets that were looked up as a whole, each before it on more.
    let fired = outcome.loaded.rules.iter().map(|slot| {
        let state = rig.card.slot_state(*slot).expect("a state");
        u64::from(state.fired)
    });
    let fired: Vec<_> = fired.collect();
    assert!(fired.is_sorted_by(|a, b| a >= b), "{fired:?}");
    assert_eq!(fired.last(), Some(&(frames.len() as u64 - unmatched)));
}
