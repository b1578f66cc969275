// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Identities, checked against the rules and against a model that knows no serial arithmetic.

use std::collections::HashMap;

use midwire_trace::build::{self, Path, TcpSegment};
use midwire_trace::identity::{Identifier, Identity, Place};
use midwire_trace::packet::{Aeth, Bth, Packet, opcode, tcp_flags};
use midwire_trace::{Kind, Lane, Proto, Record, Tap};
use proptest::prelude::*;

fn tcp(seq: u32, flags: u8, payload_len: u16) -> Record {
    Record {
        proto: Proto::Tcp,
        connection: Some(0),
        f0: seq,
        tcp_flags: flags,
        payload_len,
        ..Record::default()
    }
}

fn roce(opcode: u8, psn: u32) -> Record {
    let f0 = u32::from(opcode) << 24 | psn & 0xff_ffff;
    Record {
        proto: Proto::Roce,
        connection: Some(2),
        f0,
        ..Record::default()
    }
}

/// Positions and iterations of one kind.
fn of(identity: &Identity<'_>, kind: Kind) -> Vec<(i64, u32)> {
    let places = identity.places.iter().filter(|place| place.kind == kind);
    places
        .map(|place| (place.position, place.iteration))
        .collect()
}

const ACK: u8 = tcp_flags::ACK;

#[test]
fn segments_of_new_data_count_from_one_and_keep_their_first_byte() {
    // The ISN makes the first segment cross the wrap.
    let isn = 0xffff_fe00;
    let at = |byte: u32| (isn + 1u32).wrapping_add(byte);
    let mut twin = Identifier::new();
    let syn = twin.record(&tcp(isn, tcp_flags::SYN, 0)).unwrap();
    assert_eq!((syn.kind, of(&syn, Kind::Syn)), (Kind::Syn, vec![(1, 1)]));
    for n in 0..5u32 {
        let data = twin.record(&tcp(at(n * 1000), ACK, 1000)).unwrap();
        assert_eq!(of(&data, Kind::Data), [(i64::from(n) + 1, 1)]);
        assert_eq!(
            (data.new, data.below, data.byte),
            (true, false, Some(i64::from(n) * 1000))
        );
        assert_eq!(of(&data, Kind::Any), [(i64::from(n) + 2, 1)]);
    }
    let again = twin.record(&tcp(at(2000), ACK, 1000)).unwrap();
    assert_eq!(of(&again, Kind::Data), [(3, 2)]);
    assert_eq!((again.new, again.below), (false, true));
    // One that covers two first bytes is an iteration of both.
    let both = twin.record(&tcp(at(1500), ACK, 2000)).unwrap();
    assert_eq!(of(&both, Kind::Data), [(3, 3), (4, 2)]);
    // One that covers no first byte is none's.
    let none = twin.record(&tcp(at(1500), ACK, 500)).unwrap();
    assert_eq!(of(&none, Kind::Data), []);
    assert!(none.covers(1999) && !none.covers(2000) && !none.covers(1499));
    // New data behind old data: a new segment, named by its own first byte.
    let mixed = twin.record(&tcp(at(4000), ACK, 1500)).unwrap();
    assert_eq!(of(&mixed, Kind::Data), [(5, 2), (6, 1)]);
    assert_eq!((mixed.new, mixed.below), (true, true));
    let last = twin.record(&tcp(at(4000), ACK, 1500)).unwrap();
    assert_eq!(of(&last, Kind::Data), [(5, 3), (6, 2)]);
}

#[test]
fn a_packet_is_of_several_kinds() {
    let mut twin = Identifier::new();
    twin.record(&tcp(9, tcp_flags::SYN, 0));
    let pure = twin.record(&tcp(10, ACK, 0)).unwrap();
    assert_eq!((pure.kind, of(&pure, Kind::Ack)), (Kind::Ack, vec![(1, 1)]));
    let end = twin.record(&tcp(10, ACK | tcp_flags::FIN, 5)).unwrap();
    assert_eq!(end.kind, Kind::Data);
    assert_eq!(
        (of(&end, Kind::Data), of(&end, Kind::Fin)),
        (vec![(1, 1)], vec![(1, 1)])
    );
    assert_eq!(of(&end, Kind::Ack), []);
    let fin = twin.record(&tcp(15, ACK | tcp_flags::FIN, 0)).unwrap();
    assert_eq!((fin.kind, of(&fin, Kind::Fin)), (Kind::Fin, vec![(2, 1)]));
    let reset = twin.record(&tcp(15, ACK | tcp_flags::RST, 0)).unwrap();
    assert_eq!(
        (reset.kind, of(&reset, Kind::Rst)),
        (Kind::Rst, vec![(1, 1)])
    );
    assert_eq!(of(&reset, Kind::Any), [(5, 1)]);
}

#[test]
fn data_in_a_syn_is_seen_but_no_segment() {
    let mut twin = Identifier::new();
    let syn = twin.record(&tcp(99, tcp_flags::SYN, 10)).unwrap();
    assert_eq!(
        (syn.kind, syn.byte, syn.covers(0)),
        (Kind::Syn, Some(0), false)
    );
    let again = twin.record(&tcp(100, ACK, 10)).unwrap();
    assert_eq!(
        (again.new, again.below, of(&again, Kind::Data)),
        (false, true, vec![])
    );
    let next = twin.record(&tcp(110, ACK, 10)).unwrap();
    assert_eq!((of(&next, Kind::Data), next.byte), (vec![(1, 1)], Some(10)));
}

#[test]
fn a_keepalive_is_not_new() {
    let mut twin = Identifier::new();
    twin.record(&tcp(99, tcp_flags::SYN, 0));
    let probe = twin.record(&tcp(99, ACK, 1)).unwrap();
    assert_eq!(
        (probe.byte, probe.new, probe.below),
        (Some(-1), false, true)
    );
}

#[test]
fn lanes_and_connections_are_apart() {
    let mut twin = Identifier::new();
    twin.record(&tcp(99, tcp_flags::SYN, 0));
    twin.record(&Record {
        lane: Lane::BtoA,
        ..tcp(4999, tcp_flags::SYN | ACK, 0)
    });
    let there = twin.record(&tcp(100, ACK, 10)).unwrap();
    assert_eq!((there.byte, of(&there, Kind::Any)), (Some(0), vec![(2, 1)]));
    let back = twin
        .record(&Record {
            lane: Lane::BtoA,
            ..tcp(5000, ACK, 10)
        })
        .unwrap();
    assert_eq!((back.byte, of(&back, Kind::Data)), (Some(0), vec![(1, 1)]));
    let other = twin
        .record(&Record {
            connection: Some(65534),
            ..tcp(7, ACK, 10)
        })
        .unwrap();
    assert_eq!((other.connection, other.byte), (65534, Some(0)));
    assert!(
        twin.record(&Record {
            tap: Tap::Egress,
            ..tcp(100, ACK, 10)
        })
        .is_none()
    );
    assert!(
        twin.record(&Record {
            connection: None,
            ..tcp(100, ACK, 10)
        })
        .is_none()
    );
}

#[test]
fn a_declared_base_counts() {
    let mut twin = Identifier::new();
    twin.declare(0, Lane::AtoB, 1000);
    assert_eq!(twin.record(&tcp(3000, ACK, 10)).unwrap().byte, Some(2000));
}

#[test]
fn psns_are_relative_and_go_on_through_the_wrap() {
    let mut twin = Identifier::new();
    let first = 0xff_fffe;
    for n in 0..6 {
        let packet = twin.record(&roce(opcode::WRITE_MIDDLE, first + n)).unwrap();
        assert_eq!(of(&packet, Kind::Data), [(i64::from(n), 1)]);
        assert_eq!((packet.new, packet.below, packet.byte), (true, false, None));
    }
    // Go-back-N from 3.
    for n in 3..6 {
        let packet = twin.record(&roce(opcode::WRITE_MIDDLE, first + n)).unwrap();
        assert_eq!(of(&packet, Kind::Data), [(i64::from(n), 2)]);
        assert_eq!((packet.new, packet.below), (false, true));
    }
    let gap = twin
        .record(&roce(opcode::WRITE_MIDDLE, first + 10))
        .unwrap();
    assert_eq!((of(&gap, Kind::Data), gap.new), (vec![(10, 1)], true));
    let late = twin.record(&roce(opcode::WRITE_MIDDLE, first + 8)).unwrap();
    assert_eq!(
        (of(&late, Kind::Data), late.new, late.below),
        (vec![(8, 1)], false, true)
    );
    let before = twin.record(&roce(opcode::WRITE_MIDDLE, first - 2)).unwrap();
    assert_eq!(of(&before, Kind::Data), [(-2, 1)]);
    // A read request has iterations of its own.
    let read = twin.record(&roce(opcode::READ_REQUEST, first + 8)).unwrap();
    assert_eq!(
        (of(&read, Kind::ReadRequest), of(&read, Kind::Data)),
        (vec![(8, 1)], vec![])
    );
}

#[test]
fn answers_do_not_set_where_psns_begin() {
    let mut twin = Identifier::new();
    let nak = Record {
        f1: 0x6000_0001,
        ..roce(opcode::ACK, 500)
    };
    assert_eq!(
        of(&twin.record(&roce(opcode::CNP, 0)).unwrap(), Kind::Cnp),
        [(1, 1)]
    );
    assert_eq!(of(&twin.record(&nak).unwrap(), Kind::Nak), [(1, 1)]);
    let ack = twin.record(&roce(opcode::ACK, 501)).unwrap();
    assert_eq!(
        (of(&ack, Kind::Ack), of(&ack, Kind::Any)),
        (vec![(1, 1)], vec![(3, 1)])
    );
    let data = twin.record(&roce(opcode::SEND_ONLY, 77)).unwrap();
    assert_eq!(of(&data, Kind::Data), [(0, 1)]);
}

fn frame(path: &Path, seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    build::tcp(
        path,
        &TcpSegment {
            seq,
            flags,
            ..TcpSegment::default()
        },
        payload,
    )
}

#[test]
fn connections_are_learnt_in_order_of_appearance() {
    let mut twin =
        Identifier::admitting(|_, packet| packet.tcp().is_none_or(|tcp| tcp.dst_port == 5001));
    let mut number = |lane, frame: &[u8]| {
        let identity = twin.packet(lane, &Packet::parse(frame))?;
        Some((identity.connection, identity.places[0].position))
    };
    let (a, b) = (Path::ipv4(40000, 5001), Path::ipv6(40001, 5001));
    let mut send = |lane, path: &Path, seq, flags| number(lane, &frame(path, seq, flags, b""));
    const SYN: u8 = tcp_flags::SYN;
    assert_eq!(send(Lane::AtoB, &a, 5, ACK), None);
    assert_eq!(send(Lane::AtoB, &a, 9, SYN), Some((0, 1)));
    assert_eq!(send(Lane::BtoA, &a.reversed(), 50, SYN | ACK), Some((0, 1)));
    assert_eq!(send(Lane::AtoB, &Path::ipv4(1, 80), 9, SYN), None);
    assert_eq!(send(Lane::AtoB, &b, 9, SYN), Some((1, 1)));
    assert_eq!(send(Lane::AtoB, &b, 9, SYN), Some((1, 2)));
    // The same endpoints again, later.
    assert_eq!(send(Lane::AtoB, &b, 70_000, SYN), Some((2, 1)));
    assert_eq!(send(Lane::BtoA, &b.reversed(), 3, SYN | ACK), Some((2, 1)));

    let r = Path::ipv4(50000, 0);
    let bth = |qp, psn| Bth {
        opcode: opcode::SEND_ONLY,
        dest_qp: qp,
        psn,
        ..Bth::default()
    };
    let send = |qp, psn| build::roce(&r, &bth(qp, psn), &[], b"....");
    assert_eq!(number(Lane::AtoB, &send(1, 100)), Some((3, 1)));
    assert_eq!(number(Lane::AtoB, &send(2, 100)), Some((4, 1)));
    assert_eq!(number(Lane::AtoB, &send(1, 101)), Some((3, 2)));
    let ack = Bth {
        opcode: opcode::ACK,
        dest_qp: 1,
        ..Bth::default()
    };
    let ack = build::roce(
        &r.reversed(),
        &ack,
        &build::aeth(Aeth {
            syndrome: 0,
            msn: 1,
        }),
        b"",
    );
    assert_eq!(number(Lane::BtoA, &ack), Some((5, 1)));
    assert_eq!(number(Lane::AtoB, &build::udp(&r, b"x")), None);
    assert_eq!(twin.learnt(), 6);
}

/// What the identifier should find, by a model that keeps whole positions and looks at every byte.
#[derive(Default)]
struct Model {
    highest: i64,
    segments: Vec<(i64, u32)>,
}

impl Model {
    fn segment(&mut self, byte: i64, len: u16) -> Vec<(i64, u32)> {
        let covered = byte..byte + i64::from(len);
        let mut places = Vec::new();
        for (number, (first, seen)) in self.segments.iter_mut().enumerate() {
            if covered.contains(first) {
                *seen += 1;
                places.push((number as i64 + 1, *seen));
            }
        }
        if covered.end > self.highest {
            self.highest = covered.end;
            self.segments.push((byte, 1));
            places.push((self.segments.len() as i64, 1));
        }
        places.sort();
        places
    }
}

proptest! {
    /// Any mix of new data, retransmissions and gaps, from any ISN, over several wraps.
    #[test]
    fn tcp_agrees_with_the_model(
        isn: u32,
        steps in prop::collection::vec((-40_000i64..20_000, 1u16..9000, 0u8..8), 1..200),
    ) {
        let mut twin = Identifier::new();
        let mut model = Model::default();
        twin.record(&tcp(isn, tcp_flags::SYN, 0));
        for (step, len, leap) in steps {
            // Now and then a leap of nearly half the sequence space.
            let step = if leap == 0 { 1 << 30 } else { step };
            let byte = (model.highest + step).max(0);
            let seq = (i64::from(isn) + 1 + byte) as u32;
            let identity = twin.record(&tcp(seq, ACK, len)).unwrap();
            prop_assert_eq!(identity.byte, Some(byte));
            prop_assert_eq!(identity.below, byte < model.highest);
            let mut found = of(&identity, Kind::Data);
            found.sort();
            prop_assert_eq!(found, model.segment(byte, len));
        }
    }

    #[test]
    fn roce_agrees_with_the_model(
        first in 0u32..1 << 24,
        steps in prop::collection::vec((-300i64..200, 0u8..8), 1..300),
    ) {
        let mut twin = Identifier::new();
        let mut seen: HashMap<i64, u32> = HashMap::from([(0, 1)]);
        twin.record(&roce(opcode::SEND_MIDDLE, first));
        let mut highest = 0;
        for (step, leap) in steps {
            let psn = highest + if leap == 0 { (1 << 23) - 2 } else { step };
            let identity = twin.record(&roce(opcode::SEND_MIDDLE, (i64::from(first) + psn) as u32));
            let identity = identity.unwrap();
            let iteration = seen.entry(psn).or_default();
            *iteration += 1;
            let place = Place { kind: Kind::Data, position: psn, iteration: *iteration };
            prop_assert_eq!(identity.place(Kind::Data), Some(place));
            prop_assert_eq!((identity.new, identity.below), (psn > highest, psn <= highest));
            highest = highest.max(psn);
        }
    }

    #[test]
    fn any_records_are_named_without_panic(
        bytes in prop::collection::vec(any::<[u8; 12]>(), 0..100),
    ) {
        let mut twin = Identifier::new();
        for b in bytes {
            let f0 = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            let len = u16::from_le_bytes([b[4], b[5]]);
            let mut record = if b[6] & 1 == 0 { tcp(f0, b[7], len) } else { roce(b[7], f0) };
            record.f1 = u32::from(b[8]) << 24;
            record.connection = Some(u16::from_le_bytes([b[9], b[10] & 3]));
            twin.record(&record);
        }
    }
}
