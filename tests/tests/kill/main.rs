//! A process is killed between every two steps of a handler, again and again.
//! What the handler wrote, what it published and its ack agree each time, and so do a dead
//! letter and the row that it was.

mod books;
mod points;
mod traps;
mod worker;

use std::collections::BTreeMap;

use books::Books;
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::wait::eventually;
use points::Lands;

/// Kills of each handler on each database; `OUTBOX_KILL_ROUNDS` overrides it. Of what is one
/// statement in PostgreSQL fewer say as much.
const ROUNDS: usize = 200;
const ROUNDS_OF_A_STATEMENT: usize = 60;

/// More of a kill that took too long.
const TRIES: usize = 5;

const TRANSACTIONAL: &str = "transactional";
const BATCH: &str = "batch";
const RETURNING: &str = "returning";
const REJECTING: &str = "rejecting";

on_both!(
    a_transaction_lent_to_a_handler_happens_once_or_not_yet,
    a_transaction_lent_to_a_batch_happens_once_or_not_yet_for_each_message,
    what_a_handler_returns_is_published_with_its_ack_or_not_yet,
    a_dead_letter_is_written_when_its_row_is_deleted_or_not_yet,
);

async fn a_transaction_lent_to_a_handler_happens_once_or_not_yet(db: &Db) {
    survive(db, TRANSACTIONAL).await;
}

async fn a_transaction_lent_to_a_batch_happens_once_or_not_yet_for_each_message(db: &Db) {
    survive(db, BATCH).await;
}

async fn what_a_handler_returns_is_published_with_its_ack_or_not_yet(db: &Db) {
    survive(db, RETURNING).await;
}

async fn a_dead_letter_is_written_when_its_row_is_deleted_or_not_yet(db: &Db) {
    survive(db, REJECTING).await;
}

async fn survive(db: &Db, handler: &str) {
    let rounds = rounds(db.is_postgres() && handler == REJECTING);
    if db.is_postgres() {
        db.waits_for_locks().await;
    }
    let mut books = Books::open(db, handler).await;
    let points = points::of(db, handler);
    let mut midway = 0;
    let mut landed: BTreeMap<String, Vec<Option<usize>>> = BTreeMap::new();
    for round in 0..rounds {
        let point = points[round % points.len()];
        let mut again = 0..TRIES;
        let (these, left, in_time) = loop {
            books.stock(point.needs(handler)).await;
            let before = books.waiting().await;
            let in_time = point.kill(db, handler, round, round / points.len()).await;
            let left = books.balance(&format!("round {round}, {point:?}")).await;
            if in_time || again.next().is_none() {
                break (before - left, left, in_time);
            }
        };
        midway += usize::from(left > 0);
        match point.lands(handler) {
            Lands::Nothing => assert_eq!(these, 0, "round {round}, {point:?}"),
            Lands::Something => assert!(these > 0 || !in_time, "round {round}, {point:?}"),
            Lands::Anything => {}
        }
        landed.entry(format!("{point:?}")).or_default().push(in_time.then_some(these));
    }
    println!("{handler}: {midway} of {} processes died with messages left", rounds);
    for (point, landed) in landed {
        let all: usize = landed.iter().flatten().sum();
        assert!(landed.iter().any(Option::is_some), "no kill at {point} was in time");
        println!("{handler}: {} kills at {point}, {all} messages landed before", landed.len());
    }
    books.stock(8).await;
    let worker = worker::start(db, handler, None);
    eventually("all is handled", async || books.waiting().await == 0).await;
    worker.stop().await;
    assert_eq!(books.balance("the end").await, 0);
}

fn rounds(of_a_statement: bool) -> usize {
    let given = std::env::var("OUTBOX_KILL_ROUNDS");
    let usual = if of_a_statement { ROUNDS_OF_A_STATEMENT } else { ROUNDS };
    given.map_or(usual, |given| given.parse().expect("a number of rounds"))
}
