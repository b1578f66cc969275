// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What connections suffer for others, how fast NICs react, and what their schedulers leave idle.

use midwire_analysis::roce::{self, Analysis, Rule, Settings};
use proptest::prelude::*;

use crate::conversation::{Conversation, Frame, dump, observed};

const TIMEOUT: u64 = 67_108_864;

fn rules(analysis: &Analysis) -> Vec<Rule> {
    let mut rules: Vec<Rule> = analysis.findings.iter().map(|f| f.rule).collect();
    rules.dedup();
    rules
}

fn together(conversations: Vec<Conversation>) -> Analysis {
    let mut frames: Vec<Frame> = Vec::new();
    for (n, mut c) in (0..).zip(conversations) {
        c.relabel([0x1000 + n, 0x2000 + n], 50_000 + n as u16);
        frames.append(&mut c.frames);
    }
    frames.sort_by_key(|frame| frame.time);
    roce::analyze(observed(&frames), Settings::default())
}

/// Loses its first packet at the capture, and recovers within 60 µs.
fn recovering(n: u32) -> Conversation {
    let mut c = Conversation::new(n << 12);
    c.after(u64::from(n) * 200).dropped().send(0);
    c.send(1);
    c.after(3_000).nak(0);
    c.after(60_000).send(0);
    c.send(1);
    c.after(2_000).ack(1);
    c
}

/// Sends a packet at a time; the receiver does not take it, and the timer tells.
fn suffering(n: u32, at: u64, clear: bool) -> Conversation {
    let mut c = Conversation::new(n << 12);
    c.after(at + u64::from(n) * 150).send(0);
    c.after(TIMEOUT).send(0);
    c.after(2_000).ack(0);
    for frame in c.frames.iter_mut().filter(|_| clear) {
        frame.data[43] &= !0x40;
    }
    c
}

#[test]
fn neighbours_that_suffer_are_told_from_chance() {
    let found = |busy: u32, others: u32, at: u64| {
        let busy_ones = (0..busy).map(recovering);
        let others = (busy..busy + others).map(|n| suffering(n, at, false));
        rules(&together(busy_ones.chain(others).collect()))
    };
    assert_eq!(found(12, 24, 20_000), [Rule::NeighboursDiscarded]);
    assert_eq!(found(2, 2, 20_000), [Rule::NeighboursDiscarded]);
    // One alone, for one alone, or before and after that the others recovered.
    assert_eq!(found(12, 1, 20_000), []);
    assert_eq!(found(1, 24, 20_000), []);
    assert_eq!(found(12, 24, 200_000), []);
    assert_eq!(found(0, 24, 20_000), []);
}

#[test]
fn packets_and_connections_are_named() {
    let busy = (0..3).map(recovering);
    let others = (3..7).map(|n| suffering(n, 20_000, false));
    let analysis = together(busy.chain(others).collect());
    let found = &analysis.findings[0];
    for part in ["of 4 connections", "while 3 others", "67.109 ms"] {
        assert!(found.what.contains(part), "{}", found.what);
    }
    let lost: Vec<u64> = (analysis.recoveries.iter())
        .filter_map(|r| match r.lost {
            roce::Lost::Behind(packet) => Some(packet),
            _ => None,
        })
        .collect();
    assert_eq!(found.packets, [lost[0], lost[3]]);
}

#[test]
fn connections_that_begin_with_mig_req_0() {
    let found = |count: u32, clear: bool| {
        let all = (0..count).map(|n| suffering(n, 1_000, clear));
        rules(&together(all.collect()))
    };
    assert_eq!(found(16, true), [Rule::BeginnersDiscarded]);
    assert_eq!(found(16, false), []);
    assert_eq!(found(1, true), []);
}

#[test]
fn slow_naks_and_slow_reactions() {
    let found = |generation: u64, reaction: u64| {
        let mut c = Conversation::new(9);
        c.dropped().send(0);
        c.send(1);
        c.after(generation).nak(0);
        c.after(reaction).send(0);
        c.send(1);
        c.after(2_000).ack(1);
        let analysis = c.analysis();
        let cited = analysis.findings.iter().map(|f| f.packets.clone());
        (rules(&analysis), cited.collect::<Vec<_>>())
    };
    assert_eq!(found(99_000, 99_000).0, []);
    assert_eq!(
        found(101_000, 9_000),
        (vec![Rule::SlowNak], vec![vec![2, 3]])
    );
    assert_eq!(
        found(9_000, 300_000),
        (vec![Rule::SlowReaction], vec![vec![3, 4]])
    );
}

/// Two queue pairs of one NIC in the middle of long writes. Together they fill the line, one
/// packet in 90 ns; then the first is slowed, and the other sends every `step` ns.
fn sharing(classes: [u8; 2], slowed: [bool; 2], step: u64) -> Conversation {
    let mut c = Conversation::new(0);
    let switch = |c: &mut Conversation, n: usize| {
        c.qps = [0x100 + n as u32, 0x200 + n as u32];
        c.psn = (n as u32) << 20;
        c.requester.traffic_class = classes[n] << 2;
    };
    let mut now = 2_000_000;
    let mut next = [0; 2];
    let mut send = |c: &mut Conversation, n: usize, at: u64| {
        switch(c, n);
        c.at(at).write(0, 1 << 18, next[n]);
        next[n] += 1;
    };
    for round in 0..400 {
        send(&mut c, round % 2, now);
        now += 90;
    }
    for (n, slowed) in slowed.into_iter().enumerate() {
        switch(&mut c, n);
        c.at(now + 7).ack(150);
        if slowed {
            c.at(now + 9).cnp();
        }
    }
    for round in 0..1_000 {
        now += step;
        send(&mut c, 1, now);
        if round % 50 == 0 {
            send(&mut c, 0, now + 45);
        }
    }
    c
}

fn held(c: &Conversation) -> bool {
    let analysis = c.analysis();
    analysis
        .findings
        .iter()
        .any(|f| f.rule == Rule::NotWorkConserving)
}

#[test]
fn a_class_that_is_held_to_its_share() {
    assert!(held(&sharing([0, 8], [true, false], 180)));
    // It takes what the other leaves.
    assert!(!held(&sharing([0, 8], [true, false], 92)));
    // It was told to slow down itself.
    assert!(!held(&sharing([0, 8], [true, true], 180)));
    // What classes there are is not known.
    assert!(!held(&sharing([0, 0], [true, false], 180)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// What a class leaves idle though it may have it, from nothing to nearly half of the line.
    #[test]
    fn any_share_of_the_line(step in 90..190u64) {
        let c = sharing([0, 8], [true, false], step);
        // Between its share (180 ns a packet) and the whole line it is not held to anything.
        let expected = step > 162;
        prop_assert!(held(&c) == expected || (157..168).contains(&step), "{step}\n{}", dump(&c.frames[..9]));
    }
}
