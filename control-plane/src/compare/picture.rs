// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The picture of how two runs part.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error as StdError;

use midwire_trace::{Capture, Lane, Nanos, Record, Tap};
use plotters::prelude::*;

use super::parting::pairs;
use crate::draw::{Area, COLOURS, Drawn, FONT, decade, legend, svg};

/// Pixels of both pictures together, one above the other.
const SIZE: (u32, u32) = (1000, 640);
/// Points of a curve; more can't be told apart.
const POINTS: u64 = 900;
/// Where times that are not apart are drawn, in a scale that has no 0.
const SAME: f64 = 0.3;

/// What a connection sends in one direction.
type Flow = (u16, Lane);

/// Bytes that flows have sent, by microseconds from the beginning of the first run.
type Curves = HashMap<Flow, Vec<(f64, f64)>>;

/// Draws what the flows of two runs send over time, and below how far the times of their packets
/// are apart.
pub fn picture(captures: [&Capture; 2]) -> Drawn {
    let [[start, first], [_, second]] = captures.map(span);
    let end = first.max(second).since(start).0.max(1);
    let curves = captures.map(|capture| sent(capture, start, end));
    let apart = Apart::of(captures, end);
    svg(SIZE, "midwire diff", |root| {
        let (above, below) = root.split_vertically(SIZE.1 / 2);
        flows(&above, &curves, end)?;
        apart.draw(&below, end)
    })
}

/// Times of its first and its last packet.
fn span(capture: &Capture) -> [Nanos; 2] {
    let mut entries = capture.by_time();
    let mut span = None;
    while let Some(entry) = entries.next_entry() {
        let time = entry.record.time;
        span.get_or_insert([time; 2])[1] = time;
    }
    span.unwrap_or_default()
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// What each flow had sent, at as many times as can be told apart.
fn sent(capture: &Capture, start: Nanos, end: u64) -> Curves {
    let mut curves = Curves::new();
    let mut totals: HashMap<Flow, (u64, Option<u64>)> = HashMap::new();
    let mut entries = capture.by_time();
    while let Some(entry) = entries.next_entry() {
        let r: Record = entry.record;
        let Some(connection) = r.connection.filter(|_| r.tap == Tap::Ingress) else {
            continue;
        };
        let flow = (connection, r.lane);
        let (total, drawn) = totals.entry(flow).or_default();
        *total += u64::from(r.payload_len);
        let after = r.time.since(start).0;
        let point = after * POINTS / end;
        if *drawn != Some(point) {
            *drawn = Some(point);
            let curve = curves.entry(flow).or_default();
            curve.push((milliseconds(after), *total as f64));
        }
    }
    curves
}

/// The flows that send most, as many as there are colours.
fn flows(area: &Area<'_>, curves: &[Curves; 2], end: u64) -> Result<(), Box<dyn StdError>> {
    let total = |curve: &Vec<(f64, f64)>| curve.last().map_or(0.0, |(_, bytes)| *bytes);
    let mut largest: BTreeMap<Flow, f64> = BTreeMap::new();
    for (flow, curve) in curves.iter().flatten() {
        let largest = largest.entry(*flow).or_default();
        *largest = largest.max(total(curve));
    }
    let mut shown: Vec<(Flow, f64)> = largest.into_iter().collect();
    shown.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let top = shown.first().map_or(1.0, |(_, bytes)| bytes.max(1.0));
    shown.retain(|(_, bytes)| *bytes > top / 100.0);
    shown.truncate(COLOURS.len());
    shown.sort_by_key(|(flow, _)| *flow);

    let mut chart = ChartBuilder::on(area)
        .caption("Bytes sent, and sent again", FONT)
        .margin(10)
        .margin_right(40)
        .set_label_area_size(LabelAreaPosition::Left, 80)
        .set_label_area_size(LabelAreaPosition::Bottom, 30)
        .build_cartesian_2d(0.0..milliseconds(end), 0.0..top * 1.05)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|ms| format!("{ms} ms"))
        .y_label_formatter(&|bytes| format!("{} MB", bytes / 1e6))
        .label_style(FONT)
        .draw()?;
    let none = Vec::new();
    for ((flow, _), colour) in shown.into_iter().zip(COLOURS) {
        // The second run upon the first, which stays in sight where they are the same.
        let styles = [
            colour.mix(0.35).stroke_width(7),
            colour.mix(1.0).stroke_width(2),
        ];
        for ((run, style), name) in curves.iter().zip(styles).zip(["first", "second"]) {
            let (connection, lane) = flow;
            let curve = run.get(&flow).unwrap_or(&none);
            chart
                .draw_series(LineSeries::new(curve.iter().copied(), style))?
                .label(format!("connection {connection} {lane}, {name} run"))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        }
    }
    legend(
        &mut chart.configure_series_labels(),
        SeriesLabelPosition::UpperLeft,
    )
}

/// How far packets are apart, by points of time.
struct Apart {
    /// The farthest of each point, in nanoseconds.
    farthest: BTreeMap<u64, u64>,
    /// Points in which a packet came that the second run does not have.
    alone: BTreeSet<u64>,
}

impl Apart {
    fn of(captures: [&Capture; 2], end: u64) -> Self {
        let mut apart = Self {
            farthest: BTreeMap::new(),
            alone: BTreeSet::new(),
        };
        pairs(captures, |_, after, by| {
            let point = after.0 * POINTS / end;
            match by {
                Some(by) => {
                    let farthest = apart.farthest.entry(point).or_default();
                    *farthest = by.0.max(*farthest);
                }
                None => {
                    apart.alone.insert(point);
                }
            }
        });
        apart
    }

    fn draw(&self, area: &Area<'_>, end: u64) -> Result<(), Box<dyn StdError>> {
        let most = self.farthest.values().max().copied().unwrap_or(0).max(10) as f64;
        let at = |point: &u64| milliseconds(point * end / POINTS);
        let mut chart = ChartBuilder::on(area)
            .caption("How far the same packets are apart in time", FONT)
            .margin(10)
            .margin_right(40)
            .set_label_area_size(LabelAreaPosition::Left, 80)
            .set_label_area_size(LabelAreaPosition::Bottom, 30)
            .build_cartesian_2d(
                0.0..milliseconds(end),
                (SAME / 3.0..most * 30.0).log_scale(),
            )?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|ms| format!("{ms} ms"))
            .y_label_formatter(&|ns| match *ns < 0.9 {
                true => String::new(),
                false => decade(ns),
            })
            .label_style(FONT)
            .draw()?;
        let [alone, apart, ..] = COLOURS;
        let dots = |points: Vec<(f64, f64)>, colour: RGBColor| {
            points
                .into_iter()
                .map(move |point| Circle::new(point, 2, colour.filled()))
        };
        let same = |(point, ns): (&u64, &u64)| (at(point), (*ns as f64).max(SAME));
        let key = |colour: RGBColor| move |(x, y)| Circle::new((x + 8, y), 4, colour.filled());
        chart
            .draw_series(dots(self.farthest.iter().map(same).collect(), apart))?
            .label("at most, of packets that both have; at the foot: nothing")
            .legend(key(apart));
        let alones = self.alone.iter().map(|point| (at(point), most * 10.0));
        chart
            .draw_series(dots(alones.collect(), alone))?
            .label("packets that only the first run has")
            .legend(key(alone));
        legend(
            &mut chart.configure_series_labels(),
            SeriesLabelPosition::MiddleLeft,
        )
    }
}
