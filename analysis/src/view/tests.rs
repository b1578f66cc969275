// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures made record by record.

use super::*;
use midwire_trace::build::{self, Path, TcpSegment};
use midwire_trace::{BlockBuilder, Lane, Nanos};

fn record(tap: Tap, packet_id: u32, ns: u64, actions: Actions) -> Record {
    Record {
        time: Nanos(ns),
        tap,
        packet_id,
        proto: Proto::Tcp,
        connection: Some(2),
        tcp_flags: 0x18,
        f0: 1_000 + packet_id,
        f1: 77,
        f2: 500,
        payload_len: 100,
        actions,
        ..Record::default()
    }
}

fn view(records: &[(Record, &[u8])]) -> View<u16, TcpPacket> {
    let mut block = BlockBuilder::new(4096, 128).expect("a block");
    for (record, snapshot) in records {
        assert!(block.push(*record, Some(snapshot)));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("capture.mwc");
    std::fs::write(&path, block.finish(true, Nanos(0))).expect("a file");
    let capture = Capture::open(&path).expect("a capture");
    tcp(&capture, |record| Some(record.packet_id * 10))
}

#[test]
fn an_untouched_packet_left_as_it_came() {
    let view = view(&[(record(Tap::Ingress, 0, 500, Actions(0)), &[])]);
    let packet = &view.packets[&2][0];
    assert_eq!((packet.at.time_ns, packet.at.left_ns), (500, Some(500)));
    assert_eq!((packet.seq, packet.ack, packet.window), (1_000, 77, 500));
    assert_eq!((packet.payload, packet.at.event), (100, None));
    assert!(!packet.at.lost());
    assert_eq!(view.start_ns, 500);
}

#[test]
fn what_became_of_a_touched_packet_is_in_its_second_record() {
    let ingress = |id, actions| record(Tap::Ingress, id, 1_000 * u64::from(id + 1), actions);
    let egress = |id, ns, actions| record(Tap::Egress, id, ns, actions);
    let view = view(&[
        (ingress(0, Actions::DROP), &[]),
        (ingress(1, Actions::DELAY), &[]),
        (ingress(2, Actions::CORRUPT), &[]),
        (ingress(3, Actions::ECN), &[]),
        (egress(2, 3_100, Actions::CORRUPT), &[]),
        (egress(3, 4_100, Actions::ECN), &[]),
        (egress(1, 9_000, Actions::DELAY), &[]),
    ]);
    let [dropped, delayed, corrupted, marked] = &*view.packets[&2] else {
        panic!("four packets came in: {view:?}");
    };
    assert_eq!((dropped.at.left_ns, dropped.at.event), (None, Some(0)));
    assert_eq!(
        (delayed.at.left_ns, delayed.at.event),
        (Some(9_000), Some(10))
    );
    assert!(delayed.at.delayed && !delayed.at.lost());
    assert!(corrupted.at.corrupted && corrupted.at.lost());
    assert!(marked.at.marked && !marked.at.lost());
    // Records of both taps have numbers, by time: 1000, 2000, 3000, 3100, 4000 …
    assert_eq!((corrupted.at.number, marked.at.number), (3, 5));
}

#[test]
fn copies_leave_after_the_packet_itself() {
    let asked = Actions::REORDER | Actions::DUPLICATE;
    let view = view(&[
        (record(Tap::Ingress, 0, 1_000, asked), &[]),
        (record(Tap::Egress, 0, 5_000, Actions::REORDER), &[]),
        (record(Tap::Egress, 0, 6_000, Actions::DUPLICATE), &[]),
        (record(Tap::Egress, 0, 7_000, Actions::DUPLICATE), &[]),
    ]);
    let packet = &view.packets[&2][0];
    assert_eq!((packet.at.left_ns, packet.at.delayed), (Some(5_000), true));
    assert_eq!(packet.at.copies_ns, [6_000, 7_000]);
}

#[test]
fn an_event_that_the_card_did_not_carry_out_leaves_no_trace() {
    let view = view(&[
        (record(Tap::Ingress, 0, 1_000, Actions::DELAY), &[]),
        (record(Tap::Egress, 0, 1_100, Actions(0)), &[]),
    ]);
    let packet = &view.packets[&2][0];
    assert_eq!(packet.at.left_ns, Some(1_100));
    assert!(!packet.at.delayed);
}

#[test]
fn other_packets_are_counted_and_left_out() {
    let unknown = Record {
        connection: None,
        ..record(Tap::Ingress, 0, 100, Actions(0))
    };
    let roce = Record {
        proto: Proto::Roce,
        ..record(Tap::Ingress, 1, 200, Actions(0))
    };
    let back = Record {
        lane: Lane::BtoA,
        ..record(Tap::Ingress, 0, 300, Actions(0))
    };
    let view = view(&[(unknown, &[]), (roce, &[]), (back, &[])]);
    let [packet] = &*view.packets[&2] else {
        panic!("one packet is of a TCP connection: {view:?}");
    };
    assert_eq!((packet.at.number, packet.at.lane), (3, Lane::BtoA));
    assert_eq!(view.start_ns, 100);
}

#[test]
fn selective_acknowledgements_come_from_the_snapshot() {
    // NOP, NOP, SACK of one block (RFC 2018, 3).
    let mut options = vec![1, 1, 5, 10];
    options.extend(5_000_u32.to_be_bytes());
    options.extend(6_000_u32.to_be_bytes());
    let segment = TcpSegment {
        seq: 1,
        ack: 4_000,
        flags: 0x10,
        window: 1_000,
        options,
    };
    let frame = build::tcp(&Path::ipv4(40000, 5001), &segment, &[]);
    let acknowledgement = Record {
        length: frame.len() as u16,
        ..record(Tap::Ingress, 0, 100, Actions(0))
    };
    let cut = &frame[..40];
    for (snapshot, found) in [(&*frame, vec![(5_000, 6_000)]), (cut, vec![])] {
        let view = view(&[(acknowledgement, snapshot)]);
        assert_eq!(view.packets[&2][0].sack, found);
    }
}
