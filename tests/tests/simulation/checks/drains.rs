//! G1: a process that drains claims no more, and leaves no lease.

use std::time::Duration;

use super::Wrong;
use crate::books::Books;
use crate::handlers::LEASE;

/// What happens at one time is in that time.
const MOMENT: Duration = Duration::from_millis(1);

pub fn check_sent(books: &Books, session: u32, action: &str, wrong: &mut Wrong) {
    let claims = action == "claim" && books.draining.contains(&session);
    wrong.unless(!claims, "G1", || format!("process {session} drains and claims"));
}

pub fn check_drained(books: &Books, at: Duration, session: u32, wrong: &mut Wrong) {
    // A statement that hangs does so for half as long again as a lease.
    let troubled = books.troubled(session, at.saturating_sub(LEASE * 5 / 2)..at + MOMENT);
    let held = |row: &&outbox::Row| books.lease(row).is_some_and(|it| it.session == session);
    let left = books.rows.values().filter(held).count();
    wrong.unless(troubled || left == 0, "G1", || {
        format!("process {session} has drained and left {left} leases")
    });
}
