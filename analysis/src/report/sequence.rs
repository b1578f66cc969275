// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time–sequence pictures: what one end sent when, what of it was acknowledged, and what events did
//! to it.

use std::fmt::Write as _;

use midwire_trace::packet::syndrome;
use midwire_trace::units::Lane;
use midwire_trace::{Kind, Psn};

use super::plane::{H, LEFT, RIGHT, View, W, axes};
use super::{RocePicture, escape};
use crate::roce::RocePacket;
use crate::tcp::{ACK, SYN, TcpPacket};
use crate::view::Passage;

/// Data with its relative place.
pub(super) struct Data<'a> {
    pub at: &'a Passage,
    start: u64,
    end: u64,
    again: bool,
}

/// What the other end says of the data.
struct Answer<'a> {
    at: &'a Passage,
    /// All below it has arrived.
    until: u64,
    /// What it is, if it is no acknowledgement.
    asks: Option<&'static str>,
}

/// The data of one direction, and what the other end says of it.
pub(super) struct Sequence<'a> {
    /// What places count.
    unit: &'static str,
    pub data: Vec<Data<'a>>,
    answers: Vec<Answer<'a>>,
}

impl<'a> Sequence<'a> {
    fn new(unit: &'static str) -> Self {
        Self {
            unit,
            data: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// The bytes of a lane.
    pub fn tcp(packets: &'a [TcpPacket], lane: Lane) -> Self {
        let mut sequence = Self::new("bytes");
        let mut base = None;
        let mut highest = 0u64;
        let mut acked = 0u64;
        let relative = |base: u32, seq: u32, near: u64| {
            let step = seq.wrapping_sub(base).wrapping_sub(near as u32) as i32;
            near.checked_add_signed(i64::from(step))
        };
        for p in packets {
            if p.at.lane == lane {
                if p.flags & SYN != 0 {
                    base = Some(p.seq.wrapping_add(1));
                }
                if let Some(start) = base
                    .filter(|_| p.payload > 0)
                    .and_then(|b| relative(b, p.seq, highest))
                {
                    let end = start + u64::from(p.payload);
                    sequence.sends(&p.at, start, end, highest);
                    highest = highest.max(end);
                }
            } else if p.flags & ACK != 0
                && let Some(ack) = base.and_then(|b| relative(b, p.ack, acked))
                && ack <= highest + 1
            {
                acked = acked.max(ack);
                sequence.answers.push(Answer {
                    at: &p.at,
                    until: ack,
                    asks: None,
                });
            }
        }
        sequence
    }

    /// The requests of a connection, to its responder, and what that answers.
    pub fn requests(picture: &RocePicture<'a>) -> Self {
        let data = |p: &RocePacket| p.kind == Kind::Data && !p.response;
        let answer = |p: &RocePacket| match p.kind {
            Kind::Ack => Some((None, 1)),
            Kind::Nak if p.syndrome == syndrome::SEQUENCE_ERROR => Some((Some("NAK"), 0)),
            Kind::Nak if p.syndrome & syndrome::CLASS == syndrome::NOT_READY => {
                Some((Some("not ready"), 0))
            }
            Kind::Nak => Some((Some("refused"), 0)),
            _ => None,
        };
        let RocePicture {
            connection,
            to_responder,
            to_requester,
        } = picture;
        Self::roce(
            to_responder.iter().filter(|p| data(p)),
            to_requester.iter().filter_map(|p| Some((p, answer(p)?))),
            connection.first_psn,
        )
    }

    /// The responses to READs of a connection, to its requester, and what that asks for again.
    pub fn responses(picture: &RocePicture<'a>) -> Self {
        let RocePicture {
            connection,
            to_responder,
            to_requester,
        } = picture;
        let data = |p: &&RocePacket| p.kind == Kind::Data && p.response;
        let asks = |p: &&RocePacket| p.kind == Kind::ReadRequest;
        Self::roce(
            to_requester.iter().filter(data),
            (to_responder.iter().filter(asks)).map(|p| (p, (Some("READ"), 0))),
            connection.first_psn,
        )
    }

    /// Data and its answers, each with what it is and how many PSNs from its own on it tells of,
    /// in the order of their numbers.
    fn roce(
        data: impl Iterator<Item = &'a RocePacket>,
        answers: impl Iterator<Item = (&'a RocePacket, (Option<&'static str>, u64))>,
        first_psn: u32,
    ) -> Self {
        let mut sequence = Self::new("PSN");
        let relative = |psn: u32, near: u64| {
            let place = Psn::new(psn.wrapping_sub(first_psn).into()).nearest(near);
            // What is before the first wraps.
            (place.cast_signed() >= 0).then_some(place)
        };
        let mut highest = 0u64;
        let mut answers = answers.peekable();
        let mut take = |sequence: &mut Self, before: u64, highest: u64| {
            while let Some((p, (asks, past))) = answers.next_if(|(p, _)| p.at.number < before) {
                let until = relative(p.psn, highest).map(|psn| psn + past);
                // A READ for what was not sent yet is none that asks again.
                let known = |until: &u64| *until < highest || asks != Some("READ");
                if let Some(until) = until.filter(known) {
                    let at = &p.at;
                    sequence.answers.push(Answer { at, until, asks });
                }
            }
        };
        for p in data {
            take(&mut sequence, p.at.number, highest);
            if let Some(start) = relative(p.psn, highest) {
                sequence.sends(&p.at, start, start + 1, highest);
                highest = highest.max(start + 1);
            }
        }
        take(&mut sequence, u64::MAX, highest);
        sequence
    }

    fn sends(&mut self, at: &'a Passage, start: u64, end: u64, highest: u64) {
        self.data.push(Data {
            at,
            start,
            end,
            again: start < highest,
        });
    }

    /// All of it; nothing when there is no data.
    pub fn extent(&self) -> Option<View> {
        let t0 = self.data.first()?.at.time_ns;
        let data = self.data.iter().map(|d| d.at);
        let all = data.chain(self.answers.iter().map(|a| a.at));
        let last = all
            .map(|at| at.left_ns.unwrap_or(0).max(at.time_ns))
            .max()?;
        Some(View {
            t0,
            t1: last.max(t0 + 1),
            s0: self.data.iter().map(|d| d.start).min()?,
            s1: self.data.iter().map(|d| d.end).max()?,
            height: H,
        })
    }

    /// From a little before the packet to a little after the last transmission of its first byte.
    pub fn around(&self, d: &Data<'_>, all: View) -> Option<View> {
        let again = (self.data.iter()).filter(|x| x.start <= d.start && d.start < x.end);
        let last = again.map(|x| x.at.left_ns.unwrap_or(x.at.time_ns)).max()?;
        let slack = ((last - d.at.time_ns) / 4)
            .max((all.t1 - all.t0) / 400)
            .max(1000);
        let (t0, t1) = (d.at.time_ns.saturating_sub(slack), last + slack);
        let near = (self.data.iter()).filter(|x| (t0..=t1).contains(&x.at.time_ns));
        let (s0, s1) = near.fold((d.start, d.end), |(a, b), x| (a.min(x.start), b.max(x.end)));
        Some(View {
            t0,
            t1,
            s0,
            s1,
            height: H,
        })
    }

    pub fn draw(&self, o: &mut String, v: View) {
        let _ = write!(
            o,
            "<svg viewBox=\"0 0 {W} {H}\" role=\"img\" aria-label=\"time–sequence picture\">"
        );
        axes(o, v, self.unit);
        let _ = write!(
            o,
            "<path d=\"{}\" fill=\"none\" stroke=\"var(--ack)\" stroke-width=\"1.2\"/>",
            self.acknowledged(v)
        );
        let visible = |d: &&Data<'_>| v.holds(d.at.time_ns) && d.end > v.s0 && d.start < v.s1;
        let plain = |d: &&Data<'_>| !d.again && d.at.event.is_none();
        let shown = || self.data.iter().filter(visible);
        let _ = write!(
            o,
            "<path d=\"{}\" stroke=\"var(--data)\" stroke-width=\"1.6\"/>",
            columns(v, shown().filter(plain))
        );
        for d in shown().filter(|d| !plain(d)) {
            self.special(o, v, d);
        }
        let answers = self.answers.iter();
        for answer in answers.filter(|a| v.holds(a.at.time_ns) && (v.s0..=v.s1).contains(&a.until))
        {
            self.answer(o, v, answer);
        }
        o.push_str("</svg>");
    }

    /// The line of acknowledgements that got past the card, as steps from the left edge to the
    /// right one. What lies outside of the view runs along its border.
    pub fn acknowledged(&self, v: View) -> String {
        let y = |until: u64| v.y(until.clamp(v.s0, v.s1));
        let counts = |a: &&Answer<'_>| a.asks.is_none() && a.at.left_ns.is_some();
        let passed = || self.answers.iter().filter(counts);
        let mut path = String::new();
        if let Some(before) = passed().take_while(|a| a.at.time_ns < v.t0).last() {
            let _ = write!(path, "M{LEFT} {:.1}", y(before.until));
        }
        // In a long capture at most two points a pixel column.
        let mut column = i64::MIN;
        for a in passed().filter(|a| v.holds(a.at.time_ns)) {
            let x = v.x(a.at.time_ns);
            if x as i64 != column || self.answers.len() < 2000 {
                let _ = if path.is_empty() {
                    write!(path, "M{x:.1} {:.1}", y(a.until))
                } else {
                    write!(path, "H{x:.1}V{:.1}", y(a.until))
                };
                column = x as i64;
            }
        }
        if !path.is_empty() {
            let _ = write!(path, "H{:.1}", W - RIGHT);
        }
        path
    }

    /// Data that was sent again, or touched.
    fn special(&self, o: &mut String, v: View, d: &Data<'_>) {
        let x = v.x(d.at.time_ns);
        let (y0, y1) = (v.y(d.start), v.y(d.end).min(v.y(d.start) - 3.0));
        let place = match d.end - d.start {
            1 => format!("{} {}", self.unit, d.start),
            _ => format!("{} {} to {}", self.unit, d.start, d.end),
        };
        let again = if d.again { ", sent again" } else { "" };
        let title = format!("packet {}: {place}{again}", d.at.number);
        let colour = if d.again { "--again" } else { "--data" };
        let _ = write!(
            o,
            "<path d=\"M{x:.1} {y0:.1}V{y1:.1}\" stroke=\"var({colour})\" stroke-width=\"2.4\"><title>{}</title></path>",
            escape(&title)
        );
        if d.at.event.is_some() {
            mark(o, v, d.at, x, f64::midpoint(y0, y1), &title);
        }
    }

    /// An answer that asks for data again, or was touched.
    fn answer(&self, o: &mut String, v: View, answer: &Answer<'_>) {
        let Answer { at, until, asks } = answer;
        let (x, y) = (v.x(at.time_ns), v.y(*until));
        let what = asks.unwrap_or("acknowledgement");
        let title = format!("packet {}: {what}, {} {until}", at.number, self.unit);
        if let Some(name) = asks {
            let _ = write!(
                o,
                "<g><title>{0}</title><path d=\"M{x:.1} {y:.1}l-5 9h10z\" fill=\"var(--ack)\"/><text x=\"{x:.1}\" y=\"{1:.1}\" text-anchor=\"middle\">{name}</text></g>",
                escape(&title),
                y + 21.0
            );
        }
        if at.event.is_some() {
            mark(o, v, at, x, y, &title);
        }
    }
}

/// One stroke for what is in one column of pixels.
fn columns<'a>(v: View, data: impl Iterator<Item = &'a Data<'a>>) -> String {
    let mut columns = std::collections::BTreeMap::new();
    for d in data {
        let column = (v.x(d.at.time_ns) * 2.0) as i64;
        let (start, end) = columns.entry(column).or_insert((d.start, d.end));
        (*start, *end) = ((*start).min(d.start), (*end).max(d.end));
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
    path
}

/// What an event did to a packet.
fn mark(o: &mut String, v: View, p: &Passage, x: f64, y: f64, title: &str) {
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
