//! Reads CBOR that other programs write and ciborium refuses: any tag before any value, a byte
//! string for a list of bytes, a list for a byte string, a whole number for a float.

use std::any::type_name;

use ciborium::Value;
use serde::de::value::{
    Error, MapAccessDeserializer, MapDeserializer, SeqDeserializer, StrDeserializer,
};
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// The name of the enum as which ciborium's types read a value with its tag.
const TAG: &str = "@@TAG@@";

#[derive(Clone, Copy)]
pub(super) struct Lenient<'v>(pub(super) &'v Value);

impl<'v> Lenient<'v> {
    fn tagged(self) -> Tagged<'v> {
        match self.0 {
            Value::Tag(tag, inner) => Tagged { tag: Some(*tag), value: inner },
            value => Tagged { tag: None, value },
        }
    }

    fn untagged(self) -> &'v Value {
        match self.0 {
            Value::Tag(_, inner) => Self(inner).untagged(),
            value => value,
        }
    }
}

impl<'de> Deserializer<'de> for Lenient<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Integer(number) => integer((*number).into(), visitor),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Bool(is) => visitor.visit_bool(*is),
            Value::Null => visitor.visit_unit(),
            Value::Text(text) => visitor.visit_str(text),
            Value::Bytes(bytes) => visitor.visit_bytes(bytes),
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(list(items))),
            Value::Map(entries) => visitor.visit_map(MapDeserializer::new(map(entries))),
            // Of the types that take any value, only ciborium's own keeps tags. It is recognised by
            // its name: a type that may borrow has no id.
            Value::Tag(..) if type_name::<V::Value>() == type_name::<Value>() => {
                visitor.visit_enum(self.tagged())
            }
            // ciborium reads this as a number only if it is a bignum.
            Value::Tag(_, inner) => match (self.0.deserialized(), self.0.deserialized()) {
                (Ok(number), _) => integer(number, visitor),
                (_, Ok(number)) => visitor.visit_u128(number),
                _ => Self(inner).deserialize_any(visitor),
            },
            _ => Err(de::Error::custom("a value of no known kind")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.untagged().is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.untagged() {
            Value::Bytes(bytes) => {
                visitor.visit_seq(SeqDeserializer::new(bytes.iter().copied().map(Byte)))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.untagged() {
            // serde would read it as the fields in order.
            Value::Array(_) => Err(de::Error::custom("a list for a map")),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.untagged() {
            _ if name == TAG => visitor.visit_enum(self.tagged()),
            Value::Text(name) => {
                visitor.visit_enum(IntoDeserializer::<Error>::into_deserializer(name.as_str()))
            }
            Value::Map(entries) if entries.len() == 1 => {
                let entry = MapDeserializer::new(map(entries));
                visitor.visit_enum(MapAccessDeserializer::new(entry))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    /// serde would read a number as the place of a field or of a variant.
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.untagged() {
            Value::Text(text) => visitor.visit_str(text),
            _ => Err(de::Error::custom("no text")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 bytes byte_buf unit unit_struct
        tuple_struct ignored_any
    }
}

impl IntoDeserializer<'_> for Lenient<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// A value and its tag, as ciborium hands them over.
struct Tagged<'v> {
    tag: Option<u64>,
    value: &'v Value,
}

impl<'de> EnumAccess<'de> for Tagged<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let variant = if self.tag.is_some() { "@@TAGGED@@" } else { "@@UNTAGGED@@" };
        Ok((seed.deserialize(StrDeserializer::new(variant))?, self))
    }
}

impl<'de> VariantAccess<'de> for Tagged<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Err(de::Error::custom("a tag for nothing"))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(Lenient(self.value))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        let tag = self.tag.map_or(Value::Null, Value::from);
        visitor.visit_seq(SeqDeserializer::new([Lenient(&tag), Lenient(self.value)].into_iter()))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        Err(de::Error::custom("a tag for fields"))
    }
}

/// A byte of a byte string. It can be read only as a byte: as anything larger, the string would
/// take many times its size.
struct Byte(u8);

impl<'de> Deserializer<'de> for Byte {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("a byte of a string of them"))
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u8(self.0)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

impl IntoDeserializer<'_> for Byte {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

fn list(items: &[Value]) -> impl Iterator<Item = Lenient<'_>> {
    items.iter().map(Lenient)
}

fn map(entries: &[(Value, Value)]) -> impl Iterator<Item = (Lenient<'_>, Lenient<'_>)> {
    entries.iter().map(|(key, value)| (Lenient(key), Lenient(value)))
}

fn integer<'de, V: Visitor<'de>>(number: i128, visitor: V) -> Result<V::Value, Error> {
    match (u64::try_from(number), i64::try_from(number)) {
        (Ok(number), _) => visitor.visit_u64(number),
        (_, Ok(number)) => visitor.visit_i64(number),
        _ => visitor.visit_i128(number),
    }
}

#[cfg(test)]
mod tests {
    use ciborium::tag::{Accepted, Captured, Required};
    use serde::Deserialize;

    use super::*;
    use crate::message::{Cbor, Codec as _};

    fn map<const N: usize>(entries: [(&str, Value); N]) -> Vec<u8> {
        let entries = entries.map(|(name, value)| (Value::from(name), value));
        Cbor::encode(&Value::Map(entries.into())).unwrap()
    }

    fn tag(tag: u64, value: impl Into<Value>) -> Value {
        Value::Tag(tag, Box::new(value.into()))
    }

    /// How a number is written decides how a payload is read, and may not decide what is read.
    #[test]
    fn a_value_keeps_its_tags_beside_a_float_that_is_a_whole_number() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Paid {
            at: Value,
            rest: Vec<Option<Value>>,
            amount: f64,
        }
        let large = tag(2, vec![1_u8; 9]);
        for amount in [Value::from(3.0), Value::from(3)] {
            let at = tag(0, "2026-11-28T22:00:00Z");
            let rest = vec![tag(1, tag(55_799, 7)), large.clone(), Value::Null];
            let payload = map([("at", at.clone()), ("rest", rest.into()), ("amount", amount)]);
            let rest = vec![Some(tag(1, tag(55_799, 7))), Some(large.clone()), None];
            assert_eq!(Cbor::decode::<Paid>(&payload).unwrap(), Paid { at, rest, amount: 3.0 });
        }
    }

    #[test]
    fn what_asks_for_a_tag_gets_it_beside_a_float_that_is_a_whole_number() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Paid {
            captured: Captured<String>,
            none: Captured<f64>,
            required: Required<f64, 1>,
            accepted: Accepted<Vec<u8>, 64>,
            amount: f64,
        }
        let paid = |required: Value, accepted: Value, amount: Value| {
            let payload = map([
                ("captured", tag(0, "noon")),
                ("none", 2.5.into()),
                ("required", required),
                ("accepted", accepted),
                ("amount", amount),
            ]);
            Cbor::decode::<Paid>(&payload)
        };
        let list = || Value::Array(vec![1.into(), 2.into()]);
        let same = Paid {
            captured: Captured(Some(0), "noon".into()),
            none: Captured(None, 2.5),
            required: Required(1.5),
            accepted: Accepted(vec![1, 2]),
            amount: 3.0,
        };
        for amount in [Value::from(3.0), Value::from(3)] {
            for accepted in [list(), tag(64, list()), tag(64, vec![1_u8, 2])] {
                let read = paid(tag(1, 1.5), accepted, amount.clone()).unwrap();
                assert_eq!(read, same);
            }
            for (required, accepted) in [(tag(2, 1.5), list()), (tag(1, 1.5), tag(65, list()))] {
                assert!(paid(required, accepted, amount.clone()).is_err());
            }
            assert!(paid(1.5.into(), list(), amount).is_err());
        }
    }
}
