//! How letters are shown.

use std::time::SystemTime;

pub(super) use crate::ops::rfc3339 as time;

/// `3m 12s`, from one time of the database to another.
pub(super) fn age(now: SystemTime, then: SystemTime) -> String {
    crate::ops::age(now.duration_since(then).unwrap_or_default())
}

/// `1,204`.
pub(super) fn count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// `1 letter`, `2 letters`.
pub(super) fn letters(number: u64) -> String {
    format!("{} {}", count(number), if number == 1 { "letter" } else { "letters" })
}

/// Tells of letters that were counted before and are as they were.
pub(super) fn locked(number: u64) -> String {
    let (is, it) = if number == 1 { ("is", "it") } else { ("are", "them") };
    format!("{} {is} not: somebody else has {it} locked, try again", letters(number))
}

/// Tells of work that ended before it was over.
pub(super) fn half_way(done: u64, what: &str, of: u64) -> String {
    let left = letters(of.saturating_sub(done));
    format!("{} {what}, then the command ended early: {left} left", letters(done))
}

/// The beginning of a text, in one line.
pub(super) fn line(text: Option<&str>, chars: usize) -> String {
    let text = text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(chars) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lines_are_for_people() {
        assert_eq!([0, 999, 1204, 1_000_000].map(count), ["0", "999", "1,204", "1,000,000"]);
        assert_eq!(line(Some("a\n  b c"), 3), "a b…");
    }
}
