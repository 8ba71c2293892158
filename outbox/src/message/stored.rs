//! Headers as they are stored in a table.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memchr2;
use memchr::memmem::Finder;
use serde::Deserialize;

use super::codec::JSON;
use super::headers::{EXPIRES_IN, Headers, MalformedHeaders};

/// The headers of a row. They are parsed on demand, because a row with broken headers must
/// still be claimed, failed and dead-lettered.
#[derive(Clone)]
pub(crate) enum Stored {
    /// A text that may be anything.
    Text(Box<str>),
    /// The text that PostgreSQL writes for a `jsonb`: valid, shorter names first, no name twice,
    /// a space behind each colon. A delivery does not check even its UTF-8 again.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    Jsonb(Box<[u8]>),
}

impl Stored {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Jsonb(bytes) => bytes,
        }
    }

    pub(crate) fn into_text(self) -> Box<str> {
        match self {
            Self::Text(text) => text,
            Self::Jsonb(bytes) => String::from_utf8_lossy(&bytes).into(),
        }
    }

    /// Whether there may be a time within which the message has to be started.
    pub(crate) fn may_expire(&self) -> bool {
        static NAME: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(EXPIRES_IN));
        NAME.find(self.as_bytes()).is_some()
    }

    /// How the payload is encoded. Most deliveries ask for nothing else.
    pub(crate) fn content_type(&self) -> Result<Option<Cow<'_, str>>, MalformedHeaders> {
        if let Self::Jsonb(bytes) = self
            && let Some(first) = first_content_type(bytes)
        {
            return Ok(Some(Cow::Borrowed(first)));
        }
        let json = self.as_bytes();
        // serde would read an array as the fields in order.
        if json.starts_with(b"{")
            && let Ok(found) = serde_json::from_slice::<ContentType<'_>>(json)
        {
            return Ok(found.content_type.map(Cow::Borrowed));
        }
        let headers = Headers::from_json(Some(json))?;
        Ok(headers.content_type().map(|kind| Cow::Owned(kind.to_owned())))
    }
}

/// The content type, if it is a plain text and the first header. It is the first where no
/// header has a shorter name.
fn first_content_type(jsonb: &[u8]) -> Option<&str> {
    let rest = jsonb.strip_prefix(b"{\"content-type\": \"")?;
    if rest.strip_prefix(JSON.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'"')) {
        return Some(JSON);
    }
    let end = memchr2(b'"', b'\\', rest)?;
    let (text, ends) = (std::str::from_utf8(&rest[..end]).ok()?, rest[end] == b'"');
    ends.then_some(text)
}

/// The part of an object that is read, if its content type is a plain text or missing.
#[derive(Deserialize)]
struct ContentType<'a> {
    #[serde(rename = "content-type")]
    content_type: Option<&'a str>,
}

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl From<String> for Stored {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&str> for Stored {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees(stored: &Stored) {
        let alone = stored.content_type().ok();
        let all = Headers::from_json(Some(stored.as_bytes())).ok();
        let of_all = all.as_ref().map(Headers::content_type);
        let text = String::from_utf8_lossy(stored.as_bytes());
        assert_eq!(alone.as_ref().map(|kind| kind.as_deref()), of_all, "{text}");
    }

    #[test]
    fn the_content_type_alone_is_what_the_headers_say() {
        let texts = [
            r#"{"content-type": "text/plain", "a": {"content-type": "b"}}"#,
            r#" {"a": {"content-type": "b"}}"#,
            r#"{"content-type": "with \"quotes\""}"#,
            r#"{"content-type": "first", "content-type": "last"}"#,
            r#"{"a":"b","content-type":"text/plain","c":"d"}"#,
            r#"{"a": "b", "content-type": "text/plain", }"#,
            r#"{"a": "b"  , "content-type": "text/plain"}"#,
            r#"{"a": "content-type\", "content-type": "text/plain"}"#,
            r#"{"content-type": "text/plain", "a": "b}"#,
            r#"{"content-type": "text/plain" "a": "b"}"#,
            r#"{"content-type" "text/plain"}"#,
            r#"{"content-type": "text/plain", "a": "b""#,
            "{\"content-type\": \"text/plain\", \"a\": \"\u{1}\"}",
            "{\"content-type\": \"text/plain\", \"a\": \"\u{7f}é\"}",
            "{}",
            "{",
            r#"{"content-type": 7}"#,
            r#"{"content-type": null}"#,
            r#"{"content-type": 1e400, "a": "b"}"#,
            r#"{"content-type": [1e400], "a": 1e400}"#,
            r#"{"content-type": "text/plain", "a": 1e400}"#,
            r#"{"content-type": "with \"quotes\"", "a": 1e400}"#,
            r"[1e400]",
            r#"["text/plain"]"#,
            r#"{"content-type": "text/plain"} and more"#,
            "null",
            "\"text/plain\"",
            "",
        ];
        for text in texts {
            agrees(&text.into());
        }
    }

    #[test]
    fn so_it_is_in_what_postgres_has_checked() {
        let texts = [
            r#"{"content-type": "text/plain"}"#,
            r#"{"content-type": "application/json", "correlation_id": "b"}"#,
            r#"{"content-type": "application/json; charset=utf-8"}"#,
            r#"{"content-type": "application/jso"}"#,
            r#"{"content-type": "text/plain", "a": {"content-type": "b"}}"#,
            r#"{"content-type": "with \"quotes\""}"#,
            r#"{"content-type": "with a \\", "correlation_id": "b"}"#,
            r#"{"content-type": "\u0001", "correlation_id": "b"}"#,
            r#"{"content-type": ""}"#,
            r#"{"content-type": "é", "correlation_id": "b"}"#,
            r#"{"content-type": {"content-type": "b"}}"#,
            r#"{"content-type": ["text/plain"]}"#,
            r#"{"content-type": 7}"#,
            r#"{"content-type": null}"#,
            r#"{"a": "b", "content-type": "text/plain"}"#,
            r#"{"a": {"content-type": "b"}, "content-type": "text/plain"}"#,
            r#"{"content-types": "text/plain"}"#,
            r#"["content-type", "text/plain"]"#,
            r#""{\"content-type\": \"text/plain\"}""#,
            "{}",
            "null",
        ];
        for text in texts {
            let stored = Stored::Jsonb(text.as_bytes().into());
            agrees(&stored);
            assert!(stored == text.into(), "whoever has read it");
        }
    }

    #[test]
    fn a_first_content_type_is_found_without_a_parser() {
        let json = br#"{"content-type": "application/json", "correlation_id": "a"}"#;
        assert_eq!(first_content_type(json), Some("application/json"));
        let json = br#"{"content-type": "text/plain", "correlation_id": "a"}"#;
        assert_eq!(first_content_type(json), Some("text/plain"));
        assert_eq!(first_content_type(br#"{"content-type": "a \u0062"}"#), None);
    }
}
