// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `make bench`: measures, prints, and writes what it found to docs/bench.md and
//! docs/line-rate.md.
//!
//! `bench SECTION...` measures only those of `line`, `speed`, `latency`, `tcp`, `linux`, `ring`,
//! `export`, `roce`, `fuzz`; without all of them docs/bench.md stays as it is.

mod card;
mod driver;
mod files;
mod fuzz;
mod hosts;
mod kernels;
mod line;
mod report;
mod roce;

use midwire_endpoints::privilege;
use midwire_virtual_card::Width;
use report::Report;
use std::error::Error;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const WIDTHS: [(Width, &str); 2] = [(Width::W512, "512 bits"), (Width::W64, "64 bits")];
const SECTIONS: [&str; 9] = [
    "line", "speed", "latency", "tcp", "linux", "ring", "export", "roce", "fuzz",
];

fn main() -> Result<()> {
    // Before there is a second thread.
    let hosts = privilege::enter();
    let only: Vec<String> = std::env::args().skip(1).collect();
    if let Some(other) = only.iter().find(|s| !SECTIONS.contains(&s.as_str())) {
        return Err(format!("no section {other:?}: there are {}", SECTIONS.join(", ")).into());
    }
    let wanted = |section: &str| only.is_empty() || only.iter().any(|s| s == section);
    if wanted("line") {
        let mut report = Report::default();
        line::line_rate(&mut report);
        report.write("line-rate.md")?;
    }
    let mut report = Report::default();
    report.line("# Measured figures");
    report.line("");
    report.line("Written by `make bench` on one machine at one time; do not edit.");
    report.line("");
    report.line(&report::machine());
    if wanted("speed") {
        card::simulation_speed(&mut report);
    }
    if wanted("latency") {
        card::latency(&mut report);
    }
    if wanted("tcp") {
        match &hosts {
            Ok(_) => hosts::through_two_hosts(&mut report)?,
            Err(e) => report.section("TCP between two hosts", &format!("Not measured: {e}")),
        }
    }
    if wanted("linux") {
        kernels::linux_hosts(&mut report)?;
    }
    if wanted("ring") {
        driver::ring_to_disk(&mut report, hosts.is_ok())?;
    }
    if wanted("export") {
        files::export_rate(&mut report)?;
    }
    if wanted("roce") {
        roce::analysis_rate(&mut report)?;
    }
    if wanted("fuzz") {
        fuzz::noisy_neighbour(&mut report)?;
    }
    if !only.is_empty() {
        return Ok(());
    }
    report.write("bench.md")
}
