// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a search is for: the plan whose traffic and events are varied, within which bounds, what
//! draws the search on, and what counts as a finding. A YAML file, described in docs/fuzz.md.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use midwire_endpoints::rnic::Counters;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::case::{Case, Hit, Knob, Space};
use crate::Error;
use crate::explicit::anew;
use crate::plan::check::mistake_in_name;
use crate::plan::source::{Node, Step, at};
use crate::plan::values::text_value;
use crate::plan::{
    self, Action, Connections, Endpoint, Mistake, Plan, PlanError, Probability, RdmaTraffic, Size,
    Traffic, Verb,
};

/// The one version of the format.
pub const VERSION: u32 = 1;

/// What a search is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Version of the format, 1.
    #[schemars(range(min = 1, max = 1))]
    pub version: u32,
    /// Short name: letters, digits, `-`, `_` and `.`; names the directory of the search.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"))]
    pub name: String,
    /// What is searched for, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The plan that is varied: two model NICs and one entry of RDMA traffic. Relative to the
    /// target.
    pub plan: PathBuf,
    /// What is varied, within which bounds.
    pub vary: Vary,
    /// Weights of what a run is judged by.
    #[serde(default)]
    pub score: Weights,
    /// What counts as a finding.
    #[serde(default)]
    pub findings: Limits,
    /// How it is searched.
    #[serde(default)]
    pub search: Search,
}

/// What is varied. All else is as the plan has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vary {
    /// Verbs to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub verb: Option<Vec<Verb>>,
    /// Queue pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qps: Option<Bounds>,
    /// Messages of each queue pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Bounds>,
    /// Bytes of each message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bounds>,
    /// MTUs to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub mtu: Option<Vec<u32>>,
    /// Messages of a queue pair that are under way at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_depth: Option<Bounds>,
    /// What happens to which data packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Events>,
}

/// Events that are added to those of the plan. Each names one data packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// How many there may be.
    #[schemars(range(min = 1, max = 4096))]
    pub most: u32,
    /// What they may do: each is an action of a plan's event.
    #[schemars(length(min = 1))]
    pub actions: Vec<Action>,
    /// The last time that a packet is sent at which they may happen to it. Default 1: the first.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 4))]
    pub iterations: u8,
}

fn one() -> u8 {
    1
}

/// Numbers from `least` to `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The lowest.
    pub least: u64,
    /// The highest.
    pub most: u64,
}

const BOUNDS: &str = "a number, or the lowest and the highest such as 1-32 or 1KiB-64KiB";

impl Bounds {
    /// One number.
    fn one(number: u64) -> Self {
        Self {
            least: number,
            most: number,
        }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.least, self.most)
    }
}

impl FromStr for Bounds {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<Size>().ok().map(|size| size.0);
        let bounds = match text.split_once('-') {
            None => number(text).map(Self::one),
            Some((least, most)) => number(least)
                .zip(number(most))
                .map(|(least, most)| Self { least, most }),
        };
        bounds
            .filter(|bounds| bounds.least <= bounds.most)
            .ok_or_else(|| format!("{text:?}: expected {BOUNDS}"))
    }
}

text_value!(
    Bounds,
    BOUNDS,
    Some(|value| Bounds::one(u64::try_from(value).unwrap_or(u64::MAX))),
    json_schema!({
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": r"^[0-9]+ *[kKMG]?i?B? *(- *[0-9]+ *[kKMG]?i?B?)?$"},
        ],
        "description": BOUNDS,
    })
);

/// What a run is judged by, and how much each counts. The score is their weighted sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Weights {
    /// What the NICs' counters of losses, retransmissions and notifications say. Default 1.
    pub counters: f64,
    /// How much longer than needed the slowest message of each queue pair took. Default 1.
    pub completion: f64,
    /// The same of the one that took longest of those that no event touched. Default 4.
    pub innocent: f64,
    /// How many rules of the specification were not kept. Default 4.
    pub rules: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            counters: 1.0,
            completion: 1.0,
            innocent: 4.0,
            rules: 4.0,
        }
    }
}

/// What counts as a finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// A queue pair that no event touched takes so many times as long as without events, or fails.
    /// Default 10; 0: that is none.
    pub innocent: f64,
    /// Counters of the NICs that have to stay 0. Default rx_discards_phy.
    pub counters: Vec<String>,
    /// A rule of the specification is not kept, as `midwire analyze` has them. Default true.
    pub rules: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            innocent: 10.0,
            counters: vec!["rx_discards_phy".to_owned()],
            rules: true,
        }
    }
}

/// How it is searched.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// Variants that are kept to make new ones of. Default 8.
    #[schemars(range(min = 1, max = 1000))]
    pub pool: u32,
    /// Variants that are made of the pool at a time. Default 4.
    #[schemars(range(min = 1, max = 1000))]
    pub generation: u32,
    /// How likely a variant is kept that scores below the median of the pool. Default 10%.
    pub keep: Probability,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            pool: 8,
            generation: 4,
            keep: Probability::of(0.1).unwrap_or(Probability::NEVER),
        }
    }
}

/// The JSON Schema of targets.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Target).to_value()
}

impl Target {
    /// Reads a target and the plan that it varies, and checks them; gives its text too.
    pub fn read(path: &Path) -> Result<(Space, String), Error> {
        let bytes = std::fs::read(path).map_err(|source| Error::ReadTarget {
            path: path.into(),
            source,
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let plan = |plan: &Path| Ok(Plan::read(&directory.join(plan))?.0);
        Self::parse(&path.display().to_string(), &bytes, plan)
    }

    /// The same of its bytes, and whoever reads the plan.
    pub(super) fn parse(
        file: &str,
        bytes: &[u8],
        plan: impl FnOnce(&Path) -> Result<Plan, Error>,
    ) -> Result<(Space, String), Error> {
        let text = plan::read_text(file, bytes)?;
        let (target, tree): (Target, Node) = plan::located(file, text, "targets", VERSION)?;
        let base = plan(&target.plan)?;
        let mut checker = Checker {
            tree: &tree,
            mistakes: Vec::new(),
        };
        match checker.space(target, base) {
            Some(space) if checker.mistakes.is_empty() => Ok((space, text.to_owned())),
            _ => Err(PlanError::of(file, checker.mistakes).into()),
        }
    }
}

struct Checker<'a> {
    tree: &'a Node,
    mistakes: Vec<Mistake>,
}

impl Checker<'_> {
    fn mistake(&mut self, path: &[Step<'_>], message: impl Into<String>) {
        let place = self.tree.place(path);
        self.mistakes.push(Mistake {
            place,
            message: message.into(),
        });
    }

    fn within(&mut self, path: &[Step<'_>], what: &str, value: u64, least: u64, most: u64) {
        if !(least..=most).contains(&value) {
            self.mistake(path, format!("{what} {value}, expected {least} to {most}"));
        }
    }

    fn space(&mut self, target: Target, base: Plan) -> Option<Space> {
        if let Some(message) = mistake_in_name(&target.name) {
            self.mistake(at!["name"], message);
        }
        self.judgement(&target);
        let traffic = self.plan(&base)?;
        let space = Space {
            target,
            base,
            traffic,
        };
        self.traffic(&space);
        self.events(&space);
        Some(space)
    }

    /// What the plan has to be so that it can be varied: its traffic.
    fn plan(&mut self, base: &Plan) -> Option<RdmaTraffic> {
        let traffic = match base.traffic.as_slice() {
            [Traffic::Rdma(rdma)] => Some(rdma.clone()),
            entries => {
                let message = match entries.len() {
                    0 | 1 => "plan: expected two model NICs and one entry of RDMA traffic",
                    _ => {
                        "plan: it has several entries of traffic, and a search varies one: leave \
                         one entry of RDMA traffic"
                    }
                };
                self.mistake(at!["plan"], message);
                None
            }
        };
        for (has, what) in [
            (!base.selectors.is_empty(), "selectors"),
            (!base.expect.is_empty(), "expectations"),
        ] {
            if has {
                let message = format!("plan: it has {what}, which the search makes itself");
                self.mistake(at!["plan"], message);
            }
        }
        if (base.events.iter()).any(|event| event.connection != Connections::All) {
            let message = "plan: an event of one connection; which that is varies, expected \
                           `connection: all`";
            self.mistake(at!["plan"], message);
        }
        traffic
    }

    /// The corners of the bounds have to be traffic that a plan may have.
    fn traffic(&mut self, space: &Space) {
        let vary = &space.target.vary;
        for (key, empty) in [
            ("verb", vary.verb.as_ref().is_some_and(Vec::is_empty)),
            ("mtu", vary.mtu.as_ref().is_some_and(Vec::is_empty)),
        ] {
            if empty {
                self.mistake(at!["vary", key], format!("{key}: expected one at least"));
            }
        }
        let classes = space.base.endpoints.both().map(|(_, end)| match end {
            Endpoint::Rnic(nic) => nic.ets.len(),
            _ => 0,
        });
        let mut told = Vec::new();
        for mtu in vary
            .mtu
            .iter()
            .flatten()
            .copied()
            .chain([space.traffic.mtu])
        {
            for most in [false, true] {
                let mut corner = RdmaTraffic {
                    mtu,
                    ..space.traffic.clone()
                };
                for knob in Knob::ALL {
                    if let Some(bounds) = vary.bounds(knob) {
                        knob.set(&mut corner, if most { bounds.most } else { bounds.least });
                    }
                }
                for (key, message) in corner.faults(classes) {
                    if !told.contains(&key) {
                        told.push(key);
                        self.mistake(at!["vary", key], message);
                    }
                }
            }
        }
        for knob in Knob::ALL.into_iter().filter(|knob| *knob != Knob::Size) {
            if let Some(bounds) = vary.bounds(knob) {
                let key = knob.key();
                self.within(at!["vary", key], key, bounds.most, 1, u32::MAX.into());
            }
        }
    }

    fn events(&mut self, space: &Space) {
        let Some(events) = &space.target.vary.events else {
            return;
        };
        let path = at!["vary", "events", "most"];
        self.within(path, "most", events.most.into(), 1, 4096);
        let path = at!["vary", "events", "iterations"];
        self.within(path, "iterations", events.iterations.into(), 1, 4);
        if events.actions.is_empty() {
            let message = "actions: expected one at least";
            self.mistake(at!["vary", "events", "actions"], message);
        }
        for action in 0..events.actions.len() {
            let case = Case {
                traffic: space.traffic.clone(),
                hits: vec![Hit {
                    action,
                    ..Hit::default()
                }],
            };
            if let Err(error) = Plan::parse("", &anew(&space.plan(&case))) {
                let message = match error.mistakes.into_iter().next() {
                    Some(mistake) => mistake.message,
                    None => "it can't be done".to_owned(),
                };
                self.mistake(at!["vary", "events", "actions", action], message);
            }
        }
    }

    fn judgement(&mut self, target: &Target) {
        let score = &target.score;
        for (key, weight) in [
            ("counters", score.counters),
            ("completion", score.completion),
            ("innocent", score.innocent),
            ("rules", score.rules),
        ] {
            if !(0.0..=1e6).contains(&weight) {
                let message = format!("weight {weight}, expected 0 to 1000000");
                self.mistake(at!["score", key], message);
            }
        }
        let innocent = target.findings.innocent;
        if innocent != 0.0 && !(1.1..=1e6).contains(&innocent) {
            let message = format!("innocent {innocent}, expected 1.1 to 1000000, or 0");
            self.mistake(at!["findings", "innocent"], message);
        }
        for (index, name) in target.findings.counters.iter().enumerate() {
            if !Counters::names().any(|known| known == name) {
                let message = format!("there is no counter {name}");
                self.mistake(at!["findings", "counters", index], message);
            }
        }
        let search = &target.search;
        for (key, value) in [("pool", search.pool), ("generation", search.generation)] {
            self.within(at!["search", key], key, value.into(), 1, 1000);
        }
    }
}
