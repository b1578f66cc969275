// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic at the rate of the line: docs/line-rate.md.

use crate::WIDTHS;
use crate::report::Report;
use midwire_hw_tests::line_rate::{self, Group, Load, SHORTEST};
use midwire_virtual_card::Width;

/// What a PCIe Gen3 link of 16 lanes carries: 126 Gbit/s, of which a write of 256 bytes gives 24
/// to the transaction and link layers.
const PCIE_BYTES: f64 = 8e9 * 16.0 * 128.0 / 130.0 / 8.0 * 256.0 / 280.0;

/// Frames of each length in the sweep, on each lane.
const EACH: usize = 40;

/// Every length, and loads with events.
pub fn line_rate(report: &mut Report) {
    report.line("# At the rate of the line");
    report.line("");
    report.line("Written by `make bench`; do not edit.");
    report.line("");
    report.line(
        "The core in simulation, both lanes at once, frames back to back at the exact pace of the \
         line: 100 Gbit/s into 512 bits at 322.265625 MHz, 10 Gbit/s into 64 bits at 156.25 MHz. \
         Every frame leaves a record; the records go through a model of a PCIe Gen3 x16 link \
         (126 Gbit/s, writes of 256 bytes with 24 bytes of overhead each). Lengths are without \
         FCS; a frame takes 24 bytes more on the line. Latency is from a frame's first bit in to \
         its first bit out and holds for a board, without its MACs and PHYs. A card asks no MAC \
         to wait: its input has no ready. What is lost would be counted here.",
    );
    for (width, name) in WIDTHS {
        sweep(report, width, name);
        loads(report, width, name);
    }
}

/// A latency in clocks and time.
fn clocks(width: Width, time: u64) -> String {
    let clocks = time as f64 / width.clock_ps() as f64;
    format!("{clocks:.0} = {:.0} ns", time as f64 / 1000.0)
}

fn sweep(report: &mut Report, width: Width, name: &str) {
    let mut load = Load::new(1);
    for len in (SHORTEST..=1514).chain([9014]) {
        load.push(len, EACH);
    }
    let measured = load.run(width, &line_rate::watch());
    report.section(
        &format!("{name}: every length"),
        &format!(
            "One connection; {EACH} frames of each length from {SHORTEST} to 1514 bytes and of \
             9014, one after the other in one run, a selection of them in the table. Lost in all: \
             {} frames in the card, {} frames torn on the line, {} records; capture {}.",
            measured.lost,
            measured.underruns,
            measured.records_lost,
            if measured.complete {
                "complete"
            } else {
                "not complete"
            },
        ),
    );
    report.table(&[
        "bytes",
        "packets/s a lane",
        "frames in, out",
        "records",
        "latency min",
        "latency max",
        "records MB/s",
        "of PCIe",
    ]);
    let mut row = |what: String, rate: String, group: &Group| {
        report.row(&[
            what,
            rate,
            format!("{}, {}", group.frames, group.left),
            group.records.to_string(),
            clocks(width, group.latency.min),
            clocks(width, group.latency.max),
            format!("{:.0}", group.record_rate() / 1e6),
            format!("{:.0} %", 100.0 * group.record_rate() / PCIE_BYTES),
        ]);
    };
    for len in [
        60, 61, 64, 65, 124, 128, 129, 256, 512, 576, 1024, 1280, 1500, 1514, 9014,
    ] {
        if let Some(group) = measured.groups.get(&len) {
            let rate = line_rate::line_packets(width, len);
            row(len.to_string(), format!("{:.3} M", rate / 1e6), group);
        }
    }
    if let Some(total) = measured.total() {
        row("all".into(), String::new(), &total);
    }
}

fn loads(report: &mut Report, width: Width, name: &str) {
    report.section(
        &format!("{name}: loads"),
        "Events: an event on each packet, which it marks CE, so that each leaves a second record. \
         The records of shortest frames that are all touched are more than the DMA carries, so \
         some of these are lost and counted; frames are not.",
    );
    report.table(&[
        "load",
        "frames in, out",
        "lost",
        "torn",
        "records",
        "records lost",
        "not looked up",
        "latency min",
        "latency max",
        "records MB/s",
    ]);
    let one = |len, each| {
        let mut load = Load::new(1);
        load.push(len, each);
        load
    };
    let mut random = Load::new(1);
    random.push_random(1, 4000);
    let mut many = Load::new(16_384);
    many.push(60, 20_000);
    let watch = line_rate::watch();
    let marked = line_rate::mark(6000);
    let runs = [
        ("60 bytes", one(60, 20_000), &watch),
        ("60 bytes, 16384 connections", many, &watch),
        ("random lengths, 60 to 9014 bytes", random.clone(), &watch),
        ("random lengths, events", random, &marked),
        ("60 bytes, events", one(60, 6000), &marked),
        ("256 bytes, events", one(256, 6000), &marked),
        ("1514 bytes, events", one(1514, 3000), &marked),
    ];
    for (what, load, program) in runs {
        let measured = load.run(width, program);
        let Some(total) = measured.total() else {
            continue;
        };
        report.row(&[
            what.to_string(),
            format!("{}, {}", total.frames, total.left),
            measured.lost.to_string(),
            measured.underruns.to_string(),
            total.records.to_string(),
            measured.records_lost.to_string(),
            measured.unmatched.to_string(),
            clocks(width, total.latency.min),
            clocks(width, total.latency.max),
            format!("{:.0}", total.record_rate() / 1e6),
        ]);
    }
}
