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
use midwire_trace::Chance;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};
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
            fn schema_name() -> std::borrow::Cow<'static, str> {
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

/// How ranges of whole numbers are written: `5`, `1-2`, `3-`, `all`, or a list of these.
struct RangeForm {
    /// What a number is called.
    noun: &'static str,
    /// Lowest and highest that can be written.
    limits: (u64, u64),
    /// Stands for the end of a range that has none.
    end: u64,
    expected: &'static str,
}

impl RangeForm {
    fn number(&self, value: u64) -> Result<u64, String> {
        match (self.limits.0..=self.limits.1).contains(&value) {
            true => Ok(value),
            false => Err(format!(
                "{} {value} is out of range: expected {}",
                self.noun, self.expected
            )),
        }
    }

    fn range(&self, text: &str) -> Result<(u64, u64), String> {
        let wrong = || {
            format!(
                "{text:?} names no {}s: expected {}",
                self.noun, self.expected
            )
        };
        if text == "all" {
            return Ok((self.limits.0, self.end));
        }
        let number = |part: &str| self.number(part.trim().parse().map_err(|_| wrong())?);
        let (first, last) = match text.split_once('-') {
            Some((first, "")) => (number(first)?, self.end),
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first > last {
            return Err(format!("{}s {text} run backwards", self.noun));
        }
        Ok((first, last))
    }

    /// Puts a list in order.
    fn ordered(&self, mut ranges: Vec<(u64, u64)>) -> Result<Vec<(u64, u64)>, String> {
        if ranges.is_empty() {
            return Err(format!(
                "no {} is named: expected {}",
                self.noun, self.expected
            ));
        }
        ranges.sort_unstable();
        match ranges.windows(2).find(|pair| pair[1].0 <= pair[0].1) {
            Some(pair) => Err(format!("{} {} is named twice", self.noun, pair[1].0)),
            None => Ok(ranges),
        }
    }

    fn text(&self, (first, last): (u64, u64)) -> String {
        match last == self.end {
            true if first == self.limits.0 => "all".to_owned(),
            true => format!("{first}-"),
            false if first == last => first.to_string(),
            false => format!("{first}-{last}"),
        }
    }

    fn write<S: Serializer>(
        &self,
        ranges: &[(u64, u64)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match ranges {
            [(first, last)] if first == last => serializer.serialize_u64(*first),
            [range] => serializer.serialize_str(&self.text(*range)),
            ranges => serializer.collect_seq(ranges.iter().map(|range| self.text(*range))),
        }
    }

    fn schema(&self, lowest: u64) -> Schema {
        let one = serde_json::json!({
            "anyOf": [
                {"type": "integer", "minimum": lowest, "maximum": self.limits.1},
                {"type": "string", "pattern": "^(all|[0-9]+(-[0-9]*)?)$"},
            ]
        });
        json_schema!({
            "anyOf": [one, {"type": "array", "items": one, "minItems": 1}],
            "description": self.expected,
        })
    }
}

/// Reads one range.
impl<'de> DeserializeSeed<'de> for &RangeForm {
    type Value = (u64, u64);
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(u64, u64), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &RangeForm {
    type Value = (u64, u64);
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<(u64, u64), E> {
        self.range(text).map_err(E::custom)
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(u64, u64), E> {
        let n = self.number(value).map_err(E::custom)?;
        Ok((n, n))
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(u64, u64), E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::custom(format!(
                "{} {value} is out of range: expected {}",
                self.noun, self.expected
            ))),
        }
    }
}

/// Reads one range or a list of them.
struct RangeList(&'static RangeForm);

impl<'de> Visitor<'de> for RangeList {
    type Value = Vec<(u64, u64)>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.expected)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(vec![self.0.visit_str(text)?])
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(vec![self.0.visit_u64(value)?])
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(vec![self.0.visit_i64(value)?])
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut ranges = Vec::new();
        while let Some(range) = seq.next_element_seed(self.0)? {
            ranges.push(range);
        }
        self.0.ordered(ranges).map_err(de::Error::custom)
    }
}

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

const ITERATIONS: RangeForm = RangeForm {
    noun: "iteration",
    limits: (1, 254),
    end: Iterations::END as u64,
    expected: "iterations from 1 to 254, such as 1, 1-2, 3-, [1, 3] or all",
};

impl Iterations {
    /// Stands for "and all that follow".
    pub const END: u8 = 255;

    /// From one to another, or to [`END`](Self::END).
    pub fn range(first: u8, last: u8) -> Self {
        Iterations(vec![IterationRange { first, last }])
    }

    /// Only the first time.
    pub fn first() -> Self {
        Self::range(1, 1)
    }

    /// Every time.
    pub fn all() -> Self {
        Self::range(1, Self::END)
    }

    /// Every time but the first.
    pub fn again() -> Self {
        Self::range(2, Self::END)
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

    fn wide(&self) -> Vec<(u64, u64)> {
        let wide = |range: &IterationRange| (range.first.into(), range.last.into());
        self.0.iter().map(wide).collect()
    }
}

impl fmt::Display for Iterations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<_> = self
            .wide()
            .into_iter()
            .map(|r| ITERATIONS.text(r))
            .collect();
        f.write_str(&ranges.join(", "))
    }
}

impl Serialize for Iterations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ITERATIONS.write(&self.wide(), serializer)
    }
}

impl<'de> Deserialize<'de> for Iterations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ranges = deserializer.deserialize_any(RangeList(&ITERATIONS))?;
        // The form lets no number through that has not room.
        let narrow = |n: u64| u8::try_from(n).unwrap_or(Iterations::END);
        let ranges = ranges.into_iter().map(|(first, last)| IterationRange {
            first: narrow(first),
            last: narrow(last),
        });
        Ok(Iterations(ranges.collect()))
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
        ITERATIONS.schema(ITERATIONS.limits.0)
    }
}

/// Numbers of packets, bytes or PSNs: disjoint ranges in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Numbers(Vec<(u64, u64)>);

const NUMBERS: RangeForm = RangeForm {
    noun: "number",
    limits: (0, u64::MAX - 1),
    end: Numbers::END,
    expected: "a whole number, or numbers such as 5-20, 100-, [3, 7-9] or all",
};

impl Numbers {
    /// Stands for the last number of a range without end.
    pub const END: u64 = u64::MAX;

    /// Numbers in ascending order; nothing when there are none.
    pub fn of(numbers: impl Iterator<Item = u64>) -> Option<Self> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        (!ranges.is_empty()).then_some(Numbers(ranges))
    }

    /// All numbers.
    pub fn all() -> Self {
        Numbers(vec![(0, Self::END)])
    }

    /// The ranges: first and last number of each, both included.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// True when it is one of them.
    pub fn contains(&self, number: u64) -> bool {
        let holds = |&(first, last): &(u64, u64)| (first..=last).contains(&number);
        self.0.iter().any(holds)
    }

    /// The number, when it is one.
    pub fn single(&self) -> Option<u64> {
        match self.0.as_slice() {
            [(first, last)] if first == last => Some(*first),
            _ => None,
        }
    }

    /// True for `all`.
    pub fn is_all(&self) -> bool {
        *self == Self::all()
    }

    /// How many they are; nothing when they have no end.
    pub fn count(&self) -> Option<u64> {
        self.0.iter().try_fold(0u64, |sum, &(first, last)| {
            (last != Self::END).then(|| sum.saturating_add(last - first).saturating_add(1))
        })
    }

    /// The schema of numbers that count from 1.
    pub(super) fn counted_schema(_: &mut SchemaGenerator) -> Schema {
        NUMBERS.schema(1)
    }

    /// The highest that is named.
    pub fn highest(&self) -> u64 {
        let named = |&(first, last): &(u64, u64)| if last == Self::END { first } else { last };
        self.0.last().map_or(0, named)
    }
}

impl From<u64> for Numbers {
    fn from(number: u64) -> Self {
        Numbers(vec![(number, number)])
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<_> = self.0.iter().map(|&range| NUMBERS.text(range)).collect();
        f.write_str(&ranges.join(", "))
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        NUMBERS.write(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(RangeList(&NUMBERS))
            .map(Numbers)
    }
}

impl JsonSchema for Numbers {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Numbers".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        NUMBERS.schema(0)
    }
}

/// A probability, written `0.01` or `1%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Probability(f64);

const PROBABILITY_EXPECTED: &str = "a probability from 0 to 1, such as 0.01, or 1%";

impl Probability {
    /// 0.
    pub const NEVER: Self = Probability(0.0);
    /// 1.
    pub const CERTAIN: Self = Probability(1.0);

    /// From 0 to 1; nothing for other numbers.
    pub fn of(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Probability(value))
    }

    /// As the card compares with it.
    pub fn chance(self) -> Chance {
        Chance::of(self.0).unwrap_or(Chance::ALWAYS)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without what binary fractions add behind the twelfth digit.
        write!(f, "{}%", (self.0 * 1e14).round() / 1e12)
    }
}

impl FromStr for Probability {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number.trim(), 100.0),
            None => (text, 1.0),
        };
        let plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let value = number.parse::<f64>().ok().filter(|_| plain);
        value
            .and_then(|value| Probability::of(value / scale))
            .ok_or_else(|| format!("{text:?} is not {PROBABILITY_EXPECTED}"))
    }
}

impl Serialize for Probability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Probability {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Probability;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(PROBABILITY_EXPECTED)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Probability, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Probability, E> {
                Probability::of(value)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Float(value), &self))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Probability, E> {
                self.visit_f64(value as f64)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Probability, E> {
                self.visit_f64(value as f64)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl JsonSchema for Probability {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Probability".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *%?$"},
            ],
            "description": PROBABILITY_EXPECTED,
        })
    }
}

pub(crate) use text_value;

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

    #[test]
    fn numbers_read_every_form() {
        let read = |text: &str| serde_saphyr::from_str::<Numbers>(text);
        assert_eq!(read("5").unwrap(), Numbers::from(5));
        assert_eq!(read("5").unwrap().single(), Some(5));
        assert_eq!(read("5-20").unwrap().ranges(), [(5, 20)]);
        assert_eq!(read("5-20").unwrap().count(), Some(16));
        assert_eq!(read("[7-9, 3]").unwrap().to_string(), "3, 7-9");
        assert_eq!(read("[7-9, 3]").unwrap().count(), Some(4));
        assert!(read("all").unwrap().is_all());
        assert_eq!(read("100-").unwrap().count(), None);
        assert_eq!(read("100-").unwrap().to_string(), "100-");
        for wrong in [
            "-1",
            "18446744073709551615",
            "9-7",
            "[]",
            "[1, 1-2]",
            "x",
            "1.5",
            "{}",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn probabilities_are_read_as_they_are_written() {
        let read = |text: &str| serde_saphyr::from_str::<Probability>(text);
        for (text, value) in [
            ("1%", 0.01),
            ("0.01", 0.01),
            ("0.3 %", 0.003),
            ("1", 1.0),
            ("0", 0.0),
        ] {
            assert!((read(text).unwrap().0 - value).abs() < 1e-15, "{text}");
        }
        assert_eq!(read("0.3%").unwrap().to_string(), "0.3%");
        assert_eq!(read("0.07").unwrap().to_string(), "7%");
        assert_eq!(read("50%").unwrap().chance(), Chance(1 << 31));
        for wrong in ["101%", "1.5", "-1", "-0.1", "half", "1e-2%", ".nan", "%"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
