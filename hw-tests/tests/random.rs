// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random traffic and random events, held against the model.

use midwire_driver::RULE_SLOT;
use midwire_hw_tests::traffic::{Traffic, program};
use midwire_hw_tests::{Rig, Settings, check};
use midwire_trace::{Actions, Flags, Proto};
use midwire_virtual_card::Width;
use std::collections::BTreeMap;

const ACTIONS: [(Actions, &str); 6] = [
    (Actions::DROP, "drop"),
    (Actions::ECN, "ecn"),
    (Actions::CORRUPT, "corrupt"),
    (Actions::DELAY, "delay"),
    (Actions::REORDER, "reorder"),
    (Actions::DUPLICATE, "duplicate"),
];

/// A rule was the first to act.
const RULE: &str = "rule";

/// What events did, by action, transport and IP version.
type Coverage = BTreeMap<(&'static str, &'static str, u8), u32>;

fn random(width: Width, seed: u64, frames: usize, covered: &mut Coverage) {
    let program = program(seed, 400);
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
        let version = if record.flags.contains(Flags::IP6) {
            6
        } else {
            4
        };
        let asked = ACTIONS
            .iter()
            .filter(|(action, _)| record.actions.contains(*action));
        let rule = record.slot.is_some_and(|slot| slot & RULE_SLOT != 0);
        for name in asked.map(|(_, name)| *name).chain(rule.then_some(RULE)) {
            *covered.entry((name, transport, version)).or_default() += 1;
        }
    }
}

fn covers_all(width: Width, seeds: std::ops::Range<u64>, frames: usize) {
    let mut covered = Coverage::new();
    for seed in seeds {
        println!("{width:?}, seed {seed}");
        random(width, seed, frames, &mut covered);
    }
    println!("{covered:#?}");
    for action in ACTIONS.into_iter().map(|(_, name)| name).chain([RULE]) {
        for transport in ["TCP", "RoCEv2"] {
            for version in [4, 6] {
                let n = covered.get(&(action, transport, version));
                assert!(
                    n.is_some(),
                    "{action} on {transport} over IPv{version} never came"
                );
            }
        }
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
