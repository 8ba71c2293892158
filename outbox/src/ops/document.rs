//! JSON as it is stored, with every digit of its numbers and its names in their order.

use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A JSON document that keeps the digits of its numbers and the order of its names as they are
/// stored. Parsing loses both: `12345678901234567890123` becomes `1.2345678901234568e22`.
///
/// `{}` prints it in one line, `{:#}` with indented lines.
///
/// # Examples
/// ```
/// use outbox::ops::Document;
///
/// let json = Document::of(r#"{ "b": 1, "a": 12345678901234567890123 }"#).unwrap();
/// assert_eq!(json.to_string(), r#"{"b":1,"a":12345678901234567890123}"#);
/// assert_eq!(json.value()["b"], 1);
/// ```
///
/// `Debug` prints only its size.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// The document without blanks between its parts.
    text: Box<str>,
}

impl Document {
    /// Takes a text that is JSON; `None` if it is not.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        // Parsed as readers will parse it: with a number that no program reads, it is not JSON.
        serde_json::from_str::<Value>(text).ok()?;
        let mut compact = String::with_capacity(text.len());
        compact.extend(tokens(text));
        Some(Self { text: compact.into() })
    }

    /// Makes a JSON string of a text.
    pub(crate) fn text(text: &str) -> Self {
        Self { text: Value::from(text).to_string().into() }
    }

    /// Parses the document. Large numbers lose digits.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// The names and values of an object, as they are stored; `None` if it is not an object.
    #[must_use]
    pub fn entries(&self) -> Option<Vec<(String, Self)>> {
        serde_json::Deserializer::from_str(&self.text).deserialize_map(Entries).ok()
    }
}

impl Default for Document {
    fn default() -> Self {
        Self { text: "null".into() }
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document").field("bytes", &self.text.len()).finish()
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { laid_out(&self.text, f) } else { f.write_str(&self.text) }
    }
}

/// For `serde_json` only. Through a `serde_json::Value`, digits and order are lost.
impl Serialize for Document {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.text).map_err(serde::ser::Error::custom)?;
        raw.serialize(to)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(String, Document)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            entries.push((name, Document { text: value.get().into() }));
        }
        Ok(entries)
    }
}

/// The tokens of a valid document, without its blanks: a string with its quotes, or one character
/// between strings.
fn tokens(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let first = rest.chars().next()?;
        let length = if first == '"' { text_length(rest) } else { first.len_utf8() };
        let (token, after) = rest.split_at(length);
        rest = after;
        Some(token)
    })
}

/// The length of the string that a document begins with.
fn text_length(json: &str) -> usize {
    let mut escaped = false;
    let end = json.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

/// Prints indented lines, as `serde_json` does.
fn laid_out(json: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (mut depth, mut opened) = (0, false);
    let line = |f: &mut fmt::Formatter<'_>, depth: usize| write!(f, "\n{:1$}", "", 2 * depth);
    for token in tokens(json) {
        let closes = matches!(token, "}" | "]");
        depth -= usize::from(closes);
        // An empty array or object stays together.
        if opened != closes {
            line(f, depth)?;
        }
        opened = matches!(token, "{" | "[");
        depth += usize::from(opened);
        f.write_str(if token == ":" { ": " } else { token })?;
        if token == "," {
            line(f, depth)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTS: [&str; 8] = [
        r#"{"b":1,"a":[1,{"c":null},[],{}],"d":{}}"#,
        r#"" a \" { : , \\""#,
        r#"{"\\":"\"","a b":" "}"#,
        "[]",
        "[[[]]]",
        "-1.5",
        "true",
        r#"["é","\u0000"]"#,
    ];

    #[test]
    fn a_document_is_laid_out_as_serde_json_does_it() {
        for text in DOCUMENTS {
            let json = Document::of(text).unwrap();
            assert_eq!(json.to_string(), text);
            // Sorted as a `Value` sorts names.
            let names = text.replace("\"b\":1", "\"B\":1").replace("\\\\\":", "A\":");
            let json = Document::of(&names).unwrap();
            assert_eq!(format!("{json:#}"), format!("{:#}", json.value()), "{names}");
        }
    }

    #[test]
    fn digits_names_and_blanks_in_texts_are_kept_and_others_are_not() {
        let json =
            Document::of("{ \"b\" : 1.10,\n\t\"a\": 12345678901234567890123, \"b\": \" \" }");
        let json = json.unwrap();
        let told = r#"{"b":1.10,"a":12345678901234567890123,"b":" "}"#;
        assert_eq!(json.to_string(), told);
        assert_eq!(serde_json::to_string(&Some(&json)).unwrap(), told);
        assert_eq!(Document::of("{"), None);
        assert_eq!(Document::text("a\"").to_string(), r#""a\"""#);
    }
}
