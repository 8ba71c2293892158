//! What handlers write and publish, and their acks.

use std::collections::HashMap;

use super::Verdict;
use crate::args::Store;
use crate::history::{History, Op};

/// How many acks of a queue each key has, and in which transactions.
fn acks<'a>(history: &'a History, queue: &str) -> HashMap<&'a str, Vec<i64>> {
    let mut acks: HashMap<&str, Vec<i64>> = HashMap::new();
    let letters: std::collections::HashSet<i64> = history
        .changes
        .iter()
        .filter(|change| change.op == Op::Letter)
        .map(|change| change.id)
        .collect();
    for change in &history.changes {
        let of_queue = change.op == Op::Delete && &*change.queue == queue;
        if let (true, Some(key)) = (of_queue && !letters.contains(&change.id), &change.key) {
            acks.entry(key).or_default().push(transaction(history, change.xid));
        }
    }
    acks
}

/// SQLite does not number them: there only the counts agree.
fn transaction(history: &History, xid: i64) -> i64 {
    if history.store == Store::Sqlite { 0 } else { xid }
}

fn compare(
    mut verdict: Verdict,
    acks: HashMap<&str, Vec<i64>>,
    mut other: HashMap<&str, Vec<i64>>,
) -> Verdict {
    for (key, acked) in acks {
        let found = other.remove(key).unwrap_or_default();
        verdict.test(acked == found, || format!("{key}: acked in {acked:?}, written in {found:?}"));
    }
    for (key, found) in other {
        verdict.test(false, || format!("{key}: not acked, written in {found:?}"));
    }
    verdict
}

pub(super) fn a_handlers_writes_commit_with_its_ack(history: &History) -> Verdict {
    let verdict =
        Verdict::of("E1", "what a handler wrote in its transaction is there once, with its ack");
    let mut written: HashMap<&str, Vec<i64>> = HashMap::new();
    for (key, xid) in &history.effects {
        written.entry(key).or_default().push(*xid);
    }
    compare(verdict, acks(history, "tx"), written)
}

pub(super) fn a_returned_message_commits_with_its_ack(history: &History) -> Verdict {
    let verdict = Verdict::of("E2", "what a handler returned is published once, with its ack");
    let mut published: HashMap<&str, Vec<i64>> = HashMap::new();
    for change in history.changes.iter().filter(|change| change.op == Op::Insert) {
        let key = change.key.as_deref().and_then(|key| key.strip_prefix("receipt:"));
        if let Some(key) = key {
            published.entry(key).or_default().push(transaction(history, change.xid));
        }
    }
    compare(verdict, acks(history, "returns"), published)
}
