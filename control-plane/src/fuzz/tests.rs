// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Searches on devices that are a function, so that what is found and how fast is known.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::*;
use crate::plan::Verb;

const PLAN: &str = "\
version: 1
name: base
endpoints: {a: {rnic: {address: 10.0.0.1/24}}, b: {rnic: {address: 10.0.0.2/24}}}
traffic: [{rdma: {from: a, to: b, verb: write, messages: 1, size: 4KiB}}]
";

const TARGET: &str = "\
version: 1
name: test
plan: base.yaml
vary:
  verb: [send, write, read]
  qps: 1-40
  messages: 1-4
  size: 1KiB-8KiB
  mtu: [1024, 2048]
  tx_depth: 1-4
  events:
    most: 64
    iterations: 2
    actions: [drop, {delay: 5us}]
findings: {innocent: 10, counters: [rx_discards_phy]}
";

fn read(target: &str, plan: &str) -> Result<(Space, String), Error> {
    Target::parse("t", target.as_bytes(), |_| Ok(Plan::parse("p", plan)?))
}

fn space() -> Space {
    read(TARGET, PLAN).unwrap().0
}

/// Innocent queue pairs suffer when so many connections of READs lose a packet.
const NOISY: usize = 12;

/// Devices that say how many connections lose a packet.
struct Devices {
    /// After so many runs the user breaks the search off.
    patience: AtomicU32,
}

impl Devices {
    fn new(patience: u32) -> Self {
        let patience = AtomicU32::new(patience);
        Self { patience }
    }
}

impl Evaluate for Devices {
    fn evaluate(&self, case: &Case) -> Result<Judgement, Stop> {
        let left = |n: u32| n.checked_sub(1);
        let patience = self
            .patience
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        patience.map_err(|_| Stop::Interrupted)?;
        let lossy: BTreeSet<u32> = (case.hits.iter())
            .filter(|hit| hit.action == 0)
            .map(|hit| hit.connection)
            .collect();
        let innocent: Vec<u32> = (0..case.traffic.qps)
            .filter(|qp| !lossy.contains(qp))
            .collect();
        let noisy = case.traffic.verb == Verb::Read && lossy.len() >= NOISY && !innocent.is_empty();
        Ok(Judgement {
            score: lossy.len() as u64,
            signs: noisy.then_some(Sign::Innocent).into_iter().collect(),
            unfired: Vec::new(),
            innocent,
            innocent_ns: Some(1_000_000),
            allowed_ns: Some(10_000),
        })
    }
}

/// Searches up to a budget, from a state or from nothing.
fn search(
    directory: &Path,
    devices: &Devices,
    (seed, selection, first, jobs): (u64, Selection, bool, usize),
    resume: bool,
) -> (State, bool) {
    let space = space();
    let new = State {
        version: LAYOUT,
        target: TARGET.to_owned(),
        plan: space.base.clone(),
        seed,
        selection,
        runs: 0,
        reducing_runs: 0,
        best: 0,
        pool: Vec::new(),
        findings: Vec::new(),
    };
    let mut fuzzer = Fuzzer {
        space: &space,
        evaluator: devices,
        directory,
        jobs,
        first,
        progress: &mut |_, _| {},
        state: open(directory, new, resume).unwrap(),
    };
    let whole = fuzzer.search(300, &|_, _| Ok(())).is_ok();
    (fuzzer.state, whole)
}

fn guided(seed: u64, jobs: usize) -> State {
    let directory = TempDir::new().unwrap();
    let how = (seed, Selection::Guided, false, jobs);
    let (state, whole) = search(directory.path(), &Devices::new(u32::MAX), how, false);
    assert!(whole);
    state
}

#[test]
fn a_seed_finds_the_same_whatever_the_number_of_jobs() {
    let state = guided(3, 1);
    assert_eq!(state, guided(3, 5));
    assert_ne!(state.pool, guided(4, 1).pool);
}

#[test]
fn a_search_that_was_broken_off_goes_on_as_if_it_had_not_been() {
    let whole = guided(3, 2);
    assert!(whole.reducing_runs > 0);
    for patience in [0, 7, 100, whole.runs + whole.reducing_runs / 2] {
        let directory = TempDir::new().unwrap();
        let how = (3, Selection::Guided, false, 2);
        let (before, done) = search(directory.path(), &Devices::new(patience), how, false);
        assert!(!done && before.runs < 300);
        let resume = directory.path().join(STATE).exists();
        let (after, done) = search(directory.path(), &Devices::new(u32::MAX), how, resume);
        assert!(done);
        assert_eq!(after, whole, "broken off after {patience} runs");
    }
}

#[test]
fn another_search_is_not_taken_up() {
    let directory = TempDir::new().unwrap();
    let how = |seed| (seed, Selection::Guided, true, 1);
    search(directory.path(), &Devices::new(u32::MAX), how(1), false);
    let (space, text) = read(TARGET, PLAN).unwrap();
    let text_of = fs::read(directory.path().join(STATE)).unwrap();
    let right: State = serde_json::from_slice(&text_of).unwrap();
    assert_eq!((&right.target, &right.plan), (&text, &space.base));
    for (wrong, part) in [
        (
            State {
                seed: 2,
                ..right.clone()
            },
            "seed",
        ),
        (
            State {
                target: String::new(),
                ..right.clone()
            },
            "target",
        ),
        (
            State {
                selection: Selection::Random,
                ..right.clone()
            },
            "search",
        ),
    ] {
        let error = open(directory.path(), wrong, true).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
    assert!(matches!(
        open(directory.path(), right.clone(), false),
        Err(Error::NotEmpty(_))
    ));
    fs::write(directory.path().join(STATE), &text_of[..text_of.len() / 2]).unwrap();
    assert!(matches!(
        open(directory.path(), right, true),
        Err(Error::Resume { .. })
    ));
}

#[test]
fn a_finding_is_reduced_to_what_it_needs_and_saved() {
    let directory = TempDir::new().unwrap();
    let how = (3, Selection::Guided, false, 2);
    let (state, _) = search(directory.path(), &Devices::new(u32::MAX), how, false);
    let [finding] = state.findings.as_slice() else {
        panic!("{:#?}", state.findings);
    };
    let reduced = &finding.reduced;
    let connections: Vec<u32> = reduced.hits.iter().map(|hit| hit.connection).collect();
    assert_eq!(connections, (0..NOISY as u32).collect::<Vec<_>>());
    assert_eq!(reduced.traffic.qps as usize, NOISY + 1);
    assert_eq!(
        (reduced.traffic.messages, reduced.traffic.size.0),
        (1, 1024)
    );
    let (plan, _) = Plan::read(&directory.path().join(&finding.plan)).unwrap();
    assert_eq!(plan.events.len(), NOISY);
    let Some(Expectation::Completion(expected)) = plan.expect.first() else {
        panic!("{:?}", plan.expect);
    };
    assert_eq!(expected.queue_pairs, 12.into());
    assert_eq!(expected.within, Duration(10_000));
}

#[test]
fn selection_finds_sooner_than_chance() {
    let median = |selection| {
        let runs = (0..30).map(|seed| {
            let directory = TempDir::new().unwrap();
            let how = (seed, selection, true, 1);
            let (state, _) = search(directory.path(), &Devices::new(u32::MAX), how, false);
            state
                .findings
                .first()
                .map_or(u32::MAX, |finding| finding.run)
        });
        let mut runs: Vec<u32> = runs.collect();
        runs.sort_unstable();
        runs[15]
    };
    let (guided, random) = (median(Selection::Guided), median(Selection::Random));
    assert!(
        guided < 100 && guided.saturating_mul(2) < random,
        "{guided}, {random}"
    );
}

#[test]
fn mistakes_in_targets_are_told_with_their_places() {
    for (from, to, place, part) in [
        ("version: 1", "version: 2", (1, 10), "version 1 of targets"),
        ("name: test", "name: ../test", (2, 7), "name: expected"),
        (
            "qps: 1-40",
            "qps: 0-40",
            (6, 8),
            "qps 0, expected 1 to 4096",
        ),
        ("qps: 1-40", "qps: 40-1", (6, 8), "expected a number"),
        ("qps: 1-40", "queues: 1-40", (6, 3), "queues"),
        ("[1024, 2048]", "[1000]", (9, 8), "mtu 1000"),
        ("[send, write, read]", "[]", (5, 9), "expected one at least"),
        (
            "most: 64",
            "most: 0",
            (12, 11),
            "most 0, expected 1 to 4096",
        ),
        (
            "iterations: 2",
            "iterations: 5",
            (13, 17),
            "expected 1 to 4",
        ),
        (
            "{delay: 5us}",
            "{reorder: 0}",
            (14, 21),
            "0 packets before it",
        ),
        ("innocent: 10", "innocent: 1", (15, 22), "expected 1.1"),
        (
            "rx_discards_phy",
            "lost",
            (15, 37),
            "there is no counter lost",
        ),
    ] {
        let Err(Error::Plan(error)) = read(&TARGET.replace(from, to), PLAN) else {
            panic!("{to} is no mistake");
        };
        let mistake = &error.mistakes[0];
        assert!(mistake.message.contains(part), "{to}: {}", mistake.message);
        assert_eq!((mistake.place.line, mistake.place.column), place, "{to}");
    }
    let event = "events: [{direction: a-to-b, psn: 1, action: drop}]\n";
    let error = read(TARGET, &format!("{PLAN}{event}")).unwrap_err();
    assert!(error.to_string().contains("connection: all"), "{error}");
    let second = ", {rdma: {from: b, to: a, verb: read, messages: 1, size: 8, together: true}}]";
    let error = read(TARGET, &PLAN.replacen("]\n", &format!("{second}\n"), 1)).unwrap_err();
    assert!(error.to_string().contains("several entries"), "{error}");
}

#[test]
fn mutated_targets_never_panic() {
    let words = [
        "-1",
        "0",
        "99999999999999999999999",
        "null",
        "~",
        "{}",
        "[]",
        "1e400",
        ".nan",
        "-",
        "1-",
        "5-5",
        "18446744073709551615",
        "0-18446744073709551615",
        "\u{1f980}",
        "true",
        "\"",
        "*a",
    ];
    let mut draws = Draws::new(1);
    for _ in 0..1_000 {
        let mut text = TARGET.to_owned();
        for _ in 0..=draws.below(3) {
            let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
            let at = places[draws.below(places.len() as u64) as usize];
            let word = words[draws.below(words.len() as u64) as usize];
            match draws.below(3) {
                0 => text.insert_str(at, word),
                1 => drop(text.remove(at)),
                _ => {
                    let end = text[at..]
                        .find([' ', '\n', ',', ']'])
                        .map_or(text.len(), |n| at + n);
                    text.replace_range(at..end, word);
                }
            }
        }
        if let Ok((space, _)) = read(&text, PLAN) {
            let mut case = space.fresh(&mut draws);
            for _ in 0..5 {
                case = space.mutate(&case, &mut draws);
                let plan = explicit::anew(&space.plan(&case));
                Plan::parse("variant", &plan).expect("what a target allows is a plan");
            }
        }
    }
}
