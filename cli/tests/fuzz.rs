// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire fuzz` on model NICs behind the card's RTL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn midwire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_midwire"))
        .args(arguments)
        .output()
        .expect("midwire starts")
}

#[track_caller]
fn exits(output: &Output, expected: i32) {
    let told = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(expected), "{told}{complained}");
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A target that comes with midwire, in a directory of its own, where its plan is changed.
fn target(name: &str, change: impl FnOnce(String) -> String) -> (TempDir, PathBuf) {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans/fuzz");
    let read = |name: &str| fs::read_to_string(shipped.join(name)).expect("it is there");
    let directory = TempDir::new().expect("temporary directory");
    let target = directory.path().join(name);
    fs::write(&target, read(name)).expect("written");
    let plan = change(read("two-nics.yaml"));
    fs::write(directory.path().join("two-nics.yaml"), plan).expect("written");
    (directory, target)
}

fn cleaned(plan: String) -> String {
    let clean = plan.replace(", faults: [noisy-neighbour]", "");
    assert_ne!(clean, plan);
    clean
}

#[test]
fn the_noisy_neighbour_is_found_reduced_and_saved_as_a_plan() {
    let (directory, target) = target("neighbours.yaml", |plan| plan);
    let out = directory.path().join("out");
    let found = midwire(&[
        "fuzz",
        path(&target),
        "--seed",
        "1",
        "--budget",
        "100",
        "--json",
        "-o",
        path(&out),
    ]);
    exits(&found, 1);
    let state: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    let [finding] = state["findings"].as_array().map_or(&[][..], Vec::as_slice) else {
        panic!("{}", state["findings"]);
    };
    assert_eq!(finding["signs"][0], "innocent");
    // Twelve READs in recovery, and one queue pair beside them.
    assert_eq!(
        finding["reduced"]["hits"].as_array().map(Vec::len),
        Some(12)
    );
    assert_eq!(finding["reduced"]["traffic"]["verb"], "read");
    assert_eq!(finding["reduced"]["traffic"]["qps"], 13);

    let plan = out.join("finding-1/plan.yaml");
    let run = directory.path().join("run");
    exits(&midwire(&["run", path(&plan), "--out", path(&run)]), 1);
    let text = fs::read_to_string(&plan).expect("a plan");
    let clean = text.replace("faults: [noisy-neighbour], ", "");
    assert_ne!(clean, text);
    fs::write(directory.path().join("clean.yaml"), clean).expect("written");
    let run = directory.path().join("clean");
    let plan = directory.path().join("clean.yaml");
    exits(&midwire(&["run", path(&plan), "--out", path(&run)]), 0);
}

#[test]
fn clean_nics_have_no_finding_and_jobs_make_no_difference() {
    let (directory, target) = target("losses.yaml", cleaned);
    let search = |jobs: &str, budget: &str, rest: &[&str]| {
        let out = directory.path().join(jobs);
        let options = [
            "--seed",
            "5",
            "--budget",
            budget,
            "--jobs",
            jobs,
            "-o",
            path(&out),
        ];
        let arguments = [&["fuzz", path(&target)], &options[..], rest].concat();
        exits(&midwire(&arguments), 0);
        fs::read(out.join("state.json")).expect("a state")
    };
    let whole = search("1", "24", &[]);
    search("3", "16", &[]);
    assert!(
        whole == search("3", "24", &["--resume"]),
        "the states differ"
    );
}

#[test]
fn a_search_is_refused_with_its_place_and_reason() {
    let (directory, target) = target("losses.yaml", |plan| plan);
    let text = fs::read_to_string(&target).expect("a target");
    fs::write(&target, text.replace("qps: 1-40", "qps: 0-40")).expect("written");
    let out = directory.path().join("out");
    let refused = midwire(&["fuzz", path(&target), "-o", path(&out)]);
    exits(&refused, 2);
    let complained = String::from_utf8_lossy(&refused.stderr);
    assert!(
        complained.contains(":8:8: qps 0, expected 1 to 4096"),
        "{complained}"
    );
    assert!(!out.exists());
}
