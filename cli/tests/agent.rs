// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agents that send RDMA messages, in Linux hosts in virtual time with Soft-RoCE.
//!
//! They need what `make hosts` and `make agent` make; `make test-hosts` runs them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use midwire_trace::{Capture, Tap};
use serde_json::Value;

mod common;

use common::{Plan, run_file, said};

const HOST: &str = "rate_mbps: 10000, delay: 2us, rdma: true";

/// An entry of the traffic, and events.
fn body(traffic: &str, events: &str) -> String {
    format!("traffic:\n  - rdma: {{from: a, to: b, {traffic}}}\nevents: [{events}]\n")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Runs a plan, with this status; `run.json`.
fn run(plan: &Plan, status: i32) -> Value {
    let output = plan.run("run", &[]);
    assert_eq!(output.status.code(), Some(status), "{}", said(&output));
    run_file(&plan.path("run"))
}

/// What a host's kernel has counted at the end, by the console and not by the agent.
fn counted(plan: &Plan, host: &str, name: &str) -> u64 {
    let file = plan.path(&format!("run/host-{host}/rdma-counters"));
    let text = fs::read_to_string(file).expect("counters");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.expect("the counter").trim().parse().expect("a number")
}

/// Of each verb: its traffic, the event that loses a packet of it, and that packet's connection.
const VERBS: [(&str, &str, u32); 3] = [
    (
        "verb: write, messages: 10, size: 32KiB",
        "connection: 0, direction: a-to-b, psn: 40",
        0,
    ),
    (
        "verb: send, messages: 10, size: 32KiB",
        "connection: 0, direction: a-to-b, psn: 40",
        0,
    ),
    (
        "verb: read, messages: 10, size: 32KiB",
        "connection: 1, direction: b-to-a, psn: 40",
        1,
    ),
];

#[test]
#[ignore = "needs make hosts and make agent"]
fn verdicts_match_what_the_hosts_counted() {
    for (traffic, lost, _) in VERBS {
        for event in [String::new(), format!("{{{lost}, action: drop}}")] {
            let plan = Plan::new(HOST, &body(traffic, &event));
            let run = run(&plan, 0);
            let report = &run["recorded"]["traffic"][0]["details"];
            assert_eq!(report["bytes"], 10 * 32 * 1024, "{traffic}");
            assert_eq!(report["wrong_bytes"], 0, "{traffic}");
            assert_eq!(report["completed"], true, "{traffic}");
            // 32 packets at 10 Gb/s, there or back, and what comes before and after
            let median = number(&report["completion_times"]["p50_ns"]);
            assert!((28_000..40_000).contains(&median), "{traffic}: {median} ns");

            let analysis = &run["findings"]["roce"]["analysis"];
            assert_eq!(
                analysis["findings"],
                Value::Array(Vec::new()),
                "{traffic} {event}"
            );
            let recoveries = analysis["recoveries"].as_array().expect("recoveries");
            assert_eq!(
                recoveries.len(),
                usize::from(!event.is_empty()),
                "{traffic}"
            );
            for (n, host) in ["a", "b"].into_iter().enumerate() {
                let nic = &run["recorded"]["nics"][n]["counters"];
                for name in [
                    "sent_pkts",
                    "rcvd_pkts",
                    "out_of_seq_request",
                    "rcvd_seq_err",
                ] {
                    assert_eq!(
                        number(&nic[name]),
                        counted(&plan, host, name),
                        "{traffic} {name}"
                    );
                }
            }
            let naks = u64::from(!event.is_empty() && !traffic.contains("read"));
            assert_eq!(counted(&plan, "b", "out_of_seq_request"), naks, "{traffic}");
        }
    }
}

/// A byte that changes on its way, with a good ICRC: only who has the bytes can tell.
#[test]
#[ignore = "needs make hosts and make agent"]
fn wrong_bytes_are_found() {
    // With more, slots are shared, and messages looked at as they come.
    let many = ("verb: read, messages: 20, size: 1MiB", VERBS[2].1, 0);
    for (traffic, lost, _) in VERBS.into_iter().chain([many]) {
        let change = "corrupt: {at: payload, mend: [icrc]}";
        let event = format!("{{{lost}, action: {{{change}}}}}");
        let body = body(traffic, &event) + "expect:\n  - traffic: fails\n";
        let run = run(&Plan::new(HOST, &body), 0);
        let entry = &run["recorded"]["traffic"][0];
        assert_eq!(
            entry["details"]["wrong_bytes"], 1,
            "{traffic}: {}",
            entry["summary"]
        );
    }
}

/// The bytes of a frame's BTH: its queue pair and its PSN.
fn bth(frame: &[u8]) -> (u64, u64) {
    let three = |at: usize| {
        let bytes = &frame[14 + 20 + 8 + at..];
        u64::from(bytes[0]) << 16 | u64::from(bytes[1]) << 8 | u64::from(bytes[2])
    };
    (three(5), three(9))
}

/// What agents tell the card is what it would have learnt from the packets.
#[test]
#[ignore = "needs make hosts and make agent"]
fn the_card_knows_queue_pairs_from_the_first_packet_on() {
    for (traffic, lost, data) in VERBS {
        let first = lost.replace("psn: 40", "psn: 0, action: ecn");
        let plan = Plan::new(HOST, &body(traffic, &format!("{{{first}}}")));
        let run = run(&plan, 0);
        let qp = &run["recorded"]["traffic"][0]["details"]["qps"][0];
        let ends = [&qp["peer_qp"], &qp["qp"]].map(number);
        let first_psn = number(&qp["first_psn"]);
        let connections = run["recorded"]["connections"]
            .as_array()
            .expect("connections");
        let names: Vec<_> = connections
            .iter()
            .map(|c| c["text"].as_str().expect("text"))
            .collect();
        let to = |n: usize| format!("10.77.0.{} QP {}", 2 - n, ends[n]);
        assert_eq!(names.len(), 2);
        for (n, name) in names.iter().enumerate() {
            assert!(name.ends_with(&to(n)), "{name}");
        }
        let capture = Capture::open(plan.path("run/capture.mwc")).expect("capture");
        let (mut entries, mut packets) = (capture.entries(), 0);
        while let Some(entry) = entries.next_entry() {
            let record = entry.record;
            if record.tap != Tap::Ingress {
                continue;
            }
            let connection = record.connection.expect("a connection");
            let (queue_pair, psn) = bth(entry.snapshot);
            assert_eq!(queue_pair, ends[usize::from(connection)]);
            if u32::from(connection) == data {
                assert_eq!(record.slot.is_some(), psn == first_psn, "{traffic}");
                packets += 1;
            }
        }
        assert!(packets >= 320, "{packets}");
    }
}

/// SENDs, READs and, the other way, SENDs at the same time, so that either end asks and answers at
/// once; then WRITEs.
#[test]
#[ignore = "needs make hosts and make agent"]
fn entries_run_together() {
    let rdma = |entry: &str| format!("  - rdma: {{messages: 10, size: 32KiB, {entry}}}\n");
    let body = [
        "traffic:\n".to_owned(),
        rdma("from: a, to: b, verb: send, qps: 2"),
        rdma("from: a, to: b, verb: read, together: true"),
        rdma("from: b, to: a, verb: send, qps: 2, receives: 2, together: true"),
        rdma("from: a, to: b, verb: write"),
        "events:\n".to_owned(),
        "  - {connection: 2, direction: a-to-b, psn: 40, action: drop}\n".to_owned(),
        "  - {connection: 5, direction: b-to-a, psn: 40, action: drop}\n".to_owned(),
        "  - {connection: 6, direction: b-to-a, psn: 40, action: drop}\n".to_owned(),
    ];
    let plan = Plan::new(HOST, &body.concat());
    let run = run(&plan, 0);
    for (n, qps) in [2, 1, 2, 1].into_iter().enumerate() {
        let report = &run["recorded"]["traffic"][n]["details"];
        assert_eq!(report["completed"], true, "{n}: {report}");
        assert_eq!(report["bytes"], qps * 10 * 32 * 1024, "{n}");
    }
    let analysis = &run["findings"]["roce"]["analysis"];
    let recoveries = analysis["recoveries"].as_array().expect("recoveries");
    assert_eq!(recoveries.len(), 3);
    // While it carries out transfers, an end has receives for those of the other.
    assert_eq!(counted(&plan, "a", "send_rnr_err"), 0);

    let capture = Capture::open(plan.path("run/capture.mwc")).expect("capture");
    let (mut entries, mut spans) = (capture.entries(), vec![None; 6]);
    while let Some(entry) = entries.next_entry() {
        let record = entry.record;
        let connection = record.connection.expect("a connection");
        let time = record.time.0;
        let span = spans[usize::from(connection) / 2].get_or_insert((time, time));
        span.1 = time;
    }
    let spans: Vec<_> = spans
        .into_iter()
        .map(|span| span.expect("packets"))
        .collect();
    let together = &spans[..5];
    let last_begin = together.iter().map(|span| span.0).max();
    let first_end = together.iter().map(|span| span.1).min();
    let last_end = together.iter().map(|span| span.1).max();
    assert!(last_begin < first_end, "{spans:?}");
    assert!(last_end < Some(spans[5].0), "{spans:?}");
    let first = fs::read(plan.path("run/capture.mwc")).expect("a capture");
    assert!(first == plan.capture("again", &[]), "two runs differ");
}

/// More packets than Linux lets wait for a line by default, and more queue pairs than that.
#[test]
#[ignore = "needs make hosts and make agent"]
fn many_queue_pairs_send_at_once() {
    for (qps, size) in [(100, 64), (2048, 1)] {
        let traffic = format!("verb: write, qps: {qps}, messages: 1, size: {size}KiB");
        let run = run(&Plan::new(HOST, &body(&traffic, "")), 0);
        let report = &run["recorded"]["traffic"][0]["details"];
        assert_eq!(report["completed"], true, "{qps}");
        assert_eq!(report["messages"], qps);
    }
}

#[test]
#[ignore = "needs make hosts and make agent"]
fn queue_pairs_are_chosen_and_exported() {
    let traffic = "verb: write, qps: 3, messages: 2, size: 8KiB";
    let event = "{connection: 2, direction: a-to-b, psn: 5, action: drop}";
    let body = body(traffic, event) + "selectors: [{transport: roce, from: a}]\n";
    let plan = Plan::new(HOST, &body);
    let run = run(&plan, 0);
    let qps = &run["recorded"]["traffic"][0]["details"]["qps"];
    let connections = run["recorded"]["connections"]
        .as_array()
        .expect("connections");
    assert_eq!(connections.len(), 3);
    for (n, connection) in connections.iter().enumerate() {
        let to = format!("10.77.0.2 QP {}", number(&qps[n]["peer_qp"]));
        let text = connection["text"].as_str().expect("text");
        assert!(text.ends_with(&to), "{text}");
    }
    let to = plan.path("lumina").display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_midwire"));
    let command = command.arg("export").arg(plan.path("run"));
    let output = command.args(["--lumina", &to]).output().expect("midwire");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let file = plan.path("lumina/0/switch-result/switch_message_snapshot.yml");
    let text = fs::read_to_string(file).expect("the queue pairs");
    assert_eq!(text.lines().count(), 3, "{text}");
    let last = format!(
        "psn_snd: {}, qpn_rcv: {}",
        qps[2]["first_psn"], qps[2]["peer_qp"]
    );
    assert!(text.contains(&last), "{text}");
    let recovery = &run["findings"]["roce"]["analysis"]["recoveries"][0];
    let lost = (number(&qps[2]["first_psn"]) + 5) & 0xff_ffff;
    assert_eq!(number(&recovery["psn"]), lost);
}

#[test]
#[ignore = "needs make hosts and make agent"]
fn runs_of_agents_are_the_same() {
    let traffic = "verb: send-read, qps: 3, messages: 10, size: 8KiB, tx_depth: 2, barrier: true";
    let plan = Plan::new(
        HOST,
        &body(traffic, "{direction: a-to-b, psn: 5, action: drop}"),
    );
    let [first, second] = ["first", "second"].map(|out| plan.capture(out, &[]));
    assert!(first == second, "two runs differ");
    assert!(
        first != plan.capture("other", &["--seed", "2"]),
        "the seed has no say"
    );
}

/// What a plan asks of the NIC's settings is done first, or the run ends.
#[test]
#[ignore = "needs make hosts and make agent"]
fn setup_that_fails_ends_the_run() {
    let agent = |line: &str| {
        let request = format!(r#"{{"open":{{"device":null,"addresses":[],"setup":["{line}"]}}}}"#);
        format!("(echo '{request}'; sleep 1) | ./midwire-agent")
    };
    let program = Path::new(env!("CARGO_BIN_EXE_midwire")).with_file_name("midwire-agent");
    let body = format!(
        "traffic:\n  - command: {{on: a, run: {:?}}}\n",
        agent("echo set; true") + "; " + &agent("echo no such NIC >&2; false")
    );
    let plan = Plan::new(&format!("{HOST}, files: [{}]", program.display()), &body);
    run(&plan, 0);
    let said = fs::read_to_string(plan.path("run/host-a/0.stdout")).expect("output");
    let lines: Vec<_> = said.lines().collect();
    assert!(
        lines[1].starts_with(r#"{"opened":{"device":"rxe0""#),
        "{said}"
    );
    assert!(lines[3].contains("failed: no such NIC"), "{said}");
    assert_eq!(lines.len(), 4, "{said}");
}

/// While their agents wait for messages, hosts are stopped and looked at.
#[test]
#[ignore = "needs make hosts and make agent"]
fn runs_of_agents_are_stopped_at_a_packet() {
    let plan = Plan::new(HOST, &body(VERBS[0].0, ""));
    plan.capture("run", &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_midwire"));
    let command = command.arg("rerun").arg(plan.path("run"));
    let command = command.args(["--until", "100"]).current_dir(plan.0.path());
    let output = command.output().expect("midwire starts");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("the same up to packet 100"), "{text}");
    let host = text.split("Host ").nth(2).expect("host b");
    assert!(host.contains("Udp:InDatagrams 9"), "{host}");
}

/// Nothing arrives any more: retries end it, and without retries the time limit does.
#[test]
#[ignore = "needs make hosts and make agent"]
fn messages_that_never_complete_end_in_time() {
    let event = "{direction: a-to-b, psn: 10-, iterations: all, action: drop}";
    let more = "expect:\n  - traffic: fails\ntimeouts: {traffic: 2s}\n";
    for (timeout, words) in [
        ("timeout: 8, retries: 2", "transport retry counter exceeded"),
        ("timeout: 0", "did not complete in 2"),
    ] {
        let traffic = format!("verb: write, messages: 4, size: 8KiB, {timeout}");
        let plan = Plan::new(HOST, &(body(&traffic, event) + more));
        let run = run(&plan, 0);
        let entry = &run["recorded"]["traffic"][0];
        assert_eq!(entry["completed"], false);
        let summary = entry["summary"].as_str().expect("a summary");
        assert!(summary.contains(words), "{summary}");
        assert_eq!(entry["details"]["messages"], 1, "{summary}");
    }
}

/// What midwire says when an agent does what it should not.
fn says(options: &str, agent: &str) -> String {
    let plan = Plan::new(&format!("{options}, agent: agent"), &body(VERBS[0].0, ""));
    let file = plan.path("agent");
    fs::write(&file, agent).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("executable");
    let run = run(&plan, 5);
    run["recorded"]["error"]
        .as_str()
        .expect("an error")
        .to_owned()
}

#[test]
#[ignore = "needs make hosts"]
fn agents_that_go_wrong_end_the_run() {
    let greeting =
        |version| format!(r#"echo '{{"greeting":{{"version":{version},"midwire":"9"}}}}'"#);
    for (script, words) in [
        (greeting(9), "speaks version 9 of the protocol"),
        ("echo '{\"hello\":1}'".to_owned(), "says what is no answer"),
        (
            greeting(2) + "; read -r line; exit 3",
            "its agent has broken down",
        ),
        (
            greeting(2) + "; sleep 1000",
            "agents did not get ready in time",
        ),
        (
            greeting(2) + "; read -r line; echo '{\"failed\":\"there is no RDMA device\"}'",
            "agent at port a: there is no RDMA device",
        ),
    ] {
        let error = says(HOST, &format!("#!/bin/sh\n{script}\n"));
        assert!(error.contains(words), "{script}: {error}");
    }
}

#[test]
fn without_an_agent_a_run_says_what_to_do() {
    let plan = Plan::new(&format!("{HOST}, agent: nowhere"), &body(VERBS[0].0, ""));
    let output = plan.run("run", &[]);
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    assert!(
        said(&output).contains("run `make agent`"),
        "{}",
        said(&output)
    );
}
