// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection that was replayed, over the one that was recorded.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use midwire_trace::units::Lane;
use serde::{Deserialize, Serialize};

use super::escape;
use super::plane::{BOTTOM, H, TOP, View, W, axes, span_short};

/// A packet of either.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// From A to B.
    pub from_a: bool,
    /// Since the first packet of its connection, ns.
    pub time_ns: u64,
    /// Of its first byte, from the beginning of the connection.
    pub seq: u32,
    /// Bytes of payload.
    pub payload: u32,
    /// What it acknowledges.
    pub ack: Option<u32>,
    /// It went on to the other end.
    pub went_on: bool,
}

/// Where they part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// With which packet.
    pub what: String,
    /// Since the first packet, ns.
    pub time_ns: u64,
    /// Names, values of the recorded and of the replayed packet, and whether they differ.
    pub rows: Vec<Vec<String>>,
}

/// What came of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// The connection.
    pub title: String,
    /// Every packet was the same at the same time.
    pub holds: bool,
    /// What was found: name and value.
    pub lines: Vec<(String, String)>,
    /// The first packet that only one of them has.
    pub departure: Option<Departure>,
    /// Packets recorded and replayed, around the departure if there is one.
    pub points: [Vec<Point>; 2],
}

impl Replay {
    pub(super) fn section(&self, o: &mut String) {
        let bad = if self.holds { "" } else { " bad" };
        let _ = write!(
            o,
            "<h2>Replay of {}</h2><div class=\"verdict{bad}\"><table>",
            escape(&self.title)
        );
        for (name, value) in &self.lines {
            let _ = write!(
                o,
                "<tr><th>{}</th><td>{}</td></tr>",
                escape(name),
                escape(value)
            );
        }
        o.push_str("</table></div>");
        if let Some(departure) = &self.departure {
            departure.table(o);
        }
        for from_a in [true, false] {
            self.picture(o, from_a);
        }
    }

    /// Bytes of one direction over time, and what the other end says of them.
    fn picture(&self, o: &mut String, from_a: bool) {
        let all = || self.points.iter().flatten();
        let data = |p: &&Point| p.from_a == from_a && p.payload > 0;
        let ends = all().filter(data).map(|p| p.seq.saturating_add(p.payload));
        let (Some(s0), Some(s1)) = (all().filter(data).map(|p| p.seq).min(), ends.max()) else {
            return;
        };
        let times = || all().map(|p| p.time_ns);
        let t0 = times().min().unwrap_or(0);
        let view = View {
            t0,
            t1: times().max().unwrap_or(0).max(t0 + 1),
            s0: s0.into(),
            s1: s1.into(),
            height: H,
        };
        let lane = if from_a { Lane::AtoB } else { Lane::BtoA };
        let _ = write!(
            o,
            "<h3>{lane}: bytes over time, replayed over recorded</h3><p class=\"key soft\">\
             <span><i style=\"background:var(--data)\"></i>data</span><span><i style=\"background:var(--ack)\"></i>acknowledged by the other end</span>\
             <span>wide and pale: recorded</span><span>narrow: replayed</span><span><b style=\"color:var(--bad)\">✕</b> did not get to the other end</span></p>\
             <svg viewBox=\"0 0 {W} {H}\" role=\"img\" aria-label=\"recorded and replayed packets\">"
        );
        axes(o, view, "bytes");
        if let Some(departure) = &self.departure {
            let x = view.x(departure.time_ns);
            let _ = write!(
                o,
                "<path d=\"M{x:.1} {TOP}V{}\" stroke=\"var(--mark)\" stroke-dasharray=\"4 3\"/><text class=\"label\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">departs</text>",
                H - BOTTOM,
                TOP - 8.0
            );
        }
        let [recorded, replayed] = &self.points;
        draw(o, view, recorded, from_a, &WIDE);
        draw(o, view, replayed, from_a, &NARROW);
        let from = span_short(t0);
        let _ = write!(
            o,
            "</svg><p class=\"soft\">Time from {from} of the connection.</p>"
        );
    }
}

/// How the packets of one of both are drawn.
struct Pen {
    stroke: f64,
    dot: f64,
    cross: f64,
    opacity: f64,
}

const WIDE: Pen = Pen {
    stroke: 6.0,
    dot: 8.0,
    cross: 4.0,
    opacity: 0.3,
};
const NARROW: Pen = Pen {
    stroke: 1.6,
    dot: 3.0,
    cross: 1.6,
    opacity: 1.0,
};

/// One stroke or dot for all that can't be told apart.
fn draw(o: &mut String, v: View, points: &[Point], from_a: bool, pen: &Pen) {
    let (mut data, mut acks, mut lost) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for p in points {
        let x = v.x(p.time_ns);
        let place = if p.from_a == from_a {
            if p.payload == 0 {
                continue;
            }
            let (from, to) = (
                v.y(p.seq.into()),
                v.y(p.seq.saturating_add(p.payload).into()),
            );
            data.insert(format!("M{x:.1} {from:.1}V{:.1}", to.min(from - 1.0)));
            f64::midpoint(from, to)
        } else {
            let known = |ack: &u32| (v.s0..=v.s1).contains(&u64::from(*ack));
            let Some(ack) = p.ack.filter(known) else {
                continue;
            };
            let y = v.y(ack.into());
            acks.insert(format!("M{x:.1} {y:.1}h0"));
            y
        };
        if !p.went_on {
            lost.insert(format!("M{:.1} {:.1}l8 8m0 -8l-8 8", x - 4.0, place - 4.0));
        }
    }
    for (paths, colour, width) in [
        (acks, "--ack", pen.dot),
        (data, "--data", pen.stroke),
        (lost, "--bad", pen.cross),
    ] {
        let path: String = paths.into_iter().collect();
        if !path.is_empty() {
            let _ = write!(
                o,
                "<path d=\"{path}\" fill=\"none\" stroke=\"var({colour})\" stroke-width=\"{width}\" stroke-opacity=\"{}\" stroke-linecap=\"{}\"/>",
                pen.opacity,
                if colour == "--ack" { "round" } else { "butt" }
            );
        }
    }
}

impl Departure {
    fn table(&self, o: &mut String) {
        let _ = write!(
            o,
            "<h3>Departs {}</h3><div class=\"wide\"><table><tr><th></th><th>Recorded</th><th>Replayed</th><th></th></tr>",
            escape(&self.what)
        );
        for row in &self.rows {
            o.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let class = if column == 3 { " class=\"no\"" } else { "" };
                let _ = write!(o, "<td{class}>{}</td>", escape(cell));
            }
            o.push_str("</tr>");
        }
        o.push_str("</table></div>");
    }
}
