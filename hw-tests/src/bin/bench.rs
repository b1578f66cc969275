// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `make bench`: measures, prints, and writes what it found to docs/bench.md and
//! docs/line-rate.md.
//!
//! `bench SECTION...` measures only those of `line`, `speed`, `latency`, `tcp`, `ring`; of the
//! last four alone it only prints.

use midwire_driver::{
    CaptureConfig, Card, Kind, Lane, Position, PositionEvents, Program, Selector, Transport,
};
use midwire_endpoints::traffic::{Background, CommandTraffic, Ready, TcpTraffic};
use midwire_endpoints::{Hosts, Port, TapHost, privilege};
use midwire_hw_tests::line_rate::{self, Group, Load, SHORTEST};
use midwire_hw_tests::{InProcess, Rig, Sent, Settings};
use midwire_trace::build::{Path, TcpSegment, tcp};
use midwire_trace::packet::tcp_flags::{ACK, SYN};
use midwire_virtual_card::{Config, PortConfig, VirtualCard, Width};
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const WIDTHS: [(Width, &str); 2] = [(Width::W512, "512 bits"), (Width::W64, "64 bits")];
const SECONDS: u64 = 8;
const SECTIONS: [&str; 5] = ["line", "speed", "latency", "tcp", "ring"];

fn main() -> Result<()> {
    // Before there is a second thread.
    let hosts = privilege::enter();
    let only: Vec<String> = std::env::args().skip(1).collect();
    if let Some(other) = only.iter().find(|s| !SECTIONS.contains(&s.as_str())) {
        return Err(format!("no section {other:?}: there are {}", SECTIONS.join(", ")).into());
    }
    let wanted = |section: &str| only.is_empty() || only.iter().any(|s| s == section);
    let mut report = Report::default();
    report.line("# Measured figures");
    report.line("");
    report.line("Written by `make bench` on one machine at one time; do not edit.");
    report.line("");
    report.line(&machine());
    if wanted("line") {
        let mut report = Report::default();
        line_rate(&mut report);
        report.write("line-rate.md")?;
    }
    if wanted("speed") {
        simulation_speed(&mut report);
    }
    if wanted("latency") {
        latency(&mut report);
    }
    if wanted("tcp") {
        match hosts {
            Ok(_) => through_two_hosts(&mut report)?,
            Err(e) => report.section("TCP between two hosts", &format!("Not measured: {e}")),
        }
    }
    if wanted("ring") {
        ring_to_disk(&mut report)?;
    }
    if !only.is_empty() {
        return Ok(());
    }
    report.write("bench.md")
}

/// What is printed and kept.
#[derive(Default)]
struct Report(String);

impl Report {
    fn line(&mut self, text: &str) {
        println!("{text}");
        let _ = writeln!(self.0, "{text}");
    }

    /// Writes it to a file of docs/.
    fn write(&self, name: &str) -> Result<()> {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        Ok(std::fs::write(docs.join(name), &self.0)?)
    }

    fn section(&mut self, title: &str, text: &str) {
        self.line("");
        self.line(&format!("## {title}"));
        self.line("");
        self.line(text);
    }

    fn table(&mut self, columns: &[&str]) {
        self.line("");
        self.row(columns);
        self.row(&vec!["---"; columns.len()]);
    }

    fn row(&mut self, cells: &[impl AsRef<str>]) {
        let cells: Vec<_> = cells.iter().map(AsRef::as_ref).collect();
        self.line(&format!("| {} |", cells.join(" | ")));
    }
}

fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?");
    format!(
        "{cores} cores of {}; load at the start {load}.",
        model.unwrap_or("an unnamed CPU")
    )
}

/// A segment of connection 0 that makes a frame of `len` bytes, or the shortest.
fn frame(lane: Lane, n: u32, len: usize) -> Vec<u8> {
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

/// Follows all connections and looks events up, but has nothing to do.
fn program() -> Program {
    let events = |lane| PositionEvents {
        lane,
        connection: 0,
        at: Position::Nth {
            kind: Kind::Data,
            n: 1_000_000_000,
        },
        clauses: vec![],
    };
    Program {
        selectors: vec![Selector::any(Transport::Tcp)],
        positions: [Lane::AtoB, Lane::BtoA].map(events).to_vec(),
        ..Program::default()
    }
}

/// What a PCIe Gen3 link of 16 lanes carries: 126 Gbit/s, of which a write of 256 bytes gives 24
/// to the transaction and link layers.
const PCIE_BYTES: f64 = 8e9 * 16.0 * 128.0 / 130.0 / 8.0 * 256.0 / 280.0;

/// Frames of each length in the sweep, on each lane.
const EACH: usize = 40;

fn line_rate(report: &mut Report) {
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

fn simulation_speed(report: &mut Report) {
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
                    for lane in [Lane::AtoB, Lane::BtoA] {
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
            rig.card.load(&program()).expect("a program");
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

fn latency(report: &mut Report) {
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
            let outcome = rig.run(&program(), &[opening(), Sent::new(Lane::AtoB, at, data)]);
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

fn through_two_hosts(report: &mut Report) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let a = TapHost::new("10.77.0.1/24".parse()?);
    let b = TapHost::new("10.77.0.2/24".parse()?);
    let (hosts, [port_a, port_b]) = Hosts::new("bench", &a, &b)?;
    let simulation = VirtualCard::spawn(Config {
        ports: [PortConfig::TapFd(port_a), PortConfig::TapFd(port_b)],
        ..Config::default()
    })?;
    let card = Card::open(Box::new(InProcess::new(simulation.host_bus())))?;
    card.load(&program())?;
    let capture = card.start_capture(CaptureConfig::new(directory.path().join("capture.mwc")))?;
    card.track(true)?;
    let cancel = AtomicBool::new(false);
    let before = simulation.stats();
    let (program, sent, received) = match iperf3(&hosts, directory.path(), &cancel)? {
        Some((sent, received)) => ("iperf3", sent, received),
        None => {
            let traffic = TcpTraffic {
                bytes: 400_000_000,
                ..TcpTraffic::default()
            };
            let seen = traffic.run(&hosts, &cancel)?;
            let stream = &seen.connections[0].streams[0];
            let goodput = stream.goodput_bits_per_s as f64;
            ("the built-in TCP traffic", goodput, goodput)
        }
    };
    let stats = simulation.stats();
    let summary = capture.stop()?;
    let counters = card.counters()?;
    let lost_in: u64 = [Port::A, Port::B]
        .iter()
        .map(|port| hosts.at(*port).counters().map(|c| c.send_lost))
        .sum::<std::result::Result<u64, _>>()?;
    let lost_out: u64 = stats.ports.iter().map(|port| port.lost_out).sum();
    let lost_lane: u64 = counters.ports.iter().map(|port| port.rx_lost).sum();
    let lost_records: u32 = [summary.counters.lost_ingress, summary.counters.lost_egress]
        .as_flattened()
        .iter()
        .sum();
    report.section(
        "TCP between two hosts",
        &format!(
            "Two network namespaces joined by the virtual card (512 bits, wall time), every packet \
             captured with 128 bytes of it. One connection of {program}."
        ),
    );
    let cycles = (stats.cycles - before.cycles) as f64 / (stats.wall - before.wall).as_secs_f64();
    report.table(&["what", "measured"]);
    for (what, value) in [
        ("sent", format!("{:.0} Mbit/s", sent / 1e6)),
        ("received", format!("{:.0} Mbit/s", received / 1e6)),
        (
            "frames lost between a host and the card",
            lost_in.to_string(),
        ),
        ("frames lost in the card", lost_lane.to_string()),
        (
            "frames lost between the card and a host",
            lost_out.to_string(),
        ),
        ("records", summary.records.to_string()),
        ("records lost", lost_records.to_string()),
        (
            "capture complete",
            if summary.complete { "yes" } else { "no" }.into(),
        ),
        (
            "cycles simulated a second",
            format!("{:.2} M", cycles / 1e6),
        ),
    ] {
        report.row(&[what.to_string(), value]);
    }
    Ok(())
}

/// Bits a second that were sent and received; `None` where there is no iperf3.
fn iperf3(
    hosts: &Hosts,
    directory: &std::path::Path,
    cancel: &AtomicBool,
) -> Result<Option<(f64, f64)>> {
    if Command::new("iperf3").arg("--version").output().is_err() {
        return Ok(None);
    }
    let command = |on, run: String, background| CommandTraffic {
        on: Some(on),
        run,
        background,
        ready: Ready::default(),
        timeout: Duration::from_secs(SECONDS + 30),
        environment: Default::default(),
    };
    let server = command(Port::B, "exec iperf3 -s -1".into(), true);
    let server: Background = server.start(Some(hosts), directory, "server", cancel)?;
    let client = command(
        Port::A,
        format!("exec iperf3 -J -t {SECONDS} -c $MIDWIRE_B"),
        false,
    );
    let client = client.run(Some(hosts), directory, "client", cancel)?;
    server.stop()?;
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&client.stdout)?)?;
    let speed = |side: &str| json["end"][side]["bits_per_second"].as_f64();
    match (speed("sum_sent"), speed("sum_received")) {
        (Some(sent), Some(received)) => Ok(Some((sent, received))),
        _ => Err(format!("iperf3 says {}", json["error"]).into()),
    }
}

fn ring_to_disk(report: &mut Report) -> Result<()> {
    report.section(
        "From the ring to a file",
        "The driver with a ring that is always full: records a second from the ring to a file in \
         memory, next to a plain write of as many bytes to such a file.",
    );
    let output = Command::new(option_env!("CARGO").unwrap_or("cargo"))
        .args([
            "bench",
            "--locked",
            "-q",
            "-p",
            "midwire-driver",
            "--bench",
            "ring_to_disk",
        ])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(std::process::Stdio::inherit())
        .output()?;
    let plain = plain_write()?;
    report.table(&["by", "records/s", "bytes/s", "of a plain write"]);
    for line in String::from_utf8(output.stdout)?.lines() {
        // ring_to_disk io_uring: 12.3 M records/s, 4.56 GB/s
        let Some((name, figures)) = line
            .strip_prefix("ring_to_disk ")
            .and_then(|rest| rest.split_once(": "))
        else {
            continue;
        };
        let (records, bytes) = figures.split_once(", ").ok_or("no bytes")?;
        let speed: f64 = bytes.split(' ').next().unwrap_or_default().parse()?;
        report.row(&[
            name,
            records.trim_end_matches(" records/s"),
            bytes.trim_end_matches("/s"),
            &format!("{:.0} %", 100.0 * speed / plain),
        ]);
    }
    let plain = format!("{plain:.2} GB");
    report.row(&["plain write", "", plain.as_str(), ""]);
    if !output.status.success() {
        return Err("the driver's benchmark failed".into());
    }
    Ok(())
}

/// Gigabytes a second of a plain write of the same bytes to the same directory.
fn plain_write() -> Result<f64> {
    let directory = std::env::var("MIDWIRE_BENCH_DIR").unwrap_or("/dev/shm".into());
    let mut file = tempfile::tempfile_in(directory)?;
    let blocks = vec![0x5a; 1 << 20];
    let start = Instant::now();
    for _ in 0..4 << 10 {
        file.write_all(&blocks)?;
    }
    Ok(f64::from(4 << 10) * blocks.len() as f64 / start.elapsed().as_secs_f64() / 1e9)
}
