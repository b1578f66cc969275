// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program as a user runs it: real Linux TCP through the card's RTL, files in virtual time,
//! and everything that can go wrong on the way.
//!
//! Runs with hosts need root, or a kernel that allows user namespaces. Where neither is there
//! they print `skipped:` with the program's own sentence of what is missing.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use midwire_trace::build::{Path as Route, TcpSegment, roce, tcp, udp};
use midwire_trace::export::pcapng::{About, Frame, Writer};
use midwire_trace::packet::{Bth, Packet, internet_checksum, opcode, transport_checksum};
use midwire_trace::packet_file::{FilePacket, PacketFile};
use midwire_trace::{Accounting, Actions, Capture, Lane, Nanos, Tap};
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

fn midwire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_midwire"))
        .args(arguments)
        .output()
        .expect("midwire starts")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("midwire exits")
}

/// It ended with this code; what it said otherwise.
#[track_caller]
fn exits(output: &Output, expected: i32) {
    let [told, complained] = [&output.stdout, &output.stderr].map(|bytes| text(bytes));
    assert_eq!(code(output), expected, "{told}{complained}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A plan in a directory of its own.
struct Plan {
    dir: TempDir,
}

impl Plan {
    fn new(body: &str) -> Self {
        let dir = TempDir::new().expect("temporary directory");
        fs::write(
            dir.path().join("plan.yaml"),
            format!("version: 1\nname: test\n{body}"),
        )
        .expect("plan written");
        Self { dir }
    }

    fn hosts(body: &str) -> Self {
        Self::new(&format!(
            "endpoints:\n  a: {{tap: {{address: 10.77.0.1/24}}}}\n  b: {{tap: {{address: 10.77.0.2/24}}}}\n{body}"
        ))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn arguments(&self, out: &str) -> [String; 5] {
        [
            "run".into(),
            self.path("plan.yaml").display().to_string(),
            "--out".into(),
            self.path(out).display().to_string(),
            "--json".into(),
        ]
    }

    /// Runs it; `None` where this machine can't make hosts.
    fn run(&self, out: &str) -> Option<Output> {
        self.run_with(out, &[])
    }

    fn run_with(&self, out: &str, more: &[&str]) -> Option<Output> {
        let arguments = self.arguments(out);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = midwire(&[&arguments, more].concat());
        let complaint = text(&output.stderr);
        if code(&output) == 5
            && (complaint.contains("namespace") || complaint.contains("/dev/net/tun"))
        {
            println!("skipped: {complaint}");
            return None;
        }
        Some(output)
    }

    fn start(&self, out: &str) -> Child {
        Command::new(env!("CARGO_BIN_EXE_midwire"))
            .args(self.arguments(out))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("midwire starts")
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", text(&output.stdout), text(&output.stderr)))
}

const TCP: &str = "traffic:\n  - tcp: {from: a, to: b, bytes: 300kB, port: 5001}\n";

#[test]
fn a_plan_on_real_tcp_passes_and_leaves_a_whole_run() {
    let plan = Plan::hosts(&format!(
        "{TCP}events:
  - {{direction: a-to-b, packet: 5, iterations: 1-2, action: drop}}
  - {{direction: b-to-a, kind: ack, packet: 4, action: {{delay: 3ms}}}}
expect:
  - traffic: completes
  - retransmission: {{connection: 0, packet: 5, within: 2s}}
"
    ));
    let Some(output) = plan.run("run") else {
        return;
    };
    exits(&output, 0);
    let run = json(&output);
    let events = run["findings"]["events"].as_array().expect("events");
    assert_eq!(events[0]["fired"], 2);
    assert_eq!(events[1]["fired"], 1);
    let delay = &events[1]["firings"][0]["delay"];
    assert!(delay["measured_ns"].as_u64() >= Some(3_000_000), "{delay}");
    let again = run["findings"]["retransmissions"]
        .as_array()
        .expect("retransmissions");
    let fifth: Vec<_> = again.iter().filter(|r| r["segment"] == 5).collect();
    assert!(
        fifth.len() >= 2,
        "lost twice is sent again twice: {again:?}"
    );
    for name in ["run.json", "capture.mwc", "junit.xml", "report.html"] {
        assert!(plan.path("run").join(name).is_file(), "{name}");
    }

    let capture = Capture::open(plan.path("run").join("capture.mwc")).expect("capture");
    assert!(Accounting::of(&capture).complete);

    let directory = plan.path("run").display().to_string();
    let analyzed = midwire(&["analyze", &directory, "--json"]);
    exits(&analyzed, 0);
    assert_eq!(
        json(&analyzed)["findings"],
        run["findings"],
        "analyze finds the same again"
    );

    let pcapng = plan.path("run.pcapng").display().to_string();
    exits(&midwire(&["export", &directory, "--pcapng", &pcapng]), 0);
    assert!(fs::metadata(&pcapng).expect("pcapng").len() > 10_000);

    // A capture that was cut off gives no verdict on the device.
    let file = plan.path("run").join("capture.mwc");
    let length = fs::metadata(&file).expect("capture").len();
    fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .and_then(|f| f.set_len(length - 1))
        .expect("cut");
    exits(&midwire(&["analyze", &directory]), 3);
}

/// What was done to which identities: an event's slot names connection, kind and position.
fn injected(capture: &Path) -> BTreeSet<(Lane, u32, u8, Actions)> {
    let capture = Capture::open(capture).expect("a capture");
    let mut entries = capture.entries();
    let mut all = BTreeSet::new();
    while let Some(entry) = entries.next_entry() {
        let r = entry.record;
        if let (Tap::Ingress, Some(slot)) = (r.tap, r.slot) {
            all.insert((r.lane, slot, r.iteration, r.actions));
        }
    }
    all
}

#[test]
fn ten_runs_on_real_tcp_hit_the_same_identities() {
    let plan = Plan::hosts(
        "traffic:
  - tcp: {from: a, to: b, bytes: 150kB, connections: 2}
events:
  - {connection: 0, direction: a-to-b, packet: 5, iterations: 1-2, action: drop}
  - {connection: 0, direction: a-to-b, byte: 70000, action: drop}
  - {connection: 1, direction: a-to-b, packet: 20, action: {corrupt: {at: payload, offset: 3, mask: 1}}}
  - {connection: 1, direction: b-to-a, kind: ack, packet: 3, action: {delay: 1ms}}
  - {connection: 1, direction: a-to-b, kind: fin, packet: 1, action: drop}
",
    );
    let mut first = None;
    for n in 1..=10 {
        let name = format!("run-{n}");
        let Some(output) = plan.run(&name) else {
            return;
        };
        exits(&output, 0);
        let hit = injected(&plan.path(&name).join("capture.mwc"));
        // The first event fires twice.
        assert!(
            hit.iter().filter(|hit| !hit.3.is_empty()).count() == 6,
            "{hit:?}"
        );
        assert_eq!(first.get_or_insert_with(|| hit.clone()), &hit, "run {n}");
    }
}

#[test]
fn an_expectation_that_is_not_met_exits_1() {
    let plan = Plan::hosts(&format!(
        "{TCP}events:\n  - {{direction: a-to-b, packet: 5, action: drop}}\nexpect:\n  - retransmissions: {{connection: 0, at_most: 0}}\n"
    ));
    let Some(output) = plan.run("run") else {
        return;
    };
    exits(&output, 1);
}

#[test]
fn an_event_that_never_fires_exits_4() {
    let plan = Plan::hosts(&format!(
        "{TCP}events:\n  - {{direction: a-to-b, packet: 1000000, action: drop}}\n"
    ));
    let Some(output) = plan.run("run") else {
        return;
    };
    exits(&output, 4);
}

#[test]
fn a_bad_plan_exits_2_with_its_place() {
    let plan = Plan::hosts(&format!(
        "{TCP}events:\n  - {{direction: sideways, packet: 5, action: drop}}\n"
    ));
    for command in ["validate", "run"] {
        let output = midwire(&[command, &plan.path("plan.yaml").display().to_string()]);
        exits(&output, 2);
        assert!(
            text(&output.stderr).contains("plan.yaml:9:"),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_card_that_is_not_there_exits_5_with_a_sentence() {
    for (card, word) in [
        ("socket:/nonexistent/card.sock", "/nonexistent/card.sock"),
        ("pci:0000:ff:1f.7", "0000:ff:1f.7"),
    ] {
        let output = midwire(&["card", "info", "--card", card]);
        exits(&output, 5);
        let complaint = text(&output.stderr);
        assert!(
            complaint.contains(word) && complaint.trim_end().lines().count() == 1,
            "{complaint}"
        );
    }
}

fn wait(child: &mut Child) -> i32 {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().expect("child") {
            return status.code().unwrap_or(-1);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    panic!("midwire did not end");
}

/// Waits until the run has blocks on disk; false where it ended before (no hosts here).
fn wait_for_blocks(plan: &Plan, child: &mut Child) -> bool {
    let end = Instant::now() + LIMIT;
    let file = plan.path("run").join("capture.mwc");
    while Instant::now() < end {
        let mut magic = [0; 4];
        let tenth = fs::File::open(&file).and_then(|f| f.read_exact_at(&mut magic, 9 * 65536));
        if tenth.is_ok() && magic != [0; 4] {
            return true;
        }
        if child.try_wait().expect("child").is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    panic!("no blocks came");
}

const LONG: &str =
    "traffic:\n  - tcp: {from: a, to: b, bytes: 10GB, port: 5001}\ntimeouts: {traffic: 100s}\n";

#[test]
fn an_interrupted_run_ends_in_order_and_keeps_its_capture() {
    let plan = Plan::hosts(LONG);
    let mut child = plan.start("run");
    if !wait_for_blocks(&plan, &mut child) {
        return println!("skipped: no hosts here");
    }
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .expect("kill");
    assert_eq!(wait(&mut child), 5);
    let capture = Capture::open(plan.path("run").join("capture.mwc")).expect("capture");
    let account = Accounting::of(&capture);
    assert!(
        account.complete && account.records > 1000,
        "{:?}",
        account.problems
    );
}

#[test]
fn a_killed_run_leaves_a_readable_capture_and_nothing_else() {
    let plan = Plan::hosts(LONG);
    let mut child = plan.start("run");
    if !wait_for_blocks(&plan, &mut child) {
        return println!("skipped: no hosts here");
    }
    child.kill().expect("kill");
    child.wait().expect("child");
    let capture = Capture::open(plan.path("run").join("capture.mwc")).expect("capture");
    let account = Accounting::of(&capture);
    assert!(!account.complete && account.records > 1000);
    let directory = plan.path("run").display().to_string();
    let analyzed = midwire(&["analyze", &directory]);
    assert!(
        [3, 5].contains(&code(&analyzed)),
        "a run that was killed never passes: {}",
        text(&analyzed.stderr)
    );
    // The same addresses and names are free again.
    let next = Plan::hosts(TCP);
    let output = next.run("run").expect("hosts can be made");
    exits(&output, 0);
}

/// A capture file of one connection: handshake, `segments` of data, one sent again.
fn frames(path: &Path, segments: u32) {
    write_frames(path, &connection(40000, segments));
}

/// Frames of a connection: handshake, `segments` of data, one sent again.
fn connection(port: u16, segments: u32) -> Vec<Vec<u8>> {
    let route = Route::ipv4(port, 5001);
    let mut list = Vec::new();
    let mut add = |path: &Route, seq, ack, flags, payload: &[u8]| {
        list.push(tcp(
            path,
            &TcpSegment {
                seq,
                ack,
                flags,
                window: 1000,
                options: Vec::new(),
            },
            payload,
        ));
    };
    add(&route, 99, 0, 0x02, &[]);
    for n in 0..segments {
        add(&route, 100 + n * 1000, 1, 0x18, &vec![n as u8; 1000]);
    }
    add(&route, 100, 1, 0x18, &[0; 1000]);
    list
}

/// A capture file of frames that come 1500 ns apart.
fn write_frames(path: &Path, list: &[Vec<u8>]) {
    let out = fs::File::create(path).expect("file");
    let mut writer = Writer::new(out, &About::default()).expect("pcapng");
    writer.interface("test", "", None, 0).expect("interface");
    for (n, data) in list.iter().enumerate() {
        writer
            .packet(&Frame::received(0, Nanos(n as u64 * 1500), data))
            .expect("packet");
    }
    writer.finish().expect("pcapng");
}

#[test]
fn two_runs_in_virtual_time_give_the_same_bytes() {
    let plan = Plan::new(
        "endpoints:
  a: {pcap: {in: frames.pcapng, pace: line-rate}}
  b: {pcap: {out: seen.pcapng}}
events:
  - {direction: a-to-b, packet: 3, action: drop}
  - {direction: a-to-b, packet: 1, iterations: 2, action: ecn}
  - {direction: a-to-b, packet: 10, action: {delay: 20us}}
  - {direction: a-to-b, packet: 20, action: {reorder: {after: 7, of: lane}}}
  - {direction: a-to-b, packet: 30, action: {reorder: 3, duplicate: {copies: 2, gap: 5us}}}
",
    );
    frames(&plan.path("frames.pcapng"), 200);
    let runs = ["one", "two"].map(|out| {
        let output = plan.run(out).expect("no hosts are needed");
        exits(&output, 0);
        let run = json(&output);
        let delay = &run["findings"]["events"][2]["firings"][0]["delay"];
        let error = delay["error_ns"].as_i64().expect("a delay was measured");
        assert!(
            (0..1000).contains(&error),
            "{delay}: latency of the card and of the port at most"
        );
        let firing = |event: usize| &run["findings"]["events"][event]["firings"][0];
        assert_eq!(firing(3)["moved"]["places"], 7);
        assert_eq!(firing(4)["moved"]["places"], 3);
        assert_eq!(firing(4)["copies"]["left"], 2);
        let read = |name: &str| fs::read(plan.path(out).join(name)).expect("file");
        (read("capture.mwc"), read("seen.pcapng"))
    });
    assert!(runs[0].0.len() > 20_000);
    assert!(runs[0] == runs[1], "captures differ");
}

/// A card that is served by a process of its own, once it can be connected to.
/// The frames of a capture file.
fn read_frames(path: &Path) -> Vec<Vec<u8>> {
    let mut file = PacketFile::open(path).expect("a capture file");
    let mut packet = FilePacket::default();
    let mut frames = Vec::new();
    while file.read(&mut packet).expect("a packet") {
        frames.push(packet.data.clone());
    }
    frames
}

/// Two connections that take turns, and a packet of none behind each tenth frame.
fn mixed(path: &Path) {
    let (one, other) = (connection(40000, 300), connection(40001, 300));
    let mut list = Vec::new();
    for (n, (one, other)) in one.into_iter().zip(other).enumerate() {
        list.extend([one, other]);
        if n % 10 == 9 {
            list.push(udp(&Route::ipv4(7, 9), &[n as u8; 100]));
        }
    }
    write_frames(path, &list);
}

/// Packets of connections of TCP over IPv4 (0) and IPv6 (1), of RoCEv2 over both (2 and 3), and of
/// none (4), that take turns.
const KINDS: usize = 5;

fn every_kind(turns: u32) -> Vec<Vec<u8>> {
    let frame = |kind: usize, n: u32| {
        let route = match kind {
            0 | 2 => Route::ipv4(40_000, 5001),
            1 | 3 => Route::ipv6(40_000, 5001),
            _ => Route::ipv4(7, 9),
        };
        let payload = [n as u8; 100];
        match kind {
            0 | 1 => {
                let segment = TcpSegment {
                    seq: if n == 0 { 0 } else { 1 + (n - 1) * 100 },
                    flags: if n == 0 { 0x02 } else { 0x18 },
                    window: 1000,
                    ..TcpSegment::default()
                };
                tcp(&route, &segment, if n == 0 { &[] } else { &payload })
            }
            2 | 3 => {
                let bth = Bth {
                    opcode: opcode::SEND_ONLY,
                    psn: n,
                    dest_qp: 17,
                    ..Bth::default()
                };
                roce(&route, &bth, &[], &payload)
            }
            _ => udp(&route, &payload),
        }
    };
    (0..turns)
        .flat_map(|n| (0..KINDS).map(move |kind| (kind, n)))
        .map(|(kind, n)| frame(kind, n))
        .collect()
}

/// Whether the checksums of a frame are right: IPv4's, the transport's, RoCE's.
fn right(frame: &[u8]) -> (bool, bool, bool) {
    let packet = Packet::parse(frame);
    let net = packet.net.expect("IP");
    let header = &frame[packet.l3_offset..packet.l4_offset];
    let roce = packet.roce();
    let end = packet.payload_offset + packet.payload_len + if roce.is_some() { 4 } else { 0 };
    let segment = &frame[packet.l4_offset..end];
    (
        net.src.is_ipv6() || internet_checksum(header) == 0,
        // RoCE goes without.
        roce.is_some() || transport_checksum(&net, segment) == 0,
        roce.is_none_or(|roce| roce.icrc == packet.expected_icrc(frame)),
    )
}

const EDITS: &str = "\
endpoints:
  a: {pcap: {in: frames.pcapng}}
  b: {pcap: {out: seen.pcapng}}
capture: {snapshot: 2048}
timeouts: {quiet: 1ms}
events:
  - {connection: 0, direction: a-to-b, packet: 1, action: {set: {ttl: 1}}}
  - {connection: 1, direction: a-to-b, packet: 1, action: {set: {ttl: 1}}}
  - {connection: 2, direction: a-to-b, psn: 1, action: {set: {dscp: 46}}}
  - {connection: 3, direction: a-to-b, psn: 1, action: {set: {dscp: 46}, ecn: ect0}}
  - {connection: 0, direction: a-to-b, packet: 2, action: {set: {tcp-window: 5, tcp-flags: [rst, ack]}}}
  - {connection: 1, direction: a-to-b, packet: 2, action: {break: l4}}
  - {connection: 2, direction: a-to-b, psn: 2, action: {set: {mig-req: true}}}
  - {connection: 3, direction: a-to-b, psn: 2, action: {corrupt: {mask: 0x80, mend: all}}}
  - {connection: 0, direction: a-to-b, packet: 3, action: {break: ip, ecn: ect1}}
  - {connection: 1, direction: a-to-b, packet: 3, action: {truncate: 60}}
  - {connection: 2, direction: a-to-b, psn: 3, action: {break: [fcs, icrc]}}
  - {connection: 3, direction: a-to-b, psn: 3, action: {corrupt: {}}}
  - {connection: none, direction: a-to-b, packet: 2, action: {set: {offset: 1, value: \"aa bb cc\"}}}
  - {connection: none, direction: a-to-b, packet: 3, action: {ecn: ce, set: {ttl: 9}}}
  - {connection: 2, direction: a-to-b, psn: 4, action: {break: icrc}}
";

#[test]
fn edits_leave_the_bytes_and_checksums_that_were_asked_for() {
    let plan = Plan::new(EDITS);
    let came = every_kind(6);
    write_frames(&plan.path("frames.pcapng"), &came);
    let output = plan.run("run").expect("no hosts are needed");
    let told = text(&output.stdout) + &text(&output.stderr);
    exits(&output, 0);
    let mut left = read_frames(&plan.path("run/seen.pcapng"));
    // A frame with a wrong FCS is not received.
    left.insert(3 * KINDS + 2, Vec::new());
    assert_eq!(left.len(), came.len());
    let frame = |turn: usize, kind: usize| &left[KINDS * turn + kind][..];
    let header = |turn, kind| Packet::parse(frame(turn, kind)).net.expect("IP");
    let all = (true, true, true);
    for (turn, kind, checksums) in [
        (1, 0, all),
        (1, 1, all),
        (1, 2, all),
        (1, 3, all),
        (2, 0, all),
        (2, 1, (true, false, true)),
        (2, 2, all),
        (2, 3, all),
        (3, 0, (false, true, true)),
        (4, 2, (true, true, false)),
        (3, 3, (true, true, false)),
        (1, 4, all),
        (2, 4, all),
    ] {
        assert_eq!(right(frame(turn, kind)), checksums, "turn {turn} of {kind}");
        assert_ne!(
            frame(turn, kind),
            came[KINDS * turn + kind],
            "turn {turn} of {kind}"
        );
    }
    assert_eq!((header(1, 0).ttl, header(1, 1).ttl), (1, 1));
    let class = |turn, kind| header(turn, kind).traffic_class;
    assert_eq!((class(1, 2) >> 2, class(1, 3)), (46, 46 << 2 | 2));
    assert_eq!(
        (class(3, 0) & 3, class(2, 4) & 3, header(2, 4).ttl),
        (1, 3, 9)
    );
    let packet = Packet::parse(frame(2, 0));
    let tcp = packet.tcp().expect("TCP");
    assert_eq!((tcp.window, tcp.flags), (5, 0x14));
    let packet = Packet::parse(frame(2, 2));
    assert_eq!(packet.roce().expect("RoCE").bth.byte1 & 0x40, 0x40);
    let payload = |kind: usize, turn, n: usize| {
        frame(turn, kind)[Packet::parse(frame(turn, kind)).payload_offset + n]
    };
    assert_eq!((payload(3, 2, 0), payload(3, 3, 0)), (0x82, 0x02));
    assert_eq!(
        [0, 1, 2, 3, 4].map(|n| payload(4, 1, n)),
        [1, 0xaa, 0xbb, 0xcc, 1]
    );
    assert_eq!(frame(3, 1), &came[KINDS * 3 + 1][..60]);
    // All else is untouched.
    let touched = |n: usize| match (n / KINDS, n % KINDS) {
        (turn, 4) => turn == 1 || turn == 2,
        (turn, kind) => (1..4).contains(&turn) || (turn, kind) == (4, 2),
    };
    for n in (0..came.len()).filter(|n| !touched(*n)) {
        // A SYN is padded to the shortest frame.
        let length = came[n].len();
        assert!(
            left[n][..length] == came[n] && left[n].len() == length.max(60),
            "frame {n}"
        );
    }

    let run = json(&output);
    let firing = |event: usize| &run["findings"]["events"][event]["firings"][0];
    let ttl = serde_json::json!([{"offset": 22, "before": 64, "after": 1}]);
    assert_eq!(firing(0)["set"], ttl);
    assert_eq!(firing(9)["length"], serde_json::json!([174, 60]));
    let broken = firing(10)["checksums"].as_array().expect("checksums");
    assert_eq!(broken.len(), 2);
    assert!(
        broken
            .iter()
            .all(|sum| sum["asked"] == "broken" && sum["after"] == false)
    );
    assert!(told.contains("became"), "{told}");
}

const ANSWERS: &str = "\
endpoints:
  a: {pcap: {in: frames.pcapng, out: back.pcapng}}
  b: {pcap: {out: seen.pcapng}}
timeouts: {quiet: 1ms}
events:
  - {connection: 0, direction: a-to-b, packet: 1, action: {drop: true, inject: rst}}
  - {connection: 1, direction: a-to-b, packet: 1, action: {inject: {rst: {toward: receiver}}}}
  - {connection: 1, direction: a-to-b, packet: 2, action: {inject: {ack: {window: 77}}, ecn: ce}}
  - {connection: 2, direction: a-to-b, psn: 2, action: {inject: {nak: {qp: 0x21, msn: 9}}}}
  - {connection: 2, direction: a-to-b, psn: 2, action: drop}
  - {connection: 3, direction: a-to-b, psn: 2, action: {inject: {cnp: {qp: 0x22}}}}
  - {connection: 3, direction: a-to-b, psn: 3, action: {inject: {ack: {qp: 0x23}}}}
  - {connection: 0, direction: a-to-b, packet: 3, action: {inject: {pause: {priority: 3}}}}
  - {connection: 0, direction: a-to-b, packet: 4, action: {inject: {pause: {toward: b, quanta: 7}}}}
  - connection: none
    direction: a-to-b
    packet: 3
    action: {inject: {frame: {bytes: \"ffffffffffff 020000000001 88b5 01020304\", toward: b}}}
";

#[test]
fn frames_are_made_in_answer_to_packets() {
    let plan = Plan::new(ANSWERS);
    let came = every_kind(6);
    write_frames(&plan.path("frames.pcapng"), &came);
    let output = plan.run("run").expect("no hosts are needed");
    let told = text(&output.stdout) + &text(&output.stderr);
    exits(&output, 0);

    let mut back = read_frames(&plan.path("run/back.pcapng"));
    let seen = read_frames(&plan.path("run/seen.pcapng"));
    assert_eq!((back.len(), seen.len()), (6, came.len() - 2 + 3));
    // Between the answers to packets of the fourth turn.
    back.swap(4, 5);
    let made: Vec<_> = seen.iter().filter(|frame| made_of(&came, frame)).collect();
    let [reset, bytes, pause] = made[..] else {
        panic!("{made:02x?}");
    };
    for frame in [&back[0], &back[1], &back[2], &back[3], &back[4], reset] {
        assert_eq!(right(frame), (true, true, true), "{frame:02x?}");
    }
    let packet = |frame: &[u8]| {
        let packet = Packet::parse(frame);
        let net = packet.net.expect("IP");
        (packet.ethernet.src, net.src, net.dst)
    };
    let of = |turn: usize, kind: usize| &came[KINDS * turn + kind][..];
    // Segments of 100 bytes whose senders have acknowledged nothing.
    let segment = |frame: &[u8]| {
        let packet = Packet::parse(frame);
        let tcp = packet.tcp().expect("TCP");
        assert_eq!(packet.payload_len, 0);
        (tcp.src_port, tcp.seq, tcp.ack, tcp.flags, tcp.window)
    };
    assert_eq!(segment(&back[0]), (5001, 0, 101, 0x14, 0));
    assert_eq!(segment(reset), (40_000, 101, 0, 0x14, 0));
    assert_eq!(segment(&back[1]), (5001, 0, 201, 0x10, 77));
    let roce = |frame: &[u8]| {
        let packet = Packet::parse(frame);
        let roce = packet.roce().expect("RoCE");
        let bth = roce.bth;
        let aeth = roce.aeth.map(|aeth| (aeth.syndrome, aeth.msn));
        (bth.opcode, bth.dest_qp, bth.psn, aeth)
    };
    assert_eq!(roce(&back[2]), (opcode::ACK, 0x21, 2, Some((0x60, 9))));
    assert_eq!(roce(&back[3]), (opcode::CNP, 0x22, 0, None));
    let class = Packet::parse(&back[3]).net.expect("IP").traffic_class;
    assert_eq!(class, 48 << 2);
    assert_eq!(roce(&back[4]), (opcode::ACK, 0x23, 3, Some((0x1f, 0))));
    for (answer, turn, kind) in [
        (&back[0], 1, 0),
        (&back[1], 2, 1),
        (&back[2], 2, 2),
        (&back[3], 2, 3),
        (&back[4], 3, 3),
    ] {
        let (mac, src, dst) = packet(answer);
        let (_, from, to) = packet(of(turn, kind));
        assert_eq!((&mac[..], src, dst), (&of(turn, kind)[..6], to, from));
    }
    assert_eq!(packet(reset), packet(of(1, 1)));
    let (head, rest) = back[5].split_at(24);
    assert_eq!(head[..6], [1, 0x80, 0xc2, 0, 0, 1]);
    assert_eq!(head[6..12], of(3, 0)[..6]);
    assert_eq!(head[12..], [0x88, 8, 1, 1, 0, 8, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rest[..4], [0xff, 0xff, 0, 0]);
    assert_eq!(
        pause[6..20],
        [&of(4, 0)[6..12], &[0x88, 8, 0, 1, 0, 7, 0, 0]].concat()
    );
    assert_eq!(bytes[12..20], [0x88, 0xb5, 1, 2, 3, 4, 0, 0]);
    assert_eq!((bytes.len(), pause.len()), (60, 60));

    let run = json(&output);
    let answer = &run["findings"]["events"][0]["firings"][0]["answer"];
    assert_eq!(
        (&answer["port"], &answer["length"]),
        (&"A".into(), &60.into())
    );
    assert!(answer["after_ns"].as_u64() < Some(2000), "{answer}");
    assert!(told.contains("rst sent at port A at"), "{told}");
    let capture = Capture::open(plan.path("run").join("capture.mwc")).expect("capture");
    let account = Accounting::of(&capture);
    assert!(account.complete, "{:?}", account.problems);
    let [a, b] = account.ports.map(|port| port.injected);
    assert_eq!((a, b), (3, 6));
}

/// A frame that is none of those that came, which are padded when they leave.
fn made_of(came: &[Vec<u8>], frame: &[u8]) -> bool {
    let marked = |ip: &[u8]| ip.len() > 16 && frame.len() > 16 && frame[16..] == ip[16..];
    !came
        .iter()
        .any(|other| frame.starts_with(other) || marked(other))
}

const RULES: &str = "\
endpoints:
  a: {pcap: {in: frames.pcapng}}
  b: {pcap: {out: seen.pcapng}}
events:
  - {direction: a-to-b, packet: 10-40, every: 10, action: ecn}
  - {direction: a-to-b, packet: 50-, every: 50, times: 4, action: ecn}
  - {name: lost, connection: 1, direction: a-to-b, packet: 200, action: drop}
  - {connection: 1, direction: a-to-b, packet: all, iterations: 2-, after: lost, action: drop}
  - {connection: none, direction: a-to-b, packet: 3-5, action: drop}
  - {connection: all, direction: a-to-b, packet: all, iterations: all, probability: 10%, action: drop}
  - connection: all
    direction: a-to-b
    packet: 100-
    burst: {begins: 2%, ends: 25%}
    action: {corrupt: {at: payload, offset: 9, mask: 0x10}}
timeouts: {quiet: 1ms}
";

#[test]
fn what_rules_and_chance_decide_can_be_listed_and_done_again() {
    let plan = Plan::new(RULES);
    mixed(&plan.path("frames.pcapng"));
    let output = plan.run("run").expect("no hosts are needed");
    let told = text(&output.stdout) + &text(&output.stderr);
    exits(&output, 0);
    let run = json(&output);
    let events = &run["findings"]["events"];
    let fired = |n: usize| events[n]["fired"].as_u64().expect("a number");
    // What the first three mark may be dropped by chance.
    assert!(
        (2..=4).contains(&fired(0)) && (2..=4).contains(&fired(1)),
        "{told}"
    );
    assert_eq!((fired(2), fired(3), fired(4)), (1, 1, 3), "{told}");
    let dropped = fired(5);
    assert!((30..=95).contains(&dropped), "{dropped} of 605 at 10 %");
    let changed = fired(6);
    assert!((5..=100).contains(&changed), "{changed} in bursts");
    // The plan says as many as it should of the retransmission.
    assert_eq!(events[3]["firings"][0]["iteration"], 1);

    let listed = midwire(&["events", "--from", &plan.path("run").display().to_string()]);
    exits(&listed, 0);
    let list = text(&listed.stdout);
    assert!(!list.contains("probability"), "{list}");
    let again = Plan::new("");
    fs::write(again.path("plan.yaml"), &list).expect("plan written");
    fs::copy(plan.path("frames.pcapng"), again.path("frames.pcapng")).expect("copied");
    let output = again.run("run").expect("no hosts are needed");
    let told = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(code(&output), 0, "{list}\n{told}");
    let seen = |plan: &Plan| read_frames(&plan.path("run/seen.pcapng"));
    let (first, second) = (seen(&plan), seen(&again));
    assert!(first.len() < 632 - dropped as usize + 1 && first == second);
    // Nothing is left to chance any more.
    let output = again
        .run_with("other", &["--seed", "2"])
        .expect("no hosts are needed");
    exits(&output, 0);
    assert!(read_frames(&again.path("other/seen.pcapng")) == first);
    let output = plan
        .run_with("other", &["--seed", "2"])
        .expect("no hosts are needed");
    exits(&output, 0);
    assert!(read_frames(&plan.path("other/seen.pcapng")) != first);
}

/// A card that is served, ended at the latest with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(socket: &Path, arguments: &[&str]) -> Served {
    let served = Command::new(env!("CARGO_BIN_EXE_midwire"))
        .args(["card", "serve", "--socket"])
        .arg(socket)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .expect("midwire starts");
    let end = Instant::now() + LIMIT;
    while !socket.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    Served(served)
}

fn terminate(Served(served): &mut Served) {
    Command::new("kill")
        .args(["-TERM", &served.id().to_string()])
        .status()
        .expect("kill");
    assert_eq!(wait(served), 0);
}

#[test]
fn a_plan_runs_on_a_card_that_is_served_separately() {
    let plan = Plan::new(
        "endpoints: {a: external, b: external}
duration: 6s
events:
  - {direction: a-to-b, packet: 3, action: drop}
  - {direction: a-to-b, packet: 1, iterations: 2, action: ecn}
",
    );
    let frames_file = plan.path("frames.pcapng");
    frames(&frames_file, 200);
    let socket = plan.path("card.sock");
    let port = format!("pcap:{}", frames_file.display());
    let mut served = serve(&socket, &["--time", "virtual", "--port-a", &port]);
    let place = format!("socket:{}", socket.display());
    let run = |arguments: &[String], card: &[&str]| {
        let arguments = arguments.iter().map(String::as_str);
        midwire(&arguments.chain(card.iter().copied()).collect::<Vec<_>>())
    };
    let output = run(&plan.arguments("run"), &["--card", &place]);
    exits(&output, 0);
    let found = json(&output);
    assert_eq!(found["recorded"]["interrupted"], false);
    assert_eq!(found["findings"]["events"][1]["fired"], 1);
    let capture = Capture::open(plan.path("run").join("capture.mwc")).expect("capture");
    let account = Accounting::of(&capture);
    assert!(account.complete, "{:?}", account.problems);
    assert_eq!(account.ports[0].frames_received, 202);

    // An external plan needs a card that is there, and such a card needs an external plan.
    let without = run(&plan.arguments("without"), &[]);
    exits(&without, 5);
    assert!(text(&without.stdout).contains("--card socket:PATH"));
    let files = Plan::new("endpoints: {a: {pcap: {in: frames.pcapng}}, b: {pcap: {}}}\n");
    frames(&files.path("frames.pcapng"), 3);
    let files = run(&files.arguments("run"), &["--card", &place]);
    exits(&files, 5);
    assert!(text(&files.stdout).contains("a: external"));
    terminate(&mut served);
}

/// An agent without a NIC: it says what agents say.
const AGENT: &str = r#"echo '{"greeting":{"version":2,"midwire":"0"}}'
qp="{\"address\":\"$1\",\"number\":$2,\"first_psn\":$3,\"memory\":0,\"key\":0}"
while read -r request; do
	case $request in
	'{"open"'*) echo "{\"opened\":{\"device\":\"mlx5_0\",\"addresses\":[\"$1\"]}}" ;;
	'{"prepare"'*) echo "{\"prepared\":[[$qp]]}" ;;
	'{"connect"'*) echo '{"connected":{}}' ;;
	'{"counters"'*) n=$((n + 3)); echo "{\"counters\":{\"packet_seq_err\":$n}}" ;;
	'{"serve"'*) echo '{"serving":{}}' ;;
	'{"run"'*) echo '{"ran":[{"duration_ns":1000,"qps":[{"messages":1,"arrived":{"bytes":5000,"wrong_bytes":0},"duration_ns":1000}]}]}' ;;
	'{"check"'*) echo '{"checked":[[{"bytes":0,"wrong_bytes":0}]]}' ;;
	*) exit ;;
	esac
done
"#;

/// Real hosts: their agents are reached by commands, and the card knows from them what is whose.
#[test]
fn agents_of_hosts_tell_the_card_of_their_queue_pairs() {
    let plan = Plan::new("");
    let script = plan.path("agent.sh");
    fs::write(&script, AGENT).expect("written");
    let body = |a: &str| {
        let script = script.display();
        format!(
            "version: 1
name: test
endpoints:
  a: {{agent: {{run: {a}, address: 10.0.0.1/24}}}}
  b: {{agent: {{run: sh {script} 10.0.0.2 34 9, address: 10.0.0.2/24, device: mlx5_0}}}}
traffic:
  - rdma: {{from: a, to: b, verb: write, messages: 1, size: 5000}}
events:
  - {{connection: 0, direction: a-to-b, psn: 2, action: drop}}
expect:
  - traffic: completes
  - counter: {{endpoint: a, name: packet_seq_err, at_least: 3, at_most: 3}}
timeouts: {{traffic: 1s}}
"
        )
    };
    let write = |a: &str| fs::write(plan.path("plan.yaml"), body(a)).expect("written");

    let packet = |psn| {
        let bth = Bth {
            opcode: opcode::WRITE_MIDDLE,
            byte1: 0x40,
            pkey: 0xffff,
            byte4: 0,
            dest_qp: 34,
            ack_req: false,
            psn,
        };
        roce(&Route::ipv4(0xc000, 4791), &bth, &[], &[0; 1024])
    };
    // The first packet has been missed: only the agent knows where PSNs begin.
    let frames: Vec<_> = [8, 9, 10].map(packet).into();
    write_frames(&plan.path("frames.pcapng"), &frames);
    let socket = plan.path("card.sock");
    let port = format!("pcap:{}", plan.path("frames.pcapng").display());
    let _served = serve(&socket, &["--time", "virtual", "--port-a", &port]);
    let place = format!("socket:{}", socket.display());
    let run = |out: &str| {
        let arguments = plan.arguments(out);
        let arguments = arguments
            .iter()
            .map(String::as_str)
            .chain(["--card", &place]);
        midwire(&arguments.collect::<Vec<_>>())
    };
    write(&format!("sh {} 10.0.0.1 17 7", script.display()));
    let output = run("run");
    exits(&output, 0);
    let found = json(&output);
    let texts = |n: usize| found["recorded"]["connections"][n]["text"].as_str();
    assert_eq!(texts(0), Some("RoCE 10.0.0.1 > 10.0.0.2 QP 34"));
    assert_eq!(texts(1), Some("RoCE 10.0.0.2 > 10.0.0.1 QP 17"));
    let firing = &found["findings"]["events"][0]["firings"][0];
    assert_eq!(firing["packet_id"], 1, "the second, with PSN 9");

    for (out, command, words) in [
        (
            "gone",
            "echo no route to host >&2; exit 255",
            "agent at port a: it is gone: no route to host",
        ),
        (
            "old",
            "echo '{\"greeting\":{\"version\":0,\"midwire\":\"0.0.9\"}}'; cat",
            "speaks version 0",
        ),
    ] {
        write(&serde_json::to_string(command).expect("text"));
        let output = run(out);
        exits(&output, 5);
        assert!(
            text(&output.stdout).contains(words),
            "{}",
            text(&output.stdout)
        );
    }
}

#[test]
fn one_card_serves_one_program() {
    let dir = TempDir::new().expect("temporary directory");
    let socket = dir.path().join("card.sock");
    let mut served = serve(&socket, &[]);
    let place = format!("socket:{}", socket.display());
    let first = midwire_driver::VfioUser::connect(&socket).expect("first program");
    let second = midwire(&["card", "info", "--card", &place]);
    exits(&second, 5);
    assert!(
        text(&second.stderr).contains("use"),
        "{}",
        text(&second.stderr)
    );
    drop(first);
    let info = (0..50)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            midwire(&["card", "info", "--card", &place])
        })
        .find(|o| code(o) == 0)
        .expect("the card is free again");
    assert_eq!(json(&info)["card"]["data_width"], 512);
    terminate(&mut served);
    assert!(!socket.exists(), "the socket is removed");
}

#[test]
fn the_schema_is_json_and_the_plans_that_come_along_are_valid() {
    let schema = midwire(&["schema"]);
    assert!(json(&schema)["properties"]["events"].is_object());
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans");
    let mut arguments = vec!["validate".to_owned()];
    arguments.extend(
        fs::read_dir(plans)
            .expect("plans")
            .map(|p| p.expect("plan").path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "yaml")
            })
            .map(|path| path.display().to_string()),
    );
    assert!(arguments.len() > 3);
    let output = midwire(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    exits(&output, 0);
}

const NICS: &str = "endpoints:
  a: {rnic: {address: 10.0.0.1/24}}
  b: {rnic: {address: 10.0.0.2/24}}
";

#[test]
fn model_nics_repeat_to_the_bit() {
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans/rdma-write-drop.yaml");
    let dir = TempDir::new().expect("temporary directory");
    let run = |name: &str, seed: &str| {
        let out = dir.path().join(name);
        let (plan, out) = (plan.display().to_string(), out.display().to_string());
        let output = midwire(&["run", &plan, "--out", &out, "--seed", seed, "--json"]);
        exits(&output, 0);
        let capture = fs::read(Path::new(&out).join("capture.mwc")).expect("capture");
        (capture, json(&output))
    };
    let (first, again, other) = (run("1", "1"), run("2", "1"), run("3", "2"));
    assert_eq!(first.0, again.0, "two runs differ");
    assert_ne!(first.0, other.0, "the seed says which queue pairs");
    for key in ["nics", "traffic", "connections"] {
        assert_eq!(first.1["recorded"][key], again.1["recorded"][key], "{key}");
    }
    // NAK after 2 µs, retransmission 2 µs later, and the way there and back.
    let times = &first.1["recorded"]["traffic"][0]["details"]["completion_times"];
    let (median, longest) = (&times["p50_ns"], &times["max_ns"]);
    let slower = longest.as_u64().expect("a time") - median.as_u64().expect("a time");
    assert!((5_000..8_000).contains(&slower), "{times}");
}

#[test]
fn model_nics_lose_nothing_on_a_line_that_does() {
    let plan = Plan::new(&format!(
        "{NICS}traffic:
  - rdma: {{from: a, to: b, verb: write, qps: 3, messages: 8, size: 20kB, tx_depth: 4, timeout: 6}}
  - rdma: {{from: b, to: a, verb: send, messages: 8, size: 5kB, mtu: 256, timeout: 6}}
  - rdma: {{from: a, to: b, verb: read, messages: 8, size: 20kB, mtu: 4096, timeout: 6, first_psn: 0xfffffa}}
  - rdma: {{from: a, to: b, verb: fetch-add, messages: 50, size: 8, tx_depth: 8, timeout: 6}}
events:
  - {{connection: all, direction: a-to-b, kind: any, packet: all, probability: 2%, action: drop}}
  - {{connection: all, direction: b-to-a, kind: any, packet: all, probability: 2%, action: drop}}
  - {{connection: all, direction: a-to-b, kind: any, packet: all, probability: 1%, action: {{break: icrc}}}}
  - {{connection: all, direction: a-to-b, kind: any, packet: all, probability: 1%, action: {{duplicate: 1}}}}
  - {{connection: all, direction: b-to-a, kind: any, packet: all, probability: 1%, action: {{delay: 8us}}}}
expect:
  - traffic: completes
  - findings: {{at_most: 0}}
  - counter: {{endpoint: b, name: rx_icrc_encapsulated, at_least: 1}}
  - counter: {{endpoint: a, name: implied_nak_seq_err, at_least: 1}}
"
    ));
    let output = plan.run("run").expect("no hosts are needed");
    exits(&output, 0);
    let run = json(&output);
    let traffic = run["recorded"]["traffic"].as_array().expect("traffic");
    let bytes = |n: usize| traffic[n]["details"]["bytes"].as_u64();
    assert_eq!(
        [0, 1, 2, 3].map(bytes),
        [480_000, 40_000, 160_000, 400].map(Some)
    );
}

/// Whatever packet of a message is lost, and however often, a NIC without fault does what the
/// specification says, and counts what the capture shows.
#[test]
fn no_loss_makes_a_finding_of_a_clean_nic() {
    // First, middle and last of a message, first of the next, last of all.
    const OF_DATA: &[u32] = &[0, 5, 9, 10, 29];
    let of_all: &[(_, _, &[u32])] = &[
        ("send", "a-to-b", OF_DATA),
        ("write", "a-to-b", OF_DATA),
        ("read", "b-to-a", OF_DATA),
        ("read", "a-to-b", &[0, 10]),
        ("fetch-add", "a-to-b", &[0, 1]),
        // Acknowledgements, counted from 1.
        ("fetch-add", "b-to-a", &[1, 2]),
        ("send", "b-to-a", &[1]),
        ("write", "b-to-a", &[1]),
    ];
    // With few queue pairs, all requests are on their way before there is a response.
    let of_few: &[(_, _, &[u32])] = &[("read", "a-to-b", &[10]), ("write", "a-to-b", &[9])];
    for (depth, lost) in [(3, of_all), (1, of_all), (3, of_few)] {
        let (mut traffic, mut events) = (String::new(), String::new());
        // Requests have connections of even numbers, answers those behind.
        let mut connection = 0;
        for &(verb, direction, positions) in lost {
            let is_answer = direction == "b-to-a";
            let cases: Vec<_> = (positions.iter())
                .flat_map(|at| (1..=3).map(move |times| (at, times)))
                .collect();
            traffic += &format!(
                "  - rdma: {{from: a, to: b, verb: {verb}, qps: {}, messages: 3, size: {}, \
                 tx_depth: {depth}, timeout: 10, together: {}}}\n",
                cases.len(),
                if verb == "fetch-add" { 8 } else { 10_240 },
                connection > 0
            );
            for (at, times) in cases {
                let position = match is_answer && verb != "read" {
                    true => {
                        let all: Vec<_> = (*at..at + times).collect();
                        format!("kind: ack, packet: {all:?}")
                    }
                    false => format!("psn: {at}, iterations: 1-{times}"),
                };
                events += &format!(
                    "  - {{connection: {}, direction: {direction}, {position}, action: drop}}\n",
                    connection + u32::from(is_answer)
                );
                connection += 2;
            }
        }
        let output = Plan::new(&format!(
            "{NICS}traffic:\n{traffic}events:\n{events}expect:\n  - traffic: completes\n  \
             - findings: {{at_most: 0}}\n"
        ))
        .run("run")
        .expect("no hosts are needed");
        exits(&output, 0);
    }
}

#[test]
fn a_fault_of_a_model_nic_is_found_and_a_clean_one_has_none() {
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans/rdma-noisy-neighbour.yaml");
    let faulty = fs::read_to_string(plan).expect("plan");
    let clean = faulty.replace(", faults: [noisy-neighbour]", "");
    assert_ne!(clean, faulty);
    for (plan, wanted) in [(faulty, 0), (clean, 1)] {
        let dir = TempDir::new().expect("temporary directory");
        let path = dir.path().join("plan.yaml");
        fs::write(&path, plan).expect("plan written");
        let out = dir.path().join("run").display().to_string();
        let output = midwire(&["run", &path.display().to_string(), "--out", &out]);
        exits(&output, wanted);
    }
}
