// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a sender's kernel knew, under the time–sequence picture and with its axis of time: its
//! windows and its round-trip time, and when its congestion control did not take all for well.

use std::fmt::Write as _;

use midwire_trace::inside::{CaState, Moment};
use midwire_trace::units::Lane;

use super::plane::{BOTTOM, RIGHT, TOP, View, W, axes};

const WINDOWS: f64 = 190.0;
const TIMES: f64 = 130.0;

/// A value over time, as a line of a colour.
struct Line {
    colour: &'static str,
    points: Vec<(u64, u64)>,
}

impl Line {
    /// Of what a kernel said; a value holds until the next one.
    fn of(said: &[&Moment], colour: &'static str, value: fn(&Moment) -> Option<u32>) -> Self {
        let point = |moment: &&Moment| Some((moment.time_ns.0, u64::from(value(moment)?)));
        let points = said.iter().filter_map(point).collect();
        Self { colour, points }
    }

    /// What there is of it to be seen: from the last point before the view.
    fn seen(&self, v: View) -> &[(u64, u64)] {
        let before = self.points.partition_point(|(t, _)| *t <= v.t0);
        let end = self.points.partition_point(|(t, _)| *t <= v.t1);
        &self.points[before.saturating_sub(1)..end]
    }

    /// Steps, of which those in one column of pixels are one stroke.
    fn path(&self, v: View) -> String {
        let mut path = String::new();
        let mut seen = self.seen(v).iter().peekable();
        while let Some(&(t, value)) = seen.next() {
            let x = v.x(t.max(v.t0));
            let (mut least, mut most, mut last) = (value, value, value);
            while let Some(&(_, value)) = seen.next_if(|(t, _)| v.x(*t) < x + 1.0) {
                (least, most, last) = (least.min(value), most.max(value), value);
            }
            let start = if path.is_empty() { "M" } else { "H" };
            let y = v.y(value);
            let _ = match start {
                "M" => write!(path, "M{x:.1} {y:.1}"),
                _ => write!(path, "H{x:.1}V{y:.1}"),
            };
            if least < most {
                let _ = write!(path, "V{:.1}V{:.1}V{:.1}", v.y(least), v.y(most), v.y(last));
            }
        }
        if !path.is_empty() {
            let _ = write!(path, "H{:.1}", W - RIGHT);
        }
        path
    }
}

/// Draws what the kernel that sends on a lane said of itself, if it said anything.
pub(super) fn draw(o: &mut String, over: View, lane: Lane, moments: &[Moment]) {
    let sender = lane.port_in();
    let said: Vec<_> = moments.iter().filter(|m| m.host == sender).collect();
    let windows = [
        Line::of(&said, "--data", |m| m.cwnd),
        Line::of(&said, "--again", Moment::threshold),
    ];
    if windows[0].points.is_empty() {
        return;
    }
    o.push_str(
        "<p class=\"key soft\"><span>What the sender's kernel knows:</span><span><i style=\"background:var(--data)\"></i>cwnd, segments</span>\
         <span><i style=\"background:var(--again)\"></i>ssthresh</span><span><i style=\"background:var(--ack)\"></i>smoothed round-trip time</span>\
         <span><i style=\"background:var(--bad)\"></i>retransmission timeout</span>",
    );
    for state in CaState::ALL {
        if let Some(colour) = shade(state) {
            let _ = write!(
                o,
                "<span><i style=\"background:var({colour});opacity:.4;height:12px\"></i>{state}</span>"
            );
        }
    }
    o.push_str("</p>");
    panel(o, over, (WINDOWS, "segments"), &said, &windows);
    let srtt = Line::of(&said, "--ack", |m| m.srtt_us.filter(|us| *us > 0));
    panel(o, over, (TIMES, "µs"), &said, &[srtt]);
    let rto = Line::of(&said, "--bad", |m| m.rto_us);
    panel(o, over, (TIMES, "µs"), &said, &[rto]);
}

/// The shade of a state of congestion control; all is well without.
fn shade(state: CaState) -> Option<&'static str> {
    match state {
        CaState::Open => None,
        CaState::Disorder => Some("--mark"),
        CaState::Cwr => Some("--data"),
        CaState::Recovery => Some("--again"),
        CaState::Loss => Some("--bad"),
    }
}

fn panel(
    o: &mut String,
    over: View,
    (height, unit): (f64, &str),
    said: &[&Moment],
    lines: &[Line],
) {
    let seen = lines.iter().flat_map(|line| line.seen(over));
    let Some(most) = seen.map(|(_, value)| *value).max() else {
        return;
    };
    let v = View {
        s0: 0,
        s1: most + most / 10 + 1,
        height,
        ..over
    };
    let _ = write!(
        o,
        "<svg viewBox=\"0 0 {W} {height}\" role=\"img\" aria-label=\"{unit} over time\">"
    );
    let states = said.iter().filter_map(|m| Some((m.time_ns.0, m.ca_state?)));
    let states: Vec<_> = states.collect();
    for (n, (from, state)) in states.iter().enumerate() {
        let to = states.get(n + 1).map_or(v.t1, |(to, _)| *to);
        let (from, to) = ((*from).max(v.t0), to.min(v.t1));
        if let Some(colour) = shade(*state).filter(|_| from < to) {
            let (x, width) = (v.x(from), (v.x(to) - v.x(from)).max(1.0));
            let _ = write!(
                o,
                "<rect x=\"{x:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{}\" fill=\"var({colour})\" opacity=\".2\"><title>{state}</title></rect>",
                height - TOP - BOTTOM
            );
        }
    }
    axes(o, v, unit);
    for line in lines {
        let _ = write!(
            o,
            "<path d=\"{}\" fill=\"none\" stroke=\"var({})\" stroke-width=\"1.6\"/>",
            line.path(v),
            line.colour
        );
    }
    o.push_str("</svg>");
}
