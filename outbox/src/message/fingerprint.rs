//! Fingerprints of failures: one short text for all dead letters of one problem.
//!
//! A fingerprint is FNV-1a with 64 bits, in hexadecimal. It covers the queue, the kind of
//! the error and the first part of its message, each followed by the byte 0xff. Of the
//! message only the words count: see [`words`]. Invariant: the result is the same in every
//! version and on every machine, because letters are grouped by what is stored.

use std::borrow::Cow;

/// How much of the words counts. Messages are cut only behind that.
const MOST: usize = 1024;
/// Stands for a number or a value.
const VALUE: char = '#';

/// The fingerprint of a failure. The reason stands in for the kind where there is none, as
/// in letters that Python wrote.
pub(crate) fn fingerprint(
    queue: &str,
    kind: Option<&str>,
    reason: &str,
    message: &str,
) -> Fingerprint {
    let words = words(message);
    let parts = [queue, kind.unwrap_or(reason), &words];
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        let bytes = part.bytes().chain([0xff]);
        hash =
            bytes.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }
    let mut digits = [0; DIGITS];
    for (at, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(hash >> (4 * at) & 15) as usize];
    }
    Fingerprint(digits)
}

const DIGITS: usize = 16;

/// The digits. They are kept without an allocation, because many are made at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; DIGITS]);

impl Fingerprint {
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The message without what differs from row to row. Numbers (hexadecimal ones too), uuids,
/// long ids and quoted values become `#`, and several in a row become one. A text that
/// `Debug` puts in quotes because it is the message itself stays. So do names in backticks.
fn words(message: &str) -> String {
    // Stack frames differ with each compiler, and only some processes have them.
    let message = message.split("\n\nStack backtrace:").next().unwrap_or(message);
    let text = String::with_capacity(message.len().min(MOST));
    let mut words = Words { text, value: None };
    words.read(message);
    words.text
}

struct Words {
    text: String,
    /// The place behind the last value.
    value: Option<usize>,
}

impl Words {
    fn read(&mut self, message: &str) {
        let mut rest = message;
        while let Some(c) = rest.chars().next() {
            if self.text.len() >= MOST {
                return;
            }
            if c.is_alphanumeric() {
                rest = self.word(rest);
            } else if let Some((inside, after)) = quoted(&self.text, rest) {
                if is_message(&self.text, inside) {
                    self.read(&unescaped(inside));
                } else {
                    self.value();
                }
                rest = after;
            } else {
                if c.is_whitespace() {
                    self.blank();
                } else {
                    self.text.push(c);
                }
                rest = &rest[c.len_utf8()..];
            }
        }
    }

    fn blank(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with(' ') {
            self.text.push(' ');
        }
    }

    /// Takes a run of letters and digits.
    fn word<'a>(&mut self, rest: &'a str) -> &'a str {
        if let Some((id, after)) = rest.split_at_checked(36)
            && is_uuid(id)
        {
            self.value();
            return after;
        }
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let digits = word.chars().filter(|c| c.is_numeric()).count();
        let bare = word.strip_prefix("0x").unwrap_or(word);
        let hex = bare.chars().all(|c| c.is_ascii_hexdigit()) && !bare.is_empty();
        if hex && (digits > 0 || word.len() >= 8) || digits > 1 && word.len() >= 16 {
            self.value();
        } else if digits == 0 {
            self.text.push_str(word);
        } else {
            let mut in_number = false;
            for c in word.chars() {
                if !c.is_numeric() {
                    self.text.push(c);
                } else if !in_number {
                    self.value();
                }
                in_number = c.is_numeric();
            }
        }
        after
    }

    /// Adds a value. It becomes one with the value before it if only separators are between
    /// them, as in dates, addresses and lists.
    fn value(&mut self) {
        let separates = |c: char| matches!(c, '.' | ',' | ':' | '/' | '+' | '-' | '_' | ' ');
        if let Some(last) = self.value
            && self.text.get(last..).is_some_and(|between| between.chars().all(separates))
        {
            self.text.truncate(last);
            return;
        }
        // A sign.
        if self.text.ends_with(['-', '+'])
            && !self.text[..self.text.len() - 1].ends_with(char::is_alphanumeric)
        {
            self.text.pop();
        }
        self.text.push(VALUE);
        self.value = Some(self.text.len());
    }
}

/// The text in quotes that begins here, and what comes behind it. An apostrophe inside a word
/// is no quote.
fn quoted<'a>(before: &str, rest: &'a str) -> Option<(&'a str, &'a str)> {
    let open = rest.chars().next()?;
    let close = match open {
        '"' | '\'' => open,
        '“' => '”',
        '‘' => '’',
        '«' => '»',
        _ => return None,
    };
    if open == '\'' && before.ends_with(char::is_alphanumeric) {
        return None;
    }
    let inside = &rest[open.len_utf8()..];
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        let after = &inside[at + c.len_utf8()..];
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == close && !(c == '\'' && after.starts_with(char::is_alphanumeric)) {
            return Some((&inside[..at], after));
        }
    }
    None
}

/// Whether a quoted text is the message, as `Debug` writes it, and not a value in a
/// sentence: `MailError("refused")`, `Failed { reason: "no such host" }`.
fn is_message(before: &str, inside: &str) -> bool {
    let sentence = inside.trim().contains(char::is_whitespace);
    match before.trim_end().chars().next_back() {
        None => true,
        Some('(' | '[') => before.ends_with(['(', '[']),
        Some(':' | ',') => sentence,
        Some(_) => false,
    }
}

/// The text nearly as it was before `Debug` wrote it.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace("\\n", " ").replace("\\\"", "\"").replace("\\'", "'"))
}

fn is_uuid(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(message: &str) -> Fingerprint {
        fingerprint("orders", Some("MailError"), "retry_terminal", message)
    }

    #[track_caller]
    fn alike(messages: &[&str]) {
        let all: Vec<_> = messages.iter().map(|message| words(message)).collect();
        assert!(all.iter().all(|one| *one == all[0]), "{all:#?}");
    }

    #[track_caller]
    fn differ(a: &str, b: &str) {
        assert_ne!(of(a), of(b), "{a:?} {b:?}: {:?}", words(a));
    }

    #[test]
    fn it_stays_what_it_is_for_ever() {
        assert_eq!(fingerprint("", None, "", "").as_str(), "f998341be47bae14");
        assert_eq!(of("order 7 is broken").as_str(), "35ed42745bc898fc");
    }

    #[test]
    fn numbers_ids_and_quoted_values_do_not_matter() {
        alike(&["order 7 is late", "order 1,024 is late", "order -3.5e7 is late"]);
        alike(&["at 0x7ffe12 of", "at 0xdeadbeef of", "at deadbeef of", "at 9 of"]);
        alike(&[
            "no order 67e55044-10b1-426f-9247-bb680e5fe0c8",
            "no order abcdefab-cdef-abcd-efab-cdefabcdefab",
            "no order 01HQZX3V9KAB7T2M4W8RJ5N6PQ",
        ]);
        alike(&["no user 'acme'", "no user \"John Smith\"", "no user “x y”", "no user 7"]);
        alike(&["10.0.0.1:5432 is down", "fe80::1 is down", "2026-11-22 04:20:43.1 is down"]);
        alike(&["ids [1, 2, 3]", "ids [4]"]);
        alike(&["took  7 ms", "took 8\nms"]);
        alike(&["order17 late", "order4 late"]);
        alike(&["order 7 is late", "order 8 is late\n\nStack backtrace:\n   0: std::backtrace"]);
    }

    #[test]
    fn words_matter() {
        differ("order 7 is late", "order 7 is lost");
        differ("utf8 is invalid", "http2 is invalid");
        differ("can't connect", "can't commit");
        differ("missing field `amount`", "missing field `name`");
        differ("", "x");
    }

    #[test]
    fn a_message_in_the_quotes_of_debug_is_no_value() {
        differ("\"no such host\"", "\"connection refused\"");
        differ("MailError(\"refused\")", "MailError(\"unknown\")");
        differ("Failed { why: \"no such host\" }", "Failed { why: \"access denied\" }");
        alike(&["Failed { why: \"no order 7\" }", "Failed { why: \"no order 8\" }"]);
        alike(&[r#"E("no user \"a b\" here")"#, r#"E("no user \"c\" here")"#]);
    }

    #[test]
    fn queue_and_kind_matter_and_the_reason_where_there_is_no_kind() {
        let base = fingerprint("q", Some("k"), "rejected", "m");
        assert_ne!(fingerprint("r", Some("k"), "rejected", "m"), base);
        assert_ne!(fingerprint("q", Some("l"), "rejected", "m"), base);
        assert_eq!(fingerprint("q", Some("k"), "expired", "m"), base);
        assert_ne!(fingerprint("q", None, "expired", ""), fingerprint("q", None, "rejected", ""));
        // Nothing moves from one part to the next.
        assert_ne!(fingerprint("qk", Some(""), "", "m"), fingerprint("q", Some("k"), "", "m"));
    }

    #[test]
    fn what_comes_late_in_a_long_message_does_not_matter() {
        let long = "word ".repeat(400);
        assert_eq!(of(&format!("{long}a")), of(&format!("{long}b")));
    }
}
