// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random traffic and random events, held against the model.

use midwire_driver::{Ecn, Mended, RULE_SLOT};
use midwire_hw_tests::traffic::{Traffic, program};
use midwire_hw_tests::{Expected, Rig, Settings, check};
use midwire_trace::{Actions, Flags, Packet, Proto};
use midwire_virtual_card::Width;
use std::collections::BTreeMap;

/// What events did, by action, transport and IP version.
type Coverage = BTreeMap<(&'static str, &'static str, u8), u32>;

/// What there is to do to a packet that leaves, and whether it was asked for and done.
fn kinds(e: &Expected) -> [(&'static str, bool); 27] {
    let action = &e.action;
    let done = e.egress.map_or(Actions(0), |record| record.actions);
    let ecn = |ecn| action.ecn == Some(ecn) && done.contains(Actions::ECN);
    let set = action.set.is_some() && done.contains(Actions::SET);
    let corrupt = action.corrupt.is_some() && done.contains(Actions::CORRUPT);
    let (broken, mended) = (action.broken, action.mended);
    let all = Mended {
        ip: true,
        transport: true,
        icrc: true,
    };
    let count = done.0.count_ones();
    let rule = e.ingress.slot.is_some_and(|slot| slot & RULE_SLOT != 0);
    [
        ("drop", action.drop),
        ("ecn not-ect", ecn(Ecn::NotEct)),
        ("ecn ect0", ecn(Ecn::Ect0)),
        ("ecn ect1", ecn(Ecn::Ect1)),
        ("ecn ce", ecn(Ecn::Ce)),
        ("set, nothing mended", set && mended == Mended::default()),
        ("set, some mended", set && mended != Mended::default()),
        ("set, all mended", set && mended == all),
        (
            "corrupt, nothing mended",
            corrupt && mended == Mended::default(),
        ),
        (
            "corrupt, some mended",
            corrupt && mended != Mended::default(),
        ),
        ("corrupt, all mended", corrupt && mended == all),
        ("break fcs", broken.fcs),
        ("break ip", broken.ip),
        ("break transport", broken.transport),
        ("break icrc", broken.icrc),
        ("truncate", done.contains(Actions::TRUNCATE)),
        ("delay", done.contains(Actions::DELAY)),
        ("reorder", done.contains(Actions::REORDER)),
        ("duplicate", action.duplicate.is_some() && !action.drop),
        ("inject", e.answer.is_some()),
        (
            "inject of its own transport",
            e.answer
                .as_ref()
                .is_some_and(|made| Packet::parse(&made.bytes).proto() == e.ingress.proto),
        ),
        ("inject and drop", e.answer.is_some() && action.drop),
        (
            "inject and something else",
            e.answer.is_some() && done != Actions(0),
        ),
        ("two at once", count == 2),
        ("three at once", count == 3),
        ("four or more at once", count > 3),
        ("a rule was the first to act", rule && done != Actions(0)),
    ]
}

fn random(width: Width, seed: u64, frames: usize, covered: &mut Coverage) {
    let program = program(seed, 600);
    let frames = Traffic::new(seed).frames(width, frames);
    let rig = Rig::new(&Settings::new(width));
    let outcome = rig.run(&program, &frames);
    for (_, expected) in check(&rig, width, &program, &frames, &outcome) {
        let record = &expected.ingress;
        let transport = match record.proto {
            Proto::Tcp => "TCP",
            Proto::Roce => "RoCEv2",
            _ => continue,
        };
        let is_ip6 = record.flags.contains(Flags::IP6);
        let version = if is_ip6 { 6 } else { 4 };
        for (kind, happened) in kinds(&expected) {
            *covered.entry((kind, transport, version)).or_default() += u32::from(happened);
        }
    }
}

fn covers_all(width: Width, seeds: std::ops::Range<u64>, frames: usize) {
    let mut covered = Coverage::new();
    for seed in seeds {
        println!("{width:?}, seed {seed}");
        random(width, seed, frames, &mut covered);
    }
    for ((kind, transport, version), n) in &covered {
        println!("{n:6}  {kind}, {transport} over IPv{version}");
    }
    for ((kind, transport, version), n) in covered {
        assert!(n > 0, "{kind} on {transport} over IPv{version} never came");
    }
}

#[test]
fn random_traffic_512() {
    covers_all(Width::W512, 0..8, 3000);
}

#[test]
fn random_traffic_64() {
    covers_all(Width::W64, 100..104, 2000);
}
