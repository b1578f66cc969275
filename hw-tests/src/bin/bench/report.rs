// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the benchmark prints and keeps.

use crate::Result;
use std::fmt::Write as _;

/// What is printed and kept.
#[derive(Default)]
pub struct Report(String);

impl Report {
    pub fn line(&mut self, text: &str) {
        println!("{text}");
        let _ = writeln!(self.0, "{text}");
    }

    /// Writes it to a file of docs/.
    pub fn write(&self, name: &str) -> Result<()> {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        Ok(std::fs::write(docs.join(name), &self.0)?)
    }

    pub fn section(&mut self, title: &str, text: &str) {
        self.line("");
        self.line(&format!("## {title}"));
        self.line("");
        self.line(text);
    }

    pub fn table(&mut self, columns: &[&str]) {
        self.line("");
        self.row(columns);
        self.row(&vec!["---"; columns.len()]);
    }

    pub fn row(&mut self, cells: &[impl AsRef<str>]) {
        let cells: Vec<_> = cells.iter().map(AsRef::as_ref).collect();
        self.line(&format!("| {} |", cells.join(" | ")));
    }
}

/// This machine in a sentence.
pub fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?");
    format!(
        "{cores} cores of {}; load at the start {load}.",
        model.unwrap_or("an unnamed CPU")
    )
}
