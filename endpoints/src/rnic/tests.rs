// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two NICs on a wire that loses, holds back, doubles and breaks what a test names.

use midwire_trace::Psn;
use midwire_trace::chance::mix;
use midwire_trace::packet::{Packet, Roce, opcode};
use midwire_trace::units::line_bytes;

use super::*;
use crate::Port;
use crate::agent::Flow;

const DELAY: Picoseconds = MICROSECOND / 2;
const MILLISECOND: Picoseconds = 1000 * MICROSECOND;

fn config(port: Port) -> Config {
    let last = 1 + port as u8;
    Config {
        mac: [2, 0, 0, 0, 0, last],
        addresses: vec![[10, 0, 0, last].into()],
        byte_time: 80,
        link_delay: DELAY,
        latency: Latency::default(),
        classes: vec![1],
        notification_point: NotificationPoint::default(),
        reaction_point: ReactionPoint::default(),
        faults: Vec::new(),
    }
}

fn transfer(operations: &[Operation]) -> RdmaTransfer {
    RdmaTransfer {
        from: Port::A,
        operations: operations.to_vec(),
        qps: 1,
        messages: 4,
        size: 10_000,
        mtu: 1024,
        tx_depth: 1,
        barrier: false,
        multi_gid: false,
        timeout: 10,
        retries: 7,
        rnr_retries: 7,
        min_rnr_timer: 12,
        max_reads: 16,
        receives: 128,
        repost: 0,
        first_psn: None,
        classes: vec![0],
        dscp: 0,
        together: false,
    }
}

/// A packet as it passes the wire.
struct Seen {
    at: Picoseconds,
    from: Port,
    roce: Roce,
    /// Of its flow: the PSN relative to the first packet.
    psn: u32,
    /// How often this PSN was seen with an opcode.
    iteration: u32,
}

/// What the wire does to a packet.
enum Fate {
    Pass,
    Drop,
    /// After this time.
    Late(Picoseconds),
    /// Again after this time.
    Twice(Picoseconds),
    Corrupt,
    Mark,
}

struct Wire {
    bed: Testbed,
    seen: Vec<Seen>,
    /// Frames on their way: arrival, order of sending, port.
    flying: Vec<(Picoseconds, usize, Port, Frame)>,
}

impl Wire {
    fn new(bed: Testbed) -> Self {
        Self {
            bed,
            seen: Vec::new(),
            flying: Vec::new(),
        }
    }

    /// Runs until nothing happens any more.
    fn run(&mut self, mut fate: impl FnMut(&Seen) -> Fate) {
        self.bed.start(MICROSECOND);
        let ports = Port::ALL;
        let mut order = 0;
        loop {
            let acts = ports.iter().filter_map(|port| self.bed.nic(*port).next());
            let lands = self.flying.iter().map(|(at, ..)| *at);
            let Some(now) = acts.chain(lands).min() else {
                break;
            };
            assert!(now < 100_000 * MILLISECOND, "it does not come to rest");
            let end = now + DELAY;
            self.flying.sort_by_key(|(at, order, ..)| (*at, *order));
            while let Some((at, _, port, frame)) =
                self.flying.first().filter(|(at, ..)| *at < end).cloned()
            {
                self.flying.remove(0);
                self.bed.receive(port, at, frame);
            }
            for port in ports {
                let mut sent = Vec::new();
                self.bed.advance(port, end, &mut sent);
                for frame in sent {
                    order += 1;
                    self.carry(order, port, frame, &mut fate);
                }
            }
        }
    }

    fn carry(
        &mut self,
        order: usize,
        from: Port,
        mut frame: Frame,
        fate: &mut impl FnMut(&Seen) -> Fate,
    ) {
        let packet = Packet::parse(&frame.data);
        assert_eq!(packet.malformed, None);
        let roce = *packet.roce().expect("RoCE");
        assert_eq!(packet.expected_icrc(&frame.data), roce.icrc);
        let mut before = self
            .seen
            .iter()
            .filter(|seen| seen.from == from && seen.roce.bth.dest_qp == roce.bth.dest_qp)
            .filter(|seen| seen.roce.bth.opcode != opcode::CNP);
        let base = before
            .clone()
            .next()
            .map_or(roce.bth.psn, |s| s.roce.bth.psn);
        let psn = roce.bth.psn.wrapping_sub(base) & 0xff_ffff;
        let again = before.by_ref().filter(|seen| seen.psn == psn).count() as u32;
        let seen = Seen {
            at: frame.at,
            from,
            roce,
            psn,
            iteration: again + 1,
        };
        let at = frame.at + line_bytes(frame.data.len()) * 80 + DELAY;
        let to = from.other();
        let fate = fate(&seen);
        self.seen.push(seen);
        match fate {
            Fate::Drop => {}
            Fate::Pass => self.flying.push((at, order, to, frame)),
            Fate::Late(time) => self.flying.push((at + time, order, to, frame)),
            Fate::Twice(time) => {
                self.flying.push((at, order, to, frame.clone()));
                self.flying.push((at + time, order, to, frame));
            }
            Fate::Corrupt => {
                let last = frame.data.len() - 1;
                frame.data[last] ^= 1;
                self.flying.push((at, order, to, frame));
            }
            Fate::Mark => {
                frame.data[15] |= 3;
                self.flying.push((at, order, to, frame));
            }
        }
    }

    fn counters(&self, port: Port) -> &Counters {
        self.bed.nic(port).counters()
    }

    /// Every byte arrived once and right.
    #[track_caller]
    fn assert_whole(&self) -> RdmaReport {
        let report = self.bed.report(0).expect("a report");
        assert!(report.completed, "{report:#?}");
        report
    }

    /// When the packets passed that `which` picks.
    fn times(&self, which: impl Fn(&Seen) -> bool) -> Vec<Picoseconds> {
        let picked = self.seen.iter().filter(|seen| which(seen));
        picked.map(|seen| seen.at).collect()
    }
}

fn run(transfer: &RdmaTransfer, fate: impl FnMut(&Seen) -> Fate) -> Wire {
    run_on([config(Port::A), config(Port::B)], transfer, fate)
}

/// Both NICs with a fault.
fn faulty(fault: Fault) -> [Config; 2] {
    Port::ALL.map(|port| Config {
        faults: vec![fault],
        ..config(port)
    })
}

fn run_on(configs: [Config; 2], transfer: &RdmaTransfer, fate: impl FnMut(&Seen) -> Fate) -> Wire {
    let bed = Testbed::new(configs, std::slice::from_ref(transfer), 1);
    let mut wire = Wire::new(bed);
    wire.run(fate);
    wire
}

fn is_nak(seen: &Seen) -> bool {
    seen.roce.aeth.is_some_and(|aeth| aeth.syndrome == 0x60)
}

const ALL: [&[Operation]; 6] = [
    &[Operation::Send],
    &[Operation::Write],
    &[Operation::Read],
    &[Operation::FetchAdd],
    &[Operation::CompareSwap],
    &[Operation::Send, Operation::Read],
];

#[test]
fn every_verb_completes_at_every_mtu_and_depth() {
    for operations in ALL {
        for (mtu, tx_depth) in [(256, 1), (512, 4), (1024, 2), (2048, 16), (4096, 3)] {
            for size in [1, 256, 4095, 10_000] {
                let wire = run(
                    &RdmaTransfer {
                        mtu,
                        tx_depth,
                        size,
                        qps: 3,
                        ..transfer(operations)
                    },
                    |_| Fate::Pass,
                );
                let report = wire.assert_whole();
                assert_eq!(report.messages, 12);
                for port in Port::ALL {
                    let counted = wire.counters(port);
                    assert_eq!(counted.duplicate_request + counted.out_of_sequence, 0);
                    assert_eq!(counted.local_ack_timeout_err, 0);
                }
            }
        }
    }
}

#[test]
fn a_lost_write_is_sent_again_from_there_on_after_one_nak() {
    for operation in [Operation::Write, Operation::Send] {
        let wire = run(&transfer(&[operation]), |seen| {
            match (seen.from, seen.psn, seen.iteration) {
                (Port::A, 3, 1) => Fate::Drop,
                _ => Fate::Pass,
            }
        });
        wire.assert_whole();
        assert_eq!(wire.counters(Port::A).packet_seq_err, 1);
        assert_eq!(wire.counters(Port::B).out_of_sequence, 6);
        assert_eq!(wire.counters(Port::A).local_ack_timeout_err, 0);
        let naks = wire.times(is_nak);
        let fourth = wire.times(|seen| seen.from == Port::A && seen.psn == 4)[0];
        let again = wire.times(|seen| seen.from == Port::A && seen.psn == 3)[1];
        assert_eq!(naks.len(), 1);
        let line = line_bytes(1024 + 58) * 80;
        assert_eq!(naks[0], fourth + line + DELAY + 2 * MICROSECOND);
        assert_eq!(
            again,
            naks[0] + line_bytes(62) * 80 + DELAY + 2 * MICROSECOND
        );
        for psn in 0..10 {
            let times = wire.times(|seen| seen.from == Port::A && seen.psn == psn);
            assert_eq!(times.len(), if psn < 3 { 1 } else { 2 }, "PSN {psn}");
        }
    }
}

#[test]
fn a_lost_response_makes_the_requester_read_again_from_there_on() {
    let wire = run(&transfer(&[Operation::Read]), |seen| {
        match (seen.from, seen.psn, seen.iteration) {
            (Port::B, 3, 1) => Fate::Drop,
            _ => Fate::Pass,
        }
    });
    wire.assert_whole();
    assert_eq!(wire.counters(Port::A).implied_nak_seq_err, 1);
    assert_eq!(wire.counters(Port::A).local_ack_timeout_err, 0);
    assert_eq!(wire.counters(Port::B).duplicate_request, 1);
    let requests: Vec<_> = wire
        .seen
        .iter()
        .filter_map(|seen| {
            let reth = seen.roce.reth?;
            Some((seen.psn, reth.va & 0xff_ffff, reth.dma_len))
        })
        .collect();
    assert_eq!(
        requests[..3],
        [
            (0, 0, 10_000),
            (3, 3072, 10_000 - 3072),
            (10, 10_000, 10_000)
        ]
    );
}

#[test]
fn a_lost_tail_takes_the_timeout_of_the_specification() {
    for (operation, loser) in [
        (Operation::Write, Port::A),
        (Operation::Send, Port::A),
        (Operation::Read, Port::B),
        (Operation::FetchAdd, Port::A),
        (Operation::FetchAdd, Port::B),
        // A lost acknowledgement.
        (Operation::Write, Port::B),
    ] {
        let mut lost = 0;
        let wire = run(
            &RdmaTransfer {
                messages: 1,
                ..transfer(&[operation])
            },
            |seen| {
                let tail = match operation {
                    Operation::FetchAdd => 0,
                    Operation::Write if loser == Port::B => 0,
                    _ => 9,
                };
                match seen.from == loser && seen.psn == tail && lost < 2 {
                    true => {
                        lost += 1;
                        Fate::Drop
                    }
                    false => Fate::Pass,
                }
            },
        );
        wire.assert_whole();
        assert_eq!(wire.counters(Port::A).local_ack_timeout_err, 2);
        if operation == Operation::Write && loser == Port::A {
            let times = |psn| wire.times(|seen| seen.psn == psn && seen.from == Port::A);
            // 4.096 µs · 2^10, twice: from the packet that asks to the first that goes again.
            assert_eq!(times(0)[1] - times(9)[0], 4_194_304_000);
            assert_eq!(times(0)[2] - times(9)[1], 4_194_304_000);
        }
    }
}

#[test]
fn the_retry_count_is_kept_and_the_queue_pair_fails() {
    for retries in [0, 1, 7] {
        let wire = run(
            &RdmaTransfer {
                retries,
                tx_depth: 3,
                ..transfer(&[Operation::Write])
            },
            |seen| match (seen.from, seen.psn) {
                (Port::A, 9) => Fate::Drop,
                _ => Fate::Pass,
            },
        );
        let report = wire.bed.report(0).unwrap();
        assert!(!report.completed);
        assert_eq!(
            report.qps[0].error.as_deref(),
            Some("retry counter exceeded")
        );
        let tries = wire.times(|seen| seen.from == Port::A && seen.psn == 9);
        assert_eq!(tries.len(), 1 + usize::from(retries));
        assert_eq!(wire.counters(Port::A).req_cqe_error, 3);
        assert_eq!(wire.counters(Port::A).req_cqe_flush_error, 2);
    }
}

#[test]
fn a_receiver_that_is_not_ready_is_asked_again_after_its_time() {
    let base = RdmaTransfer {
        receives: 1,
        repost: 2 * MILLISECOND,
        messages: 3,
        ..transfer(&[Operation::Send])
    };
    let wire = run(&base, |_| Fate::Pass);
    wire.assert_whole();
    // 0.64 ms four times until the receive is there again.
    assert_eq!(wire.counters(Port::B).out_of_buffer, 8);
    assert_eq!(wire.counters(Port::A).packet_seq_err, 0);
    let naks = wire.times(|seen| seen.roce.aeth.is_some_and(|a| a.syndrome == 0x20 | 12));
    let again = wire.times(|seen| seen.from == Port::A && seen.psn == 10);
    assert_eq!(
        again[1],
        naks[0] + line_bytes(62) * 80 + DELAY + 640 * MICROSECOND
    );

    let limited = RdmaTransfer {
        rnr_retries: 2,
        ..base
    };
    let wire = run(&limited, |_| Fate::Pass);
    let report = wire.bed.report(0).unwrap();
    assert_eq!(
        report.qps[0].error.as_deref(),
        Some("RNR retry counter exceeded")
    );
    assert_eq!(wire.counters(Port::A).rnr_nak_retry_err, 1);
}

#[test]
fn a_broken_icrc_is_a_loss_that_is_counted() {
    let wire = run(&transfer(&[Operation::Write]), |seen| {
        match (seen.from, seen.psn, seen.iteration) {
            (Port::A, 5, 1) => Fate::Corrupt,
            _ => Fate::Pass,
        }
    });
    wire.assert_whole();
    assert_eq!(wire.counters(Port::B).rx_icrc_encapsulated, 1);
    assert_eq!(wire.counters(Port::A).packet_seq_err, 1);
}

#[test]
fn acknowledgements_are_coalesced() {
    let wire = run(
        &RdmaTransfer {
            size: 64,
            messages: 100,
            tx_depth: 100,
            ..transfer(&[Operation::Write])
        },
        |_| Fate::Pass,
    );
    wire.assert_whole();
    let acks = wire.times(|seen| seen.from == Port::B).len();
    assert!((2..60).contains(&acks), "{acks} acknowledgements");
}

#[test]
fn psns_wrap_with_losses_around_the_wrap() {
    for operations in ALL {
        let transfer = RdmaTransfer {
            messages: 8,
            first_psn: Some(Psn::new(0xff_fffb)),
            ..transfer(operations)
        };
        let mut wrapped = false;
        let wire = run(&transfer, |seen| {
            wrapped |= seen.roce.bth.psn < 0x1000;
            match seen.iteration == 1 && seen.psn % 5 == 4 {
                true => Fate::Drop,
                false => Fate::Pass,
            }
        });
        assert!(wrapped);
        wire.assert_whole();
    }
}

/// A wire that treats packets by chance.
fn weather(seed: u64) -> impl FnMut(&Seen) -> Fate {
    let mut state = seed;
    move |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let dice = mix(state);
        let time = (dice >> 32) % (20 * MICROSECOND);
        match dice % 100 {
            0..3 => Fate::Drop,
            3..5 => Fate::Corrupt,
            5..8 => Fate::Late(time),
            8..11 => Fate::Twice(time),
            11..14 => Fate::Mark,
            _ => Fate::Pass,
        }
    }
}

#[test]
fn whatever_the_wire_does_every_byte_arrives_once() {
    let mut completed = 0;
    for seed in 0..60 {
        let operations = ALL[seed as usize % ALL.len()];
        let transfer = RdmaTransfer {
            qps: 1 + (seed % 4) as u32,
            messages: 12,
            tx_depth: 1 + seed % 5,
            mtu: 256 << (seed % 5),
            barrier: seed % 2 == 0,
            ..transfer(operations)
        };
        let wire = run(&transfer, weather(seed));
        let report = wire.bed.report(0).expect("a report");
        assert_eq!(report.wrong_bytes, 0, "seed {seed}");
        // In such weather a packet may be lost eight times.
        let failed = report.qps.iter().any(|qp| qp.error.is_some());
        assert!(report.completed || failed, "seed {seed}: {report:#?}");
        completed += u32::from(report.completed);
    }
    assert!(completed > 50, "{completed} of 60");
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let packets = |seed| {
        let transfer = RdmaTransfer {
            qps: 3,
            ..transfer(&[Operation::Write])
        };
        let wire = run(&transfer, weather(seed));
        let told = wire
            .seen
            .iter()
            .map(|s| (s.at, s.roce.bth.psn, s.roce.icrc));
        told.collect::<Vec<_>>()
    };
    assert_eq!(packets(3), packets(3));
    assert_ne!(packets(3), packets(4));
}

#[test]
fn a_barrier_keeps_queue_pairs_together() {
    let wire = run(
        &RdmaTransfer {
            qps: 3,
            barrier: true,
            ..transfer(&[Operation::Write])
        },
        |seen| match (seen.psn, seen.from, seen.iteration) {
            (2, Port::A, 1) => Fate::Drop,
            _ => Fate::Pass,
        },
    );
    wire.assert_whole();
    let nic = wire.bed.nic(Port::A);
    let flows = nic.transfer(0).flows();
    for round in 0..3 {
        let ended = flows
            .iter()
            .map(|flow| flow.messages[round].completed)
            .max();
        for flow in flows {
            assert!(Some(flow.messages[round + 1].posted) >= ended);
        }
    }
}

#[test]
fn congestion_is_notified_once_an_interval_and_slows_the_sender() {
    let big = RdmaTransfer {
        messages: 1,
        size: 1 << 20,
        ..transfer(&[Operation::Write])
    };
    let clear = run(&big, |_| Fate::Pass);
    let marked = run(&big, |seen| match seen.from {
        Port::A => Fate::Mark,
        Port::B => Fate::Pass,
    });
    let cnps = marked.times(|seen| seen.roce.bth.opcode == opcode::CNP);
    assert!(cnps.len() > 10);
    assert!(cnps.windows(2).all(|w| w[1] - w[0] >= 4 * MICROSECOND));
    let counted = marked.counters(Port::B);
    assert_eq!(counted.np_cnp_sent, cnps.len() as u64);
    assert_eq!(counted.np_ecn_marked_roce_packets, 1024);
    assert_eq!(marked.counters(Port::A).rp_cnp_handled, cnps.len() as u64);
    let time = |wire: &Wire| wire.assert_whole().duration_ns.unwrap();
    assert!(time(&marked) > 10 * time(&clear));
    // The line's rate is reached when nothing slows it: 1 MiB in 1024 packets of 1106 bytes.
    assert!(time(&clear) < 95_000, "{} ns", time(&clear));
}

#[test]
fn first_psns_differ_by_seed() {
    let first = |seed| {
        let transfer = transfer(&[Operation::Send]);
        let bed = Testbed::new([config(Port::A), config(Port::B)], &[transfer], seed);
        Psn::new(bed.report(0).unwrap().qps[0].first_psn.into())
    };
    assert_eq!(first(1), first(1));
    assert_ne!(first(1), first(2));
}

/// SENDs, READs and, the other way, WRITEs together, then SENDs again. The last to end is neither
/// the first nor the last of the group.
#[test]
fn transfers_run_together() {
    let of = |operation, from, size, together| RdmaTransfer {
        from,
        size,
        together,
        qps: 2,
        ..transfer(&[operation])
    };
    let transfers = [
        of(Operation::Send, Port::A, 10_000, false),
        of(Operation::Read, Port::A, 100_000, true),
        of(Operation::Write, Port::B, 50_000, true),
        of(Operation::Send, Port::A, 1_000, false),
    ];
    let run = || {
        let mut wire = Wire::new(Testbed::new(clean(), &transfers, 1));
        let flows = wire.bed.flows();
        let [send, .., read] = flows[..8] else {
            panic!("{flows:?}")
        };
        // The first packet of data of either.
        wire.run(|seen| {
            let is =
                |flow: Flow| seen.from == flow.from && seen.roce.bth.dest_qp == flow.queue_pair;
            match (is(send) || is(read)) && seen.iteration == 1 && seen.psn == 0 {
                true => Fate::Drop,
                false => Fate::Pass,
            }
        });
        wire
    };
    let wire = run();
    let spans: Vec<_> = (wire.bed.flows().chunks(4))
        .map(|flows| {
            let own = wire.times(|seen| {
                let mut flows = flows.iter();
                flows.any(|f| f.from == seen.from && f.queue_pair == seen.roce.bth.dest_qp)
            });
            (own[0], *own.last().unwrap())
        })
        .collect();
    for (n, transfer) in transfers.iter().enumerate() {
        let report = wire.bed.report(n).unwrap();
        assert!(report.completed, "{report:#?}");
        assert_eq!(report.bytes, 8 * transfer.size);
    }
    assert!(spans[..3].iter().all(|(begin, _)| *begin < 2 * MICROSECOND));
    let end = spans[..3].iter().map(|(_, end)| *end).max().unwrap();
    assert_eq!(end, spans[1].1);
    let pause = 100 * MICROSECOND;
    let next = spans[3].0;
    assert!((end + pause..end + pause + 2 * MICROSECOND).contains(&next));
    assert_eq!(run().times(|_| true), wire.times(|_| true));
}

// ---- faults: with the switch, and without ----

fn clean() -> [Config; 2] {
    [config(Port::A), config(Port::B)]
}

/// Figure 10: goodputs of two queue pairs, with packets of the first marked in two of three cases.
#[test]
fn ets_that_does_not_conserve_work_wastes_what_a_slowed_class_leaves() {
    let goodputs = |mut configs: [Config; 2], classes: &[usize], marks: bool| {
        for config in &mut configs {
            config.classes = vec![50, 50];
        }
        let transfer = RdmaTransfer {
            qps: 2,
            messages: 4,
            size: 1 << 20,
            classes: classes.to_vec(),
            ..transfer(&[Operation::Write])
        };
        let mut first = None;
        let wire = run_on(configs, &transfer, |seen| {
            let qp = seen.roce.bth.dest_qp;
            let is_first = *first.get_or_insert(qp) == qp;
            match marks && seen.from == Port::A && is_first && seen.psn % 50 == 49 {
                true => Fate::Mark,
                false => Fate::Pass,
            }
        });
        let report = wire.assert_whole();
        [0, 1].map(|qp| report.qps[qp].goodput_bps.unwrap() / 1_000_000_000)
    };
    let both = |[a, b]: [u64; 2]| (40..50).contains(&a) && (40..50).contains(&b);
    let spare = |[a, b]: [u64; 2]| a < 30 && b > 60;
    let bad = || faulty(Fault::EtsNotWorkConserving);
    for configs in [clean, bad] {
        assert!(both(goodputs(configs(), &[0, 1], false)));
    }
    assert!(spare(goodputs(clean(), &[0, 1], true)));
    assert!(spare(goodputs(clean(), &[0], true)));
    let [slowed, other] = goodputs(bad(), &[0, 1], true);
    assert!(slowed < 30 && (40..50).contains(&other), "{slowed} {other}");
}

/// Figure 11: 36 connections READ ten messages of 20 kB; some lose their fifth packet.
#[test]
fn from_twelve_noisy_neighbours_on_the_innocent_suffer() {
    let innocent = |configs, lossy: usize| {
        let transfer = RdmaTransfer {
            qps: 36,
            messages: 10,
            size: 20_000,
            timeout: 14,
            ..transfer(&[Operation::Read])
        };
        let mut known = Vec::new();
        let wire = run_on(configs, &transfer, |seen| {
            if seen.from == Port::A {
                return Fate::Pass;
            }
            let qp = seen.roce.bth.dest_qp;
            if !known.contains(&qp) {
                known.push(qp);
            }
            let lossy = known.iter().position(|k| *k == qp).unwrap() < lossy;
            match lossy && seen.psn == 4 && seen.iteration == 1 {
                true => Fate::Drop,
                false => Fate::Pass,
            }
        });
        wire.assert_whole();
        let flows = wire.bed.nic(Port::A).transfer(0).flows();
        let messages = flows.iter().skip(lossy).flat_map(|flow| &flow.messages);
        let worst = CompletionTimes::of(messages).unwrap().max_ns;
        (worst, wire.counters(Port::A).rx_discards_phy)
    };
    let bad = || faulty(Fault::NoisyNeighbour);
    for (configs, lossy) in [(clean(), 12), (bad(), 0), (bad(), 8)] {
        let (worst, discards) = innocent(configs, lossy);
        assert!(worst < 1_000_000 && discards == 0, "{lossy}: {worst} ns");
    }
    for lossy in [12, 16] {
        let (worst, discards) = innocent(bad(), lossy);
        assert!(worst > 67_000_000 && discards > 100, "{lossy}: {worst} ns");
    }
}

#[test]
fn many_queue_pairs_with_mig_req_0_begin_slowly() {
    let discards = |sender, qps| {
        let receiver = Config {
            faults: vec![Fault::MigReqSlowStart],
            ..config(Port::B)
        };
        let transfer = RdmaTransfer {
            qps,
            messages: 5,
            size: 100_000,
            // Longer than a queue pair begins.
            timeout: 12,
            ..transfer(&[Operation::Send])
        };
        let wire = run_on([sender, receiver], &transfer, |_| Fate::Pass);
        wire.assert_whole();
        wire.counters(Port::B).rx_discards_phy
    };
    let [sender, _] = faulty(Fault::MigReqClear);
    assert_eq!(discards(sender.clone(), 15), 0);
    assert_eq!(discards(config(Port::A), 16), 0);
    // Of 98 packets in the first message, 64 are taken.
    assert_eq!(discards(sender, 16), 16 * (98 - 64));
}

#[test]
fn stuck_counters_stand_still() {
    let big = |operation| RdmaTransfer {
        size: 100_000,
        ..transfer(&[operation])
    };
    let marks = |configs| {
        run_on(configs, &big(Operation::Write), |seen| match seen.from {
            Port::A => Fate::Mark,
            Port::B => Fate::Pass,
        })
    };
    let wire = marks(faulty(Fault::CnpSentStuck));
    assert_eq!(wire.bed.counters(Port::B)["cnpSent"], 0);
    assert!(wire.bed.counters(Port::A)["cnpHandled"] > 0);
    let counted = marks(clean()).bed.counters(Port::B);
    assert!(counted["cnpSent"] > 0 && counted["cnpSent"] == counted["np_cnp_sent"]);

    let losses = |configs| {
        let wire = run_on(configs, &big(Operation::Read), |seen| {
            match (seen.from, seen.psn, seen.iteration) {
                (Port::B, 50, 1) => Fate::Drop,
                _ => Fate::Pass,
            }
        });
        wire.assert_whole();
        let counters = wire.counters(Port::A);
        (counters.implied_nak_seq_err, counters.local_ack_timeout_err)
    };
    assert_eq!(losses(clean()), (1, 0));
    assert_eq!(losses(faulty(Fault::ImpliedNakSeqErrStuck)), (0, 0));
}

/// When notifications left, with every packet of two queue pairs marked.
fn notifications(scope: CnpScope, interval: Picoseconds, faults: &[Fault]) -> Vec<(u32, u64)> {
    let mut configs = clean();
    for config in &mut configs {
        config.faults = faults.to_vec();
        config.notification_point.scope = scope;
        config.notification_point.min_time_between_cnps = interval;
        config.reaction_point.enabled = false;
        config.addresses.push([10, 0, 0, config.mac[5] + 10].into());
    }
    let transfer = RdmaTransfer {
        qps: 4,
        messages: 2,
        size: 500_000,
        multi_gid: true,
        ..transfer(&[Operation::Write])
    };
    let wire = run_on(configs, &transfer, |seen| match seen.from {
        Port::A => Fate::Mark,
        Port::B => Fate::Pass,
    });
    let cnps = (wire.seen.iter()).filter(|seen| seen.roce.bth.opcode == opcode::CNP);
    cnps.map(|seen| (seen.roce.bth.dest_qp, seen.at)).collect()
}

#[test]
fn notifications_are_rationed_by_port_address_or_queue_pair() {
    let interval = 20 * MICROSECOND;
    let count = |scope| notifications(scope, interval, &[]).len() as i64;
    let port = count(CnpScope::Port);
    assert!((15..20).contains(&port), "{port}");
    assert!((count(CnpScope::Ip) - 2 * port).abs() <= 4);
    assert!((count(CnpScope::Qp) - 4 * port).abs() <= 8);
}

#[test]
fn a_hidden_interval_is_kept_whatever_was_asked() {
    let shortest = |faults: &[Fault]| {
        let cnps = notifications(CnpScope::Port, 4 * MICROSECOND, faults);
        cnps.windows(2).map(|w| w[1].1 - w[0].1).min().unwrap()
    };
    assert!(shortest(&[]) < 6 * MICROSECOND);
    assert!(shortest(&[Fault::HiddenCnpInterval]) > 45 * MICROSECOND);
}

#[test]
fn adaptive_retransmission_has_times_and_a_count_of_its_own() {
    let tail = RdmaTransfer {
        messages: 1,
        size: 1000,
        timeout: 14,
        ..transfer(&[Operation::Write])
    };
    let tries = |configs| {
        let wire = run_on(configs, &tail, |_| Fate::Drop);
        let times = wire.times(|_| true);
        let waits = times
            .windows(2)
            .map(|w| (w[1] - w[0]) / (100 * MICROSECOND));
        waits.collect::<Vec<_>>()
    };
    // In tenths of a millisecond.
    assert_eq!(tries(clean()), [671; 7]);
    let adaptive = tries(faulty(Fault::AdaptiveRetransmission));
    assert_eq!(adaptive[..7], [55, 41, 83, 167, 251, 671, 1342]);
    assert_eq!(adaptive.len(), 10);
}

#[test]
fn slow_reactions_take_their_time() {
    let slower = |fault, operation, loser: Port| {
        let time = |configs| {
            let one = RdmaTransfer {
                messages: 1,
                timeout: 20,
                ..transfer(&[operation])
            };
            let wire = run_on(configs, &one, |seen| {
                match seen.from == loser && seen.psn == 3 && seen.iteration == 1 {
                    true => Fate::Drop,
                    false => Fate::Pass,
                }
            });
            wire.assert_whole().duration_ns.unwrap()
        };
        time(faulty(fault)) - time(clean())
    };
    let nak = slower(Fault::SlowNakReaction, Operation::Write, Port::A);
    assert_eq!(nak, 298_000);
    let read = slower(Fault::SlowReadNak, Operation::Read, Port::B);
    assert_eq!(read, 82_998_000);
    assert_eq!(slower(Fault::LateNak, Operation::Write, Port::A), 8_000);
}
