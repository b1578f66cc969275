// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection as it was recorded, and as it was replayed, packet for packet.

use std::collections::HashMap;

use midwire_analysis::report;
use midwire_trace::inside::Senders;
use midwire_trace::packet::tcp_flags::PSH;
use midwire_trace::{Lane, Nanos, Port};

use super::trail::{Seen, Segment, Trail};
use crate::plan::TcpFlags;
use crate::text::{Align::Left, columns};

/// What makes two packets the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alike {
    /// All bytes of their frames, as they came and as they went on; and the times of the card.
    Bytes,
    /// What their headers say, in numbers that count from the beginning of the connection; and the
    /// times since, at which they went on. Windows and push flags are told of apart: kernels of
    /// different versions and programs on different machines have their own ways with them, and they
    /// rarely change what follows.
    Segments,
}

impl Alike {
    /// What times may differ by. Clocks of a run begin where they begin, a card sees what comes in
    /// with its next clock, and holds nothing back for less than storing takes.
    fn tolerance(self) -> Nanos {
        match self {
            Self::Bytes => Nanos(0),
            Self::Segments => Nanos(20),
        }
    }
}

/// Two connections, compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Matching {
    /// Packets recorded, and replayed.
    pub packets: [usize; 2],
    /// Packets besides that the recording does not have: they were lost before it, or only not
    /// recorded.
    pub missing: [usize; 2],
    /// Packets that both have.
    pub content: usize,
    /// Of these, the ones with the same window and push flag, and the number of the first other one
    /// in the recording.
    pub windows: (usize, Option<u64>),
    /// Of these, the ones at the same time.
    pub exact: usize,
    /// The first of the others, by its number in the recording, and by how much.
    pub first_apart: Option<(u64, Nanos)>,
    /// The one whose times differ most.
    pub most_apart: Option<(u64, Nanos)>,
    /// The first packet, in the order of time, that only one of them has at its place.
    pub departure: Option<Departure>,
    how: Alike,
}

/// Where two connections part.
#[derive(Debug, Clone, PartialEq)]
pub struct Departure {
    /// Its direction.
    pub lane: Lane,
    /// The how-manieth packet of this direction, from 1.
    pub nth: usize,
    /// The packet that was recorded, and the one that was replayed; nothing where there is none.
    pub sides: [Option<Seen>; 2],
    /// First packets of the connections.
    starts: [Nanos; 2],
}

impl Matching {
    /// Of a recording and its replay.
    pub fn of([recorded, replayed]: [&Trail; 2], how: Alike) -> Self {
        let starts = [recorded.start(), replayed.start()];
        let since = match how {
            Alike::Bytes => [Nanos(0); 2],
            Alike::Segments => starts,
        };
        // What stands for a packet that was not recorded counts no more than that.
        let counted = Lane::ALL.into_iter().flat_map(|lane| {
            let mut stands = recorded.of(lane);
            let counts = move |_: &&Seen| stands.next().is_none_or(Seen::is_recorded);
            replayed.of(lane).filter(counts)
        });
        let counted: Vec<_> = counted.collect();
        let mut nth: HashMap<_, usize> = HashMap::new();
        let mut others = HashMap::new();
        for seen in &counted {
            let n = nth.entry(seen.key()).or_default();
            others.insert((seen.key(), *n), *seen);
            *n += 1;
        }
        nth.clear();
        let (mut content, mut windows, mut apart) = (0, Vec::new(), Vec::new());
        for seen in recorded.recorded() {
            let n = nth.entry(seen.key()).or_default();
            let other = others.get(&(seen.key(), *n));
            *n += 1;
            let Some(other) = other.filter(|other| seen.is_like(other, how)) else {
                continue;
            };
            content += 1;
            if seen.segment != other.segment {
                windows.push(seen.number);
            }
            let difference = Seen::apart([seen, other], since, how);
            if difference > how.tolerance() {
                apart.push((seen.number, difference));
            }
        }
        let missing = recorded.packets.iter().filter(|seen| !seen.is_recorded());
        let (came, lost): (Vec<_>, Vec<_>) = missing.partition(|seen| seen.left.is_some());
        Self {
            packets: [recorded.recorded().count(), counted.len()],
            missing: [lost.len(), came.len()],
            content,
            windows: (content - windows.len(), windows.first().copied()),
            exact: content - apart.len(),
            first_apart: apart.first().copied(),
            most_apart: apart.iter().max_by_key(|(_, most)| *most).copied(),
            departure: Departure::first([recorded, replayed], starts, how),
            how,
        }
    }

    /// Every packet is the same, at the same time.
    pub fn holds(&self) -> bool {
        let [recorded, replayed] = self.packets;
        let all = [self.exact, self.windows.0, replayed];
        self.departure.is_none() && all == [recorded; 3]
    }

    /// What there is to say of packets that are not in the recording.
    fn besides(&self) -> Option<String> {
        match self.missing {
            [0, 0] => None,
            [lost, 0] => Some(format!(
                "{lost} lost before they were recorded, as it seems"
            )),
            [0, came] => Some(format!("{came} not recorded that came, as it seems")),
            [lost, came] => Some(format!(
                "{lost} lost before they were recorded, and {came} not recorded that came, as it seems"
            )),
        }
    }

    /// What was found: names and values.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let [recorded, replayed] = self.packets;
        let percent = |n: usize| match recorded.max(replayed) {
            all if n == all => "100 %".to_owned(),
            // Never rounded up to all.
            all => format!("{:.1} %", (n as f64 / all as f64 * 1000.0).floor() / 10.0),
        };
        let (same, when) = match self.how {
            Alike::Bytes => ("to the last byte", "at the nanosecond".to_owned()),
            Alike::Segments => (
                "in what they say",
                format!("within {}", self.how.tolerance()),
            ),
        };
        let (content, exact) = (self.content, self.exact);
        let packets = format!("{recorded} recorded, {replayed} replayed");
        let mut lines = vec![("Packets", packets)];
        lines.extend(self.besides().map(|besides| ("Besides", besides)));
        let share = percent(content);
        lines.push((
            "Content",
            format!("{content} are the same {same} ({share})"),
        ));
        let mut times = format!("{exact} of them {when} ({})", percent(exact));
        let apart = [("first", self.first_apart), ("most", self.most_apart)];
        for (what, (number, by)) in (apart.iter()).filter_map(|(what, at)| Some((what, (*at)?))) {
            times += &format!(", {what} apart packet {number} by {by}");
        }
        lines.push(("Times", times));
        if let (same, Some(number)) = self.windows {
            let share = percent(same);
            let windows = format!(
                "{same} of them have the same window and push flag ({share}), first other packet {number}"
            );
            lines.push(("Windows", windows));
        }
        if self.departure.is_none() {
            let matches = match self.holds() {
                true => "as it was, packet for packet",
                false => "packet for packet, but not in all",
            };
            lines.push(("Matches", matches.to_owned()));
        }
        lines
    }

    /// In words; `inside` has what the kernels noted in the recording and in the replay, of the
    /// connection with this number in both.
    pub fn text(&self, inside: [&Senders; 2], connection: u32) -> String {
        let lines = self.lines().into_iter();
        let lines: Vec<_> = lines
            .map(|(name, value)| format!("{name:<7}  {value}"))
            .collect();
        let departure = self.departure.as_ref();
        let departure = departure.map(|d| format!("\n\n{}", d.text(inside, connection)));
        lines.join("\n") + &departure.unwrap_or_default()
    }
}

impl Departure {
    fn first(trails: [&Trail; 2], starts: [Nanos; 2], how: Alike) -> Option<Self> {
        let of = |lane| {
            let [mut recorded, mut replayed] = trails.map(|trail| trail.of(lane));
            for nth in 1.. {
                let sides = match (recorded.next(), replayed.next()) {
                    (None, None) => return None,
                    (Some(a), Some(b)) if a.is_like(b, how) => continue,
                    (a, b) => [a, b],
                };
                return Some(Self {
                    lane,
                    nth,
                    sides: sides.map(|side| side.cloned()),
                    starts,
                });
            }
            None
        };
        let both = Lane::ALL.into_iter().filter_map(of);
        both.min_by_key(Self::at)
    }

    /// The earlier of both packets' times, from the first packet on.
    pub fn at(&self) -> Nanos {
        let sides = self.sides.iter().zip(self.starts);
        let times = sides.filter_map(|(side, start)| Some(side.as_ref()?.time.since(start)));
        times.min().unwrap_or_default()
    }

    fn rows(&self, inside: [&Senders; 2], connection: u32) -> Vec<Vec<String>> {
        let side = |of: usize| match &self.sides[of] {
            Some(seen) => self.fields(seen, inside[of], connection, self.starts[of]),
            None => vec![("packet".to_owned(), "none any more".to_owned())],
        };
        let [recorded, replayed] = [side(0), side(1)];
        let longer = [&recorded, &replayed]
            .into_iter()
            .max_by_key(|side| side.len());
        let row = |(name, _): &Field| {
            let value = |side: &[Field]| {
                let field = side.iter().find(|field| field.0 == *name);
                field.map_or_else(String::new, |field| field.1.clone())
            };
            let [a, b] = [value(&recorded), value(&replayed)];
            let known = !a.is_empty() && !b.is_empty() && name != "packet";
            let mark = if known && a != b { "differs" } else { "" };
            vec![name.clone(), a, b, mark.to_owned()]
        };
        let rows = longer.into_iter().flatten().map(row);
        // What neither has is not worth a line.
        rows.filter(|row| row[1] != row[2] || !row[1].is_empty())
            .collect()
    }

    /// For a page.
    pub(super) fn told(&self, inside: [&Senders; 2], connection: u32) -> report::Departure {
        report::Departure {
            what: self.place(),
            time_ns: self.at().0,
            rows: self.rows(inside, connection),
        }
    }

    fn place(&self) -> String {
        format!(
            "{} after the first packet, with packet {} {}",
            self.at(),
            self.nth,
            self.lane
        )
    }

    fn text(&self, inside: [&Senders; 2], connection: u32) -> String {
        let rows = self.rows(inside, connection);
        let heading = [
            ("", Left),
            ("recorded", Left),
            ("replayed", Left),
            ("", Left),
        ];
        let table = columns(&heading, &rows);
        format!("Departs  {}\n\n{}", self.place(), table.trim_end())
    }

    /// A packet, and what both kernels held then.
    fn fields(&self, seen: &Seen, inside: &Senders, connection: u32, start: Nanos) -> Vec<Field> {
        let s: &Segment = &seen.segment;
        let blocks: Vec<_> = (s.sack.iter())
            .map(|(from, to)| format!("{from}-{to}"))
            .collect();
        let left = seen.left.map(|left| left.since(start).to_string());
        let packet = [
            (
                "packet",
                if seen.is_recorded() {
                    seen.number.to_string()
                } else {
                    "not recorded".to_owned()
                },
            ),
            ("came at", seen.time.since(start).to_string()),
            ("went on at", left.unwrap_or_else(|| "never".to_owned())),
            (
                "TCP flags",
                TcpFlags(s.flags).names().join(" ").to_uppercase(),
            ),
            ("sequence number", s.seq.to_string()),
            ("payload", format!("{} bytes", s.payload)),
            ("acknowledges", s.ack.to_string()),
            ("window", s.window.to_string()),
            ("SACK", blocks.join(" ")),
            (
                "offers",
                s.offer.map_or_else(String::new, |offer| offer.to_string()),
            ),
            ("ECN", s.ecn.to_string()),
        ];
        let mut fields: Vec<_> = packet.map(|(name, value)| (name.to_owned(), value)).into();
        let connection = u16::try_from(connection).unwrap_or(u16::MAX);
        for port in Port::ALL {
            let Some(held) = inside.known(port, connection, seen.time) else {
                continue;
            };
            let number = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
            let state = held
                .ca_state
                .map_or_else(String::new, |state| state.to_string());
            let held = [
                ("cwnd", number(held.cwnd)),
                ("ssthresh", number(held.threshold())),
                ("ca_state", state),
                ("srtt_us", number(held.srtt_us)),
                ("rto_us", number(held.rto_us)),
                ("snd_wnd", number(held.snd_wnd)),
                ("rcv_wnd", number(held.rcv_wnd)),
            ];
            fields.extend(held.map(|(name, value)| (format!("{port}'s {name}"), value)));
        }
        fields
    }
}

type Field = (String, String);

type Key = (Lane, bool, u8, u32, u32, u32);

impl Seen {
    /// What finds a packet in the other connection; of data its acknowledgement has no say.
    fn key(&self) -> Key {
        let Segment {
            flags,
            seq,
            ack,
            payload,
            ..
        } = self.segment;
        let ack = if payload == 0 { ack } else { 0 };
        (self.lane, self.made, flags & !PSH, seq, payload, ack)
    }

    fn is_like(&self, other: &Seen, how: Alike) -> bool {
        if !self.is_recorded() {
            return self.stands_for(other);
        }
        let rest = |seen: &Seen| Segment {
            window: 0,
            flags: seen.segment.flags & !PSH,
            ..seen.segment.clone()
        };
        let said = self.made == other.made && rest(self) == rest(other);
        match how {
            Alike::Segments => said,
            Alike::Bytes => {
                let sides = [self, other].map(|seen| (seen.length, &seen.frame, &seen.out));
                said && sides[0] == sides[1]
            }
        }
    }

    /// Of what was not recorded it is known which bytes it had.
    fn stands_for(&self, other: &Self) -> bool {
        let bytes = |s: &Segment| match s.takes_numbers() {
            true => Some((s.seq, s.end())),
            false => None,
        };
        bytes(&self.segment) == bytes(&other.segment)
    }

    /// By how much the times of two packets differ, each counted from a time.
    fn apart([a, b]: [&Seen; 2], [from_a, from_b]: [Nanos; 2], how: Alike) -> Nanos {
        let apart = |a: Nanos, b: Nanos| a.since(from_a).apart(b.since(from_b));
        let left = a.left.zip(b.left).map(|(a, b)| apart(a, b));
        match how {
            // What was lost has no time of its own that anybody could tell.
            Alike::Segments => left.unwrap_or_default(),
            Alike::Bytes => {
                let copies = a.copies.iter().zip(&b.copies).map(|(a, b)| apart(*a, *b));
                copies.chain(left).fold(apart(a.time, b.time), Nanos::max)
            }
        }
    }
}
