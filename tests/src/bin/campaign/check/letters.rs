//! How rows leave the table.

use std::collections::{HashMap, HashSet};

use super::Verdict;
use crate::args::Store;
use crate::history::{Change, History, Op};
use crate::lease::{End, Lease};

const REASONS: [&str; 4] = ["max_deliveries", "retry_terminal", "expired", "rejected"];

/// Of each row, in order.
fn of_rows(history: &History, op: Op) -> HashMap<i64, Vec<&Change>> {
    let mut rows: HashMap<i64, Vec<&Change>> = HashMap::new();
    for change in history.changes.iter().filter(|change| change.op == op) {
        rows.entry(change.id).or_default().push(change);
    }
    rows
}

/// The deletes of a letter's row that are of its transaction. SQLite does not number
/// these: there the next write of the row has to be its delete.
fn deletes_with<'a>(history: &'a History, letter: &Change) -> Vec<&'a Change> {
    let of_row = |change: &&Change| change.id == letter.id && change.op != Op::Letter;
    if history.store == Store::Sqlite {
        let next = history.changes.partition_point(|change| change.seq <= letter.seq);
        let next = history.changes[next..].iter().find(of_row);
        return next.into_iter().filter(|change| change.op == Op::Delete).collect();
    }
    // A transaction is short: what belongs together is not far apart.
    let place = history.changes.partition_point(|change| change.seq < letter.seq);
    let near = place.saturating_sub(5_000)..(place + 5_000).min(history.changes.len());
    let same = |change: &&Change| of_row(change) && change.xid == letter.xid;
    history.changes[near].iter().filter(same).filter(|change| change.op == Op::Delete).collect()
}

/// The lease that this change of its row ended.
fn ended_by(history: &History) -> HashMap<usize, &Lease> {
    let ends = history.leases.iter().filter_map(|lease| match lease.end {
        End::Written(at) => Some((at, lease)),
        _ => None,
    });
    ends.collect()
}

/// Whether a delete was that of a timer which nobody had claimed.
pub(super) fn is_cancelled(change: &Change) -> bool {
    change.op == Op::Delete && change.old.token.is_none() && change.timer.is_some()
}

/// The deletes of rows whose handler had said ok under that lease.
pub(super) fn acks(history: &History) -> HashSet<usize> {
    let said_ok = |(at, lease): (usize, &Lease)| {
        let change = &history.changes[at];
        let (when, word) = lease.word()?;
        let ok = change.op == Op::Delete && word == "ok" && change.is_behind(when);
        ok.then_some(at)
    };
    ended_by(history).into_iter().filter_map(said_ok).collect()
}

pub(super) fn a_row_goes_by_its_handlers_word(history: &History) -> Verdict {
    let promise = "a row is deleted after its handler said ok under that lease, or is a letter";
    let mut verdict = Verdict::of("D1", promise);
    let letters = of_rows(history, Op::Letter);
    let (leases, acks) = (ended_by(history), acks(history));
    for (at, change) in history.changes.iter().enumerate() {
        if change.op != Op::Delete || letters.contains_key(&change.id) || is_cancelled(change) {
            continue;
        }
        let word = leases.get(&at).and_then(|lease| lease.word());
        verdict.test(acks.contains(&at), || {
            let (id, app) = (change.id, &change.app);
            format!("row {id} ({:?}) was deleted by {app} after {word:?}", change.key)
        });
    }
    verdict
}

pub(super) fn a_letter_and_its_row_are_one_transaction(history: &History) -> Verdict {
    let mut verdict = Verdict::of("D2", "a dead letter and the delete of its row are one");
    for change in history.changes.iter().filter(|change| change.op == Op::Letter) {
        let deletes = deletes_with(history, change).len();
        verdict.test(deletes == 1, || {
            format!("the letter of row {} came with {deletes} deletes", change.id)
        });
    }
    verdict
}

pub(super) fn one_letter_for_a_terminal_failure(history: &History) -> Verdict {
    let mut verdict = Verdict::of("D3", "a row becomes one letter, and none while that fails");
    for (id, letters) in of_rows(history, Op::Letter) {
        verdict.test(letters.len() == 1, || format!("row {id} has {} letters", letters.len()));
    }
    verdict
}

pub(super) fn a_letter_is_a_copy(history: &History) -> Verdict {
    let promise = "a letter is its row, byte for byte, with a known reason and a bounded text";
    let mut verdict = Verdict::of("D4", promise);
    let inserts = of_rows(history, Op::Insert);
    for letter in history.changes.iter().filter(|change| change.op == Op::Letter) {
        let body = inserts.get(&letter.id).and_then(|rows| rows[0].body.as_deref());
        let reason = letter.reason.as_deref().unwrap_or_default();
        let holds = body == letter.body.as_deref() && REASONS.contains(&reason);
        verdict.test(holds, || format!("the letter of row {} differs: {reason}", letter.id));
    }
    verdict
}
