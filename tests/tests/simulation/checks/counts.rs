//! C1 C2: what the counters of a row count.

use super::Wrong;
use crate::books::{Books, Move};
use crate::handlers::{DELIVERIES, SUSPECT};
use crate::journal::How;

pub fn check(books: &Books, change: &Move<'_>, wrong: &mut Wrong) {
    match change {
        Move::Published(row) => {
            let none = row.attempts_count == 0 && row.deliveries_count == 0;
            wrong.unless(none, "C1", || format!("row {} is new and was delivered", row.id));
        }
        // A claim is one by its count; see `Move`.
        Move::Retried { before, after } => {
            let lease = books.lease(before);
            let failed = lease.is_some_and(|it| books.has_failed(it));
            wrong.unless(failed, "C2", || {
                format!("row {}: an attempt, and no failed run", after.id)
            });
            let same = before.deliveries_count == after.deliveries_count;
            wrong.unless(same, "C1", || format!("row {}: a retry changed deliveries", after.id));
        }
        Move::Released { before, after } => {
            let down = before.deliveries_count.checked_sub(after.deliveries_count);
            let lease = books.lease(before);
            let right = match lease {
                // A run that the drain cut off counts.
                Some(lease) if lease.came_to(How::Dropped) => down == Some(0),
                // One that was condemned unrun, and has no letter yet, stays so.
                Some(lease)
                    if lease.started.is_none()
                        && after.next_attempt_at > before.next_attempt_at =>
                {
                    down == Some(0) && before.queue == SUSPECT
                }
                // And of a row that was delivered too often as many as are too many.
                Some(lease)
                    if lease.started.is_none()
                        || lease.came_to(How::Snoozed)
                        || lease.failed()
                        || books.has_failed(lease) =>
                {
                    let most = if before.queue == SUSPECT { DELIVERIES } else { u64::MAX };
                    after.deliveries_count + 1 == before.deliveries_count.min(most)
                }
                _ => false,
            };
            wrong.unless(right, "C1", || {
                let how = lease.and_then(|lease| lease.ended).map(|(_, how)| how);
                format!("row {} was released after {how:?}, deliveries down by {down:?}", after.id)
            });
        }
        _ => {}
    }
}
