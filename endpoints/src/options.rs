// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a plan can ask of a host.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Error;

/// A port of the card, and the host that is plugged into it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Port {
    /// Port A.
    A,
    /// Port B.
    B,
}

impl Port {
    /// Both, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// The port at the other end of the wire.
    pub fn other(self) -> Port {
        match self {
            Port::A => Port::B,
            Port::B => Port::A,
        }
    }
}

impl From<Port> for midwire_trace::Port {
    fn from(port: Port) -> Self {
        match port {
            Port::A => Self::A,
            Port::B => Self::B,
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Port::A => "a",
            Port::B => "b",
        })
    }
}

/// An address with the length of its network's prefix: `10.77.0.1/24`, `fd77::1/64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    /// The host's address.
    pub address: IpAddr,
    /// Bits of the network's prefix.
    pub prefix: u8,
}

impl FromStr for Cidr {
    type Err = Error;

    fn from_str(text: &str) -> Result<Cidr, Error> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let prefix = prefix.parse().ok()?;
            let usable =
                !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
            let bits = if address.is_ipv4() { 32 } else { 128 };
            (usable && prefix <= bits).then_some(Cidr { address, prefix })
        };
        parse().ok_or_else(|| Error::Value {
            text: text.to_owned(),
            expected: "a host's address with its prefix, such as 10.77.0.1/24 or fd77::1/64",
        })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The address of a network interface: `02:4d:00:00:00:0a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// A locally administered address of this port in this run, the same whenever it is asked.
    pub fn derived(run: &str, port: Port) -> Mac {
        // FNV-1a: addresses only have to differ between runs on one machine.
        let hash = run.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        let [_, h1, h2, h3] = hash.to_be_bytes();
        Mac([
            0x02,
            b'M',
            h1,
            h2,
            h3,
            if port == Port::A { 0x0a } else { 0x0b },
        ])
    }
}

impl FromStr for Mac {
    type Err = Error;

    fn from_str(text: &str) -> Result<Mac, Error> {
        let parse = || {
            let mut bytes = [0; 6];
            let mut parts = text.split(':');
            for byte in &mut bytes {
                let part = parts.next().filter(|part| part.len() == 2)?;
                *byte = u8::from_str_radix(part, 16).ok()?;
            }
            let one_host = bytes[0] & 1 == 0 && bytes != [0; 6];
            (parts.next().is_none() && one_host).then_some(Mac(bytes))
        };
        parse().ok_or_else(|| Error::Value {
            text: text.to_owned(),
            expected: "a unicast interface address, such as 02:4d:00:00:00:0a",
        })
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The value of a sysctl: a number or a text, passed on as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Setting(pub String);

/// Addresses with which a host reaches another: its own and the other's, the first of the other's
/// that has a counterpart of its family.
pub fn route<'a>(from: &'a [Cidr], to: &'a [Cidr]) -> Option<(&'a Cidr, &'a Cidr)> {
    to.iter().find_map(|remote| {
        let family = |local: &&Cidr| local.address.is_ipv4() == remote.address.is_ipv4();
        Some((from.iter().find(family)?, remote))
    })
}

/// Serde as the short text form, and its schema.
macro_rules! as_text {
    ($type:ident, $pattern:literal) => {
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": $pattern})
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?
                    .parse()
                    .map_err(de::Error::custom)
            }
        }
    };
}
as_text!(Cidr, r"^[0-9a-fA-F.:]+/[0-9]{1,3}$");
as_text!(Mac, "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$");

impl JsonSchema for Setting {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Setting".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "integer"]})
    }
}

impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.parse::<i64>() {
            Ok(number) if number.to_string() == self.0 => serializer.serialize_i64(number),
            _ => serializer.serialize_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = Setting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a text")
            }
            fn visit_i64<E>(self, value: i64) -> Result<Setting, E> {
                Ok(Setting(value.to_string()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Setting, E> {
                Ok(Setting(value.to_string()))
            }
            fn visit_str<E>(self, value: &str) -> Result<Setting, E> {
                Ok(Setting(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

/// How a host knows the interface address of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Neighbours {
    /// It is told, so that ARP and neighbour discovery stay off the wire.
    #[default]
    Static,
    /// It asks, by ARP or neighbour discovery.
    Learn,
}

/// A Linux host in a network namespace, with a TAP as its only interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TapHost {
    /// One or several addresses; the first is the host's name to commands.
    #[serde(with = "one_or_several")]
    #[schemars(schema_with = "one_or_several::schema")]
    pub address: Vec<Cidr>,
    /// Longest IP packet, 68 to 10222. Default 1500.
    #[serde(default = "default_mtu")]
    #[schemars(range(min = 68, max = 10222))]
    pub mtu: u32,
    /// Settings of the network stack, by their full names (`net.ipv4.tcp_ecn`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, Setting>,
    /// The default of every connection of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Address of the interface; by default one derived from the run and the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// How it knows the other host.
    #[serde(default)]
    pub neighbours: Neighbours,
    /// Frames that wait for the card. What comes when it is full is lost before the wire.
    #[serde(default = "default_queue")]
    #[schemars(range(min = 1))]
    pub queue: u32,
}

fn default_mtu() -> u32 {
    1500
}

/// More than a receive window of Linux's default size holds in full segments.
fn default_queue() -> u32 {
    10_000
}

impl TapHost {
    /// A host with one address and everything else by default.
    pub fn new(address: Cidr) -> TapHost {
        TapHost {
            address: vec![address],
            mtu: default_mtu(),
            sysctls: BTreeMap::new(),
            congestion_control: None,
            mac: None,
            neighbours: Neighbours::default(),
            queue: default_queue(),
        }
    }

    pub(crate) fn mac(&self, run: &str, port: Port) -> Mac {
        self.mac.unwrap_or_else(|| Mac::derived(run, port))
    }

    /// Whether any address is of IPv6.
    pub(crate) fn has_ipv6(&self) -> bool {
        self.address.iter().any(|cidr| cidr.address.is_ipv6())
    }
}

/// Serde of addresses: one, or a list.
pub mod one_or_several {
    use super::*;

    /// Its schema.
    pub fn schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Cidr>();
        json_schema!({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]})
    }

    /// One as itself, several as a list.
    pub fn serialize<S: Serializer>(addresses: &[Cidr], serializer: S) -> Result<S::Ok, S::Error> {
        match addresses {
            [one] => one.serialize(serializer),
            several => serializer.collect_seq(several),
        }
    }

    /// Either form.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Cidr>, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Vec<Cidr>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address such as 10.77.0.1/24, or a list of them")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<Cidr>, E> {
                Ok(vec![text.parse().map_err(E::custom)?])
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Cidr>, A::Error> {
                let mut several = Vec::new();
                while let Some(cidr) = seq.next_element()? {
                    several.push(cidr);
                }
                if several.is_empty() {
                    return Err(de::Error::custom("a host needs an address"));
                }
                Ok(several)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_as_written() {
        for text in ["10.77.0.1/24", "fd77::1/64", "192.0.2.1/32"] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
        }
        for text in [
            "10.77.0.1",
            "10.77.0.1/33",
            "fd77::1/129",
            "0.0.0.0/0",
            "224.0.0.1/4",
            "::1/64",
            "/24",
            "",
        ] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
        assert_eq!(
            "02:4d:00:ff:00:0a".parse::<Mac>().unwrap().to_string(),
            "02:4d:00:ff:00:0a"
        );
        for text in [
            "01:00:00:00:00:00",
            "00:00:00:00:00:00",
            "02:4d:0:0:0:a",
            "02:4d:00:00:00",
            "02:4d:00:00:00:0a:0b",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }

    #[test]
    fn interface_addresses_differ_by_run_and_port() {
        let a = Mac::derived("run-1", Port::A);
        assert_eq!(a, Mac::derived("run-1", Port::A));
        assert_ne!(a, Mac::derived("run-1", Port::B));
        assert_ne!(a, Mac::derived("run-2", Port::A));
        assert_eq!(a.0[0] & 3, 2, "locally administered, one host");
    }

    #[test]
    fn a_host_reads_with_one_or_several_addresses() {
        let host: TapHost = serde_json::from_str(r#"{"address": "10.77.0.1/24"}"#).unwrap();
        assert_eq!(host, TapHost::new("10.77.0.1/24".parse().unwrap()));
        let host: TapHost = serde_json::from_str(
            r#"{"address": ["10.77.0.1/24", "fd77::1/64"], "mtu": 9000, "congestion_control": "reno",
                "sysctls": {"net.ipv4.tcp_ecn": 1, "net.ipv4.ip_local_port_range": "1024 2048"},
                "mac": "02:00:00:00:00:01", "neighbours": "learn"}"#,
        )
        .unwrap();
        assert_eq!(host.address.len(), 2);
        assert_eq!(host.sysctls["net.ipv4.tcp_ecn"], Setting("1".to_owned()));
        let written = serde_json::to_string(&host).unwrap();
        assert_eq!(serde_json::from_str::<TapHost>(&written).unwrap(), host);
        for text in [
            r#"{}"#,
            r#"{"address": []}"#,
            r#"{"address": "10.77.0.1/24", "speed": 1}"#,
        ] {
            assert!(serde_json::from_str::<TapHost>(text).is_err(), "{text}");
        }
    }
}
