// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report of a run: one HTML file that opens without a network.
//!
//! It says first whether the device under test passed and why, then shows each event asked
//! against measured, how each retransmission came about, and a time–sequence picture of each
//! connection: an overview, and a closer view around each event, with what the sender's kernel knew.

mod inside;
mod plane;
mod replay;
mod sequence;

use std::fmt::Write as _;

use midwire_trace::inside::Moment;
use midwire_trace::units::Lane;
use serde::{Deserialize, Serialize};

use crate::roce::{self, RocePacket};
use crate::tcp::{Connection, TcpPacket};
use crate::text::{Align, Table, span};
use plane::{View, span_short};
pub use replay::{Departure, Point, Replay};
use sequence::Sequence;

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

/// A RoCE connection with its packets.
#[derive(Clone, Copy, Debug)]
pub struct RocePicture<'a> {
    /// What the analysis found.
    pub connection: &'a roce::Connection,
    /// Packets to its responder's queue pair in order of arrival.
    pub to_responder: &'a [RocePacket],
    /// Packets to its requester's queue pair in order of arrival.
    pub to_requester: &'a [RocePacket],
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
    /// What came of it, if it replays a connection.
    pub replay: Option<Replay>,
    /// What RDMA NICs did.
    pub tables: Vec<Table>,
    /// The TCP connections.
    pub pictures: Vec<Picture<'a>>,
    /// RoCE connections to which something happened.
    pub roce_pictures: Vec<RocePicture<'a>>,
    /// How many more there are of these.
    pub more_roce: usize,
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
    if let Some(replay) = &r.replay {
        replay.section(&mut o);
    }
    events(&mut o, &r.events);
    checks(&mut o, "Expectations", "Expected", &r.expectations);
    for t in &r.tables {
        table(&mut o, t);
    }
    retransmissions(&mut o, &r.pictures);
    for p in &r.pictures {
        picture(&mut o, p, r.start_ns);
    }
    for p in &r.roce_pictures {
        roce_picture(&mut o, p, r.start_ns);
    }
    if r.more_roce > 0 {
        let _ = write!(
            o,
            "<p class=\"soft\">and {} more connections of RoCE to which something happened</p>",
            r.more_roce
        );
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
    for (lane, d) in Lane::ALL.iter().zip(&c.directions) {
        if d.segments > 0 {
            let _ = write!(
                o,
                "{lane}: {} bytes in {} segments, {} sent again ({} of them not needed), {} lost on the card. ",
                d.bytes, d.segments, d.retransmitted, d.unneeded, d.lost
            );
        }
    }
    o.push_str("</p>");
    for lane in Lane::ALL {
        let heading = format!("{lane}: bytes over time");
        let sequence = Sequence::tcp(p.packets, lane);
        views(o, &heading, &sequence, start_ns, |o, v| {
            inside::draw(o, v, lane, p.inside);
        });
    }
}

fn roce_picture(o: &mut String, p: &RocePicture<'_>, start_ns: u64) {
    let c = p.connection;
    let _ = write!(
        o,
        "<h2>Connection {}: {} to {}</h2>",
        c.number,
        escape(&c.requester.to_string()),
        escape(&c.responder.to_string())
    );
    for (heading, sequence) in [
        ("Requests: PSNs over time", Sequence::requests(p)),
        ("Responses to READs: PSNs over time", Sequence::responses(p)),
    ] {
        views(o, heading, &sequence, start_ns, |_, _| {});
    }
}

/// A sequence as a whole, and more closely around events. `below` adds to each view.
fn views(
    o: &mut String,
    heading: &str,
    sequence: &Sequence<'_>,
    start_ns: u64,
    below: impl Fn(&mut String, View),
) {
    let Some(all) = sequence.extent() else {
        return;
    };
    let _ = write!(
        o,
        "<h3>{heading}</h3><p class=\"key soft\"><span><i style=\"background:var(--data)\"></i>data</span>\
         <span><i style=\"background:var(--ack)\"></i>acknowledged by the other end</span><span><i style=\"background:var(--again)\"></i>sent again</span>\
         <span>by an event, with its number:</span><span><b style=\"color:var(--bad)\">✕</b> dropped</span><span><b style=\"color:var(--bad)\">□</b> corrupted</span>\
         <span><b style=\"color:var(--mark)\">◆</b> marked</span><span><b style=\"color:var(--mark)\">⋯●</b> delayed or reordered</span><span><b style=\"color:var(--mark)\">○</b> its copies</span></p>"
    );
    let show = |o: &mut String, v: View| {
        sequence.draw(o, v);
        below(o, v);
        began(o, v, start_ns);
    };
    show(o, all);
    let mut shown: Vec<View> = Vec::new();
    for d in sequence.data.iter().filter(|d| d.at.event.is_some()) {
        if shown.len() == VIEWS || shown.iter().any(|v| v.holds(d.at.time_ns)) {
            continue;
        }
        if let Some(v) = sequence.around(d, all) {
            let _ = write!(
                o,
                "<h3>Around event {}</h3>",
                d.at.event.unwrap_or_default()
            );
            show(o, v);
            shown.push(v);
        }
    }
}

/// What a picture's axis of time counts from.
fn began(o: &mut String, v: View, start_ns: u64) {
    let from = span_short(v.t0.saturating_sub(start_ns));
    let _ = write!(o, "<p class=\"soft\">Time from {from} of the run.</p>");
}

#[cfg(test)]
mod tests;
