// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that the card makes in answer to a packet.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use midwire_endpoints::Port;
use midwire_trace::Lane;
use midwire_trace::packet::syndrome;

use super::short::{self, ShortForm, short_form};
use super::values::text_value;
use super::{Transport, lane_from};

/// A frame that is made in answer to the packet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "kebab-case")]
#[schemars(inline, transform = short::schema::<Self>)]
pub enum Inject {
    /// A TCP reset.
    Rst(Rst),
    /// An acknowledgement: TCP's, or RoCE's when it has a queue pair.
    Ack(Ack),
    /// A RoCE negative acknowledgement.
    Nak(Nak),
    /// A RoCE congestion notification.
    Cnp(Cnp),
    /// An Ethernet pause frame.
    Pause(Pause),
    /// These bytes.
    Frame(Frame),
}

impl ShortForm for Inject {
    const EXPECTED: &str = "rst, ack, nak, cnp or pause, or a mapping of one of these or frame";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        Some(Ok(match word {
            "rst" => Inject::Rst(Rst::default()),
            "ack" => Inject::Ack(Ack::default()),
            "nak" => Inject::Nak(Nak::default()),
            "cnp" => Inject::Cnp(Cnp::default()),
            "pause" => Inject::Pause(Pause::default()),
            _ => return None,
        }))
    }

    fn from_map<'de, D: Deserializer<'de>>(map: D) -> Result<Self, D::Error> {
        Self::deserialize(map)
    }

    fn short_schema() -> Schema {
        json_schema!({"type": "string", "enum": ["rst", "ack", "nak", "cnp", "pause"]})
    }
}

short_form!(Inject);

/// Where a frame that is made goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Toward {
    /// Back to where the packet came from.
    #[default]
    Sender,
    /// Where the packet goes.
    Receiver,
    /// What is plugged into port A.
    A,
    /// What is plugged into port B.
    B,
}

impl Toward {
    /// Whether a frame made of a packet that goes this way goes back.
    pub fn is_back(self, way: Lane) -> bool {
        match self {
            Toward::Sender => true,
            Toward::Receiver => false,
            Toward::A => way == lane_from(Port::A),
            Toward::B => way == lane_from(Port::B),
        }
    }
}

impl fmt::Display for Toward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Toward::Sender => "to the sender",
            Toward::Receiver => "to the receiver",
            Toward::A => "to a",
            Toward::B => "to b",
        })
    }
}

/// A TCP reset of the packet's connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rst {
    /// Where it goes. Default sender.
    #[serde(default)]
    pub toward: Toward,
}

/// An acknowledgement of the packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// Where it goes. Default sender.
    #[serde(default)]
    pub toward: Toward,
    /// TCP: window, as it stands in the header. Default 65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u16>,
    /// RoCE: destination queue pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 0xff_ffff))]
    pub qp: Option<u32>,
    /// RoCE: syndrome of the AETH. Default 0x1f, no credits told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syndrome: Option<u8>,
    /// RoCE: message number of the AETH. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 0xff_ffff))]
    pub msn: Option<u32>,
    /// RoCE: DSCP. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 63))]
    pub dscp: Option<u8>,
}

/// A RoCE negative acknowledgement with the packet's PSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nak {
    /// Where it goes. Default sender.
    #[serde(default)]
    pub toward: Toward,
    /// Destination queue pair. Default that of the packet, to its receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 0xff_ffff))]
    pub qp: Option<u32>,
    /// Syndrome of the AETH. Default 0x60: PSN sequence error.
    #[serde(default = "sequence_error")]
    pub syndrome: u8,
    /// Message number of the AETH. Default 0.
    #[serde(default)]
    #[schemars(range(max = 0xff_ffff))]
    pub msn: u32,
    /// DSCP. Default 0.
    #[serde(default)]
    #[schemars(range(max = 63))]
    pub dscp: u8,
}

fn sequence_error() -> u8 {
    syndrome::SEQUENCE_ERROR
}

impl Default for Nak {
    fn default() -> Self {
        Nak {
            toward: Toward::default(),
            qp: None,
            syndrome: sequence_error(),
            msn: 0,
            dscp: 0,
        }
    }
}

/// A RoCE congestion notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cnp {
    /// Where it goes. Default sender.
    #[serde(default)]
    pub toward: Toward,
    /// Destination queue pair. Default that of the packet, to its receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 0xff_ffff))]
    pub qp: Option<u32>,
    /// DSCP. Default 48.
    #[serde(default = "cnp_dscp")]
    #[schemars(range(max = 63))]
    pub dscp: u8,
}

/// What RNICs send them with by default.
fn cnp_dscp() -> u8 {
    48
}

impl Default for Cnp {
    fn default() -> Self {
        Cnp {
            toward: Toward::default(),
            qp: None,
            dscp: cnp_dscp(),
        }
    }
}

/// A pause of the link, or of some of its priorities.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Where it goes. Default sender.
    #[serde(default)]
    pub toward: Toward,
    /// How long, in times of 512 bits; 0 ends it. Default 65535.
    #[serde(default = "longest")]
    pub quanta: u16,
    /// Priority that shall pause, or a list of them (PFC); without it, the whole link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priorities>,
}

fn longest() -> u16 {
    u16::MAX
}

impl Default for Pause {
    fn default() -> Self {
        Pause {
            toward: Toward::default(),
            quanta: longest(),
            priority: None,
        }
    }
}

/// Priorities of a link: one, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a priority from 0 to 7, or a list of these"
)]
pub enum Priorities {
    /// One.
    One(#[schemars(range(max = 7))] u8),
    /// Several.
    Several(#[schemars(inner(range(max = 7)))] Vec<u8>),
}

impl Priorities {
    /// All of them.
    pub fn list(&self) -> &[u8] {
        match self {
            Priorities::One(priority) => std::slice::from_ref(priority),
            Priorities::Several(priorities) => priorities,
        }
    }

    /// A bit each.
    pub fn mask(&self) -> u8 {
        let bits = self.list().iter().filter(|priority| **priority < 8);
        bits.fold(0, |mask, priority| mask | 1 << priority)
    }
}

/// A frame of these bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
#[schemars(inline, transform = short::schema::<Self>)]
pub struct Frame {
    /// From the destination address on, without FCS.
    pub bytes: FrameBytes,
    /// Where it goes. Default sender.
    #[serde(default)]
    pub toward: Toward,
}

impl ShortForm for Frame {
    const EXPECTED: &str = "the bytes of a frame in hexadecimal, or a mapping of bytes and toward";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        let toward = Toward::default();
        Some(word.parse().map(|bytes| Frame { bytes, toward }))
    }

    fn from_map<'de, D: Deserializer<'de>>(map: D) -> Result<Self, D::Error> {
        Self::deserialize(map)
    }

    fn short_schema() -> Schema {
        FrameBytes::json_schema(&mut SchemaGenerator::default())
    }
}

short_form!(Frame);

/// The bytes of a frame, written in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FrameBytes(pub Vec<u8>);

const BYTES_EXPECTED: &str = "14 to 2047 bytes in hexadecimal, in quotes, without FCS";

impl fmt::Display for FrameBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<_> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&bytes.join(" "))
    }
}

impl FromStr for FrameBytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let digits: Vec<u8> = (text.chars())
            .filter(|c| !c.is_whitespace())
            .map(|c| c.to_digit(16).map(|digit| digit as u8))
            .collect::<Option<_>>()
            .ok_or_else(|| format!("this is no frame: expected {BYTES_EXPECTED}"))?;
        let (pairs, rest) = digits.as_chunks::<2>();
        if !rest.is_empty() || !(14..=2047).contains(&pairs.len()) {
            let length = digits.len() as f64 / 2.0;
            return Err(format!(
                "a frame of {length} bytes: expected {BYTES_EXPECTED}"
            ));
        }
        let bytes = pairs.iter().map(|[high, low]| high << 4 | low);
        Ok(FrameBytes(bytes.collect()))
    }
}

text_value!(
    FrameBytes,
    BYTES_EXPECTED,
    None,
    json_schema!({"type": "string", "pattern": r"^\s*([0-9A-Fa-f]\s*){28,4094}$", "description": BYTES_EXPECTED})
);

impl Inject {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Inject::Rst(_) => "rst",
            Inject::Ack(_) => "ack",
            Inject::Nak(_) => "nak",
            Inject::Cnp(_) => "cnp",
            Inject::Pause(_) => "pause",
            Inject::Frame(_) => "frame",
        }
    }

    /// The transport of the packets of which it is made, if they must be of one.
    pub fn transport(&self) -> Option<Transport> {
        match self {
            Inject::Rst(_) | Inject::Ack(Ack { qp: None, .. }) => Some(Transport::Tcp),
            Inject::Ack(_) | Inject::Nak(_) | Inject::Cnp(_) => Some(Transport::Roce),
            Inject::Pause(_) | Inject::Frame(_) => None,
        }
    }

    /// Where it goes.
    pub fn toward(&self) -> Toward {
        match self {
            Inject::Rst(Rst { toward })
            | Inject::Ack(Ack { toward, .. })
            | Inject::Nak(Nak { toward, .. })
            | Inject::Cnp(Cnp { toward, .. })
            | Inject::Pause(Pause { toward, .. })
            | Inject::Frame(Frame { toward, .. }) => *toward,
        }
    }

    /// Why it can't be made of packets that go this way, and the option that is to blame.
    pub(super) fn mistake(&self, way: Lane) -> Option<(Option<&'static str>, String)> {
        let name = self.name();
        let range = |option, value: u32, most| {
            (value > most).then(|| {
                let reason = format!("{option} {value} of the {name}: expected at most {most}");
                (Some(option), reason)
            })
        };
        let qp = |qp: Option<u32>| match qp {
            Some(qp) => range("qp", qp, 0xff_ffff),
            None => self.toward().is_back(way).then(|| {
                let reason = format!(
                    "a {name} to the sender of the packet needs its queue pair, which the packet \
                     does not tell: expected qp, or toward: receiver"
                );
                (None, reason)
            }),
        };
        match self {
            Inject::Ack(ack) => {
                let Ack {
                    window,
                    qp,
                    syndrome,
                    msn,
                    dscp,
                    ..
                } = *ack;
                let both = [
                    ("window", qp.is_some() && window.is_some()),
                    ("syndrome", qp.is_none() && syndrome.is_some()),
                    ("msn", qp.is_none() && msn.is_some()),
                    ("dscp", qp.is_none() && dscp.is_some()),
                ];
                if let Some((option, _)) = both.into_iter().find(|(_, wrong)| *wrong) {
                    let reason = match qp {
                        Some(_) => format!(
                            "an ack with qp is of RoCE and has no {option}: expected one of them"
                        ),
                        None => {
                            format!("an ack without qp is of TCP and has no {option}: expected qp")
                        }
                    };
                    return Some((Some(option), reason));
                }
                qp.and_then(|qp| range("qp", qp, 0xff_ffff))
                    .or_else(|| range("msn", msn.unwrap_or(0), 0xff_ffff))
                    .or_else(|| range("dscp", dscp.unwrap_or(0).into(), 63))
            }
            Inject::Nak(nak) => qp(nak.qp)
                .or_else(|| range("msn", nak.msn, 0xff_ffff))
                .or_else(|| range("dscp", nak.dscp.into(), 63)),
            Inject::Cnp(cnp) => qp(cnp.qp).or_else(|| range("dscp", cnp.dscp.into(), 63)),
            Inject::Pause(Pause {
                priority: Some(priorities),
                ..
            }) => match priorities.list() {
                [] => Some((
                    Some("priority"),
                    "a pause of no priority: expected one from 0 to 7 at least".to_owned(),
                )),
                list => (list.iter()).find_map(|&priority| range("priority", priority.into(), 7)),
            },
            Inject::Rst(_) | Inject::Pause(_) | Inject::Frame(_) => None,
        }
    }
}

impl fmt::Display for Inject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), self.toward())?;
        match self {
            Inject::Ack(Ack { qp: Some(qp), .. })
            | Inject::Nak(Nak { qp: Some(qp), .. })
            | Inject::Cnp(Cnp { qp: Some(qp), .. }) => write!(f, ", queue pair {qp}"),
            Inject::Pause(Pause {
                quanta,
                priority: Some(priority),
                ..
            }) => {
                let list: Vec<_> = priority.list().iter().map(u8::to_string).collect();
                write!(f, ", priority {} for {quanta}", list.join(" and "))
            }
            Inject::Pause(Pause { quanta, .. }) => write!(f, " for {quanta}"),
            Inject::Frame(frame) => write!(f, ", {} bytes", frame.bytes.0.len()),
            _ => Ok(()),
        }
    }
}
