// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that have a short form, a word or a number, beside the mapping of all their options.

use std::fmt;
use std::marker::PhantomData;

use schemars::{Schema, json_schema};
use serde::de::{self, Deserializer, MapAccess, Visitor};

/// What [`short_form`] needs to know. The mapping is read and written by what serde derives with
/// `remote = "Self"`.
pub(super) trait ShortForm: Sized {
    /// Both forms, in words.
    const EXPECTED: &'static str;

    /// Reads a word; `None` when it is none of these.
    fn from_word(_word: &str) -> Option<Result<Self, String>> {
        None
    }

    /// Reads a number; `None` when it is out of range.
    fn from_number(_number: u64) -> Option<Self> {
        None
    }

    /// Reads the mapping.
    fn from_map<'de, D: Deserializer<'de>>(map: D) -> Result<Self, D::Error>;

    /// Schema of the short form.
    fn short_schema() -> Schema;
}

/// Reads either form.
pub(super) fn read<'de, T: ShortForm, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct Reader<T>(PhantomData<T>);
    impl<'de, T: ShortForm> Visitor<'de> for Reader<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }
        fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
            match T::from_word(word) {
                Some(read) => read.map_err(E::custom),
                None => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
            }
        }
        fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
            let unexpected = de::Unexpected::Unsigned(number);
            T::from_number(number).ok_or_else(|| E::invalid_value(unexpected, &self))
        }
        fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
            match u64::try_from(number) {
                Ok(number) => self.visit_u64(number),
                Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
            }
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::from_map(de::value::MapAccessDeserializer::new(map))
        }
    }
    deserializer.deserialize_any(Reader(PhantomData))
}

/// Makes the schema of the mapping one of both forms.
pub(super) fn schema<T: ShortForm>(schema: &mut Schema) {
    let description = schema.remove("description");
    let both = [T::short_schema(), std::mem::take(schema)];
    *schema = json_schema!({"anyOf": both});
    if let Some(description) = description {
        schema.insert("description".into(), description);
    }
}

/// Lets serde read either form of a [`ShortForm`] and write the mapping.
macro_rules! short_form {
    ($type:ident) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::plan::short::read(deserializer)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $type::serialize(self, serializer)
            }
        }
    };
}
pub(super) use short_form;
