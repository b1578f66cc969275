// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What changes in the bytes of a packet: the ECN field, a byte, header fields, checksums.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::Transport;
use super::values::text_value;

/// What the ECN field becomes (RFC 3168): true is CE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ecn {
    /// The transport does not speak ECN.
    NotEct = 0,
    /// ECT(1).
    Ect1 = 1,
    /// ECT(0).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

const ECN_EXPECTED: &str = "true (ce), or not-ect, ect0, ect1 or ce";

impl fmt::Display for Ecn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ecn::NotEct => "not-ect",
            Ecn::Ect1 => "ect1",
            Ecn::Ect0 => "ect0",
            Ecn::Ce => "ce",
        })
    }
}

/// Reads the value of `ecn`: false asks for nothing.
pub(super) fn ecn<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Ecn>, D::Error> {
    struct Reader;
    impl Visitor<'_> for Reader {
        type Value = Option<Ecn>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(ECN_EXPECTED)
        }
        fn visit_bool<E: de::Error>(self, ce: bool) -> Result<Option<Ecn>, E> {
            Ok(ce.then_some(Ecn::Ce))
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<Ecn>, E> {
            match text {
                "not-ect" => Ok(Some(Ecn::NotEct)),
                "ect1" => Ok(Some(Ecn::Ect1)),
                "ect0" => Ok(Some(Ecn::Ect0)),
                "ce" => Ok(Some(Ecn::Ce)),
                _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
            }
        }
    }
    deserializer.deserialize_any(Reader)
}

pub(super) fn ecn_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [
            {"type": "boolean"},
            {"type": "string", "enum": ["not-ect", "ect0", "ect1", "ce"]},
        ],
    })
}

/// What an offset is counted from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// First byte of the frame.
    Frame,
    /// IP header.
    Ip,
    /// TCP or UDP header.
    Transport,
    /// First byte after the transport's headers.
    #[default]
    Payload,
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Base::Frame => "frame",
            Base::Ip => "ip",
            Base::Transport => "transport",
            Base::Payload => "payload",
        })
    }
}

/// A byte that is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Corrupt {
    /// What the offset is counted from. Default payload.
    #[serde(default)]
    pub at: Base,
    /// Byte, from 0. Default 0.
    #[serde(default)]
    #[schemars(range(max = 4095))]
    pub offset: u16,
    /// XORed into the byte. Default 0x01.
    #[serde(default = "default_mask")]
    #[schemars(range(min = 1))]
    pub mask: u8,
    /// Checksums in which the change is made good. Default none.
    #[serde(default)]
    pub mend: Mend,
}

fn default_mask() -> u8 {
    1
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Corrupt {
            at,
            offset,
            mask,
            mend,
        } = self;
        write!(f, "{at} byte {offset} ^ {mask:#04x}")?;
        match *mend {
            Mend::NONE => Ok(()),
            mend => write!(f, ", mend {mend}"),
        }
    }
}

/// Reads and writes a set of names as one word, or a list of them.
macro_rules! names {
    ($type:ident { $($name:literal => $field:ident),+ } or { $($word:literal => $whole:expr),* }; $expected:literal) => {
        impl $type {
            fn one(text: &str) -> Option<Self> {
                match text {
                    $($name => Some($type { $field: true, ..$type::default() }),)+
                    _ => None,
                }
            }

            fn names(&self) -> Vec<&'static str> {
                [$((self.$field, $name)),+]
                    .into_iter()
                    .filter_map(|(named, name)| named.then_some(name))
                    .collect()
            }

            /// Those of both.
            pub(crate) fn and(self, other: Self) -> Self {
                $type { $($field: self.$field || other.$field),+ }
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct One($type);
                impl<'de> Deserialize<'de> for One {
                    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                        struct Reader;
                        impl Visitor<'_> for Reader {
                            type Value = One;
                            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                                write!(f, "one of {}", [$($name),+].join(", "))
                            }
                            fn visit_str<E: de::Error>(self, text: &str) -> Result<One, E> {
                                $type::one(text)
                                    .map(One)
                                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
                            }
                        }
                        deserializer.deserialize_any(Reader)
                    }
                }
                struct Reader;
                impl<'de> Visitor<'de> for Reader {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        match text {
                            $($word => Ok($whole),)*
                            _ => $type::one(text)
                                .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self)),
                        }
                    }
                    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<$type, A::Error> {
                        let mut all = $type::default();
                        while let Some(One(one)) = seq.next_element()? {
                            all = all.and(one);
                        }
                        Ok(all)
                    }
                }
                deserializer.deserialize_any(Reader)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.names())
            }
        }

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "anyOf": [
                        {"type": "string", "enum": [$($word,)* $($name),+]},
                        {"type": "array", "items": {"type": "string", "enum": [$($name),+]}},
                    ],
                    "description": $expected,
                })
            }
        }
    };
}

/// Checksums in which a change is made good. One that was wrong stays wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Mend {
    /// That of the IPv4 header.
    pub ip: bool,
    /// TCP's or UDP's.
    pub l4: bool,
    /// RoCE's invariant CRC.
    pub icrc: bool,
}

names!(
    Mend { "ip" => ip, "l4" => l4, "icrc" => icrc } or { "all" => Mend::ALL, "none" => Mend::NONE };
    "all, none, or a list of ip, l4 and icrc"
);

impl Mend {
    /// No checksum.
    pub const NONE: Mend = Mend {
        ip: false,
        l4: false,
        icrc: false,
    };
    /// Every checksum that the packet has.
    pub const ALL: Mend = Mend {
        ip: true,
        l4: true,
        icrc: true,
    };

    fn all() -> Mend {
        Mend::ALL
    }
}

impl fmt::Display for Mend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Mend::ALL => f.write_str("all"),
            Mend::NONE => f.write_str("none"),
            some => f.write_str(&some.names().join(" and ")),
        }
    }
}

/// Checksums that the packet leaves with wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Break {
    /// The frame's.
    pub fcs: bool,
    /// That of the IPv4 header.
    pub ip: bool,
    /// TCP's or UDP's.
    pub l4: bool,
    /// RoCE's invariant CRC.
    pub icrc: bool,
}

names!(
    Break { "fcs" => fcs, "ip" => ip, "l4" => l4, "icrc" => icrc } or {};
    "fcs, ip, l4 or icrc, or a list of these"
);

impl Break {
    /// Nothing is broken.
    pub fn is_none(&self) -> bool {
        *self == Break::default()
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(" and "))
    }
}

/// Flags of a TCP header: names, or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u8);

/// Lowest bit first.
const TCP_FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
const TCP_FLAGS_EXPECTED: &str =
    "a list of fin, syn, rst, psh, ack, urg, ece and cwr, or a number up to 0xff";

impl TcpFlags {
    /// Of the flags that are set.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let set = |(bit, _): &(usize, &str)| self.0 >> bit & 1 == 1;
        let names = TCP_FLAGS.into_iter().enumerate().filter(set);
        names.map(|(_, name)| name).collect()
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names().as_slice() {
            [] => f.write_str("none"),
            names => f.write_str(&names.join(" and ")),
        }
    }
}

impl Serialize for TcpFlags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.names())
    }
}

impl<'de> Deserialize<'de> for TcpFlags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = TcpFlags;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(TCP_FLAGS_EXPECTED)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<TcpFlags, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(value), &self);
                u8::try_from(value).map(TcpFlags).map_err(wrong)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<TcpFlags, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Signed(value), &self);
                u8::try_from(value).map(TcpFlags).map_err(wrong)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TcpFlags, A::Error> {
                let mut flags = 0;
                while let Some(name) = seq.next_element::<String>()? {
                    let bit = TCP_FLAGS.iter().position(|known| *known == name);
                    let wrong = || de::Error::invalid_value(de::Unexpected::Str(&name), &self);
                    flags |= 1 << bit.ok_or_else(wrong)?;
                }
                Ok(TcpFlags(flags))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl JsonSchema for TcpFlags {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TcpFlags".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 255},
                {"type": "array", "items": {"type": "string", "enum": TCP_FLAGS}},
            ],
            "description": TCP_FLAGS_EXPECTED,
        })
    }
}

/// Up to 8 bytes, written in hexadecimal: `"00 ff"`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HexBytes(pub Vec<u8>);

const HEX_EXPECTED: &str = "1 to 8 bytes in hexadecimal, in quotes, such as \"00 ff\"";

impl fmt::Display for HexBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<_> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&bytes.join(" "))
    }
}

impl FromStr for HexBytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no value: expected {HEX_EXPECTED}");
        let digits: String = text.split_whitespace().collect();
        let hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !hexadecimal || !digits.len().is_multiple_of(2) || !(2..=16).contains(&digits.len()) {
            return Err(wrong());
        }
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong());
        (0..digits.len())
            .step_by(2)
            .map(byte)
            .collect::<Result<_, _>>()
            .map(HexBytes)
    }
}

text_value!(
    HexBytes,
    HEX_EXPECTED,
    None,
    json_schema!({
        "type": "string",
        "pattern": "^ *([0-9a-fA-F]{2} *){1,8}$",
        "description": HEX_EXPECTED,
    })
);

/// Header fields that are rewritten, by name, or up to 8 bytes at an offset.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Set {
    /// IPv4's time to live, IPv6's hop limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
    /// The upper six bits of IPv4's type of service, of IPv6's traffic class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 63))]
    pub dscp: Option<u8>,
    /// TCP's window as it stands in the header, not scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_window: Option<u16>,
    /// TCP's flags; those that are not named become 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_flags: Option<TcpFlags>,
    /// RoCE's migration state in the base transport header: true is migrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig_req: Option<bool>,
    /// What the offset of `value` is counted from. Default payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Base>,
    /// First byte of `value`, from 0. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 4095))]
    pub offset: Option<u16>,
    /// What the bytes become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<HexBytes>,
    /// Bits of the bytes that change. Default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<HexBytes>,
    /// Checksums in which the change is made good. Default all.
    #[serde(default = "Mend::all")]
    pub mend: Mend,
}

/// Bits of 8 bytes that become others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Write {
    pub base: Base,
    pub offset: u16,
    /// Bits that change, first byte first.
    pub mask: [u8; 8],
    /// What they become; 0 elsewhere.
    pub value: [u8; 8],
    /// Bits by which they stand earlier in IPv6: the traffic class 4, the hop limit 8.
    pub ip6_earlier: u8,
}

/// A named field: where it stands in IPv4, and what it becomes.
struct Field {
    key: &'static str,
    base: Base,
    offset: u16,
    mask: Vec<u8>,
    value: Vec<u8>,
    ip6_earlier: u8,
}

/// Why a `set` can't be carried out, and at which of its keys.
#[derive(Debug)]
pub(crate) struct SetMistake {
    pub key: Option<&'static str>,
    pub reason: String,
}

impl Set {
    fn fields(&self) -> Vec<Field> {
        let field = |key, base, offset, mask: &[u8], value: &[u8], ip6_earlier| Field {
            key,
            base,
            offset,
            mask: mask.to_vec(),
            value: value.to_vec(),
            ip6_earlier,
        };
        let (ip, transport) = (Base::Ip, Base::Transport);
        // TCP: RFC 9293, 3.1. The BTH follows 8 bytes of UDP, MigReq is bit 6 of its byte 1
        // (InfiniBand specification, volume 1, 9.2).
        [
            (self.ttl).map(|ttl| field("ttl", ip, 8, &[0xff], &[ttl], 8)),
            (self.dscp).map(|dscp| field("dscp", ip, 1, &[0xfc], &[dscp << 2], 4)),
            self.tcp_flags
                .map(|flags| field("tcp-flags", transport, 13, &[0xff], &[flags.0], 0)),
            self.tcp_window.map(|window| {
                field(
                    "tcp-window",
                    transport,
                    14,
                    &[0xff; 2],
                    &window.to_be_bytes(),
                    0,
                )
            }),
            self.mig_req.map(|mig_req| {
                field(
                    "mig-req",
                    transport,
                    9,
                    &[0x40],
                    &[u8::from(mig_req) << 6],
                    0,
                )
            }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The transport that has all named fields, and the field that says so.
    pub(crate) fn transport(&self) -> Option<(Transport, &'static str)> {
        let fields = [
            (self.tcp_window.is_some(), (Transport::Tcp, "tcp-window")),
            (self.tcp_flags.is_some(), (Transport::Tcp, "tcp-flags")),
            (self.mig_req.is_some(), (Transport::Roce, "mig-req")),
        ];
        fields
            .into_iter()
            .find_map(|(named, field)| named.then_some(field))
    }

    /// As the card takes it.
    pub(crate) fn write(&self) -> Result<Write, SetMistake> {
        let wrong = |key, reason: String| SetMistake { key, reason };
        if let Some(dscp) = self.dscp.filter(|dscp| *dscp > 63) {
            return Err(wrong(
                Some("dscp"),
                format!("dscp {dscp}, expected 0 to 63"),
            ));
        }
        let fields = self.fields();
        let Some(value) = &self.value else {
            let stray = [
                ("mask", self.mask.is_some()),
                ("offset", self.offset.is_some()),
                ("at", self.at.is_some()),
            ];
            if let Some((key, _)) = stray.into_iter().find(|(_, there)| *there) {
                return Err(wrong(
                    Some(key),
                    format!("{key} goes with value, which is not there"),
                ));
            }
            return Set::join(&fields);
        };
        if let Some(field) = fields.first() {
            return Err(wrong(
                Some(field.key),
                format!(
                    "{} is a field and value is bytes: expected one of them",
                    field.key
                ),
            ));
        }
        let offset = self.offset.unwrap_or(0);
        if offset > 0xfff {
            return Err(wrong(
                Some("offset"),
                format!("offset {offset}, expected 0 to 4095"),
            ));
        }
        let mask = match &self.mask {
            Some(mask) => mask.0.clone(),
            None => vec![0xff; value.0.len()],
        };
        if mask.len() != value.0.len() {
            return Err(wrong(
                Some("mask"),
                format!("mask has {} bytes and value {}", mask.len(), value.0.len()),
            ));
        }
        if mask.iter().all(|byte| *byte == 0) {
            return Err(wrong(Some("mask"), "mask 0 changes nothing".to_owned()));
        }
        if mask
            .iter()
            .zip(&value.0)
            .any(|(mask, value)| value & !mask != 0)
        {
            return Err(wrong(
                Some("value"),
                "value has bits outside of mask".to_owned(),
            ));
        }
        let mut write = Write {
            base: self.at.unwrap_or_default(),
            offset,
            mask: [0; 8],
            value: [0; 8],
            ip6_earlier: 0,
        };
        write.mask[..mask.len()].copy_from_slice(&mask);
        write.value[..mask.len()].copy_from_slice(&value.0);
        Ok(write)
    }

    /// Several fields as one write, which reaches over 8 bytes.
    fn join(fields: &[Field]) -> Result<Write, SetMistake> {
        let Some(first) = fields.iter().min_by_key(|field| field.offset) else {
            let reason =
                "sets nothing: expected ttl, dscp, tcp-window, tcp-flags, mig-req or value";
            return Err(SetMistake {
                key: None,
                reason: reason.to_owned(),
            });
        };
        let mut write = Write {
            base: first.base,
            offset: first.offset,
            mask: [0; 8],
            value: [0; 8],
            ip6_earlier: first.ip6_earlier,
        };
        for field in fields {
            let from = usize::from(field.offset - first.offset);
            let together = (field.base, field.ip6_earlier) == (first.base, first.ip6_earlier);
            let to = from + field.mask.len();
            if !together || to > write.mask.len() {
                return Err(SetMistake {
                    key: Some(field.key),
                    reason: format!(
                        "{} and {} do not stand in 8 bytes of one header, in IPv4 and in IPv6: expected one of them",
                        first.key, field.key
                    ),
                });
            }
            write.mask[from..to].copy_from_slice(&field.mask);
            write.value[from..to].copy_from_slice(&field.value);
        }
        Ok(write)
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(ttl) = self.ttl {
            parts.push(format!("ttl {ttl}"));
        }
        if let Some(dscp) = self.dscp {
            parts.push(format!("dscp {dscp}"));
        }
        if let Some(window) = self.tcp_window {
            parts.push(format!("tcp-window {window}"));
        }
        if let Some(flags) = self.tcp_flags {
            parts.push(format!("tcp-flags {flags}"));
        }
        if let Some(mig_req) = self.mig_req {
            parts.push(format!("mig-req {mig_req}"));
        }
        if let Some(value) = &self.value {
            let at = self.at.unwrap_or_default();
            let mask = self.mask.as_ref().map(|mask| format!(" (mask {mask})"));
            parts.push(format!(
                "{at} byte {} {value}{}",
                self.offset.unwrap_or(0),
                mask.unwrap_or_default()
            ));
        }
        f.write_str(&parts.join(", "))?;
        match self.mend {
            Mend::ALL => Ok(()),
            mend => write!(f, ", mend {mend}"),
        }
    }
}
