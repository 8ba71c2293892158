//! How many claims a process keeps under way, alone and beside others.

use std::sync::{Arc, Mutex};

use std::time::Duration;

use outbox::{Context, Outgoing, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};
use tokio::time::{Instant, sleep};

use super::SECOND;

on_both!(one_worker_handles_rows_in_their_order);

on_postgres!(
    who_claims_alone_has_two_claims_under_way,
    who_meets_others_has_one_under_way_and_handles_every_row,
);

const ROWS: i64 = 15_000;

async fn fill(db: &Db, queue: &str) {
    let rows = format!("SELECT '{queue}', '1' FROM generate_series(1, {ROWS})");
    db.exec(format!("INSERT INTO outbox (queue, payload) {rows}")).await;
}

/// The most claims of the app that ran at once, after the first three: they find out if
/// there is plenty to do, and if somebody else is at it. Each claim counts for itself.
///
/// Who met others has a second claim under way a second after the last answer, if one takes
/// that long: where the later of two began so long after the claim before both, they do
/// not count.
async fn most_claims(db: &Db) -> i64 {
    db.exec(
        "CREATE TABLE seen (claims bigint NOT NULL, earlier timestamptz NOT NULL,
            later timestamptz NOT NULL, at timestamptz NOT NULL)",
    )
    .await;
    db.exec(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_advisory_xact_lock_shared(0, 7), pg_sleep(0.03);
             INSERT INTO seen
             SELECT count(*), min(query_start), max(query_start), clock_timestamp()
             FROM pg_locks JOIN pg_stat_activity USING (pid)
             WHERE locktype = 'advisory' AND objsubid = 2 AND objid = 7 AND granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
             RETURN NULL;
         END $$",
    )
    .await;
    db.exec(
        "CREATE TRIGGER slow BEFORE UPDATE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    )
    .await;
    fill(db, "q").await;
    let quick = Subscriber::new("quick", "q", |_: Context| async {});
    let running = db.app().only([quick]).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    let claims = db.int("SELECT count(*) FROM seen").await;
    assert!(claims > 10, "{claims}");
    db.int(
        "SELECT max(claims) FROM (SELECT * FROM seen ORDER BY ctid OFFSET 3) AS one
         WHERE claims = 1 OR later < interval '0.9 s'
             + (SELECT max(done.at) FROM seen AS done WHERE done.at < one.earlier)",
    )
    .await
}

/// The first claims find out if there is plenty to do, and if somebody else is at it. Those that
/// follow wait for the test. A subscriber has two of them, and two subscribers have no more.
async fn who_claims_alone_has_two_claims_under_way(db: &Db) {
    const FIRST: i64 = 8;
    db.exec("CREATE SEQUENCE claims").await;
    db.exec(format!(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN
             IF nextval('claims') > {FIRST} THEN PERFORM pg_advisory_xact_lock_shared(0, 7); END IF;
             RETURN NULL;
         END $$"
    ))
    .await;
    db.exec(
        "CREATE TRIGGER wait BEFORE UPDATE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION wait()",
    )
    .await;
    let waiting = "SELECT count(*) FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 2 AND objid = 7 AND NOT granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    for queues in [&["q"][..], &["q", "another"]] {
        let mut held = db.pg().begin().await.unwrap();
        sqlx::query("SELECT pg_advisory_xact_lock(0, 7)").execute(&mut *held).await.unwrap();
        db.exec("ALTER SEQUENCE claims RESTART").await;
        for queue in queues {
            fill(db, queue).await;
        }
        let quick =
            queues.iter().map(|&queue| Subscriber::new(queue, queue, |_: Context| async {}));
        let running = db.app().only(quick).start().await.unwrap();
        eventually("two are under way", async || db.int(waiting).await == 2).await;
        let end = Instant::now() + SECOND;
        while Instant::now() < end {
            assert_eq!(db.int(waiting).await, 2, "of {queues:?}");
            sleep(Duration::from_millis(10)).await;
        }
        held.rollback().await.unwrap();
        db.drained().await;
        running.stop().await.unwrap();
    }
}

async fn who_meets_others_has_one_under_way_and_handles_every_row(db: &Db) {
    // The two places for claims under way, as if other processes had them.
    let mut others = db.pg().begin().await.unwrap();
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, place))
        FROM generate_series(0, 1) AS place";
    let name = format!("{} claims q", db.names.channel());
    sqlx::query(lock).bind(name).execute(&mut *others).await.unwrap();
    assert_eq!(most_claims(db).await, 1);
    others.rollback().await.unwrap();
}

/// Many that wait, and some that come one by one meanwhile.
async fn one_worker_handles_rows_in_their_order(db: &Db) {
    const WAITING: i64 = 5000;
    let (seen, all) = (Arc::<Mutex<Vec<i64>>>::default(), 0..WAITING + 200);
    let sees = Arc::clone(&seen);
    let handler = move |ctx: Context| {
        sees.lock().unwrap().push(ctx.decode().unwrap());
        async {}
    };
    db.send_all((0..WAITING).map(|n| Outgoing::new("q", &n))).await;
    let one = Subscriber::new("one", "q", handler).max_workers(1);
    let running = db.app().only([one]).start().await.unwrap();
    for n in WAITING..all.end {
        db.publish("q", n).await;
    }
    db.drained().await;
    running.stop().await.unwrap();
    let seen = seen.lock().unwrap();
    let place = seen.iter().zip(all.clone()).position(|(seen, n)| *seen != n);
    assert_eq!((place, seen.len()), (None, all.count()));
}
