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

/// What is taken for something else somewhere: in SQL and its strings, in the texts that
/// statements are made of, in formats, on terminals and in file names.
const PIECES: &[&str] = &[
    "\"; DROP TABLE biz;--",
    "'; DROP TABLE biz;--",
    "$$; DROP TABLE biz; --",
    "$$",
    "$outbox1$",
    "$1",
    "?1",
    ":a",
    "{owner}",
    "{plain}",
    "{default}",
    "{table}",
    "{names}",
    "{operator}",
    "{}",
    "%",
    "%s",
    "%I",
    "\\",
    "\\'",
    "E'\\''",
    "U&\"\\0041\"",
    "\"",
    "\"\"",
    "'",
    "`",
    "[x]",
    "(",
    ")",
    ",",
    ".",
    "a.b",
    ";",
    "--",
    "/*",
    "*/",
    "-- the filter\n",
    " -- if ",
    "outbox",
    "\"outbox\"",
    "\"outbox_dlq\"",
    "_migrations",
    "select",
    "table",
    "user",
    "NULL",
    "true",
    "main",
    "temp",
    "sqlite_master",
    "SQLITE_x",
    "pg_class",
    "\u{202e}",
    "\u{200b}",
    "\u{feff}",
    "\u{85}",
    "\u{7f}",
    "\u{1b}[31m",
    "\u{1}probe ",
    "\0",
    "\t",
    "\n",
    "\r\n",
    " ",
    "../../etc/passwd",
    "C:\\x",
    "<script>",
    "😀",
    "e\u{301}",
    "İ",
    "ß",
    "ﬃ",
    "死信",
];

/// 500 names that nobody should give, no two the same whatever their case.
#[must_use]
pub fn names() -> Vec<String> {
    let mut rng = fastrand::Rng::with_seed(6);
    let mut any =
        |count| -> String { (0..count).map(|_| PIECES[rng.usize(..PIECES.len())]).collect() };
    let mut names = vec![String::new()];
    names.extend(PIECES.iter().map(|&piece| piece.to_owned()));
    // Around every limit there is, whole and within a character.
    for limit in [41, 42, 45, 46, 62, 63, 254, 255] {
        names.extend(["x", "é", "死", "😀"].map(|sign| sign.repeat(limit / sign.len())));
        names.extend(["é", "死", "😀"].map(|sign| "x".repeat(limit) + sign));
        names.push("y".repeat(limit + 1));
    }
    names.extend((0..400).map(|n| any(1 + n % 3)));
    names.extend((0..400).map(|n| any(20)[..].chars().take(42 + n).collect::<String>()));
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.to_lowercase()));
    names.truncate(500);
    names
}
