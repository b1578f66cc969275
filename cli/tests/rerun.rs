// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs in virtual time that are repeated, and told from what is not the same.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use midwire_trace::Nanos;
use midwire_trace::build::{Path as Route, udp};
use midwire_trace::export::pcapng::{About, Frame, Writer};
use serde_json::Value;
use tempfile::TempDir;

struct Bench(TempDir);

impl Bench {
    /// Runs a plan with these endpoints and more.
    fn new(endpoints: [&str; 2], body: &str) -> Self {
        let bench = Self(TempDir::new().expect("temporary directory"));
        let [a, b] = endpoints;
        let text =
            format!("version: 1\nname: test\nendpoints:\n  a: {{{a}}}\n  b: {{{b}}}\n{body}");
        fs::write(bench.path("plan.yaml"), text).expect("plan written");
        bench.play_file(1);
        let output = bench.midwire(&["run", "plan.yaml", "--out", "run"]);
        assert!(bench.path("run/run.json").exists(), "{}", said(&output));
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the file that a plan may play.
    fn play_file(&self, byte: u8) {
        let bytes = udp(&Route::ipv4(1, 2), &[byte; 100]);
        let file = fs::File::create(self.path("frames.pcapng")).expect("file");
        let mut writer = Writer::new(file, &About::default()).expect("pcapng");
        writer.interface("test", "", None, 0).expect("interface");
        let frame = Frame::received(0, Nanos(1000), &bytes);
        writer.packet(&frame).expect("packet");
        writer.finish().expect("pcapng");
    }

    fn midwire(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_midwire"));
        let command = command.args(arguments).current_dir(self.0.path());
        command.output().expect("midwire starts")
    }

    /// What a rerun says, and its exit code.
    fn rerun(&self, more: &[&str]) -> (i32, String) {
        let output = self.midwire(&[&["rerun", "run"], more].concat());
        (output.status.code().expect("an exit code"), said(&output))
    }
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

const NICS: [&str; 2] = [
    "rnic: {address: 10.0.0.1/24}",
    "rnic: {address: 10.0.0.2/24}",
];
const WRITES: &str = "traffic:
  - rdma: {from: a, to: b, verb: write, messages: 3, size: 10KiB}
events:
  - {direction: a-to-b, packet: 5, action: drop}
";

#[test]
fn a_run_of_models_is_repeated_to_the_bit() {
    let bench = Bench::new(NICS, WRITES);
    let (code, text) = bench.rerun(&["--out", "again"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("the same to the last bit"), "{text}");
    let [first, again] = ["run", "again"].map(|run| bench.path(run).join("capture.mwc"));
    assert!(fs::read(first).expect("a capture") == fs::read(again).expect("a capture"));
    let (code, text) = bench.rerun(&["--until", "3"]);
    assert_eq!(code, 2, "{text}");
}

#[test]
fn the_first_packet_that_differs_is_named() {
    let bench = Bench::new(NICS, WRITES);
    let json = fs::read_to_string(bench.path("run/run.json")).expect("run.json");
    // Both NICs are as far away as the plan says unless it says otherwise.
    assert!(json.contains(r#""delay": "500ns""#), "{json}");
    let other = json.replace(r#""delay": "500ns""#, r#""delay": "600ns""#);
    fs::write(bench.path("run/run.json"), other).expect("run.json");
    let (code, text) = bench.rerun(&["--out", "again"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("NOT the same from packet 1 on"), "{text}");
    let time = text.lines().find(|line| line.trim().starts_with("time"));
    assert!(time.is_some_and(|line| line.ends_with("differs")), "{text}");

    let output = bench.midwire(&["diff", "run", "again"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("NOT the same from packet 1 on"), "{text}");
    assert!(
        text.contains("0 only in the first, 0 only in the second"),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.contains(" 1 ") && line.contains("99 ns")),
        "{text}"
    );
    assert_eq!(
        bench.midwire(&["diff", "run", "run"]).status.code(),
        Some(0)
    );
}

#[test]
fn files_that_have_changed_are_refused() {
    let file = ["pcap: {in: frames.pcapng}", "pcap: {}"];
    let bench = Bench::new(file, "");
    let (code, text) = bench.rerun(&[]);
    assert_eq!(code, 0, "{text}");
    bench.play_file(2);
    let (code, text) = bench.rerun(&[]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("frames.pcapng is not what it was"), "{text}");
}

#[test]
fn what_lives_in_real_time_is_refused() {
    let bench = Bench::new(NICS, WRITES);
    let path = bench.path("run/run.json");
    let json = fs::read(&path).expect("run.json");
    let mut run: Value = serde_json::from_slice(&json).expect("JSON");
    let external = serde_json::json!({"a": "external", "b": "external"});
    run["recorded"]["plan"]["parsed"]["endpoints"] = external;
    fs::write(&path, run.to_string()).expect("run.json");
    let (code, text) = bench.rerun(&[]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("real time"), "{text}");
}
