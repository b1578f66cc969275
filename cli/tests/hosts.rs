// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux hosts in virtual time, as a user runs them: the same to the last bit, exact to a clock,
//! and gone when the run is.
//!
//! They need what `make hosts` makes; `make test-hosts` runs them.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use midwire_trace::inside::{self, CaState, Event};
use midwire_trace::{Capture, Lane, Nanos, Port, Record, Tap};
use serde_json::Value;
use tempfile::TempDir;

mod common;

use common::{Plan, run_file, said};

/// Processes that live in a directory.
fn processes_in(directory: &Path) -> usize {
    let inside = |entry: &fs::DirEntry| {
        let cwd = fs::read_link(entry.path().join("cwd"));
        cwd.is_ok_and(|cwd| cwd.starts_with(directory))
    };
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    entries.filter(inside).count()
}

/// Waits until no process lives in a directory.
fn assert_deserted(directory: &Path) {
    let limit = Instant::now() + Duration::from_secs(10);
    while processes_in(directory) > 0 {
        assert!(Instant::now() < limit, "processes stay behind");
        thread::sleep(Duration::from_millis(20));
    }
}

const TCP: &str = "traffic:
  - command: {on: b, run: iperf3 -s -1, background: true}
  - command: {on: a, run: iperf3 -c $MIDWIRE_B -n 1M}
events:
  - {connection: 1, direction: a-to-b, packet: 100, iterations: 1-2, action: drop}
";

#[test]
#[ignore = "needs make hosts"]
fn runs_are_the_same_whatever_the_machine_does() {
    let plan = Plan::new("rate_mbps: 1000, delay: 5us", TCP);
    let first = plan.capture("first", &[]);
    assert!(first.len() > 50_000, "{} bytes", first.len());
    let stop = AtomicBool::new(false);
    let second = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let second = plan.capture("second", &[]);
        stop.store(true, Ordering::Relaxed);
        second
    });
    assert!(first == second, "two runs differ");
    let other = plan.capture("other", &["--seed", "2"]);
    assert!(first != other, "the seed has no say");
    assert_deserted(plan.0.path());
}

#[test]
#[ignore = "needs make hosts"]
fn a_run_is_repeated_and_stopped_at_a_packet() {
    let plan = Plan::new("rate_mbps: 1000, delay: 5us", TCP);
    plan.capture("run", &[]);
    let rerun = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_midwire"));
        let command = command.arg("rerun").arg(plan.path("run")).args(more);
        let output = command.current_dir(plan.0.path()).output();
        let output = output.expect("midwire starts");
        (output.status.code(), said(&output))
    };
    let (code, text) = rerun(&[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("the same to the last bit"), "{text}");

    let out = plan.path("stopped").display().to_string();
    let (code, text) = rerun(&["--until", "300", "--out", &out]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("the same up to packet 300"), "{text}");
    // Packet 100 is lost by then, and the sender knows: Linux has halved its window.
    let host = text.split("Host ").nth(1).expect("host a");
    assert!(host.contains("ssthresh:"), "{host}");
    assert!(host.contains("TcpExt:TCPFastRetrans 1"), "{host}");
    let last = |run: &str| {
        let capture = Capture::open(plan.path(run).join("capture.mwc")).expect("capture");
        let mut entries = capture.by_time();
        let times = std::iter::from_fn(|| Some(entries.next_entry()?.record.time));
        times.collect::<Vec<_>>()
    };
    let (whole, stopped) = (last("run"), last("stopped"));
    assert_eq!(whole[..300], stopped[..300]);
    // What the network cards had taken arrives.
    let after = stopped[stopped.len() - 1].since(whole[299]);
    assert!(after < Nanos(1_000_000), "{after}");

    let (code, text) = rerun(&["--until", "1000000"]);
    assert_eq!(code, Some(2), "{text}");
    assert_deserted(plan.0.path());
}

/// Time goes on for nothing but what takes time, and nobody answers any more.
#[test]
#[ignore = "needs make hosts"]
fn commands_run_on_a_stopped_host() {
    let plan = Plan::new("rate_mbps: 1000, delay: 5us", TCP);
    plan.capture("run", &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_midwire"));
    let command = command.arg("rerun").arg(plan.path("run"));
    let mut shell = (command.args(["--until", "300", "--shell", "a", "--out"]))
        .arg(plan.path("asked"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("midwire starts");
    let commands =
        b"cat /proc/uptime\nss -tin | grep -o 'cwnd:[0-9]* ssthresh'\ncat /proc/uptime\n\
        sleep 3\nss -tin | grep -o 'cwnd:[0-9]* ssthresh'\ncat /proc/uptime\n";
    let mut stdin = shell.stdin.take().expect("its input");
    stdin.write_all(commands).expect("commands written");
    drop(stdin);
    let output = shell.wait_with_output().expect("midwire ends");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let answers: Vec<_> = text.split("host a> ").skip(1).collect();
    let [before, window, after, _, later, end, ..] = answers[..] else {
        panic!("{text}");
    };
    let seconds = |uptime: &str| -> f64 {
        let first = uptime.split(' ').next().expect("a time");
        first.parse().expect("seconds")
    };
    let alone = "cwnd:1 ssthresh\n";
    assert_eq!(seconds(before), seconds(after));
    assert!(seconds(end) >= seconds(before) + 3.0);
    assert!(window != alone && later == alone, "{text}");
    assert_deserted(plan.0.path());
}

/// A server that listens on IPv6 too, loss in both directions, clocks that go wrong, and pacing.
const MANY: &str = "traffic:
  - command: {on: b, run: iperf3 -s -1, background: true}
  - command: {on: a, run: tc qdisc replace dev eth0 root fq; iperf3 -c $MIDWIRE_B -n 2M -P 3}
events:
  - {connection: all, direction: a-to-b, kind: any, packet: all, probability: 1%, action: drop}
  - {connection: all, direction: b-to-a, kind: any, packet: all, probability: 1%, action: drop}
";
const DRIFT: &str =
    "congestion_control: bbr, clock: {offset: 2ms, drift_ppb: 20000}, rate_mbps: 1000";

#[test]
#[ignore = "needs make hosts"]
fn tracing_changes_no_packet() {
    let trace = "trace: [tcp_probe, tcp_retransmit, sockets]";
    // From the kernel's decision to the card: frames before it on the line, and pacing.
    let cases = [
        ("rate_mbps: 1000", TCP, 2_000_000),
        (DRIFT, MANY, 20_000_000),
    ];
    for (options, body, queued) in cases {
        let plain = Plan::new(options, body).capture("run", &[]);
        let plan = Plan::new(&format!("{options}, {trace}"), body);
        let traced = plan.capture("run", &[]);
        assert!(plain == traced, "{options}: tracing has a say");

        let file = fs::File::open(plan.path("run/inside.csv")).expect("inside.csv");
        let moments = inside::read(file).expect("moments");
        let of = |event| moments.iter().filter(move |m| m.event == event);
        // Each retransmission, with the time at which it comes to the card.
        let run = fs::read(plan.path("run/run.json")).expect("run.json");
        let run: Value = serde_json::from_slice(&run).expect("JSON");
        assert_eq!(run["recorded"]["inside"][0]["lost"], 0);
        let seen = run["findings"]["retransmissions"].as_array();
        let seen: Vec<_> = (seen.expect("retransmissions").iter())
            .filter_map(|r| Some((r["connection"].as_u64()?, r["time_ns"].as_u64()?)))
            .collect();
        assert!(seen.len() >= 2);
        for (connection, time) in seen {
            let noted = of(Event::Retransmit)
                .filter(|m| m.connection.map(u64::from) == Some(connection))
                .filter_map(|m| time.checked_sub(m.time_ns.0))
                .min();
            assert!(noted.is_some_and(|ns| ns < queued), "{time}: {noted:?}");
        }
        // Both ends have the same connections, and name what the card names.
        for host in Port::ALL {
            let mut probes = of(Event::Probe).filter(|m| m.host == host);
            assert!(probes.next().is_some());
            assert!(probes.all(|m| m.connection.is_some() && m.cwnd.is_some()));
            let recovers = |m: &inside::Moment| m.ca_state == Some(CaState::Recovery);
            assert!(host == Port::B || of(Event::CaState).any(recovers));
        }
    }
}

#[test]
#[ignore = "needs make hosts"]
fn calls_in_a_kernel_are_followed() {
    let options = |trace| format!("rate_mbps: 1000, trace: [{trace}]");
    let body = "traffic:\n  - tcp: {from: a, to: b, bytes: 200KB}\n";
    let plain = Plan::new(&options("tcp_probe"), body).capture("run", &[]);
    let functions = "tcp_probe, {function_graph: tcp_v4_rcv}, {function_graph: tcp_sendmsg}";
    let plan = Plan::new(&options(functions), body);
    assert!(plain == plan.capture("run", &[]), "tracing has a say");

    let calls = fs::read_to_string(plan.path("run/calls.csv")).expect("calls.csv");
    let calls: Vec<Vec<_>> = calls
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    assert_eq!(calls[0][..4], ["time_ns", "host", "depth", "function"]);
    let file = fs::File::open(plan.path("run/inside.csv")).expect("inside.csv");
    let moments = inside::read(file).expect("moments");
    for host in Port::ALL {
        let own = calls.iter().filter(|call| call[1] == host.to_string());
        let own: Vec<_> = own.map(|call| (call[0], call[2], call[3])).collect();
        // Each segment that a socket takes in comes this way.
        let probes = moments.iter().filter(|m| m.event == Event::Probe);
        let probes: Vec<_> = probes.filter(|m| m.host == host).collect();
        assert!(!probes.is_empty(), "{host}");
        for probe in probes {
            let time = probe.time_ns.0.to_string();
            assert!(own.contains(&(&time, "0", "tcp_v4_rcv")), "{time} {host}");
        }
        assert!(own.iter().any(|call| (call.1, call.2) == ("3", "tcp_ack")));
    }
    assert!(calls.iter().any(|call| call[3] == "tcp_sendmsg"));

    let error = breaks("trace: [{function_graph: tcp_nonsense}]", "true");
    assert!(error.contains("it could not be set up"), "{error}");
}

/// When three pings and their answers come in at the card.
fn pings(options: &str, more: &str) -> [Vec<Record>; 2] {
    let body = format!("traffic:\n  - command: {{on: a, run: ping -c 3 {more} $MIDWIRE_B}}\n");
    let plan = Plan::new(options, &body);
    plan.capture("run", &[]);
    let capture = Capture::open(plan.path("run").join("capture.mwc")).expect("capture");
    let (mut entries, mut ways) = (capture.entries(), [Vec::new(), Vec::new()]);
    while let Some(entry) = entries.next_entry() {
        let way = usize::from(entry.record.lane == Lane::BtoA);
        if entry.record.tap == Tap::Ingress {
            ways[way].push(entry.record);
        }
    }
    assert_eq!(ways.each_ref().map(Vec::len), [3, 3]);
    ways
}

/// From each ping to its answer, in nanoseconds.
fn half_trips(options: &str) -> Vec<u64> {
    let [there, back] = pings(options, "-i 0.1");
    let trip = |(there, back): (&Record, &Record)| back.time.since(there.time).0;
    there.iter().zip(&back).map(trip).collect()
}

#[test]
#[ignore = "needs make hosts"]
fn delays_are_exact() {
    let short = half_trips("delay: 5us");
    // To host B and back; and in host B, where the request waits.
    for (longer, by) in [
        ("delay: 12us", 14_000),
        ("delay: 5us, coalescing: 50us", 50_000),
    ] {
        for (short, long) in short.iter().zip(half_trips(longer)) {
            // But for where it falls between two clocks at either end.
            assert!((long - short).abs_diff(by) <= 8, "{longer}: {long} {short}");
        }
    }
}

#[test]
#[ignore = "needs make hosts"]
fn clocks_drift_as_the_plan_says() {
    let between = |options: &str| {
        let [there, _] = pings(options, "-i 0.1");
        there[2].time.since(there[1].time).0
    };
    let right = between("clock: {drift_ppb: 0}");
    // A fast clock counts the pause between two pings sooner.
    for drift_ppb in [-2_000_000_i64, 1_000_000] {
        let drifting = between(&format!("clock: {{drift_ppb: {drift_ppb}}}"));
        let expected = right as f64 / (1.0 + drift_ppb as f64 / 1e9);
        let off = drifting.abs_diff(expected as u64);
        assert!(off <= 1_000, "{drift_ppb}: {drifting} ns, not {expected}");
    }
}

#[test]
#[ignore = "needs make hosts"]
fn clocks_begin_where_the_plan_says() {
    let date = |n| format!("traffic:\n  - command: {{on: a, run: date +%s >{n}}}\n");
    let seconds = |offset: &str| -> u64 {
        let plan = Plan::new(&format!("clock: {{offset: {offset}}}"), &date("time"));
        plan.capture("run", &[]);
        let text = fs::read_to_string(plan.path("run/host-a/time")).expect("a time");
        text.trim().parse().expect("a number")
    };
    assert_eq!(seconds("7200s") - seconds("0s"), 7200);
}

#[test]
#[ignore = "needs make hosts"]
fn frames_can_be_jumbo() {
    let [there, back] = pings("mtu: 9000", "-i 0.1 -M do -s 8972");
    for record in there.iter().chain(&back) {
        assert_eq!(record.length, 14 + 9000);
    }
    let long = "traffic:\n  - command: {on: a, run: ping -c 1 -M do -s 8973 $MIDWIRE_B}\n\
                expect:\n  - traffic: fails\n";
    Plan::new("mtu: 9000", long).capture("run", &[]);
}

/// Runs commands that break a host; what midwire says.
fn breaks(options: &str, command: &str) -> String {
    let body = format!("traffic:\n  - command: {{on: b, run: {command:?}}}\n");
    let plan = Plan::new(options, &body);
    let output = plan.run("run", &[]);
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    let run = run_file(&plan.path("run"));
    assert_deserted(plan.0.path());
    run["recorded"]["error"]
        .as_str()
        .expect("an error")
        .to_owned()
}

#[test]
#[ignore = "needs make hosts"]
fn a_host_that_panics_ends_the_run() {
    let error = breaks(
        "memory: 128MiB",
        "sysctl -w vm.panic_on_oom=1; tail /dev/zero",
    );
    assert!(error.starts_with("host b: its kernel has ended"), "{error}");
    assert!(error.contains("Kernel panic"), "{error}");
}

#[test]
#[ignore = "needs make hosts"]
fn a_host_that_stops_time_ends_the_run() {
    let error = breaks("patience: 1s", "while :; do :; done");
    assert!(error.contains("while its clock stood still"), "{error}");
}

#[test]
#[ignore = "needs make hosts"]
fn a_host_that_cannot_be_set_up_ends_the_run() {
    let error = breaks("sysctls: {net.ipv4.nonsense: 1}", "true");
    assert!(error.contains("host a: it could not be set up"), "{error}");
    assert!(error.contains("nonsense"), "{error}");
}

#[test]
#[ignore = "needs make hosts"]
fn a_command_that_never_ends_runs_into_the_limit_at_once() {
    let body = "traffic:\n  - command: {on: a, run: sleep 1000000}\ntimeouts: {traffic: 3600s}\nexpect:\n  - traffic: fails\n";
    let plan = Plan::new("delay: 100us", body);
    let start = Instant::now();
    plan.capture("run", &[]);
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
#[ignore = "needs make hosts"]
fn a_run_that_is_killed_leaves_no_process() {
    let body = "traffic:\n  - command: {on: a, run: \"while :; do :; done\"}\n";
    let plan = Plan::new("delay: 5us", body);
    let start = |out| -> Child {
        let mut command = plan.command(out, &[]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("midwire starts")
    };
    for (out, signal) in [("killed", "KILL"), ("interrupted", "INT")] {
        let mut midwire = start(out);
        let limit = Instant::now() + Duration::from_secs(10);
        // Both kernels, and the processes in them.
        while processes_in(plan.0.path()) < 4 {
            assert!(Instant::now() < limit, "the hosts do not start");
            thread::sleep(Duration::from_millis(20));
        }
        let pid = midwire.id().to_string();
        let kill = Command::new("sh")
            .arg("-c")
            .arg(format!("kill -{signal} {pid}"))
            .status();
        assert!(kill.expect("kill").success());
        assert_deserted(plan.0.path());
        midwire.wait().expect("midwire ends");
    }
}

/// Carries out a plan of the repository twice, with the same capture; what RDMA NICs did.
fn twice(plan: &str) -> Value {
    let directory = TempDir::new().expect("temporary directory");
    let [first, second] = ["first", "second"].map(|out| {
        let out = directory.path().join(out);
        let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans");
        let mut command = Command::new(env!("CARGO_BIN_EXE_midwire"));
        let command = command.arg("run").arg(plans.join(plan));
        let output = command.arg("--out").arg(&out).output();
        let output = output.expect("midwire starts");
        // What it expects of findings and counters is met.
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        out
    });
    let capture = |run: &Path| fs::read(run.join("capture.mwc")).expect("a capture");
    assert!(capture(&first) == capture(&second), "two runs differ");
    run_file(&first)["findings"]["roce"]["analysis"].clone()
}

/// How connections of a plan of the repository recovered.
fn recoveries(plan: &str) -> Vec<String> {
    let analysis = twice(plan);
    let checks = analysis["counters"].as_array().expect("counters");
    assert!(checks.len() >= 8, "{checks:?}");
    let recoveries = analysis["recoveries"].as_array().expect("recoveries");
    let found = |recovery: &Value| recovery["found"].as_str().expect("a word").to_owned();
    recoveries.iter().map(found).collect()
}

#[test]
#[ignore = "needs make hosts"]
fn soft_roce_recovers_the_same_in_every_run() {
    assert_eq!(
        recoveries("linux-roce-write.yaml"),
        ["sequence-nak", "sequence-nak", "timeout"]
    );
    assert_eq!(
        recoveries("linux-roce-verbs.yaml"),
        ["sequence-nak", "timeout", "implied-nak", "timeout"]
    );
    assert_eq!(
        recoveries("linux-rdma.yaml"),
        ["sequence-nak", "timeout", "sequence-nak", "implied-nak"]
    );
}

#[test]
#[ignore = "needs make hosts"]
fn soft_roce_says_that_it_is_not_ready() {
    let analysis = twice("linux-roce-rnr.yaml");
    let checks = analysis["counters"].as_array().expect("counters");
    let says = |check: &&Value| check["counter"] == "send_rnr_err" && check["nic"] == "b";
    let rnr = checks.iter().find(says).expect("a counter of RNR NAKs");
    let [says, least, most] = ["says", "least", "most"].map(|name| rnr[name].as_u64());
    assert!(says > Some(0) && says == least && says == most, "{rnr}");
}

#[test]
fn without_a_kernel_a_run_says_what_to_do() {
    let plan = Plan::new("delay: 5us", TCP);
    let empty = TempDir::new().expect("temporary directory");
    let output = plan
        .command("run", &[])
        .env("XDG_CACHE_HOME", empty.path())
        .output()
        .expect("midwire starts");
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    assert!(
        said(&output).contains("run `make hosts`"),
        "{}",
        said(&output)
    );
}
