// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report of a run: one HTML file that opens without a network.
//!
//! It says first whether the device under test passed and why, then shows each event asked
//! against measured, how each retransmission came about, and a time–sequence picture of each
//! connection: an overview, and a closer view around each event, with what the sender's kernel knew.

mod inside;

use std::fmt::Write as _;

use midwire_trace::inside::Moment;
use midwire_trace::units::Lane;
use serde::{Deserialize, Serialize};

use crate::tcp::{Connection, TcpPacket};
use crate::text::{Align, Table, span};

/// A row of the table of events.
#[derive(Clone, Debug)]
pub struct EventRow {
    /// Its number in the plan, from 1.
    pub number: u32,
    /// What the plan asks for.
    pub asked: String,
    /// Times that it fired.
    pub fired: u32,
    /// Times that it has to fire; nothing when the plan leaves it open.
    pub wanted: Option<u32>,
    /// What was measured.
    pub measured: String,
    /// Fired as asked.
    pub passed: bool,
}

/// A statement that holds or does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What has to hold.
    pub what: String,
    /// What was found.
    pub found: String,
    /// Whether it holds.
    pub holds: bool,
}

/// A TCP connection with its packets.
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    /// Who with whom, for the heading.
    pub title: String,
    /// What the analysis found.
    pub connection: &'a Connection,
    /// Its packets in order of arrival.
    pub packets: &'a [TcpPacket],
    /// What the kernels at its ends said of it, in the order of time.
    pub inside: &'a [Moment],
}

/// All that a report shows.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// The plan's name.
    pub name: String,
    /// The plan's description.
    pub description: String,
    /// The verdict in a sentence.
    pub verdict: String,
    /// Whether the run passed.
    pub passed: bool,
    /// Facts about the run: name and value.
    pub facts: Vec<(String, String)>,
    /// The plan's events.
    pub events: Vec<EventRow>,
    /// The plan's expectations.
    pub expectations: Vec<Check>,
    /// What proves that the capture is complete.
    pub integrity: Vec<Check>,
    /// What RDMA NICs did.
    pub tables: Vec<Table>,
    /// The connections.
    pub pictures: Vec<Picture<'a>>,
    /// Card time of the first record, ns, from which the times of the run count.
    pub start_ns: u64,
    /// The plan as it was given.
    pub plan: String,
}

const STYLE: &str = "
:root{--ink:#1c2430;--soft:#5b6675;--line:#d9dee6;--back:#fff;--panel:#f6f8fa;--data:#3b6fb6;--ack:#4f9d69;--again:#d9822b;--bad:#c23b3b;--mark:#8250b8;--good:#2f7d4f}
@media (prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#98a3b3;--line:#333c49;--back:#12161c;--panel:#1a2029;--data:#6ea3ec;--ack:#66bb85;--again:#f0a04b;--bad:#ef6b6b;--mark:#b48be6;--good:#5fc78a}}
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px}h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:32px 0 8px}h3{font-size:15px;margin:20px 0 6px}
p{margin:4px 0}.soft{color:var(--soft)}.verdict{border-left:6px solid var(--good);background:var(--panel);padding:12px 16px;margin:16px 0;font-size:17px}
.verdict.bad{border-color:var(--bad)}table{border-collapse:collapse;width:100%;font-size:14px}th{text-align:left;font-weight:600;color:var(--soft)}
th,td{padding:5px 10px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.ok{color:var(--good)}.no{color:var(--bad);font-weight:600}.wide{overflow-x:auto}svg{display:block;width:100%;height:auto;background:var(--panel);margin:6px 0 14px}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}svg .label{fill:var(--ink);font-weight:600}.key span{display:inline-block;margin-right:16px}.key i{display:inline-block;width:14px;height:4px;margin-right:5px;vertical-align:middle}
pre{background:var(--panel);padding:12px;overflow-x:auto;font-size:13px}details summary{cursor:pointer}
";

/// The page. Everything from outside is escaped.
pub fn html(r: &Report<'_>) -> String {
    let mut o = String::with_capacity(64 << 10);
    let _ = write!(
        o,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{0}: {1}</title><style>{STYLE}</style></head><body><main><h1>{0}</h1><p class=\"soft\">{2}</p>\
         <div class=\"verdict{3}\">{4}</div>",
        escape(&r.name),
        if r.passed { "passed" } else { "not passed" },
        escape(&r.description),
        if r.passed { "" } else { " bad" },
        escape(&r.verdict),
    );
    events(&mut o, &r.events);
    checks(&mut o, "Expectations", "Expected", &r.expectations);
    for t in &r.tables {
        table(&mut o, t);
    }
    retransmissions(&mut o, &r.pictures);
    for p in &r.pictures {
        picture(&mut o, p, r.start_ns);
    }
    checks(&mut o, "Is the capture complete?", "Proof", &r.integrity);
    o.push_str("<h2>The run</h2><table>");
    for (k, v) in &r.facts {
        let _ = write!(o, "<tr><th>{}</th><td>{}</td></tr>", escape(k), escape(v));
    }
    let _ = writeln!(
        o,
        "</table><h2>The plan</h2><details><summary>as it was given</summary><pre>{}</pre></details></main></body></html>",
        escape(&r.plan)
    );
    o
}

fn escape(s: &str) -> String {
    let mut o = String::with_capacity(s.len());
    for c in s.chars() {
        match c {
            '&' => o.push_str("&amp;"),
            '<' => o.push_str("&lt;"),
            '>' => o.push_str("&gt;"),
            '"' => o.push_str("&quot;"),
            '\'' => o.push_str("&#39;"),
            c => o.push(c),
        }
    }
    o
}

fn tick(passed: bool) -> &'static str {
    if passed {
        "<span class=\"ok\">✓</span>"
    } else {
        "<span class=\"no\">✗</span>"
    }
}

fn events(o: &mut String, rows: &[EventRow]) {
    if rows.is_empty() {
        return;
    }
    o.push_str("<h2>Events</h2><div class=\"wide\"><table><tr><th class=\"n\">#</th><th>Asked</th><th class=\"n\">Fired</th><th>Measured</th><th></th></tr>");
    for e in rows {
        let _ = write!(
            o,
            "<tr><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>",
            e.number,
            escape(&e.asked),
            match e.wanted {
                Some(wanted) => format!("{} of {wanted}", e.fired),
                None => e.fired.to_string(),
            },
            escape(&e.measured).replace('\n', "<br>"),
            tick(e.passed)
        );
    }
    o.push_str("</table></div>");
}

fn checks(o: &mut String, heading: &str, column: &str, rows: &[Check]) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(
        o,
        "<h2>{heading}</h2><div class=\"wide\"><table><tr><th>{column}</th><th>Found</th><th></th></tr>"
    );
    for c in rows {
        let _ = write!(
            o,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&c.what),
            escape(&c.found),
            tick(c.holds)
        );
    }
    o.push_str("</table></div>");
}

fn table(o: &mut String, t: &Table) {
    let _ = write!(
        o,
        "<h2>{}</h2><div class=\"wide\"><table><tr>",
        escape(t.title)
    );
    let number = |align| match align {
        Align::Right => " class=\"n\"",
        Align::Left => "",
    };
    for (name, align) in &t.heading {
        let _ = write!(o, "<th{}>{}</th>", number(*align), escape(name));
    }
    o.push_str("</tr>");
    for row in &t.rows {
        o.push_str("<tr>");
        for (cell, (_, align)) in row.iter().zip(&t.heading) {
            let _ = write!(o, "<td{}>{}</td>", number(*align), escape(cell));
        }
        o.push_str("</tr>");
    }
    o.push_str("</table></div>");
    if t.more > 0 {
        let _ = write!(o, "<p class=\"soft\">and {} more</p>", t.more);
    }
}

/// Retransmissions that the table shows of each connection; the rest is counted.
const ROWS: usize = 200;

fn retransmissions(o: &mut String, pictures: &[Picture<'_>]) {
    if pictures
        .iter()
        .all(|p| p.connection.retransmissions.is_empty())
    {
        return;
    }
    o.push_str(
        "<h2>Retransmissions</h2><div class=\"wide\"><table><tr><th class=\"n\">Connection</th><th>Direction</th><th class=\"n\">Segment</th>\
         <th class=\"n\">Byte</th><th class=\"n\">Transmission</th><th class=\"n\">After</th><th>Cause</th><th class=\"n\">Reaction</th>\
         <th>The one before</th><th class=\"n\">Packet</th></tr>",
    );
    for p in pictures {
        for r in p.connection.retransmissions.iter().take(ROWS) {
            let _ = write!(
                o,
                "<tr><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
                 <td>{}</td><td class=\"n\">{}</td><td>packet {} {}</td><td class=\"n\">{}</td></tr>",
                p.connection.connection,
                r.direction,
                r.what(),
                r.byte,
                r.transmission,
                span(r.after_ns),
                r.why(),
                r.reaction_ns.map_or_else(String::new, span),
                r.previous,
                if r.previous_lost {
                    "was lost"
                } else {
                    "had got past the card"
                },
                r.packet,
            );
        }
        let rest = p.connection.retransmissions.len().saturating_sub(ROWS);
        if rest > 0 {
            let _ = write!(
                o,
                "<tr><td colspan=\"10\">and {rest} more in connection {}</td></tr>",
                p.connection.connection
            );
        }
    }
    o.push_str("</table></div>");
}

/// A window of a plane over time, such as the time–sequence plane.
#[derive(Clone, Copy)]
struct View {
    t0: u64,
    t1: u64,
    s0: u64,
    s1: u64,
    height: f64,
}

const W: f64 = 1080.0;
const H: f64 = 380.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 34.0;

impl View {
    fn x(&self, t: u64) -> f64 {
        let d = (self.t1 - self.t0).max(1) as f64;
        LEFT + (t as f64 - self.t0 as f64) / d * (W - LEFT - RIGHT)
    }

    fn y(&self, s: u64) -> f64 {
        let d = (self.s1 - self.s0).max(1) as f64;
        let floor = self.height - BOTTOM;
        floor - (s as f64 - self.s0 as f64) / d * (floor - TOP)
    }

    fn holds(&self, t: u64) -> bool {
        (self.t0..=self.t1).contains(&t)
    }
}

/// A segment with its relative place, ready to be drawn.
struct Drawn<'a> {
    p: &'a TcpPacket,
    start: u64,
    end: u64,
    again: bool,
}

/// Closer views of one connection; more events than this are told of in the table alone.
const VIEWS: usize = 8;

fn picture(o: &mut String, p: &Picture<'_>, start_ns: u64) {
    let c = p.connection;
    let _ = write!(
        o,
        "<h2>Connection {}: {}</h2><p class=\"soft\">",
        c.connection,
        escape(&p.title)
    );
    if let Some(h) = c.handshake_ns {
        let _ = write!(o, "Handshake {}. ", span(h));
    }
    for (lane, d) in [Lane::AtoB, Lane::BtoA].iter().zip(&c.directions) {
        if d.segments > 0 {
            let _ = write!(
                o,
                "{lane}: {} bytes in {} segments, {} sent again ({} of them not needed), {} lost on the card. ",
                d.bytes, d.segments, d.retransmitted, d.unneeded, d.lost
            );
        }
    }
    o.push_str("</p>");
    for lane in [Lane::AtoB, Lane::BtoA] {
        let (drawn, acks) = place(p.packets, lane);
        let Some(all) = extent(&drawn) else { continue };
        let _ = write!(
            o,
            "<h3>{lane}: bytes over time</h3><p class=\"key soft\"><span><i style=\"background:var(--data)\"></i>data</span>\
             <span><i style=\"background:var(--ack)\"></i>acknowledged by the other end</span><span><i style=\"background:var(--again)\"></i>sent again</span>\
             <span>by an event, with its number:</span><span><b style=\"color:var(--bad)\">✕</b> dropped</span><span><b style=\"color:var(--bad)\">□</b> corrupted</span>\
             <span><b style=\"color:var(--mark)\">◆</b> marked</span><span><b style=\"color:var(--mark)\">⋯●</b> delayed or reordered</span><span><b style=\"color:var(--mark)\">○</b> its copies</span></p>"
        );
        let show = |o: &mut String, v: View| {
            draw(o, v, &drawn, &acks);
            inside::draw(o, v, lane, p.inside);
            began(o, v, start_ns);
        };
        show(o, all);
        let mut shown: Vec<View> = Vec::new();
        for d in drawn.iter().filter(|d| d.p.event.is_some()) {
            if shown.len() == VIEWS || shown.iter().any(|v| v.holds(d.p.time_ns)) {
                continue;
            }
            if let Some(v) = around(d, &drawn, all) {
                let _ = write!(o, "<h3>Around event {}</h3>", d.p.event.unwrap_or_default());
                show(o, v);
                shown.push(v);
            }
        }
    }
}

/// What a picture's axis of time counts from.
fn began(o: &mut String, v: View, start_ns: u64) {
    let from = span_short(v.t0.saturating_sub(start_ns));
    let _ = write!(o, "<p class=\"soft\">Time from {from} of the run.</p>");
}

fn place(packets: &[TcpPacket], lane: Lane) -> (Vec<Drawn<'_>>, Vec<(u64, u64, &TcpPacket)>) {
    let mut base = None;
    let mut highest = 0u64;
    let mut acked = 0u64;
    let mut drawn = Vec::new();
    let mut acks = Vec::new();
    let relative = |base: u32, seq: u32, near: u64| {
        let step = seq.wrapping_sub(base).wrapping_sub(near as u32) as i32;
        near.checked_add_signed(i64::from(step))
    };
    for p in packets {
        if p.lane == lane {
            if p.flags & 0x02 != 0 {
                base = Some(p.seq.wrapping_add(1));
            }
            if let Some(start) = base
                .filter(|_| p.payload > 0)
                .and_then(|b| relative(b, p.seq, highest))
            {
                let end = start + u64::from(p.payload);
                drawn.push(Drawn {
                    p,
                    start,
                    end,
                    again: start < highest,
                });
                highest = highest.max(end);
            }
        } else if p.flags & 0x10 != 0
            && let Some(ack) = base.and_then(|b| relative(b, p.ack, acked))
            && ack <= highest + 1
        {
            acked = acked.max(ack);
            acks.push((p.time_ns, ack, p));
        }
    }
    (drawn, acks)
}

fn extent(drawn: &[Drawn<'_>]) -> Option<View> {
    let (first, last) = (drawn.first()?, drawn.last()?);
    let t1 = drawn
        .iter()
        .filter_map(|d| d.p.left_ns)
        .max()
        .unwrap_or(last.p.time_ns)
        .max(last.p.time_ns);
    Some(View {
        t0: first.p.time_ns,
        t1: t1.max(first.p.time_ns + 1),
        s0: 0,
        s1: drawn.iter().map(|d| d.end).max()?,
        height: H,
    })
}

/// From a little before the packet to a little after the last transmission of its first byte.
fn around(d: &Drawn<'_>, drawn: &[Drawn<'_>], all: View) -> Option<View> {
    let last = drawn
        .iter()
        .filter(|x| x.start <= d.start && d.start < x.end)
        .map(|x| x.p.left_ns.unwrap_or(x.p.time_ns))
        .max()?;
    let slack = ((last - d.p.time_ns) / 4)
        .max((all.t1 - all.t0) / 400)
        .max(1000);
    let (t0, t1) = (d.p.time_ns.saturating_sub(slack), last + slack);
    let near = drawn.iter().filter(|x| (t0..=t1).contains(&x.p.time_ns));
    let (s0, s1) = near.fold((d.start, d.end), |(a, b), x| (a.min(x.start), b.max(x.end)));
    Some(View {
        t0,
        t1,
        s0,
        s1,
        height: H,
    })
}

fn draw(o: &mut String, v: View, drawn: &[Drawn<'_>], acks: &[(u64, u64, &TcpPacket)]) {
    let _ = write!(
        o,
        "<svg viewBox=\"0 0 {W} {H}\" role=\"img\" aria-label=\"time–sequence picture\">"
    );
    axes(o, v, "bytes");
    let path = acknowledged(v, acks);
    let _ = write!(
        o,
        "<path d=\"{path}\" fill=\"none\" stroke=\"var(--ack)\" stroke-width=\"1.2\"/>"
    );
    // Plain data: one stroke a pixel column.
    let mut columns: std::collections::BTreeMap<i64, (u64, u64)> =
        std::collections::BTreeMap::new();
    let visible = |d: &&Drawn<'_>| v.holds(d.p.time_ns) && d.end > v.s0 && d.start < v.s1;
    for d in drawn
        .iter()
        .filter(visible)
        .filter(|d| !d.again && d.p.event.is_none())
    {
        let e = columns
            .entry((v.x(d.p.time_ns) * 2.0) as i64)
            .or_insert((d.start, d.end));
        *e = (e.0.min(d.start), e.1.max(d.end));
    }
    let mut path = String::new();
    for (x, (s, e)) in columns {
        let _ = write!(
            path,
            "M{:.1} {:.1}V{:.1}",
            x as f64 / 2.0,
            v.y(s),
            v.y(e).min(v.y(s) - 1.0)
        );
    }
    let _ = write!(
        o,
        "<path d=\"{path}\" stroke=\"var(--data)\" stroke-width=\"1.6\"/>"
    );
    for d in drawn
        .iter()
        .filter(visible)
        .filter(|d| d.again || d.p.event.is_some())
    {
        special(o, v, d);
    }
    // Acknowledgements that events touched.
    for (t, ack, p) in acks
        .iter()
        .filter(|(t, a, p)| p.event.is_some() && v.holds(*t) && *a >= v.s0 && *a <= v.s1)
    {
        let (x, y) = (v.x(*t), v.y(*ack));
        let title = format!("packet {}: acknowledgement of byte {ack}", p.number);
        mark(o, v, p, x, y, &title);
    }
    o.push_str("</svg>");
}

/// The line of acknowledgements that got past the card, as steps from the left edge to the right
/// one. What lies outside of the view runs along its border.
fn acknowledged(v: View, acks: &[(u64, u64, &TcpPacket)]) -> String {
    let y = |ack: u64| v.y(ack.clamp(v.s0, v.s1));
    let passed = || acks.iter().filter(|(.., p)| p.left_ns.is_some());
    let mut path = String::new();
    if let Some((_, ack, _)) = passed().take_while(|(t, ..)| *t < v.t0).last() {
        let _ = write!(path, "M{LEFT} {:.1}", y(*ack));
    }
    // In a long capture at most two points a pixel column.
    let mut column = i64::MIN;
    for (t, ack, _) in passed().filter(|(t, ..)| v.holds(*t)) {
        let x = v.x(*t);
        if x as i64 != column || acks.len() < 2000 {
            let _ = if path.is_empty() {
                write!(path, "M{x:.1} {:.1}", y(*ack))
            } else {
                write!(path, "H{x:.1}V{:.1}", y(*ack))
            };
            column = x as i64;
        }
    }
    if !path.is_empty() {
        let _ = write!(path, "H{:.1}", W - RIGHT);
    }
    path
}

fn special(o: &mut String, v: View, d: &Drawn<'_>) {
    let x = v.x(d.p.time_ns);
    let (y0, y1) = (v.y(d.start), v.y(d.end).min(v.y(d.start) - 3.0));
    let title = format!(
        "packet {}: bytes {} to {}{}",
        d.p.number,
        d.start,
        d.end,
        if d.again { ", sent again" } else { "" }
    );
    let colour = if d.again { "--again" } else { "--data" };
    let _ = write!(
        o,
        "<path d=\"M{x:.1} {y0:.1}V{y1:.1}\" stroke=\"var({colour})\" stroke-width=\"2.4\"><title>{}</title></path>",
        escape(&title)
    );
    if d.p.event.is_some() {
        mark(o, v, d.p, x, f64::midpoint(y0, y1), &title);
    }
}

fn mark(o: &mut String, v: View, p: &TcpPacket, x: f64, y: f64, title: &str) {
    let _ = write!(o, "<g><title>{}</title>", escape(title));
    if p.left_ns.is_none() {
        let _ = write!(
            o,
            "<path d=\"M{:.1} {:.1}l8 8m0 -8l-8 8\" stroke=\"var(--bad)\" stroke-width=\"2\"/>",
            x - 4.0,
            y - 4.0
        );
    } else if p.corrupted {
        let _ = write!(
            o,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" fill=\"none\" stroke=\"var(--bad)\" stroke-width=\"2\"/>",
            x - 4.0,
            y - 4.0
        );
    } else if p.delayed {
        let to = v.x(p.left_ns.unwrap_or(p.time_ns).min(v.t1));
        let _ = write!(
            o,
            "<path d=\"M{x:.1} {y:.1}H{to:.1}\" stroke=\"var(--mark)\" stroke-width=\"1.6\" stroke-dasharray=\"4 3\"/><circle cx=\"{to:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"var(--mark)\"/>"
        );
    } else if p.marked || p.copies_ns.is_empty() {
        let _ = write!(
            o,
            "<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\" fill=\"var(--mark)\"/>",
            y - 5.0
        );
    }
    for &left in p.copies_ns.iter().filter(|left| v.holds(**left)) {
        let _ = write!(
            o,
            "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"none\" stroke=\"var(--mark)\" stroke-width=\"1.4\"/>",
            v.x(left)
        );
    }
    if let Some(n) = p.event {
        let _ = write!(
            o,
            "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{n}</text>",
            (x + 8.0).min(W - 20.0),
            (y - 6.0).max(12.0)
        );
    }
    o.push_str("</g>");
}

fn axes(o: &mut String, v: View, unit: &str) {
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
fn steps(from: u64, to: u64, count: u64) -> Vec<u64> {
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

fn span_short(ns: u64) -> String {
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

#[cfg(test)]
mod tests;
