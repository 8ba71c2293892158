//! "Did you mean": the nearest of the names that exist.

/// Says what is wrong with an unknown name, and what to write instead. `kind` is the singular and
/// the plural of what it names.
pub(crate) fn unknown(kind: (&str, &str), word: &str, names: &[&str]) -> String {
    let (one, many) = kind;
    match nearest(word, names) {
        Some(name) => format!("unknown {one} `{word}`; did you mean `{name}`?"),
        None => format!("unknown {one} `{word}`; the {many} are {}", list(names)),
    }
}

/// The names in backticks, as a list.
pub(crate) fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The name with the fewest edits, if these are at most a third of the longer one's letters.
fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let edits = |name: &&str| strsim::levenshtein(&word, &name.to_lowercase());
    let best = names.iter().copied().min_by_key(edits)?;
    let allowed = word.chars().count().max(best.len()).div_ceil(3);
    (edits(&best) <= allowed).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["retry", "max_deliveries", "max_workers", "ack"];

    #[test]
    fn a_typo_finds_its_name_whatever_its_case() {
        assert_eq!(nearest("max_delivery", &NAMES), Some("max_deliveries"));
        assert_eq!(nearest("MaxWorkers", &NAMES), Some("max_workers"));
        assert_eq!(nearest("akc", &NAMES), None);
        assert_eq!(nearest("ackk", &NAMES), Some("ack"));
    }

    #[test]
    fn a_word_unlike_all_names_gets_the_list() {
        assert_eq!(
            unknown(("option", "options"), "colour", &["retry", "ack"]),
            "unknown option `colour`; the options are `retry`, `ack`"
        );
    }
}
