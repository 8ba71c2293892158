//! A message and its data: both or neither, for ever.

use std::collections::{HashMap, HashSet};

use super::Verdict;
use crate::history::{Change, History, Op};

/// Published with a domain row: not by a handler, and not a timer once more.
fn by_a_producer(change: &Change) -> bool {
    let key = change.key.as_deref().unwrap_or_default();
    change.op == Op::Insert && !key.starts_with("receipt:") && !key.starts_with("again:")
}

fn inserts(history: &History) -> HashMap<&str, Vec<&Change>> {
    let mut inserts: HashMap<&str, Vec<&Change>> = HashMap::new();
    for change in history.changes.iter().filter(|change| by_a_producer(change)) {
        inserts.entry(change.key.as_deref().unwrap_or_default()).or_default().push(change);
    }
    inserts
}

pub(super) fn a_message_is_there_with_its_data(history: &History) -> Verdict {
    let mut verdict = Verdict::of("P1", "data that committed have their message, once");
    let inserts = inserts(history);
    for key in history.biz.keys() {
        let count = inserts.get(key.as_str()).map_or(0, Vec::len);
        verdict.test(count == 1, || format!("{key} has {count} messages"));
    }
    verdict
}

pub(super) fn no_message_without_its_data(history: &History) -> Verdict {
    let mut verdict = Verdict::of("P2", "what was rolled back, dropped or killed left no message");
    for (key, rows) in inserts(history) {
        let id = rows[0].id;
        verdict.test(history.biz.contains_key(key), || format!("row {id} ({key}) has no data"));
    }
    let undone: HashSet<_> = history.words("undone").map(|line| line.word(1)).collect();
    for key in undone {
        let left = history.biz.get(key).map(|biz| &biz.queue);
        verdict.test(left.is_none(), || format!("{key} was rolled back, and is in {left:?}"));
    }
    verdict
}

pub(super) fn no_message_vanishes(history: &History) -> Verdict {
    let promise = "a committed message is handled, a dead letter, cancelled, or there";
    let mut verdict = Verdict::of("M1", promise);
    let mut gone: HashSet<i64> = HashSet::new();
    for change in history.changes.iter().filter(|change| change.op == Op::Delete) {
        gone.insert(change.id);
    }
    let left: HashSet<i64> = history.left.iter().map(|(id, _)| *id).collect();
    for change in history.changes.iter().filter(|change| change.op == Op::Insert) {
        let (id, key) = (change.id, &change.key);
        verdict.test(gone.contains(&id) != left.contains(&id), || {
            format!("row {id} ({key:?}): gone {}, there {}", gone.contains(&id), left.contains(&id))
        });
    }
    verdict
}
