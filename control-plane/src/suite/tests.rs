// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of the suite, and what their runs are asked.

use midwire_analysis::roce::{Found, Performance, Rule, Scope, Verb};
use midwire_endpoints::Port;
use midwire_trace::packet::Bth;
use midwire_trace::{Proto, Tap};

use super::{Answer, Facts, Question, Test};
use crate::plan::Traffic;
use crate::text::time;

macro_rules! test {
    ($name:literal, $questions:expr) => {
        Test {
            name: $name,
            plan: include_str!(concat!("../../../plans/rnic/", $name, ".yaml")),
            questions: &$questions,
        }
    };
}

const GO_BACK_N: Question = Question {
    about: "Go-back-N",
    allowed: "as specified",
    paper: "as specified",
    ask: logic,
};

/// All of them.
pub(super) const ALL: [Test; 9] = [
    test!(
        "write-loss",
        [
            GO_BACK_N,
            Question {
                about: "packet out of order to NAK",
                allowed: "50 µs at most",
                paper: "2 µs; E810: 10 µs (6.1)",
                ask: |facts| latency(facts, Verb::Write, |p| p
                    .generation
                    .as_ref()?
                    .median_ns
                    .into()),
            },
            Question {
                about: "NAK to retransmission",
                allowed: "50 µs at most",
                paper: "2 to 6 µs; CX4 Lx: hundreds of µs (6.1)",
                ask: |facts| latency(facts, Verb::Write, |p| p
                    .reaction
                    .as_ref()?
                    .median_ns
                    .into()),
            },
            Question {
                about: "MigReq",
                allowed: "1 in all packets",
                paper: "1; E810: 0 (6.2.3)",
                ask: mig_req,
            },
        ]
    ),
    test!(
        "read-loss",
        [
            GO_BACK_N,
            Question {
                about: "response out of order to new request",
                allowed: "50 µs at most",
                paper: "2 µs; CX4 Lx: 150 µs; E810: 83 ms (6.1)",
                ask: |facts| latency(facts, Verb::Read, |p| p
                    .generation
                    .as_ref()?
                    .median_ns
                    .into()),
            },
            Question {
                about: "implied_nak_seq_err",
                allowed: "counts them all",
                paper: "counts them; CX4 Lx: stands still (6.2.4)",
                ask: implied_naks,
            },
        ]
    ),
    test!(
        "tail-loss",
        [Question {
            about: "timeouts asked to be 67.1 ms",
            allowed: "67.1 to 268.4 ms",
            paper: "CX6 Dx: 5.6, 4.1, 8.4, 16.7, 25.1, 67.1, 134.2 ms (6.3)",
            ask: timeouts,
        }]
    ),
    test!(
        "no-answer",
        [Question {
            about: "retries asked to be 7",
            allowed: "7",
            paper: "CX4 Lx, CX5, CX6 Dx: 8 to 13 (6.3)",
            ask: retries,
        }]
    ),
    test!(
        "marks",
        [
            Question {
                about: "least time between CNPs, asked to be 4 µs",
                allowed: "4 to 8 µs",
                paper: "as asked; E810: 50 µs (6.3)",
                ask: interval,
            },
            Question {
                about: "np_cnp_sent, cnpSent",
                allowed: "counts them all",
                paper: "counts them; E810: stands still (6.2.4)",
                ask: notifications,
            },
        ]
    ),
    test!(
        "marks-of-many",
        [Question {
            about: "what CNPs are limited by",
            allowed: "port",
            paper: "CX5, CX6 Dx: port; CX4 Lx: IP; E810: QP (6.3)",
            ask: scope,
        }]
    ),
    test!(
        "two-classes",
        [Question {
            about: "goodput of the class without marks",
            allowed: "80 % of the line with the other",
            paper: "CX6 Dx: no more than its share (6.2.1)",
            ask: classes,
        }]
    ),
    test!(
        "lossy-neighbours",
        [Question {
            about: "READs of those that lost nothing",
            allowed: "none discarded",
            paper: "160 µs; CX4 Lx: 430 ms, 107 discarded (6.2.2)",
            ask: |facts| discards(facts, Port::A, 12),
        }]
    ),
    test!(
        "mig-req",
        [Question {
            about: "SENDs of 16 with MigReq 0",
            allowed: "none discarded",
            paper: "156 µs; CX5: 20460 µs, 500 discarded (6.2.3)",
            ask: |facts| discards(facts, Port::B, 0),
        }]
    ),
];

/// Longest reaction that goes without saying: dozens of round trips.
const SWIFT_NS: u64 = 50_000;
/// Least interval asked for between notifications, and most that it may become.
const INTERVAL_NS: std::ops::RangeInclusive<u64> = 3_900..=8_000;

/// Rules of what is sent again, from where, and what asks for it.
const LOGIC: [Rule; 13] = [
    Rule::NakMissing,
    Rule::NakRepeated,
    Rule::NakUnfounded,
    Rule::NakSkips,
    Rule::AckUnfounded,
    Rule::ResponseMisplaced,
    Rule::ResponseCount,
    Rule::ResumedAbove,
    Rule::ResumedBelow,
    Rule::NotGoBackN,
    Rule::NotResumed,
    Rule::ReadExtent,
    Rule::Unprovoked,
];

fn logic(facts: &Facts) -> Option<Answer> {
    let losses = facts.roce()?.recoveries.len();
    let mut findings = facts.roce()?.findings.iter();
    let first = findings.find(|finding| LOGIC.contains(&finding.rule));
    let measured = match first {
        None => format!("as specified, {losses} times"),
        Some(first) => format!("packets {:?}: {}", first.packets, first.what),
    };
    (losses > 0).then_some(Answer {
        measured,
        finding: first.is_some(),
    })
}

fn latency(
    facts: &Facts,
    verb: Verb,
    median_ns: fn(&Performance) -> Option<u64>,
) -> Option<Answer> {
    let of_verb = facts.roce()?.performance.iter().find(|p| p.verb == verb)?;
    let median = median_ns(of_verb)?;
    Some(Answer {
        measured: time(median),
        finding: median > SWIFT_NS,
    })
}

fn mig_req(facts: &Facts) -> Option<Answer> {
    let mut entries = facts.capture.by_time();
    let [mut all, mut clear] = [0u64; 2];
    while let Some(entry) = entries.next_entry() {
        let record = &entry.record;
        if record.tap == Tap::Ingress && record.proto == Proto::Roce {
            all += 1;
            clear += u64::from(record.f2 >> 8 & u16::from(Bth::MIG_REQ) == 0);
        }
    }
    (all > 0).then(|| Answer {
        measured: match clear {
            0 => format!("1 in {all} packets"),
            _ => format!("0 in {clear} of {all} packets"),
        },
        finding: clear > 0,
    })
}

/// A counter beside what the packets show.
fn counted(facts: &Facts, port: Port, name: &str, seen: u64) -> Option<Answer> {
    let counted = facts.counter(port, name)?;
    (seen > 0).then(|| Answer {
        measured: format!("{counted} of {seen}"),
        finding: counted != seen,
    })
}

fn implied_naks(facts: &Facts) -> Option<Answer> {
    let implied = |found: &&_| **found == Found::ImpliedNak;
    let found = facts
        .roce()?
        .recoveries
        .iter()
        .map(|recovery| &recovery.found);
    let seen = found.filter(implied).count() as u64;
    counted(facts, Port::A, "implied_nak_seq_err", seen)
}

fn notifications(facts: &Facts) -> Option<Answer> {
    let sent = facts
        .roce()?
        .notifications
        .iter()
        .map(|point| point.notifications);
    counted(facts, Port::B, "np_cnp_sent", sent.sum())
}

fn timeouts(facts: &Facts) -> Option<Answer> {
    let waited = facts
        .roce()?
        .recoveries
        .iter()
        .filter_map(|recovery| recovery.waited_ns);
    let waited: Vec<String> = waited.map(time).collect();
    let same = waited.chunk_by(PartialEq::eq).map(|all| match all {
        [one] => one.clone(),
        [one, ..] => format!("{} times {one}", all.len()),
        [] => String::new(),
    });
    let same: Vec<String> = same.collect();
    let wrong = |rule| matches!(rule, Rule::TimeoutTooEarly | Rule::TimeoutTooLate);
    let findings = &facts.roce()?.findings;
    (!waited.is_empty()).then(|| Answer {
        measured: same.join(", "),
        finding: findings.iter().any(|finding| wrong(finding.rule)),
    })
}

fn retries(facts: &Facts) -> Option<Answer> {
    let [Traffic::Rdma(rdma)] = facts.run.recorded.plan.parsed.traffic.as_slice() else {
        return None;
    };
    let most = facts
        .roce()?
        .recoveries
        .iter()
        .filter_map(|r| r.retry)
        .max()?;
    Some(Answer {
        measured: most.to_string(),
        finding: most != u32::from(rdma.retries),
    })
}

fn interval(facts: &Facts) -> Option<Answer> {
    let point = facts
        .roce()?
        .notifications
        .iter()
        .find(|point| point.marked > 0)?;
    let interval = point.interval?;
    Some(Answer {
        measured: time(interval.least_ns),
        finding: !INTERVAL_NS.contains(&interval.least_ns),
    })
}

fn scope(facts: &Facts) -> Option<Answer> {
    let point = facts
        .roce()?
        .notifications
        .iter()
        .find(|point| point.marked > 0)?;
    let [scope] = point.scopes.as_slice() else {
        return None;
    };
    Some(Answer {
        measured: scope.name().to_owned(),
        finding: *scope != Scope::Port,
    })
}

/// The line's rate.
const LINE_BPS: u64 = 100_000_000_000;

fn classes(facts: &Facts) -> Option<Answer> {
    let qps = facts.queue_pairs()?;
    let goodput: Option<Vec<u64>> = qps.iter().map(|qp| qp.goodput_bps).collect();
    let &[slowed, other] = goodput?.as_slice() else {
        return None;
    };
    let giga = |bps: u64| bps as f64 / 1e9;
    Some(Answer {
        measured: format!("{:.1} Gbit/s beside {:.1}", giga(other), giga(slowed)),
        finding: slowed + other < LINE_BPS / 10 * 8,
    })
}

/// What happened to the queue pairs from the `first` on, and what the NIC at a port discarded.
fn discards(facts: &Facts, port: Port, first: usize) -> Option<Answer> {
    let discarded = facts.counter(port, "rx_discards_phy")?;
    let qps = facts.queue_pairs()?;
    let innocent = qps.get(first..)?.iter().map(|qp| qp.completion_times);
    let times: Vec<_> = innocent.collect::<Option<_>>()?;
    let sum: u64 = times.iter().map(|times| times.mean_ns).sum();
    let mean = sum.checked_div(times.len() as u64)?;
    let longest = times.iter().map(|times| times.max_ns).max()?;
    Some(Answer {
        measured: format!(
            "{}, longest {}, {discarded} discarded",
            time(mean),
            time(longest)
        ),
        finding: discarded > 0,
    })
}
