//! A payload for people to read: decoded if it is text or JSON, never executed.

use std::fmt;

use serde::Serialize;

use super::Document;
use crate::hex::hex;

/// What a payload holds, as far as it was read.
///
/// The bytes decide, not the content type, which may be wrong. A payload that is JSON is shown as
/// JSON, other UTF-8 as text, and anything else as bytes. Whoever prints the text has to escape its
/// control characters.
///
/// # Examples
/// ```
/// use outbox::ops::Payload;
///
/// assert!(matches!(Payload::of(br#"{"id": 7}"#, 9), Payload::Json(_)));
/// assert_eq!(Payload::of(b"hello", 5), Payload::Text("hello".into()));
/// assert_eq!(Payload::of(&[0xff, 0x00], 2), Payload::Bytes("ff00".into()));
/// ```
///
/// `Debug` prints only which of these it is.
#[derive(Clone, PartialEq, Serialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Payload {
    /// A JSON document that was read to its end, as it is stored.
    Json(Document),
    /// Text, or the beginning of one.
    Text(String),
    /// Anything else, or the beginning of it, as hexadecimal digits.
    Bytes(String),
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json(_) => "Json(..)",
            Self::Text(_) => "Text(..)",
            Self::Bytes(_) => "Bytes(..)",
        })
    }
}

impl Payload {
    /// Decodes the first bytes of a payload that has `size` bytes.
    #[must_use]
    pub fn of(first: &[u8], size: u64) -> Self {
        let whole = first.len() as u64 >= size;
        match std::str::from_utf8(first) {
            Ok(text) => match Document::of(text).filter(|_| whole) {
                Some(json) => Self::Json(json),
                None => Self::Text(text.to_owned()),
            },
            // The last character was cut in two.
            Err(cut) if !whole && cut.error_len().is_none() => {
                Self::Text(String::from_utf8_lossy(&first[..cut.valid_up_to()]).into_owned())
            }
            Err(_) => Self::Bytes(hex(first)),
        }
    }

    /// The payload as text: JSON in one line, bytes as `0x` and digits. Control characters are as
    /// they were.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Json(value) => value.to_string(),
            Self::Text(text) => text.clone(),
            Self::Bytes(digits) => format!("0x{digits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_was_cut_in_two_makes_no_bytes_of_a_text() {
        let text = "aé".as_bytes();
        assert_eq!(Payload::of(&text[..2], 3), Payload::Text("a".into()));
        assert_eq!(Payload::of(&text[..2], 2), Payload::Bytes("61c3".into()));
        assert_eq!(Payload::of(b"12", 3), Payload::Text("12".into()));
    }
}
