//! Payloads that nobody should have sent.

use outbox::{Bytes, Outgoing};

/// One of them, and which handlers can read it.
pub struct Hostile {
    pub name: &'static str,
    pub payload: Bytes,
    pub content_type: Option<&'static str>,
    /// As a map from texts to numbers.
    pub map: bool,
    /// As any JSON value.
    pub any: bool,
}

const JSON: Option<&str> = Some("application/json");
const TEXT: Option<&str> = Some("text/plain");

/// All of them. The last one cannot be published: its content type holds a NUL.
pub fn payloads() -> Vec<Hostile> {
    let brackets = "[".repeat(200_000);
    let objects = r#"{"a":"#.repeat(200_000);
    let huge = format!(r#"{{"a": 1{}}}"#, " ".repeat((16 << 20) - 8));
    assert_eq!(huge.len(), 16 << 20);
    let one = |name, payload: Bytes, content_type, map, any| Hostile {
        name,
        payload,
        content_type,
        map,
        any,
    };
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    let bytes = Bytes::from_static;
    vec![
        one("empty", Bytes::new(), JSON, false, false),
        one("empty text", Bytes::new(), TEXT, false, true),
        one("no content type", text("hello"), None, false, false),
        one("bad JSON", text("{\"a\": }"), JSON, false, false),
        one("cut JSON", text("{\"a\": 1"), JSON, false, false),
        one("trailing", text("{\"a\": 1} x"), JSON, false, false),
        one("NUL byte", bytes(b"\0"), JSON, false, false),
        one("NUL escape", text("{\"a\\u0000\": 1}"), JSON, true, true),
        one("invalid UTF-8", bytes(b"{\"\xff\": 1}"), JSON, false, false),
        one("invalid UTF-8 text", bytes(b"\xc3\x28"), TEXT, false, false),
        one("200,000 brackets", brackets.into(), JSON, false, false),
        one("200,000 objects", objects.into(), JSON, false, false),
        one("16 MiB", huge.into(), JSON, true, true),
        one("duplicate keys", text("{\"a\": 1, \"a\": 2}"), JSON, true, true),
        one("1e400", text("{\"a\": 1e400}"), JSON, false, false),
        one("1e-400", text("{\"a\": 1e-400}"), JSON, true, true),
        one("lone surrogate", text("{\"\\ud800\": 1}"), JSON, false, false),
        one("BOM", bytes(b"\xef\xbb\xbf{\"a\": 1}"), JSON, false, false),
        one("NaN", text("{\"a\": NaN}"), JSON, false, false),
        one("a number", text("123456789012345678901234567890"), JSON, false, true),
        one("wrong type", text("{\"a\": \"b\"}"), JSON, false, true),
        one("unknown type", text("{\"a\": 1}"), Some("\u{202e}\0x"), false, false),
    ]
}

impl Hostile {
    pub fn message(&self, queue: &str) -> Outgoing {
        let message = Outgoing::raw(queue, self.payload.clone());
        match self.content_type {
            Some(kind) => message.content_type(kind),
            None => message,
        }
    }
}
