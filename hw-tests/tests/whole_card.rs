// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the card does as a whole: identities one by one, a ring that nobody empties, the same
//! run twice, every size of frame, many events, a reset in mid-traffic.

use midwire_driver::{
    Action, Answer, CaptureConfig, Clause, DeclaredConnection, Duplicate, Kind, Lane, Nanos,
    Position, PositionEvents, Program, Reorder, ReorderScope, Rule, Selector, SequenceNumber,
    TcpAnswer, Template, Toward, Transport,
};
use midwire_hw_tests::traffic::{Traffic, program};
use midwire_hw_tests::{InProcess, Outcome, Rig, Sent, Settings, check};
use midwire_trace::build::{Path, TcpSegment, aeth, reth, roce, tcp};
use midwire_trace::packet::tcp_flags::{ACK, FIN, SYN};
use midwire_trace::packet::{Aeth, Bth, Reth, opcode};
use midwire_trace::{Accounting, Packet, Tap};
use midwire_virtual_card::Width;
use std::time::Duration;

const WIDTHS: [Width; 2] = [Width::W512, Width::W64];

fn drop(connection: u16, at: Position, last: Option<u8>) -> PositionEvents {
    let action = Action {
        drop: true,
        ..Action::default()
    };
    let clauses = vec![Clause {
        first: 1,
        last,
        armed_by: None,
        action,
    }];
    PositionEvents {
        lane: Lane::AtoB,
        connection,
        at,
        clauses,
    }
}

fn follow(transport: Transport, positions: Vec<PositionEvents>) -> Program {
    Program {
        selectors: vec![Selector::any(transport)],
        positions,
        ..Program::default()
    }
}

/// Runs frames on lane A to B, 3 us apart, and holds all against the model.
fn run(width: Width, program: &Program, frames: &[Vec<u8>]) -> Outcome {
    let sent: Vec<_> = (0..)
        .zip(frames)
        .map(|(n, data)| Sent::new(Lane::AtoB, 3_000 * n, data.clone()))
        .collect();
    let rig = Rig::new(&Settings::new(width));
    let outcome = rig.run(program, &sent);
    check(&rig, width, program, &sent, &outcome);
    outcome
}

/// Numbers of the frames that did not leave.
fn lost(frames: &[Vec<u8>], outcome: &Outcome) -> Vec<usize> {
    let mut left = outcome.delivered[0].iter().peekable();
    let padded = |frame: &[u8]| [frame, &[0; 60][frame.len().min(60)..]].concat();
    (0..frames.len())
        .filter(|&n| left.next_if(|out| out.data == padded(&frames[n])).is_none())
        .collect()
}

const ISN: u32 = u32::MAX - 1500;

/// A segment from relative byte `from` on, with a mark that makes it unlike others.
fn segment(from: u32, len: usize, flags: u8, mark: u8) -> Vec<u8> {
    let path = Path {
        ttl: mark,
        ..Path::ipv4(40_000, 5001)
    };
    let seq = ISN.wrapping_add(1).wrapping_add(from);
    tcp(
        &path,
        &TcpSegment {
            seq,
            flags,
            ..TcpSegment::default()
        },
        &vec![mark; len],
    )
}

fn syn() -> Vec<u8> {
    let path = Path::ipv4(40_000, 5001);
    tcp(
        &path,
        &TcpSegment {
            seq: ISN,
            flags: SYN,
            ..TcpSegment::default()
        },
        b"",
    )
}

#[test]
fn tcp_positions_go_on_through_the_wrap_and_follow_their_bytes() {
    let frames = [
        syn(),
        segment(0, 1000, ACK, 1),         // 1
        segment(1000, 1000, ACK, 2),      // 2, across the wrap: dropped once and again
        segment(2000, 1000, ACK, 3),      // 3
        segment(1000, 1000, ACK, 4),      // 2 again: dropped
        segment(900, 101, ACK, 5),        // covers its first byte: the third time, passes
        segment(1001, 999, ACK, 6),       // does not cover it
        segment(3000, 0, ACK, 7),         // acknowledgement 1
        segment(3000, 0, ACK, 8),         // acknowledgement 2: dropped
        segment(3000, 500, ACK, 9),       // 4
        segment(3400, 600, ACK, 10),      // 5, covers byte 3450: dropped
        segment(4000, 10, ACK | FIN, 11), // 6, and the first FIN: dropped
        segment(4000, 10, ACK | FIN, 12), // the second
    ];
    let nth = |kind, n| Position::Nth { kind, n };
    let events = vec![
        drop(0, nth(Kind::Data, 2), Some(2)),
        drop(0, nth(Kind::Ack, 2), Some(1)),
        PositionEvents {
            clauses: vec![Clause {
                first: 2,
                last: None,
                ..drop(0, nth(Kind::Any, 1), None).clauses[0].clone()
            }],
            ..drop(0, Position::Byte(3450), None)
        },
        drop(0, nth(Kind::Fin, 1), None),
    ];
    for width in WIDTHS {
        let outcome = run(width, &follow(Transport::Tcp, events.clone()), &frames);
        assert_eq!(lost(&frames, &outcome), [2, 4, 8, 10, 11], "{width:?}");
    }
}

#[test]
fn a_syn_is_a_position_and_its_repetition_the_next() {
    let again = [syn(), syn(), segment(0, 10, ACK, 1)];
    let event = drop(
        0,
        Position::Nth {
            kind: Kind::Syn,
            n: 1,
        },
        Some(1),
    );
    let outcome = run(Width::W512, &follow(Transport::Tcp, vec![event]), &again);
    assert_eq!(outcome.delivered[0].len(), 2);
    assert_eq!(outcome.counters.connections, 1);
}

fn packet(code: u8, psn: u32, extension: &[u8], payload: usize) -> Vec<u8> {
    let bth = Bth {
        opcode: code,
        byte1: 0x40,
        pkey: 0xffff,
        byte4: 0,
        dest_qp: 0x1234,
        ack_req: false,
        psn: psn & 0xff_ffff,
    };
    roce(
        &Path::ipv6(0xc001, 4791),
        &bth,
        extension,
        &vec![psn as u8; payload],
    )
}

fn roce_frames() -> Vec<Vec<u8>> {
    let read = reth(Reth {
        va: 1,
        rkey: 2,
        dma_len: 3,
    });
    let ack = |syndrome| aeth(Aeth { syndrome, msn: 1 });
    vec![
        packet(opcode::ACK, 5, &ack(0), 0), // no data: sets no base
        packet(opcode::SEND_FIRST, 0xff_fffe, &[], 1024), // position 0
        packet(opcode::SEND_MIDDLE, 0xff_ffff, &[], 1000), // 1
        packet(opcode::SEND_LAST, 0x0100_0000, &[], 999), // 2, behind the wrap: dropped twice
        packet(opcode::READ_REQUEST, 0x0100_0001, &read, 0), // 3: dropped
        packet(opcode::SEND_LAST, 0x0100_0000, &[], 998), // 2 again: dropped
        packet(opcode::SEND_LAST, 0x0100_0000, &[], 997), // and again: passes
        packet(opcode::ACK, 6, &ack(0x60), 0), // NAK 1: dropped
        packet(opcode::CNP, 0, &[0; 16], 0), // CNP 1
        packet(opcode::CNP, 0, &[1; 16], 0), // CNP 2: dropped
        packet(opcode::ACK, 7, &ack(1), 0), // ACK 2: dropped
    ]
}

fn roce_events(connection: u16) -> Vec<PositionEvents> {
    let nth = |kind, n| Position::Nth { kind, n };
    vec![
        drop(connection, Position::Psn(2), Some(2)),
        drop(connection, Position::Psn(3), Some(1)),
        drop(connection, nth(Kind::Nak, 1), Some(1)),
        drop(connection, nth(Kind::Cnp, 2), Some(1)),
        drop(connection, nth(Kind::Ack, 2), Some(1)),
    ]
}

#[test]
fn roce_positions_go_on_through_the_wrap() {
    let frames = roce_frames();
    for width in WIDTHS {
        let outcome = run(width, &follow(Transport::Roce, roce_events(0)), &frames);
        assert_eq!(lost(&frames, &outcome), [3, 4, 5, 7, 9, 10], "{width:?}");
    }
}

#[test]
fn a_declared_connection_begins_where_it_is_told() {
    let path = Path::ipv6(0, 0);
    let rig = Rig::new(&Settings::new(Width::W512));
    // Nothing else is counted.
    let number = 0;
    let declared = DeclaredConnection {
        lane: Lane::AtoB,
        source: path.src.ip(),
        destination: path.dst.ip(),
        queue_pair: 0x1234,
        first_psn: Some(0xff_fffd),
    };
    let program = Program {
        declared: vec![declared],
        positions: vec![drop(number, Position::Psn(2), Some(1))],
        ..Program::default()
    };
    let frames = roce_frames();
    let sent: Vec<_> = (0..)
        .zip(&frames)
        .map(|(n, data)| Sent::new(Lane::AtoB, 3_000 * n, data.clone()))
        .collect();
    let outcome = rig.run(&program, &sent);
    assert_eq!(
        lost(&frames, &outcome),
        [2],
        "the second from one before the first"
    );
    assert!(
        outcome
            .records
            .iter()
            .all(|(record, _)| record.connection == Some(number))
    );
}

/// A delay is what it says, to one clock.
#[test]
fn delays_are_exact_to_a_clock() {
    for width in WIDTHS {
        for (ns, len) in [(2_000, 60), (2_000, 1000), (12_345, 1400), (1_000_000, 100)] {
            let frames = [syn(), segment(0, len, ACK, 1)];
            let mut event = drop(
                0,
                Position::Nth {
                    kind: Kind::Data,
                    n: 1,
                },
                None,
            );
            event.clauses[0].action = Action {
                delay: Some(Nanos(ns)),
                ..Action::default()
            };
            let held = run(width, &follow(Transport::Tcp, vec![event.clone()]), &frames);
            // Looked up alike, but for what follows.
            event.clauses.clear();
            let plain = run(width, &follow(Transport::Tcp, vec![event]), &frames);
            let delay = held.delivered[0][1].at - plain.delivered[0][1].at;
            let clock = width.clock_ps();
            let right = (ns * 1000).saturating_sub(clock)..=ns * 1000 + clock;
            assert!(
                right.contains(&delay),
                "{width:?}, {len} bytes: {delay} ps for {ns} ns"
            );
        }
    }
}

/// Nobody takes blocks: records are lost and counted, and every frame passes.
#[test]
fn a_full_ring_loses_records_and_no_frames() {
    let mut settings = Settings::new(Width::W512);
    settings.capture.ring_blocks = 2;
    settings.capture.block_bytes = 4096;
    settings.capture.snapshot_bytes = 0;
    let rig = Rig::new(&settings);
    // A ring that is set up by hand, and that nobody looks at.
    use midwire_driver::{Backend, regs};
    let backend = InProcess::new(rig.simulation.host_bus());
    let memory = tempfile::tempfile().expect("memory");
    memory.set_len(8192).expect("memory");
    let bus = rig.simulation.host_bus();
    bus.dma_map(1 << 32, 8192, memory.into(), 0)
        .expect("memory");
    let set = |register: u32, value: u32| {
        backend
            .write(0, register.into(), &value.to_le_bytes())
            .expect("a register");
    };
    for (register, value) in [
        (regs::RING_BASE_LO, 0),
        (regs::RING_BASE_HI, 1),
        (regs::RING_BLOCKS_LOG2, 1),
        (regs::BLOCK_LOG2, 12),
        (regs::RING_CONSUMED, 0),
        (regs::SNAPSHOT_BYTES, 0),
        (regs::FLUSH_NS, 1_000_000),
        (regs::CONTROL, regs::control::CAPTURE | regs::control::TRACK),
    ] {
        set(register, value);
    }
    let frames = Traffic::new(7).frames(Width::W512, 6000);
    frames.iter().for_each(|frame| rig.send(frame));
    rig.settle();
    let delivered: usize = rig.delivered().iter().map(Vec::len).sum();
    assert_eq!(delivered, frames.len(), "every frame passes");
    let counters = rig.card.counters().expect("counters");
    let lanes = &counters.lanes;
    let lost: u64 = lanes.iter().map(|lane| lane.lost_ingress).sum();
    assert!(lost > 0, "{counters:?}");
    // Two blocks of (4096 - 160) / 32 records are full, and some wait.
    let kept: u64 = lanes.iter().map(|lane| lane.records_ingress).sum();
    assert!(kept >= 246, "{kept} records");
    assert_eq!(kept + lost, frames.len() as u64);
    assert!(rig.simulation.stats().host_timeouts > 0);
}

/// The driver is too slow for the ring, so that the capture is not complete, and says so.
#[test]
fn a_capture_with_losses_is_accounted_for_but_not_complete() {
    let mut settings = Settings::new(Width::W512);
    settings.capture = CaptureConfig {
        ring_blocks: 2,
        block_bytes: 16384,
        snapshot_bytes: 10240,
        ..settings.capture
    };
    let rig = Rig::new(&settings);
    // Long frames at the full rate of both ports are more than the DMA carries.
    let frames: Vec<_> = (0..600)
        .map(|n: u64| {
            let lane = Lane::ALL[(n % 2) as usize];
            Sent::new(lane, 0, vec![n as u8; 4000])
        })
        .collect();
    let outcome = rig.run(&Program::default(), &frames);
    let delivered: usize = outcome.delivered.iter().map(Vec::len).sum();
    assert_eq!(delivered, frames.len(), "every frame passes");
    let accounting: &Accounting = &outcome.accounting;
    assert!(accounting.accounted_for, "{:?}", accounting.problems);
    assert!(!accounting.complete);
    let lost: u64 = accounting
        .ports
        .iter()
        .map(|p| p.lost_ingress + p.lost_snapshots)
        .sum();
    assert!(lost > 0);
}

#[test]
fn the_same_run_gives_the_same_capture_with_and_without_idle_clocks() {
    for width in WIDTHS {
        let program = program(3, 200);
        let frames = Traffic::new(3).frames(width, 300);
        let mut captures = Vec::new();
        for skip_idle in [true, true, false] {
            let mut settings = Settings {
                skip_idle,
                ..Settings::new(width)
            };
            settings.capture.flush = Nanos(20_000);
            let outcome = Rig::new(&settings).run(&program, &frames);
            captures.push((outcome.capture, outcome.delivered));
        }
        assert!(!captures[0].0.is_empty());
        assert!(captures[0] == captures[1], "{width:?}: two runs");
        assert!(captures[0] == captures[2], "{width:?}: without idle clocks");
    }
}

#[test]
fn frames_of_every_size_pass_unchanged() {
    for width in WIDTHS {
        let step = if width == Width::W64 { 7 } else { 1 };
        let sizes = (60..=1514)
            .step_by(step)
            .chain([1, 13, 14, 59, 9014, 10240]);
        let mut frames = Vec::new();
        for (n, size) in sizes.enumerate() {
            for lane in Lane::ALL {
                let mut data: Vec<u8> = (0..size).map(|i| (i * 31 + n) as u8).collect();
                if let Some(ethertype) = data.get_mut(12..14) {
                    ethertype.copy_from_slice(&[0x88, 0xb5]);
                }
                frames.push(Sent::new(lane, 0, data));
            }
        }
        let rig = Rig::new(&Settings {
            capture: light(width),
            ..Settings::new(width)
        });
        let outcome = rig.run(&follow(Transport::Tcp, vec![]), &frames);
        for lane in Lane::ALL {
            let sent = frames.iter().filter(|frame| frame.lane == lane);
            let delivered = &outcome.delivered[lane.index()];
            assert_eq!(delivered.len(), sent.clone().count());
            for (sent, left) in sent.zip(delivered) {
                let mut data = sent.data.clone();
                data.resize(data.len().max(60), 0);
                assert!(
                    data == left.data && !left.bad,
                    "{width:?}, {} bytes",
                    sent.data.len()
                );
            }
        }
        assert!(outcome.summary.complete);
        let stats = outcome.stats;
        assert_eq!(stats.ports.map(|port| port.underruns), [0, 0]);
    }
}

/// A capture of headers alone.
fn light(width: Width) -> CaptureConfig {
    CaptureConfig {
        snapshot_bytes: 64,
        ..Settings::new(width).capture
    }
}

/// Shortest frames back to back on both lanes: the most records that there can be, for longer
/// than any buffer of the card can make up for.
#[test]
fn shortest_frames_at_line_rate_all_leave_a_record() {
    for width in WIDTHS {
        let frames: Vec<_> = (0..40_000u32)
            .map(|n| {
                let lane = Lane::ALL[(n % 2) as usize];
                let segment = TcpSegment {
                    seq: n,
                    flags: ACK,
                    ..TcpSegment::default()
                };
                Sent::new(
                    lane,
                    0,
                    tcp(&Path::ipv4(n as u16, 5001), &segment, b"123456"),
                )
            })
            .collect();
        let mut settings = Settings::new(width);
        settings.capture.snapshot_bytes = 0;
        let rig = Rig::new(&settings);
        let outcome = rig.run(&follow(Transport::Tcp, vec![]), &frames);
        assert_eq!(outcome.accounting.problems, [""; 0], "{width:?}");
        assert!(outcome.summary.complete);
        assert!(
            outcome
                .counters
                .lanes
                .iter()
                .all(|lane| lane.unmatched == 0)
        );
    }
}

#[test]
fn thousands_of_events_are_loaded_and_cleared() {
    let rig = Rig::new(&Settings::new(Width::W512));
    let events = (0..3000u32).map(|n| {
        let lane = Lane::ALL[(n % 2) as usize];
        let at = Position::Nth {
            kind: Kind::Any,
            n: n + 1,
        };
        PositionEvents {
            lane,
            ..drop(0, at, None)
        }
    });
    rig.card
        .load(&follow(Transport::Tcp, events.collect()))
        .expect("a program");
    // Another program: of the first nothing is left.
    let frames: Vec<_> = (0..200u32)
        .map(|n| {
            if n == 0 {
                syn()
            } else {
                segment(100 * n, 100, ACK, n as u8)
            }
        })
        .collect();
    let sent: Vec<_> = (0..)
        .zip(&frames)
        .map(|(n, data)| Sent::new(Lane::AtoB, 1_000 * n, data.clone()))
        .collect();
    let event = drop(
        0,
        Position::Nth {
            kind: Kind::Any,
            n: 150,
        },
        None,
    );
    let outcome = rig.run(&follow(Transport::Tcp, vec![event]), &sent);
    assert_eq!(lost(&frames, &outcome), [149]);
}

/// A reset in mid-traffic leaves a card that works.
#[test]
fn a_reset_in_mid_traffic_leaves_a_sound_card() {
    let width = Width::W512;
    let rig = Rig::new(&Settings::new(width));
    let capture = rig.card.start_capture(rig.capture()).expect("a capture");
    let frames = Traffic::new(1).frames(width, 3000);
    frames.iter().for_each(|frame| rig.send(frame));
    rig.simulation.start_inputs().expect("a running card");
    while capture.progress().records < 100 {
        std::thread::sleep(Duration::from_millis(1));
    }
    use midwire_driver::Backend;
    InProcess::new(rig.simulation.host_bus())
        .reset()
        .expect("a reset");
    let _ = rig.simulation.wait_quiescent(Duration::from_secs(60));
    assert!(
        capture.stop().is_err(),
        "a capture that was cut off says so"
    );

    let card = midwire_driver::Card::open(Box::new(InProcess::new(rig.simulation.host_bus())))
        .expect("the card opens again");
    card.load(&follow(Transport::Tcp, vec![]))
        .expect("a program");
    let capture = card
        .start_capture(CaptureConfig::new(rig.directory().join("again.mwc")))
        .expect("a capture");
    card.track(true).expect("tracking");
    for frame in [syn(), segment(0, 100, ACK, 1)] {
        rig.lines[0].send(frame).expect("a running card");
    }
    rig.simulation
        .wait_quiescent(Duration::from_secs(60))
        .expect("rest");
    let summary = capture.stop().expect("a capture");
    assert!(summary.complete, "{summary:?}");
    assert_eq!(summary.records, 2);
    let file = midwire_trace::Capture::open(rig.directory().join("again.mwc")).expect("a file");
    let mut entries = file.entries_of(Lane::AtoB, Tap::Ingress);
    while let Some(entry) = entries.next_entry() {
        assert_eq!(entry.record.connection, Some(0));
    }
}

/// Segments of one connection as fast as the line carries them, and what happens to some.
fn at_line_rate(
    width: Width,
    frames: usize,
    len: usize,
    clauses: impl IntoIterator<Item = (u32, Action)>,
) -> Outcome {
    let events = clauses.into_iter().map(|(n, action)| PositionEvents {
        lane: Lane::AtoB,
        connection: 0,
        at: Position::Nth {
            kind: Kind::Data,
            n,
        },
        clauses: vec![Clause {
            first: 1,
            last: None,
            armed_by: None,
            action,
        }],
    });
    let program = Program {
        reorder_timeout: Some(Nanos::from_micros(20)),
        ..follow(Transport::Tcp, events.collect())
    };
    let syn = Sent::new(Lane::AtoB, 0, syn());
    let segments = (0..frames as u32)
        .map(|n| Sent::new(Lane::AtoB, 0, segment(n * len as u32, len, ACK, n as u8)));
    let sent: Vec<_> = [syn].into_iter().chain(segments).collect();
    let rig = Rig::new(&Settings::new(width));
    let outcome = rig.run(&program, &sent);
    check(&rig, width, &program, &sent, &outcome);
    outcome
}

/// Packets of 60 bytes back to back, of which every tenth is moved back: each by exactly as
/// many as was asked, but for the last, which nobody overtakes.
#[test]
fn a_packet_moves_by_exactly_as_many_places_as_was_asked() {
    for width in WIDTHS {
        let asked = |n: u32| [1, 2, 3, 7][n as usize / 10 % 4];
        let reorder = |n| Action {
            reorder: Some(Reorder {
                packets: asked(n),
                of: [ReorderScope::Connection, ReorderScope::Lane][n as usize / 10 % 2],
            }),
            ..Action::default()
        };
        let events = (10..=200).step_by(10).map(|n| (n, reorder(n)));
        let outcome = at_line_rate(width, 200, 6, events);
        // The SYN is packet 0.
        let left: Vec<u32> = outcome.delivered[0]
            .iter()
            .map(|frame| Packet::parse(&frame.data).tcp().expect("TCP").seq)
            .map(|seq| seq.wrapping_sub(ISN.wrapping_add(1)) / 6 + 1)
            .collect();
        for n in (10..200).step_by(10) {
            let place = left.iter().skip(1).position(|&m| m == n).expect("it left");
            assert_eq!(
                place as u32 + 1,
                n + u32::from(asked(n)),
                "packet {n}: {left:?}"
            );
        }
        let egress = outcome.records.iter().filter(|(r, _)| r.tap == Tap::Egress);
        let moved: Vec<_> = egress.map(|(r, _)| r.f2).collect();
        let told: Vec<_> = (10..200).step_by(10).map(asked).chain([0]).collect();
        assert_eq!(moved, told);
    }
}

/// Copies on a free port: each gap is exact to a clock.
#[test]
fn copies_keep_their_gap() {
    for width in WIDTHS {
        let duplicate = |copies, gap| Action {
            duplicate: Some(Duplicate {
                copies,
                gap: Nanos(gap),
            }),
            ..Action::default()
        };
        let outcome = at_line_rate(width, 1, 1000, [(1, duplicate(255, 3_333))]);
        let times: Vec<_> = outcome.delivered[0].iter().skip(1).map(|f| f.at).collect();
        assert_eq!(times.len(), 256);
        for pair in times.windows(2) {
            let off = (pair[1] - pair[0]).abs_diff(3_333_000);
            assert!(off <= width.clock_ps() + 1000, "{off} ps off");
        }
        assert_eq!(outcome.accounting.ports[0].copied, 255);
        assert_eq!(outcome.accounting.ports[0].tx_frames, 257);
    }
}

/// An answer to every packet of a full line: most find no room to be made, and no frame is lost.
#[test]
fn answers_to_every_packet_cost_no_frame() {
    for width in WIDTHS {
        let mut rule = Rule::all(Lane::AtoB, Kind::Data);
        rule.action.inject = Some(0);
        let program = Program {
            rules: vec![rule],
            templates: vec![Template {
                toward: Toward::Sender,
                answer: Answer::Tcp(TcpAnswer {
                    flags: ACK,
                    window: 100,
                    number: SequenceNumber::Next,
                }),
            }],
            ..follow(Transport::Tcp, vec![])
        };
        let syn = Sent::new(Lane::AtoB, 0, syn());
        let alone = Sent::new(Lane::AtoB, 0, segment(0, 10, ACK, 1));
        let burst = (1..500).map(|n| Sent::new(Lane::AtoB, 100_000, segment(10 * n, 10, ACK, 1)));
        let sent: Vec<_> = [syn, alone].into_iter().chain(burst).collect();
        let rig = Rig::new(&Settings::new(width));
        let outcome = rig.run(&program, &sent);
        assert!(outcome.accounting.complete, "{:?}", outcome.accounting);
        assert_eq!(outcome.delivered[0].len(), sent.len());
        let [there, back] = &outcome.counters.lanes;
        assert_eq!(there.inject_lost + back.injected, 500);
        assert_eq!(outcome.delivered[1].len() as u64, back.injected);
        assert!(back.injected > 10, "{}", back.injected);
        assert!(there.inject_lost > 10, "{}", there.inject_lost);
        let answer = &outcome.delivered[1][0];
        let waited = (answer.at - outcome.delivered[0][1].at) / width.clock_ps();
        println!("{width:?}: the answer left {waited} clocks after the packet");
        assert!(waited < 250, "{waited}");
    }
}
