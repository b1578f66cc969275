// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A TCP connection replayed: two Linux hosts on the card's clock speak once more, the card plays
//! the network as it was then, and what they send is held against what was recorded.

mod matching;
mod trail;

use std::fs;
use std::path::Path;

use midwire_endpoints::linux::Trace;
use midwire_trace::inside::Senders;
use serde_json::Value;

pub use matching::{Alike, Departure, Matching};
pub use trail::{Offer, Seen, Segment, Trail};

use crate::plan::{Action, Endpoint, LinuxEndpoint, Plan};
use crate::rerun::{self, Prepared};
use crate::run_file::{RunFile, files};
use crate::{Error, explicit, inside};

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
    let refused = |reason: String| Error::Retrace {
        path: of.to_owned(),
        reason,
    };
    let asked = rerun::Asked {
        until: None,
        trace: vec![Trace::TcpProbe, Trace::TcpRetransmit, Trace::Sockets],
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
            set.apply([a, b]).map_err(refused)?;
        }
    }
    Plan::parse("the plan of the replay", &explicit::anew(plan))?;
    Ok(prepared)
}

/// A connection of a run of Linux hosts, and the same of the run that has replayed it.
pub struct Compared {
    /// The connection.
    pub name: String,
    /// Packet for packet.
    pub matching: Matching,
    inside: [Senders; 2],
    connections: [u32; 2],
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
            read.map_err(|reason| Error::Retrace {
                path: directories[at].to_owned(),
                reason,
            })
        };
        let trails = [trail(0)?, trail(1)?];
        let [first, second] = directories.map(inside::read);
        Ok(Self {
            name: trails[0].name.clone(),
            matching: Matching::of([&trails[0], &trails[1]], how),
            inside: [Senders::new(&first?), Senders::new(&second?)],
            connections: [connection; 2],
        })
    }

    /// In words; and as a file of the replay's directory.
    pub fn tell(&self, directory: &Path) -> Result<String, Error> {
        let [first, second] = &self.inside;
        let text = self.matching.text([first, second], self.connections);
        let text = format!("Replays  {}\n{text}\n", self.name);
        let path = directory.join(files::RETRACE);
        fs::write(&path, &text).map_err(Error::file("write", &path))?;
        Ok(text)
    }
}

/// A plan as text, for the records.
pub fn text(plan: &Plan) -> String {
    explicit::anew(plan)
}
