// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The suite finds in each model NIC what is wrong with it, and nothing else.

use std::process::Command;

use serde_json::Value;

/// By profile, test and question: all that the paper says of these NICs.
const FINDINGS: [(&str, &[(&str, &str)]); 5] = [
    ("clean", &[]),
    (
        "cx4-lx",
        &[
            ("write-loss", "NAK to retransmission"),
            ("read-loss", "response out of order to new request"),
            ("read-loss", "implied_nak_seq_err"),
            ("tail-loss", "timeouts asked to be 67.1 ms"),
            ("no-answer", "retries asked to be 7"),
            ("marks-of-many", "what CNPs are limited by"),
            ("lossy-neighbours", "READs of those that lost nothing"),
        ],
    ),
    (
        "cx5",
        &[
            ("tail-loss", "timeouts asked to be 67.1 ms"),
            ("no-answer", "retries asked to be 7"),
            ("mig-req", "SENDs of 16 with MigReq 0"),
        ],
    ),
    (
        "cx6-dx",
        &[
            ("tail-loss", "timeouts asked to be 67.1 ms"),
            ("no-answer", "retries asked to be 7"),
            ("two-classes", "goodput of the class without marks"),
        ],
    ),
    (
        "e810",
        &[
            ("write-loss", "MigReq"),
            ("read-loss", "response out of order to new request"),
            ("marks", "least time between CNPs, asked to be 4 µs"),
            ("marks", "np_cnp_sent, cnpSent"),
            ("marks-of-many", "what CNPs are limited by"),
        ],
    ),
];

fn suite(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_midwire"))
        .args(["suite", "rnic", "--json"])
        .args(arguments)
        .output()
        .expect("midwire starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let reports =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"));
    (reports, output.status.code())
}

#[test]
fn each_profile_has_its_findings_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("suite.md");
    let (reports, code) = suite(&["--all", "--write", &page.display().to_string()]);
    assert_eq!(code, Some(1));
    let reports = reports.as_array().unwrap();
    assert_eq!(reports.len(), FINDINGS.len());
    for (report, (profile, expected)) in reports.iter().zip(FINDINGS) {
        assert_eq!(report["profile"], profile);
        let lines = report["lines"].as_array().unwrap();
        let of = |result: &str| -> Vec<[&str; 3]> {
            let lines = lines.iter().filter(|line| line["result"] == result);
            let keys = ["test", "about", "measured"];
            lines
                .map(|line| keys.map(|key| line[key].as_str().unwrap()))
                .collect()
        };
        assert!(of("open").is_empty(), "{profile}: {:?}", of("open"));
        let found: Vec<_> = of("finding")
            .iter()
            .map(|line| (line[0], line[1]))
            .collect();
        assert_eq!(found, expected, "{profile}: {:#?}", lines);
    }
    let page = std::fs::read_to_string(&page).unwrap();
    let found: usize = FINDINGS.iter().map(|(_, expected)| expected.len()).sum();
    assert_eq!(page.matches("**FINDING**").count(), found);
}

#[test]
fn a_nic_without_fault_passes_and_the_figures_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("figures");
    let (reports, code) = suite(&["--profile", "clean", "--figures", &at.display().to_string()]);
    assert_eq!(code, Some(0), "{reports:#}");
    let figure = |number| {
        let path = at.join(format!("figure-{number}.svg"));
        std::fs::read_to_string(path).unwrap()
    };
    for number in 8..=11 {
        assert!(figure(number).contains("</svg>"), "{number}");
    }
    // Where one of two classes is marked, the other gets what is left, but with cx6-dx.
    let drawn = figure(10);
    let heights: Vec<f64> = drawn
        .split("<rect ")
        .filter(|shape| shape.contains("#0072B2"))
        .filter_map(|shape| {
            shape
                .split("height=\"")
                .nth(1)?
                .split('"')
                .next()?
                .parse()
                .ok()
        })
        .collect();
    let [_, starved, alone, _, _, fed, other, _] = heights[..] else {
        panic!("three bars and a legend in two pictures: {heights:?}");
    };
    assert!(starved < 0.7 * alone, "{heights:?}");
    assert!((fed - other).abs() < 0.05 * other, "{heights:?}");
}
