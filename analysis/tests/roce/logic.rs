// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Retransmission logic: each conversation as the specification has it gives no finding, each
//! fault put into it gives its own.

use midwire_analysis::roce::{
    self, Analysis, Cite, Found, Lost, Recovery, Rule, Seen, Settings, Timer, Verb,
};
use midwire_trace::Nanos;

use crate::conversation::Conversation;

fn rules(analysis: &Analysis) -> Vec<Rule> {
    analysis.findings.iter().map(|f| f.rule).collect()
}

fn only(analysis: &Analysis) -> &Recovery {
    assert_eq!(analysis.recoveries.len(), 1, "{:#?}", analysis.recoveries);
    &analysis.recoveries[0]
}

fn packet(cite: Option<Cite>) -> Option<u64> {
    cite.map(|cite| cite.packet)
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    NoNak,
    SecondNak,
    NakTooHigh,
    AckOfMissing,
    TooFarBack,
    NotFarEnough,
    OnlyTheLost,
    NoReason,
}

/// A write of 8 packets whose fourth is lost here.
fn lost_write(psn: u32, fault: Fault) -> Conversation {
    let mut c = Conversation::new(psn);
    for n in 0..3 {
        c.write(0, 8, n);
    }
    c.ack(2);
    c.dropped().write(0, 8, 3);
    c.write(0, 8, 4);
    c.write(0, 8, 5);
    match fault {
        Fault::NakTooHigh => {
            c.after(900).nak(4);
        }
        Fault::AckOfMissing => {
            c.after(900).ack(5);
        }
        Fault::NoNak | Fault::NoReason => {}
        _ => {
            c.after(900).nak(3);
        }
    }
    c.write(0, 8, 6);
    if fault == Fault::SecondNak {
        c.nak(3);
    }
    if fault == Fault::NoNak {
        c.after(70_000_000);
    }
    let from = match fault {
        Fault::TooFarBack => 1,
        Fault::NotFarEnough | Fault::NakTooHigh => 4,
        Fault::AckOfMissing => 6,
        _ => 3,
    };
    c.after(1_900).write(0, 8, from);
    let rest = if fault == Fault::OnlyTheLost {
        7
    } else {
        from + 1
    };
    for n in rest..8 {
        c.write(0, 8, n);
    }
    if fault != Fault::NotFarEnough && fault != Fault::OnlyTheLost {
        c.after(1_000).ack(7);
    }
    c
}

#[test]
fn a_nak_and_go_back_n() {
    // The second begins just before the PSNs wrap.
    for psn in [1000, 0xff_fffe] {
        let analysis = lost_write(psn, Fault::None).analysis();
        assert_eq!(rules(&analysis), []);
        let r = only(&analysis);
        assert_eq!((r.verb, r.position), (Verb::Write, 3));
        assert_eq!(r.psn, (psn + 3) & 0xff_ffff);
        assert_eq!((r.lost, r.found), (Lost::Here(5), Found::SequenceNak));
        assert_eq!(packet(r.out_of_order), Some(6));
        assert_eq!((packet(r.nak), packet(r.again)), (Some(8), Some(10)));
        assert_eq!((r.from, r.requests), (Some(3), 4));
        // 5 and 6 came at 100 ns, the NAK 1 µs later; one packet, and 2 µs later the reaction.
        assert_eq!((r.generation_ns, r.reaction_ns), (Some(1_100), Some(2_100)));
        assert_eq!(r.broken, []);
        let [c] = &analysis.connections[..] else {
            panic!("{:?}", analysis.connections)
        };
        assert_eq!((c.first_psn, c.mtu), (psn, Some(1024)));
        assert_eq!((c.requester.qp, c.responder.qp), (Some(0x111), Some(0x222)));
        assert_eq!((c.counts.requests, c.counts.again), (12, 4));
        assert_eq!(c.responder_round_trip_ns, Some(1_100));
        assert_eq!(r.generation_round_trip_ns, Some(1_100));
    }
}

#[test]
fn each_fault_has_its_finding() {
    for (fault, expected) in [
        (Fault::NoNak, Rule::NakMissing),
        (Fault::SecondNak, Rule::NakRepeated),
        (Fault::NakTooHigh, Rule::NakSkips),
        (Fault::AckOfMissing, Rule::AckUnfounded),
        (Fault::TooFarBack, Rule::ResumedBelow),
        (Fault::NotFarEnough, Rule::ResumedAbove),
        (Fault::OnlyTheLost, Rule::NotGoBackN),
        (Fault::NoReason, Rule::Unprovoked),
    ] {
        let analysis = lost_write(0xff_fffe, fault).analysis();
        let rules = rules(&analysis);
        assert!(rules.contains(&expected), "{expected:?}: {rules:?}");
        let others = [Rule::NakMissing, Rule::Unprovoked];
        assert!(
            rules
                .iter()
                .all(|rule| *rule == expected || others.contains(rule)),
            "{expected:?}: {rules:?}"
        );
        let cited = &analysis.findings[0].packets;
        assert!(!cited.is_empty() && cited.iter().all(|n| (1..=14).contains(n)));
        if expected != Rule::AckUnfounded {
            assert!(
                analysis.recoveries[0].broken.contains(&expected),
                "{expected:?}"
            );
        }
    }
}

#[test]
fn a_loss_before_and_behind_the_capture() {
    let mut before = lost_write(7, Fault::None);
    before.frames.remove(4);
    let analysis = before.analysis();
    assert_eq!(rules(&analysis), []);
    let r = only(&analysis);
    assert_eq!((r.lost, packet(r.out_of_order)), (Lost::Before, Some(5)));

    let mut behind = lost_write(7, Fault::None);
    behind.frames[4].seen = midwire_analysis::roce::Seen::Passing;
    let analysis = behind.analysis();
    assert_eq!(rules(&analysis), []);
    let r = only(&analysis);
    assert_eq!((r.lost, packet(r.out_of_order)), (Lost::Behind(5), Some(6)));
    assert_eq!(r.generation_ns, Some(1_100));

    // Broken before it came.
    let mut broken = lost_write(7, Fault::None);
    broken.frames[4].seen = midwire_analysis::roce::Seen::Passing;
    let end = broken.frames[4].data.len();
    broken.frames[4].data[end - 9] ^= 1;
    let analysis = broken.analysis();
    assert_eq!((rules(&analysis), analysis.broken), (vec![], 1));
    assert_eq!(only(&analysis).lost, Lost::Here(5));
}

#[test]
fn a_nak_without_a_loss() {
    let mut c = Conversation::new(0);
    c.send(0);
    c.ack(0);
    c.send(1);
    let nak = c.nak(2);
    c.send(2);
    c.ack(2);
    let analysis = c.analysis();
    assert_eq!(rules(&analysis), [Rule::NakUnfounded]);
    assert_eq!(analysis.findings[0].packets, [nak]);
}

/// The last packet is lost time and again, and sent after `waits`.
fn timeouts(waits: &[u64]) -> Conversation {
    let mut c = Conversation::new(0xff_ffff);
    c.send(0);
    c.ack(0);
    c.dropped().send(1);
    for (n, wait) in waits.iter().enumerate() {
        c.after(wait - 100);
        if n + 1 < waits.len() {
            c.dropped();
        }
        c.send(1);
    }
    c.ack(1);
    c
}

const TIMEOUT_14: u64 = 67_108_864;

#[test]
fn timeouts_and_retries() {
    let settings = Settings {
        timer: Timer {
            timeout: Some(14),
            retry_count: Some(2),
        },
        ..Settings::default()
    };
    let analysis = timeouts(&[TIMEOUT_14, 3 * TIMEOUT_14]).analysis_with(settings.clone());
    assert_eq!(rules(&analysis), []);
    let [first, second] = &analysis.recoveries[..] else {
        panic!("{:?}", analysis.recoveries)
    };
    assert_eq!((first.found, first.lost), (Found::Timeout, Lost::Here(3)));
    assert_eq!((first.waited_ns, first.retry), (Some(TIMEOUT_14), Some(1)));
    assert_eq!((second.lost, second.retry), (Lost::Here(4), Some(2)));
    assert_eq!(packet(second.again), Some(5));

    for (waits, expected) in [
        (&[TIMEOUT_14 - 1_001][..], Rule::TimeoutTooEarly),
        (&[4 * TIMEOUT_14 + 1_001], Rule::TimeoutTooLate),
        (&[TIMEOUT_14; 3], Rule::TooManyRetries),
    ] {
        assert_eq!(
            rules(&timeouts(waits).analysis_with(settings.clone())),
            [expected]
        );
    }
    // As exact as a clock with steps of 1 µs.
    let exact = timeouts(&[TIMEOUT_14 - 1_000, 4 * TIMEOUT_14 + 1_000]);
    assert_eq!(rules(&exact.analysis_with(settings.clone())), []);
    // Without knowing the setting: one explains times up to four times as long.
    assert_eq!(
        rules(&timeouts(&[TIMEOUT_14, 4 * TIMEOUT_14]).analysis()),
        []
    );
    let adaptive = timeouts(&[5_600_000, 4_100_000, 8_400_000, 16_700_000, 25_100_000]);
    assert_eq!(rules(&adaptive.analysis()), [Rule::TimeoutVaries]);
    // Progress in between begins a new count.
    let mut c = timeouts(&[TIMEOUT_14; 2]);
    c.dropped().send(2);
    c.after(TIMEOUT_14).send(2);
    c.ack(2);
    let analysis = c.analysis_with(settings);
    assert_eq!(rules(&analysis), []);
    assert_eq!(analysis.recoveries[2].retry, Some(1));
}

/// A packet that an event touched has a record of its leaving; one behind it has only that of its
/// coming, which is the earlier of the two.
#[test]
fn what_counts_for_the_receiver_is_the_order_of_leaving() {
    let mut c = Conversation::new(5);
    c.dropped().send(0);
    c.send(1);
    c.send(0);
    c.after(5_000).ack(1);
    let arriving = |latency: u64| {
        let mut packets: Vec<_> = c.observed().collect();
        packets[2].seen = Seen::Delivered;
        packets[1].arrives = Nanos(packets[1].time.0 + latency);
        roce::analyze(packets, Settings::default())
    };
    assert_eq!(rules(&arriving(101)), []);
    assert_eq!(rules(&arriving(99)), [Rule::AckUnfounded]);
}

#[test]
fn a_lost_acknowledgement() {
    let mut c = Conversation::new(5);
    for n in 0..3 {
        c.send(n);
    }
    let ack = c.dropped().ack(2);
    c.after(TIMEOUT_14).send(0);
    // The responder says how far it has got; the rest needn't be sent again.
    c.ack(2);
    c.send(3);
    c.ack(3);
    let analysis = c.analysis();
    assert_eq!(rules(&analysis), []);
    let r = only(&analysis);
    assert_eq!((r.found, r.lost), (Found::Timeout, Lost::Answer(ack)));
}

#[test]
fn only_one_nak_is_owed() {
    // The packet is lost twice: the second time only the timer tells.
    let mut c = Conversation::new(0);
    c.dropped().send(0);
    c.send(1);
    c.nak(0);
    let second = c.dropped().send(0);
    c.send(1);
    c.after(TIMEOUT_14).send(0);
    c.send(1);
    c.ack(1);
    let analysis = c.analysis();
    assert_eq!(rules(&analysis), []);
    let found: Vec<_> = analysis
        .recoveries
        .iter()
        .map(|r| (r.found, r.lost))
        .collect();
    assert_eq!(
        found,
        [
            (Found::SequenceNak, Lost::Here(1)),
            (Found::Timeout, Lost::Here(second))
        ]
    );
}

#[test]
fn a_tail_that_only_the_timer_misses() {
    // All comes again from what is not acknowledged, but the last packet was lost.
    let mut c = Conversation::new(0);
    c.send(0);
    c.send(1);
    let lost = c.dropped().send(2);
    c.after(TIMEOUT_14).send(0);
    c.send(1);
    c.send(2);
    c.ack(2);
    let analysis = c.analysis();
    assert_eq!(rules(&analysis), []);
    let [r] = &analysis.recoveries[..] else {
        panic!("{:?}", analysis.recoveries)
    };
    assert_eq!((r.position, r.lost), (2, Lost::Here(lost)));
    assert_eq!(r.from, Some(0));
}

#[test]
fn a_receiver_that_is_not_ready() {
    // Timer 1: 10 µs.
    let conversation = |wait: u64| {
        let mut c = Conversation::new(0);
        c.send(0);
        c.send(1);
        c.answer(0, 0x21);
        c.after(wait - 100).send(0);
        c.send(1);
        c.ack(1);
        c.analysis()
    };
    let analysis = conversation(10_000);
    assert_eq!(rules(&analysis), []);
    let r = only(&analysis);
    assert_eq!((r.found, r.lost), (Found::NotReady, Lost::Nothing));
    assert_eq!(rules(&conversation(9_999)), [Rule::RnrTooEarly]);
}

#[test]
fn a_nak_that_is_not_obeyed() {
    let conversation = |silence: u64| {
        let mut c = Conversation::new(0);
        c.dropped().send(0);
        c.send(1);
        c.nak(0);
        c.after(silence).send(2);
        c.analysis()
    };
    let analysis = conversation(1_000);
    assert_eq!((rules(&analysis), only(&analysis).again), (vec![], None));
    assert_eq!(rules(&conversation(1_000_000_000)), [Rule::NotResumed]);
}

#[test]
fn what_is_lost_at_the_end_is_told() {
    let mut c = Conversation::new(0);
    c.send(0);
    c.ack(0);
    let lost = c.dropped().send(1);
    let analysis = c.analysis();
    let r = only(&analysis);
    assert_eq!(
        (r.found, r.lost, r.position),
        (Found::NotYet, Lost::Here(lost), 1)
    );
}

#[derive(Clone, Copy, PartialEq)]
enum ReadFault {
    None,
    FromTheBeginning,
    TooHigh,
    TooLow,
    WrongLength,
    WrongAddress,
    WrongResponse,
    OneTooMany,
    SecondNotAgain,
}

/// Two reads at once, of 6 and 2 packets; the third response is lost here.
fn lost_response(psn: u32, fault: ReadFault) -> Conversation {
    let mut c = Conversation::new(psn);
    c.read(0, 6, 0);
    c.read(6, 2, 6);
    c.after(1_000);
    for n in 0..6 {
        if n == 2 {
            c.dropped();
        }
        c.response(0, 6, n);
    }
    c.response(6, 2, 6);
    let from = match fault {
        ReadFault::FromTheBeginning => 0,
        ReadFault::TooHigh => 3,
        ReadFault::TooLow => 1,
        _ => 2,
    };
    c.after(1_900);
    match fault {
        ReadFault::WrongLength => c.read_of(2, 0x1800, 3 * 1024),
        ReadFault::WrongAddress => c.read_of(2, 0x1000, 4 * 1024),
        _ => c.read(0, 6, from),
    };
    // Still on its way.
    c.response(6, 2, 7);
    match fault {
        ReadFault::SecondNotAgain => c.read(8, 2, 8),
        _ => c.read(6, 2, 6),
    };
    let (first, count) = match fault {
        ReadFault::WrongResponse => (1, 5),
        ReadFault::OneTooMany => (2, 5),
        ReadFault::WrongLength => (2, 3),
        _ => (from, 6 - from),
    };
    c.after(2_700);
    for n in first..first + count {
        c.response(first, count, n);
    }
    if fault == ReadFault::None || fault == ReadFault::FromTheBeginning {
        c.response(6, 2, 6);
        c.response(6, 2, 7);
    }
    c
}

#[test]
fn a_read_is_asked_for_again() {
    for psn in [0, 0xff_fffd] {
        let analysis = lost_response(psn, ReadFault::None).analysis();
        assert_eq!(rules(&analysis), []);
        let r = only(&analysis);
        assert_eq!((r.verb, r.position), (Verb::Read, 2));
        assert_eq!((r.lost, r.found), (Lost::Here(5), Found::ImpliedNak));
        assert_eq!(packet(r.out_of_order), Some(6));
        assert_eq!((packet(r.nak), packet(r.again)), (Some(10), Some(13)));
        assert_eq!((r.from, r.requests), (Some(2), 2));
        // Responses 3, 4, 5 and 6 at 100 ns, then 2 µs; the response one request, one response
        // and 2.8 µs later.
        assert_eq!((r.generation_ns, r.reaction_ns), (Some(2_300), Some(3_000)));
        let c = &analysis.connections[0];
        assert_eq!((c.counts.implied_naks, c.counts.responses), (1, 14));
    }
    let analysis = lost_response(0, ReadFault::FromTheBeginning).analysis();
    assert_eq!(rules(&analysis), []);
    assert_eq!(only(&analysis).from, Some(0));
}

#[test]
fn each_fault_of_a_read_has_its_finding() {
    for (fault, expected) in [
        (ReadFault::TooHigh, Rule::ResumedAbove),
        (ReadFault::TooLow, Rule::ResumedBelow),
        (ReadFault::WrongLength, Rule::ReadExtent),
        (ReadFault::WrongAddress, Rule::ReadExtent),
        (ReadFault::WrongResponse, Rule::ResponseMisplaced),
        (ReadFault::OneTooMany, Rule::ResponseCount),
        (ReadFault::SecondNotAgain, Rule::NotGoBackN),
    ] {
        let analysis = lost_response(0xff_fffd, fault).analysis();
        let mut rules = rules(&analysis);
        rules.dedup();
        assert_eq!(rules, [expected], "{:#?}", analysis.findings);
    }
}

#[test]
fn a_lost_read_request_and_a_lost_last_response() {
    let mut c = Conversation::new(9);
    let request = c.dropped().read(0, 2, 0);
    c.after(TIMEOUT_14).read(0, 2, 0);
    c.response(0, 2, 0);
    let response = c.dropped().response(0, 2, 1);
    let again = c.after(TIMEOUT_14).read(0, 2, 1);
    c.response(1, 1, 1);
    let analysis = c.analysis();
    assert_eq!(rules(&analysis), []);
    let found: Vec<_> = (analysis.recoveries.iter())
        .map(|r| (r.found, r.lost, r.position))
        .collect();
    assert_eq!(
        found,
        [
            (Found::Timeout, Lost::Here(request), 0),
            (Found::Timeout, Lost::Here(response), 1)
        ]
    );
    assert_eq!(packet(analysis.recoveries[1].again), Some(again));
}

/// A requester that has asked for a response again may leave it to its timer to ask once more.
#[test]
fn a_response_that_is_lost_twice() {
    for (waits, found) in [(2_000, Found::ImpliedNak), (TIMEOUT_14, Found::Timeout)] {
        let mut c = Conversation::new(7);
        c.read(0, 3, 0);
        c.after(1_000).response(0, 3, 0);
        c.dropped().response(0, 3, 1);
        c.response(0, 3, 2);
        c.after(2_000).read(0, 3, 1);
        let lost = c.after(1_000).dropped().response(1, 2, 1);
        c.response(1, 2, 2);
        c.after(waits).read(0, 3, 1);
        c.after(1_000).response(1, 2, 1);
        c.response(1, 2, 2);
        let analysis = c.analysis_with(Settings {
            timer: Timer {
                timeout: Some(14),
                retry_count: None,
            },
            ..Settings::default()
        });
        assert_eq!(rules(&analysis), []);
        let [first, second] = &analysis.recoveries[..] else {
            panic!("{:#?}", analysis.recoveries)
        };
        assert_eq!(first.found, Found::ImpliedNak);
        assert_eq!((second.found, second.lost), (found, Lost::Here(lost)));
    }
}

#[test]
fn a_later_acknowledgement_implies_a_nak() {
    let mut c = Conversation::new(3);
    c.read(0, 1, 0);
    c.send(1);
    c.dropped().response(0, 1, 0);
    let ack = c.ack(1);
    c.read(0, 1, 0);
    c.send(1);
    c.response(0, 1, 0);
    c.ack(1);
    let analysis = c.analysis();
    assert_eq!(rules(&analysis), []);
    let r = only(&analysis);
    assert_eq!(
        (r.found, packet(r.out_of_order)),
        (Found::ImpliedNak, Some(ack))
    );
}

#[test]
fn a_response_lost_behind_the_capture() {
    let mut c = lost_response(0, ReadFault::None);
    c.frames[4].seen = midwire_analysis::roce::Seen::Passing;
    let analysis = c.analysis();
    assert_eq!(rules(&analysis), []);
    let r = only(&analysis);
    assert_eq!((r.found, r.lost), (Found::ImpliedNak, Lost::Behind(5)));
    assert_eq!(packet(r.out_of_order), Some(6));
}

#[test]
fn connections_are_numbered_as_the_card_does() {
    let mut c = Conversation::new(0);
    // A datagram, of the connection manager as a rule, comes first.
    c.packet(0, 0x64, 7, &[0; 8], 256);
    c.relabel([1, 1], 50_001);
    c.qps = [0x111, 0x222];
    c.write(0, 1, 0);
    c.ack(0);
    let analysis = c.analysis();
    let numbers: Vec<_> = analysis.connections.iter().map(|c| c.number).collect();
    assert_eq!((analysis.other_transports, numbers), (1, vec![1]));
}
