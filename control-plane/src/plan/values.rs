// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values of a plan that are written for people: durations, sizes, iterations, addresses.
//!
//! Each reads its short form, writes it again, and describes it in the schema, so a plan that
//! went through `run.json` is the plan that was written.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use midwire_endpoints::Cidr;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Splits `12.5ms` into its value in the smallest unit. Decimals are exact or refused.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = (&text[..split], text[split..].trim());
    let &(_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let mut value = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let mut place = scale;
    for digit in fraction.bytes() {
        let digit = u64::from(digit - b'0');
        if digit != 0 && place % 10 != 0 {
            return None;
        }
        place /= 10;
        value = value.checked_add(digit * place)?;
    }
    Some(value)
}

/// The largest unit that divides `value`.
fn unscaled(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, scale) = units
        .iter()
        .filter(|(_, scale)| value != 0 && value.is_multiple_of(*scale))
        .max_by_key(|(_, scale)| *scale)
        .unwrap_or(&units[0]);
    write!(f, "{}{name}", value / scale)
}

/// A time span in nanoseconds, written `5ms`, `30us`, `100ns`, `1s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub u64);

const TIME_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];
const TIME_EXPECTED: &str = "a duration with its unit, such as 100ns, 30us, 5ms or 1s";

impl Duration {
    /// Nanoseconds.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// With a space before the unit, as measured times are written.
    pub fn for_people(self) -> String {
        let text = self.to_string();
        let unit = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        format!("{} {}", &text[..unit], text[unit..].replace("us", "µs"))
    }

    /// As the standard library's type.
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ascii: Vec<_> = TIME_UNITS
            .iter()
            .copied()
            .filter(|(name, _)| name.is_ascii())
            .collect();
        unscaled(f, self.0, &ascii)
    }
}

impl FromStr for Duration {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text, TIME_UNITS)
            .map(Duration)
            .ok_or_else(|| format!("{text:?} is no duration: expected {TIME_EXPECTED}"))
    }
}

/// A number of bytes, written `2MB`, `64KiB` or plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

const SIZE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("KB", 1_000),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];
const SIZE_EXPECTED: &str = "a number of bytes, such as 1500, 64KiB or 2MB";

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unscaled(f, self.0, SIZE_UNITS)
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .ok()
            .or_else(|| scaled(text, SIZE_UNITS))
            .map(Size)
            .ok_or_else(|| format!("{text:?} is no size: expected {SIZE_EXPECTED}"))
    }
}

/// An address and the length of its prefix, written `10.77.0.1/24`; without length a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    /// The address as written, host bits included.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub prefix: u8,
}

const NETWORK_EXPECTED: &str = "an address with prefix length, such as 10.77.0.1/24 or fd00::1/64";

impl Network {
    fn bits(address: IpAddr) -> (u128, u8) {
        match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
            IpAddr::V6(v6) => (u128::from(v6), 128),
        }
    }

    /// The prefix as a mask over the low 32 or 128 bits.
    pub fn mask(&self) -> u128 {
        let (_, width) = Self::bits(self.address);
        let all = if width == 128 {
            u128::MAX
        } else {
            (1 << width) - 1
        };
        let host = u32::from(width - self.prefix.min(width));
        all & u128::MAX.checked_shl(host).unwrap_or(0)
    }

    /// The address as a number in the low 32 or 128 bits.
    pub fn value(&self) -> u128 {
        Self::bits(self.address).0
    }

    /// True when `other` lies in this network.
    pub fn contains(&self, other: IpAddr) -> bool {
        self.address.is_ipv4() == other.is_ipv4()
            && (self.value() ^ Self::bits(other).0) & self.mask() == 0
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Network {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no address: expected {NETWORK_EXPECTED}");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (_, width) = Self::bits(address);
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| wrong())?,
            None => width,
        };
        if prefix > width {
            return Err(format!(
                "prefix /{prefix} is longer than the address, at most /{width}"
            ));
        }
        Ok(Network { address, prefix })
    }
}

impl From<Cidr> for Network {
    fn from(Cidr { address, prefix }: Cidr) -> Network {
        Network { address, prefix }
    }
}

/// How long a run lasts, written as a duration, or `until-interrupted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLength {
    /// This long.
    Of(Duration),
    /// Until SIGINT or SIGTERM, which end it in order.
    UntilInterrupted,
}

const UNTIL_INTERRUPTED: &str = "until-interrupted";
const RUN_LENGTH_EXPECTED: &str =
    "how long the run lasts: a duration such as 500ms or 10s, or until-interrupted";

impl fmt::Display for RunLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunLength::Of(duration) => duration.fmt(f),
            RunLength::UntilInterrupted => f.write_str(UNTIL_INTERRUPTED),
        }
    }
}

impl FromStr for RunLength {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == UNTIL_INTERRUPTED {
            return Ok(RunLength::UntilInterrupted);
        }
        let duration = scaled(text, TIME_UNITS).map(|ns| RunLength::Of(Duration(ns)));
        duration.ok_or_else(|| format!("{text:?} is not {RUN_LENGTH_EXPECTED}"))
    }
}

/// A text form: read from a string, and from an integer where `$integer` says how.
macro_rules! text_value {
    ($type:ident, $expected:expr, $integer:expr, $schema:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reader;
                impl Visitor<'_> for Reader {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_u64<E: de::Error>(self, value: u64) -> Result<$type, E> {
                        let convert: Option<fn(i128) -> $type> = $integer;
                        match convert {
                            Some(convert) => Ok(convert(value.into())),
                            None => Err(E::invalid_type(de::Unexpected::Unsigned(value), &self)),
                        }
                    }
                    fn visit_i64<E: de::Error>(self, value: i64) -> Result<$type, E> {
                        match u64::try_from(value) {
                            Ok(value) => self.visit_u64(value),
                            Err(_) => Err(E::invalid_type(de::Unexpected::Signed(value), &self)),
                        }
                    }
                }
                deserializer.deserialize_any(Reader)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

text_value!(
    Duration,
    TIME_EXPECTED,
    None,
    json_schema!({
        "type": "string",
        "pattern": r"^[0-9]+(\.[0-9]+)? *(ns|us|µs|ms|s)$",
        "description": TIME_EXPECTED,
    })
);
text_value!(
    Size,
    SIZE_EXPECTED,
    Some(|value| Size(u64::try_from(value).unwrap_or(u64::MAX))),
    json_schema!({
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *(B|kB|KB|KiB|MB|MiB|GB|GiB)?$"},
        ],
        "description": SIZE_EXPECTED,
    })
);
text_value!(
    Network,
    NETWORK_EXPECTED,
    None,
    json_schema!({
        "type": "string",
        "pattern": r"^[0-9a-fA-F.:]+(/[0-9]{1,3})?$",
        "description": NETWORK_EXPECTED,
    })
);
text_value!(
    RunLength,
    RUN_LENGTH_EXPECTED,
    None,
    json_schema!({
        "type": "string",
        "pattern": r"^([0-9]+(\.[0-9]+)? *(ns|us|µs|ms|s)|until-interrupted)$",
        "description": RUN_LENGTH_EXPECTED,
    })
);

/// Which times a position is seen: disjoint ranges in ascending order, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Iterations(Vec<IterationRange>);

/// First and last iteration, both included; `last` is [`Iterations::END`] without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IterationRange {
    /// First iteration, from 1.
    pub first: u8,
    /// Last iteration.
    pub last: u8,
}

const ITERATIONS_EXPECTED: &str = "iterations from 1 to 254, such as 1, 1-2, 3-, [1, 3] or all";

impl Iterations {
    /// Stands for "and all that follow".
    pub const END: u8 = 255;

    /// Only the first time.
    pub fn first() -> Self {
        Iterations(vec![IterationRange { first: 1, last: 1 }])
    }

    /// Every time.
    pub fn all() -> Self {
        Iterations(vec![IterationRange {
            first: 1,
            last: Self::END,
        }])
    }

    /// The ranges, disjoint and ascending.
    pub fn ranges(&self) -> &[IterationRange] {
        &self.0
    }

    /// True when the n-th time is one of them.
    pub fn contains(&self, iteration: u8) -> bool {
        self.0
            .iter()
            .any(|r| (r.first..=r.last).contains(&iteration))
    }

    fn number(value: u64) -> Result<u8, String> {
        match u8::try_from(value) {
            Ok(n) if (1..Self::END).contains(&n) => Ok(n),
            _ => Err(format!(
                "iteration {value} is out of range: expected {ITERATIONS_EXPECTED}"
            )),
        }
    }

    fn range(text: &str) -> Result<IterationRange, String> {
        let wrong = || format!("{text:?} names no iterations: expected {ITERATIONS_EXPECTED}");
        if text == "all" {
            return Ok(IterationRange {
                first: 1,
                last: Self::END,
            });
        }
        let number = |part: &str| Self::number(part.trim().parse().map_err(|_| wrong())?);
        let (first, last) = match text.split_once('-') {
            Some((first, "")) => (number(first)?, Self::END),
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first > last {
            return Err(format!("iterations {text} run backwards"));
        }
        Ok(IterationRange { first, last })
    }

    fn from_ranges(mut ranges: Vec<IterationRange>) -> Result<Self, String> {
        if ranges.is_empty() {
            return Err(format!(
                "no iteration is named: expected {ITERATIONS_EXPECTED}"
            ));
        }
        ranges.sort();
        match ranges.windows(2).find(|pair| pair[1].first <= pair[0].last) {
            Some(pair) => Err(format!("iteration {} is named twice", pair[1].first)),
            None => Ok(Iterations(ranges)),
        }
    }
}

impl fmt::Display for IterationRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (1, Iterations::END) => f.write_str("all"),
            (first, Iterations::END) => write!(f, "{first}-"),
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl fmt::Display for Iterations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            write!(f, "{}{range}", if i > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl Serialize for Iterations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [range] => serializer.collect_str(range),
            ranges => serializer.collect_seq(ranges.iter().map(|r| r.to_string())),
        }
    }
}

impl<'de> Deserialize<'de> for Iterations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// One element of the list, or the whole.
        struct Range(IterationRange);
        struct RangeReader;
        impl Visitor<'_> for RangeReader {
            type Value = IterationRange;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(ITERATIONS_EXPECTED)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<IterationRange, E> {
                Iterations::range(text).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<IterationRange, E> {
                let n = Iterations::number(value).map_err(E::custom)?;
                Ok(IterationRange { first: n, last: n })
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<IterationRange, E> {
                match u64::try_from(value) {
                    Ok(value) => self.visit_u64(value),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(value), &self)),
                }
            }
        }
        impl<'de> Deserialize<'de> for Range {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(RangeReader).map(Range)
            }
        }
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Iterations;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(ITERATIONS_EXPECTED)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Iterations, E> {
                Ok(Iterations(vec![RangeReader.visit_str(text)?]))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Iterations, E> {
                Ok(Iterations(vec![RangeReader.visit_u64(value)?]))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Iterations, E> {
                Ok(Iterations(vec![RangeReader.visit_i64(value)?]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Iterations, A::Error> {
                let mut ranges = Vec::new();
                while let Some(Range(range)) = seq.next_element()? {
                    ranges.push(range);
                }
                Iterations::from_ranges(ranges).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl JsonSchema for Iterations {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Iterations".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = serde_json::json!({
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": 254},
                {"type": "string", "pattern": "^(all|[0-9]+(-[0-9]*)?)$"},
            ]
        });
        json_schema!({
            "anyOf": [one, {"type": "array", "items": one, "minItems": 1}],
            "description": ITERATIONS_EXPECTED,
        })
    }
}

/// Makes a value readable as a number from 1, its short form, and as a mapping, its long one. It
/// is made from either by `From`.
macro_rules! number_or_map {
    ($type:ty, $map:ty, $most:literal, $expected:literal, $about:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reader;
                impl<'de> Visitor<'de> for Reader {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_u64<E: de::Error>(self, value: u64) -> Result<$type, E> {
                        let unexpected = de::Unexpected::Unsigned(value);
                        u32::try_from(value)
                            .map(<$type>::from)
                            .map_err(|_| E::invalid_value(unexpected, &self))
                    }
                    fn visit_i64<E: de::Error>(self, value: i64) -> Result<$type, E> {
                        let unexpected = de::Unexpected::Signed(value);
                        u32::try_from(value)
                            .map(<$type>::from)
                            .map_err(|_| E::invalid_value(unexpected, &self))
                    }
                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$type, A::Error> {
                        let map = de::value::MapAccessDeserializer::new(map);
                        <$map>::deserialize(map).map(<$type>::from)
                    }
                }
                deserializer.deserialize_any(Reader)
            }
        }

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let map = generator.subschema_for::<$map>();
                schemars::json_schema!({
                    "anyOf": [
                        {"type": "integer", "minimum": 1, "maximum": $most},
                        map,
                    ],
                    "description": $about,
                })
            }
        }
    };
}
pub(super) use number_or_map;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact_and_round_trip() {
        for (text, ns) in [
            ("100ns", 100),
            ("30us", 30_000),
            ("5ms", 5_000_000),
            ("1s", 1_000_000_000),
            ("2.5us", 2_500),
        ] {
            assert_eq!(text.parse::<Duration>().unwrap().0, ns, "{text}");
        }
        assert_eq!(Duration(2_500).to_string(), "2500ns");
        assert_eq!(Duration(5_000_000).to_string(), "5ms");
        assert_eq!(Duration(0).to_string(), "0ns");
        for wrong in [
            "5",
            "ms",
            "5 minutes",
            "-5ms",
            "1.0000000001s",
            "1.s",
            ".5s",
            "1..5s",
            "99999999999s",
            "",
        ] {
            assert!(wrong.parse::<Duration>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_know_both_kinds_of_units() {
        assert_eq!("64KiB".parse::<Size>().unwrap().0, 65_536);
        assert_eq!("2MB".parse::<Size>().unwrap().0, 2_000_000);
        assert_eq!("1500".parse::<Size>().unwrap().0, 1_500);
        assert_eq!(Size(65_536).to_string(), "64KiB");
        assert_eq!(Size(2_000_000).to_string(), "2MB");
        assert_eq!(Size(500_000).to_string(), "500kB");
        assert_eq!(Size(0).to_string(), "0B");
        assert!("2Mb".parse::<Size>().is_err());
    }

    #[test]
    fn networks_contain_their_hosts() {
        let net: Network = "10.77.0.1/24".parse().unwrap();
        assert!(net.contains("10.77.0.200".parse().unwrap()));
        assert!(!net.contains("10.77.1.2".parse().unwrap()));
        assert!(!net.contains("::a4d:1".parse().unwrap()));
        assert_eq!(net.mask(), 0xffff_ff00);
        let any: Network = "::/0".parse().unwrap();
        assert!(any.contains("fe80::1".parse().unwrap()));
        assert_eq!("1.2.3.4/32".parse::<Network>().unwrap().mask(), 0xffff_ffff);
        assert!("10.0.0.1/33".parse::<Network>().is_err());
    }

    #[test]
    fn iterations_read_every_form() {
        let read = |text: &str| serde_saphyr::from_str::<Iterations>(text);
        assert_eq!(read("1").unwrap(), Iterations::first());
        assert_eq!(read("all").unwrap(), Iterations::all());
        assert_eq!(read("1-2").unwrap().to_string(), "1-2");
        assert_eq!(read("[3, 1]").unwrap().to_string(), "1, 3");
        assert_eq!(read("[1-2, 5-]").unwrap().to_string(), "1-2, 5-");
        assert!(read("3-").unwrap().contains(200));
        for wrong in [
            "0", "-1", "255", "2-1", "[]", "[1, 1-2]", "some", "1.5", "{}",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
