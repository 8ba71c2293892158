//! The tables of traps and promises name tests that exist, and none is missing.

use std::collections::BTreeSet;
use std::path::Path;

const TABLE: &str = include_str!("../../traps.md");
const KNOWN: &str = include_str!("../../known_traps.md");
const GUARANTEES: &str = include_str!("../../../docs/guarantees.md");

/// By which the history of a run is judged.
const PROPERTIES: &str = "P1 P2 M1 D1 D2 D3 D4 L1 L2 L3 L4 L5 H1 H2 H3 H4 H5 C1 C2 T1 T2 T3 T4 N1 G1 \
                          R1 Z1 Z2 Z3 X1 B1";

/// By their subject.
const SUBJECTS: [&str; 38] = [
    "batch settle",
    "buffered row expires",
    "prefetch and lease",
    "poison collateral",
    "heartbeat",
    "clock source",
    "interval overflow",
    "lost settle reply",
    "cancelled claim",
    "autovacuum",
    "HOT",
    "dead index prefix",
    "id gaps",
    "claim SQL",
    "partial-index OR",
    "NOTIFY in an aborted transaction",
    "LISTEN reconnect",
    "half-open socket",
    "ECONNRESET",
    "NOTIFY cost",
    "sqlx pool",
    "begin cancel",
    "migrations lock",
    "standby endpoint",
    "drain",
    "shutdown and unstarted rows",
    "panics",
    "blocking handlers",
    "retries",
    "relay",
    "replay",
    "SQLite has no data-modifying CTE",
    "SQLite BUSY",
    "SQLite WAL",
    "SQLite wake and clock",
    "cancelled begin",
    "long transactions and delays",
    "three processes on one file",
];

/// What happens to the server, to a connection or to a process.
const TROUBLE: [&str; 33] = [
    "abort",
    "stack overflow",
    "out of memory",
    "nested loops",
    "ADD COLUMN",
    "transaction-mode pooler",
    "serializable by default",
    "empty search_path",
    "NUL and lone surrogates",
    "listener killed",
    "listener half-open",
    "listener reset",
    "listener behind a dropped route",
    "NOTIFY queue full",
    "max_connections exhausted",
    "standby after a failover",
    "old primary back as a standby",
    "old primary back unfenced",
    "no room for the log",
    "no room for dead letters",
    "dead-letter table locked",
    "two releases side by side",
    "summer time",
    "clock stepped forward",
    "clock stepped back",
    "50 MB rows",
    "handlers that block",
    "server away",
    "table locked",
    "statement timeout",
    "idle sessions ended",
    "dead letters that cannot be written",
    "headers of others",
];

/// In the middle of which an app is stopped.
const DRAINS: [&str; 13] = [
    "drain: listener or connections killed",
    "drain: connections reset",
    "drain: connections half-closed",
    "drain: behind a dropped route",
    "drain: tables locked",
    "drain: NOTIFY queue full",
    "drain: no connection left",
    "drain: standby",
    "drain: clock stepped",
    "drain: ADD COLUMN, serializable, nested loops",
    "drain: 50 MB rows",
    "drain: handlers that block",
    "drain: transaction-mode pooler",
];

/// The table of what is promised.
fn promises() -> &'static str {
    section("The promises")
}

fn section(title: &str) -> &'static str {
    GUARANTEES.split("\n## ").find(|part| part.starts_with(title)).unwrap()
}

/// What stands in backquotes.
fn quoted(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split('`').skip(1).step_by(2)
}

/// Of the words in backquotes those that tell what happens: options and functions have
/// shorter names.
fn tests_named(text: &'static str) -> impl Iterator<Item = &'static str> {
    let is_word = |c: char| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit();
    quoted(text).filter(move |it| it.matches('_').count() >= 3 && it.chars().all(is_word))
}

/// `(code, promise, kept by)` of each line.
fn lines(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let head = |line: &str| ["| kept by |", "| properties |"].iter().any(|it| line.contains(it));
    let rows = table.lines().filter(move |line| line.starts_with("| ") && !head(line));
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
    let mut exists = |test: &str| {
        named += 1;
        match test.strip_suffix(".rs") {
            // A file with all of its tests, or a compile-fail case.
            Some(_) if test.contains('/') => root.join(test).exists(),
            Some(_) => root.join("tests/ui/fail").join(test).exists(),
            // A function, or a case to a macro that makes one.
            None => [format!("fn {test}("), format!("fn {test}<"), format!(" {test}: ")]
                .iter()
                .any(|it| text.contains(it.as_str())),
        }
    };
    for (code, _, kept) in lines(TABLE).chain(lines(KNOWN)).chain(lines(promises())) {
        for test in quoted(kept) {
            assert!(exists(test), "{code} names `{test}`, which is no test");
        }
    }
    let unpromised: Vec<_> = tests_named(section("What is not promised")).collect();
    assert!(unpromised.len() >= 2, "{unpromised:?}");
    let shown: Vec<_> = tests_named(section("How it is shown")).collect();
    assert!(shown.len() >= 5, "{shown:?}");
    for test in unpromised.into_iter().chain(shown) {
        assert!(exists(test), "docs/guarantees.md names `{test}`, which is no test");
    }
    assert!(named > 200, "{named} tests are named");
}

/// Each is listed, and has a promise with tests that keep it, or a reason why not.
/// `later`: those whose subject is not there yet.
fn complete(table: &'static str, wanted: BTreeSet<String>, later: &[&str]) {
    let listed = lines(table).flat_map(|(code, ..)| code.split(", ").chain([code]));
    let listed: BTreeSet<String> = listed.map(String::from).collect();
    let missing: Vec<_> = wanted.difference(&listed).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (code, promise, kept) in lines(table) {
        let reason = kept.starts_with("does not apply: ")
            || kept.starts_with("later: ") && later.contains(&code);
        assert!(!promise.is_empty() && (kept.contains('`') || reason), "{code}: {kept}");
    }
}

#[test]
fn no_trap_is_missing() {
    let mut wanted = BTreeSet::new();
    for (letter, last) in [("B", 16), ("S", 5), ("P", 35), ("T", 8)] {
        wanted.extend((1..=last).map(|number| format!("{letter}{number}")));
    }
    let deep = "F1-01 F1-03 F1-04 F1-05 F1-06 F1-07 F1-08 F2-01 F2-04 F2-05 F2-06 F2-07 F2-09 F2-10 \
                F2-12 F3-01 F3-02 F3-03 F3-05 F4-01 F4-02 F4-04 F4-06 F4-10 F5-01 F5-02 F5-03 F6-02 \
                F7-02 F7-04 F7-05 F7-06 F7-07 F7-09 F7-10 F7-11 F8-01";
    wanted.extend(deep.split_whitespace().map(String::from));
    complete(TABLE, wanted, &[]);
}

#[test]
fn no_known_trap_is_missing() {
    let wanted = SUBJECTS.into_iter().chain(TROUBLE).chain(DRAINS);
    let mut wanted: BTreeSet<String> = wanted.map(String::from).collect();
    wanted.extend((1..=10).map(|number| format!("finding {number}")));
    complete(KNOWN, wanted, &["relay"]);
}

#[test]
fn every_promise_names_a_test_and_no_property_is_missing() {
    let mut kept = BTreeSet::new();
    for (promise, properties, tests) in lines(promises()) {
        assert!(tests.contains('`'), "{promise}");
        kept.extend(properties.split(' '));
    }
    let missing: Vec<_> = PROPERTIES.split_whitespace().filter(|it| !kept.contains(it)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
