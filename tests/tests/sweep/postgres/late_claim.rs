//! A claim that the server is still at work on when its client hears of it no more.

use std::time::Instant;

use outbox::App;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::{eventually, soon};
use sqlx::{Connection, Executor, PgConnection};

use super::fault::{Fault, Kind, LONG_LEASE};
use super::stage::Stage;
use super::work::{Work, Worker};

on_postgres!(a_claim_that_lands_after_its_connection_is_cut_is_given_back);

/// Statements that write begin, and wait.
const HELD: &str = "
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END';
    CREATE TRIGGER hold BEFORE UPDATE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION hold()";

/// The last message of a claim: all of it was sent.
const WHOLE: Fault = Fault { kind: Kind::After, at: 7 };

async fn a_claim_that_lands_after_its_connection_is_cut_is_given_back(db: &Db) {
    let stage = Stage::set(&db.pg().connect_options()).await;
    let worker = Worker::of(Work::Claim, &stage, LONG_LEASE);
    stage.publish([1]).await;
    stage.exec(HELD).await;
    let mut other = PgConnection::connect_with(&stage.direct.connect_options()).await.unwrap();
    other.execute("SELECT pg_advisory_lock(1)").await.unwrap();
    stage.proxy.arm(Work::Claim.what(), Some(WHOLE));
    let app = App::postgres(stage.pool.clone()).names(stage.names.clone());
    let app = app.only([worker.subscriber()]);
    let running = soon("it starts", app.start()).await.unwrap();
    // The claim, and what gives it back, which comes too early.
    eventually("two statements wait", async || {
        stage.proxy.has_struck() && stage.waits().await == 2
    })
    .await;
    let begun = Instant::now();
    other.execute("SELECT pg_advisory_unlock(1)").await.unwrap();
    eventually("it is handled", async || stage.rows().await == 0).await;
    assert!(begun.elapsed() < LONG_LEASE / 2, "{:?}", begun.elapsed());
    assert_eq!(worker.notes.runs_of(1), 1);
    running.stop().await.unwrap();
    stage.strike().await;
}
