// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What DETER's authors found in their day's Linux: `plans/deter`. Each case happens on the kernel
//! of Linux hosts, or is shown to be mended (docs/deter.md).
//!
//! They need what `make hosts` makes; `make test-hosts` runs them.

use std::fs;
use std::path::Path;
use std::process::Command;

use midwire_trace::{Capture, Lane, Tap};
use serde_json::Value;
use tempfile::TempDir;

struct Run {
    directory: TempDir,
    passed: bool,
    json: Value,
}

impl Run {
    /// Of a case's plan, with its text changed.
    fn of(case: &str, change: impl Fn(&str) -> String) -> Self {
        let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans/deter");
        let text = fs::read_to_string(plans.join(case)).expect("a plan");
        let directory = TempDir::new().expect("temporary directory");
        let (plan, out) = (
            directory.path().join("plan.yaml"),
            directory.path().join("run"),
        );
        fs::write(&plan, change(&text)).expect("plan written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_midwire"));
        let output = command
            .arg("run")
            .args([&plan, Path::new("--out"), &out])
            .output();
        let output = output.expect("midwire starts");
        let json = fs::read(out.join("run.json")).unwrap_or_else(|_| {
            panic!("{case}: {}", String::from_utf8_lossy(&output.stderr));
        });
        Self {
            directory,
            passed: output.status.success(),
            json: serde_json::from_slice(&json).expect("JSON"),
        }
    }

    /// As the plan has it.
    fn happens(case: &str) -> Self {
        let run = Self::of(case, str::to_owned);
        assert!(run.passed, "{case}: {}", run.json["verdict"]);
        run
    }

    /// With what is not in the way of today's Linux.
    fn today(case: &str) -> Self {
        Self::of(case, |text| {
            let old = ["tcp_early_retrans", "tcp_recovery"];
            let today = text
                .lines()
                .filter(|line| !old.iter().any(|o| line.contains(o)));
            let text: String = today.map(|line| format!("{line}\n")).collect();
            text.replace("sysctls:\n  b:", "sysctls: {}\n  b:")
        })
    }

    /// Segment and time of each retransmission, in µs after the one before.
    fn again(&self) -> Vec<(u64, u64)> {
        let all = self.json["findings"]["retransmissions"].as_array();
        let number = |r: &Value, name: &str| r[name].as_u64().expect("a number");
        (all.expect("retransmissions").iter())
            .map(|r| (number(r, "segment"), number(r, "after_ns") / 1000))
            .collect()
    }

    /// Acknowledgement number and window of B's packets that carry nothing, with their times in µs.
    fn acks(&self) -> Vec<(u64, u32, u16)> {
        let capture = Capture::open(self.directory.path().join("run/capture.mwc"));
        let capture = capture.expect("a capture");
        let mut entries = capture.entries_of(Lane::BtoA, Tap::Ingress);
        let mut acks = Vec::new();
        while let Some(entry) = entries.next_entry() {
            let r = entry.record;
            if r.payload_len == 0 && r.tcp_flags == 0x10 {
                acks.push((r.time.0 / 1000, r.f1, r.f2));
            }
        }
        acks
    }
}

#[test]
#[ignore = "needs make hosts"]
fn a_delayed_ack_makes_the_timer_run_out_twice() {
    let again = Run::happens("two-timeouts.yaml").again();
    let [(69, first), (69, second), (70, _)] = again[..] else {
        panic!("{again:?}");
    };
    // The second after twice the time; both before an ACK is delayed by 40 ms at most.
    assert!((5_000..8_000).contains(&first), "{first}");
    assert!((12_000..16_000).contains(&second), "{second}");
    let today = Run::today("two-timeouts.yaml").again();
    assert!(
        today.len() == 2 && today.iter().all(|(_, us)| *us < 5_000),
        "{today:?}"
    );
}

#[test]
#[ignore = "needs make hosts"]
fn two_duplicate_acks_are_too_few() {
    let run = Run::happens("few-duplicate-acks.yaml");
    let again = run.again();
    assert!(again[0].0 == 5 && again[0].1 > 200_000, "{again:?}");
    // So long takes what has 80 µs on the line.
    let told = run.json["recorded"]["traffic"][0]["summary"].as_str();
    assert!(
        told.is_some_and(|text| text.contains("arrived in 205.")),
        "{told:?}"
    );
    let today = Run::today("few-duplicate-acks.yaml").again();
    assert!(today[0].0 == 5 && today[0].1 < 1_000, "{today:?}");
}

#[test]
#[ignore = "needs make hosts"]
fn a_window_that_opens_hides_no_duplicate_acks_any_more() {
    let windows = |run: &Run| {
        let acks = run.acks();
        let ack = acks
            .windows(2)
            .find(|pair| pair[0].1 == pair[1].1)
            .expect("duplicates")[0]
            .1;
        let same = acks.iter().filter(|a| a.1 == ack).map(|a| a.2);
        same.collect::<Vec<_>>()
    };
    let plain = windows(&Run::happens("window-updates.yaml"));
    assert!(
        plain.len() > 20 && plain.iter().all(|w| *w == plain[0]),
        "{plain:?}"
    );
    // With SACK it does open, and does no harm.
    let sack = Run::of("window-updates.yaml", |text| {
        text.replace("tcp_sack: 0", "tcp_sack: 1")
    });
    let open = windows(&sack);
    assert!(
        sack.passed && open.is_sorted() && open[0] < open[20],
        "{open:?}"
    );
}

#[test]
#[ignore = "needs make hosts"]
fn reordering_makes_later_losses_seen_late() {
    let last = |run: Run| *run.again().last().expect("a retransmission");
    let (segment, late) = last(Run::happens("late-fast-retransmit.yaml"));
    assert!(segment == 665 && late > 200_000, "{segment} {late}");
    let limited = Run::of("late-fast-retransmit.yaml", |text| {
        let limit = "tcp_early_retrans: 0\n        net.ipv4.tcp_max_reordering: 3 #";
        text.replace("tcp_early_retrans: 0", limit)
    });
    for run in [limited, Run::today("late-fast-retransmit.yaml")] {
        let (segment, soon) = last(run);
        assert!(segment == 665 && soon < 1_000, "{segment} {soon}");
    }
}

#[test]
#[ignore = "needs make hosts"]
fn a_buffer_that_shrinks_delays_acks() {
    let longest = |run: &Run| {
        let acks = run.acks();
        let waits = acks.windows(2).map(|pair| pair[1].0 - pair[0].0);
        waits.max().expect("ACKs")
    };
    let wait = longest(&Run::happens("busy-receiver.yaml"));
    assert!((38_000..42_000).contains(&wait), "{wait}");
    let today = Run::today("busy-receiver.yaml");
    assert!(longest(&today) < 5_000, "{:?}", today.again());
}

#[test]
#[ignore = "needs make hosts"]
fn a_slow_reader_closes_the_window() {
    let acks = Run::happens("zero-window.yaml").acks();
    let closed: Vec<_> = acks.iter().filter(|ack| ack.2 == 0).collect();
    assert!(closed.len() >= 2, "{closed:?}");
    // Each time it opens with the next read: after 100 ms at most.
    for (at, ..) in closed {
        let opens = acks
            .iter()
            .find(|(time, _, window)| time > at && *window > 0);
        assert!(opens.is_some_and(|(time, ..)| time - at <= 100_000));
    }
}

/// What `midwire diff` says of a case and of the same with its frame held back for so long, a clock
/// of the card more than the 1002 ns of the case.
fn held_longer(case: &str, longer: &str, change: impl Fn(&str) -> String) -> String {
    let [run, later] = ["1002ns", longer].map(|to| {
        let run = Run::of(case, |text| change(text).replace("1002ns", to));
        assert!(run.passed, "{to}: {}", run.json["verdict"]);
        run
    });
    let picture = run.directory.path().join("picture.svg");
    let mut command = Command::new(env!("CARGO_BIN_EXE_midwire"));
    let command = command.arg("diff").arg("--picture").arg(&picture);
    let runs = [&run, &later].map(|run| run.directory.path().join("run"));
    let output = command.args(runs).output().expect("midwire starts");
    // The delay itself differs in any case.
    assert_eq!(output.status.code(), Some(1));
    let svg = fs::read_to_string(picture).expect("a picture");
    assert!(svg.contains("connection 2 a-to-b, second run"));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
#[ignore = "needs make hosts"]
fn a_nanosecond_makes_another_run() {
    let diff = held_longer("butterfly.yaml", "1003ns", str::to_owned);
    let (_, packets) = diff.split_once("Packets").expect("a comparison");
    let mut words = packets.split_whitespace();
    let [both, first] = [0, 3].map(|n| words.nth(n).and_then(|w| w.parse::<u64>().ok()));
    assert!(both > Some(10_000) && first > Some(5_000), "{packets}");
    // Nothing moves by a nanosecond for most of a second, and then by far more.
    let part = packets.lines().nth(2).expect("where they part");
    let at: Vec<&str> = part.split_whitespace().skip(1).take(2).collect();
    let after = at[0].parse::<f64>().expect("a time");
    assert!(at[1] == "s" || (at[1] == "ms" && after > 900.0), "{part}");
}

#[test]
#[ignore = "needs make hosts"]
fn a_queue_takes_up_a_clock_of_cubic() {
    // Here one nanosecond more may end in the same clock, but not more than a clock of 3.1 ns.
    let diff = held_longer("butterfly.yaml", "1006ns", |text| {
        text.replace("bbr", "cubic")
    });
    assert!(
        diff.contains("0 only in the first, 0 only in the second"),
        "{diff}"
    );
}
