// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What connections suffer for others: packets that came by whole and that their receiver did not
//! take, while others recovered from losses of their own, or as many began with MigReq 0.
//!
//! One packet that is lost behind the capture is chance. Here it happens to several connections,
//! and hardly at any other time.

use std::collections::BTreeSet;

use super::{Connection, Finding, Found, Lost, Recovery, Rule};

/// Connections that suffer, and those that they suffer for, at least.
const SEVERAL: usize = 2;
/// Of ten losses, those that have to be explained.
const OF_TEN: usize = 9;

/// A packet that its receiver did not take, and how many connections it may have suffered for.
struct Discarded<'a> {
    recovery: &'a Recovery,
    packet: u64,
    others: usize,
}

/// What connections suffered for others. Packets are compared by their numbers, which are in the
/// order of time.
pub(super) fn findings(connections: &[Connection], recoveries: &[Recovery]) -> Vec<Finding> {
    let behind: Vec<(&Recovery, u64)> = recoveries
        .iter()
        .filter_map(|r| match r.lost {
            Lost::Behind(packet) => Some((r, packet)),
            _ => None,
        })
        .collect();
    let begins = |c: &Connection, packet| {
        let answered = c.first_answer.is_some_and(|answer| answer < packet);
        c.migration_cleared && c.first_packet <= packet && !answered
    };
    let (beginning, others): (Vec<_>, Vec<_>) = behind.iter().partition(|(r, packet)| {
        let mut own = connections.iter();
        own.any(|c| c.number == r.connection && begins(c, *packet))
    });
    let beginning = suffered(beginning, |packet, _| {
        connections.iter().filter(|c| begins(c, packet)).count()
    });
    let neighbours = suffered(others, |packet, connection| {
        let of_others = recoveries.iter().filter(|r| r.connection != connection);
        let busy = of_others.filter(|r| recovers(r, packet));
        busy.map(|r| r.connection).collect::<BTreeSet<_>>().len()
    });
    [
        told(
            Rule::BeginnersDiscarded,
            "connections with MigReq 0 as they began",
            "had begun",
            &beginning,
        ),
        told(
            Rule::NeighboursDiscarded,
            "connections without a loss of their own",
            "others recovered from theirs",
            &neighbours,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Whether a connection was recovering, when a packet came by, from what was lost elsewhere than
/// at the receiver.
fn recovers(r: &Recovery, packet: u64) -> bool {
    let told = matches!(r.found, Found::SequenceNak | Found::ImpliedNak);
    let elsewhere = matches!(r.lost, Lost::Here(_) | Lost::Before);
    let from = r.out_of_order.or(r.nak).map(|cite| cite.packet);
    let to = r.again.or(r.nak).map(|cite| cite.packet);
    let during = from.is_some_and(|from| from <= packet) && to.is_none_or(|to| packet <= to);
    told && elsewhere && during
}

fn suffered<'a>(
    discarded: Vec<&(&'a Recovery, u64)>,
    others: impl Fn(u64, u32) -> usize,
) -> Vec<Discarded<'a>> {
    discarded
        .into_iter()
        .map(|&(recovery, packet)| Discarded {
            recovery,
            packet,
            others: others(packet, recovery.connection),
        })
        .collect()
}

/// A finding, if several connections suffered, nearly always while several others did something.
fn told(rule: Rule, whom: &str, did: &str, all: &[Discarded<'_>]) -> Option<Finding> {
    let explained: Vec<_> = all.iter().filter(|d| d.others >= SEVERAL).collect();
    let connections: BTreeSet<u32> = explained.iter().map(|d| d.recovery.connection).collect();
    if connections.len() < SEVERAL || explained.len() * 10 < all.len() * OF_TEN {
        return None;
    }
    let packets = explained.iter().map(|d| d.packet);
    let (least, most) = (
        explained.iter().map(|d| d.others).min()?,
        explained.iter().map(|d| d.others).max()?,
    );
    let others = match least == most {
        true => least.to_string(),
        false => format!("{least} to {most}"),
    };
    let waits = explained.iter().filter_map(|d| {
        let r = d.recovery;
        r.waited_ns.or(r.generation_ns)
    });
    let longest = waits.max().unwrap_or(0);
    Some(Finding {
        rule,
        connection: None,
        packets: vec![packets.clone().min()?, packets.max()?],
        what: format!(
            "the receiver did not take packets of {} {whom}, while {others} {did}; it cost one {}",
            connections.len(),
            crate::text::span(longest)
        ),
    })
}
