// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening a card, its tables and its counters, against the model.

mod model;

use midwire_driver::{
    Action, Card, Clause, Connection, DeclaredConnection, Error, Kind, Lane, Nanos, Position,
    PositionEvents, Program, RULE_SLOT, Rule, Selector, SlotId, SlotState, Transport, regs,
};
use model::{Faults, Model, bits};
use std::collections::{HashMap, HashSet};

fn open(faults: Faults) -> (Model, Result<Card, Error>) {
    let model = Model::new(faults);
    let card = Card::open(Box::new(model.clone()));
    (model, card)
}

fn refusal(faults: Faults) -> String {
    let text = open(faults).1.err().expect("refused").to_string();
    assert!(!text.contains('\n'));
    text
}

fn drop_first(lane: Lane, connection: u16, at: Position) -> PositionEvents {
    PositionEvents {
        lane,
        connection,
        at,
        clauses: vec![Clause {
            first: 1,
            last: Some(1),
            armed_by: None,
            action: Action {
                drop: true,
                ..Action::default()
            },
        }],
    }
}

#[test]
fn a_card_tells_what_it_is() {
    let card = open(Faults::default()).1.expect("open");
    let info = card.info();
    assert_eq!((info.connections, info.slots, info.ways), (1024, 1024, 4));
    assert_eq!((info.version, info.data_width), ((0, 1), 512));
    assert_eq!(info.declared_number(0), Some(1023));
    assert_eq!(info.declared_number(1023), Some(0));
    assert_eq!(info.declared_number(1024), None);
    let json = serde_json::to_string(info).expect("serialise");
    assert!(json.contains("\"map_hash\""), "{json}");
}

#[test]
fn what_is_no_card_of_ours_is_refused_naming_both_sides() {
    let text = refusal(Faults {
        id: Some(0xffff_ffff),
        ..Faults::default()
    });
    assert!(
        text.contains("0xffffffff") && text.contains("0x4d574952"),
        "{text}"
    );
    let text = refusal(Faults {
        version: Some(7 << 16 | 2),
        ..Faults::default()
    });
    assert!(text.contains("7.2") && text.contains("0.x"), "{text}");
    let text = refusal(Faults {
        map_hash: Some(0x0123_4567),
        ..Faults::default()
    });
    let ours = format!("{:#010x}", regs::EXPECTED_MAP_HASH);
    assert!(
        text.contains("0x01234567") && text.contains(&ours),
        "{text}"
    );
    let text = refusal(Faults {
        ways: Some(0),
        ..Faults::default()
    });
    assert!(text.contains("ways = 0"), "{text}");
}

#[test]
fn what_a_dead_program_left_running_is_reset() {
    let (model, card) = open(Faults {
        left_running: true,
        ..Faults::default()
    });
    card.expect("open");
    assert_eq!(model.state().resets, 1);
    let (model, card) = open(Faults::default());
    card.expect("open");
    assert_eq!(model.state().resets, 0, "a quiet card keeps its state");
}

#[test]
fn counters_are_read_from_where_they_are_after_a_latch() {
    let card = open(Faults::default()).1.expect("open");
    let counters = card.counters().expect("counters");
    assert_eq!(counters.ports[0].rx_frames, 0x200);
    assert_eq!(counters.ports[1].tx_bytes, 0x2b8);
    assert_eq!(counters.lanes[0].dropped, 0x300);
    assert_eq!(counters.lanes[1].lost_snapshots, 0x498);
    assert_eq!(counters.now, Nanos(0x7_89ab_cdef));
    assert_eq!(card.now().expect("now"), Nanos(0x7_89ab_cdef));
}

#[test]
fn track_and_drop_keep_the_other_control_bits_right() {
    let (model, card) = open(Faults::default());
    let card = card.expect("open");
    let control = || model.state().registers[&regs::CONTROL];
    card.track(true).expect("track");
    assert_eq!(control(), regs::control::TRACK);
    card.now().expect("now");
    assert_eq!(control(), regs::control::TRACK | regs::control::LATCH);
    card.track(false).expect("track");
    assert_eq!(control(), 0);
    card.track(true).expect("track");
    drop(card);
    assert_eq!(control(), 0, "a dropped card is a plain wire");
}

/// Row of a key of up to 64 bits in a way, by docs/tables.md.
fn row_of(key: u64, way: usize) -> u32 {
    let seeds: [u64; 4] = [0xbc_031f, 0xb2_da6f, 0x8b_c8f6, 0xc0_bb07];
    let mask = |bit: u64| {
        let mut x = 0x9e37_79b9_7f4a_7c15u64 ^ (seeds[way] << 40) ^ (bit << 32);
        for _ in 0..4 {
            x ^= x >> 12;
            x ^= x << 25;
            x ^= x >> 27;
            x = x.wrapping_mul(0x2545_f491_4f6c_dd1d);
        }
        x
    };
    (0..u64::from(model::ROWS_LOG2)).fold(0, |row, bit| {
        row | ((key & mask(bit)).count_ones() & 1) << bit
    })
}

/// Finds a row as the card does.
fn look_up(model: &Model, table: u32, lane: Lane, key: u128, key_bits: usize) -> Option<[u32; 16]> {
    (0..4).find_map(|way| {
        let row = row_of(key as u64, way);
        let row = model.row(table, lane, (way as u32) << model::ROWS_LOG2 | row);
        let valid = if table == 0 { 77 } else { 88 };
        (u128::from(bits(&row, 0, key_bits)) == key && bits(&row, valid, 1) == 1).then_some(row)
    })
}

#[test]
fn a_program_is_found_by_the_way_the_card_looks() {
    let (model, card) = open(Faults::default());
    let card = card.expect("open");
    let mut program = Program {
        selectors: vec![Selector {
            destination_port: Some(5001),
            ..Selector::any(Transport::Tcp)
        }],
        ..Program::default()
    };
    // Many enough that entries must move, in 1024 cells.
    for n in 0..800 {
        let at = Position::Nth {
            kind: Kind::Data,
            n: n + 1,
        };
        program.positions.push(drop_first(Lane::BtoA, 3, at));
    }
    let byte = drop_first(Lane::AtoB, 3, Position::Byte(0x1234_5678));
    program.positions.push(byte);
    let loaded = card.load(&program).expect("load");
    assert_eq!(loaded.slots.len(), 801);
    for (n, slot) in loaded.slots[..800].iter().enumerate() {
        let key = 3 << 36 | 1 << 32 | (n as u128 + 1);
        let row = look_up(&model, 0, Lane::BtoA, key, 52).expect("found");
        assert_eq!(bits(&row, 52, 24), u64::from(slot.slot));
        assert_eq!(bits(&row, 76, 2), 0b11, "bind and valid");
        let slot_row = model.row(2, Lane::BtoA, slot.slot);
        assert_eq!(bits(&slot_row, 0, 48), 0x0001_0101, "1 to 1, action 0");
    }
    let key = 3 << 40 | 0x12_3456;
    let row = look_up(&model, 1, Lane::AtoB, key, 56).expect("found");
    assert_eq!((bits(&row, 80, 8), bits(&row, 56, 24)), (0x78, 0));
    assert_eq!(bits(&model.row(4, Lane::AtoB, 0), 0, 66), 1, "drop alone");

    let state = model.state();
    assert_eq!(state.registers[&regs::KINDS_AB], 1 << 16);
    assert_eq!(state.registers[&regs::KINDS_BA], 1 << 1);
    let first_exact = state.writes.iter().position(|w| w.0 == 0);
    let last_slot = state.writes.iter().rposition(|w| w.0 == 2);
    assert!(last_slot < first_exact, "slots are there before their keys");
    drop(state);

    // The next program leaves nothing of it.
    card.load(&Program::default()).expect("load");
    assert!(look_up(&model, 1, Lane::AtoB, key, 56).is_none());
    assert_eq!(bits(&model.row(5, Lane::AtoB, 0), 300, 1), 0);
    assert_eq!(model.state().registers[&regs::KINDS_BA], 0);
}

#[test]
fn a_refused_program_leaves_the_card_alone() {
    let (model, card) = open(Faults::default());
    let card = card.expect("open");
    let mut program = Program::default();
    for n in 0..1025 {
        let at = Position::Nth {
            kind: Kind::Ack,
            n: n + 1,
        };
        program.positions.push(drop_first(Lane::AtoB, 0, at));
    }
    let text = card.load(&program).unwrap_err().to_string();
    assert_eq!(
        text,
        "the card's slot table is full: 1024 of 1025 entries fit"
    );
    // Positions that share their rows with each other in every way.
    let colliding = colliding(5).map(|key| {
        let at = Position::Nth {
            kind: Kind::Ack,
            n: key as u32,
        };
        drop_first(Lane::AtoB, (key >> 36) as u16, at)
    });
    program.positions = colliding.collect();
    match card.load(&program).map(|_| ()) {
        Err(Error::TableFull { table, fit, asked }) => {
            assert_eq!((table, fit, asked), ("exact", 4, 5));
        }
        other => panic!("{other:?}"),
    }
    assert!(model.state().writes.is_empty());
    program.positions.pop();
    card.load(&program).expect("one in each way");
}

/// Keys of the exact table, of kind ack, that lie in the same row of each way.
fn colliding(count: u64) -> impl Iterator<Item = u64> {
    let rows = |key| (0..4).fold(0, |rows, way| rows << 8 | row_of(key, way));
    // The hash is linear: combinations of bits that hash to 0 change no row.
    let mut basis: Vec<(u32, u64)> = Vec::new();
    let mut silent = Vec::new();
    for bit in (0..32).chain(36..46) {
        let mut at = (rows(1 << bit), 1 << bit);
        for &(hash, key) in &basis {
            if at.0 ^ hash < at.0 {
                at = (at.0 ^ hash, at.1 ^ key);
            }
        }
        match at.0 {
            0 => silent.push(at.1),
            _ => basis.push(at),
        }
    }
    let base = 2 << 32 | 7;
    (0..count).map(move |n| {
        let chosen = silent.iter().enumerate().filter(|(i, _)| n >> i & 1 == 1);
        chosen.fold(base, |key, (_, change)| key ^ change)
    })
}

/// Positions come and go while the card looks them up: after each row that is written all that
/// were not changed are found, and those that were are found as they were or as they became.
#[test]
fn a_program_changes_under_a_card_that_looks_it_up() {
    let (model, card) = open(Faults::default());
    let card = card.expect("open");
    let at = |n| Position::Nth { kind: Kind::Ack, n };
    let key = |n: u32| 0x2_0000_0000u128 | u128::from(n);
    let program = Program {
        positions: (1..=900)
            .map(|n| drop_first(Lane::AtoB, 0, at(n)))
            .collect(),
        ..Program::default()
    };
    let loaded = card.load(&program).expect("a program");
    let mut slots: HashMap<u32, u32> = (1..).zip(loaded.slots.iter().map(|s| s.slot)).collect();
    let replay = |before: &HashMap<model::TableKey, [u32; 16]>, slots: &HashMap<u32, u32>| {
        let (now, writes) = {
            let state = model.state();
            (state.tables.clone(), state.history.clone())
        };
        model.state().tables = before.clone();
        for (table, row) in writes {
            model.state().tables.insert(table, row);
            for (&n, &slot) in slots {
                let row = look_up(&model, 0, Lane::AtoB, key(n), 52).expect("a position is away");
                assert_eq!(bits(&row, 52, 24), u64::from(slot));
            }
        }
        assert_eq!(model.state().tables, now);
        model.state().history.clear();
    };
    model.state().history.clear();
    for step in 0..200u32 {
        let before = model.state().tables.clone();
        match step % 4 {
            0 | 1 => {
                let n = 2000 + step;
                let slot = card.put(&drop_first(Lane::AtoB, 0, at(n))).expect("room");
                replay(&before, &slots);
                slots.insert(n, slot.slot);
            }
            2 => {
                // A change is one row of the slot, which keeps its number.
                let n = 1 + step * 3;
                let mut events = drop_first(Lane::AtoB, 0, at(n));
                events.clauses[0].last = Some(7);
                let slot = card.put(&events).expect("a change");
                assert_eq!(slots[&n], slot.slot);
                replay(&before, &slots);
                let row = model.row(2, Lane::AtoB, slot.slot);
                assert_eq!(bits(&row, 0, 17), 0x1_0107);
            }
            _ => {
                let n = 1 + step * 4;
                slots.remove(&n).expect("was there");
                card.remove(Lane::AtoB, 0, at(n)).expect("removed");
                replay(&before, &slots);
                assert!(look_up(&model, 0, Lane::AtoB, key(n), 52).is_none());
                card.remove(Lane::AtoB, 0, at(n)).expect("no mistake");
            }
        }
    }
    let distinct: HashSet<u32> = slots.values().copied().collect();
    assert_eq!(distinct.len(), slots.len());

    let byte = drop_first(Lane::AtoB, 0, Position::Byte(5));
    let text = card.put(&byte).unwrap_err().to_string();
    assert_eq!(
        text,
        "position: bytes cannot be added while the card runs: it adds some itself"
    );
    assert!(card.put(&drop_first(Lane::AtoB, 5000, at(1))).is_err());
    // A refusal has changed nothing.
    assert!(model.state().history.is_empty());
    card.put(&drop_first(Lane::AtoB, 0, at(9999)))
        .expect("still works");
    card.clear().expect("clear");
    let text = card
        .put(&drop_first(Lane::AtoB, 0, at(1)))
        .unwrap_err()
        .to_string();
    assert_eq!(text, "change: no program is loaded");
}

#[test]
fn rules_are_loaded_read_back_and_replaced() {
    let (model, card) = open(Faults::default());
    let card = card.expect("open");
    let drop = Action {
        drop: true,
        ..Action::default()
    };
    let rule = |lane, every| Rule {
        every,
        action: drop,
        ..Rule::all(lane, Kind::Cnp)
    };
    let program = Program {
        positions: vec![drop_first(Lane::BtoA, 0, Position::Psn(1))],
        rules: vec![
            rule(Lane::BtoA, 3),
            rule(Lane::AtoB, 5),
            rule(Lane::BtoA, 7),
        ],
        ..Program::default()
    };
    let loaded = card.load(&program).expect("a program");
    let slots: Vec<_> = loaded.rules.iter().map(|s| (s.lane, s.slot)).collect();
    assert_eq!(
        slots,
        [
            (Lane::BtoA, RULE_SLOT),
            (Lane::AtoB, RULE_SLOT),
            (Lane::BtoA, RULE_SLOT | 1)
        ]
    );
    let limit = |lane, n| bits(&model.row(9, lane, n), 176, 32) as u32;
    assert_eq!(limit(Lane::BtoA, 1), u32::MAX / 7);
    assert_eq!(
        bits(&model.row(9, Lane::BtoA, 0), 433, 16),
        0,
        "shared with the position"
    );
    let mut state = [0; 16];
    state[..3].copy_from_slice(&[9, 4, 77]);
    model.state().tables.insert((10, 1, 1), state);
    let counted = card.slot_state(loaded.rules[2]).expect("state");
    assert_eq!(
        (counted.seen, counted.fired, counted.last_packet_id),
        (9, 4, Some(77))
    );

    card.put_rule(loaded.rules[2], &rule(Lane::BtoA, 11))
        .expect("another");
    assert_eq!(limit(Lane::BtoA, 1), u32::MAX / 11);
    let wrong = card.put_rule(loaded.rules[2], &rule(Lane::AtoB, 11));
    assert!(
        wrong
            .unwrap_err()
            .to_string()
            .starts_with("rule: is not one")
    );
    assert!(
        card.put_rule(loaded.slots[0], &rule(Lane::BtoA, 2))
            .is_err()
    );

    let too_many = Program {
        rules: (1..=model::RULES + 1)
            .map(|n| rule(Lane::AtoB, n))
            .collect(),
        ..Program::default()
    };
    let text = card.load(&too_many).unwrap_err().to_string();
    assert_eq!(text, "the card's rule table is full: 8 of 9 entries fit");
    let bad = Program {
        rules: vec![rule(Lane::AtoB, 1), rule(Lane::AtoB, 0)],
        ..Program::default()
    };
    let text = card.load(&bad).unwrap_err().to_string();
    assert!(text.starts_with("rule 1: every 0th packet"), "{text}");
}

#[test]
fn slots_and_connections_read_back() {
    let (model, card) = open(Faults::default());
    let card = card.expect("open");
    let queue_pair = DeclaredConnection {
        lane: Lane::BtoA,
        source: "fe80::1".parse().expect("address"),
        destination: "fe80::2".parse().expect("address"),
        queue_pair: 0xabcdef,
        first_psn: Some(0xff_fffe),
    };
    let program = Program {
        selectors: vec![Selector::any(Transport::Tcp)],
        declared: vec![queue_pair],
        positions: vec![drop_first(Lane::BtoA, 1023, Position::Psn(7))],
        ..Program::default()
    };
    let loaded = card.load(&program).expect("load");
    assert_eq!(loaded.declared, [1023]);
    let slot = SlotId {
        lane: Lane::BtoA,
        slot: 0,
    };
    assert_eq!(loaded.slots, [slot]);

    // A TCP connection that the card has learnt: 10.0.0.2:5001 opened it towards
    // 10.0.0.1:40000, which is lo.
    let mut row = [0u32; 16];
    let mut put = |low: usize, width: usize, value: u64| {
        for n in 0..width {
            row[(low + n) / 32] |= ((value >> n & 1) as u32) << ((low + n) % 32);
        }
    };
    put(0, 1, 1);
    put(1, 32, 1001);
    put(65, 1, 1);
    put(67, 1, 0);
    put(68, 1, 1);
    put(69, 24, 5001);
    put(69 + 24, 16, 40000);
    put(69 + 40, 64, 0x0a00_0002);
    put(69 + 168, 64, 0x0a00_0001);
    put(69 + 297, 2, 1);
    {
        let mut state = model.state();
        state.registers.insert(regs::CONNECTIONS, 2); // number 1 is gone again
        state.tables.insert((6, 0, 0), row);
        let fired = [2 | 1 << 24, 77 << 16, 0, 0];
        let mut row = [0; 16];
        row[..4].copy_from_slice(&fired);
        state.tables.insert((3, 1, 0), row);
    }
    let connections = card.connections().expect("connections");
    let tcp = Connection {
        number: 0,
        transport: Transport::Tcp,
        opener_lane: Lane::AtoB,
        source: "10.0.0.2".parse().expect("address"),
        destination: "10.0.0.1".parse().expect("address"),
        source_port: 5001,
        destination_port: 40000,
        base: [Some(1001), None],
    };
    let roce = Connection {
        number: 1023,
        transport: Transport::Roce,
        opener_lane: Lane::BtoA,
        source: "fe80::1".parse().expect("address"),
        destination: "fe80::2".parse().expect("address"),
        source_port: 0,
        destination_port: 0xabcdef,
        base: [None, Some(0xff_fffe)],
    };
    assert_eq!(connections, [tcp, roce]);
    let state = card.slot_state(slot).expect("state");
    let expected = SlotState {
        seen: 2,
        fired: 1,
        last_packet_id: Some(77),
    };
    assert_eq!(state, expected);
}

#[test]
fn a_card_that_stays_busy_is_not_waited_for_for_ever() {
    let (_, card) = open(Faults {
        busy_for_ever: true,
        ..Faults::default()
    });
    let slot = SlotId {
        lane: Lane::AtoB,
        slot: 0,
    };
    let e = card.expect("open").slot_state(slot).unwrap_err();
    assert!(matches!(e, Error::Timeout { .. }), "{e}");
}
