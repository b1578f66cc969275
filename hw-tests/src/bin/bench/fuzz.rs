// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many runs a search takes until it finds something.

use crate::Result;
use crate::report::Report;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What is searched, and the plan that it varies; in plans/fuzz/.
const TARGET: &str = "losses.yaml";
const PLAN: &str = "two-nics.yaml";
/// Seeds of each search.
const SEEDS: u32 = 30;
/// Runs after which a search has found nothing.
const BUDGET: u32 = 200;

/// The noisy neighbour from a general target, by guided and by random search.
pub fn noisy_neighbour(report: &mut Report) -> Result<()> {
    report.section(
        "Search for the noisy neighbour",
        &format!(
            "`midwire fuzz --first` with plans/fuzz/{TARGET}, until packets are discarded or queue \
             pairs suffer that no event touched: runs until that is found, over {SEEDS} seeds, and \
             how many searches found nothing in {BUDGET} runs. Rules are left out, for a slow NAK \
             shows in the first loss. Random search is the same without selection.",
        ),
    );
    report.table(&["search", "median", "quartiles", "found nothing", "runs/s"]);
    for search in ["guided", "random"] {
        let start = Instant::now();
        let mut all = 0;
        let mut found = Vec::new();
        for seed in 1..=SEEDS {
            let state = search_with(search, seed)?;
            all += state["runs"].as_u64().unwrap_or(0);
            found.extend(state["findings"][0]["run"].as_u64());
        }
        found.sort_unstable();
        let seeds = SEEDS as usize;
        let at = |place: usize| match found.get(place) {
            Some(runs) => runs.to_string(),
            None => format!("more than {BUDGET}"),
        };
        report.row(&[
            search.to_owned(),
            at(seeds / 2),
            format!("{}, {}", at(seeds / 4), at(seeds * 3 / 4)),
            format!("{} of {seeds}", seeds - found.len()),
            format!("{:.1}", all as f64 / start.elapsed().as_secs_f64()),
        ]);
    }
    Ok(())
}

/// The state that a search ends with.
fn search_with(search: &str, seed: u32) -> Result<serde_json::Value> {
    let midwire = std::env::current_exe()?.with_file_name("midwire");
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans/fuzz");
    let directory = tempfile::tempdir()?;
    let target = directory.path().join(TARGET);
    let text = fs::read_to_string(targets.join(TARGET))? + "findings: {rules: false}\n";
    fs::write(&target, text)?;
    fs::copy(targets.join(PLAN), directory.path().join(PLAN))?;
    let output = Command::new(midwire)
        .arg("fuzz")
        .arg(target)
        .args(["--first", "--json", "--search", search])
        .args(["--seed", &seed.to_string(), "--budget", &BUDGET.to_string()])
        .arg("--out")
        .arg(directory.path().join("search"))
        .output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}
