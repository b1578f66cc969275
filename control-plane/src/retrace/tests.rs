// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is inferred of connections made up here.

use midwire_trace::inside::{Event, Moment};
use midwire_trace::packet::tcp_flags::{ACK, CWR, ECE, FIN, PSH, SYN};
use midwire_trace::{Lane, Nanos};

use super::calls::{self, Call, What};
use super::matching::{Alike, Matching};
use super::settings;
use super::trail::{Offer, Seen, Segment, Trail};

const A: Lane = Lane::AtoB;
const B: Lane = Lane::BtoA;
const RESPONSES: [Nanos; 2] = [Nanos(10_000); 2];

/// A packet at a time in µs, with flags besides ACK.
fn packet(at: u64, lane: Lane, seq: u32, ack: u32, payload: u32, flags: u8) -> Seen {
    Seen {
        number: 0,
        lane,
        made: false,
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
