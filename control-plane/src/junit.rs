// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `junit.xml`: the capture, each event and each expectation as a test case, for build servers.
//!
//! What the device under test did wrong is a failure; what kept it from being judged is an error.

use std::fmt::Write as _;

use crate::run_file::RunFile;
use crate::verdict::Outcome;

enum Result {
    Passed,
    Failed(String),
    Error(String),
    Skipped(String),
}

/// The file's text.
pub fn xml(run: &RunFile) -> String {
    let mut cases: Vec<(&str, String, Result)> = Vec::new();
    let carried_out = !matches!(
        run.verdict.outcome,
        Outcome::Environment | Outcome::Interrupted
    );
    if !carried_out {
        let reasons = run.verdict.reasons.join("; ");
        cases.push((
            "run",
            "the run is carried out".into(),
            Result::Error(reasons),
        ));
    }
    let integrity = &run.findings.integrity;
    let capture = match (integrity.complete, carried_out) {
        (true, _) => Result::Passed,
        (false, true) => Result::Error(integrity.summary.clone()),
        (false, false) => Result::Skipped(integrity.summary.clone()),
    };
    cases.push(("capture", "the capture is complete".into(), capture));
    for event in &run.findings.events {
        let result = match (event.done, carried_out) {
            (true, _) => Result::Passed,
            (false, true) => Result::Error(event.measured.clone()),
            (false, false) => Result::Skipped(event.measured.clone()),
        };
        cases.push((
            "event",
            format!("event {}: {}", event.number, event.asked),
            result,
        ));
    }
    let judged = matches!(
        run.verdict.outcome,
        Outcome::Pass | Outcome::ExpectationFailed
    );
    for e in &run.findings.expectations {
        let result = match (judged, e.met) {
            (false, _) => Result::Skipped(run.verdict.outcome.headline().to_owned()),
            (true, true) => Result::Passed,
            (true, false) => Result::Failed(e.found.clone()),
        };
        cases.push((
            "expectation",
            format!("expectation {}: {}", e.number, e.expected),
            result,
        ));
    }

    let count = |wanted: fn(&Result) -> bool| cases.iter().filter(|case| wanted(&case.2)).count();
    let totals = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"",
        cases.len(),
        count(|result| matches!(result, Result::Failed(_))),
        count(|result| matches!(result, Result::Error(_))),
        count(|result| matches!(result, Result::Skipped(_))),
    );
    let name = escape(&run.name);
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"midwire\" {totals}>\n\
         <testsuite name=\"{name}\" timestamp=\"{}\" {totals}>\n",
        escape(&run.recorded.started)
    );
    for (class, title, result) in &cases {
        let _ = write!(
            xml,
            "  <testcase classname=\"{name}.{class}\" name=\"{}\"",
            escape(title)
        );
        xml += &match result {
            Result::Passed => "/>\n".to_owned(),
            Result::Failed(why) => format!("><failure message=\"{}\"/></testcase>\n", escape(why)),
            Result::Error(why) => format!("><error message=\"{}\"/></testcase>\n", escape(why)),
            Result::Skipped(why) => format!("><skipped message=\"{}\"/></testcase>\n", escape(why)),
        };
    }
    xml += "</testsuite>\n</testsuites>\n";
    xml
}

/// Text inside an attribute. Characters that XML 1.0 can't hold become U+FFFD.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' => escaped += "&#10;",
            '\t' => escaped += "&#9;",
            '\r' => escaped += "&#13;",
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture, verdict};

    /// Every element is closed in order, attributes are quoted, and nothing is left unescaped.
    fn elements(xml: &str) -> Vec<String> {
        let mut open: Vec<String> = Vec::new();
        let mut all = Vec::new();
        let mut rest = xml
            .strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>")
            .unwrap();
        while let Some(start) = rest.find('<') {
            assert!(
                rest[..start].trim().is_empty(),
                "text outside of attributes: {}",
                &rest[..start]
            );
            let mut quoted = false;
            let end = rest[start..]
                .char_indices()
                .find(|&(_, c)| {
                    quoted ^= c == '"';
                    !quoted && c == '>'
                })
                .map(|(at, _)| start + at)
                .expect("a tag that ends");
            let tag = &rest[start + 1..end];
            assert!(!tag.contains('<'), "{tag}");
            rest = &rest[end + 1..];
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
                continue;
            }
            let name = tag.split([' ', '/']).next().unwrap().to_owned();
            all.push(name.clone());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty() && rest.trim().is_empty());
        all
    }

    #[test]
    fn a_pass_has_a_case_for_each_statement() {
        let xml = xml(&fixture::run());
        let all = elements(&xml);
        assert_eq!(all.iter().filter(|name| *name == "testcase").count(), 3);
        assert!(
            !all.iter()
                .any(|name| ["failure", "error", "skipped"].contains(&name.as_str()))
        );
        assert!(xml.contains("tests=\"3\" failures=\"0\" errors=\"0\" skipped=\"0\""));
    }

    #[test]
    fn failures_and_errors_are_told_apart() {
        let mut run = fixture::run();
        run.findings.expectations[0].met = false;
        run.findings.expectations[0].found = "<\"&'\u{1}\n>".into();
        run.verdict = verdict::judge(&run.recorded, &run.findings);
        let text = xml(&run);
        assert!(elements(&text).contains(&"failure".to_owned()));
        assert!(
            text.contains("message=\"&lt;&quot;&amp;'\u{fffd}&#10;&gt;\""),
            "{text}"
        );

        run.findings.events[0].done = false;
        run.verdict = verdict::judge(&run.recorded, &run.findings);
        let all = elements(&xml(&run));
        assert!(all.contains(&"error".to_owned()) && all.contains(&"skipped".to_owned()));
        assert!(!all.contains(&"failure".to_owned()));
    }
}
