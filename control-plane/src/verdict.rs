// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run comes to, and the exit code that says so.
//!
//! The rules in their order; the first that applies decides, since each presupposes those above:
//!
//! | outcome | exit code | when |
//! |---|---|---|
//! | `environment` | 5 | the card or the machine kept the run from being carried out |
//! | `interrupted` | 5 | the user broke it off; what was captured is kept |
//! | `capture-incomplete` | 3 | a packet is not accounted for, so nothing is said about the device |
//! | `event-not-fired` | 4 | an event did not fire as often as asked, or was not carried out |
//! | `expectation-failed` | 1 | the device under test did not do what the plan expects |
//! | `pass` | 0 | none of these |
//!
//! A plan with mistakes and wrong usage end with 2, before there is a run.

use serde::{Deserialize, Serialize};

use crate::run_file::{Findings, Recorded};

/// Exit code for a plan with mistakes and for wrong usage.
pub const BAD_PLAN: u8 = 2;

/// What a run comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every event fired and every expectation was met.
    Pass,
    /// The device under test did not do what the plan expects.
    ExpectationFailed,
    /// An event did not fire as asked.
    EventNotFired,
    /// A packet is not accounted for.
    CaptureIncomplete,
    /// The user broke it off.
    Interrupted,
    /// The card or the machine kept the run from being carried out.
    Environment,
}

impl Outcome {
    /// Exit code of the program.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Pass => 0,
            Outcome::ExpectationFailed => 1,
            Outcome::CaptureIncomplete => 3,
            Outcome::EventNotFired => 4,
            Outcome::Interrupted | Outcome::Environment => 5,
        }
    }

    /// For the end of a table.
    pub fn headline(self) -> &'static str {
        match self {
            Outcome::Pass => "PASS",
            Outcome::ExpectationFailed => "FAIL",
            Outcome::EventNotFired => "NO VERDICT: event not fired",
            Outcome::CaptureIncomplete => "NO VERDICT: capture not complete",
            Outcome::Interrupted => "NO VERDICT: interrupted",
            Outcome::Environment => "NO VERDICT: not carried out",
        }
    }
}

/// What a run comes to, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What it comes to.
    pub outcome: Outcome,
    /// Exit code of the program.
    pub exit_code: u8,
    /// In sentences; what counted first.
    pub reasons: Vec<String>,
}

/// Applies the rules in their order.
pub fn judge(recorded: &Recorded, findings: &Findings) -> Verdict {
    let verdict = |outcome: Outcome, reasons: Vec<String>| Verdict {
        outcome,
        exit_code: outcome.exit_code(),
        reasons,
    };
    if let Some(error) = &recorded.error {
        return verdict(Outcome::Environment, vec![error.clone()]);
    }
    if recorded.interrupted {
        return verdict(
            Outcome::Interrupted,
            vec!["the run was interrupted".to_owned()],
        );
    }
    if !findings.integrity.complete {
        let broken = findings
            .integrity
            .checks
            .iter()
            .filter(|check| !check.holds);
        let mut reasons: Vec<_> = broken
            .map(|check| format!("{}: {}", check.what, check.found))
            .collect();
        if reasons.is_empty() {
            reasons.push(findings.integrity.summary.clone());
        }
        return verdict(Outcome::CaptureIncomplete, reasons);
    }
    let missing: Vec<_> = findings
        .events
        .iter()
        .filter(|event| !event.done)
        .map(|event| {
            format!(
                "event {} ({}): {}",
                event.number, event.asked, event.measured
            )
        })
        .collect();
    if !missing.is_empty() {
        return verdict(Outcome::EventNotFired, missing);
    }
    let failed: Vec<_> = findings
        .expectations
        .iter()
        .filter(|expectation| !expectation.met)
        .map(|e| format!("expectation {} ({}): {}", e.number, e.expected, e.found))
        .collect();
    if !failed.is_empty() {
        return verdict(Outcome::ExpectationFailed, failed);
    }
    let (events, expectations) = (findings.events.len(), findings.expectations.len());
    let mut reason = "the capture is complete".to_owned();
    if events > 0 {
        reason += &format!(", {} fired as asked", counted(events, "event"));
    }
    if expectations > 0 {
        reason += &format!(", {} met", counted(expectations, "expectation"));
    }
    verdict(Outcome::Pass, vec![reason])
}

/// `1 event`, `3 events`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_rule_presupposes_those_above() {
        let (mut recorded, mut findings) = (fixture::recorded(), fixture::findings());
        let outcome = |r: &Recorded, f: &Findings| {
            let verdict = judge(r, f);
            assert_eq!(verdict.exit_code, verdict.outcome.exit_code());
            assert!(!verdict.reasons.is_empty());
            (verdict.outcome, verdict.exit_code)
        };
        assert_eq!(outcome(&recorded, &findings), (Outcome::Pass, 0));
        findings.expectations[0].met = false;
        assert_eq!(
            outcome(&recorded, &findings),
            (Outcome::ExpectationFailed, 1)
        );
        findings.events[0].done = false;
        assert_eq!(outcome(&recorded, &findings), (Outcome::EventNotFired, 4));
        findings.integrity.complete = false;
        assert_eq!(
            outcome(&recorded, &findings),
            (Outcome::CaptureIncomplete, 3)
        );
        recorded.interrupted = true;
        assert_eq!(outcome(&recorded, &findings), (Outcome::Interrupted, 5));
        recorded.error = Some("no card".into());
        assert_eq!(outcome(&recorded, &findings), (Outcome::Environment, 5));
    }

    #[test]
    fn a_reason_names_event_and_finding() {
        let (recorded, mut findings) = (fixture::recorded(), fixture::findings());
        findings.events[0].done = false;
        findings.events[0].measured = "fired 1 of 2 times".into();
        let verdict = judge(&recorded, &findings);
        assert_eq!(verdict.reasons.len(), 1);
        assert!(
            verdict.reasons[0].starts_with("event 1 (drop"),
            "{}",
            verdict.reasons[0]
        );
        assert!(verdict.reasons[0].ends_with("fired 1 of 2 times"));
    }
}
