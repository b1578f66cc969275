// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times and columns for people.

/// A span of time with a fitting unit, four digits.
pub fn span(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..=9_999 => format!("{ns} ns"),
        10_000..=999_999 => format!("{:.1} µs", value / 1e3),
        1_000_000..=999_999_999 => format!("{:.3} ms", value / 1e6),
        _ => format!("{:.3} s", value / 1e9),
    }
}

/// `once`, `3 times`.
pub fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    }
}

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// To the left.
    Left,
    /// To the right.
    Right,
}

/// Rows under a heading, in aligned columns two spaces apart, each line indented.
pub fn columns(heading: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let width = |text: &str| text.chars().count();
    let mut widths: Vec<usize> = heading.iter().map(|(name, _)| width(name)).collect();
    for row in rows {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = (*most).max(width(cell));
        }
    }
    let line = |cells: &[&str]| {
        let mut line = String::from(" ");
        for ((cell, most), (_, align)) in cells.iter().zip(&widths).zip(heading) {
            let gap = " ".repeat(most - width(cell));
            let (before, after) = if *align == Align::Right {
                (&*gap, "")
            } else {
                ("", &*gap)
            };
            line += &format!(" {before}{cell}{after} ");
        }
        line.trim_end().to_owned() + "\n"
    };
    let names: Vec<&str> = heading.iter().map(|(name, _)| *name).collect();
    let mut text = line(&names);
    for row in rows {
        text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

/// A table of its own.
#[derive(Clone, Debug)]
pub struct Table {
    /// Above it.
    pub title: &'static str,
    /// Names of its columns, and how they are set.
    pub heading: Vec<(&'static str, Align)>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
    /// Rows that are left out.
    pub more: usize,
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}", self.title, columns(&self.heading, &self.rows))?;
        if self.more > 0 {
            writeln!(f, "  and {} more", self.more)?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let text = columns(
            &[
                ("#", Align::Right),
                ("what", Align::Left),
                ("n", Align::Right),
            ],
            &[
                vec!["1".into(), "µs".into(), "10".into()],
                vec!["12".into(), "longer text".into(), "5".into()],
            ],
        );
        assert_eq!(
            text,
            "   #  what          n\n   1  µs           10\n  12  longer text   5\n"
        );
    }
}
