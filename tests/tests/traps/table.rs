//! The table of the traps names tests that exist, and no trap is missing.

use std::collections::BTreeSet;
use std::path::Path;

const TABLE: &str = include_str!("../../traps.md");

/// `(code, promise, kept by)` of each line.
fn lines() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let rows = TABLE.lines().filter(|line| line.starts_with("| ") && !line.contains("| kept by |"));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let mut cell = || cells.next().unwrap_or_default();
        (cell(), cell(), cell())
    })
}

fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs") {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_test_that_the_table_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut text = String::new();
    for folder in ["tests", "outbox/src", "outbox-macros/src"] {
        sources(&root.join(folder), &mut text);
    }
    let mut named = 0;
    for (code, _, kept) in lines() {
        for test in kept.split('`').skip(1).step_by(2) {
            named += 1;
            let alone = test.strip_suffix(".rs");
            let found = match alone {
                // A compile-fail case is a file.
                Some(_) => root.join("tests/ui/fail").join(test).exists(),
                None => ["(", "<"].iter().any(|next| text.contains(&format!("fn {test}{next}"))),
            };
            assert!(found, "{code} names `{test}`, which is no test");
        }
    }
    assert!(named > 80, "{named} tests are named");
}

#[test]
fn no_trap_is_missing() {
    let listed: BTreeSet<String> = lines().map(|(code, ..)| code.to_owned()).collect();
    let mut wanted = BTreeSet::new();
    for (letter, last) in [("B", 16), ("S", 5), ("P", 35), ("T", 8)] {
        wanted.extend((1..=last).map(|number| format!("{letter}{number}")));
    }
    let missing: Vec<_> = wanted.difference(&listed).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (code, promise, kept) in lines() {
        let reason = kept.starts_with("does not apply: ");
        assert!(!promise.is_empty() && (kept.contains('`') || reason), "{code}: {kept}");
    }
}
