//! L1 L3 L4 L5: who may claim a row, and who may write it.

use std::time::Duration;

use super::Wrong;
use crate::books::{Books, Move};
use crate::handlers::LEASE;
use crate::journal::since_start;

pub fn check(books: &Books, at: Duration, session: u32, change: &Move<'_>, wrong: &mut Wrong) {
    match change {
        Move::Claimed { before, after } => {
            let id = after.id;
            let over = before.acquired_at.is_none_or(|since| at >= since_start(since) + LEASE);
            wrong.unless(over, "L1", || format!("row {id} was claimed under a valid lease"));
            let token = after.acquired_token.unwrap();
            let fresh = books.leases.keys().all(|(_, known)| *known != token);
            wrong.unless(fresh, "L3", || format!("row {id} was claimed with a used token"));
        }
        Move::Extended { before, .. }
        | Move::Retried { before, .. }
        | Move::Released { before, .. } => {
            let holder = books.lease(before).map(|lease| lease.session);
            wrong.unless(holder == Some(session), "L4", || {
                format!("process {session} wrote row {}, which is {holder:?}'s", before.id)
            });
        }
        Move::Deleted(before) if before.acquired_token.is_some() => {
            let holder = books.lease(before).map(|lease| lease.session);
            wrong.unless(holder == Some(session), "L4", || {
                format!("process {session} deleted row {}, which is {holder:?}'s", before.id)
            });
        }
        Move::Deleted(before) => {
            wrong.unless(session == 0, "L5", || {
                format!("process {session} deleted row {} without a lease", before.id)
            });
        }
        Move::Unknown => wrong.unless(false, "C1", || "a row changed in an unknown way".into()),
        Move::Published(_) | Move::Moved => {}
    }
}
