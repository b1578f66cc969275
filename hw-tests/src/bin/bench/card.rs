// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated card alone: its speed, and how long a frame takes through it.

use crate::WIDTHS;
use crate::report::Report;
use midwire_driver::Lane;
use midwire_hw_tests::line_rate::watch;
use midwire_hw_tests::{Rig, Sent, Settings};
use midwire_trace::build::{Path, TcpSegment, tcp};
use midwire_trace::packet::tcp_flags::{ACK, SYN};
use std::time::Instant;

/// A segment of connection 0 that makes a frame of `len` bytes, or the shortest.
pub fn frame(lane: Lane, n: u32, len: usize) -> Vec<u8> {
    let way = Path::ipv4(40_000, 5001);
    let way = if lane == Lane::AtoB {
        way
    } else {
        way.reversed()
    };
    let payload = vec![n as u8; len.saturating_sub(54)];
    let seq = 1 + n * payload.len() as u32;
    tcp(
        &way,
        &TcpSegment {
            seq,
            flags: ACK,
            ..TcpSegment::default()
        },
        &payload,
    )
}

fn opening() -> Sent {
    let syn = TcpSegment {
        seq: 0,
        flags: SYN,
        ..TcpSegment::default()
    };
    Sent::new(Lane::AtoB, 0, tcp(&Path::ipv4(40_000, 5001), &syn, b""))
}

/// Simulated clocks a second.
pub fn simulation_speed(report: &mut Report) {
    report.section(
        "Speed of the simulation",
        "Clock cycles of the core that are simulated in a second, in virtual time, without \
         skipping any. Frames come on both lanes at line rate; connections are followed, events \
         looked up, and every packet recorded, long ones with 128 bytes of them.",
    );
    report.table(&[
        "width",
        "traffic",
        "cycles/s",
        "of real time",
        "frames/s",
        "records lost",
        "snapshots lost",
    ]);
    for (width, name) in WIDTHS {
        // Cycles of about a second.
        let span = 1_000_000 * width.clock_ps() / 1000;
        for (traffic, len) in [("idle", 0), ("1514 B", 1514), ("64 B", 60)] {
            let mut frames = vec![opening()];
            if len > 0 {
                let each = (len as u64 + 24) * width.byte_ps() / 1000;
                for n in 0..(span / each) as u32 {
                    for lane in Lane::ALL {
                        frames.push(Sent::new(lane, 5_000, frame(lane, n, len)));
                    }
                }
            }
            frames.push(Sent::new(Lane::AtoB, span, frame(Lane::AtoB, 0, 60)));
            let mut settings = Settings {
                skip_idle: false,
                ..Settings::new(width)
            };
            // Of shortest frames the records alone are what the DMA carries at line rate.
            settings.capture.snapshot_bytes = if len == 1514 { 128 } else { 0 };
            settings.capture.ring_blocks = 256;
            let rig = Rig::new(&settings);
            rig.card.load(&watch()).expect("a program");
            let capture = rig.card.start_capture(rig.capture()).expect("a capture");
            rig.card.track(true).expect("tracking");
            frames.iter().for_each(|frame| rig.send(frame));
            let before = rig.simulation.stats().cycles;
            let start = Instant::now();
            rig.settle();
            let time = start.elapsed().as_secs_f64();
            let cycles = (rig.simulation.stats().cycles - before) as f64;
            let summary = capture.stop().expect("a capture");
            let counters = &summary.counters;
            report.row(&[
                name.to_string(),
                traffic.to_string(),
                format!("{:.2} M", cycles / time / 1e6),
                format!("1/{:.0}", time / (cycles * width.clock_ps() as f64 * 1e-12)),
                format!("{:.0}", frames.len() as f64 / time),
                counters.lost_ingress.iter().sum::<u32>().to_string(),
                counters.lost_snapshots.iter().sum::<u32>().to_string(),
            ]);
        }
    }
}

/// Clocks and time that frames take.
pub fn latency(report: &mut Report) {
    report.section(
        "Latency",
        "From a frame's first bit in to its first bit out, for a segment of a connection that is \
         followed, on an idle card. The card's clock, not this machine's: it holds for a board, \
         without the MACs and the PHYs.",
    );
    report.table(&["frame", "512 bits, 3.103 ns", "64 bits, 6.4 ns"]);
    for len in [64, 128, 256, 512, 1024, 1518, 4096, 9018] {
        let mut cells = vec![format!("{len} B")];
        for (width, _) in WIDTHS {
            let rig = Rig::new(&Settings::new(width));
            let data = frame(Lane::AtoB, 0, len - 4);
            let at = 100_000;
            let outcome = rig.run(&watch(), &[opening(), Sent::new(Lane::AtoB, at, data)]);
            let out = &outcome.delivered[0][1];
            let took = out.at - at * 1000;
            let clocks = took as f64 / width.clock_ps() as f64;
            cells.push(format!(
                "{clocks:.0} cycles, {:.0} ns",
                took as f64 / 1000.0
            ));
        }
        report.row(&cells);
    }
}
