//! Headers: a JSON object beside the payload.

use std::collections::HashMap;
use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::publish::PublishError;

/// Name of the header that says how the payload is encoded.
pub(crate) const CONTENT_TYPE: &str = "content-type";
/// Name of the header that ties the messages of one piece of work together.
pub(crate) const CORRELATION_ID: &str = "correlation_id";

/// Name of the header with the ids of the publishes that led to a message.
pub(crate) const TRACKING_IDS: &str = "outbox-tracking-ids";
/// Name of the header with the time within which a message has to be started.
pub(crate) const EXPIRES_IN: &str = "outbox-expires-in";
/// Names of a publisher's headers that are read as texts.
pub(crate) const TEXTS: [&str; 3] = [CONTENT_TYPE, CORRELATION_ID, EXPIRES_IN];
/// Names of the headers of a replayed message: the id of the row that was published,
/// how often the message was replayed, and the letter it comes from. Their values are texts,
/// as all that this crate writes. The SQL of replays names these headers.
pub(crate) const ORIGINAL_ID: &str = "outbox-original-id";
pub(crate) const REPLAYS: &str = "outbox-replays";
pub(crate) const LETTER: &str = "outbox-letter";
pub(crate) const OF_REPLAYS: [&str; 3] = [ORIGINAL_ID, REPLAYS, LETTER];
/// Names of the headers of W3C Trace Context.
pub(crate) const TRACEPARENT: &str = "traceparent";
pub(crate) const TRACESTATE: &str = "tracestate";

/// Headers of a message, and the extractor for them.
///
/// In the table the headers are one JSON object, so Python consumers read what Rust
/// wrote, and the other way round. This crate writes strings. Values of other JSON
/// types are kept, and [`Headers::value`] reads them. A value that no type here can
/// hold, such as the number `1e400`, is left out. PostgreSQL writes numbers in its own
/// way: `1e16` comes back as an integer, and `-0.0` as `0.0`.
///
/// `Debug` prints names only: values may be secrets.
#[derive(Clone, Default, PartialEq)]
pub struct Headers(Map<String, Value>);

impl Headers {
    /// No headers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The text of a header. `None` when the header is missing or not a string.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// The JSON value of a header.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Sets a header and returns the value it had.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.0.insert(name.into(), value.into())
    }

    /// Removes a header and returns the value it had.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// Names and values, in no promised order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// How many headers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there is no header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How the payload is encoded, if the publisher said so.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.get(CONTENT_TYPE)
    }

    /// The id that ties the messages of one piece of work together.
    #[must_use]
    pub fn correlation_id(&self) -> Option<&str> {
        self.get(CORRELATION_ID)
    }

    /// How often the message was put back from the dead letters.
    #[must_use]
    pub fn replays(&self) -> u64 {
        self.get(REPLAYS).and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// If the message was put back from the dead letters: the id of the row that was
    /// published first.
    #[must_use]
    pub fn original_id(&self) -> Option<i64> {
        self.get(ORIGINAL_ID)?.parse().ok()
    }

    /// If the message was put back from the dead letters: the id of the letter.
    #[must_use]
    pub fn letter_id(&self) -> Option<i64> {
        self.get(LETTER)?.parse().ok()
    }

    /// Reads the stored text. SQL `NULL` and JSON `null` are no headers. A value that a
    /// database can hold and no type here can (a number beyond all floats, a thousand
    /// brackets) is left out; the other headers stay.
    pub(crate) fn from_json(json: Option<&[u8]>) -> Result<Self, MalformedHeaders> {
        let Some(json) = json else { return Ok(Self::default()) };
        match serde_json::from_slice::<Value>(json) {
            Ok(Value::Null) => Ok(Self::default()),
            Ok(Value::Object(map)) => Ok(Self(map)),
            Ok(_) => Err(MalformedHeaders),
            Err(_) => {
                let each: HashMap<String, &RawValue> =
                    serde_json::from_slice(json).map_err(|_| MalformedHeaders)?;
                let read = |(name, value): (_, &RawValue)| {
                    Some((name, serde_json::from_str(value.get()).ok()?))
                };
                Ok(Self(each.into_iter().filter_map(read).collect()))
            }
        }
    }
}

/// The longest text that is handed on to the messages that a handler publishes.
const MAX_INHERITED: usize = 8 << 10;

/// Whether a message may hand on this text. A message with any other text would not be stored,
/// so its handler could not publish.
pub(crate) fn is_inherited(text: &str) -> bool {
    text.len() <= MAX_INHERITED && !text.contains('\0')
}

/// A value that is nested deeper could be written and never read: serde_json reads 128.
const MAX_DEPTH: u32 = 100;
/// PostgreSQL could refuse a larger object, which would abort the caller's transaction.
const MAX_BYTES: usize = 16 << 20;

/// The JSON text that is stored: a publisher's headers, then those that this crate adds.
/// Most messages have only the latter.
pub(crate) struct Text {
    /// An object without its last brace.
    json: Vec<u8>,
    holds_nul: bool,
    too_deep: bool,
}

impl Text {
    pub(crate) fn of(headers: &Headers) -> Self {
        let too_deep = headers.0.values().any(|value| is_deeper(value, MAX_DEPTH));
        if too_deep {
            // Not written: that might need more stack than there is.
            return Self { json: vec![b'{'], holds_nul: false, too_deep };
        }
        let holds_nul = headers.iter().any(|(name, value)| name.contains('\0') || holds_nul(value));
        // Enough for what is added to most messages.
        let mut json = Vec::with_capacity(192);
        // Names and values are JSON already: nothing in here fails.
        let _ = serde_json::to_writer(&mut json, &headers.0);
        json.pop();
        Self { json, holds_nul, too_deep }
    }

    /// Adds a header, which must not be there yet.
    pub(crate) fn push(&mut self, name: &'static str, value: &str) {
        self.holds_nul |= value.contains('\0');
        if self.json.len() > 1 {
            self.json.push(b',');
        }
        let _ = serde_json::to_writer(&mut self.json, name);
        self.json.push(b':');
        let _ = serde_json::to_writer(&mut self.json, value);
    }

    /// Ends the object. Refuses what a database would refuse: a NUL in a name or text, or too
    /// much of it all.
    pub(crate) fn end(mut self) -> Result<String, PublishError> {
        self.json.push(b'}');
        let bytes = self.json.len();
        if self.too_deep {
            Err(PublishError::HeaderTooDeep { max: MAX_DEPTH })
        } else if bytes > MAX_BYTES {
            Err(PublishError::HeadersTooLarge { bytes, max: MAX_BYTES })
        } else if self.holds_nul {
            Err(PublishError::Nul("header"))
        } else {
            String::from_utf8(self.json).map_err(|_| PublishError::Nul("header"))
        }
    }
}

fn is_deeper(value: &Value, than: u32) -> bool {
    let deeper = |inner: &Value| than == 0 || is_deeper(inner, than - 1);
    match value {
        Value::Array(items) => items.iter().any(deeper),
        Value::Object(map) => map.values().any(deeper),
        _ => false,
    }
}

fn holds_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(holds_nul),
        Value::Object(map) => {
            map.iter().any(|(name, value)| name.contains('\0') || holds_nul(value))
        }
        _ => false,
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// The headers column holds something that is not a JSON object.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the headers of the row are not a JSON object")]
pub struct MalformedHeaders;

#[cfg(test)]
mod tests {
    use super::{Headers, is_inherited};

    #[test]
    fn a_text_of_eight_kibibytes_is_handed_on_and_a_longer_one_is_not() {
        let of = |bytes| is_inherited(&"x".repeat(bytes));
        assert!(of(8 * 1024) && !of(8 * 1024 + 1));
    }

    #[test]
    fn a_value_that_cannot_be_held_is_left_out_alone() {
        let text = r#"{"a": "b", "huge": 1e400, "c": 1}"#;
        let headers = Headers::from_json(Some(text.as_bytes())).unwrap();
        assert_eq!((headers.get("a"), headers.value("huge")), (Some("b"), None));
        assert_eq!(headers.len(), 2);
        assert!(Headers::from_json(Some(b"[1e400]")).is_err());
    }
}
