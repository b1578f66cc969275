// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

fn card() -> CardInfo {
    CardInfo {
        name: "a card".into(),
        version: (0, 1),
        map_hash: 0,
        data_width: 512,
        clock_ps: 3103,
        connections: 1 << 10,
        flow_rows_log2: 8,
        slots: 1 << 10,
        exact_rows_log2: 8,
        page_rows_log2: 8,
        ways: 4,
        selectors: 4,
        actions: 3,
        rules: 4,
        delay_slots: 64,
        max_frame: 10240,
    }
}

fn clause(first: u8, last: Option<u8>, action: Action) -> Clause {
    Clause {
        first,
        last,
        armed_by: None,
        action,
    }
}

const DROP: Action = Action {
    drop: true,
    ..Action::NOTHING
};

fn at(at: Position, clauses: Vec<Clause>) -> PositionEvents {
    PositionEvents {
        lane: Lane::AtoB,
        connection: 1,
        at,
        clauses,
    }
}

fn nth(n: u32) -> Position {
    Position::Nth {
        kind: Kind::Data,
        n,
    }
}

fn refuse(positions: Vec<PositionEvents>) -> String {
    let program = Program {
        positions,
        ..Program::default()
    };
    program.compile(&card()).unwrap_err().to_string()
}

fn rows(program: &Program, table: Table) -> Vec<Entry512> {
    let image = program.compile(&card()).expect("compiles");
    image
        .rows
        .into_iter()
        .filter(|entry| entry.table == table)
        .collect()
}

#[test]
fn mistakes_name_the_position() {
    let good = at(nth(1), vec![]);
    let cases = [
        (at(nth(0), vec![]), "count from 1"),
        (at(nth(1), vec![]), "same position as position 0"),
        (at(Position::Byte(1 << 48), vec![]), "below 2^48"),
        (
            at(
                Position::Nth {
                    kind: Kind::Other,
                    n: 1,
                },
                vec![],
            ),
            "kind other",
        ),
        (at(nth(2), vec![clause(0, None, DROP)]), "not in 1 to 254"),
        (
            at(nth(2), vec![clause(3, Some(2), DROP)]),
            "below the first",
        ),
        (at(nth(2), vec![clause(1, Some(255), DROP)]), "above 254"),
        (
            at(
                nth(2),
                vec![clause(1, Some(4), DROP), clause(4, None, DROP)],
            ),
            "clause 1: overlaps clause 0",
        ),
        (
            at(nth(2), (1..=5).map(|n| clause(n, Some(n), DROP)).collect()),
            "has 5 clauses",
        ),
        (
            PositionEvents {
                connection: 1024,
                ..at(nth(2), vec![])
            },
            "beyond the 1024",
        ),
    ];
    for (bad, why) in cases {
        let text = refuse(vec![good.clone(), bad]);
        assert!(
            text.starts_with("position 1: ") && text.contains(why),
            "{text} / {why}"
        );
    }
}

#[test]
fn actions_out_of_range_are_refused() {
    let corrupt = |offset, mask| Action {
        corrupt: Some(Corrupt {
            base: Base::Payload,
            offset,
            mask,
        }),
        ..Action::default()
    };
    let delay = |ns| Action {
        delay: Some(Nanos(ns)),
        ..Action::default()
    };
    let set = |offset, mask, value| Action {
        set: Some(Set {
            base: Base::Ip,
            offset,
            mask: [0, mask, 0, 0, 0, 0, 0, 0],
            value: [0, value, 0, 0, 0, 0, 0, 0],
            ip6: Ip6Place::Same,
        }),
        ..Action::default()
    };
    let elsewhere = |base, last| Action {
        set: Some(Set {
            base,
            offset: 1,
            mask: [1, 0, 0, 0, 0, 0, 0, last],
            value: [0; 8],
            ip6: Ip6Place::NibbleBefore,
        }),
        ..Action::default()
    };
    let truncate = |bytes| Action {
        truncate: Some(bytes),
        ..Action::default()
    };
    let duplicate = |copies, gap| Action {
        duplicate: Some(Duplicate {
            copies,
            gap: Nanos(gap),
        }),
        ..Action::default()
    };
    let reorder = Action {
        reorder: Some(Reorder {
            packets: 0,
            of: ReorderScope::Connection,
        }),
        ..Action::default()
    };
    let arm = Action {
        arm: Some(64),
        ..Action::default()
    };
    for (action, why) in [
        (corrupt(4096, 1), "above 4095"),
        (corrupt(0, 0), "changes nothing"),
        (delay(0), "not in 1 to"),
        (delay(1 << 40), "not in 1 to"),
        (set(4096, 1, 1), "above 4095"),
        (set(0, 0, 0), "changes nothing"),
        (set(0, 1, 3), "outside its mask"),
        (elsewhere(Base::Transport, 0), "only bits of the IP header"),
        (elsewhere(Base::Ip, 1), "the last 4 of 64"),
        (truncate(0), "not in 1 to"),
        (truncate(10241), "not in 1 to"),
        (duplicate(0, 5), "0 copies"),
        (duplicate(1, 1 << 32), "above"),
        (reorder, "none overtakes"),
        (arm, "not below 64"),
    ] {
        let text = refuse(vec![at(nth(1), vec![clause(1, None, action)])]);
        assert!(
            text.starts_with("position 0: clause 0: ") && text.contains(why),
            "{text}"
        );
    }
    let four = (1..=4).map(|n| at(nth(n), vec![clause(1, None, delay(n.into()))]));
    let text = refuse(four.collect());
    assert!(
        text.starts_with("position 3: ") && text.contains("than the 3 "),
        "{text}"
    );
}

#[test]
fn an_action_lies_as_documented() {
    let all = Action {
        drop: false,
        ecn: Some(Ecn::Ect1),
        corrupt: Some(Corrupt {
            base: Base::Transport,
            offset: 0xabc,
            mask: 0x81,
        }),
        delay: Some(Nanos(0x12_3456_789a)),
        set: Some(Set {
            base: Base::Payload,
            offset: 0x123,
            mask: [0xff, 0, 0, 0, 0, 0, 0, 0x80],
            value: [0x12, 0, 0, 0, 0, 0, 0, 0x80],
            ip6: Ip6Place::ByteBefore,
        }),
        truncate: Some(0x2345),
        broken: Broken {
            ip: true,
            icrc: true,
            ..Broken::default()
        },
        mended: Mended {
            transport: true,
            ..Mended::default()
        },
        reorder: Some(Reorder {
            packets: 0x8001,
            of: ReorderScope::Lane,
        }),
        duplicate: Some(Duplicate {
            copies: 0x81,
            gap: Nanos(0x8000_0001),
        }),
        inject: Some(0x91),
        arm: Some(0x21),
        disarm: Some(0x12),
    };
    let row = all.row();
    assert_eq!(row.get(0, 4), 0b1110);
    assert_eq!(row.get(4, 40), 0x12_3456_789a);
    assert_eq!(
        (row.get(44, 2), row.get(46, 12), row.get(58, 8)),
        (2, 0xabc, 0x81)
    );
    assert_eq!((row.get(66, 2), row.get(68, 3)), (1, 0b111));
    assert_eq!(row.get(71, 12), 0x123);
    assert_eq!(row.get(83, 64), 0x8000_0000_0000_00ff);
    assert_eq!(row.get(147, 64), 0x8000_0000_0000_0012);
    assert_eq!(row.get(211, 15), 0x2345 << 1 | 1);
    assert_eq!(row.get(226, 4), 0b1010, "broken: FCS, IP, transport, ICRC");
    assert_eq!(row.get(230, 3), 0b010, "mended: IP, transport, ICRC");
    assert_eq!((row.get(233, 2), row.get(235, 16)), (3, 0x8001));
    assert_eq!((row.get(251, 9), row.get(260, 32)), (0x103, 0x8000_0001));
    assert_eq!(row.get(292, 9), 0x91 << 1 | 1);
    assert_eq!(row.get(301, 7), 0x21 << 1 | 1);
    assert_eq!(row.get(308, 7), 0x12 << 1 | 1);
    assert_eq!(row.get(315, 2), 2);
    assert_eq!(row.get(317, 195), 0);
}

#[test]
fn an_action_names_a_template_of_the_program() {
    let inject = Some(1);
    let action = Action {
        inject,
        ..Action::default()
    };
    let text = refuse(vec![at(nth(1), vec![clause(1, None, action)])]);
    assert!(text.contains("there is no template 1"), "{text}");
}

#[test]
fn equal_actions_are_shared() {
    let delay = Action {
        delay: Some(Nanos(5)),
        ..Action::default()
    };
    let program = Program {
        positions: vec![
            at(
                nth(1),
                vec![clause(1, Some(2), DROP), clause(3, None, delay)],
            ),
            at(nth(2), vec![clause(1, Some(1), delay)]),
        ],
        ..Program::default()
    };
    assert_eq!(rows(&program, Table::Action).len(), 2);
    let slots = rows(&program, Table::Slot);
    assert_eq!(slots[0].row.get(0, 48), 0x0001_0102);
    assert_eq!(slots[0].row.get(48, 48), 0x0001_0001_03ff);
    assert_eq!(slots[0].row.get(96, 96), 0);
    assert_eq!(slots[1].row.get(0, 48), 0x0001_0001_0101);
}

#[test]
fn five_bytes_of_a_page_are_one_too_many() {
    let positions = |count: u64| {
        (0..count)
            .map(|n| at(Position::Byte(0x300 + n), vec![]))
            .collect::<Vec<_>>()
    };
    let text = refuse(positions(5));
    assert!(
        text.starts_with("position 4: ") && text.contains("bytes 768 to 1023"),
        "{text}"
    );
    let program = Program {
        positions: positions(4),
        ..Program::default()
    };
    let pages = rows(&program, Table::Page);
    let ways: Vec<u32> = pages.iter().map(|entry| entry.index >> 8).collect();
    assert_eq!(ways, [0, 1, 2, 3]);
}

#[test]
fn a_psn_is_one_slot_whatever_takes_it() {
    let program = Program {
        positions: vec![at(Position::Psn(0), vec![])],
        ..Program::default()
    };
    let exact = rows(&program, Table::Exact);
    assert_eq!(exact.len(), 1);
    assert_eq!(exact[0].row.get(32, 4), 1, "looked up as data");
    assert_eq!(exact[0].row.get(52, 24), 0);
    assert!(!exact[0].row.bit(76), "PSNs need no binding");
    let text = refuse(vec![at(Position::Psn(4), vec![]), at(nth(4), vec![])]);
    assert!(text.starts_with("position 1: is the same"), "{text}");
}

#[test]
fn selectors_lie_as_documented_and_free_ones_are_off() {
    let prefix = |text: &str, length| Prefix {
        address: text.parse().expect("address"),
        length,
    };
    let program = Program {
        selectors: vec![Selector {
            lane: Some(Lane::BtoA),
            source: Some(prefix("10.1.2.3", 24)),
            destination: Some(prefix("0.0.0.0", 0)),
            source_port: Some(7),
            destination_port: Some(5001),
            ..Selector::any(Transport::Tcp)
        }],
        ..Program::default()
    };
    let selectors = rows(&program, Table::Selector);
    let find = |index| {
        let entry = selectors.iter().find(|entry| entry.index == index);
        entry.expect("row").row
    };
    let (value, mask) = (find(0), find(1));
    assert_eq!((value.get(0, 24), mask.get(0, 24)), (5001, 0xff_ffff));
    assert_eq!((value.get(24, 16), mask.get(24, 16)), (7, 0xffff));
    assert_eq!(mask.get(40, 128), 0, "a prefix of no bits");
    assert_eq!(value.get(168, 128), 0x0a01_0200);
    assert_eq!(mask.get(168, 128), 0xffff_ff00);
    assert_eq!((value.get(296, 5), mask.get(296, 5)), (0b11010, 0b01111));
    assert_eq!(selectors.len(), 8);
    assert!((1..4).all(|n| find(n * 2) == Row::default()));

    let refuse = |selector| {
        let program = Program {
            selectors: vec![Selector::any(Transport::Tcp), selector],
            ..Program::default()
        };
        program.compile(&card()).unwrap_err().to_string()
    };
    let any = Selector::any(Transport::Tcp);
    let mixed = Selector {
        source: Some(prefix("::", 0)),
        destination: Some(prefix("10.0.0.1", 32)),
        ..any.clone()
    };
    assert!(refuse(mixed).starts_with("selector 1: IPv4 and IPv6"));
    let long = Selector {
        source: Some(prefix("10.0.0.1", 33)),
        ..any.clone()
    };
    assert!(refuse(long).contains("above 32 in 10.0.0.1/33"));
    let port = Selector {
        destination_port: Some(65536),
        ..any
    };
    assert!(refuse(port).contains("not below 65536"));
}

#[test]
fn whole_ipv6_prefixes_count() {
    let selector = Selector {
        source: Some(Prefix::from("fe80::1".parse::<IpAddr>().expect("address"))),
        ..Selector::any(Transport::Roce)
    };
    let (value, mask) = selector.rows().expect("rows");
    assert_eq!(mask.get(168, 128), u128::MAX);
    assert_eq!(value.get(168, 128), 0xfe80 << 112 | 1);
    assert!(value.bit(296) && mask.bit(296));
}

#[test]
fn declared_connections_are_checked() {
    let good = DeclaredConnection {
        lane: Lane::AtoB,
        source: "10.0.0.1".parse().expect("address"),
        destination: "10.0.0.2".parse().expect("address"),
        queue_pair: 17,
        first_psn: None,
    };
    let refuse = |bad: DeclaredConnection| {
        let program = Program {
            declared: vec![good.clone(), bad],
            ..Program::default()
        };
        program.compile(&card()).unwrap_err().to_string()
    };
    assert!(refuse(good.clone()).starts_with("declared connection 1: is the same as"));
    let bad = DeclaredConnection {
        queue_pair: 1 << 24,
        ..good.clone()
    };
    assert!(refuse(bad).contains("below 2^24"));
    let bad = DeclaredConnection {
        source: "::1".parse().expect("address"),
        ..good.clone()
    };
    assert!(refuse(bad).contains("one IP version"));

    let mut program = Program {
        declared: vec![good.clone()],
        ..Program::default()
    };
    // Nothing is learnt, so that there are no others.
    assert_eq!(rows(&program, Table::Connection)[0].index, 0);
    program.selectors = vec![Selector::any(Transport::Roce)];
    let connection = &rows(&program, Table::Connection)[0];
    assert_eq!(connection.index, 1023);
    assert_eq!(connection.row.get(65, 2), 0, "no base was declared");
    let flow = &rows(&program, Table::Flow)[0];
    assert_eq!(flow.row.get(299, 16), 1023);
    assert_eq!(flow.row.get(347, 2), 0b11, "fixed and valid");
    for low in (0..299).step_by(23) {
        assert_eq!(connection.row.get(69 + low, 23), flow.row.get(low, 23));
    }
}
