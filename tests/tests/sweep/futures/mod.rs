//! Every future of the library is polled once, twice, …, and dropped. Nothing of it may be
//! left: no session inside a transaction, no half of what it does; and the next call works.

mod app;
mod begin;
mod broker;
mod calls;
mod complete;
mod ground;
mod handlers;
mod store;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use outbox_tests::db::Db;

/// More polls than any call takes.
const MOST: usize = 2000;

/// How often each sweep drops something, at least: what it does on a machine with
/// other things to do. How many polls a call takes differs: an answer may be there before it
/// is waited for. On one thread that is rare.
const FLOORS: [(&str, usize); 22] = [
    ("calls on PostgreSQL", 330),
    ("calls on SQLite", 180),
    ("calls for months on PostgreSQL", 22),
    ("calls for files on SQLite", 4),
    ("statements of the engine on PostgreSQL", 36),
    ("statements of the engine on SQLite", 30),
    ("starts on PostgreSQL", 20),
    ("starts on SQLite", 6),
    ("runs on PostgreSQL", 22),
    ("runs on SQLite", 8),
    ("stops on PostgreSQL", 1),
    ("stops on SQLite", 1),
    // The look at the tables is on a task of its own, which no drop ends.
    ("looks at an app on PostgreSQL", 4),
    ("looks at an app on SQLite", 4),
    ("transactions asked for on PostgreSQL", handlers::ENOUGH),
    ("transactions asked for on SQLite", handlers::ENOUGH),
    ("handlers with a transaction on PostgreSQL", handlers::ENOUGH),
    ("handlers with a transaction on SQLite", handlers::ENOUGH),
    ("plain fns on PostgreSQL", handlers::ENOUGH),
    ("plain fns on SQLite", handlers::ENOUGH),
    ("migrations of a pool of one", 2),
    ("calls of the test broker", 15),
];

fn floor_of(what: &str) -> Option<usize> {
    FLOORS.iter().find(|(name, _)| *name == what).map(|(_, floor)| *floor)
}

/// Tells how often a sweep dropped something, and fails if that is not what it was.
fn swept(what: &str, times: usize) {
    println!("{what}: dropped {times} times");
    let floor = floor_of(what);
    assert!(floor.is_some_and(|floor| times >= floor), "{what}: {times}, not {floor:?} or more");
}

fn swept_on(db: &Db, what: &str, times: usize) {
    swept(&on(db, what), times);
}

fn on(db: &Db, what: &str) -> String {
    format!("{what} on {}", if db.is_postgres() { "PostgreSQL" } else { "SQLite" })
}

/// Of all of them, at least.
pub fn floor() -> usize {
    FLOORS.iter().map(|(_, floor)| floor).sum()
}

/// Polls a future so many times, and drops it if it is not over by then.
async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
