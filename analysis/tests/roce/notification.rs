// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Congestion notifications: what a limit counts for is told by what it holds back.

use std::collections::HashMap;

use midwire_analysis::roce::{Analysis, Limit, NotificationPoint, Rule, Scope, Settings};
use midwire_trace::build::Path;

use crate::conversation::Conversation;

/// Connections from two addresses, two queue pairs each, to one notification point.
const CONNECTIONS: [(u8, u32); 4] = [(1, 0x101), (1, 0x102), (3, 0x103), (3, 0x104)];

fn switch(c: &mut Conversation, n: usize) {
    let (host, qp) = CONNECTIONS[n];
    c.requester = Path::new(
        ([10, 0, 0, host], 50_000).into(),
        ([10, 0, 0, 2], 4791).into(),
    );
    c.responder = c.requester.reversed();
    c.qps = [qp, 0x200 + qp];
    c.psn = n as u32 * 0x10_0000;
}

/// Every packet of `connections` is marked; who is notified is limited to one notification in
/// `interval` for each `scope`, 1.5 µs after the mark.
fn marked(scope: Option<Scope>, interval: u64, connections: &[usize]) -> Conversation {
    let mut c = Conversation::new(0);
    for &n in connections {
        switch(&mut c, n);
        c.send(0);
        c.ack(0);
    }
    let mut latest: HashMap<u32, u64> = HashMap::new();
    let mut due: Vec<(u64, usize)> = Vec::new();
    for round in 1..300u64 {
        for &n in connections {
            // Not all at the same pace.
            let pace = [1, 2, 3, 5][n];
            if round % pace != 0 {
                continue;
            }
            let now = 1_000_000 + round * 2_000 + n as u64 * 300;
            while let Some((at, n)) = due.first().copied().filter(|(at, _)| *at <= now) {
                due.remove(0);
                switch(&mut c, n);
                c.at(at).cnp();
            }
            switch(&mut c, n);
            c.at(now).marked().send((round / pace) as i64);
            let key = match scope {
                Some(Scope::Ip) => CONNECTIONS[n].0.into(),
                Some(Scope::Port) => 0,
                _ => CONNECTIONS[n].1,
            };
            let before = latest.get(&key).copied();
            if scope.is_none() || before.is_none_or(|before| now - before >= interval) {
                latest.insert(key, now);
                due.push((now + 1_500, n));
                due.sort_unstable();
            }
        }
    }
    for (at, n) in due {
        switch(&mut c, n);
        c.at(at).cnp();
    }
    c
}

fn point(analysis: &Analysis) -> &NotificationPoint {
    assert_eq!(
        analysis.notifications.len(),
        1,
        "{:#?}",
        analysis.notifications
    );
    &analysis.notifications[0]
}

fn rules(analysis: &Analysis) -> Vec<Rule> {
    analysis.findings.iter().map(|f| f.rule).collect()
}

#[test]
fn what_the_limit_counts_for_is_inferred() {
    for scope in [Scope::Qp, Scope::Ip, Scope::Port] {
        let analysis = marked(Some(scope), 50_000, &[0, 1, 2, 3]).analysis();
        assert_eq!(rules(&analysis), []);
        let point = point(&analysis);
        assert_eq!(point.scopes, [scope]);
        let interval = point.interval.expect("several notifications");
        assert!(
            (50_000..54_000).contains(&interval.least_ns),
            "{interval:?}"
        );
        assert_eq!(point.delay.expect("a mark was told of").least_ns, 1_500);
        assert!(point.held_back > 400 && point.marked > point.held_back);
    }
}

#[test]
fn what_the_capture_does_not_tell_apart_stays_open() {
    let scopes = |connections: &[usize]| {
        let analysis = marked(Some(Scope::Port), 50_000, connections).analysis();
        point(&analysis).scopes.clone()
    };
    assert_eq!(scopes(&[0]), [Scope::Qp, Scope::Ip, Scope::Port]);
    assert_eq!(scopes(&[0, 1]), [Scope::Ip, Scope::Port]);
    let unlimited = marked(None, 0, &[0, 1, 2, 3]).analysis();
    assert_eq!(rules(&unlimited), []);
    assert_eq!(point(&unlimited).held_back, 0);
}

#[test]
fn a_limit_that_was_not_asked_for() {
    let settings = |us: u64, scope| Settings {
        notification: Limit {
            notifies: Some(true),
            notification_interval_ns: Some(us * 1_000),
            notification_scope: Some(scope),
        },
        ..Settings::default()
    };
    let found = |us, scope| {
        let trace = marked(Some(Scope::Qp), 50_000, &[0, 1, 2, 3]);
        rules(&trace.analysis_with(settings(us, scope)))
    };
    assert_eq!(found(50, Scope::Qp), []);
    // Hidden: four microseconds were asked for.
    assert_eq!(found(4, Scope::Qp), [Rule::NotificationInterval]);
    assert_eq!(found(100, Scope::Qp), [Rule::NotificationInterval]);
    assert_eq!(found(50, Scope::Port)[0], Rule::NotificationScope);
}

#[test]
fn marks_without_notification_and_the_other_way_round() {
    let mut c = Conversation::new(0);
    c.send(0);
    c.ack(0);
    let mark = c.marked().send(1);
    c.ack(1);
    let analysis = c.analysis();
    assert_eq!(rules(&analysis), [Rule::NotificationMissing]);
    assert_eq!(analysis.findings[0].packets, [mark]);

    c.cnp();
    assert_eq!(rules(&c.analysis()), []);
    let second = c.cnp();
    let analysis = c.analysis();
    assert_eq!(rules(&analysis), [Rule::NotificationUnfounded]);
    assert_eq!(analysis.findings[0].packets, [second]);
}

#[test]
fn a_notification_can_go_with_a_nak() {
    let mut c = Conversation::new(0);
    c.dropped().send(0);
    c.send(1);
    c.nak(0);
    c.cnp();
    c.after(2_000).send(0);
    c.send(1);
    c.ack(1);
    let analysis = c.analysis();
    assert_eq!(rules(&analysis), []);
    assert_eq!(point(&analysis).with_nak, 1);
}
