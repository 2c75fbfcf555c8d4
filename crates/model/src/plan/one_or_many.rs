//! A value that may be a list, as plans have them.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};

/// A value or a list of values. A list makes one case of each.
#[derive(Debug, Clone, PartialEq)]
pub enum OneOrMany<T> {
    /// A single value.
    One(T),
    /// A list of values.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// The values.
    pub fn as_slice(&self) -> &[T] {
        match self {
            OneOrMany::One(value) => std::slice::from_ref(value),
            OneOrMany::Many(values) => values,
        }
    }
}

/// Reports the error of the value. A derived untagged enum reports only that no variant matches.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<OneOrMany<T>, D::Error> {
        from.deserialize_any(OneOrManyVisitor(PhantomData))
    }
}

struct OneOrManyVisitor<T>(PhantomData<T>);

fn one<'de, T: Deserialize<'de>, E: Error>(value: impl IntoDeserializer<'de, E>) -> Result<OneOrMany<T>, E> {
    T::deserialize(value.into_deserializer()).map(OneOrMany::One)
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrManyVisitor<T> {
    type Value = OneOrMany<T>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value or a list of values")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<OneOrMany<T>, E> {
        one(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<OneOrMany<T>, E> {
        one(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<OneOrMany<T>, E> {
        one(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<OneOrMany<T>, E> {
        one(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<OneOrMany<T>, E> {
        one(value.to_owned())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<OneOrMany<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(values)).map(OneOrMany::Many)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<OneOrMany<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(entries)).map(OneOrMany::One)
    }
}
