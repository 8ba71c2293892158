//! Handlers that publish much with their acks: as many results wait, and are written at
//! once, as there is memory for, however small their number is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::{Bytes, Context, HandlerError, Outgoing, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};
use sqlx::Executor;
use tokio::time::sleep;

use super::SECOND;

on_both!(a_result_larger_than_all_that_may_wait_is_written_alone);

on_postgres!(large_results_wait_and_are_written_by_their_bytes);

const MIB: usize = 1 << 20;
/// What may wait, and what one statement may have.
const BUDGET: usize = 32;
const WORKERS: usize = 10;
const ROWS: i64 = 200;

/// Publishes messages of that size with each ack, and counts its runs.
fn copier(messages: usize, bytes: usize) -> (Subscriber, Arc<AtomicUsize>) {
    let (ended, body) = (Arc::new(AtomicUsize::new(0)), Bytes::from(vec![b'7'; bytes]));
    let count = Arc::clone(&ended);
    let copier = Subscriber::new("copier", "q", move |ctx: Context| {
        let (count, body) = (Arc::clone(&count), body.clone());
        async move {
            for _ in 0..messages {
                ctx.publisher().collect(Outgoing::raw("copies", body.clone()))?;
            }
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, HandlerError>(())
        }
    });
    (copier.max_workers(WORKERS), ended)
}

const LEFT: &str = "SELECT count(*) FROM outbox WHERE queue = 'q'";
const COPIES: &str = "SELECT count(*) FROM outbox WHERE queue = 'copies'";

/// Holds up what acks publish, and notes how large each statement was, and of which transaction.
const WEIGHED: &str = "
    CREATE TABLE sizes (bytes bigint, tx bigint DEFAULT txid_current());
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$;
    CREATE FUNCTION weigh() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
    $$ BEGIN INSERT INTO sizes (bytes) SELECT sum(length(payload)) FROM written; RETURN NULL; END $$;
    CREATE TRIGGER wait BEFORE INSERT ON outbox EXECUTE FUNCTION wait();
    CREATE TRIGGER weigh AFTER INSERT ON outbox REFERENCING NEW TABLE AS written
        FOR EACH STATEMENT EXECUTE FUNCTION weigh()";

async fn large_results_wait_and_are_written_by_their_bytes(db: &Db) {
    db.send_all((0..ROWS).map(|n| Outgoing::new("q", &n))).await;
    db.exec(WEIGHED).await;
    let mut lock = db.pg().begin().await.unwrap();
    lock.execute("SELECT pg_advisory_xact_lock(7)").await.unwrap();
    let (copier, ended) = copier(1, MIB);
    let running = db.app().only([copier]).start().await.unwrap();
    let ended = || ended.load(Ordering::SeqCst);
    eventually("a batch is written and others wait", async || ended() > BUDGET + WORKERS).await;
    sleep(2 * SECOND).await;
    // Two batches are being written, as much waits, and each worker has a result in hand.
    let most = 3 * BUDGET + WORKERS;
    assert!(ended() <= most, "{} runs have ended, of which {most} may", ended());
    lock.rollback().await.unwrap();
    eventually("all are handled", async || db.int(LEFT).await == 0).await;
    running.stop().await.unwrap();
    assert_eq!((db.int(COPIES).await, db.letters().await), (ROWS, 0));
    let largest = usize::try_from(db.int("SELECT max(bytes) FROM sizes").await).unwrap();
    assert!((MIB..=BUDGET * MIB).contains(&largest), "{largest} bytes at once");
}

async fn a_result_larger_than_all_that_may_wait_is_written_alone(db: &Db) {
    db.send_all((0..3).map(|n| Outgoing::new("q", &n))).await;
    if db.is_postgres() {
        db.exec(WEIGHED).await;
    }
    let (copier, ended) = copier(4, 12 * MIB);
    let running = db.app().only([copier]).start().await.unwrap();
    eventually("all are handled", async || db.int(LEFT).await == 0).await;
    running.stop().await.unwrap();
    let whole = format!("{COPIES} AND length(payload) = {}", 12 * MIB);
    assert_eq!((db.int(whole).await, ended.load(Ordering::SeqCst)), (12, 3));
    if db.is_postgres() {
        let of_each = "SELECT sum(bytes)::text FROM sizes GROUP BY tx";
        assert_eq!(db.texts(of_each).await, vec![(48 * MIB).to_string(); 3]);
    }
}
