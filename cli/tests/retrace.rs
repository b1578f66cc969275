// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that are replayed by Linux hosts in virtual time.
//!
//! They need what `make hosts` makes; `make test-hosts` runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use midwire_trace::build::{Path as Route, TcpSegment, tcp, udp};
use midwire_trace::export::pcapng::{About, Frame, Writer};
use midwire_trace::packet::tcp_flags::SYN;
use midwire_trace::{Capture, Nanos, Tap};
use tempfile::TempDir;

/// A run, and what is made of it.
struct Bench(TempDir);

impl Bench {
    /// Runs a plan of Linux hosts.
    fn new(body: &str) -> Self {
        let host =
            |n| format!("{{linux: {{address: 10.77.0.{n}/24, rate_mbps: 1000, delay: 5us}}}}");
        Self::of([&host(1), &host(2)], body)
    }

    fn of([a, b]: [&str; 2], body: &str) -> Self {
        let endpoints = format!("endpoints:\n  a: {a}\n  b: {b}\n");
        Self::carry_out(&format!("version: 1\nname: test\n{endpoints}{body}"))
    }

    fn carry_out(plan: &str) -> Self {
        let bench = Self(TempDir::new().expect("temporary directory"));
        fs::write(bench.path("plan.yaml"), plan).expect("plan written");
        let (_, said) = bench.midwire(&["run", "plan.yaml", "--out", "run"]);
        assert!(bench.path("run/run.json").exists(), "{said}");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Exit code and all that was said.
    fn midwire(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_midwire"));
        let command = command.args(arguments).current_dir(self.0.path());
        let output = command.output().expect("midwire starts");
        let said = [&output.stdout[..], &output.stderr].concat();
        let code = output.status.code().expect("an exit code");
        (code, String::from_utf8_lossy(&said).into_owned())
    }
}

/// The numbers of a line of what was said.
fn numbers(said: &str, line: &str) -> Vec<u64> {
    let line = said.lines().find(|l| l.starts_with(line));
    let words = line
        .unwrap_or_else(|| panic!("no {line:?}: {said}"))
        .split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

const FLOWS: &str = "traffic:
  - tcp: {from: a, to: b, bytes: 200kB, connections: 3, direction: both}
events:
  - {connection: all, direction: a-to-b, kind: any, packet: all, probability: 2%, action: drop}
  - {connection: all, direction: a-to-b, packet: all, probability: 2%, action: {delay: 200us}}
  - {connection: all, direction: b-to-a, packet: all, probability: 1%, action: {reorder: 3}}
  - {connection: all, direction: b-to-a, packet: all, probability: 1%, action: {duplicate: 1}}
  - {name: lost, connection: 1, direction: a-to-b, packet: 30, action: drop}
  - {connection: all, direction: a-to-b, packet: all, after: lost, times: 5, action: ecn}
";

#[test]
#[ignore = "needs make hosts"]
fn what_happened_by_chance_happens_again_by_name() {
    let bench = Bench::new(FLOWS);
    for (connection, out) in [("0", "first"), ("1", "second")] {
        let arguments = ["retrace", "run", "--connection", connection, "--out", out];
        let (code, said) = bench.midwire(&arguments);
        assert_eq!(code, 0, "{said}");
        let [recorded, replayed] = numbers(&said, "Packets")[..] else {
            panic!("{said}");
        };
        assert!(recorded > 200 && replayed == recorded, "{said}");
        assert_eq!(numbers(&said, "Content")[0], recorded, "{said}");
        assert_eq!(numbers(&said, "Times")[0], recorded, "{said}");
    }
    // Losses are a list, and the kernels were listened to.
    let plan = fs::read_to_string(bench.path("first/run.json")).expect("run.json");
    assert!(plan.matches("\"drop\": true").count() > 5, "{plan}");
    assert!(bench.path("first/inside.csv").exists());
    let told = fs::read_to_string(bench.path("first/retrace.txt")).expect("retrace.txt");
    assert!(told.contains("Matches"), "{told}");
}

#[test]
#[ignore = "needs make hosts"]
fn another_setting_departs_and_both_sides_are_told() {
    let bench = Bench::new(FLOWS);
    let (_, said) = bench.midwire(&["retrace", "run", "--out", "traced"]);
    assert!(said.contains("Matches"), "{said}");
    let reno = "a.congestion_control=reno";
    let (code, said) = bench.midwire(&["retrace", "traced", "--set", reno]);
    assert_eq!(code, 1, "{said}");
    let [recorded, ..] = numbers(&said, "Packets")[..] else {
        panic!("{said}");
    };
    // It begins like the other.
    let same = numbers(&said, "Content")[0];
    assert!((10..recorded).contains(&same), "{said}");
    let row = |name: &str| {
        let line = said.lines().find(|line| line.trim().starts_with(name));
        let words = line.unwrap_or_default().split_whitespace().skip(2);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(row("A's cwnd").len() >= 2, "{said}");
    let sack = "b.sysctls.net.ipv4.tcp_sack=0";
    let (code, said) = bench.midwire(&["retrace", "run", "--set", sack]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("packet 1 b-to-a"), "{said}");
    let offers = said.lines().find(|line| line.trim().starts_with("offers"));
    assert!(
        offers.is_some_and(|line| line.ends_with("differs")),
        "{said}"
    );
}

#[test]
#[ignore = "needs make hosts"]
fn what_cannot_be_replayed_is_told() {
    let bench = Bench::new("traffic:\n  - tcp: {from: a, to: b, bytes: 10kB}\n");
    for (arguments, part) in [
        (&["run", "--connection", "7"][..], "0  TCP 10.77.0.1"),
        (&["run", "--set", "a.foo=1"], "unknown field `foo`"),
        (&["run", "--set", "a.mtu=99999"], "expected at most 9000"),
        (&["run", "--set", "c=1"], "expected HOST.KEY=VALUE"),
    ] {
        let (code, said) = bench.midwire(&[&["retrace"], arguments].concat());
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(part), "{said}");
    }
}

impl Bench {
    /// Of a run, what was seen at one place, as a file.
    fn keep(&self, name: &str, place: Tap) {
        let capture = Capture::open(self.path("run/capture.mwc")).expect("a capture");
        let mut kept = Vec::new();
        let mut entries = capture.by_time();
        while let Some(entry) = entries.next_entry() {
            let record = &entry.record;
            // What nothing happened to is recorded once, and leaves as soon as it can.
            let left = match record.tap {
                Tap::Egress => record.time - LATENCY,
                Tap::Ingress => record.time,
            };
            let untouched = record.tap == Tap::Ingress && record.actions.is_empty();
            if record.tap == place || untouched {
                kept.push((left, entry.snapshot.to_vec(), record.length));
            }
        }
        kept.sort_by_key(|(time, ..)| *time);
        let file = fs::File::create(self.path(name)).expect("file");
        let mut writer = Writer::new(file, &About::default()).expect("pcapng");
        writer.interface("wire", "", None, 0).expect("interface");
        for (time, frame, length) in &kept {
            let mut frame = Frame::received(0, *time, frame);
            frame.length = (*length).into();
            writer.packet(&frame).expect("written");
        }
        writer.finish().expect("pcapng");
    }

    /// Replays a file packet for packet; what was said. Push flags may be others.
    fn replays(&self, file: &str) -> String {
        let (_, said) = self.midwire(&["retrace", file]);
        let packets = numbers(&said, "Packets");
        assert!(packets[0] > 200 && packets[0] == packets[1], "{said}");
        for line in ["Content", "Times"] {
            assert_eq!(numbers(&said, line)[0], packets[0], "{said}");
        }
        said
    }

    /// A run's packets as a file.
    fn export(&self) {
        let (code, said) = self.midwire(&["export", "run", "--pcapng", "run.pcapng"]);
        assert_eq!(code, 0, "{said}");
    }
}

/// Of a packet through the card.
const LATENCY: Nanos = Nanos(140);

const NETWORK: &str = "traffic:
  - tcp: {from: a, to: b, bytes: 300kB}
events:
  - {direction: a-to-b, packet: 60, action: drop}
  - {direction: a-to-b, packet: 30, action: {delay: 500us}}
  - {direction: b-to-a, kind: ack, packet: 20, action: {delay: 100us}}
  - {direction: a-to-b, packet: 100, action: ecn}
";

#[test]
#[ignore = "needs make hosts"]
fn packets_alone_are_enough() {
    let host = |n, delay| {
        let ecn = "sysctls: {net.ipv4.tcp_ecn: 1}";
        format!("{{linux: {{address: 10.77.0.{n}/24, rate_mbps: 1000, delay: {delay}, {ecn}}}}}")
    };
    let bench = Bench::of([&host(1, "5us"), &host(2, "20us")], NETWORK);
    bench.export();
    let (code, said) = bench.midwire(&["retrace", "run.pcapng", "--out", "again"]);
    assert_eq!(code, 0, "{said}");
    let packets = numbers(&said, "Packets");
    assert!(packets[0] > 200 && packets[0] == packets[1], "{said}");
    // Nothing of what the card did is in a file of what came to it.
    bench.keep("arrivals.pcapng", Tap::Ingress);
    let (code, said) = bench.midwire(&["retrace", "arrivals.pcapng"]);
    assert_eq!(code, 0, "{said}");
    // Its page says so, also when it is made anew.
    let (code, said) = bench.midwire(&["analyze", "again"]);
    assert_eq!(code, 0, "{said}");
    let page = fs::read_to_string(bench.path("again/report.html")).expect("report.html");
    assert!(page.contains("<h2>Replay of TCP 10.77.0.1"), "{page}");
    assert!(page.contains("as it was, packet for packet"), "{page}");
    // It is a run like any other.
    let (code, said) = bench.midwire(&["rerun", "again"]);
    assert_eq!(code, 0, "{said}");
    // Of another stack the very answer to the SYN is another one.
    let sack = "b.sysctls.net.ipv4.tcp_sack=0";
    let (code, said) = bench.midwire(&["retrace", "run.pcapng", "--set", sack]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("packet 1 b-to-a"), "{said}");
}

#[test]
#[ignore = "needs make hosts"]
fn what_happened_before_the_recording_happens_again() {
    let numbered = "  - {direction: a-to-b, packet: 60, iterations: 1-2, action: drop}
  - {direction: a-to-b, packet: 30, action: {delay: 150us}}
  - {direction: b-to-a, kind: ack, packet: 40, action: drop}
";
    for (ends, more, missing) in [
        (["10.77.0.1/24", "10.77.0.2/24"], numbered, 31 + 3),
        // Without identifications a segment that was lost twice, or an ACK, leaves no trace.
        (["fd00::1/64", "fd00::2/64"], "", 31),
    ] {
        let hosts =
            ends.map(|end| format!("{{linux: {{address: '{end}', rate_mbps: 1000, delay: 5us}}}}"));
        let body = format!("{BEFORE}{more}");
        let bench = Bench::of([&hosts[0], &hosts[1]], &body);
        bench.keep("behind.pcapng", Tap::Egress);
        let said = bench.replays("behind.pcapng");
        assert_eq!(numbers(&said, "Besides"), [missing], "{said}");
    }
}

#[test]
#[ignore = "needs make hosts"]
fn acknowledgements_that_were_lost_behind_the_recording_are_lost_again() {
    // The sender has to probe, and its timer runs out.
    for (lost, kind) in [("8-30", "ack"), ("190-215", "any")] {
        let event = format!("{{direction: b-to-a, kind: {kind}, packet: {lost}, action: drop}}");
        let traffic = "traffic:\n  - tcp: {from: a, to: b, bytes: 300kB}\n";
        let bench = Bench::new(&format!("{traffic}events:\n  - {event}\n"));
        bench.keep("arrivals.pcapng", Tap::Ingress);
        bench.replays("arrivals.pcapng");
    }
}

const BEFORE: &str = "traffic:
  - tcp: {from: a, to: b, bytes: 300kB}
events:
  - {direction: a-to-b, packet: 120-150, action: drop}
  - {direction: a-to-b, packet: 100, action: {reorder: 2}}
  - {direction: b-to-a, kind: ack, packet: 20, action: {delay: 100us}}
";

#[test]
#[ignore = "needs make hosts"]
fn requests_and_answers_are_called_when_they_were() {
    let bench = Bench::new(
        "traffic:
  - command: {on: b, run: iperf3 -s -1, background: true}
  - command: {on: a, run: iperf3 -c $MIDWIRE_B -n 50k}
",
    );
    bench.export();
    // The connection over which iperf3 agrees with its server on what to do.
    let (code, said) = bench.midwire(&["retrace", "run.pcapng", "--connection", "0"]);
    assert_eq!(code, 0, "{said}");
    assert!(numbers(&said, "Packets")[0] > 20, "{said}");
}

#[test]
#[ignore = "needs make hosts"]
fn calls_that_were_noted_are_made_again() {
    // Its receiver reads every 100 ms, which no packet explains.
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans/deter");
    let text = fs::read_to_string(plans.join("zero-window.yaml")).expect("a plan");
    let bench = Bench::carry_out(&text);
    bench.export();
    let same = |more: &[&str]| {
        let (_, said) = bench.midwire(&[&["retrace", "run.pcapng"], more].concat());
        numbers(&said, "Content")[0]
    };
    let noted = same(&["--calls", "run/inside.csv"]);
    let inferred = same(&[]);
    assert!(noted > inferred * 3 / 2, "{noted} and {inferred}");
    let (code, said) = bench.midwire(&["retrace", "run.pcapng", "--calls", "plan.yaml"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("no inside view"), "{said}");
}

#[test]
#[ignore = "needs make hosts"]
fn a_run_in_real_time_goes_as_far_as_it_goes() {
    let taps = "{tap: {address: 10.77.0.1/24}}";
    let traffic = "traffic:\n  - tcp: {from: a, to: b, bytes: 20kB}\n";
    let bench = Bench::of([taps, &taps.replace("0.1", "0.2")], traffic);
    let (code, said) = bench.midwire(&["retrace", "run", "--out", "again"]);
    assert!(
        code == 0 || said.contains("Departs") || said.contains("Windows"),
        "{said}"
    );
    // The handshake at least. Its times may be off where what they lead to is the same so alone.
    assert!(numbers(&said, "Content")[0] >= 3, "{said}");
}

#[test]
fn what_is_no_connection_is_told() {
    let bench = Bench(TempDir::new().expect("temporary directory"));
    let retrace = |name: &str| {
        let (code, said) = bench.midwire(&["retrace", name]);
        assert_eq!(code, 2, "{said}");
        said
    };
    assert!(retrace("nowhere").contains("nowhere"));
    fs::write(bench.path("text"), "no packets").expect("file");
    assert!(retrace("text").contains("neither pcap nor pcapng"));
    let write = |name: &str, frames: &[Vec<u8>]| {
        let file = fs::File::create(bench.path(name)).expect("file");
        let mut writer = Writer::new(file, &About::default()).expect("pcapng");
        writer.interface("test", "", None, 0).expect("interface");
        for bytes in frames {
            let frame = Frame::received(0, Nanos(1000), bytes);
            writer.packet(&frame).expect("packet");
        }
        writer.finish().expect("pcapng");
    };
    let route = Route::ipv4(1, 2);
    write("udp.pcapng", &[udp(&route, &[1; 100])]);
    assert!(retrace("udp.pcapng").contains("there is no SYN"));
    let syn = TcpSegment {
        flags: SYN,
        ..TcpSegment::default()
    };
    write("syn.pcapng", &[tcp(&route, &syn, &[])]);
    assert!(retrace("syn.pcapng").contains("one direction only"));
}
