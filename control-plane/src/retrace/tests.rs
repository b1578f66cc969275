// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is inferred of connections made up here.

use midwire_trace::build::{Path, TcpSegment, tcp};
use midwire_trace::inside::{Event, Moment};
use midwire_trace::packet::tcp_flags::{ACK, CWR, ECE, FIN, PSH, SYN};
use midwire_trace::{Lane, Nanos};

use super::calls::{self, Call, What};
use super::matching::{Alike, Matching};
use super::settings;
use super::trail::{Before, Offer, Seen, Segment, Trail};

const A: Lane = Lane::AtoB;
const B: Lane = Lane::BtoA;
const RESPONSES: [Nanos; 2] = [Nanos(10_000); 2];

/// A packet at a time in µs, with flags besides ACK.
fn packet(at: u64, lane: Lane, seq: u32, ack: u32, payload: u32, flags: u8) -> Seen {
    Seen {
        number: 0,
        lane,
        made: false,
        before: Before::Nothing,
        time: Nanos(at * 1000),
        left: Some(Nanos(at * 1000)),
        copies: Vec::new(),
        frame: Vec::new(),
        out: None,
        length: 66 + payload,
        segment: Segment {
            flags: flags | ACK,
            seq,
            ack,
            payload,
            window: 1000,
            sack: Vec::new(),
            ecn: 0,
            offer: (flags & SYN != 0).then_some(Offer {
                mss: Some(1460),
                scale: Some(7),
                sack: true,
                timestamps: true,
            }),
        },
    }
}

/// An acknowledgement with a block.
fn sack(at: u64, ack: u32, block: (u32, u32)) -> Seen {
    let mut seen = packet(at, B, 1, ack, 0, 0);
    seen.segment.sack.push(block);
    seen
}

/// A connection that begins with a handshake.
fn trail(packets: Vec<Seen>) -> Trail {
    let mut syn = packet(0, A, 0, 0, 0, SYN);
    syn.segment.flags = SYN;
    let mut all = vec![syn, packet(10, B, 0, 1, 0, SYN), packet(20, A, 1, 1, 0, 0)];
    all.extend(packets);
    for (number, seen) in (1..).zip(&mut all) {
        seen.number = number;
    }
    Trail {
        name: String::new(),
        opener: A,
        ends: ["10.0.0.1:1000", "10.0.0.2:80"].map(|end| end.parse().unwrap()),
        packets: all,
    }
}

fn lost(mut trail: Trail) -> Vec<u64> {
    trail.infer_network();
    let lost = trail.packets.iter().filter(|seen| seen.left.is_none());
    lost.map(|seen| seen.number).collect()
}

#[test]
fn lost_is_what_was_sent_again_before_anybody_had_it() {
    let data = |at, seq| packet(at, A, seq, 1, 1000, 0);
    let first = vec![data(100, 1), data(110, 1001), data(120, 2001)];
    let again = [
        first.clone(),
        vec![
            sack(130, 1001, (2001, 3001)),
            data(145, 1001),
            packet(156, B, 1, 3001, 0, 0),
        ],
    ];
    assert_eq!(lost(trail(again.concat())), [5]);
    // The answer has come, too late for the sender.
    let needless = [
        first.clone(),
        vec![packet(130, B, 1, 3001, 0, 0), data(131, 1001)],
    ];
    assert!(lost(trail(needless.concat())).is_empty());
    // Both have come, as the other end says.
    let twice = [
        first,
        vec![
            data(200, 1001),
            packet(211, B, 1, 3001, 0, 0),
            sack(215, 3001, (1001, 2001)),
        ],
    ];
    assert!(lost(trail(twice.concat())).is_empty());
    // A SYN that nobody answered.
    let mut unanswered = trail(Vec::new());
    let mut syn = unanswered.packets[0].clone();
    (syn.number, syn.time) = (0, Nanos(0));
    for seen in &mut unanswered.packets {
        seen.time = seen.time + Nanos(1_000_000_000);
    }
    unanswered.packets.insert(0, syn);
    assert_eq!(lost(unanswered), [0]);
}

#[test]
fn late_is_what_the_other_end_got_behind_later_ones() {
    let data = |at, seq| packet(at, A, seq, 1, 1000, 0);
    let mut trail = trail(vec![
        data(100, 1),
        data(110, 1001),
        data(120, 2001),
        sack(130, 1001, (2001, 3001)),
        packet(400, B, 1, 3001, 0, 0),
    ]);
    trail.infer_network();
    let left: Vec<_> = (trail.packets[3..6].iter())
        .map(|seen| seen.left.map(|left| left.0))
        .collect();
    // 10 µs before its answer, and a little.
    assert_eq!(left, [Some(100_000), Some(389_800), Some(120_000)]);
}

#[test]
fn an_acknowledgement_was_lost_when_its_bytes_were_sent_again_long_after() {
    let first = vec![
        packet(100, A, 1, 1, 1000, 0),
        packet(110, A, 1001, 1, 1000, PSH),
        packet(115, B, 1, 1001, 0, 0),
        packet(125, B, 1, 2001, 0, 0),
    ];
    let again = |at| packet(at, A, 1001, 1, 1000, PSH);
    let left = |rest: &[Seen]| {
        let mut trail = trail([&first, rest].concat());
        trail.infer_network();
        let left = trail.of(B).skip(1).map(|seen| seen.left.map(|left| left.0));
        left.collect::<Vec<_>>()
    };
    let answer = sack(210_015, 2001, (1001, 2001));
    let came = Some(115_000);
    let told = Some(210_015_000);
    assert_eq!(left(&[again(210_000), answer.clone()]), [came, None, told]);
    // It crossed the one that it tells of.
    assert_eq!(
        left(&[again(135), sack(150, 2001, (1001, 2001))])[1],
        Some(125_000)
    );
    // Before it can have heard of that the sender went on: it had heard the first.
    let new = packet(210_012, A, 2001, 1, 1000, 0);
    let late = left(&[again(210_000), new, answer.clone()]);
    assert_eq!(late, [came, Some(210_001_800), told]);
    // What it answered has come.
    let mut data = packet(130, B, 1, 2001, 100, 0);
    data.segment.flags |= PSH;
    let answered = packet(200_000, A, 2001, 101, 0, 0);
    let all = left(&[data, answered, again(210_000), answer]);
    assert_eq!(all[1], Some(125_000));
}

#[test]
fn marked_is_what_came_last_before_a_mark_was_echoed() {
    let data = |at, seq| {
        let mut seen = packet(at, A, seq, 1, 1000, 0);
        seen.segment.ecn = 2;
        seen
    };
    let mut trail = trail(vec![
        data(100, 1),
        packet(111, B, 1, 1001, 0, 0),
        data(120, 1001),
        packet(131, B, 1, 2001, 0, ECE),
        data(140, 2001),
        packet(151, B, 1, 3001, 0, ECE),
    ]);
    trail.infer_network();
    let ecn: Vec<_> = trail.of(A).map(|seen| seen.segment.ecn).collect();
    assert_eq!(ecn, [0, 0, 2, 3, 2]);
}

/// The same with an IPv4 header that has this identification.
fn identified(mut seen: Seen, id: u16) -> Seen {
    let flags = seen.segment.flags;
    let segment = TcpSegment {
        flags,
        ..TcpSegment::default()
    };
    seen.frame = tcp(&Path::ipv4(1000, 80), &segment, &[]);
    seen.frame[18..20].copy_from_slice(&id.to_be_bytes());
    seen
}

/// With identifications that count up from here, but for those that are missing.
fn numbered(all: Vec<(u16, Seen)>) -> Vec<Seen> {
    all.into_iter()
        .map(|(id, seen)| identified(seen, id))
        .collect()
}

/// Sequence number, end, and what happened before, of a direction behind its SYN.
fn sent(trail: &Trail, lane: Lane) -> Vec<(u32, u32, Before)> {
    let all = trail.of(lane).filter(|seen| !seen.segment.has(SYN));
    all.map(|seen| (seen.segment.seq, seen.segment.end(), seen.before))
        .collect()
}

const RECORDED: Before = Before::Nothing;

#[test]
fn identifications_tell_what_was_lost_before_the_recording() {
    let data = |at, seq| packet(at, A, seq, 1, 1000, 0);
    let ack = |at, ack| packet(at, B, 1, ack, 0, 0);
    let mut trail = trail(numbered(vec![
        (102, data(100, 1)),
        (501, ack(110, 1001)),
        (104, data(120, 2001)),
        (502, sack(130, 1001, (2001, 3001))),
        (105, data(140, 3001)),
        // 503 and 504 did not come, nor did 106, in which 1001 was sent again.
        (107, data(160, 4001)),
        (505, sack(170, 1001, (2001, 5001))),
        (108, data(200, 1001)),
        (506, ack(210, 5001)),
    ]));
    trail.packets[0] = identified(trail.packets[0].clone(), 100);
    trail.packets[2] = identified(trail.packets[2].clone(), 101);
    trail.infer_network();
    let a = [
        (1, 1, RECORDED),
        (1, 1001, RECORDED),
        (1001, 2001, Before::Missing),
        (2001, 3001, RECORDED),
        (3001, 4001, RECORDED),
        (1001, 2001, Before::Missing),
        (4001, 5001, RECORDED),
        (1001, 2001, RECORDED),
    ];
    assert_eq!(sent(&trail, A), a);
    let b = [
        RECORDED,
        RECORDED,
        Before::Missing,
        Before::Missing,
        RECORDED,
        RECORDED,
    ];
    assert_eq!(sent(&trail, B), b.map(|before| (1, 1, before)));
    let lost = trail.packets.iter().filter(|seen| seen.left.is_none());
    assert!(lost.clone().count() == 4 && lost.clone().all(|seen| !seen.is_recorded()));
    // A hole is as long before the packet behind it as the line takes for it.
    let times: Vec<_> = trail.of(A).map(|seen| seen.time).collect();
    assert!(times.is_sorted() && times[4] == Nanos(120_000), "{times:?}");
    assert_eq!(times[3], Nanos(111_280));
}

#[test]
fn a_hole_may_have_been_made_before_something_was_sent_again() {
    let data = |at, seq| packet(at, A, seq, 1, 1000, 0);
    let mut trail = trail(numbered(vec![
        (101, data(100, 1)),
        (501, sack(105, 1, (1, 1001))),
        // 102 and 103 are new, and so is 105.
        (104, data(120, 1)),
        (106, data(130, 4001)),
        (107, data(190, 1001)),
        (108, data(200, 2001)),
        (109, data(210, 3001)),
        (502, packet(220, B, 1, 5001, 0, 0)),
    ]));
    trail.infer_network();
    let missing: Vec<_> = (trail.of(A).enumerate())
        .filter(|(_, seen)| !seen.is_recorded())
        .map(|(nth, seen)| (nth, seen.segment.seq))
        .collect();
    assert_eq!(missing, [(3, 1001), (4, 2001), (6, 3001)]);
}

#[test]
fn identifications_tell_what_was_overtaken() {
    let mut trail = trail(numbered(vec![
        (101, packet(100, A, 1, 1, 1000, 0)),
        (103, packet(120, A, 2001, 1, 1000, 0)),
        (104, packet(130, A, 3001, 1, 1000, 0)),
        (501, sack(131, 1001, (2001, 3001))),
        (502, sack(132, 1001, (2001, 4001))),
        (503, sack(133, 1001, (2001, 4001))),
        // Late enough to have been sent again.
        (102, packet(900, A, 1001, 1, 1000, 0)),
    ]));
    trail.infer_network();
    let overtaken = trail.of(A).nth(3).expect("a packet");
    assert_eq!(
        (overtaken.segment.seq, overtaken.before),
        (1001, Before::Overtaken)
    );
    assert!(overtaken.time < Nanos(120_000), "{overtaken:?}");
    assert_eq!(overtaken.left, Some(Nanos(900_000)));
    assert_eq!(trail.packets.len(), 10);
}

#[test]
fn without_identifications_time_tells_late_from_again() {
    let after = |at| {
        let mut trail = trail(vec![
            packet(100, A, 1, 1, 1000, 0),
            packet(120, A, 2001, 1, 1000, 0),
            sack(128, 1001, (2001, 3001)),
            sack(129, 1001, (2001, 3001)),
            sack(130, 1001, (2001, 3001)),
            // What answers the third one comes at 140.
            packet(at, A, 1001, 1, 1000, 0),
            packet(at + 10, B, 1, 3001, 0, 0),
        ]);
        trail.infer_network();
        sent(&trail, A)
    };
    let first = [(1, 1, RECORDED), (1, 1001, RECORDED)];
    let last = (2001, 3001, RECORDED);
    let late = [(1001, 2001, Before::Overtaken), last];
    assert_eq!(after(139), [&first[..], &late].concat());
    let again = [(1001, 2001, Before::Missing), last, (1001, 2001, RECORDED)];
    assert_eq!(after(141), [&first[..], &again].concat());
}

#[test]
fn what_had_come_before_it_was_recorded_was_not_lost() {
    let mut trail = trail(vec![
        packet(100, A, 1, 1, 1000, 0),
        packet(120, A, 2001, 1, 1000, 0),
        packet(130, B, 1, 3001, 0, 0),
    ]);
    trail.infer_network();
    let missing = trail.packets.iter().find(|seen| !seen.is_recorded());
    let missing = missing.expect("a packet");
    assert_eq!(
        (missing.segment.seq, missing.left),
        (1001, Some(missing.time))
    );
}

#[test]
fn a_write_that_goes_on_has_lost_its_tail() {
    let after = |flags, window| {
        let mut answer = packet(110, B, 1, 1001, 0, 0);
        answer.segment.window = window;
        let mut trail = trail(vec![
            packet(100, A, 1, 1, 1000, flags),
            answer,
            packet(210_000, A, 1001, 1, 1000, PSH),
            packet(210_010, B, 1, 2001, 0, 0),
        ]);
        trail.infer_network();
        let lost = trail.packets.iter().find(|seen| !seen.is_recorded());
        lost.map(|seen| (seen.segment.seq, seen.time < Nanos(1_000_000)))
    };
    assert_eq!(after(0, 1000), Some((1001, true)));
    // It was another write, or could not be sent.
    assert_eq!(after(PSH, 1000), None);
    assert_eq!(after(0, 0), None);
}

#[test]
fn what_was_not_recorded_is_not_counted() {
    let data = |at, seq| packet(at, A, seq, 1, 1000, 0);
    let rest = vec![
        data(120, 2001),
        sack(130, 1001, (2001, 3001)),
        sack(131, 1001, (2001, 3001)),
        sack(132, 1001, (2001, 3001)),
        data(160, 1001),
    ];
    let mut recorded = trail([vec![data(100, 1)], rest.clone()].concat());
    recorded.infer_network();
    let mut replayed = trail([vec![data(100, 1), data(110, 1001)], rest].concat());
    replayed.packets[4].left = None;
    let matching = Matching::of([&recorded, &replayed], Alike::Segments);
    assert!(matching.holds(), "{matching:?}");
    assert_eq!((matching.packets, matching.missing), ([9, 9], [1, 0]));
    // In its place there is something else.
    replayed.packets[4].segment.seq = 1501;
    let matching = Matching::of([&recorded, &replayed], Alike::Segments);
    let departure = matching.departure.expect("a departure");
    assert_eq!((departure.lane, departure.nth), (A, 4));
}

fn scripts(trail: &Trail) -> [Vec<Call>; 2] {
    calls::infer(trail, RESPONSES, [1000; 2]).map(|script| script.0)
}

fn write(at: Option<u64>, bytes: u64, times: u64) -> Call {
    Call {
        at,
        what: What::Write { bytes, times },
    }
}

#[test]
fn requests_have_their_times_and_streams_have_none() {
    let trail = trail(vec![
        packet(50, A, 1, 1, 100, PSH),
        packet(90, B, 1, 101, 1448, 0),
        packet(103, B, 1449, 101, 1448, PSH),
        packet(115, B, 2897, 101, 1448, 0),
        packet(128, B, 4345, 101, 1448, PSH),
        packet(138, A, 101, 5793, 0, 0),
        packet(900, A, 101, 5793, 50, PSH),
        packet(910, B, 5793, 151, 0, 0),
        packet(920, A, 151, 5793, 0, FIN),
    ]);
    let [a, b] = scripts(&trail);
    assert!(a.contains(&write(Some(50_000), 100, 1)), "{a:?}");
    assert!(a.contains(&write(Some(900_000), 50, 1)), "{a:?}");
    let shut = |call: &&Call| call.what == What::Shutdown;
    assert_eq!(a.iter().find(shut).and_then(|call| call.at), Some(920_000));
    assert!(b.contains(&write(Some(90_000), 2896, 2)), "{b:?}");
    assert!(b.iter().all(|call| call.what != What::Shutdown));
}

#[test]
fn calls_are_read_from_what_kernels_noted() {
    let trail = trail(vec![
        packet(50, A, 1, 1, 100, PSH),
        packet(900, A, 101, 1, 1448, 0),
    ]);
    let mut moment = Moment::new(Nanos(48_000), midwire_trace::Port::A, Event::Send, 1);
    moment.bytes = Some(100);
    // This one has waited until after its first byte was sent.
    let mut second = moment.clone();
    (second.time_ns, second.bytes) = (Nanos(5_000_000), Some(4000));
    let mut read = Moment::new(Nanos(2_000_000), midwire_trace::Port::B, Event::Receive, 2);
    read.bytes = Some(60);
    let log = [moment, read, second];
    let [a, b] = calls::from_log(&trail, &log, [Nanos(2_000); 2]);
    assert_eq!(
        a.0[1..3],
        [write(Some(50_000), 100, 1), write(None, 4000, 1)]
    );
    let late = Call {
        at: Some(2_002_000),
        what: What::Read { bytes: 60 },
    };
    assert_eq!(b.0[0], late);
    assert!(
        b.lines(2_000_000_000, 2_000)
            .starts_with("2002000000 read 60\n")
    );
}

#[test]
fn stacks_are_set_as_their_syns_say() {
    let long = |at, seq| packet(at, A, seq, 1, 1448, 0);
    let mut trail = trail(vec![long(100, 1), long(113, 1449), long(126, 2897)]);
    trail.packets[0].segment.flags |= ECE | CWR;
    trail.packets[0].segment.offer = Some(Offer {
        mss: Some(8960),
        scale: None,
        sack: false,
        timestamps: true,
    });
    trail.packets[1].segment.offer = Some(Offer {
        mss: Some(1460),
        ..Offer::default()
    });
    let [a, b] = settings::infer(&trail, RESPONSES).unwrap();
    let set = |host: &crate::plan::LinuxEndpoint, name: &str| {
        let value = host.sysctls.get(&format!("net.ipv4.{name}"));
        value.map(|setting| setting.0.clone())
    };
    assert_eq!((a.mtu, b.mtu), (9000, 1500));
    assert_eq!(a.rate_mbps, Some(1000));
    assert_eq!(a.delay.as_nanos(), 5_000);
    assert_eq!(set(&a, "tcp_sack").as_deref(), Some("0"));
    assert_eq!(set(&a, "tcp_window_scaling").as_deref(), Some("0"));
    assert_eq!(set(&a, "tcp_ecn").as_deref(), Some("1"));
    // It did not offer what it was not asked for, but for timestamps; nor did it take ECN.
    assert_eq!(set(&b, "tcp_sack"), None);
    assert_eq!(set(&b, "tcp_timestamps").as_deref(), Some("0"));
    assert_eq!(set(&b, "tcp_ecn").as_deref(), Some("0"));
}

#[test]
fn the_first_departure_is_the_earliest_of_both_directions() {
    let recorded = trail(vec![
        packet(100, A, 1, 1, 1000, 0),
        packet(110, B, 1, 1001, 0, 0),
        packet(120, A, 1001, 1, 1000, PSH),
    ]);
    let same = Matching::of([&recorded, &recorded], Alike::Segments);
    assert!(same.holds());
    let mut replayed = recorded.clone();
    replayed.packets[4].segment.ack = 501;
    replayed.packets[5].segment.payload = 500;
    let matching = Matching::of([&recorded, &replayed], Alike::Segments);
    let departure = matching.departure.unwrap();
    assert_eq!((departure.lane, departure.nth), (B, 2));
    assert_eq!((departure.at(), matching.content), (Nanos(110_000), 4));
    // Windows and push flags are told of apart, and later is not elsewhere.
    let mut replayed = recorded.clone();
    replayed.packets[5].segment.flags &= !PSH;
    replayed.packets[4].left = Some(Nanos(110_021));
    let matching = Matching::of([&recorded, &replayed], Alike::Segments);
    assert_eq!(matching.departure, None);
    assert_eq!((matching.windows, matching.exact), ((5, Some(6)), 5));
    assert_eq!(matching.first_apart, Some((5, Nanos(21))));
    assert!(!matching.holds());
}
