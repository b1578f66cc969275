// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection of any origin is replayed until it is as it was, or until it is known where it
//! departs: what came too early is held back by the card, or called later, and all is run again.
//!
//! A run in virtual time repeats to the last bit, so each round has all that was right before.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use midwire_trace::inside::Moment;
use midwire_trace::packet::tcp_flags::FIN;
use midwire_trace::units::line_bytes;
use midwire_trace::{Lane, Nanos};
use serde_json::json;
use tempfile::TempDir;

use super::calls::{self, Script};
use super::matching::{Alike, Departure, Matching};
use super::network::CE;
use super::settings::{self, LEAST_DELAY};
use super::trail::{Seen, Trail};
use super::{NOTED, Set, refused};
use crate::Error;
use crate::bench::CardProvider;
use crate::explicit;
use crate::plan::{Action, Duration, Ecn, Event, Kind, Kinds, LinuxEndpoint, Numbers, Plan};
use crate::run::{Options, Progress, RunOutcome, run};
use crate::verdict;

/// When the first packet comes to the card at the earliest, by the clocks of the hosts.
const FIRST_PACKET: u64 = 2_000_000_000;
/// Linux rounds times to microseconds, and its timers tick each millisecond: a packet has to come at
/// the same part of it.
const TICK: u64 = 1_000_000;
/// Ticks with which its longer timers end.
const STEP: i64 = 8;
/// Rounds at the most.
const ROUNDS: u32 = 60;

/// All that a replay is made of.
#[derive(Debug, Clone, PartialEq)]
struct Model {
    /// When the first packet comes to the card, by the clocks of the hosts.
    first_packet: u64,
    hosts: [LinuxEndpoint; 2],
    scripts: [Script; 2],
    /// How long the card holds each packet back, by direction.
    held: [Vec<u64>; 2],
}

/// A round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Its number, from 1.
    pub number: u32,
    /// Packets recorded.
    pub packets: usize,
    /// Packets before the first that says something else.
    pub alike: usize,
    /// Packets before the first that is not at its time either.
    pub right: usize,
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            number,
            packets,
            alike,
            right,
        } = self;
        write!(
            f,
            "round {number}: of {packets} packets {alike} are the same, {right} at their times"
        )
    }
}

/// How a replay is carried out.
pub struct Means<'a> {
    /// Makes cards.
    pub provider: &'a mut dyn CardProvider,
    /// Set to break it off.
    pub interrupt: &'a AtomicBool,
    /// Hears of each round.
    pub heard: &'a mut dyn FnMut(&Round),
}

/// What is known besides the packets.
#[derive(Debug, Default)]
pub struct Known {
    /// Settings of the hosts.
    pub set: Vec<Set>,
    /// What the kernels noted of the connection; otherwise its calls are inferred.
    pub calls: Option<Vec<Moment>>,
}

/// A replay that was found.
pub struct Found {
    /// Rounds that it took.
    pub rounds: u32,
    /// The plan of the last one.
    pub plan: Plan,
    /// How long the card holds each packet back in it, by direction.
    held: [Vec<u64>; 2],
}

impl Found {
    /// The packets of a run of the plan, on the line on which the recording was made.
    pub fn on_the_line(&self, mut trail: Trail, recorded: &Trail) -> Trail {
        on_the_line(&mut trail, &self.held, recorded);
        trail
    }
}

/// What came of a round.
struct Outcome {
    round: Round,
    model: Model,
    replayed: Trail,
    /// When it says something else for the first time, since its first packet.
    departs: Nanos,
}

struct Search<'a> {
    of: &'a Path,
    recorded: &'a Trail,
    known: &'a Known,
    work: TempDir,
    means: Means<'a>,
    rounds: u32,
}

/// Finds the plan that replays a connection.
pub fn find<'a>(
    of: &'a Path,
    recorded: &'a Trail,
    known: &'a Known,
    means: Means<'a>,
) -> Result<Found, Error> {
    let responses = recorded.responses();
    let hosts = settings::infer(recorded, responses).map_err(|e| refused(of, e))?;
    let rates = hosts
        .each_ref()
        .map(|host| host.rate_mbps.unwrap_or(LINE_MBPS));
    let model = Model {
        first_packet: FIRST_PACKET + recorded.start().0 % TICK,
        scripts: match &known.calls {
            Some(log) => calls::from_log(recorded, log, hosts.each_ref().map(|h| Nanos(h.delay.0))),
            None => calls::infer(recorded, responses, rates),
        },
        hosts,
        held: Lane::ALL.map(|lane| recorded.of(lane).map(known_delay).collect()),
    };
    let mut search = Search {
        of,
        recorded,
        known,
        work: TempDir::new().map_err(Error::file("make", &std::env::temp_dir()))?,
        means,
        rounds: 0,
    };
    let calibrated = search.calibrated(model)?;
    let Outcome { model, .. } = search.corrected(calibrated)?;
    Ok(Found {
        rounds: search.rounds,
        plan: search.plan(&model)?,
        held: model.held,
    })
}

/// How long the network held a packet back, as far as the recording says it.
fn known_delay(seen: &Seen) -> u64 {
    seen.left.map_or(0, |left| left.since(seen.time).0)
}

/// A packet on the line, since the first packet of its connection.
fn since_start(trail: &Trail, seen: &Seen) -> i64 {
    let at = seen.left.unwrap_or(seen.time);
    at.0 as i64 - trail.start().0 as i64
}

/// Has `left` say when packets of a replay come to the line, and cuts off what the recording has not
/// waited for.
fn on_the_line(trail: &mut Trail, held: &[Vec<u64>; 2], recorded: &Trail) {
    trail.on_the_line();
    let mut count = [0; 2];
    for seen in &mut trail.packets {
        let nth = &mut count[seen.lane.index()];
        let held = held[seen.lane.index()].get(*nth).copied().unwrap_or(0);
        seen.left = seen.left.map(|_| seen.time + Nanos(held));
        *nth += 1;
    }
    let (start, length) = (trail.start(), recorded.length());
    let patience = if recorded.closed() {
        AFTERWARDS
    } else {
        MICROSECOND
    };
    trail
        .packets
        .retain(|seen| seen.time.since(start).0 <= length + patience);
}

/// So long after its last packet a connection that was closed has nothing more to say.
const AFTERWARDS: u64 = 100_000_000;
const MICROSECOND: u64 = 1_000;

impl Search<'_> {
    /// Makes the cables as long as the shortest times to answer want them.
    fn calibrated(&mut self, model: Model) -> Result<Outcome, Error> {
        let mut outcome = self.round(model)?;
        for _ in 0..CALIBRATIONS {
            let mut model = outcome.model.clone();
            let [then, now] = [self.recorded, &outcome.replayed].map(|t| t.start().0 % TICK);
            let earlier = (now + TICK - then) % TICK;
            let mut changed = earlier > 0;
            model.first_packet -= if earlier < TICK / 2 { earlier } else { 0 };
            let ends = model.hosts.iter_mut().zip(&mut model.scripts);
            for (lane, (host, script)) in Lane::ALL.into_iter().zip(ends) {
                // What a program says at the end of a stream comes later than what its kernel says.
                let kernel = |lag: &Lag<'_>| {
                    let recorded = lag.recorded;
                    lag.answers && recorded.is_timely() && !recorded.segment.has(FIN)
                };
                let lags = self.lags(&outcome, lane).into_iter().filter(kernel);
                let least = lags.map(|lag| lag.early - lag.cause).min();
                // There and back.
                let by = least.filter(|by| by.abs() > TOLERANCE).unwrap_or(0) / 2;
                let delay = host.delay.0.saturating_add_signed(by).max(LEAST_DELAY);
                changed |= delay != host.delay.0;
                if self.known.calls.is_some() {
                    // They are noted in the hosts, not on the line.
                    script.shift(delay as i64 - host.delay.0 as i64);
                }
                host.delay = Duration(delay);
            }
            if !changed {
                break;
            }
            outcome = self.round(model)?;
        }
        Ok(outcome)
    }

    /// Corrects times as long as that makes it better.
    fn corrected(&mut self, mut best: Outcome) -> Result<Outcome, Error> {
        let whole = self.recorded.recorded().count();
        let (mut stuck, mut right) = (0, best.round.right);
        let mut last = None;
        while self.rounds < ROUNDS && stuck < PATIENCE && best.round.right < whole {
            let Some(model) = self.correction(last.as_ref().unwrap_or(&best)) else {
                break;
            };
            let outcome = self.round(model)?;
            stuck = if outcome.round.right > right {
                0
            } else {
                stuck + 1
            };
            right = right.max(outcome.round.right);
            let score = |outcome: &Outcome| (outcome.round.alike, outcome.round.right);
            if score(&outcome) > score(&best) {
                (best, last) = (outcome, None);
            } else {
                last = Some(outcome);
            }
        }
        Ok(best)
    }

    /// Runs it.
    fn round(&mut self, model: Model) -> Result<Outcome, Error> {
        self.rounds += 1;
        let plan = self.plan(&model)?;
        let out = self.work.path().join(self.rounds.to_string());
        let progress = &mut |_: &Progress| {};
        let options = options(&plan, Some(out.clone()), progress, self.means.interrupt);
        let RunOutcome { run, .. } = run(&plan, options, self.means.provider)?;
        if let verdict::Outcome::Environment | verdict::Outcome::Interrupted = run.verdict.outcome {
            return Err(Error::Run(run.verdict.reasons.join("; ")));
        }
        let trail = Trail::of_run(&run, &out, 0).map_err(|e| refused(self.of, e));
        fs::remove_dir_all(&out).map_err(Error::file("remove", &out))?;
        let mut replayed = trail?;
        on_the_line(&mut replayed, &model.held, self.recorded);
        let matching = Matching::of([self.recorded, &replayed], Alike::Segments);
        let departs = (matching.departure.as_ref()).map_or(Nanos(u64::MAX), Departure::at);
        let round = self.judge(&matching, departs);
        (self.means.heard)(&round);
        Ok(Outcome {
            round,
            model,
            replayed,
            departs,
        })
    }

    fn judge(&self, matching: &Matching, departs: Nanos) -> Round {
        let packets: Vec<_> = self.recorded.recorded().collect();
        let end = self.recorded.start() + departs;
        let alike = packets.partition_point(|seen| seen.time < end);
        let apart = matching
            .first_apart
            .and_then(|(number, _)| packets.iter().position(|seen| seen.number == number));
        Round {
            number: self.rounds,
            packets: packets.len(),
            alike,
            right: apart.map_or(alike, |apart| apart.min(alike)),
        }
    }

    /// Packets of a direction as they were recorded and replayed, and whether they say the same: up to
    /// the first departure, and with the one that departs if it only may do so for its time.
    fn pairs<'o>(&'o self, outcome: &'o Outcome, lane: Lane) -> Vec<(&'o Seen, &'o Seen, bool)> {
        let replayed = &outcome.replayed;
        let mut pairs = Vec::new();
        for (recorded, again) in self.recorded.of(lane).zip(replayed.of(lane)) {
            let whole = again.time.since(replayed.start()) < outcome.departs;
            let [a, b] = [&recorded.segment, &again.segment];
            if whole || (a.seq, a.payload) == (b.seq, b.payload) {
                pairs.push((recorded, again, whole));
            }
            if !whole {
                break;
            }
        }
        pairs
    }

    /// By how much packets of a direction came too early, and what was before them.
    fn lags<'o>(&'o self, outcome: &'o Outcome, lane: Lane) -> Vec<Lag<'o>> {
        let replayed = &outcome.replayed;
        let on_line = |recorded, again| {
            [
                since_start(self.recorded, recorded),
                since_start(replayed, again),
            ]
        };
        let others = (self.recorded.of(lane.other())).zip(replayed.of(lane.other()));
        let arrives = |seen: &Seen| seen.left.is_some() && seen.is_recorded();
        let others = others.filter(|(recorded, _)| arrives(recorded));
        let mut others: Vec<_> = others.map(|(a, b)| on_line(a, b)).collect();
        others.sort_by_key(|[_, replayed]| *replayed);
        let host = &outcome.model.hosts[lane.index()];
        let back = 2 * host.delay.0 as i64;
        let rate = i64::from(host.rate_mbps.unwrap_or(LINE_MBPS));
        let (mut answered, mut busy_until) = (usize::MAX, i64::MIN);
        let mut lags = Vec::new();
        for (nth, (recorded, again, whole)) in self.pairs(outcome, lane).into_iter().enumerate() {
            let came = again.time.0 as i64 - replayed.start().0 as i64;
            // Who still sends can't answer at once.
            let idle = busy_until < came;
            let takes = line_bytes(again.length as usize) as i64 * 8_000 / rate;
            busy_until = came + takes + ANSWER / 10;
            let heard = others.partition_point(|[_, replayed]| replayed + back <= came);
            let first = std::mem::replace(&mut answered, heard) != heard && idle;
            let cause = heard.checked_sub(1).map(|at| others[at]);
            let [then, now] = on_line(recorded, again);
            lags.push(Lag {
                nth,
                recorded,
                arrives: arrives(recorded),
                then,
                came,
                early: then - now,
                cause: cause.map_or(0, |[then, now]| then - now),
                idle,
                answers: first && cause.is_some_and(|[_, now]| came - now < 2 * back + ANSWER),
                whole,
            });
        }
        lags
    }

    /// What has to be added to the time of the first packet, if what comes first at another time comes
    /// whole ticks off: long timers end with every eighth tick of a host, or fewer, wherever that is.
    fn out_of_step(lags: &[Vec<Lag<'_>>; 2]) -> Option<i64> {
        let timely = |lag: &&Lag<'_>| lag.whole && lag.recorded.is_timely();
        let wrong = |lag: &&Lag<'_>| lag.early.abs() > TOLERANCE;
        let first = lags.iter().flatten().filter(timely).filter(wrong);
        let early = first.min_by_key(|lag| lag.came)?.early;
        let tick = TICK as i64;
        let ticks = (early + tick / 2).div_euclid(tick);
        let whole = (early - ticks * tick).abs() <= TOLERANCE;
        (whole && (1..STEP).contains(&ticks.abs())).then_some(-ticks * tick)
    }

    /// The model with later calls, and packets that are held back longer; nothing when all is right.
    fn correction(&self, outcome: &Outcome) -> Option<Model> {
        let mut model = outcome.model.clone();
        let lags = Lane::ALL.map(|lane| self.lags(outcome, lane));
        if let Some(ticks) = Self::out_of_step(&lags) {
            model.first_packet = model.first_packet.saturating_add_signed(ticks);
            return Some(model);
        }
        for (lane, lags) in Lane::ALL.into_iter().zip(lags) {
            // By how much later a packet will come when all is corrected that was before it.
            let mut moved = 0;
            for lag in lags {
                if lag.idle {
                    moved = lag.cause;
                }
                let held = &mut model.held[lane.index()][lag.nth];
                let call = model.scripts[lane.index()].call_of(lag.recorded);
                if let Some(call) = call.filter(|_| lag.recorded.is_timely()) {
                    let wrong = lag.then - lag.came;
                    let after = call.at.map(|at| lag.came - at as i64);
                    let at = match after {
                        // It is not called as early as it would have to be.
                        Some(after) if wrong < -TOLERANCE && (1..ANSWER).contains(&after) => None,
                        Some(after) if after.abs() < ANSWER => Some(lag.came - after + wrong),
                        // It came before something that it came behind.
                        None if !lag.whole && wrong > TOLERANCE => Some(lag.then),
                        _ => call.at.map(|at| at as i64),
                    };
                    let at = at.and_then(|at| u64::try_from(at).ok());
                    if wrong.abs() > TOLERANCE && at != call.at {
                        call.at = at;
                        *held = 0;
                        moved = wrong;
                        continue;
                    }
                }
                let by = lag.early - moved;
                if lag.whole && by.abs() > TOLERANCE && lag.arrives {
                    *held = held.saturating_add_signed(by);
                }
            }
        }
        (model != outcome.model).then_some(model)
    }

    /// The plan of a round.
    fn plan(&self, model: &Model) -> Result<Plan, Error> {
        let mut hosts = model.hosts.clone();
        let [a, b] = &mut hosts;
        for set in &self.known.set {
            set.apply([&mut *a, &mut *b])
                .map_err(|e| refused(self.of, e))?;
        }
        for host in &mut hosts {
            host.trace = NOTED.to_vec();
        }
        let opener = self.recorded.opener.index();
        let listener = 1 - opener;
        let to = self.recorded.ends[listener];
        let from = self.recorded.ends[opener].port();
        let command = |at: usize, verb: &str, more: &str| {
            let lines = model.scripts[at].lines(model.first_packet, hosts[at].delay.0);
            let (address, port) = (to.ip(), to.port());
            let run = format!("midwire-calls {verb} {address} {port}{more} <<END\n{lines}END\n");
            let on = ["a", "b"][at];
            json!({"command": {"on": on, "run": run, "background": verb == "listen"}})
        };
        let all = self.recorded.length() + FIRST_PACKET + SETTLING;
        let plan = json!({
            "version": 1,
            "name": "retrace",
            "endpoints": {"a": {"linux": hosts[0]}, "b": {"linux": hosts[1]}},
            "traffic": [
                command(listener, "listen", ""),
                command(opener, "connect", &format!(" {from}")),
            ],
            "events": self.events(model),
            "timeouts": {"traffic": Duration(all)},
        });
        Ok(Plan::parse("the plan of the replay", &plan.to_string())?)
    }

    /// What the card does to each packet, by its number among all of its direction.
    fn events(&self, model: &Model) -> Vec<Event> {
        let mut events = Vec::new();
        for lane in Lane::ALL {
            let held = &model.held[lane.index()];
            for ((nth, seen), held) in (1..).zip(self.recorded.of(lane)).zip(held) {
                let lost = seen.left.is_none();
                let action = Action {
                    drop: lost,
                    ecn: (seen.segment.ecn == CE && !lost).then_some(Ecn::Ce),
                    delay: (*held > 0 && !lost).then_some(Duration(*held)),
                    ..Action::default()
                };
                if action != Action::default() {
                    events.push(Event {
                        kind: Some(Kinds::One(Kind::Any)),
                        packet: Some(Numbers::from(nth)),
                        ..Event::new(lane, action)
                    });
                }
            }
        }
        events
    }
}

/// A packet that was replayed.
#[derive(Debug, Clone)]
struct Lag<'a> {
    /// Its number in its direction, from 0.
    nth: usize,
    recorded: &'a Seen,
    /// When it was on the line in the recording, and when it came to the card in the replay, ns since
    /// the first packet.
    then: i64,
    came: i64,
    /// By how much it was too early on the line.
    early: i64,
    /// By how much what came in before it was so.
    cause: i64,
    /// The end had sent all that was before it.
    idle: bool,
    /// It is the first answer to something.
    answers: bool,
    /// It has been recorded, and was not lost.
    arrives: bool,
    /// It says what it said.
    whole: bool,
}

/// Of the card's line.
const LINE_MBPS: u32 = 100_000;
/// Of times, ns.
const TOLERANCE: i64 = 16;
/// Longer than what comes in and answers at once, ns.
const ANSWER: i64 = 5_000;
/// For all that comes before and behind.
const SETTLING: u64 = 5_000_000_000;
const CALIBRATIONS: u32 = 6;
/// Rounds that may make nothing better.
const PATIENCE: u32 = 4;
/// Of all that is random in a replay.
const SEED: u64 = 1;

/// How the plan of a replay is run.
pub fn options<'a>(
    plan: &Plan,
    out: Option<PathBuf>,
    progress: &'a mut dyn FnMut(&Progress),
    interrupt: &'a AtomicBool,
) -> Options<'a> {
    Options {
        plan_file: PathBuf::from("retrace.yaml"),
        plan_text: explicit::anew(plan),
        out,
        seed: SEED,
        repeat: (1, 1),
        rerun: None,
        progress,
        interrupt,
    }
}
