// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan: what is plugged into the card, what traffic runs, what happens to which packets,
//! and what is expected of the device under test. A YAML file, described in docs/plan.md.
//!
//! The types below are the one source of the format: serde reads them, [`schema`] prints them.
//! What types can't say is checked in [`check`], and each mistake is found by line and column.

mod agent;
pub(crate) mod check;
mod edit;
mod event;
mod expectation;
mod inject;
mod linux;
pub(crate) mod rdma;
mod short;
pub(crate) mod source;
pub(crate) mod values;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use midwire_endpoints::rnic::RdmaTransfer;
use midwire_endpoints::traffic::Direction;
use midwire_endpoints::{Port, TapHost};
use midwire_trace::Lane;
use schemars::JsonSchema;
use serde::de;
use serde::{Deserialize, Serialize};
use serde_saphyr::{MessageFormatter, RenderOptions, SnippetMode, UserMessageFormatter};

pub use agent::AgentEndpoint;
pub use edit::{Base, Break, Corrupt, Ecn, HexBytes, Mend, Set, TcpFlags};
pub use event::{Action, Burst, Connections, Duplicate, Event, Kind, Kinds, Reorder, ReorderScope};
pub use expectation::{
    CompletionExpectation, CounterExpectation, Expectation, ExpectedCause, FindingsExpectation,
    RetransmissionCount, RetransmissionExpectation, TrafficOutcome,
};
pub use inject::{Ack, Cnp, Frame, FrameBytes, Inject, Nak, Pause, Priorities, Rst, Toward};
pub use linux::{LinuxClock, LinuxEndpoint, LinuxPlace};
pub use rdma::{Dcqcn, RdmaTraffic, RnicEndpoint, Verb};
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
    /// What runs, one after the other, but for entries that run together.
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

impl Endpoints {
    /// The one at a port.
    pub fn at(&self, port: Port) -> &Endpoint {
        match port {
            Port::A => &self.a,
            Port::B => &self.b,
        }
    }

    /// Both, with their ports.
    pub fn both(&self) -> [(Port, &Endpoint); 2] {
        Port::ALL.map(|port| (port, self.at(port)))
    }

    /// Both.
    pub fn both_mut(&mut self) -> [&mut Endpoint; 2] {
        [&mut self.a, &mut self.b]
    }
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
    /// A real host that sends RDMA messages.
    Agent(AgentEndpoint),
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
    midwire_trace::Port::from(port).lane()
}

/// The schema of a way of packets through the card: a lane.
fn lane_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let words: Vec<_> = Lane::ALL.iter().map(|lane| lane.as_str()).collect();
    schemars::json_schema!({"type": "string", "enum": words})
}

/// Something that makes packets. Entries run one after the other, but for those that run together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Built-in TCP transfer.
    Tcp(TcpTraffic),
    /// RDMA messages between NICs.
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

    /// Whether the endpoints are plugged into a card that is there already.
    pub(crate) fn is_external(&self) -> bool {
        matches!(self.endpoints.a, Endpoint::External | Endpoint::Agent(_))
    }

    /// What the card's time follows.
    pub fn time(&self) -> CardTime {
        match self.endpoints.a {
            Endpoint::Tap(_) | Endpoint::Agent(_) | Endpoint::External => CardTime::Wall,
            Endpoint::Linux(_) | Endpoint::Pcap(_) | Endpoint::Rnic(_) => CardTime::Virtual,
        }
    }

    /// Whether hosts send RDMA messages by their agents, which tell the card of their queue pairs.
    pub(crate) fn sends_rdma(&self) -> bool {
        let hosts = matches!(self.endpoints.a, Endpoint::Linux(_) | Endpoint::Agent(_));
        hosts && self.traffic.iter().any(|t| matches!(t, Traffic::Rdma(_)))
    }

    /// The RDMA traffic, for NICs.
    pub(crate) fn transfers(&self) -> Vec<RdmaTransfer> {
        let entries = self.traffic.iter();
        let transfer = |traffic: &Traffic| match traffic {
            Traffic::Rdma(rdma) => Some(rdma.transfer()),
            _ => None,
        };
        entries.filter_map(transfer).collect()
    }

    /// Whether RDMA entries run together. Model NICs, too, tell the card of their queue pairs then,
    /// for which of them are the first on the wire nobody can foresee.
    pub(crate) fn runs_together(&self) -> bool {
        let together = |t: &Traffic| matches!(t, Traffic::Rdma(rdma) if rdma.together);
        self.traffic.iter().any(together)
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
