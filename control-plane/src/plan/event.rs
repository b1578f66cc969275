// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of a plan: which packets, and what happens to them.

use std::fmt;

use midwire_trace::Lane;
use schemars::{JsonSchema, Schema, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::short::{self, ShortForm, short_form};
use super::{
    Break, Corrupt, Duration, Ecn, Inject, Iterations, Mend, Numbers, Probability, Set, edit,
    lane_schema,
};

/// Which packets, and what happens to them. Exactly one of `packet`, `byte`, `psn` and `count`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// What other events call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Connection, from 0 in order of appearance among those the selectors admit. Default 0.
    #[serde(default)]
    pub connection: Connections,
    /// Direction of the packet.
    #[schemars(schema_with = "lane_schema")]
    pub direction: Lane,
    /// Kind of packet, or several. Default data; any for packets of no connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kinds>,
    /// The n-th packet of its kind, from 1. TCP data: the n-th segment of new data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "Numbers::counted_schema")]
    pub packet: Option<Numbers>,
    /// The TCP segments that cover this byte of the stream, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub byte: Option<Numbers>,
    /// The RoCE data packet or read request with this PSN, relative to the first, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psn: Option<Numbers>,
    /// The n-th of all packets that this event could mean, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "Numbers::counted_schema")]
    pub count: Option<Numbers>,
    /// Every n-th of them. Default 1: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub every: Option<u32>,
    /// Which times that this position is seen; the first by default.
    #[serde(default = "Iterations::first")]
    pub iterations: Iterations,
    /// How likely it happens to each of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<Probability>,
    /// How likely it happens, as losses come in bursts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// At most so often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub times: Option<u32>,
    /// Only once the event of this name has happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// And only until the event of this name has happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// What happens to the packet.
    pub action: Action,
}

/// Whose packets an event means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// Those of one connection, by its number.
    One(u32),
    /// Those of each connection.
    All,
    /// Those that belong to none.
    None,
}

impl Default for Connections {
    fn default() -> Self {
        Connections::One(0)
    }
}

impl fmt::Display for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Connections::One(number) => write!(f, "connection {number}"),
            Connections::All => f.write_str("all connections"),
            Connections::None => f.write_str("no connection"),
        }
    }
}

impl Serialize for Connections {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Connections::One(number) => serializer.serialize_u32(*number),
            Connections::All => serializer.serialize_str("all"),
            Connections::None => serializer.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for Connections {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Connections;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number of a connection from 0 to 65534, all or none")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Connections, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(value), &self);
                u32::try_from(value).map(Connections::One).map_err(wrong)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Connections, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Signed(value), &self);
                u32::try_from(value).map(Connections::One).map_err(wrong)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Connections, E> {
                match text {
                    "all" => Ok(Connections::All),
                    "none" => Ok(Connections::None),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl JsonSchema for Connections {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Connections".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 65534},
                {"type": "string", "enum": ["all", "none"]},
            ],
        })
    }
}

/// Kinds of packets: one, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected one of data, ack, nak, cnp, syn, fin, rst and any, or a list of these"
)]
pub enum Kinds {
    /// One.
    One(Kind),
    /// Several.
    Several(Vec<Kind>),
}

impl Kinds {
    /// All of them.
    pub fn list(&self) -> &[Kind] {
        match self {
            Kinds::One(kind) => std::slice::from_ref(kind),
            Kinds::Several(kinds) => kinds,
        }
    }
}

/// Losses that come in bursts: a chain of two states, good at first, that makes a step with each
/// packet (Gilbert and Elliott).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// How likely a burst begins behind a packet.
    pub begins: Probability,
    /// How likely a burst ends behind a packet.
    pub ends: Probability,
    /// How likely it happens to a packet in a burst. Default 1.
    #[serde(default = "certain")]
    pub inside: Probability,
    /// How likely it happens to a packet between bursts. Default 0.
    #[serde(default = "never")]
    pub outside: Probability,
}

fn certain() -> Probability {
    Probability::CERTAIN
}

fn never() -> Probability {
    Probability::NEVER
}

/// What a packet is.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Carries payload.
    #[default]
    Data,
    /// Acknowledges and carries no payload.
    Ack,
    /// RoCE negative acknowledgement.
    Nak,
    /// RoCE congestion notification.
    Cnp,
    /// TCP SYN, also with ACK.
    Syn,
    /// TCP FIN.
    Fin,
    /// TCP RST.
    Rst,
    /// Every packet.
    Any,
}

impl From<Kind> for midwire_trace::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Data => Self::Data,
            Kind::Ack => Self::Ack,
            Kind::Nak => Self::Nak,
            Kind::Cnp => Self::Cnp,
            Kind::Syn => Self::Syn,
            Kind::Fin => Self::Fin,
            Kind::Rst => Self::Rst,
            Kind::Any => Self::Any,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Data => "data",
            Kind::Ack => "ack",
            Kind::Nak => "nak",
            Kind::Cnp => "cnp",
            Kind::Syn => "syn",
            Kind::Fin => "fin",
            Kind::Rst => "rst",
            Kind::Any => "any",
        })
    }
}

/// What happens to the packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
#[schemars(inline, transform = short::schema::<Self>)]
pub struct Action {
    /// The packet does not leave.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drop: bool,
    /// What the ECN field becomes, true: CE. The IPv4 checksum is mended.
    #[serde(
        deserialize_with = "edit::ecn",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "edit::ecn_schema")]
    pub ecn: Option<Ecn>,
    /// Header fields are rewritten, by name, or up to 8 bytes at an offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<Set>,
    /// One byte is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<Corrupt>,
    /// Checksums that the packet leaves with wrong.
    #[serde(rename = "break", skip_serializing_if = "Break::is_none")]
    pub broken: Break,
    /// So many bytes of the frame are kept, without FCS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10239))]
    pub truncate: Option<u32>,
    /// The packet leaves this much later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Later packets leave before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// The packet leaves more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Duplicate>,
    /// A frame is made in answer to it and sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inject: Option<Inject>,
}

impl ShortForm for Action {
    const EXPECTED: &str = "drop, ecn, none, or a mapping of drop, ecn, set, corrupt, break, truncate, delay, reorder, duplicate and inject";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        let mut action = Self::default();
        match word {
            "none" => {}
            "drop" => action.drop = true,
            "ecn" => action.ecn = Some(Ecn::Ce),
            _ => return None,
        }
        Some(Ok(action))
    }

    fn from_map<'de, D: Deserializer<'de>>(map: D) -> Result<Self, D::Error> {
        Self::deserialize(map)
    }

    fn short_schema() -> Schema {
        json_schema!({"type": "string", "enum": ["none", "drop", "ecn"]})
    }
}

short_form!(Action);

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.drop {
            parts.push("drop".to_owned());
        }
        match self.ecn {
            None => {}
            Some(Ecn::Ce) => parts.push("ecn".to_owned()),
            Some(other) => parts.push(format!("ecn {other}")),
        }
        if let Some(set) = &self.set {
            parts.push(format!("set {set}"));
        }
        if let Some(corrupt) = &self.corrupt {
            parts.push(format!("corrupt {corrupt}"));
        }
        if !self.broken.is_none() {
            parts.push(format!("break {}", self.broken));
        }
        if let Some(bytes) = self.truncate {
            parts.push(format!("truncate to {bytes} bytes"));
        }
        if let Some(delay) = self.delay {
            parts.push(format!("delay {delay}"));
        }
        if let Some(reorder) = self.reorder {
            parts.push(format!("reorder {reorder}"));
        }
        if let Some(duplicate) = self.duplicate {
            parts.push(format!("duplicate {duplicate}"));
        }
        if let Some(inject) = &self.inject {
            parts.push(format!("inject {inject}"));
        }
        match parts.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&parts.join(" + ")),
        }
    }
}

impl Action {
    /// What happens to a packet that is dropped, by this or by another event.
    pub(crate) fn of_dropped(&self) -> Action {
        Action {
            drop: self.drop,
            inject: self.inject.clone(),
            ..Action::default()
        }
    }

    /// Checksums in which the changes are made good, when there are any. `set` and `corrupt` of
    /// one packet share them: otherwise there is no answer.
    pub(crate) fn mend(&self) -> Result<Option<Mend>, ()> {
        match (&self.set, &self.corrupt) {
            (Some(set), Some(corrupt)) if set.mend != corrupt.mend => Err(()),
            (Some(set), _) => Ok(Some(set.mend)),
            (None, corrupt) => Ok(corrupt.map(|corrupt| corrupt.mend)),
        }
    }
}

/// Later packets that leave before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
#[schemars(inline, transform = short::schema::<Self>)]
pub struct Reorder {
    /// So many later packets leave before it.
    #[schemars(range(min = 1, max = 65535))]
    pub after: u32,
    /// Whose packets count. Default connection.
    #[serde(default)]
    pub of: ReorderScope,
}

/// Whose packets count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReorderScope {
    /// Those of the packet's connection, in its direction.
    #[default]
    Connection,
    /// All that go in its direction.
    Lane,
}

impl ShortForm for Reorder {
    const EXPECTED: &str = "a number of packets, or a mapping of after and of";

    fn from_number(number: u64) -> Option<Self> {
        let after = number.try_into().ok()?;
        let of = ReorderScope::default();
        Some(Reorder { after, of })
    }

    fn from_map<'de, D: Deserializer<'de>>(map: D) -> Result<Self, D::Error> {
        Self::deserialize(map)
    }

    fn short_schema() -> Schema {
        json_schema!({"type": "integer", "minimum": 1, "maximum": 65535})
    }
}

short_form!(Reorder);

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.after)?;
        match self.of {
            ReorderScope::Connection => Ok(()),
            ReorderScope::Lane => f.write_str(" of the lane"),
        }
    }
}

/// Copies besides the packet itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
#[schemars(inline, transform = short::schema::<Self>)]
pub struct Duplicate {
    /// How many besides the packet itself. Default 1.
    #[serde(default = "one_copy")]
    #[schemars(range(min = 1, max = 255))]
    pub copies: u32,
    /// From the packet to its first copy, and from copy to copy. Default 0ns: back to back.
    #[serde(default = "no_gap")]
    pub gap: Duration,
}

fn one_copy() -> u32 {
    1
}

fn no_gap() -> Duration {
    Duration(0)
}

impl ShortForm for Duplicate {
    const EXPECTED: &str = "a number of copies, or a mapping of copies and gap";

    fn from_number(number: u64) -> Option<Self> {
        let copies = number.try_into().ok()?;
        let gap = no_gap();
        Some(Duplicate { copies, gap })
    }

    fn from_map<'de, D: Deserializer<'de>>(map: D) -> Result<Self, D::Error> {
        Self::deserialize(map)
    }

    fn short_schema() -> Schema {
        json_schema!({"type": "integer", "minimum": 1, "maximum": 255})
    }
}

short_form!(Duplicate);

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.copies)?;
        match self.gap {
            Duration(0) => Ok(()),
            gap => write!(f, " by {gap}"),
        }
    }
}

impl Event {
    /// One that names no packet yet.
    pub(crate) fn new(direction: Lane, action: Action) -> Self {
        Event {
            name: None,
            connection: Connections::default(),
            direction,
            kind: None,
            packet: None,
            byte: None,
            psn: None,
            count: None,
            every: None,
            iterations: Iterations::first(),
            probability: None,
            burst: None,
            times: None,
            after: None,
            until: None,
            action,
        }
    }

    /// Its kinds of packets, as given or by default.
    pub fn kinds(&self) -> &[Kind] {
        match &self.kind {
            Some(kinds) => kinds.list(),
            None if self.connection == Connections::None => &[Kind::Any],
            None => &[Kind::Data],
        }
    }

    /// The key that says which packets, and their numbers: the first of several, which are a
    /// mistake.
    pub fn numbers(&self) -> Option<(&'static str, &Numbers)> {
        self.named().next()
    }

    /// All such keys.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &Numbers)> {
        let keys = [
            ("packet", &self.packet),
            ("byte", &self.byte),
            ("psn", &self.psn),
            ("count", &self.count),
        ];
        keys.into_iter()
            .filter_map(|(key, numbers)| Some((key, numbers.as_ref()?)))
    }

    /// The identity in words, without direction and iterations: `connection 0 packet 5`.
    pub fn identity_text(&self) -> String {
        format!("{} {}", self.connection, self.position_text())
    }

    /// The position in words: `packet 5`, `ack 3`, `byte 100000`, `every 10th packet 1-`.
    pub fn position_text(&self) -> String {
        let Some((key, numbers)) = self.numbers() else {
            return "packet ?".to_owned();
        };
        let kinds: Vec<_> = self.kinds().iter().map(Kind::to_string).collect();
        let kinds = match self.kinds() {
            [Kind::Data] => String::new(),
            _ => kinds.join(" or "),
        };
        let what = match (key, kinds.as_str()) {
            ("packet", "") => "packet".to_owned(),
            ("packet", kinds) => kinds.to_owned(),
            ("count", "") => "data by count".to_owned(),
            ("count", kinds) => format!("{kinds} by count"),
            (key, _) => key.to_owned(),
        };
        match self.every {
            Some(n) if n != 1 => format!("every {} {what} {numbers}", ordinal(n)),
            _ => format!("{what} {numbers}"),
        }
    }
}

/// `2nd`, `10th`
fn ordinal(n: u32) -> String {
    let end = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{end}")
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} {}, {}, iteration {}",
            self.action,
            self.connection,
            self.direction,
            self.position_text(),
            self.iterations
        )?;
        if let Some(probability) = self.probability {
            write!(f, ", {probability} likely")?;
        }
        if let Some(burst) = self.burst {
            let Burst {
                begins,
                ends,
                inside,
                outside,
            } = burst;
            write!(
                f,
                ", in bursts ({begins} begin, {ends} end, {inside} in, {outside} out)"
            )?;
        }
        if let Some(times) = self.times {
            write!(f, ", at most {}", crate::text::times(times.into()))?;
        }
        if let Some(name) = &self.after {
            write!(f, ", after {name}")?;
        }
        if let Some(name) = &self.until {
            write!(f, " until {name}")?;
        }
        Ok(())
    }
}
