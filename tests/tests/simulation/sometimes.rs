//! What has to happen now and then, or the properties would hold of nothing.

use std::collections::{BTreeMap, HashSet};

use outbox::testing::store::{Fault, Place};

use crate::books::{Books, Lease, Move};
use crate::checks::settling;
use crate::handlers::ATTEMPTS;
use crate::journal::{How, What};
use crate::workload::Ran;

/// How often something happened.
pub type Counts = BTreeMap<String, u64>;

/// Floors for ten thousand seeds: a third of what they gave when this was written, or less.
pub const FLOORS: [(&str, u64); 51] = [
    ("an expired lease is claimed", 5_000),
    ("a lease is extended", 25_000),
    ("a lease is lost after success", 150),
    ("a lease is lost after failure", 70),
    ("a lease is lost on a dead letter", 20),
    ("a row comes back without its letter", 150),
    ("a lease is lost after a snooze", 20),
    ("a handler is cancelled for its lost lease", 60),
    ("a buffered row is skipped", 1_000),
    ("a suspect runs alone", 80),
    ("a letter: max_deliveries", 10),
    ("a letter: rejected", 2_000),
    ("a letter: retry_terminal", 3_000),
    ("a run: Panicked", 2_000),
    ("a run: Dropped", 4_000),
    ("Unanswered claim", 5_000),
    ("Unanswered extend", 200),
    ("Unanswered settle", 1_000),
    ("Late claim", 2_000),
    ("Late extend", 100),
    ("Late settle", 500),
    ("Undone settle", 1_000),
    ("Busy settle", 1_000),
    ("Refused settle", 500),
    ("Stalled claim", 1_500),
    ("Stalled settle", 400),
    ("CutOff settle", 150),
    ("a wake is lost", 15_000),
    ("a wake arrives", 20_000),
    ("a listener is cut off", 2_500),
    ("a crash in between", 5_000),
    ("a crash before claim", 500),
    ("a crash after claim", 500),
    ("a crash before ack", 100),
    ("a crash after ack", 100),
    ("a crash before ack_publishing", 15),
    ("a crash after ack_publishing", 15),
    ("a crash before retry", 50),
    ("a crash after retry", 50),
    ("a crash before bury", 15),
    ("a crash after bury", 15),
    ("a crash before release", 30),
    ("a crash after release", 30),
    ("a crash before extend", 30),
    ("a crash after extend", 30),
    ("a crash while draining", 15),
    ("a drain that drops handlers", 500),
    ("a drain releases a row", 1_500),
    ("a timer is cancelled: true", 500),
    ("a timer is cancelled: false", 800),
    ("a timer: Duplicate", 200),
];

/// What no more may be done for ten thousand seeds: a tenth above what was when this was written.
/// It is the same on every machine.
pub const CEILINGS: [(&str, u64); 3] =
    [("entries of the journals", 2_600_000), ("statements", 1_175_000), ("claims", 611_000)];

pub fn count(books: &Books, ran: &Ran, counts: &mut Counts) {
    let mut add = |what: &str, times: u64| *counts.entry(what.to_owned()).or_default() += times;
    add("seeds", 1);
    add("entries of the journals", ran.journal.len() as u64);
    let stats = ran.broker.stats().subscribers();
    add("a buffered row is skipped", stats.iter().map(|one| one.waited_too_long).sum());
    if let Some(time) = settling(&ran.journal) {
        let within = [10, 30, 60].into_iter().find(|limit| time.as_secs() < *limit);
        let within = within.map_or("more".into(), |limit| format!("{limit} s"));
        add(&format!("all is done after the last fault: {within}"), 1);
    }
    let mut draining = HashSet::new();
    for entry in &ran.journal {
        match &entry.what {
            What::Written { session, rows, letters } => {
                for change in rows.iter().map(Move::of) {
                    if let Some(what) = kind(books, &change, draining.contains(session)) {
                        add(what, 1);
                    }
                }
                for letter in letters {
                    add(&format!("a letter: {}", letter.failure_reason), 1);
                }
            }
            What::Sent { action, .. } => {
                add("statements", 1);
                add("claims", u64::from(*action == "claim"));
            }
            What::Fault { action, fault, .. } => add(&trouble(action, *fault), 1),
            What::Woke { processes: 0, .. } => add("a wake is lost", 1),
            What::Woke { .. } => add("a wake arrives", 1),
            What::Deafened { .. } => add("a listener is cut off", 1),
            What::Crashed { session, .. } if draining.contains(session) => {
                add("a crash while draining", 1);
            }
            What::Crashed { place: Place::Before(action), .. } => {
                add(&format!("a crash before {action}"), 1);
            }
            What::Crashed { place: Place::After(action), .. } => {
                add(&format!("a crash after {action}"), 1);
            }
            What::Crashed { .. } => add("a crash in between", 1),
            What::Draining { session } => {
                draining.insert(*session);
            }
            What::Drained { clean: true, .. } => add("a drain", 1),
            What::Drained { clean: false, .. } => add("a drain that drops handlers", 1),
            What::Ends { how, .. } => add(&format!("a run: {how:?}"), 1),
            What::Cancelled { done, .. } => add(&format!("a timer is cancelled: {done}"), 1),
            What::Published { published, timer: true, .. } => {
                let said = format!("{published:?}");
                add(&format!("a timer: {}", said.split('(').next().unwrap_or_default()), 1);
            }
            _ => {}
        }
    }
    for lease in books.leases.values() {
        if let Some(what) = lost(books, lease) {
            add(what, 1);
        }
    }
}

fn kind(books: &Books, change: &Move<'_>, draining: bool) -> Option<&'static str> {
    match change {
        Move::Claimed { before, .. } if before.acquired_token.is_some() => {
            Some("an expired lease is claimed")
        }
        Move::Claimed { .. } => Some("a claim"),
        Move::Extended { before, after } if before.acquired_token != after.acquired_token => {
            Some("a suspect runs alone")
        }
        Move::Extended { .. } => Some("a lease is extended"),
        Move::Released { before, .. } if books.lease(before).is_some_and(Lease::failed) => {
            Some("a row comes back without its letter")
        }
        Move::Released { .. } if draining => Some("a drain releases a row"),
        _ => None,
    }
}

/// What went wrong with which statements.
fn trouble(action: &str, fault: Fault) -> String {
    let settles = ["ack", "ack_publishing", "retry", "bury", "release"].contains(&action);
    let statement = if settles { "settle" } else { action };
    format!("{fault:?} {statement}")
}

/// A lease whose handler came to something that was not written, though its process
/// lived.
fn lost(books: &Books, lease: &Lease) -> Option<&'static str> {
    let (at, how) = lease.ended?;
    let died = books.crashed.get(&lease.session).is_some_and(|died| *died >= at);
    if lease.settled || died {
        return None;
    }
    match how {
        How::Done => Some("a lease is lost after success"),
        How::Rejected => Some("a lease is lost on a dead letter"),
        How::Failed | How::Panicked if lease.attempts + 1 == ATTEMPTS => {
            Some("a lease is lost on a dead letter")
        }
        How::Failed | How::Panicked => Some("a lease is lost after failure"),
        How::Snoozed => Some("a lease is lost after a snooze"),
        How::Dropped => Some("a handler is cancelled for its lost lease"),
    }
}
