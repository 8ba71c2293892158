//! Reads what others write as CBOR and ciborium refuses: any tag before any value, a string of
//! bytes for a list of them, a list for such a string, a whole number for a float.

use ciborium::Value;
use serde::de::value::{Error, MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

#[derive(Clone, Copy)]
pub(super) struct Lenient<'v>(pub(super) &'v Value);

impl<'v> Lenient<'v> {
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
            // Only a number of many bytes is one to ciborium.
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
            // Fields in order, to serde.
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
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.untagged() {
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

    /// A number would be the place of a field or of a variant, to serde.
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

/// One of a string of bytes. It is read as a byte alone, because in anything larger such a string
/// would take many times its size.
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
