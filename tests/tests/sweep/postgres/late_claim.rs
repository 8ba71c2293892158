//! A claim that the server is still at work on when its client hears of it no more.

use std::time::{Duration, Instant};

use outbox::{App, RunningApp, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::{eventually, soon};
use sqlx::{Connection, Executor, PgConnection};

use super::fault::{Fault, Kind, LONG_LEASE};
use super::stage::Stage;
use super::what::What;
use super::work::{Work, Worker};

on_postgres!(
    a_claim_that_lands_after_its_connection_is_cut_is_given_back,
    a_claim_that_is_cut_while_the_table_is_locked_is_given_back,
);

/// How long its rows may stay leased once nothing holds the server up any more. Shorter by
/// far than the lease, which is what it takes where nobody gives them back.
const SOON: Duration = Duration::from_secs(10);

/// Statements that write begin, and wait.
const HELD: &str = "
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END';
    CREATE TRIGGER hold BEFORE UPDATE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION hold()";

/// The last message of a claim: all of it was sent.
const WHOLE: Fault = Fault { kind: Kind::After, at: 7 };
/// The same of one that was prepared before.
const PREPARED: Fault = Fault { kind: Kind::After, at: 3 };

async fn started(stage: &Stage, subscriber: Subscriber) -> RunningApp {
    let app = App::postgres(stage.pool.clone()).names(stage.names.clone());
    soon("it starts", app.only([subscriber]).start()).await.unwrap()
}

/// The claim, and what gives it back, which comes too early.
async fn both_wait(stage: &Stage) {
    eventually("two statements wait", async || {
        stage.proxy.has_struck() && stage.waits().await == 2
    })
    .await;
}

/// Somebody can claim it again, and does.
async fn is_handled_soon(stage: Stage, worker: &Worker, running: RunningApp) {
    let begun = Instant::now();
    eventually("it is handled", async || stage.rows().await == 0).await;
    let took = begun.elapsed();
    println!("handled after {took:?}");
    assert!(took < SOON, "{took:?}");
    assert_eq!(worker.notes.runs_of(1), 1);
    running.stop().await.unwrap();
    stage.strike().await;
}

async fn a_claim_that_lands_after_its_connection_is_cut_is_given_back(db: &Db) {
    let stage = Stage::set(&db.pg().connect_options()).await;
    let worker = Worker::of(Work::Claim, &stage, LONG_LEASE);
    stage.publish([1]).await;
    stage.exec(HELD).await;
    let mut other = PgConnection::connect_with(&stage.direct.connect_options()).await.unwrap();
    other.execute("SELECT pg_advisory_lock(1)").await.unwrap();
    stage.proxy.arm(Work::Claim.what(), Some(WHOLE));
    let running = started(&stage, worker.subscriber()).await;
    both_wait(&stage).await;
    other.execute("SELECT pg_advisory_unlock(1)").await.unwrap();
    is_handled_soon(stage, &worker, running).await;
}

/// What locks it also writes the row, so that no claim can have come before.
async fn a_claim_that_is_cut_while_the_table_is_locked_is_given_back(db: &Db) {
    let stage = Stage::set(&db.pg().connect_options()).await;
    let worker = Worker::of(Work::Claim, &stage, LONG_LEASE);
    stage.publish([2]).await;
    let often = Duration::from_millis(20);
    let running = started(&stage, worker.subscriber().min_poll(often).max_poll(often)).await;
    eventually("it works", async || stage.rows().await == 0).await;
    // On whichever connection the next one comes, it is prepared there.
    eventually("each has claimed", async || stage.claimless().await == 1).await;
    let mut other = PgConnection::connect_with(&stage.direct.connect_options()).await.unwrap();
    other.execute("BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE").await.unwrap();
    other.execute("INSERT INTO outbox (queue, payload) VALUES ('q', '1')").await.unwrap();
    // Of whichever kind it is.
    stage.proxy.arm(What::Statement("-- Leases due rows"), Some(PREPARED));
    both_wait(&stage).await;
    other.execute("COMMIT").await.unwrap();
    is_handled_soon(stage, &worker, running).await;
}
