// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan: what is plugged into the card, what traffic runs, what happens to which packets,
//! and what is expected of the device under test. A YAML file, described in docs/plan.md.
//!
//! The types below are the one source of the format: serde reads them, [`schema`] prints them.
//! What types can't say is checked in [`check`], and each mistake is found by line and column.

pub(crate) mod check;
mod edit;
mod inject;
mod linux;
pub(crate) mod rdma;
mod short;
pub(crate) mod source;
pub(crate) mod values;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use midwire_endpoints::traffic::Direction;
use midwire_endpoints::{Port, TapHost};
use midwire_trace::Lane;
use schemars::{JsonSchema, Schema, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_saphyr::{MessageFormatter, RenderOptions, SnippetMode, UserMessageFormatter};

pub use edit::{Base, Break, Corrupt, Ecn, HexBytes, Mend, Set, TcpFlags};
pub use inject::{Ack, Cnp, Frame, FrameBytes, Inject, Nak, Pause, Priorities, Rst, Toward};
pub use linux::{LinuxClock, LinuxEndpoint, LinuxPlace};
pub use rdma::{
    CompletionExpectation, CounterExpectation, Dcqcn, FindingsExpectation, RdmaTraffic,
    RnicEndpoint, Verb,
};
use short::{ShortForm, short_form};
pub use source::Place;
pub use values::{
    Duration, IterationRange, Iterations, Network, Numbers, Probability, RunLength, Size,
};

/// The one version of the format.
pub const VERSION: u32 = 1;

/// A test: everything a run needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of the format, 1.
    #[schemars(range(min = 1, max = 1))]
    pub version: u32,
    /// Short name: letters, digits, `-`, `_` and `.`; names the run's directory.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"))]
    pub name: String,
    /// What the test asks, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How the virtual card is built and clocked.
    #[serde(default)]
    pub card: CardSpec,
    /// What is plugged into the two ports.
    pub endpoints: Endpoints,
    /// Which connections are counted; without any, every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<Selector>,
    /// What runs, one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<Traffic>,
    /// How long a run with external endpoints lasts when the plan has no traffic of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<RunLength>,
    /// What happens to which packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// What the device under test has to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<Expectation>,
    /// What is written down of each packet.
    #[serde(default)]
    pub capture: CaptureSpec,
    /// How long the steps of a run may take.
    #[serde(default)]
    pub timeouts: Timeouts,
}

/// How the virtual card is built and clocked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CardSpec {
    /// Bits of the core's data path: 512 (100G) or 64 (10G). Default 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [64, 512, null]))]
    pub width: Option<u32>,
    /// Follows from the endpoints: wall for TAPs, virtual for Linux hosts, pcap files and model NICs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<CardTime>,
}

/// What the card's time follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CardTime {
    /// The host's clock.
    Wall,
    /// A calendar of its own that skips idle time: repeatable bit for bit.
    Virtual,
}

/// The endpoints at port A and port B.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Endpoints {
    /// At port A.
    pub a: Endpoint,
    /// At port B.
    pub b: Endpoint,
}

/// What is plugged into a port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// A Linux host in a network namespace of its own.
    Tap(TapHost),
    /// A Linux kernel of its own, in virtual time.
    Linux(LinuxEndpoint),
    /// A model of an RDMA NIC.
    Rnic(RnicEndpoint),
    /// A capture file whose frames come in at this port.
    Pcap(PcapEndpoint),
    /// Whatever is plugged into a card that is there already.
    External,
}

/// A capture file played into the port, and where frames that leave there go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PcapEndpoint {
    /// Frames that come in, pcap or pcapng; relative to the plan. Without it the port is silent.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub input: Option<PathBuf>,
    /// When they come in.
    #[serde(default)]
    pub pace: Pace,
    /// Frames that leave at this port, pcapng; relative to the run's directory.
    #[serde(default, rename = "out", skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
}

/// When the frames of a file come in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// At their recorded times.
    #[default]
    Recorded,
    /// Back to back.
    LineRate,
}

/// Admits connections by the packet that opens them; what is left out may be anything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// Transport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// TCP destination port of the opener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// RoCE destination queue pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 0xff_ffff))]
    pub qp: Option<u32>,
    /// Source address or network of the opener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Network>,
    /// Destination address or network of the opener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Network>,
    /// Port of the card at which the opener comes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Port>,
}

/// A transport whose connections are tracked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// RoCEv2.
    Roce,
}

/// The way of what the endpoint at a port sends.
pub fn lane_from(port: Port) -> Lane {
    match port {
        Port::A => Lane::AtoB,
        Port::B => Lane::BtoA,
    }
}

/// The schema of a way of packets through the card: a lane.
fn lane_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let words: Vec<_> = Lane::ALL.iter().map(|lane| lane.as_str()).collect();
    schemars::json_schema!({"type": "string", "enum": words})
}

/// Something that makes packets. Entries run one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Built-in TCP transfer.
    Tcp(TcpTraffic),
    /// RDMA messages between model NICs.
    Rdma(RdmaTraffic),
    /// Any program, run at an endpoint.
    Command(CommandTraffic),
}

/// A TCP transfer; every byte that arrives is compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpTraffic {
    /// Endpoint that connects.
    pub from: Port,
    /// Endpoint that listens.
    pub to: Port,
    /// Bytes of each connection, in each direction that is used.
    pub bytes: Size,
    /// Which way they go, seen from the endpoint that connects. Default send.
    #[serde(default)]
    pub direction: Direction,
    /// Connections at the same time. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1024))]
    pub connections: u32,
    /// Port of the listener. Default 5001.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1))]
    pub port: u16,
    /// Source port of the first connection, the next of the second and so on; the system's choice
    /// without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub source_port: Option<u16>,
    /// Congestion control of both ends; each host's default without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Small segments are sent at once (TCP_NODELAY).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_delay: bool,
    /// Bytes that are handed to the socket at a time. Default 64KiB.
    #[serde(default = "default_write_size")]
    pub write_size: Size,
}

impl TcpTraffic {
    /// The way of its data; nothing when it goes both ways.
    pub fn data(&self) -> Option<Lane> {
        match self.direction {
            Direction::Send => Some(lane_from(self.from)),
            Direction::Receive => Some(lane_from(self.from).other()),
            Direction::Both => None,
        }
    }
}

fn default_write_size() -> Size {
    Size(64 << 10)
}

fn one() -> u32 {
    1
}

fn default_port() -> u16 {
    5001
}

/// A program run by a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandTraffic {
    /// Where it runs.
    pub on: Site,
    /// Command line for `sh -c`.
    pub run: String,
    /// Go on with the next entry at once; it is ended when all others are done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}

/// Where a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Site {
    /// In the host at port A.
    A,
    /// In the host at port B.
    B,
    /// On this machine, outside the hosts.
    Here,
}

impl Site {
    /// The host's port; nothing for this machine.
    pub fn port(self) -> Option<Port> {
        match self {
            Site::A => Some(Port::A),
            Site::B => Some(Port::B),
            Site::Here => None,
        }
    }
}

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

/// What the device under test has to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Expectation {
    /// How the traffic ends.
    Traffic(TrafficOutcome),
    /// A packet is sent again.
    Retransmission(RetransmissionExpectation),
    /// How many packets are sent again.
    Retransmissions(RetransmissionCount),
    /// What a model NIC has counted.
    Counter(CounterExpectation),
    /// What the analysis of RoCE finds fault with.
    Findings(FindingsExpectation),
    /// How long RDMA messages take.
    Completion(CompletionExpectation),
}

/// How the traffic ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrafficOutcome {
    /// Every entry ends by itself and without error, and every byte arrives as it was sent.
    Completes,
    /// At least one entry fails or runs into the time limit.
    Fails,
}

/// A packet that has to be sent again. At most one of `packet` and `byte`; neither: any packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetransmissionExpectation {
    /// Connection, from 0.
    #[serde(default)]
    pub connection: u32,
    /// Direction of the packet; either by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "lane_schema")]
    pub direction: Option<Lane>,
    /// The n-th segment of new data, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub packet: Option<u32>,
    /// The segment that covers this byte of the stream, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub byte: Option<u64>,
    /// At most this long after the packet was sent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Duration>,
    /// What made the sender do it.
    #[serde(default)]
    pub cause: ExpectedCause,
}

/// What made the sender send again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedCause {
    /// Whatever it was.
    #[default]
    Any,
    /// Duplicate or selective acknowledgements.
    Fast,
    /// The retransmission timer.
    Timeout,
    /// A tail loss probe.
    TailProbe,
}

impl fmt::Display for ExpectedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExpectedCause::Any => "any",
            ExpectedCause::Fast => "fast",
            ExpectedCause::Timeout => "timeout",
            ExpectedCause::TailProbe => "tail-probe",
        })
    }
}

/// How many packets of a connection are sent again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetransmissionCount {
    /// Connection, from 0.
    #[serde(default)]
    pub connection: u32,
    /// Direction of the packets; both by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "lane_schema")]
    pub direction: Option<Lane>,
    /// Not fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<u64>,
    /// Not more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u64>,
}

/// What is written down of each packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureSpec {
    /// First bytes of each frame, to whole 32 bytes, at most 10240. Default 128.
    #[serde(default = "default_snapshot")]
    pub snapshot: Size,
}

fn default_snapshot() -> Size {
    Size(128)
}

impl Default for CaptureSpec {
    fn default() -> Self {
        CaptureSpec {
            snapshot: default_snapshot(),
        }
    }
}

/// How long the steps of a run may take, on the host's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    /// All traffic. Default 60s.
    #[serde(default = "default_traffic_timeout")]
    pub traffic: Duration,
    /// Silence on both ports after which a run is over. Default 250ms.
    #[serde(default = "default_quiet")]
    pub quiet: Duration,
    /// Time after which a reordered packet leaves though too few left before it. Default 100ms.
    #[serde(default = "default_reorder_timeout")]
    pub reorder: Duration,
}

fn default_traffic_timeout() -> Duration {
    Duration(60_000_000_000)
}

fn default_quiet() -> Duration {
    Duration(250_000_000)
}

fn default_reorder_timeout() -> Duration {
    Duration(100_000_000)
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            traffic: default_traffic_timeout(),
            quiet: default_quiet(),
            reorder: default_reorder_timeout(),
        }
    }
}

/// One mistake in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where it stands.
    pub place: Place,
    /// What is wrong and what was expected.
    pub message: String,
}

/// A plan that can't be used: every mistake found, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// Name of the file.
    pub file: String,
    /// At least one.
    pub mistakes: Vec<Mistake>,
}

impl PlanError {
    /// Of mistakes in any order.
    pub(crate) fn of(file: &str, mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort_by_key(|mistake| mistake.place);
        PlanError {
            file: file.to_owned(),
            mistakes,
        }
    }

    pub(crate) fn one(file: &str, place: Place, message: String) -> Self {
        PlanError {
            file: file.to_owned(),
            mistakes: vec![Mistake { place, message }],
        }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Mistake { place, message }) in self.mistakes.iter().enumerate() {
            let end = if i > 0 { "\n" } else { "" };
            write!(
                f,
                "{end}{}:{}:{}: {message}",
                self.file, place.line, place.column
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for PlanError {}

/// Longest plan that is read.
const MAX_TEXT: usize = 16 << 20;

impl Plan {
    /// Reads and checks a plan; `file` names it in mistakes.
    pub fn parse(file: &str, text: &str) -> Result<Plan, PlanError> {
        let (plan, tree) = located(file, text, "plans", VERSION)?;
        let mistakes = check::check(&plan, &tree);
        match mistakes.is_empty() {
            true => Ok(plan),
            false => Err(PlanError::of(file, mistakes)),
        }
    }

    /// Reads and checks the bytes of a plan; text that is not UTF-8 is a mistake like others.
    pub fn parse_bytes(file: &str, bytes: &[u8]) -> Result<Plan, PlanError> {
        Plan::parse(file, read_text(file, bytes)?)
    }

    /// Reads and checks a file; gives its text too.
    pub fn read(path: &Path) -> Result<(Plan, String), crate::Error> {
        let bytes = std::fs::read(path).map_err(|source| crate::Error::ReadPlan {
            path: path.into(),
            source,
        })?;
        let plan = Plan::parse_bytes(&path.display().to_string(), &bytes)?;
        Ok((plan, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// What the card's time follows.
    pub fn time(&self) -> CardTime {
        match self.endpoints.a {
            Endpoint::Tap(_) | Endpoint::External => CardTime::Wall,
            Endpoint::Linux(_) | Endpoint::Pcap(_) | Endpoint::Rnic(_) => CardTime::Virtual,
        }
    }

    /// What a byte takes on a line of the card.
    pub(crate) fn byte_ps(&self) -> u64 {
        match self.width() {
            64 => 800,
            _ => 80,
        }
    }

    /// Bits of the core's data path.
    pub fn width(&self) -> u32 {
        self.card.width.unwrap_or(512)
    }

    /// The two endpoints when they are hosts: what these have in common, whether in network
    /// namespaces or in virtual time.
    fn hosts(&self) -> Option<[Cow<'_, TapHost>; 2]> {
        match (&self.endpoints.a, &self.endpoints.b) {
            (Endpoint::Tap(a), Endpoint::Tap(b)) => Some([a, b].map(Cow::Borrowed)),
            (Endpoint::Linux(a), Endpoint::Linux(b)) => {
                Some([a, b].map(|host| Cow::Owned(host.host())))
            }
            _ => None,
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

/// The text of a file: one that is not UTF-8 has its mistake there.
pub(crate) fn read_text<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, PlanError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let good = &bytes[..error.valid_up_to()];
        let line = good.iter().filter(|&&byte| byte == b'\n').count() as u64 + 1;
        let start = good
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(&good[start..]).chars().count() as u64 + 1;
        let message = "not UTF-8: expected YAML in UTF-8".to_owned();
        PlanError::one(file, Place { line, column }, message)
    })
}

/// Reads YAML that says its version, and where in the text each value stands.
pub(crate) fn located<T: de::DeserializeOwned>(
    file: &str,
    text: &str,
    nouns: &str,
    version: u32,
) -> Result<(T, source::Node), PlanError> {
    let tree: source::Node = read_yaml(file, text)?;
    // The version first: what else a text of another version says can't be judged.
    if tree.has("version") && tree.unsigned("version") != Some(version.into()) {
        let message = format!("version: this midwire reads version {version} of {nouns}");
        let place = tree.place(source::at!["version"]);
        return Err(PlanError::one(file, place, message));
    }
    Ok((read_yaml(file, text)?, tree))
}

/// Reads YAML; `file` names it in mistakes.
pub(crate) fn read_yaml<T: de::DeserializeOwned>(file: &str, text: &str) -> Result<T, PlanError> {
    if text.len() > MAX_TEXT {
        let message = format!("{} bytes: expected at most {MAX_TEXT}", text.len());
        return Err(PlanError::one(file, Place::START, message));
    }
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let (place, message) = explain(&error);
        PlanError::one(file, place, message)
    })
}

/// Limits under which no text can exhaust stack or memory.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 32 },
        with_snippet: false,
    }
}

/// Place and message of an error of the YAML reader.
fn explain(error: &serde_saphyr::Error) -> (Place, String) {
    let error = error.without_snippet();
    let place = error.location().map_or(Place::START, Place::of);
    let formatter: &dyn MessageFormatter = &UserMessageFormatter;
    let mut options = RenderOptions::new(formatter);
    options.snippets = SnippetMode::Off;
    let rendered = error.render_with_options(options);
    // The place is told once, at the front.
    let message = rendered
        .rsplit_once(" at line ")
        .map_or(rendered.as_str(), |(message, _)| message);
    let message = match message {
        "invalid u8" => "expected a whole number from 0 to 255",
        "invalid u16" => "expected a whole number from 0 to 65535",
        "invalid u32" => "expected a whole number from 0 to 4294967295",
        "invalid u64" => "expected a whole number from 0",
        "unexpected end of file" => {
            "unexpected end of the text, expected a plan: version: 1, name, endpoints …"
        }
        "expected mapping start" => "expected a mapping of keys to values",
        other => other,
    };
    (place, message.to_owned())
}

/// The JSON Schema of plans.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Plan).to_value()
}

#[cfg(test)]
mod tests;
