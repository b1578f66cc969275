// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the suite came to, for people: on a terminal, and as a page.

use super::{Conclusion, Line, Report};
use crate::text::{Align, columns, word};

impl Conclusion {
    fn word(self) -> &'static str {
        match self {
            Conclusion::Fine => "",
            Conclusion::Finding => "FINDING",
            Conclusion::Open => "OPEN",
        }
    }
}

/// A table for a terminal.
pub fn text(report: &Report) -> String {
    let row = |line: &Line| {
        [
            line.test,
            line.about,
            &line.measured,
            line.result.word(),
            line.allowed,
            line.paper,
        ]
        .map(str::to_owned)
        .to_vec()
    };
    let names = ["test", "about", "measured", "", "allowed", "Lumina's paper"];
    let rows: Vec<_> = report.lines.iter().map(row).collect();
    let table = columns(&names.map(|name| (name, Align::Left)), &rows);
    format!(
        "RNIC suite, profile {}\n{table}\n{}\n",
        word(&report.profile),
        summary(report)
    )
}

fn summary(report: &Report) -> String {
    let findings = report.findings().count();
    let open = |line: &&Line| line.result == Conclusion::Open;
    let open = match report.lines.iter().filter(open).count() {
        0 => String::new(),
        n => format!(", {n} questions open"),
    };
    match findings {
        0 => format!("no finding{open}"),
        1 => format!("1 finding{open}"),
        n => format!("{n} findings{open}"),
    }
}

/// A page in Markdown. `figures` are captions with the paths of the pictures.
pub fn markdown(reports: &[Report], figures: &[(&str, String)]) -> String {
    let mut text = HEAD.to_owned();
    for report in reports {
        text += &format!(
            "\n## {}\n{}.\n\n| test | about | measured | | allowed | paper |\n|---|---|---|---|---|---|\n",
            word(&report.profile),
            summary(report)
        );
        for line in &report.lines {
            let mark = match line.result {
                Conclusion::Fine => String::new(),
                other => format!("**{}**", other.word()),
            };
            text += &format!(
                "| {} | {} | {} | {mark} | {} | {} |\n",
                line.test, line.about, line.measured, line.allowed, line.paper
            );
        }
    }
    if !figures.is_empty() {
        text += FIGURES;
    }
    for (caption, path) in figures {
        text += &format!("\n{caption}:\n\n![{caption}]({path})\n");
    }
    text
}

const FIGURES: &str = "
## The paper's figures
As the model NICs of the profiles have them, each from runs of its own behind the card's RTL. In figure
11 they time out as asked, without adaptive retransmission: the paper's mean of 430 ms is that of ten
READs of which one waits for a timer of 2^20 · 4.096 µs.
";

const HEAD: &str = "\
# The suite for RDMA NICs

Written by `make suite` (`midwire suite rnic --all --write docs/suite.md`), on model NICs behind the card's RTL.

Each test is a plan of `plans/rnic/`. Its questions are put to what the run leaves: the packets that
the card captured, the NICs' counters, and how long messages took. They do not know which profile the
NIC has. What a profile does wrong is what the authors of
[Lumina](https://doi.org/10.1145/3603269.3604837) saw in a NIC of their day, which may have been mended
since; the last column has their figures, with the section of the paper.

The limit of 50 µs for a reaction is a matter of taste: dozens of round trips.
";
