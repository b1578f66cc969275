// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

const ACTION: u32 = 0x3c;

fn rule() -> Rule {
    Rule::all(Lane::AtoB, Kind::Data)
}

/// A packet of data of connection 0.
fn data(position: u32) -> Sight {
    Sight {
        connection: Some(0),
        kind: Kind::Data,
        own: position,
        any: position + 100,
        ..Sight::plain(Proto::Roce)
    }
}

fn hits(rule: &Rule, packets: impl IntoIterator<Item = Sight>) -> Vec<u32> {
    let mut state = RuleState::default();
    let packets = packets.into_iter();
    let hit = packets.filter(|packet| state.hits(rule, packet));
    hit.map(|packet| packet.own).collect()
}

#[test]
fn a_rule_lies_as_documented() {
    let burst = RuleChance::Burst {
        seed: 0x0123_4567_89ab_cdef,
        good: Chance(1),
        bad: Chance(2),
        to_bad: Chance(3),
        to_good: Chance(4),
    };
    let all = Rule {
        scope: Scope::Connection(0xabc),
        protos: vec![Proto::Roce, Proto::Other],
        kinds: vec![Kind::Nak, Kind::Rst],
        fresh: false,
        measure: Measure::Count,
        first: 7,
        last: Some(0xffff_fffe),
        every: 12,
        chance: burst,
        times: Some(9),
        armed_by: Some(63),
        ..rule()
    };
    all.check(0x1000).expect("a rule");
    let row = all.row(0x1ff);
    assert_eq!(row.get(0, 7), 1 | 0b0101 << 3);
    assert_eq!(row.get(7, 16), 0xabc);
    assert_eq!(row.get(23, 9), 0b1_0000_1000);
    assert_eq!(row.get(32, 4), 0b1010);
    assert_eq!((row.get(36, 48), row.get(84, 48)), (7, 0xffff_fffe));
    assert_eq!(row.get(132, 7), 0x7f);
    assert_eq!(row.get(139, 32) as u32, 0xaaaa_aaab, "a third");
    assert_eq!((row.get(171, 5), row.get(176, 32)), (2, 0x1555_5555));
    assert_eq!(
        (row.get(208, 64), row.get(272, 1)),
        (0x0123_4567_89ab_cdef, 1)
    );
    assert_eq!(
        [273, 305, 337, 369].map(|low| row.get(low, 32)),
        [1, 2, 3, 4]
    );
    assert_eq!((row.get(401, 32), row.get(433, 16)), (9, 0x1ff));

    let plain = rule().row(ACTION);
    assert_eq!(plain.get(0, 7), 1 | 1 << 1 | 15 << 3, "every protocol");
    assert_eq!((plain.get(139, 32), plain.get(176, 32)), (1, 0xffff_ffff));
    assert_eq!(plain.get(273, 32), 0xffff_ffff, "always");
    assert_eq!((plain.get(401, 32), plain.get(433, 16)), (0, ACTION.into()));
}

/// The card divides by a product, a turn and a comparison.
#[test]
fn every_nth_is_found_without_dividing() {
    let counts = [
        1,
        2,
        3,
        5,
        6,
        7,
        10,
        12,
        100,
        255,
        256,
        1000,
        65_537,
        1 << 20,
        3 << 30,
        u32::MAX,
    ];
    for every in counts {
        let row = Rule { every, ..rule() }.row(0);
        let inverse = row.get(139, 32) as u32;
        let (shift, limit) = (row.get(171, 5) as u32, row.get(176, 32) as u32);
        let near = (0..40u32).flat_map(|k| {
            let multiple = every.wrapping_mul(k.wrapping_mul(0x0101_0101));
            [
                multiple,
                multiple.wrapping_add(1),
                multiple.wrapping_sub(1),
                k,
            ]
        });
        for distance in near {
            let found = distance.wrapping_mul(inverse).rotate_right(shift) <= limit;
            assert_eq!(
                found,
                distance.is_multiple_of(every),
                "{distance} by {every}"
            );
        }
    }
}

#[test]
fn mistakes_are_told() {
    let refuse = |bad: Rule| bad.check(16).expect_err("refused");
    let cases = [
        (
            Rule {
                scope: Scope::Connection(16),
                ..rule()
            },
            "beyond the 16",
        ),
        (
            Rule {
                kinds: vec![],
                ..rule()
            },
            "chooses no packets",
        ),
        (
            Rule {
                fresh: false,
                again: false,
                ..rule()
            },
            "chooses no packets",
        ),
        (
            Rule {
                kinds: vec![Kind::Other],
                ..rule()
            },
            "kind other have no positions",
        ),
        (
            Rule {
                scope: Scope::Plain,
                ..rule()
            },
            "count them",
        ),
        (
            Rule {
                measure: Measure::Byte,
                kinds: vec![Kind::Ack],
                ..rule()
            },
            "only data has bytes",
        ),
        (
            Rule {
                measure: Measure::Byte,
                every: 2,
                ..rule()
            },
            "every n-th byte",
        ),
        (
            Rule {
                first: 9,
                last: Some(8),
                ..rule()
            },
            "range 9 to 8",
        ),
        (
            Rule {
                last: Some(1 << 32),
                ..rule()
            },
            "ends above 4294967295",
        ),
        (Rule { every: 0, ..rule() }, "never"),
        (
            Rule {
                times: Some(0),
                ..rule()
            },
            "never",
        ),
        (
            Rule {
                armed_by: Some(64),
                ..rule()
            },
            "trigger 64",
        ),
    ];
    for (bad, why) in cases {
        let text = refuse(bad);
        assert!(text.contains(why), "{text} / {why}");
    }
}

#[test]
fn ranges_strides_and_limits() {
    let range = Rule {
        first: 10,
        last: Some(30),
        every: 5,
        ..rule()
    };
    assert_eq!(hits(&range, (0..50).map(data)), [10, 15, 20, 25, 30]);
    let thrice = Rule {
        times: Some(2),
        ..range.clone()
    };
    assert_eq!(hits(&thrice, (0..50).map(data)), [10, 15]);
    let counted = Rule {
        measure: Measure::Count,
        first: 3,
        last: Some(9),
        every: 3,
        ..rule()
    };
    assert_eq!(hits(&counted, (100..150).map(data)), [102, 105, 108]);
    // A PSN before the first is none of an open range.
    let open = Rule { first: 2, ..rule() };
    assert_eq!(hits(&open, [u32::MAX, 1, 2].map(data)), [2]);
}

#[test]
fn filters() {
    let again = |position| Sight {
        below: true,
        again: 4,
        ..data(position)
    };
    let both = [data(1), again(2)];
    assert_eq!(
        hits(
            &Rule {
                again: false,
                ..rule()
            },
            both
        ),
        [1]
    );
    assert_eq!(
        hits(
            &Rule {
                fresh: false,
                ..rule()
            },
            both
        ),
        [2]
    );
    let other = Sight {
        connection: Some(3),
        ..data(7)
    };
    let plain = Sight {
        own: 9,
        ..Sight::plain(Proto::Udp)
    };
    let all = [data(1), other, plain];
    let of = |scope, kinds: &[Kind]| Rule {
        scope,
        kinds: kinds.to_vec(),
        measure: Measure::Count,
        ..rule()
    };
    assert_eq!(hits(&of(Scope::Connection(3), &[Kind::Data]), all), [7]);
    assert_eq!(hits(&of(Scope::Tracked, &[Kind::Data]), all), [1, 7]);
    assert_eq!(hits(&of(Scope::Plain, &[Kind::Any]), all), [9]);
    assert_eq!(hits(&of(Scope::All, &[Kind::Any]), all), [1, 7, 9]);
    assert!(hits(&of(Scope::All, &[Kind::Ack]), all).is_empty());
    let fin = Sight {
        fin: Some(1),
        ..data(5)
    };
    assert_eq!(hits(&of(Scope::Tracked, &[Kind::Fin]), [data(1), fin]), [5]);
    let udp = Rule {
        protos: vec![Proto::Udp],
        ..of(Scope::All, &[Kind::Any])
    };
    assert_eq!(hits(&udp, all), [9]);
    // Bytes: the segment covers one of them.
    let segment = |n: u32| Sight {
        bytes: Some((u64::from(n) * 100, u64::from(n) * 100 + 99)),
        ..data(n)
    };
    let bytes = Rule {
        measure: Measure::Byte,
        first: 199,
        last: Some(300),
        ..rule()
    };
    assert_eq!(hits(&bytes, (0..6).map(segment)), [1, 2, 3]);
}

#[test]
fn chance_repeats_and_hits_its_share() {
    let random = |seed, p| Rule {
        chance: RuleChance::Random {
            seed,
            chance: Chance::of(p).expect("a probability"),
        },
        ..rule()
    };
    let tenth = hits(&random(1, 0.1), (0..20_000).map(data));
    assert_eq!(tenth, hits(&random(1, 0.1), (0..20_000).map(data)));
    assert_ne!(tenth, hits(&random(2, 0.1), (0..20_000).map(data)));
    assert!((1800..2200).contains(&tenth.len()), "{}", tenth.len());
    // Whatever else a rule leaves out, a packet's own decision stays.
    let mut some = random(1, 0.1);
    (some.first, some.every) = (3, 7);
    let chosen = |n: &u32| *n >= 3 && (n - 3).is_multiple_of(7);
    let expected: Vec<u32> = tenth.iter().copied().filter(chosen).collect();
    assert_eq!(hits(&some, (0..20_000).map(data)), expected);
    // Another time is another decision.
    let again = |n| Sight {
        below: true,
        again: n,
        ..data(5)
    };
    let times = (1..1000)
        .map(again)
        .filter(|s| RuleState::default().hits(&random(1, 0.5), s));
    assert!((430..570).contains(&times.count()));
}

#[test]
fn bursts_are_as_long_and_as_often_as_asked() {
    let of = |p: f64| Chance::of(p).expect("a probability");
    let burst = Rule {
        chance: RuleChance::Burst {
            seed: 3,
            good: Chance::NEVER,
            bad: Chance::ALWAYS,
            to_bad: of(0.01),
            to_good: of(0.25),
        },
        ..rule()
    };
    let lost = hits(&burst, (0..100_000).map(data));
    assert_ne!(lost.first(), Some(&0), "it begins in the good state");
    // In the bad state for 0.01 / (0.01 + 0.25) of the packets, 4 in a row.
    assert!((3500..4200).contains(&lost.len()), "{}", lost.len());
    let runs = 1 + lost
        .windows(2)
        .filter(|pair| pair[1] != pair[0] + 1)
        .count();
    let mean = lost.len() as f64 / runs as f64;
    assert!((3.7..4.3).contains(&mean), "{mean}");
}
