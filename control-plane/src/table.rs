// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of a run as a person reads it at a terminal.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use midwire_analysis::roce;

use crate::run_file::{NicRecord, RunFile, files};
use crate::text::{Align::Left, Align::Right, columns, time};
use crate::verdict::counted;

/// Retransmissions that are listed; the rest is counted.
const LISTED: usize = 20;

/// The result of a run whose directory is `dir`.
pub fn text(run: &RunFile, dir: &Path) -> String {
    let mut out = String::new();
    let findings = &run.findings;
    let tick = |good: bool| if good { "yes" } else { "NO" }.to_owned();

    if !findings.events.is_empty() {
        let rows: Vec<_> = findings
            .events
            .iter()
            .map(|event| {
                let fired = match event.wanted {
                    Some(wanted) => format!("{} of {wanted}", event.fired),
                    None => event.fired.to_string(),
                };
                vec![
                    event.number.to_string(),
                    event.asked.clone(),
                    fired,
                    tick(event.done),
                    event.measured.clone(),
                ]
            })
            .collect();
        let heading = [
            ("#", Right),
            ("asked", Left),
            ("fired", Right),
            ("done", Left),
            ("measured", Left),
        ];
        let _ = write!(out, "Events\n{}\n", columns(&heading, &rows));
    }

    if !findings.retransmissions.is_empty() {
        let all = &findings.retransmissions;
        let rows: Vec<_> = all
            .iter()
            .take(LISTED)
            .map(|r| {
                let before = if r.previous_lost {
                    "lost on the card"
                } else {
                    "had passed the card"
                };
                vec![
                    r.connection.to_string(),
                    r.direction.to_string(),
                    r.what(),
                    r.byte.to_string(),
                    r.transmission.to_string(),
                    time(r.after_ns),
                    r.why(),
                    before.to_owned(),
                ]
            })
            .collect();
        let heading = [
            ("connection", Right),
            ("direction", Left),
            ("packet", Right),
            ("byte", Right),
            ("transmission", Right),
            ("after", Right),
            ("cause", Left),
            ("the one before", Left),
        ];
        let _ = write!(out, "Retransmissions\n{}", columns(&heading, &rows));
        if all.len() > LISTED {
            let _ = writeln!(out, "  and {} more", all.len() - LISTED);
        }
        out.push('\n');
    }

    if !findings.expectations.is_empty() {
        let rows: Vec<_> = findings
            .expectations
            .iter()
            .map(|e| {
                vec![
                    e.number.to_string(),
                    e.expected.clone(),
                    tick(e.met),
                    e.found.clone(),
                ]
            })
            .collect();
        let heading = [
            ("#", Right),
            ("expected", Left),
            ("met", Left),
            ("found", Left),
        ];
        let _ = write!(out, "Expectations\n{}\n", columns(&heading, &rows));
    }

    if let Some(roce) = &findings.roce {
        for table in roce::tables(&roce.analysis) {
            let _ = write!(out, "{table}");
        }
    }
    out += &counters(&run.recorded.nics);
    for entry in &run.recorded.traffic {
        let _ = writeln!(out, "Traffic  {}: {}", entry.what, entry.summary);
    }
    if let Some(roce) = &findings.roce {
        let n = roce.analysis.findings.len();
        let _ = writeln!(
            out,
            "RoCE     {}: {}",
            roce.summary(),
            counted(n, "finding")
        );
    }
    for inside in &run.recorded.inside {
        let _ = writeln!(out, "Inside   {inside}");
    }
    let _ = writeln!(out, "Capture  {}", findings.integrity.summary);
    for check in findings
        .integrity
        .checks
        .iter()
        .filter(|check| !check.holds)
    {
        let _ = writeln!(out, "         {}: {}", check.what, check.found);
    }
    let _ = writeln!(out, "Run      {}", dir.display());
    let _ = writeln!(out, "Report   {}", dir.join(files::REPORT).display());
    let _ = writeln!(
        out,
        "{}  {} (exit code {})",
        run.verdict.outcome.headline(),
        run.verdict.reasons.first().map_or("", String::as_str),
        run.verdict.exit_code
    );
    for reason in run.verdict.reasons.iter().skip(1).take(LISTED) {
        let _ = writeln!(out, "      {reason}");
    }
    if run.verdict.reasons.len() > LISTED + 1 {
        let more = run.verdict.reasons.len() - LISTED - 1;
        let _ = writeln!(out, "      and {}", counted(more, "more reason"));
    }
    out
}

/// What model NICs counted, but for zeros.
fn counters(nics: &[NicRecord]) -> String {
    let all = nics.iter().flat_map(|nic| &nic.counters);
    let names: BTreeSet<&String> = all
        .filter(|(_, value)| **value > 0)
        .map(|(name, _)| name)
        .collect();
    if names.is_empty() {
        return String::new();
    }
    let value = |nic: &NicRecord, name| nic.counters.get(name).map_or(0, |value| *value);
    let rows: Vec<Vec<String>> = names
        .into_iter()
        .map(|name| {
            let values = nics.iter().map(|nic| value(nic, name).to_string());
            [name.clone()].into_iter().chain(values).collect()
        })
        .collect();
    let heading = [("counter", Left), ("a", Right), ("b", Right)];
    format!("Counters\n{}\n", columns(&heading, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_person_finds_everything() {
        let text = text(&fixture::run(), Path::new("runs/x"));
        let lines: Vec<&str> = text.lines().collect();
        let find = |part: &str| {
            lines
                .iter()
                .position(|line| line.contains(part))
                .expect(part)
        };
        let (heading, event) = (find("asked"), find("drop, connection 0"));
        assert!(
            lines[event].contains("2 of 2") && lines[event].contains("lost on the card 2 times")
        );
        // Columns: the heading stands where the cells begin.
        assert_eq!(
            lines[heading].find("measured"),
            lines[event].find("lost on")
        );
        assert!(lines[find("fast retransmit, 3 duplicate")].contains("300.0 µs"));
        assert!(lines[find("204.000 ms")].contains("timeout"));
        find("Capture  complete: 2100 frames");
        find("Report   runs/x/report.html");
        assert!(lines[find("PASS")].ends_with("(exit code 0)"));
    }
}
