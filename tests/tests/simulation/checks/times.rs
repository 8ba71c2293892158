//! T1 T2 T3 T4: nothing happens too early, timers are there once, cancelled is cancelled.

use std::collections::HashSet;
use std::time::Duration;

use outbox::Published;

use super::Wrong;
use crate::books::{Books, Move};
use crate::handlers::{LEASE, RETRY, SNOOZE};
use crate::journal::{How, since_start};

pub fn check(books: &Books, at: Duration, change: &Move<'_>, wrong: &mut Wrong) {
    match change {
        Move::Claimed { before, .. } => {
            let due = since_start(before.next_attempt_at);
            wrong.unless(at >= due, "T1", || {
                format!("row {} was claimed at {at:?}, due at {due:?}", before.id)
            });
        }
        Move::Retried { after, .. } => {
            let due = since_start(after.next_attempt_at);
            wrong.unless(due == at + RETRY, "T2", || {
                format!("row {} failed at {at:?} and is due at {due:?}", after.id)
            });
        }
        Move::Released { before, after } => {
            let due = since_start(after.next_attempt_at);
            let lease = books.lease(before);
            let put_off = lease.and_then(|lease| {
                let snoozed = lease.came_to(How::Snoozed).then_some(SNOOZE);
                snoozed.or(lease.failed().then_some(LEASE))
            });
            wrong.unless(put_off.is_none_or(|by| due == at + by), "T2", || {
                format!("row {} was put off at {at:?} and is due at {due:?}", after.id)
            });
        }
        _ => {}
    }
}

/// A message that was published to be due not before then.
pub fn check_published(books: &Books, earliest: Duration, published: Published, wrong: &mut Wrong) {
    let row = published.id().and_then(|id| books.rows.get(&id));
    // One that is due may be gone already, and a retry is due later.
    let due = row.map(|row| since_start(row.next_attempt_at));
    wrong.unless(due.is_none_or(|due| due >= earliest), "T2", || {
        format!("{published:?} is due at {due:?}, before {earliest:?}")
    });
}

pub fn check_timers(books: &Books, wrong: &mut Wrong) {
    let mut names = HashSet::new();
    for row in books.rows.values() {
        if let Some(timer) = &row.timer_id {
            let once = names.insert((&row.queue, timer));
            wrong.unless(once, "T3", || format!("two rows have the timer {timer}"));
        }
    }
}

pub fn check_cancelled(books: &Books, id: i64, done: bool, wrong: &mut Wrong) {
    let there = books.rows.contains_key(&id);
    let started = books.leases_of(id).any(|lease| lease.started.is_some());
    wrong.unless(!done || !there && !started, "T4", || {
        format!("the timer of row {id} was cancelled; there: {there}, started: {started}")
    });
}
