// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much the card holds, and what it does when more is asked of it, by accident or by malice.

use midwire_driver::{
    CaptureConfig, Error, Kind, Lane, Measure, Position, PositionEvents, Rule, SlotId, regs,
};
use midwire_hw_tests::traffic::Random;
use midwire_hw_tests::{DROP, MARK, Outcome, Rig, Sent, Settings, on_all};
use midwire_trace::build::{Path, TcpSegment, roce, tcp};
use midwire_trace::packet::tcp_flags::{ACK, SYN};
use midwire_trace::packet::{Bth, opcode};
use midwire_trace::{Actions, Flags, Tap};
use midwire_virtual_card::Width;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

/// Records without frames, in blocks that hold many.
fn rig() -> Rig {
    Rig::new(&settings())
}

fn settings() -> Settings {
    let capture = CaptureConfig {
        snapshot_bytes: 0,
        ring_blocks: 256,
        ..CaptureConfig::new("")
    };
    Settings {
        capture,
        ..Settings::new(Width::W512)
    }
}

/// Number of a connection and lane of a segment of TCP data, and which it is.
type Segment = (u16, Lane, u32);

fn segment(connection: u16, lane: Lane, flags: u8, n: u32) -> Vec<u8> {
    let end = |host: u8, port: u16| SocketAddr::new(Ipv4Addr::new(10, 0, 0, host).into(), port);
    let path = Path::new(end(1, 1024 + connection), end(2, 5001));
    let path = match lane {
        Lane::AtoB => path,
        Lane::BtoA => path.reversed(),
    };
    let seq = 1000 + u32::from(flags & SYN == 0) + n * 10;
    let header = TcpSegment {
        seq,
        flags,
        ..TcpSegment::default()
    };
    let payload: &[u8] = if flags & SYN == 0 { &[7; 10] } else { &[] };
    tcp(&path, &header, payload)
}

fn whole(outcome: &Outcome) {
    assert!(outcome.accounting.complete, "{:?}", outcome.accounting);
    let losses = outcome.counters.ports.iter().map(|port| port.rx_lost);
    assert_eq!(losses.sum::<u64>(), 0);
}

/// 131,072 events, one at each of four segments of 16,384 connections in both directions, and 64
/// rules a lane beside them; every event is hit, and by its own packet.
#[test]
fn so_many_events_connections_and_rules_fit() {
    const CONNECTIONS: u16 = 16_384;
    const EACH: u32 = 4;
    let at = |n| Position::Nth {
        kind: Kind::Data,
        n,
    };
    let mut names: Vec<Segment> = Vec::new();
    for lane in Lane::ALL {
        for connection in 0..CONNECTIONS {
            names.extend((1..=EACH).map(|n| (connection, lane, n)));
        }
    }
    assert_eq!(names.len(), 131_072);
    let action = |n: u32| if n.is_multiple_of(2) { MARK } else { DROP };
    let positions = names
        .iter()
        .map(|&(connection, lane, n)| PositionEvents::always(lane, connection, at(n), action(n)));
    let rules = Lane::ALL.map(|lane| {
        (0..64).map(move |n| Rule {
            measure: Measure::Position,
            first: 1_000_000 + n,
            last: Some(1_000_000 + n),
            action: DROP,
            ..Rule::all(lane, Kind::Any)
        })
    });
    let program = on_all(positions.collect(), rules.into_iter().flatten().collect());

    let mut frames = Vec::new();
    for connection in 0..CONNECTIONS {
        frames.push((Lane::AtoB, segment(connection, Lane::AtoB, SYN, 0)));
    }
    // The other direction's numbers begin with its SYN.
    for connection in 0..CONNECTIONS {
        frames.push((Lane::BtoA, segment(connection, Lane::BtoA, SYN | ACK, 0)));
    }
    for n in 0..EACH {
        for connection in 0..CONNECTIONS {
            for lane in Lane::ALL {
                frames.push((lane, segment(connection, lane, ACK, n)));
            }
        }
    }
    let sent: Vec<_> = (0..)
        .zip(frames)
        .map(|(n, (lane, data))| Sent::new(lane, 30 * n, data))
        .collect();
    let rig = rig();
    let outcome = rig.run(&program, &sent);
    whole(&outcome);
    assert_eq!(outcome.counters.connections, u32::from(CONNECTIONS));
    assert_eq!(outcome.counters.connections_lost, 0);

    let slots: HashMap<SlotId, Segment> = outcome.loaded.slots.iter().copied().zip(names).collect();
    assert_eq!(slots.len(), 131_072);
    let mut hit = 0;
    for (record, _) in &outcome.records {
        if record.tap != Tap::Ingress || record.payload_len == 0 {
            continue;
        }
        let slot = record.slot.expect("each segment has an event");
        let lane = record.lane;
        let (connection, of_lane, n) = slots[&SlotId { lane, slot }];
        assert_eq!((record.connection, lane), (Some(connection), of_lane));
        assert_eq!(record.f0, 1001 + (n - 1) * 10);
        let expected = if n % 2 == 0 {
            Actions::ECN
        } else {
            Actions::DROP
        };
        assert_eq!((record.iteration, record.actions), (1, expected));
        hit += 1;
    }
    assert_eq!(hit, 131_072);
    for slot in outcome.loaded.slots.iter().step_by(1009) {
        let state = rig.card.slot_state(*slot).expect("a state");
        assert_eq!((state.seen, state.fired), (1, 1));
    }
    let left: usize = outcome.delivered.iter().map(Vec::len).sum();
    assert_eq!(left, sent.len() - 131_072 / 2);
}

/// One event more than a lane holds is refused as a whole, and the program that runs goes on.
#[test]
fn one_event_too_many_is_refused_and_nothing_changes() {
    let rig = rig();
    let of = |n| Position::Psn(n);
    let events = |n: u32| {
        (0..n)
            .map(|n| PositionEvents::always(Lane::AtoB, 0, of(n), DROP))
            .collect()
    };
    let loaded = rig.card.load(&on_all(events(1), Vec::new())).expect("room");
    let slots = rig.card.info().slots;
    let refused = rig.card.load(&on_all(events(slots + 1), Vec::new()));
    let Err(Error::TableFull { table, fit, asked }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        (table, fit as u32, asked as u32),
        ("slot", slots, slots + 1)
    );
    let rule = Rule::all(Lane::AtoB, Kind::Any);
    let rules = vec![rule; rig.card.info().rules as usize + 1];
    let refused = rig.card.load(&on_all(Vec::new(), rules));
    assert!(matches!(
        refused,
        Err(Error::TableFull { table: "rule", .. })
    ));

    let sent: Vec<_> = (0..)
        .zip(0..4)
        .map(|(n, psn)| Sent::new(Lane::AtoB, 3000 * n, write(psn)))
        .collect();
    rig.card.track(true).expect("tracking");
    sent.iter().for_each(|frame| rig.send(frame));
    rig.settle();
    assert_eq!(rig.delivered()[0].len(), 3);
    let state = rig.card.slot_state(loaded.slots[0]).expect("a state");
    assert_eq!((state.seen, state.fired), (1, 1));
}

/// RoCE data with a PSN.
fn write(psn: u32) -> Vec<u8> {
    let bth = Bth {
        opcode: opcode::WRITE_MIDDLE,
        byte1: 0,
        pkey: 0xffff,
        byte4: 0,
        dest_qp: 0x11,
        ack_req: false,
        psn,
    };
    roce(&Path::ipv4(4791, 4791), &bth, &[], &[5; 16])
}

/// Sends frames to a card whose tables change meanwhile, and holds every record against what
/// may have happened: PSNs, in no order, from one random number each.
fn changing<R>(
    rig: &Rig,
    psns: u32,
    change: impl FnOnce(&mut Random) -> R,
    mut check: impl FnMut(&midwire_trace::Record),
) -> R {
    // Clocks from frame to frame, and how far the input is ahead of the card.
    const STEP: u64 = 19;
    const AHEAD: u64 = 100_000;
    let capture = rig.card.start_capture(rig.capture()).expect("a capture");
    rig.card.track(true).expect("tracking");
    // The first gives PSN 0 its place.
    rig.send(&Sent::new(Lane::AtoB, 0, write(0)));
    rig.settle();
    let start = rig.simulation.stats().cycles;
    let over = AtomicBool::new(false);
    let (changed, frames) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut random = Random::new(8);
            let mut frames = 0;
            while !over.load(Ordering::Acquire) {
                if frames * STEP < rig.simulation.stats().cycles - start + AHEAD {
                    let psn = random.below(psns.into()) as u32;
                    rig.send(&Sent::new(Lane::AtoB, 60 * frames, write(psn)));
                    frames += 1;
                }
            }
            frames
        });
        let changed = change(&mut Random::new(7));
        over.store(true, Ordering::Release);
        (changed, sender.join().expect("a sender"))
    });
    rig.settle();
    capture.stop().expect("a whole capture");
    assert!(frames > 1000, "{frames} packets are too few to tell");
    let file = midwire_trace::Capture::open(&rig.capture().path).expect("a file");
    let mut entries = file.entries();
    let mut seen = 0;
    while let Some(entry) = entries.next_entry() {
        if entry.record.tap == Tap::Ingress {
            assert!(!entry.record.flags.contains(Flags::UNMATCHED));
            check(&entry.record);
            seen += 1;
        }
    }
    assert_eq!(seen, frames + 1);
    changed
}

/// A card whose host works while packets pass, and which marks packets by their PSNs.
fn marking(psns: u32) -> (Rig, Vec<SlotId>) {
    let rig = Rig::new(&Settings {
        prompt_access: true,
        ..settings()
    });
    let positions =
        (0..psns).map(|psn| PositionEvents::always(Lane::AtoB, 0, Position::Psn(psn), MARK));
    let loaded = rig.card.load(&on_all(positions.collect(), Vec::new()));
    let slots = loaded.expect("room").slots;
    (rig, slots)
}

/// Packets hit a few positions in no order while the host puts others in and out, and changes
/// what happens at some. Each packet finds its position: what happens to it is what was asked
/// before or what is asked now.
#[test]
fn what_changes_under_traffic_is_never_missed() {
    const POSITIONS: u32 = 16;
    let (rig, slots) = marking(POSITIONS);
    let change = |random: &mut Random| {
        for n in 1..=100 {
            let at = Position::Nth { kind: Kind::Ack, n };
            rig.card
                .put(&PositionEvents::always(Lane::AtoB, 9, at, DROP))
                .expect("room");
            if n % 3 == 0 {
                rig.card.remove(Lane::AtoB, 9, at).expect("it is there");
            }
            let psn = random.below(POSITIONS.into()) as u32;
            let action = if n % 2 == 0 { MARK } else { DROP };
            let event = PositionEvents::always(Lane::AtoB, 0, Position::Psn(psn), action);
            rig.card.put(&event).expect("it is there");
        }
    };
    changing(&rig, POSITIONS, change, |record| {
        let slot = slots[(record.f0 & 0xff_ffff) as usize].slot;
        assert_eq!(record.slot, Some(slot), "{record:?}");
        let one = [Actions::DROP, Actions::ECN].contains(&record.actions);
        assert!(one, "neither what was asked nor what is: {record:?}");
    });
}

/// A row moves to another way as docs/tables.md says: the copy first, then the old one goes.
#[test]
fn a_row_that_moves_is_never_missed() {
    const POSITIONS: u32 = 16;
    let (rig, slots) = marking(POSITIONS);
    let bus = rig.simulation.host_bus();
    let put = |index: u32, row: u128| {
        for word in 0..16 {
            let value = if word < 4 { row >> (32 * word) } else { 0 } as u32;
            bus.write32((regs::TABLE_WRITE + 4 * word) as u16, value);
        }
        bus.write32(
            regs::TABLE_ADDRESS as u16,
            index << regs::table_address::INDEX_SHIFT,
        );
        bus.write32(regs::TABLE_COMMAND as u16, regs::table_command::WRITE);
        while bus.read32(regs::STATUS as u16) & regs::status::TABLE_BUSY != 0 {}
    };
    let rows_log2 = rig.card.info().exact_rows_log2;
    let cell = |key: u64, way: usize| {
        let bit = |bit: u32| (key & mask(way, bit.into(), 0)).count_ones() & 1;
        let row = (0..rows_log2).fold(0, |row, n| row | bit(n) << n);
        (way as u32) << rows_log2 | row
    };
    let change = |_: &mut Random| {
        for round in 0..8 {
            for (psn, slot) in (0..).zip(&slots) {
                let key = u64::from(Kind::Data.number()) << 32 | psn;
                let row = u128::from(key) | u128::from(slot.slot) << 52 | 1 << 77;
                // The driver has put it into one of the ways: the first time all others go.
                let there = (round + 1) % 4;
                put(cell(key, there), row);
                for way in (0..4).filter(|&way| way != there) {
                    if round == 0 || way == round % 4 {
                        put(cell(key, way), 0);
                    }
                }
            }
        }
    };
    changing(&rig, POSITIONS, change, |record| {
        let slot = slots[(record.f0 & 0xff_ffff) as usize].slot;
        assert_eq!(
            (record.slot, record.actions),
            (Some(slot), Actions::ECN),
            "{record:?}"
        );
    });
}

/// A word of the mask of a bit of the row in a way (docs/tables.md, "Hash tables").
fn mask(way: usize, bit: u64, word: u64) -> u64 {
    let seed = [0xbc_031f_u64, 0xb2_da6f, 0x8b_c8f6, 0xc0_bb07][way];
    let mut x = 0x9e37_79b9_7f4a_7c15 ^ seed << 40 ^ bit << 32 ^ word;
    for _ in 0..4 {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        x = x.wrapping_mul(0x2545_f491_4f6c_dd1d);
    }
    x
}

/// TCP connections from 10.0.0.0/8 to 192.0.0.0/8 whose keys lie in the same row of every way of
/// the flow table: what somebody who knows the masks would send.
fn colliding(rows_log2: u32, count: usize) -> Vec<(SocketAddr, SocketAddr)> {
    // Bits of the key that may change: ports, and the low 24 bits of both addresses.
    let free: Vec<u64> = (0..16)
        .chain(24..40)
        .chain(40..64)
        .chain(168..192)
        .collect();
    // For each the bits of all rows that it turns; Gauss's elimination leaves sums that turn none.
    let turns = |bit: u64| {
        let of_way = |way| {
            (0..u64::from(rows_log2)).map(move |row| mask(way, row, bit / 64) >> (bit % 64) & 1)
        };
        (0..4)
            .flat_map(of_way)
            .fold(0u128, |all, one| all << 1 | u128::from(one))
    };
    let mut rows: Vec<(u128, u128)> = (0..)
        .zip(&free)
        .map(|(n, &bit)| (turns(bit), 1 << n))
        .collect();
    for column in 0..4 * rows_log2 {
        let Some(pivot) = rows.iter().position(|row| row.0 >> column & 1 == 1) else {
            continue;
        };
        let pivot = rows.swap_remove(pivot);
        for row in rows.iter_mut().filter(|row| row.0 >> column & 1 == 1) {
            *row = (row.0 ^ pivot.0, row.1 ^ pivot.1);
        }
    }
    assert!(rows.iter().all(|row| row.0 == 0) && 1 << rows.len() >= count);
    (0..count)
        .map(|n| {
            let sums = rows.iter().enumerate().filter(|(i, _)| n >> i & 1 == 1);
            let chosen = sums.fold(0x1234_5678_9abc_def0_u128, |sum, (_, row)| sum ^ row.1);
            let field = |from: usize, bits: usize| (chosen >> from & ((1 << bits) - 1)) as u32;
            let end = |net: u32, host: u32, port: u32| {
                SocketAddr::new(IpAddr::V4((net << 24 | host).into()), port as u16)
            };
            (
                end(10, field(56, 24), field(16, 16)),
                end(192, field(32, 24), field(0, 16)),
            )
        })
        .collect()
}

/// Connections made so that they fight for the same four places: four are followed, the others
/// are counted, every frame passes, and who comes behind them is followed as ever.
#[test]
fn a_hash_attack_costs_only_the_attackers() {
    const ATTACKERS: usize = 256;
    let rig = rig();
    let info = rig.card.info().clone();
    let mut frames: Vec<Vec<u8>> = colliding(info.flow_rows_log2, ATTACKERS)
        .into_iter()
        .map(|(from, to)| {
            let syn = TcpSegment {
                seq: 1,
                flags: SYN,
                ..TcpSegment::default()
            };
            tcp(&Path::new(from, to), &syn, &[])
        })
        .collect();
    let followed = info.ways;
    for connection in 0..32 {
        frames.push(segment(connection, Lane::AtoB, SYN, 0));
        frames.extend((0..4).map(|n| segment(connection, Lane::AtoB, ACK, n)));
    }
    let at = Position::Nth {
        kind: Kind::Data,
        n: 3,
    };
    let events = (0..32).map(|n| PositionEvents::always(Lane::AtoB, followed as u16 + n, at, DROP));
    let sent: Vec<_> = (0..)
        .zip(&frames)
        .map(|(n, data)| Sent::new(Lane::AtoB, 10 * n, data.clone()))
        .collect();
    let outcome = rig.run(&on_all(events.collect(), Vec::new()), &sent);
    whole(&outcome);
    assert_eq!(outcome.counters.connections, followed + 32);
    assert_eq!(
        outcome.counters.connections_lost,
        ATTACKERS as u32 - followed
    );
    assert_eq!(outcome.delivered[0].len(), frames.len() - 32);
    for slot in &outcome.loaded.slots {
        let state = rig.card.slot_state(*slot).expect("a state");
        assert_eq!((state.seen, state.fired), (1, 1));
    }
}

/// More connections than the card follows: the first ones are followed to their end, the others
/// pass and are counted.
#[test]
fn connections_beyond_the_last_pass_and_are_counted() {
    let rig = rig();
    let limit = rig.card.info().connections as u16;
    let mut frames: Vec<_> = (0..limit + 100)
        .map(|n| segment(n, Lane::AtoB, SYN, 0))
        .collect();
    let last = limit - 1;
    frames.push(segment(last, Lane::AtoB, ACK, 0));
    frames.push(segment(limit, Lane::AtoB, ACK, 0));
    let sent: Vec<_> = (0..)
        .zip(&frames)
        .map(|(n, data)| Sent::new(Lane::AtoB, 10 * n, data.clone()))
        .collect();
    let at = Position::Nth {
        kind: Kind::Data,
        n: 1,
    };
    let events = vec![PositionEvents::always(Lane::AtoB, last, at, DROP)];
    let outcome = rig.run(&on_all(events, Vec::new()), &sent);
    whole(&outcome);
    assert_eq!(outcome.counters.connections, u32::from(limit));
    assert_eq!(outcome.counters.connections_lost, 100);
    assert_eq!(outcome.delivered[0].len(), frames.len() - 1);
}
