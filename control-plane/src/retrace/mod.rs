// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A TCP connection replayed: two Linux hosts on the card's clock speak once more, the card plays
//! the network as it was then, and what they send is held against what was recorded.

mod before;
mod calls;
mod matching;
mod network;
mod replay;
mod settings;
#[cfg(test)]
mod tests;
mod trail;

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use midwire_analysis::report::{Point, Replay};
use midwire_endpoints::linux::Trace;
use midwire_trace::Lane;
use midwire_trace::inside::{Event, Moment, Senders};
use midwire_trace::packet::tcp_flags::ACK;
use serde_json::Value;

pub use matching::{Alike, Departure, Matching};
pub use replay::{Found, Known, Means, Round, find, options};
pub use trail::{Before, Offer, Seen, Segment, Trail};

use crate::analyze::analyze;
use crate::plan::{Action, Endpoint, LinuxEndpoint, Plan};
use crate::rerun::{self, Prepared};
use crate::run_file::{RunFile, files};
use crate::{Error, explicit, inside};

/// What the kernels of a replay note.
const NOTED: [Trace; 3] = [Trace::TcpProbe, Trace::TcpRetransmit, Trace::Sockets];

fn refused(of: &Path, reason: String) -> Error {
    let path = of.to_owned();
    Error::Retrace { path, reason }
}

/// A setting of a host that is not as it was: `a.congestion_control=reno`.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// Whether it is host A's, or B's.
    of_a: bool,
    /// Keys from the host on, as in a plan; of sysctls two.
    keys: Vec<String>,
    value: Value,
}

impl std::str::FromStr for Set {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected HOST.KEY=VALUE, such as a.congestion_control=reno".to_owned();
        let (name, value) = text.split_once('=').ok_or_else(expected)?;
        let (host, key) = name.split_once('.').ok_or_else(expected)?;
        let of_a = match host {
            "a" => true,
            "b" => false,
            _ => return Err(expected()),
        };
        // The names of sysctls have dots.
        let keys = match key.split_once('.') {
            Some((first @ ("sysctls" | "clock"), rest)) => vec![first.to_owned(), rest.to_owned()],
            _ => vec![key.to_owned()],
        };
        let value = serde_saphyr::from_str(value).map_err(|e| e.to_string())?;
        Ok(Self { of_a, keys, value })
    }
}

impl Set {
    /// Changes the host that it is of.
    fn apply(&self, hosts: [&mut LinuxEndpoint; 2]) -> Result<(), String> {
        let [a, b] = hosts;
        let host = if self.of_a { a } else { b };
        let mut whole = serde_json::to_value(&*host).map_err(|e| e.to_string())?;
        let mut place = &mut whole;
        for key in &self.keys {
            // What a host leaves open is not there.
            place = &mut place[key.as_str()];
        }
        place.clone_from(&self.value);
        *host = serde_json::from_value(whole).map_err(|e| e.to_string())?;
        Ok(())
    }
}

/// A run of Linux hosts in virtual time, with each decision of its network as an event of its
/// own, and with other settings where they are asked for.
pub fn prepare(of: &Path, set: &[Set]) -> Result<Prepared, Error> {
    let asked = rerun::Asked {
        until: None,
        trace: NOTED.to_vec(),
    };
    let mut prepared = rerun::prepare(of, &asked)?;
    let plan = &mut prepared.plan;
    // They do nothing any more; but that a packet is held against them takes the card some clocks.
    for (number, event) in (1..).zip(&mut plan.events) {
        event.name.get_or_insert(format!("was-event-{number}"));
        event.action = Action::default();
    }
    plan.events.extend(explicit::decided(of, &prepared.run)?);
    for set in set {
        if let (Endpoint::Linux(a), Endpoint::Linux(b)) =
            (&mut plan.endpoints.a, &mut plan.endpoints.b)
        {
            set.apply([a, b]).map_err(|reason| refused(of, reason))?;
        }
    }
    Plan::parse("the plan of the replay", &explicit::anew(plan))?;
    Ok(prepared)
}

/// A connection of any origin, as it was on the line on which it was recorded.
pub fn read(of: &Path, connection: u32) -> Result<Trail, Error> {
    let read = if of.is_dir() {
        let run = RunFile::read(of)?;
        Trail::of_run(&run, of, connection)
    } else {
        Trail::of_file(of, connection)
    };
    let mut trail = read.map_err(|reason| refused(of, reason))?;
    for lane in Lane::ALL {
        if trail.of(lane).next().is_none() {
            let reason = format!("{} has packets of one direction only", trail.name);
            return Err(refused(of, reason));
        }
    }
    if !of.is_dir() {
        trail.infer_network();
    }
    trail.on_the_line();
    Ok(trail)
}

/// What kernels noted of a connection, from an `inside.csv`.
pub fn read_calls(file: &Path, connection: u32) -> Result<Vec<Moment>, Error> {
    let open = File::open(file).map_err(Error::file("read", file))?;
    let moments = midwire_trace::inside::read(BufReader::new(open));
    let mut moments = moments.map_err(|e| refused(file, format!("it is no inside view: {e}")))?;
    moments.retain(|moment| moment.connection.map(u32::from) == Some(connection));
    let called = |moment: &Moment| matches!(moment.event, Event::Send | Event::Receive);
    match moments.iter().any(called) {
        true => Ok(moments),
        false => {
            let reason = format!("it has no calls of connection {connection}: trace sockets");
            Err(refused(file, reason))
        }
    }
}

/// Whether a path is that of a run which can be repeated: its hosts are Linux in virtual time.
pub fn is_own(of: &Path) -> Result<bool, Error> {
    if !of.is_dir() {
        return Ok(false);
    }
    let run = RunFile::read(of)?;
    let plan = &run.recorded.plan.parsed;
    Ok(matches!(plan.endpoints.a, Endpoint::Linux(_)))
}

/// A connection of a run of Linux hosts, and the same of the run that has replayed it.
pub struct Compared {
    /// The connection.
    pub name: String,
    /// Packet for packet.
    pub matching: Matching,
    /// Recorded and replayed.
    points: [Vec<Point>; 2],
    inside: [Senders; 2],
    /// Its number where the kernels noted something of it.
    connection: u32,
}

impl Compared {
    /// Of a run and its replay.
    pub fn of_run(
        runs: [&RunFile; 2],
        directories: [&Path; 2],
        connection: u32,
        how: Alike,
    ) -> Result<Self, Error> {
        let trail = |at: usize| {
            let read = Trail::of_run(runs[at], directories[at], connection);
            read.map_err(|reason| refused(directories[at], reason))
        };
        let trails = [trail(0)?, trail(1)?];
        let matching = Matching::of([&trails[0], &trails[1]], how);
        let [first, second] = directories.map(inside::read);
        Ok(Self {
            name: trails[0].name.clone(),
            points: points([&trails[0], &trails[1]], &matching),
            matching,
            inside: [Senders::new(&first?), Senders::new(&second?)],
            connection,
        })
    }

    /// Of a recording and the run of the plan that was found for it.
    pub fn found(
        recorded: &Trail,
        found: &Found,
        run: &RunFile,
        directory: &Path,
    ) -> Result<Self, Error> {
        let trail = Trail::of_run(run, directory, 0).map_err(|e| refused(directory, e))?;
        let replayed = found.on_the_line(trail, recorded);
        let inside = [Senders::default(), Senders::new(&inside::read(directory)?)];
        let matching = Matching::of([recorded, &replayed], Alike::Segments);
        Ok(Self {
            name: recorded.name.clone(),
            points: points([recorded, &replayed], &matching),
            matching,
            inside,
            connection: 0,
        })
    }

    /// In words; and in files of the replay's directory, its page among them.
    pub fn tell(&self, directory: &Path) -> Result<String, Error> {
        let [first, second] = &self.inside;
        let inside = [first, second];
        let text = self.matching.text(inside, self.connection);
        let replay = Replay {
            title: self.name.clone(),
            holds: self.matching.holds(),
            lines: (self.matching.lines().into_iter())
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            departure: (self.matching.departure.as_ref())
                .map(|departure| departure.told(inside, self.connection)),
            points: self.points.clone(),
        };
        let text = format!("Replays  {}\n{text}\n", self.name);
        let replay =
            serde_json::to_string(&replay).map_err(|e| refused(directory, e.to_string()))?;
        for (name, text) in [(files::RETRACE, &text), (files::REPLAY, &replay)] {
            let path = directory.join(name);
            fs::write(&path, text).map_err(Error::file("write", &path))?;
        }
        analyze(directory)?;
        Ok(text)
    }
}

/// What came of the replay that a run is, if it is one.
pub(crate) fn read_replay(directory: &Path) -> Result<Option<Replay>, Error> {
    let path = directory.join(files::REPLAY);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    let replay = serde_json::from_str(&text);
    replay.map(Some).map_err(|e| refused(&path, e.to_string()))
}

/// Packets that a picture shows before a departure, and behind it.
const AROUND: usize = 40;

/// The packets of two connections for a picture of where they part, or of all.
fn points(trails: [&Trail; 2], matching: &Matching) -> [Vec<Point>; 2] {
    let departs = matching.departure.as_ref().map(Departure::at);
    trails.map(|trail| {
        let start = trail.start();
        let mut all: Vec<_> = (trail.packets.iter())
            .map(|seen| Point {
                from_a: seen.lane == Lane::AtoB,
                time_ns: seen.left.unwrap_or(seen.time).since(start).0,
                seq: seen.segment.seq,
                payload: seen.segment.payload,
                ack: seen.segment.has(ACK).then_some(seen.segment.ack),
                went_on: seen.left.is_some(),
            })
            .collect();
        all.sort_by_key(|point| point.time_ns);
        if let Some(departs) = departs {
            let at = all.partition_point(|point| point.time_ns < departs.0);
            all.truncate(at + AROUND);
            all.drain(..at.saturating_sub(AROUND));
        }
        all
    })
}

/// A plan as text, for the records.
pub fn text(plan: &Plan) -> String {
    explicit::anew(plan)
}
