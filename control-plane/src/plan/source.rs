// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where in the text of a plan each value stands, so that every mistake is found by line.
//!
//! The plan's own types stay free of locations: the text is read once more into a tree of
//! located nodes, and a mistake names its place as a path into that tree.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// Line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

impl Place {
    /// The beginning of the text.
    pub const START: Place = Place { line: 1, column: 1 };

    pub(crate) fn of(location: serde_saphyr::Location) -> Place {
        Place {
            line: location.line().max(1),
            column: location.column().max(1),
        }
    }
}

/// One step of a path into the plan.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(key: &'a str) -> Self {
        Step::Key(key)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Step::Index(index)
    }
}

/// A path into the plan: `at!["events", 3, "packet"]`.
macro_rules! at {
    ($($step:expr),* $(,)?) => { &[$($crate::plan::source::Step::from($step)),*][..] };
}
pub(crate) use at;

/// A located YAML value.
#[derive(Debug)]
pub(crate) struct Node {
    place: Place,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Unsigned(u64),
    Scalar,
    Sequence(Vec<Node>),
    Mapping(Vec<(String, Node)>),
}

impl Node {
    /// The node at `path`, or the nearest above it that is there.
    fn nearest(&self, path: &[Step<'_>]) -> &Node {
        let mut node = self;
        for step in path {
            let next = match (step, &node.value) {
                (Step::Key(key), Value::Mapping(entries)) => entries
                    .iter()
                    .find(|(name, _)| name == key)
                    .map(|(_, value)| value),
                (Step::Index(index), Value::Sequence(items)) => items.get(*index),
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }

    /// The place of `path`, or of the nearest node above it.
    pub fn place(&self, path: &[Step<'_>]) -> Place {
        self.nearest(path).place
    }

    /// The value of a key of the topmost mapping, when it is an unsigned number.
    pub fn unsigned(&self, key: &str) -> Option<u64> {
        match (&self.value, &self.nearest(at![key]).value) {
            (Value::Mapping(_), Value::Unsigned(value)) => Some(*value),
            _ => None,
        }
    }

    /// True for a mapping with this key.
    pub fn has(&self, key: &str) -> bool {
        matches!(&self.value, Value::Mapping(entries) if entries.iter().any(|(name, _)| name == key))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Node {
            place: Place::of(spanned.referenced),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a YAML value")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
                Ok(Value::Scalar)
            }
            fn visit_none<E: de::Error>(self) -> Result<Value, E> {
                Ok(Value::Scalar)
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Value, E> {
                Ok(Value::Scalar)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
                Ok(Value::Unsigned(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
                Ok(u64::try_from(value).map_or(Value::Scalar, Value::Unsigned))
            }
            fn visit_u128<E: de::Error>(self, _: u128) -> Result<Value, E> {
                Ok(Value::Scalar)
            }
            fn visit_i128<E: de::Error>(self, _: i128) -> Result<Value, E> {
                Ok(Value::Scalar)
            }
            fn visit_f64<E: de::Error>(self, _: f64) -> Result<Value, E> {
                Ok(Value::Scalar)
            }
            fn visit_str<E: de::Error>(self, _: &str) -> Result<Value, E> {
                Ok(Value::Scalar)
            }
            fn visit_bytes<E: de::Error>(self, _: &[u8]) -> Result<Value, E> {
                Ok(Value::Scalar)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Value::Sequence(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry::<String, Node>()? {
                    entries.push(entry);
                }
                Ok(Value::Mapping(entries))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
