//! Names that somebody may have mixed up, and how many there are of something.

/// Whether one is probably meant where the other stands.
pub(super) fn alike(one: &str, other: &str) -> bool {
    let longer = one.chars().count().max(other.chars().count());
    let edits = strsim::levenshtein(&one.to_lowercase(), &other.to_lowercase());
    one != other && edits <= longer.div_ceil(5).min(2)
}

/// `1 row`, `2 rows`.
pub(super) fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::alike;

    #[test]
    fn a_missing_letter_is_noticed_and_another_word_is_not() {
        for (one, other) in [("order", "orders"), ("Orders", "orders"), ("invoice", "invioce")] {
            assert!(alike(one, other), "{one} {other}");
        }
        for (one, other) in
            [("orders", "orders"), ("a", "bc"), ("orders", "audits"), ("mail", "sms")]
        {
            assert!(!alike(one, other), "{one} {other}");
        }
    }
}
