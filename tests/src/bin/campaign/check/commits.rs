//! A message and its data: both or neither, for ever.

use std::collections::{HashMap, HashSet};

use super::Verdict;
use super::letters::{acks, is_cancelled};
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

/// Where a row is at the end.
#[derive(Default)]
struct Found<'a> {
    acked: usize,
    cancelled: usize,
    left: usize,
    /// The bodies of its letters.
    letters: Vec<Option<&'a str>>,
}

fn found(history: &History) -> HashMap<i64, Found<'_>> {
    let mut rows: HashMap<i64, Found<'_>> = HashMap::new();
    let buried: HashSet<i64> = history
        .changes
        .iter()
        .filter(|change| change.op == Op::Letter)
        .map(|change| change.id)
        .collect();
    let acks = acks(history);
    for (at, change) in history.changes.iter().enumerate() {
        // With a letter it went to the dead letters, whatever its handler had said.
        if change.op == Op::Delete && !buried.contains(&change.id) {
            let found = rows.entry(change.id).or_default();
            found.cancelled += usize::from(is_cancelled(change));
            found.acked += usize::from(acks.contains(&at));
        }
    }
    for (id, _) in &history.left {
        rows.entry(*id).or_default().left += 1;
    }
    for (id, body) in &history.letters {
        rows.entry(*id).or_default().letters.push(body.as_deref());
    }
    rows
}

pub(super) fn no_message_vanishes(history: &History) -> Verdict {
    let promise = "a committed message is handled, a dead letter, cancelled, or there";
    let mut verdict = Verdict::of("M1", promise);
    let mut rows = found(history);
    for change in history.changes.iter().filter(|change| change.op == Op::Insert) {
        let (id, key) = (change.id, &change.key);
        let Found { acked, cancelled, left, letters } = rows.remove(&id).unwrap_or_default();
        let intact = letters.iter().all(|body| *body == change.body.as_deref());
        verdict.test(intact && acked + cancelled + left + letters.len() == 1, || {
            let letters = letters.len();
            format!(
                "row {id} ({key:?}): acked {acked}, cancelled {cancelled}, there {left}, \
                 letters {letters}, as they were: {intact}"
            )
        });
    }
    verdict
}
