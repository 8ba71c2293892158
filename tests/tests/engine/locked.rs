//! A row that somebody else has locked, for as long as a transaction of theirs lasts,
//! keeps nothing else waiting.

use outbox::{Context, Outgoing, Publisher, RunningApp, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::Probe;
use outbox_tests::wait::{eventually, soon};
use sqlx::{Postgres, Transaction};
use tokio::time::{Instant, sleep};

use super::leases::BESIDE_OTHERS;
use super::{SECOND, gated};

on_postgres!(
    a_row_that_is_locked_keeps_no_other_result_of_its_batch_from_being_written,
    acks_that_set_a_timer_which_somebody_holds_keep_no_other_waiting,
    an_ack_that_waits_for_a_timer_for_several_leases_is_not_made_anew,
    a_suspect_that_is_locked_keeps_no_other_row_from_starting,
    a_suspect_that_is_locked_keeps_no_stop_waiting,
);

async fn lock(db: &Db, id: i64) -> Transaction<'static, Postgres> {
    let mut tx = db.pg().begin().await.unwrap();
    let lock = "SELECT FROM outbox WHERE id = $1 FOR UPDATE";
    sqlx::query(lock).bind(id).execute(&mut *tx).await.unwrap();
    tx
}

async fn a_row_that_is_locked_keeps_no_other_result_of_its_batch_from_being_written(db: &Db) {
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber.lease_ttl(60 * SECOND)]).start().await.unwrap();
    for n in 0..9 {
        db.publish("q", n).await;
    }
    let runs = probe.starts(9).await;
    let theirs = lock(db, runs[4].id).await;
    let begun = Instant::now();
    probe.let_end(9);
    eventually("the others are settled", async || db.rows().await == 1).await;
    assert!(begun.elapsed() < 25 * SECOND, "{:?}", begun.elapsed());
    theirs.rollback().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(probe.finished(), 9);
}

/// Somebody has published it, and his transaction is open.
async fn acks_that_set_a_timer_which_somebody_holds_keep_no_other_waiting(db: &Db) {
    db.waits_for_locks().await;
    // The first waits for five seconds, and then anew.
    let expected = ((true, 2), 1, 0);
    db.unless_stalled(2 * SECOND, expected, async || keeps_no_other_waiting(db).await).await;
}

async fn keeps_no_other_waiting(db: &Db) -> ((bool, i64), i64, i64) {
    let timer = || Outgoing::new("timers", &1).timer_id("t");
    let sets = Subscriber::new("sets", "sets", move |ctx: Context| async move {
        ctx.publisher().collect(timer())
    });
    let plain = Subscriber::new("plain", "plain", |_: Context| async {});
    let app = db.app().only([sets, plain]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    let mut theirs = db.pg().begin().await.unwrap();
    Publisher::new(db.names.clone()).send(&mut theirs, timer()).await.unwrap();
    let waits = async || {
        let waits = "SELECT pid || ' since ' || query_start FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'engine'
                AND wait_event_type = 'Lock' AND query LIKE '-- Deletes handled rows%'";
        db.texts(waits).await
    };
    db.publish("sets", 0).await;
    let mut first = Vec::new();
    eventually("the first waits, for five seconds", async || {
        first = waits().await;
        !first.is_empty()
    })
    .await;
    db.publish("sets", 1).await;
    eventually("the second has run", async || stats.subscribers()[0].dispatched == 2).await;
    // By then it would wait, too, had it gone the way of the others: as many as write results.
    sleep(SECOND / 2).await;
    db.send_all((0..100).map(|n| Outgoing::new("plain", &n))).await;
    let left =
        async |queue| db.int(format!("SELECT count(*) FROM outbox WHERE queue = '{queue}'")).await;
    eventually("the others are acked", async || left("plain").await == 0).await;
    let waited_for_none = (waits().await == first, left("sets").await);
    theirs.commit().await.unwrap();
    eventually("all are acked", async || left("sets").await == 0).await;
    running.stop().await.unwrap();
    (waited_for_none, left("timers").await, db.letters().await)
}

/// For as many leases as it would take to run it too often.
async fn an_ack_that_waits_for_a_timer_for_several_leases_is_not_made_anew(db: &Db) {
    let once = (1, (1, 1, 0));
    db.unless_stalled(SECOND / 2, once, async || waits_for_several_leases(db).await).await;
    // By then the server ends what waits for as long as for a lock.
    db.exec("DELETE FROM outbox").await;
    db.exec(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = ''400ms''', \
            current_database()); END $$",
    )
    .await;
    db.unless_stalled(SECOND / 2, once, async || waits_for_several_leases(db).await).await;
}

/// The deliveries of its row meanwhile, and what came of it.
async fn waits_for_several_leases(db: &Db) -> (i64, (u64, u64, i64)) {
    let timer = || Outgoing::new("timers", &1).timer_id("t");
    let sets = Subscriber::new("sets", "sets", move |ctx: Context| async move {
        ctx.publisher().collect(timer())
    });
    let app = db.app().only([sets.lease_ttl(2 * SECOND).max_poll(SECOND).max_deliveries(1)]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    let mut theirs = db.pg().begin().await.unwrap();
    Publisher::new(db.names.clone()).send(&mut theirs, timer()).await.unwrap();
    db.publish("sets", 0).await;
    eventually("it runs", async || stats.subscribers()[0].dispatched == 1).await;
    sleep(8 * SECOND).await;
    let deliveries = "SELECT coalesce(max(deliveries_count), 0) FROM outbox WHERE queue = 'sets'";
    let deliveries = db.int(deliveries).await;
    theirs.rollback().await.unwrap();
    let left = "SELECT count(*) FROM outbox WHERE queue = 'sets'";
    eventually("it is acked", async || db.int(left).await == 0).await;
    running.stop().await.unwrap();
    let of_it = &stats.subscribers()[0];
    (deliveries, (of_it.dispatched, of_it.acked, db.letters().await))
}

/// A suspect that waits to be alone is locked, and then could be alone: the other handler
/// ends. Its id, and the lock.
async fn suspected(db: &Db) -> (RunningApp, [Probe; 2], i64, Transaction<'static, Postgres>) {
    let ((suspects, suspect), (others, other)) = (gated("q"), gated("other"));
    let both = [suspects.max_deliveries(3), others].map(|one| one.lease_ttl(60 * SECOND));
    let running = db.app().only(both).start().await.unwrap();
    db.publish("other", 1).await;
    other.start().await;
    let mut tx = db.pg().begin().await.unwrap();
    let publisher = Publisher::new(db.names.clone());
    let published = publisher.publish(&mut tx, "q", &2).await.unwrap();
    let id = published.id().unwrap();
    sqlx::query(
        "UPDATE outbox SET acquired_token = $2::uuid, deliveries_count = 3,
            acquired_at = clock_timestamp() - interval '2 hours' WHERE id = $1",
    )
    .bind(id)
    .bind(BESIDE_OTHERS)
    .execute(&mut *tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
    let claimed = format!("SELECT count(*) FROM outbox WHERE id = {id} AND deliveries_count = 4");
    eventually("it is claimed", async || db.int(claimed.clone()).await == 1).await;
    let theirs = lock(db, id).await;
    other.let_end(1);
    eventually("the other has ended", async || other.finished() == 1).await;
    (running, [suspect, other], id, theirs)
}

async fn a_suspect_that_is_locked_keeps_no_other_row_from_starting(db: &Db) {
    let (running, [suspect, other], id, theirs) = suspected(db).await;
    eventually("the other is settled", async || db.rows().await == 1).await;
    let begun = Instant::now();
    db.publish("other", 3).await;
    other.start().await;
    assert!(begun.elapsed() < 25 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(suspect.start().await.id, id, "beside it");
    theirs.rollback().await.unwrap();
    other.let_end(1);
    suspect.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
}

async fn a_suspect_that_is_locked_keeps_no_stop_waiting(db: &Db) {
    let (running, [suspect, _], _, theirs) = suspected(db).await;
    let begun = Instant::now();
    soon("it stops", running.stop()).await.unwrap();
    assert!(begun.elapsed() < 25 * SECOND, "{:?}", begun.elapsed());
    theirs.rollback().await.unwrap();
    assert!(suspect.more().await.is_empty());
    assert_eq!((db.rows().await, db.letters().await), (1, 0));
}
