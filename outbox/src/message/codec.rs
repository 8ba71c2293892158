//! Payload bytes to values and back.

use std::fmt;

#[cfg(feature = "cbor")]
use super::codecs::read_cbor;
#[cfg(feature = "msgpack")]
use super::codecs::read_msgpack;
use serde::de::value::{self, BorrowedStrDeserializer};
use serde::{Deserialize, Serialize};

/// Content type of a serialised value.
pub(crate) const JSON: &str = "application/json";

/// Serialises a value as JSON.
pub(crate) fn encode<T: Serialize + ?Sized>(body: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(body)
}

/// Reads a value: `text/…` as a string, MessagePack and CBOR with their features,
/// everything else as JSON.
///
/// JSON keeps serde_json's depth limit of 128, so nesting cannot overflow the
/// stack.
pub(crate) fn decode<'a, T: Deserialize<'a>>(
    payload: &'a [u8],
    content_type: Option<&str>,
) -> Result<T, DecodeError> {
    if content_type.is_some_and(|kind| kind.starts_with("text/")) {
        let text = std::str::from_utf8(payload)?;
        return Ok(T::deserialize(BorrowedStrDeserializer::<value::Error>::new(text))?);
    }
    match content_type.map(|kind| kind.split(';').next().unwrap_or(kind).trim()) {
        Some("application/msgpack" | "application/x-msgpack" | "application/vnd.msgpack") => {
            #[cfg(feature = "msgpack")]
            return read_msgpack(payload).map_err(|_| DecodeError::Binary("MessagePack"));
            #[cfg(not(feature = "msgpack"))]
            Err(DecodeError::Feature { encoding: "MessagePack", feature: "msgpack" })
        }
        Some("application/cbor") => {
            #[cfg(feature = "cbor")]
            return read_cbor(payload).map_err(|_| DecodeError::Binary("CBOR"));
            #[cfg(not(feature = "cbor"))]
            Err(DecodeError::Feature { encoding: "CBOR", feature: "cbor" })
        }
        _ => json(payload),
    }
}

/// Reads JSON.
pub(crate) fn json<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, DecodeError> {
    // Knowing the place of an error costs as much as reading; there is mostly none.
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

/// A payload that the handler's type cannot hold. The text names the place in
/// the payload, never its content.
///
/// `Debug` prints what `Display` does and there is no source: serde's own errors
/// quote the payload, and both are kept in dead letters.
#[derive(thiserror::Error)]
pub enum DecodeError {
    /// Not the JSON that the type expects.
    #[error("the payload is not the expected JSON: {}{path}", describe(.error))]
    Json {
        /// The field, as ` in items[3].price`; empty for the payload as a whole.
        path: String,
        /// Why.
        error: serde_json::Error,
    },
    /// Not the binary encoding that the content type names, or not what the type
    /// expects in it.
    #[error("the payload is not the expected {0}")]
    Binary(&'static str),
    /// An encoding that this program was built without.
    #[error("the payload is {encoding}; build with the feature `{feature}` of `outbox`")]
    Feature {
        /// The encoding.
        encoding: &'static str,
        /// What reads it.
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

/// The field that was being read. Keys of a map are the payload's content, but
/// without them nobody finds the place; they are cut short.
fn path(path: &serde_path_to_error::Path) -> String {
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

/// serde_json quotes values of the payload ("invalid type: string \"4111…\""),
/// and payloads stay out of logs and dead letters: only the class and the place
/// are kept, and for a missing or unknown field its name.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let class = if text.starts_with("missing field") {
        text.split(" at line").next().unwrap_or("missing field")
    } else {
        match error.classify() {
            serde_json::error::Category::Io => "it could not be read",
            serde_json::error::Category::Syntax => "invalid syntax",
            serde_json::error::Category::Data => "a value of another type or range",
            serde_json::error::Category::Eof => "it ends too early",
        }
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
