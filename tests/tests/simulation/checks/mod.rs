//! The properties of docs/guarantees.md, read from a journal alone.

mod counts;
mod drains;
mod end;
mod handlers;
mod leases;
mod letters;
mod times;

pub use end::settling;

use crate::books::{Books, Move};
use crate::journal::{Entry, What};
use crate::workload::Ran;

/// What is wrong, each line with the id of its property.
#[derive(Default)]
pub struct Wrong(pub Vec<String>);

impl Wrong {
    fn unless(&mut self, holds: bool, property: &str, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(format!("{property}: {}", what()));
        }
    }
}

/// Holds the properties against every entry, with the books as they were before it.
pub fn check(ran: &Ran) -> (Books, Vec<String>) {
    let (mut books, mut wrong) = (Books::default(), Wrong::default());
    let mut calls = handlers::Overlaps::default();
    for entry in &ran.journal {
        one(&books, entry, &mut wrong);
        calls.check(&books, entry, &mut wrong);
        books.follow(entry);
        after(&books, entry, &mut wrong);
    }
    end::check(&books, ran, &mut wrong);
    (books, wrong.0)
}

fn one(books: &Books, entry: &Entry, wrong: &mut Wrong) {
    let at = entry.at;
    match &entry.what {
        What::Written { session, rows, letters } => {
            for change in rows {
                let change = Move::of(change);
                leases::check(books, at, *session, &change, wrong);
                times::check(books, at, &change, wrong);
                counts::check(books, &change, wrong);
                letters::check_delete(books, *session, &change, letters, wrong);
            }
            letters::check(books, rows, letters, wrong);
        }
        What::Sent { session, action } => drains::check_sent(books, *session, action, wrong),
        What::Runs { id, token } => handlers::check_start(books, at, (*id, *token), wrong),
        What::Cancelled { id, done } => times::check_cancelled(books, *id, *done, wrong),
        _ => {}
    }
}

/// What has to hold once the books are up to date.
fn after(books: &Books, entry: &Entry, wrong: &mut Wrong) {
    match &entry.what {
        What::Written { .. } => times::check_timers(books, wrong),
        What::Drained { session, .. } => {
            drains::check_drained(books, entry.at, *session, wrong);
        }
        What::Published { begun, delay, published, .. } => {
            times::check_published(books, *begun + *delay, *published, wrong);
        }
        _ => {}
    }
}
