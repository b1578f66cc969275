// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holds what was found against what the plan expects of the device under test.

use midwire_analysis::roce::Analysis;
use midwire_analysis::tcp::{Cause, Retransmission};
use midwire_trace::Lane;

use crate::plan::{
    CompletionExpectation, CounterExpectation, Expectation, ExpectedCause, FindingsExpectation,
    RetransmissionCount, RetransmissionExpectation, TrafficOutcome,
};
use crate::run_file::{ConnectionRecord, ExpectationRecord, NicRecord, TrafficRecord};
use crate::text::time;

/// What expectations are about.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Connections that there were.
    pub connections: &'a [ConnectionRecord],
    /// What became of the traffic.
    pub traffic: &'a [TrafficRecord],
    /// Segments that were sent again.
    pub retransmissions: &'a [Retransmission],
    /// What model NICs counted.
    pub nics: &'a [NicRecord],
    /// What RDMA NICs did, when there was RoCE.
    pub roce: Option<&'a Analysis>,
}

/// Each expectation and what was found.
pub fn evaluate(expectations: &[Expectation], facts: Facts<'_>) -> Vec<ExpectationRecord> {
    (1..)
        .zip(expectations)
        .map(|(number, expectation)| {
            let (expected, (met, found)) = match expectation {
                Expectation::Traffic(outcome) => facts.traffic(*outcome),
                Expectation::Retransmission(expected) => {
                    (describe(expected), facts.retransmission(expected))
                }
                Expectation::Retransmissions(expected) => {
                    (describe_count(expected), facts.count(expected))
                }
                Expectation::Counter(expected) => {
                    (describe_counter(expected), facts.counter(expected))
                }
                Expectation::Findings(expected) => {
                    (describe_findings(expected), facts.findings(expected))
                }
                Expectation::Completion(expected) => {
                    (describe_completion(expected), facts.completion(expected))
                }
            };
            ExpectationRecord {
                number,
                expected,
                found,
                met,
            }
        })
        .collect()
}

fn of(connection: u32, direction: Option<Lane>) -> String {
    match direction {
        Some(direction) => format!("connection {connection} {direction}"),
        None => format!("connection {connection}"),
    }
}

fn describe(expected: &RetransmissionExpectation) -> String {
    let what = match (expected.packet, expected.byte) {
        (Some(packet), _) => format!("packet {packet}"),
        (_, Some(byte)) => format!("byte {byte}"),
        _ => "a packet".to_owned(),
    };
    let mut text = format!(
        "{what} is sent again, {}",
        of(expected.connection, expected.direction)
    );
    if let Some(within) = expected.within {
        text += &format!(", within {within}");
    }
    if expected.cause != ExpectedCause::Any {
        text += &format!(", cause {}", expected.cause);
    }
    text
}

/// `3`, `1 to 5`, `at least 2`
fn many(at_least: Option<u64>, at_most: Option<u64>) -> String {
    match (at_least, at_most) {
        (Some(least), Some(most)) if least == most => format!("{least}"),
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => "any number of".to_owned(),
    }
}

fn is_within(value: u64, at_least: Option<u64>, at_most: Option<u64>) -> bool {
    at_least.is_none_or(|least| value >= least) && at_most.is_none_or(|most| value <= most)
}

fn describe_count(expected: &RetransmissionCount) -> String {
    format!(
        "{} retransmissions, {}",
        many(expected.at_least, expected.at_most),
        of(expected.connection, expected.direction)
    )
}

fn describe_counter(expected: &CounterExpectation) -> String {
    let many = many(expected.at_least, expected.at_most);
    format!(
        "{} of endpoint {} is {many}",
        expected.name, expected.endpoint
    )
}

fn describe_findings(expected: &FindingsExpectation) -> String {
    let many = many(expected.at_least, expected.at_most);
    match expected.rule {
        Some(rule) => format!("{many} findings of RoCE, {}", rule.name()),
        None => format!("{many} findings of RoCE"),
    }
}

fn describe_completion(expected: &CompletionExpectation) -> String {
    let CompletionExpectation {
        traffic,
        queue_pairs,
        within,
    } = expected;
    let whose = match queue_pairs.is_all() {
        true => String::new(),
        false => format!(" of queue pairs {queue_pairs}"),
    };
    format!("messages{whose} of traffic {traffic} complete within {within}")
}

fn by(expected: ExpectedCause, cause: Cause) -> bool {
    match expected {
        ExpectedCause::Any => true,
        ExpectedCause::Fast => cause == Cause::Fast,
        ExpectedCause::Timeout => matches!(cause, Cause::Timeout | Cause::AfterTimeout),
        ExpectedCause::TailProbe => cause == Cause::TailProbe,
    }
}

impl<'a> Facts<'a> {
    fn traffic(&self, expected: TrafficOutcome) -> (String, (bool, String)) {
        let failed: Vec<_> = self
            .traffic
            .iter()
            .filter(|entry| !entry.completed)
            .collect();
        let found = match failed.as_slice() {
            [] => self
                .traffic
                .iter()
                .map(|e| e.summary.as_str())
                .collect::<Vec<_>>()
                .join("; "),
            failed => {
                let told = failed.iter().map(|e| format!("{}: {}", e.what, e.summary));
                told.collect::<Vec<_>>().join("; ")
            }
        };
        match expected {
            TrafficOutcome::Completes => {
                ("traffic completes".to_owned(), (failed.is_empty(), found))
            }
            TrafficOutcome::Fails => ("traffic fails".to_owned(), (!failed.is_empty(), found)),
        }
    }

    fn of(
        &self,
        connection: u32,
        direction: Option<Lane>,
    ) -> Result<impl Iterator<Item = &'a Retransmission> + use<'a>, (bool, String)> {
        if !self.connections.iter().any(|c| c.number == connection) {
            return Err((false, format!("there was no connection {connection}")));
        }
        Ok(self.retransmissions.iter().filter(move |r| {
            u32::from(r.connection) == connection
                && direction.is_none_or(|direction| r.direction == direction)
        }))
    }

    fn retransmission(&self, expected: &RetransmissionExpectation) -> (bool, String) {
        let all = match self.of(expected.connection, expected.direction) {
            Ok(all) => all,
            Err(absent) => return absent,
        };
        let named: Vec<_> = all
            .filter(|r| expected.packet.is_none_or(|packet| r.segment == packet))
            .filter(|r| {
                let covers = |byte| (r.byte..r.byte + u64::from(r.bytes)).contains(&byte);
                expected.byte.is_none_or(covers)
            })
            .collect();
        let told =
            |r: &Retransmission| format!("sent again after {} ({})", time(r.after_ns), r.cause);
        let fits = |r: &&&Retransmission| {
            expected
                .within
                .is_none_or(|within| r.after_ns <= within.as_nanos())
                && by(expected.cause, r.cause)
        };
        match (named.iter().find(fits), named.as_slice()) {
            (Some(r), _) => (true, told(r)),
            (None, []) => (false, "it was not sent again".to_owned()),
            (None, named) => (
                false,
                named.iter().map(|r| told(r)).collect::<Vec<_>>().join(", "),
            ),
        }
    }

    fn count(&self, expected: &RetransmissionCount) -> (bool, String) {
        match self.of(expected.connection, expected.direction) {
            Err(absent) => absent,
            Ok(all) => {
                let n = all.count() as u64;
                (
                    is_within(n, expected.at_least, expected.at_most),
                    n.to_string(),
                )
            }
        }
    }

    fn counter(&self, expected: &CounterExpectation) -> (bool, String) {
        let mut nics = self.nics.iter();
        let nic = nics.find(|nic| nic.endpoint == expected.endpoint);
        match nic.and_then(|nic| nic.counters.get(&expected.name)) {
            Some(&value) => (
                is_within(value, expected.at_least, expected.at_most),
                value.to_string(),
            ),
            None => (false, "there is no such counter".to_owned()),
        }
    }

    fn findings(&self, expected: &FindingsExpectation) -> (bool, String) {
        let Some(analysis) = self.roce else {
            return (false, "there is no RoCE in the capture".to_owned());
        };
        let all = analysis.findings.iter();
        let found: Vec<_> = all
            .filter(|finding| expected.rule.is_none_or(|rule| rule == finding.rule))
            .collect();
        let n = found.len() as u64;
        let mut text = n.to_string();
        if let Some(first) = found.first() {
            let (rule, what) = (first.rule.name(), &first.what);
            text += &format!(": {rule}, {}: {what}", first.cited());
        }
        (is_within(n, expected.at_least, expected.at_most), text)
    }

    /// The first queue pair that failed, or the one with the slowest message.
    fn completion(&self, expected: &CompletionExpectation) -> (bool, String) {
        let mut entries = self.traffic.iter();
        let report = entries
            .find(|entry| entry.number == expected.traffic)
            .and_then(TrafficRecord::rdma);
        let Some(report) = report else {
            return (false, "there were no such messages".to_owned());
        };
        let mut slowest = None;
        for (number, qp) in (0..).zip(&report.qps) {
            if !expected.queue_pairs.contains(number) {
                continue;
            }
            match (&qp.error, qp.completion_times) {
                (None, Some(times)) => slowest = slowest.max(Some((times.max_ns, number))),
                (None, None) => return (false, format!("none of queue pair {number} completed")),
                (Some(error), _) => return (false, format!("queue pair {number}: {error}")),
            }
        }
        match slowest {
            Some((slowest, number)) => (
                slowest <= expected.within.as_nanos(),
                format!("at most {} (queue pair {number})", time(slowest)),
            ),
            None => (false, "there were no such queue pairs".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use midwire_analysis::roce::{Finding, Rule};
    use serde_json::{Value, json};

    #[track_caller]
    fn met(expectation: &str, wanted: bool, part: &str) {
        let expectation: Expectation = serde_saphyr::from_str(expectation).unwrap();
        let (recorded, findings) = (fixture::recorded(), fixture::findings());
        let facts = Facts {
            connections: &recorded.connections,
            traffic: &recorded.traffic,
            retransmissions: &findings.retransmissions,
            roce: None,
            nics: &[NicRecord {
                endpoint: midwire_endpoints::Port::B,
                counters: [("out_of_sequence".to_owned(), 6)].into(),
            }],
        };
        let record = &evaluate(&[expectation], facts)[0];
        assert_eq!(record.met, wanted, "{record:?}");
        assert!(record.found.contains(part), "{record:?}");
    }

    /// The fixture: packet 5 of connection 0, bytes 5792 to 7239, sent again fast after 300 µs
    /// and by timeout after 204 ms.
    #[test]
    fn retransmissions_are_found_by_packet_byte_time_and_cause() {
        met("retransmission: {packet: 5}", true, "300");
        met(
            "retransmission: {packet: 5, cause: timeout}",
            true,
            "timeout",
        );
        met(
            "retransmission: {packet: 5, cause: timeout, within: 200ms}",
            false,
            "after 204",
        );
        met(
            "retransmission: {packet: 5, cause: tail-probe}",
            false,
            "fast",
        );
        met("retransmission: {byte: 5792}", true, "");
        met("retransmission: {byte: 7239}", true, "");
        met("retransmission: {byte: 7240}", false, "not sent again");
        met("retransmission: {packet: 6}", false, "not sent again");
        met(
            "retransmission: {packet: 5, direction: b-to-a}",
            false,
            "not sent again",
        );
        met(
            "retransmission: {connection: 1, packet: 5}",
            false,
            "no connection 1",
        );
    }

    #[test]
    fn counts_have_two_ends() {
        met("retransmissions: {at_most: 2}", true, "2");
        met("retransmissions: {at_most: 1}", false, "2");
        met("retransmissions: {at_least: 3}", false, "2");
        met("retransmissions: {at_least: 2, at_most: 2}", true, "2");
        met(
            "retransmissions: {direction: b-to-a, at_most: 0}",
            true,
            "0",
        );
        met(
            "retransmissions: {connection: 3, at_most: 9}",
            false,
            "no connection 3",
        );
    }

    #[test]
    fn counters_are_those_of_the_endpoint() {
        let counter = |rest: &str| format!("counter: {{name: out_of_sequence, {rest}}}");
        met(&counter("endpoint: b, at_least: 6, at_most: 6"), true, "6");
        met(&counter("endpoint: b, at_least: 7"), false, "6");
        met(&counter("endpoint: b, at_most: 5"), false, "6");
        met(&counter("endpoint: a, at_most: 5"), false, "no such");
    }

    #[test]
    fn findings_are_counted_by_rule() {
        let analysis = Analysis {
            findings: vec![Finding {
                rule: Rule::NakRepeated,
                connection: Some(0),
                packets: vec![7, 9],
                what: "a second NAK for PSN 4".to_owned(),
            }],
            ..midwire_analysis::roce::analyze([], Default::default())
        };
        let (recorded, findings) = (fixture::recorded(), fixture::findings());
        let met = |text: &str, roce| {
            let expectation: Expectation = serde_saphyr::from_str(text).unwrap();
            let facts = Facts {
                connections: &recorded.connections,
                traffic: &recorded.traffic,
                retransmissions: &findings.retransmissions,
                nics: &[],
                roce,
            };
            let record = evaluate(&[expectation], facts).remove(0);
            (record.met, record.found)
        };
        let told = "1: nak-repeated, packets 7, 9: a second NAK for PSN 4".to_owned();
        let some = Some(&analysis);
        assert_eq!(met("findings: {at_most: 0}", some), (false, told.clone()));
        assert_eq!(
            met("findings: {rule: nak-repeated, at_least: 1}", some),
            (true, told)
        );
        assert_eq!(
            met("findings: {rule: nak-missing, at_most: 0}", some),
            (true, "0".into())
        );
        assert!(
            !met("findings: {at_most: 0}", None).0,
            "there was nothing to be read"
        );
    }

    #[test]
    fn messages_complete_in_time() {
        let times = |ns: u64| json!({"min_ns": 1, "mean_ns": 1, "p50_ns": 1, "p90_ns": 1, "p99_ns": 1, "max_ns": ns});
        let qp = |times: Value, error: Option<&str>| {
            json!({
                "source": "10.0.0.1", "destination": "10.0.0.2", "qp": 2, "peer_qp": 3, "first_psn": 0,
                "peer_first_psn": 0, "messages": 1, "bytes": 1, "wrong_bytes": 0,
                "goodput_bps": null, "completion_times": times, "error": error,
            })
        };
        let entry = TrafficRecord {
            details: json!({
                "completed": false, "duration_ns": null, "messages": 2, "bytes": 2,
                "wrong_bytes": 0, "goodput_bps": null, "completion_times": null,
                "qps": [qp(times(5_000), None), qp(times(9_000), None), qp(times(1), Some("flushed"))],
            }),
            ..fixture::recorded().traffic.remove(0)
        };
        for (expectation, wanted, part) in [
            (
                "{queue_pairs: 0-1, within: 9us}",
                true,
                "9000 ns (queue pair 1)",
            ),
            ("{queue_pairs: 0-1, within: 8999ns}", false, "queue pair 1"),
            ("{queue_pairs: 0, within: 5us}", true, "queue pair 0"),
            ("{within: 1s}", false, "queue pair 2: flushed"),
            ("{queue_pairs: 3, within: 1s}", false, "no such queue pairs"),
            ("{traffic: 2, within: 1s}", false, "no such messages"),
        ] {
            let expectation = serde_saphyr::from_str(&format!("completion: {expectation}"));
            let facts = Facts {
                connections: &[],
                traffic: std::slice::from_ref(&entry),
                retransmissions: &[],
                nics: &[],
                roce: None,
            };
            let record = &evaluate(&[expectation.unwrap()], facts)[0];
            assert_eq!(record.met, wanted, "{record:?}");
            assert!(record.found.contains(part), "{record:?}");
        }
    }

    #[test]
    fn traffic_completes_or_fails() {
        met("traffic: completes", true, "2000000 bytes");
        met("traffic: fails", false, "2000000 bytes");
    }
}
