// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plans in the repository and in its documents are plans, for the program and by the schema.

use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use midwire_control::fuzz::{self, Target};
use midwire_control::plan::{Plan, schema};

/// Filled in where an example leaves it out.
const REST: &[(&str, &str)] = &[
    ("version", "version: 1\n"),
    ("name", "name: example\n"),
    (
        "endpoints",
        "endpoints: {a: {tap: {address: 10.77.0.1/24}}, b: {tap: {address: 10.77.0.2/24}}}\n",
    ),
    ("traffic", "traffic: [tcp: {from: a, to: b, bytes: 2MB}]\n"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn validator() -> Validator {
    jsonschema::validator_for(&schema()).expect("a schema")
}

/// Whether YAML holds by the schema.
fn holds(validator: &Validator, text: &str) -> Result<(), String> {
    let value: serde_json::Value =
        serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    validator
        .validate(&value)
        .map_err(|error| format!("{error} at {}", error.instance_path()))
}

#[test]
fn every_example_is_a_plan() {
    let page = fs::read_to_string(root().join("docs/plan.md")).unwrap();
    let validator = validator();
    let mut examples = 0;
    let mut lines = page.lines().enumerate();
    while let Some((start, line)) = lines.next() {
        if line != "```yaml" {
            continue;
        }
        let block: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| *line != "```")
            .collect();
        let block = block.join("\n") + "\n";
        let has = |key: &str| {
            block
                .lines()
                .any(|line| line.starts_with(&format!("{key}:")))
        };
        let own = block.contains("pcap:") || has("duration");
        let rest = REST
            .iter()
            .filter(|(key, _)| !(has(key) || own && *key == "traffic"))
            .map(|(_, text)| *text);
        let text: String = [block.as_str()].into_iter().chain(rest).collect();
        let place = format!("docs/plan.md, example from line {}", start + 2);
        Plan::parse(&place, &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        holds(&validator, &text).unwrap_or_else(|error| panic!("{place}: {error}\n{text}"));
        examples += 1;
    }
    assert!(examples >= 16, "{examples} examples");
}

#[test]
fn every_plan_of_the_repository_is_a_plan() {
    let validator = validator();
    let mut plans = 0;
    let directories = ["plans", "plans/rnic"].map(|name| fs::read_dir(root().join(name)).unwrap());
    for entry in directories.into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let (plan, text) = Plan::read(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            Some(plan.name.as_str()),
            path.file_stem().and_then(|stem| stem.to_str())
        );
        holds(&validator, &text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        plans += 1;
    }
    assert!(plans >= 13, "{plans} plans");
}

#[test]
fn every_target_is_a_target() {
    let validator = jsonschema::validator_for(&fuzz::schema()).expect("a schema");
    let targets = root().join("plans/fuzz");
    let page = fs::read_to_string(root().join("docs/fuzz.md")).unwrap();
    let (_, example) = page.split_once("```yaml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("two-nics.yaml");
    fs::copy(targets.join("two-nics.yaml"), copy).unwrap();
    let documented = directory.path().join("example.yaml");
    fs::write(&documented, example).unwrap();
    for path in [
        documented,
        targets.join("losses.yaml"),
        targets.join("neighbours.yaml"),
    ] {
        let (_, text) = Target::read(&path).unwrap_or_else(|error| panic!("{error}"));
        holds(&validator, &text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    for wrong in [
        "qps: many",
        "qps: -1",
        "mtu: []",
        "events: {most: 1, actions: []}",
    ] {
        let target = format!("version: 1\nname: x\nplan: y\nvary: {{{wrong}}}\n");
        assert!(
            holds(&validator, &target).is_err(),
            "the schema takes {wrong}"
        );
    }
}

#[test]
fn the_schema_refuses_what_the_program_refuses() {
    let validator = validator();
    let good: String = REST.iter().map(|(_, text)| *text).collect();
    holds(&validator, &good).unwrap();
    for wrong in [
        "nmae: x",
        "card: {width: 100}",
        "timeouts: {quiet: 5}",
        "timeouts: {quiet: 5 min}",
        "capture: {snapshot: 1Mb}",
        "events: [{direction: a-to-c, packet: 1, action: drop}]",
        "events: [{direction: a-to-b, packet: 0, action: drop}]",
        "events: [{direction: a-to-b, packet: 1, action: dorp}]",
        "events: [{direction: a-to-b, packet: 1, action: {dealy: 1ms}}]",
        "events: [{direction: a-to-b, packet: 1, iterations: 0, action: drop}]",
        "events: [{direction: a-to-b, packet: 1}]",
        "expect: [traffic: maybe]",
        "expect: [retransmission: {cause: luck}]",
    ] {
        let text = format!("{good}{wrong}\n");
        assert!(
            holds(&validator, &text).is_err(),
            "the schema takes {wrong}"
        );
        assert!(
            Plan::parse("plan.yaml", &text).is_err(),
            "the program takes {wrong}"
        );
    }
}
