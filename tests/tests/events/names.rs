//! Every name that is told comes from one file, and is one of those documented.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The events that are promised to users.
const DOCUMENTED: [&str; 11] = [
    "acked",
    "dispatch_abandoned",
    "dispatched",
    "dlq_written",
    "drain_timeout",
    "fetched",
    "lease_lost",
    "nacked_retried",
    "nacked_terminal",
    "published",
    "snoozed",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Path and text of every source file of the library.
fn library() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../outbox/src");
    let mut found = Vec::new();
    sources(&folder, &mut found);
    let text = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.strip_prefix(&folder).unwrap().display().to_string(), text)
    };
    found.into_iter().map(text).collect()
}

/// Constant and value of every event in the one file.
fn events() -> Vec<(String, String)> {
    let library = library();
    let (_, names) = library.iter().find(|(path, _)| path == "telemetry/names.rs").unwrap();
    let (_, events) = names.split_once("mod event {").unwrap();
    let constants = events.lines().filter_map(|line| {
        let (name, value) =
            line.trim().strip_prefix("pub(crate) const ")?.split_once(": &str = ")?;
        Some((name.to_owned(), value.trim_matches([';', '"']).to_owned()))
    });
    constants.collect()
}

#[test]
fn the_events_are_those_documented() {
    let told: BTreeSet<String> = events().into_iter().map(|(_, value)| value).collect();
    assert!(told.iter().map(String::as_str).eq(DOCUMENTED), "{told:?}");
}

/// How an event is named in a line.
const FIELD: &str = "event = ";

#[test]
fn events_are_named_in_one_file_only() {
    let events = events();
    let mut used = BTreeSet::new();
    for (path, text) in library() {
        for (at, _) in text.match_indices(FIELD) {
            if text[..at].ends_with("let ") {
                continue;
            }
            let value = &text[at + FIELD.len()..];
            let end = value.find([',', ')', ';']).unwrap_or(value.len());
            let constant = value[..end].trim().strip_prefix("event::");
            let known = constant.and_then(|name| events.iter().find(|(known, _)| known == name));
            let Some((name, _)) = known else { panic!("{path}: `{}`", &value[..end]) };
            used.insert(name.clone());
        }
    }
    let all: BTreeSet<String> = events.into_iter().map(|(name, _)| name).collect();
    assert_eq!(used, all, "an event that nobody tells");
}

/// One filter shows everything or nothing, and no line that cannot be written ends a loop.
#[test]
fn every_line_has_the_one_target_and_survives_a_log_that_panics() {
    let macros = ["trace!(", "debug!(", "info!(", "warn!(", "error!("];
    let mut seen = 0;
    for (path, text) in library().into_iter().filter(|(path, _)| path != "telemetry/log.rs") {
        for line in text.lines().filter(|line| line.starts_with("use tracing::")) {
            let is_log = |name: &&str| line.contains(name.trim_end_matches("!("));
            assert!(!macros.iter().any(is_log), "{path}: {line}: of `telemetry`");
        }
        for name in macros {
            for (at, _) in text.match_indices(name) {
                assert!(!text[..at].ends_with("tracing::"), "{path}: {name}: of `telemetry`");
                let before = text[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                    continue;
                }
                let arguments = text[at + name.len()..].trim_start();
                let target = arguments.split(',').next().unwrap();
                assert!(
                    target.starts_with("target: ") && target.ends_with("TARGET"),
                    "{path}: {name}"
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen} lines were found");
}
