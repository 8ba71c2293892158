//! D1 D2 D4 H5: what may make a row disappear.

use std::time::Duration;

use outbox::testing::store::Change;
use outbox::{DeadLetter, FailureReason, Row};

use super::Wrong;
use crate::books::{Books, Lease, Move};
use crate::handlers::{ATTEMPTS, DELIVERIES, LEASE};
use crate::journal::How;

/// Of a row that is gone: acked by its own handler, dead, or cancelled.
pub fn check_delete(
    books: &Books,
    session: u32,
    change: &Move<'_>,
    letters: &[DeadLetter],
    wrong: &mut Wrong,
) {
    let Move::Deleted(row) = change else { return };
    if session == 0 || letters.iter().any(|letter| letter.original_id == row.id) {
        return;
    }
    let done = books.lease(row).is_some_and(|lease| lease.came_to(How::Done));
    wrong.unless(done, "D1", || format!("row {} is gone, and its handler was not done", row.id));
}

pub fn check(books: &Books, rows: &[Change], letters: &[DeadLetter], wrong: &mut Wrong) {
    for letter in letters {
        let id = letter.original_id;
        let deleted = rows.iter().filter(|it| it.after.is_none());
        let mut deleted = deleted.filter_map(|it| it.before.as_ref()).filter(|row| row.id == id);
        let (Some(row), None) = (deleted.next(), deleted.next()) else {
            wrong.unless(false, "D2", || format!("row {id} was buried and not deleted by it"));
            continue;
        };
        wrong.unless(is_copy(letter, row), "D4", || format!("the letter of row {id} is no copy"));
        let own: Option<&Lease> = books.lease(row);
        let came_to = |how| own.is_some_and(|lease| lease.came_to(how));
        let guilty = match letter.failure_reason {
            FailureReason::RetryTerminal => {
                let last = row.attempts_count + 1 == ATTEMPTS;
                wrong.unless(last, "C2", || {
                    format!("row {id} was buried after {} failed runs", row.attempts_count + 1)
                });
                own.is_some_and(|lease| books.has_failed(lease))
            }
            FailureReason::Rejected => came_to(How::Rejected),
            // It failed, or was alone when its process was not heard of any more.
            FailureReason::MaxDeliveries => {
                let failed = |it: &Lease| books.has_failed(it);
                row.deliveries_count > DELIVERIES
                    && books.leases_of(id).any(|lease| failed(lease) || brought_down(books, lease))
            }
            _ => false,
        };
        wrong.unless(guilty, "H5", || {
            format!("row {id} was buried as {} without a reason", letter.failure_reason)
        });
    }
}

/// A lease that ran out while the row was said to run alone. Nobody can tell a process
/// that died from one that the database heard nothing of: one of these has to be true.
fn brought_down(books: &Books, lease: &Lease) -> bool {
    // What hangs may have been sent before.
    let told =
        |alone: Duration| books.troubled(lease.session, alone.saturating_sub(LEASE)..lease.end());
    !lease.settled && lease.alone.is_some_and(told)
}

fn is_copy(letter: &DeadLetter, row: &Row) -> bool {
    let headers = (letter.headers().ok(), row.headers().ok());
    (letter.payload == row.payload && headers.0 == headers.1)
        && letter.queue == row.queue
        && letter.created_at == row.created_at
        && letter.timer_id == row.timer_id
        && letter.deliveries_count == row.deliveries_count
}
