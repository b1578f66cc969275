// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Planes over time, and their axes.

use std::fmt::Write as _;

/// A window of a plane over time, such as the time–sequence plane.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub t0: u64,
    pub t1: u64,
    pub s0: u64,
    pub s1: u64,
    pub height: f64,
}

pub(super) const W: f64 = 1080.0;
pub(super) const H: f64 = 380.0;
pub(super) const LEFT: f64 = 74.0;
pub(super) const RIGHT: f64 = 14.0;
pub(super) const TOP: f64 = 28.0;
pub(super) const BOTTOM: f64 = 34.0;

impl View {
    pub fn x(&self, t: u64) -> f64 {
        let d = (self.t1 - self.t0).max(1) as f64;
        LEFT + (t as f64 - self.t0 as f64) / d * (W - LEFT - RIGHT)
    }

    pub fn y(&self, s: u64) -> f64 {
        let d = (self.s1 - self.s0).max(1) as f64;
        let floor = self.height - BOTTOM;
        floor - (s as f64 - self.s0 as f64) / d * (floor - TOP)
    }

    pub fn holds(&self, t: u64) -> bool {
        (self.t0..=self.t1).contains(&t)
    }
}

pub(super) fn axes(o: &mut String, v: View, unit: &str) {
    let floor = v.height - BOTTOM;
    let _ = write!(
        o,
        "<path d=\"M{LEFT} {TOP}V{floor}H{}\" fill=\"none\" stroke=\"var(--line)\"/>",
        W - RIGHT
    );
    for s in steps(v.s0, v.s1, 5) {
        let y = v.y(s);
        let _ = write!(
            o,
            "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"var(--line)\" stroke-width=\".5\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{s}</text>",
            W - RIGHT,
            LEFT - 6.0,
            y + 4.0
        );
    }
    let width = v.t1 - v.t0;
    for t in steps(0, width, 8) {
        let x = v.x(v.t0 + t);
        let _ = write!(
            o,
            "<path d=\"M{x:.1} {}v4\" stroke=\"var(--line)\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            floor,
            floor + 17.0,
            span_short(t)
        );
    }
    // Above every tick: those are at TOP or below.
    let _ = write!(
        o,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{unit}</text>",
        LEFT - 6.0,
        TOP - 14.0
    );
}

/// Round values between `from` and `to`, about `count` of them.
pub(super) fn steps(from: u64, to: u64, count: u64) -> Vec<u64> {
    let raw = ((to - from) / count).max(1);
    let power = 10u64.pow(raw.ilog10());
    let step = [1, 2, 5, 10]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= raw)
        .unwrap_or(raw);
    (from.div_ceil(step)..=to / step)
        .map(|n| n * step)
        .collect()
}

pub(super) fn span_short(ns: u64) -> String {
    let plain = |v: f64| {
        let s = format!("{v:.3}");
        s.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match ns {
        0 => "0".to_owned(),
        1..=999 => format!("{ns} ns"),
        1_000..=999_999 => format!("{} µs", plain(ns as f64 / 1e3)),
        1_000_000..=999_999_999 => format!("{} ms", plain(ns as f64 / 1e6)),
        _ => format!("{} s", plain(ns as f64 / 1e9)),
    }
}
