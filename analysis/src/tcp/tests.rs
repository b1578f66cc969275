// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

const MSS: u32 = 1000;
const ISS: u32 = 0xffff_f000; // wraps within the first segments
const MS: u64 = 1_000_000;

/// Builds the packets of one connection: A sends, B acknowledges.
#[derive(Default)]
struct Script {
    packets: Vec<TcpPacket>,
}

impl Script {
    fn new() -> Self {
        let mut s = Self::default();
        s.push(0, Lane::AtoB, ISS, 0, SYN, 0);
        s.push(MS, Lane::BtoA, 7, ISS.wrapping_add(1), SYN | ACK, 0);
        s.push(2 * MS, Lane::AtoB, ISS.wrapping_add(1), 8, ACK, 0);
        s
    }

    fn push(
        &mut self,
        time_ns: u64,
        lane: Lane,
        seq: u32,
        ack: u32,
        flags: u8,
        payload: u16,
    ) -> &mut TcpPacket {
        let number = self.packets.len() as u64 + 1;
        self.packets.push(TcpPacket {
            at: Passage::untouched(number, lane, time_ns),
            seq,
            ack,
            window: 500,
            flags,
            payload,
            sack: Vec::new(),
        });
        self.packets.last_mut().expect("just pushed")
    }

    /// The n-th segment, from 1.
    fn data(&mut self, time_ns: u64, n: u32) -> &mut TcpPacket {
        self.push(
            time_ns,
            Lane::AtoB,
            ISS.wrapping_add(1 + (n - 1) * MSS),
            8,
            ACK,
            MSS as u16,
        )
    }

    fn drop(&mut self, time_ns: u64, n: u32) {
        self.data(time_ns, n).at.left_ns = None;
    }

    /// Acknowledges everything below segment n.
    fn ack(&mut self, time_ns: u64, n: u32) -> &mut TcpPacket {
        self.push(
            time_ns,
            Lane::BtoA,
            8,
            ISS.wrapping_add(1 + (n - 1) * MSS),
            ACK,
            0,
        )
    }

    fn run(&self) -> Connection {
        analyze(0, &self.packets)
    }
}

#[test]
fn copies_of_an_acknowledgement_count_when_they_leave() {
    let mut s = Script::new();
    s.data(10 * MS, 1);
    s.data(11 * MS, 2);
    s.data(12 * MS, 3);
    let ack = s.ack(20 * MS, 2);
    ack.at.copies_ns = vec![21 * MS, 22 * MS, 23 * MS];
    s.data(24 * MS, 2);
    let found = s.run().retransmissions;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].cause, found[0].duplicate_acks), (Cause::Fast, 3));
    assert_eq!(found[0].reaction_ns, Some(MS));
}

#[test]
fn third_duplicate_makes_a_fast_retransmit() {
    let mut s = Script::new();
    s.data(10 * MS, 1);
    s.drop(11 * MS, 2);
    for n in 3..=5 {
        s.data((9 + u64::from(n)) * MS, n);
    }
    s.ack(15 * MS, 2);
    for t in 16..=18 {
        s.ack(t * MS, 2);
    }
    s.data(20 * MS, 2);
    s.ack(21 * MS, 6);
    let c = s.run();
    let [r] = c.retransmissions.as_slice() else {
        panic!("{:?}", c.retransmissions)
    };
    assert_eq!(
        (r.cause, r.segment, r.transmission, r.byte),
        (Cause::Fast, 2, 2, 1000)
    );
    assert_eq!(
        (r.after_ns, r.duplicate_acks, r.reaction_ns),
        (9 * MS, 3, Some(2 * MS))
    );
    assert!(r.previous_lost);
    assert_eq!(
        (
            c.directions[0].segments,
            c.directions[0].bytes,
            c.directions[0].unneeded
        ),
        (5, 5000, 0)
    );
    assert_eq!(c.handshake_ns, Some(2 * MS));
    assert_eq!(c.directions[0].rtt_far_ns, Some(5 * MS));
}

#[test]
fn selective_acknowledgement_is_evidence_without_three_duplicates() {
    let mut s = Script::new();
    s.drop(10 * MS, 1);
    s.data(10 * MS, 2);
    let above = (ISS.wrapping_add(1 + MSS), ISS.wrapping_add(1 + 2 * MSS));
    s.ack(12 * MS, 1).sack = vec![above];
    s.data(13 * MS, 1);
    let c = s.run();
    assert_eq!(c.retransmissions[0].cause, Cause::Fast);
    assert_eq!(c.retransmissions[0].reaction_ns, Some(MS));
}

#[test]
fn silence_is_a_timeout_and_what_follows_is_its_wake() {
    let mut s = Script::new();
    for n in 1..=3 {
        s.drop(10 * MS, n);
    }
    s.data(230 * MS, 1);
    s.ack(231 * MS, 2);
    s.data(232 * MS, 2);
    s.data(232 * MS, 3);
    let causes: Vec<_> = s
        .run()
        .retransmissions
        .iter()
        .map(|r| (r.segment, r.cause))
        .collect();
    assert_eq!(
        causes,
        [
            (1, Cause::Timeout),
            (2, Cause::AfterTimeout),
            (3, Cause::AfterTimeout)
        ]
    );
}

#[test]
fn lost_twice_counts_transmissions() {
    let mut s = Script::new();
    s.drop(10 * MS, 1);
    s.drop(230 * MS, 1);
    s.data(650 * MS, 1);
    let c = s.run();
    let found: Vec<_> = c
        .retransmissions
        .iter()
        .map(|r| (r.transmission, r.after_ns / MS, r.cause))
        .collect();
    assert_eq!(found, [(2, 220, Cause::Timeout), (3, 420, Cause::Timeout)]);
}

#[test]
fn the_last_segment_soon_again_is_a_probe() {
    let mut s = Script::new();
    s.data(10 * MS, 1);
    s.drop(10 * MS, 2);
    s.ack(11 * MS, 2);
    s.data(30 * MS, 2);
    assert_eq!(s.run().retransmissions[0].cause, Cause::TailProbe);
}

#[test]
fn a_retransmission_of_what_had_passed_is_unneeded() {
    let mut s = Script::new();
    s.data(10 * MS, 1);
    s.data(300 * MS, 1);
    let c = s.run();
    assert_eq!(
        (c.directions[0].retransmitted, c.directions[0].unneeded),
        (1, 1)
    );
}

#[test]
fn keep_alives_are_not_retransmissions() {
    let mut s = Script::new();
    s.data(10 * MS, 1);
    s.ack(11 * MS, 2);
    s.push(900 * MS, Lane::AtoB, ISS.wrapping_add(MSS), 8, ACK, 1);
    assert!(s.run().retransmissions.is_empty());
}

#[test]
fn window_updates_are_not_duplicates() {
    let mut s = Script::new();
    s.drop(10 * MS, 1);
    s.data(10 * MS, 2);
    for (t, window) in [(11, 600), (12, 700), (13, 800)] {
        s.ack(t * MS, 1).window = window;
    }
    s.data(14 * MS, 1);
    let c = s.run();
    assert_eq!(c.retransmissions[0].duplicate_acks, 0);
    assert_eq!(c.retransmissions[0].cause, Cause::Unknown);
}

#[test]
fn a_repeated_syn_is_a_retransmission_of_segment_0() {
    let mut s = Script::default();
    s.push(0, Lane::AtoB, ISS, 0, SYN, 0).at.left_ns = None;
    s.push(1000 * MS, Lane::AtoB, ISS, 0, SYN, 0);
    let c = s.run();
    assert_eq!(
        (c.retransmissions[0].segment, c.retransmissions[0].cause),
        (0, Cause::Timeout)
    );
}
