//! Payload bytes to values and back.

use std::fmt;

use super::codecs::Codec;
#[cfg(feature = "cbor")]
use super::codecs::read_cbor;
#[cfg(feature = "msgpack")]
use super::codecs::read_msgpack;
use serde::de::value::{self, BorrowedStrDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};

/// Content type of a serialised value.
pub(crate) const JSON: &str = "application/json";

/// Serialises a value as JSON.
pub(crate) fn encode<T: Serialize + ?Sized>(body: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(body)
}

/// Reads a value: `text/…` as a string, MessagePack and CBOR with their features,
/// everything else as JSON.
///
/// JSON is read with serde_json's depth limit of 128, so nesting cannot overflow
/// the stack.
pub(crate) fn decode<'a, T: Deserialize<'a>>(
    payload: &'a [u8],
    content_type: Option<&str>,
) -> Result<T, DecodeError> {
    match content_type.map_or(Kind::Other, Kind::of) {
        Kind::Text => {
            let text = std::str::from_utf8(payload)?;
            Ok(T::deserialize(Text(text))?)
        }
        Kind::MessagePack => {
            #[cfg(feature = "msgpack")]
            return read_msgpack(payload);
            #[cfg(not(feature = "msgpack"))]
            Err(DecodeError::Feature { encoding: "MessagePack", feature: "msgpack" })
        }
        Kind::Cbor => {
            #[cfg(feature = "cbor")]
            return read_cbor(payload);
            #[cfg(not(feature = "cbor"))]
            Err(DecodeError::Feature { encoding: "CBOR", feature: "cbor" })
        }
        // Python writes `None` like this.
        Kind::Other if payload.is_empty() && content_type.is_none() => json(b"null"),
        Kind::Json | Kind::Other => json(payload),
    }
}

/// What a content type names.
#[derive(PartialEq)]
enum Kind {
    Text,
    Json,
    MessagePack,
    Cbor,
    Other,
}

impl Kind {
    fn of(content_type: &str) -> Self {
        // Most are exactly this, and need no copy.
        if content_type == JSON {
            return Self::Json;
        }
        match &*bare(content_type).to_ascii_lowercase() {
            text if text.starts_with("text/") => Self::Text,
            JSON => Self::Json,
            json if json.ends_with("+json") => Self::Json,
            "application/msgpack" | "application/x-msgpack" | "application/vnd.msgpack" => {
                Self::MessagePack
            }
            "application/cbor" => Self::Cbor,
            _ => Self::Other,
        }
    }
}

/// A content type without its parameters.
fn bare(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or(content_type).trim()
}

/// Whether a payload that was written as one content type is read the same by the other.
pub(crate) fn are_read_alike(written: &str, named: &str) -> bool {
    match (Kind::of(written), Kind::of(named)) {
        // A type that is not known here may belong to a codec of the user's that reads JSON.
        (Kind::Json, Kind::Json | Kind::Other) if written == JSON => true,
        (Kind::Json | Kind::Other, _) => bare(written).eq_ignore_ascii_case(bare(named)),
        (written, named) => written == named,
    }
}

/// Reads a text into every type that a JSON string can be read into. serde's own deserializer
/// of texts cannot read a newtype or an `Option`.
struct Text<'a>(&'a str);

impl<'de> Deserializer<'de> for Text<'de> {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, value::Error> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, value::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, value::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, value::Error> {
        BorrowedStrDeserializer::new(self.0).deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// Reads JSON.
pub(crate) fn json<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, DecodeError> {
    // Tracking the place of an error doubles the cost, and mostly there is no error.
    if let Ok(value) = serde_json::from_slice(payload) {
        return Ok(value);
    }
    let mut json = serde_json::Deserializer::from_slice(payload);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| DecodeError::Json {
        path: path(error.path()),
        error: error.into_inner(),
    })?;
    json.end().map_err(|error| DecodeError::Json { path: String::new(), error })?;
    Ok(value)
}

/// Reads a value in the encoding `C`, unless the content type names another encoding that needs
/// no `C`. A queue that changes its encoding holds messages in both.
pub(crate) fn encoded<C: Codec, T: DeserializeOwned>(
    payload: &[u8],
    content_type: Option<&str>,
) -> Result<T, DecodeError> {
    let is_own = |kind| bare(kind).eq_ignore_ascii_case(bare(C::CONTENT_TYPE));
    if let Some(kind) = content_type
        && matches!(Kind::of(kind), Kind::Json | Kind::MessagePack | Kind::Cbor)
        && !is_own(kind)
    {
        return decode(payload, content_type);
    }
    // The text of any other error may quote the payload.
    let hidden = |_| DecodeError::Binary { encoding: C::CONTENT_TYPE, path: String::new() };
    C::decode(payload).map_err(|error| error.downcast().map_or_else(hidden, |error| *error))
}

/// A payload that cannot be read as the handler's type. The text names the place
/// in the payload, in which keys of a map may stand, and none of its values.
///
/// `Debug` prints the same text as `Display`, and there is no source. Dead letters
/// keep both, and serde's own errors quote the payload.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The payload is not the JSON that the type expects.
    #[error("the payload is not the expected JSON: {}{path}", describe(.error))]
    Json {
        /// The field, as ` in items[3].price`. Empty for the payload as a whole.
        path: String,
        /// Why.
        error: serde_json::Error,
    },
    /// The payload is not the binary encoding that the content type names, or not
    /// what the type expects in that encoding.
    #[error("the payload is not the expected {encoding}{path}")]
    Binary {
        /// The encoding.
        encoding: &'static str,
        /// The field, as ` in items[3].price`. Empty if it is not known or there is none.
        path: String,
    },
    /// The payload has an encoding that this program was built without.
    #[error("the payload is {encoding}; build with the feature `{feature}` of `outbox`")]
    Feature {
        /// The encoding.
        encoding: &'static str,
        /// The feature that reads it.
        feature: &'static str,
    },
    /// A text payload that is not UTF-8.
    #[error("the payload is not UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    /// A text payload for a type that cannot be made from text.
    #[error("the payload is text, which the handler's type cannot be made from")]
    Text(value::Error),
    /// The headers column is not an object, so the encoding is unknown.
    #[error(transparent)]
    Headers(#[from] super::headers::MalformedHeaders),
}

impl From<value::Error> for DecodeError {
    fn from(error: value::Error) -> Self {
        Self::Text(error)
    }
}

impl fmt::Debug for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The field that was being read. Keys of a map are content of the payload, but
/// without them nobody finds the place. They are cut short.
pub(super) fn path(path: &serde_path_to_error::Path) -> String {
    const MAX_CHARS: usize = 100;
    let text = path.to_string();
    if text == "." {
        return String::new();
    }
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!(" in {}…", &text[..end]),
        None => format!(" in {text}"),
    }
}

/// Describes an error by its class and its place. A missing field, which the place
/// does not have, is named too. serde_json's own text is not kept: it quotes values
/// of the payload ("invalid type: string \"4111…\""), and those stay out of logs and
/// dead letters.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let says = |start| text.starts_with(start);
    let class = match error.classify() {
        _ if says("missing field") => text.split(" at line").next().unwrap_or("missing field"),
        _ if says("unknown field") => "a field that the type does not have",
        _ if says("duplicate field") => "a field that is there twice",
        _ if says("unknown variant") => "a variant that the type does not have",
        _ if text.contains("expected a borrowed string") => {
            "text with escapes, which a `&str` cannot borrow (take `Cow<str>` with `#[serde(borrow)]`)"
        }
        serde_json::error::Category::Io => "it could not be read",
        _ if says("recursion limit exceeded") => "it is nested more than 127 deep",
        serde_json::error::Category::Syntax => "invalid syntax",
        serde_json::error::Category::Data => "a value of another type or range",
        serde_json::error::Category::Eof => "it ends too early",
    };
    format!("{class} at line {} column {}", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_a_python_publisher_is_a_string() {
        assert_eq!(decode::<String>(b"hello", Some("text/plain")).unwrap(), "hello");
        assert_eq!(decode::<String>(b"\"hello\"", Some(JSON)).unwrap(), "hello");
        assert_eq!(decode::<String>(b"\"hello\"", None).unwrap(), "hello");
        assert!(decode::<u64>(b"hello", Some("text/plain")).is_err());
        assert_eq!(decode::<u64>(b"7", Some("Application/JSON; charset=utf-8")).unwrap(), 7);
    }

    #[test]
    fn nothing_from_a_python_publisher_is_null() {
        assert_eq!(decode::<Option<u64>>(b"", None).unwrap(), None);
        decode::<()>(b"", None).unwrap();
        assert!(decode::<u64>(b"", None).is_err());
        assert!(decode::<Option<u64>>(b"", Some(JSON)).is_err());
    }

    #[test]
    fn what_is_nested_too_deep_says_so() {
        let deep = "[".repeat(200);
        let error = decode::<serde_json::Value>(deep.as_bytes(), None).unwrap_err().to_string();
        assert!(error.contains("nested more than 127 deep"), "{error}");
    }

    #[test]
    fn a_text_is_for_what_a_json_string_is_for() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct UserId(String);
        #[derive(Debug, PartialEq, Deserialize)]
        enum Size {
            Small,
        }
        let text = Some("text/plain; charset=utf-8");
        assert_eq!(decode::<UserId>(b"u-17", text).unwrap(), UserId("u-17".into()));
        assert_eq!(decode::<Option<Box<UserId>>>(b"u", text).unwrap().unwrap().0, "u");
        assert_eq!(decode::<Size>(b"Small", text).unwrap(), Size::Small);
        assert_eq!(decode::<&str>(b"", text).unwrap(), "");
        assert_eq!(decode::<char>(b"x", text).unwrap(), 'x');
        assert!(decode::<()>(b"", text).is_err() && decode::<Size>(b"Large", text).is_err());
    }

    #[test]
    fn a_decode_error_says_what_a_field_is_not() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Order {
            #[serde(rename = "id")]
            _id: Option<Size>,
        }
        #[derive(Debug, Deserialize)]
        enum Size {
            Small,
        }
        for (json, says) in [
            (r#"{"id":"Small","colour":"red"}"#, "a field that the type does not have"),
            (r#"{"id":"Small","id":"Small"}"#, "a field that is there twice"),
            (r#"{"id":"4111"}"#, "a variant that the type does not have"),
        ] {
            let error = decode::<Order>(json.as_bytes(), None).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("4111"), "{error}");
        }
        assert!(decode::<Order>(b"{}", None).is_ok_and(|_| matches!(Size::Small, Size::Small)));
    }

    #[test]
    fn a_decode_error_names_the_place_and_hides_the_value() {
        let error = decode::<u64>(b"\"4111 1111\"", None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the payload is not the expected JSON: a value of another type or range at line 1 column 11"
        );
        assert!(!error.to_string().contains("4111"));
    }
}
