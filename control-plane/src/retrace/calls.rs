// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The socket calls that made a connection, inferred from its packets or read from what its kernels
//! noted, as hosts/calls.c makes them.

use std::fmt::Write as _;

use midwire_trace::inside::{Event, Moment, State};
use midwire_trace::packet::tcp_flags::{FIN, PSH, RST};
use midwire_trace::units::line_bytes;
use midwire_trace::{Lane, Nanos};

use super::trail::{Seen, Trail};

/// A call of one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// When a packet that it sends would come to where the connection was recorded, since the first
    /// packet did; nothing when it is made as soon as the call before it has returned.
    pub at: Option<u64>,
    /// The call.
    pub what: What,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The connection is opened.
    Connect,
    /// Small segments go at once from here on.
    NoDelay,
    /// Bytes are handed over, several times without a wait.
    Write {
        /// How many.
        bytes: u64,
        /// How often.
        times: u64,
    },
    /// So many bytes are read.
    Read {
        /// How many.
        bytes: u64,
    },
    /// All is read, as it comes.
    ReadAll,
    /// No more is written.
    Shutdown,
    /// The connection is given up.
    Reset,
    /// Nothing happens any more.
    Stay,
}

/// The calls of the end at A or B.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script(pub Vec<Call>);

impl Script {
    /// As lines for the program; `first_packet` is when the first packet comes to the card, by the
    /// host's clock, and `delay` what a bit takes from the host to the card.
    pub fn lines(&self, first_packet: u64, delay: u64) -> String {
        let mut text = String::new();
        for Call { at, what } in &self.0 {
            let at = at.map_or(0, |at| (first_packet + at).saturating_sub(delay));
            // A string takes all that is written.
            let _ = match what {
                What::Connect => writeln!(text, "{at} connect"),
                What::NoDelay => writeln!(text, "{at} no-delay"),
                What::Write { bytes, times } => writeln!(text, "{at} write {bytes} {times}"),
                What::Read { bytes } => writeln!(text, "{at} read {bytes}"),
                What::ReadAll => writeln!(text, "{at} read"),
                What::Shutdown => writeln!(text, "{at} shutdown"),
                What::Reset => writeln!(text, "{at} reset"),
                What::Stay => writeln!(text, "{at} stay"),
            };
        }
        text
    }

    /// Moves all calls but that which opens the connection.
    pub fn shift(&mut self, by: i64) {
        let others = self.0.iter_mut().filter(|call| call.what != What::Connect);
        for at in others.filter_map(|call| call.at.as_mut()) {
            *at = at.saturating_add_signed(by);
        }
    }

    /// The call whose first byte a packet brings, or whose SYN or FIN it is.
    pub fn call_of(&mut self, seen: &Seen) -> Option<&mut Call> {
        let mut next = 1;
        for call in &mut self.0 {
            let here = match call.what {
                What::Connect => seen.segment.seq == 0,
                What::Write { bytes, times } => {
                    let here = seen.segment.payload > 0 && seen.segment.seq == next;
                    next = next.wrapping_add((bytes * times) as u32);
                    here
                }
                What::Shutdown => seen.segment.has(FIN) && seen.segment.payload == 0,
                What::Reset => seen.segment.has(RST),
                What::NoDelay | What::Read { .. } | What::ReadAll | What::Stay => false,
            };
            if here {
                return Some(call);
            }
        }
        None
    }
}

/// What is inferred of one end.
struct Reader<'a> {
    trail: &'a Trail,
    lane: Lane,
    /// Least time from a packet that comes to this end to one that it sends.
    response: Nanos,
    /// Of its network card.
    rate_mbps: u32,
}

impl Reader<'_> {
    /// The time of a packet, when nothing but a call can have made it leave.
    fn spontaneous(&self, seen: &Seen, before: Option<&Seen>) -> Option<u64> {
        let others = || {
            let arrived = self
                .trail
                .of(self.lane.other())
                .filter_map(|p| Some((p.left?, p)));
            arrived.filter(|(left, _)| *left <= seen.time)
        };
        let acked = others().map(|(_, p)| p.segment.ack).max().unwrap_or(0);
        let sent = before.map_or(1, |p| p.segment.end());
        let heard = others().map(|(left, _)| left).max().unwrap_or_default();
        let since = |from: Nanos| seen.time.since(from).0;
        let answers = since(heard) < 2 * self.response.0 + MICROSECOND;
        // Who sends all that the line takes waits for the line.
        let line = |p: &Seen| line_bytes(p.length as usize) * 10_000 / u64::from(self.rate_mbps);
        let follows = before.is_some_and(|p| since(p.time) < line(p) + MICROSECOND / 4);
        // A program that writes less than fits has nothing more to write then.
        let longest = self.trail.of(self.lane).map(|p| p.segment.payload).max();
        let short = before.is_some_and(|p| Some(p.segment.payload) < longest);
        let by_itself = !follows && (acked >= sent || short && !answers);
        by_itself.then(|| since(self.trail.start()))
    }

    fn script(&self) -> Script {
        let mut calls = Vec::new();
        let opens = self.trail.opener == self.lane;
        let call = |at, what| Call { at, what };
        if opens {
            calls.push(call(Some(0), What::Connect));
        }
        calls.push(call(None, What::ReadAll));
        if self.hurries() {
            calls.push(call(None, What::NoDelay));
        }
        let (mut next, mut begun, mut before) = (1, None, None);
        let mut ended = false;
        for seen in self.trail.of(self.lane).filter(|seen| !seen.made) {
            let s = &seen.segment;
            if s.payload > 0 && s.end() > next {
                let (from, at) =
                    *begun.get_or_insert_with(|| (next, self.spontaneous(seen, before)));
                next = s.seq + s.payload;
                if s.has(PSH) {
                    write(&mut calls, at, next - from);
                    begun = None;
                }
                before = Some(seen);
            }
            if (s.has(FIN) || s.has(RST)) && !ended {
                ended = true;
                if let Some((from, at)) = begun.take() {
                    write(&mut calls, at, next - from);
                }
                let alone = s.payload == 0;
                let at = alone.then(|| self.spontaneous(seen, before)).flatten();
                let what = if s.has(RST) {
                    What::Reset
                } else {
                    What::Shutdown
                };
                calls.push(call(at, what));
            }
        }
        if let Some((from, at)) = begun {
            write(&mut calls, at, next - from);
        }
        calls.push(call(Some(self.trail.length() + AFTERWARDS), What::Stay));
        Script(calls)
    }

    /// A small segment left while another one was not acknowledged: Nagle's algorithm is off.
    fn hurries(&self) -> bool {
        let longest = self.trail.of(self.lane).map(|p| p.segment.payload).max();
        let (mut small, mut highest) = (None, 0);
        for seen in self.trail.packets.iter() {
            let s = &seen.segment;
            if seen.lane != self.lane {
                small = small.filter(|end| s.ack < *end);
                continue;
            }
            if s.payload > 0 && s.end() > highest && Some(s.payload) < longest {
                if small.is_some() {
                    return true;
                }
                small = Some(s.end());
            }
            highest = highest.max(s.end());
        }
        false
    }
}

const MICROSECOND: u64 = 1_000;
/// How long the ends stay when all is over.
const AFTERWARDS: u64 = 200_000_000;

/// Adds a write, to the one before if it is the same once more.
fn write(calls: &mut Vec<Call>, at: Option<u64>, bytes: u32) {
    let bytes = u64::from(bytes);
    if let (
        None,
        Some(Call {
            what: What::Write {
                bytes: before,
                times,
            },
            ..
        }),
    ) = (at, calls.last_mut())
        && *before == bytes
    {
        *times += 1;
        return;
    }
    let what = What::Write { bytes, times: 1 };
    calls.push(Call { at, what });
}

/// The scripts of the ends at A and B, whose least times to answer, and whose network cards' rates,
/// are these.
pub fn infer(trail: &Trail, responses: [Nanos; 2], rates: [u32; 2]) -> [Script; 2] {
    Lane::ALL.map(|lane| {
        let response = responses[lane.index()];
        let rate_mbps = rates[lane.index()];
        let reader = Reader {
            trail,
            lane,
            response,
            rate_mbps,
        };
        reader.script()
    })
}

/// The scripts of the ends at A and B, from what their kernels noted of the calls (`send`, `receive`
/// and `state` of the inside view); `delays` are what a bit takes from the ends to the card.
pub fn from_log(trail: &Trail, moments: &[Moment], delays: [Nanos; 2]) -> [Script; 2] {
    Lane::ALL.map(|lane| {
        let log = Log {
            trail,
            lane,
            delay: delays[lane.index()],
        };
        log.script(
            moments
                .iter()
                .filter(|moment| moment.host == lane.port_in()),
        )
    })
}

/// What is noted of the calls of one end, when they return.
struct Log<'a> {
    trail: &'a Trail,
    lane: Lane,
    delay: Nanos,
}

impl Log<'_> {
    fn script<'m>(&self, moments: impl Iterator<Item = &'m Moment>) -> Script {
        let mut calls = Vec::new();
        let call = |at, what| Call { at, what };
        if self.trail.opener == self.lane {
            calls.push(call(Some(0), What::Connect));
        }
        let (mut sent, mut returned) = (0, Nanos(0));
        for moment in moments {
            let time = moment.time_ns;
            let bytes = moment
                .bytes
                .and_then(|n| u64::try_from(n).ok())
                .unwrap_or(0);
            match moment.event {
                Event::Send if bytes > 0 => {
                    let at = self.written(sent, time, returned);
                    calls.push(call(at, What::Write { bytes, times: 1 }));
                    (sent, returned) = (sent + bytes, time);
                }
                Event::Receive if bytes > 0 => {
                    calls.push(call(self.read(time), What::Read { bytes }));
                }
                Event::State if matches!(moment.state, Some(State::FinWait1 | State::LastAck)) => {
                    let alone = time.since(returned).0 > MICROSECOND;
                    let shut = calls.iter().any(|call: &Call| call.what == What::Shutdown);
                    if !shut {
                        calls.push(call(alone.then(|| self.on_the_line(time)), What::Shutdown));
                    }
                }
                _ => {}
            }
        }
        calls.push(call(None, What::ReadAll));
        calls.push(call(Some(self.trail.length() + AFTERWARDS), What::Stay));
        Script(calls)
    }

    /// When what is called at a time comes to the card, since the first packet did.
    fn on_the_line(&self, time: Nanos) -> u64 {
        (time + self.delay).since(self.trail.start()).0
    }

    /// When a write began that has returned at a time. Nothing is noted of that, but its first byte was
    /// on the line before it returned if it had to wait.
    fn written(&self, from: u64, at: Nanos, before: Nanos) -> Option<u64> {
        let first = from as u32 + 1;
        let brings = |seen: &&Seen| seen.segment.payload > 0 && seen.segment.end() > first;
        let seen = self.trail.of(self.lane).find(brings)?.time;
        let waited = self.on_the_line(at) > seen.since(self.trail.start()).0 + MICROSECOND;
        match (waited, before) {
            (true, Nanos(0)) => Some(seen.since(self.trail.start()).0),
            (true, _) => None,
            (false, _) => (at.since(before).0 > MICROSECOND).then(|| self.on_the_line(at)),
        }
    }

    /// When a read was called; nothing when it waited for what it has read.
    fn read(&self, at: Nanos) -> Option<u64> {
        let came = |seen: &Seen| Some(seen.left? + self.delay);
        let others = self.trail.of(self.lane.other()).filter_map(came);
        let last = others.filter(|came| *came <= at + Nanos(MICROSECOND)).max();
        let waited = last.is_some_and(|came| at.since(came).0 < MICROSECOND);
        (!waited).then(|| self.on_the_line(at))
    }
}
