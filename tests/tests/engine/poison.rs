//! Rows whose worker died. None is condemned for what another one did: a row that
//! used up its deliveries that way first runs alone.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::{AckPolicy, Context, Outcome, Outgoing, Publisher, Subscriber};
use outbox_tests::db::{Db, Pool};
use outbox_tests::on_both;
use outbox_tests::wait::{begun, eventually, standing_still};
use sqlx::AssertSqlSafe;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::leases::{BESIDE_OTHERS, owned, owning};
use super::{HOUR, SECOND, free, gated};

on_both!(
    a_row_whose_worker_died_too_often_runs_once_more_and_alone,
    a_row_whose_worker_died_while_it_ran_alone_is_dead_lettered_unrun,
    a_row_that_was_settled_too_often_is_dead_lettered_unrun,
    a_row_given_back_after_its_workers_died_runs_once_more_and_alone,
    a_row_that_runs_alone_says_so_in_its_token,
    a_row_that_takes_long_alone_holds_up_no_other_for_ever_and_is_said_to_be_beside_them,
    suspects_of_a_batch_are_settled_as_each_ends,
    suspects_beside_a_handler_that_runs_on_keep_others_waiting_once,
    a_suspect_that_is_given_back_unstarted_is_not_condemned,
    a_suspect_that_snoozes_is_not_condemned,
    a_row_stolen_while_it_waits_for_one_that_runs_alone_is_not_started,
    a_stop_gives_back_what_waits_for_a_row_that_runs_alone,
    a_stop_gives_back_a_suspect_that_waits_to_be_alone,
    a_stop_gives_back_the_suspects_of_a_batch_that_have_not_started,
    a_stop_leaves_a_guilty_row_condemned,
    a_suspect_that_is_acked_first_holds_up_no_other_for_ever,
);

/// A token of a run with nothing beside it.
const ALONE: &str = "00000000-0000-8000-8000-000000000001";

async fn a_row_whose_worker_died_too_often_runs_once_more_and_alone(db: &Db) {
    let suspect = suspected(db, 1).await;
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber.max_deliveries(3)]).start().await.unwrap();
    let run = probe.start().await;
    assert_eq!((run.id, run.deliveries), (suspect, 4));
    db.send_all((2..6).map(|n| Outgoing::new("q", &n))).await;
    eventually("the others are claimed", async || db.leased().await == 5).await;
    probe.let_end(1);
    assert_eq!(probe.starts(4).await.len(), 4, "then the others, side by side");
    assert_eq!(probe.most(), 4, "it ran alone");
    probe.let_end(4);
    db.drained().await;
    assert_eq!(db.letters().await, 0, "it is innocent");
    running.stop().await.unwrap();
}

async fn reason(db: &Db) -> String {
    eventually("it is dead-lettered", async || db.letters().await == 1).await;
    db.texts("SELECT failure_reason FROM outbox_dlq").await.remove(0)
}

async fn a_row_whose_worker_died_while_it_ran_alone_is_dead_lettered_unrun(db: &Db) {
    let guilty = db.publish("q", 1).await;
    owned(db, guilty, ALONE, 4, 2 * HOUR).await;
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber.max_deliveries(3)]).start().await.unwrap();
    assert_eq!(reason(db).await, "max_deliveries");
    running.stop().await.unwrap();
    assert_eq!((db.rows().await, probe.more().await.len()), (0, 0));
    assert_eq!(db.int("SELECT deliveries_count FROM outbox_dlq").await, 5);
    assert_eq!(db.int("SELECT count(last_exception) FROM outbox_dlq").await, 0);
}

async fn a_row_that_was_settled_too_often_is_dead_lettered_unrun(db: &Db) {
    db.publish("q", 1).await;
    db.exec("UPDATE outbox SET deliveries_count = 3, attempts_count = 1").await;
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber.max_deliveries(3)]).start().await.unwrap();
    assert_eq!(reason(db).await, "max_deliveries");
    running.stop().await.unwrap();
    assert_eq!((db.rows().await, probe.more().await.len()), (0, 0));
}

/// Its deliveries ended with their processes; that the claim after them was given back,
/// unanswered or by a drain, proves nothing.
async fn a_row_given_back_after_its_workers_died_runs_once_more_and_alone(db: &Db) {
    db.publish("q", 1).await;
    db.exec("UPDATE outbox SET deliveries_count = 3").await;
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber.max_deliveries(3)]).start().await.unwrap();
    assert_eq!(probe.start().await.deliveries, 4);
    assert_eq!(version(db).await, "8", "alone");
    probe.let_end(1);
    db.drained().await;
    assert_eq!(db.letters().await, 0, "it is innocent");
    running.stop().await.unwrap();
}

/// Publishes a row whose worker died too often.
async fn suspected(db: &Db, n: i64) -> i64 {
    let suspect = db.publish("q", n).await;
    owned(db, suspect, BESIDE_OTHERS, 3, 2 * HOUR).await;
    suspect
}

/// The lease of one that has ended is extended no more, and the others take their time.
async fn suspects_of_a_batch_are_settled_as_each_ends(db: &Db) {
    for n in 1..=3 {
        suspected(db, n).await;
    }
    let gate = Arc::new(Semaphore::new(0));
    let gated = Arc::clone(&gate);
    let subscriber = Subscriber::batches("it", "q", 3, move |batch: Vec<Context>| {
        let gate = Arc::clone(&gated);
        assert_eq!(batch.len(), 1, "it runs alone");
        async move { gate.acquire().await.unwrap().forget() }
    });
    let subscriber = subscriber.max_deliveries(3);
    let running = db.app().only([subscriber]).start().await.unwrap();
    for left in [2, 1, 0] {
        gate.add_permits(1);
        eventually("one is acked", async || db.rows().await == left).await;
    }
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
}

/// So that whoever finds its lease expired knows whom to blame. Its lease goes on
/// under that token.
async fn a_row_that_runs_alone_says_so_in_its_token(db: &Db) {
    let suspect = db.publish("q", 1).await;
    // It has come back before: it is alone for longer than this takes.
    owned(db, suspect, BESIDE_OTHERS, 6, 2 * HOUR).await;
    let (subscriber, probe) = gated("q");
    let subscriber = subscriber.max_deliveries(3).lease_ttl(9 * SECOND);
    let running = db.app().only([subscriber]).start().await.unwrap();
    let run = probe.start().await;
    let long = run.lease_deadline + 9 * SECOND;
    eventually("the lease goes on", async || run.context.lease_deadline() >= long).await;
    let token = if db.is_postgres() { "acquired_token::text" } else { "hex(acquired_token)" };
    let token = db.texts(format!("SELECT {token} FROM outbox")).await.remove(0).replace('-', "");
    assert_eq!(token.as_bytes()[12], b'8', "{token}");
    probe.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
}

/// Were it still under the token of one that is alone, a crash would condemn it for them.
async fn a_row_that_takes_long_alone_holds_up_no_other_for_ever_and_is_said_to_be_beside_them(
    db: &Db,
) {
    let suspect = suspected(db, 1).await;
    let (subscriber, probe) = gated("q");
    let (others, other) = gated("others");
    let subscriber = subscriber.max_deliveries(3).lease_ttl(10 * SECOND);
    let running = db.app().only([subscriber, others]).start().await.unwrap();
    let run = probe.start().await;
    assert_eq!((run.id, version(db).await.as_str()), (suspect, "8"), "alone");
    db.publish("others", 2).await;
    other.start().await;
    assert_eq!((probe.running(), version(db).await.as_str()), (1, "4"), "beside the other");
    assert!(!run.context.cancelled().is_cancelled());
    probe.let_end(1);
    eventually("it is acked under that token", async || db.rows().await == 1).await;
    other.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
}

/// The version of the first row's token, which says whether it runs alone.
async fn version(db: &Db) -> String {
    let version = if db.is_postgres() {
        "SELECT substr(acquired_token::text, 15, 1) FROM outbox ORDER BY id"
    } else {
        "SELECT substr(hex(acquired_token), 13, 1) FROM outbox ORDER BY id"
    };
    db.texts(version).await.remove(0)
}

/// Found by the model: given back it no longer tells that its lease ran out, and the next
/// claim dead-lettered it for having been delivered too often.
async fn a_suspect_that_is_given_back_unstarted_is_not_condemned(db: &Db) {
    let suspects = [suspected(db, 1).await, suspected(db, 2).await];
    let (subscriber, probe) = gated("q");
    let one_at_a_time = subscriber.max_deliveries(3).max_workers(1);
    let running = db.app().only([one_at_a_time]).start().await.unwrap();
    assert_eq!(probe.start().await.id, suspects[0]);
    eventually("the other one waits", async || db.leased().await == 2).await;
    let end = async {
        eventually("the other one is given back", async || db.leased().await == 1).await;
        probe.let_end(1);
    };
    tokio::join!(end, async { running.stop().await.unwrap() });
    assert_eq!((db.rows().await, db.letters().await), (1, 0));
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber.max_deliveries(3)]).start().await.unwrap();
    let dealt_with = async || db.letters().await == 1 || probe.running() == 1;
    eventually("it is started or condemned", dealt_with).await;
    assert_eq!(db.letters().await, 0, "its handler has never run");
    assert_eq!(probe.start().await.id, suspects[1]);
    probe.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
}

/// The same for one that ran alone and asks for more time.
async fn a_suspect_that_snoozes_is_not_condemned(db: &Db) {
    suspected(db, 1).await;
    let snoozes = Subscriber::new("snoozes", "q", |_| async { Outcome::Snooze(HOUR) });
    let running = db.app().only([snoozes.max_deliveries(3)]).start().await.unwrap();
    eventually("it is put off", async || db.leased().await == 0).await;
    running.stop().await.unwrap();
    // One more is not too many.
    assert_eq!((db.rows().await, db.deliveries().await), (1, 2));
}

async fn a_row_stolen_while_it_waits_for_one_that_runs_alone_is_not_started(db: &Db) {
    let suspect = db.publish("q", 1).await;
    // It has come back before: it is alone for longer than this takes.
    owned(db, suspect, BESIDE_OTHERS, 6, 2 * HOUR).await;
    let (subscriber, probe) = gated("q");
    let subscriber = subscriber.max_deliveries(3).lease_ttl(15 * SECOND);
    let running = db.app().only([subscriber]).start().await.unwrap();
    let run = probe.start().await;
    let others = [db.publish("q", 2).await, db.publish("q", 3).await];
    eventually("the others are claimed", async || db.leased().await == 3).await;
    let (token, year_2100) = if db.is_postgres() {
        ("'00000000-0000-4000-8000-000000000007'", "TIMESTAMPTZ '2100-01-01'")
    } else {
        ("x'00000000000040008000000000000007'", "4102444800000000")
    };
    let set = format!("acquired_token = {token}, acquired_at = {year_2100}");
    db.exec(format!("UPDATE outbox SET {set} WHERE id = {}", others[0])).await;
    // Leases are extended all at once, and not again before it is known which are lost.
    for _ in 0..2 {
        let before = run.context.lease_deadline();
        eventually("the lease goes on", async || run.context.lease_deadline() > before).await;
    }
    probe.let_end(3);
    assert_eq!(probe.start().await.id, others[1]);
    eventually("the others are settled", async || db.rows().await == 1).await;
    running.stop().await.unwrap();
    assert_eq!((probe.finished(), probe.dropped(), probe.more().await.len()), (2, 0, 0));
}

async fn a_stop_gives_back_what_waits_for_a_row_that_runs_alone(db: &Db) {
    let suspect = suspected(db, 1).await;
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber.max_deliveries(3)]).start().await.unwrap();
    assert_eq!(probe.start().await.id, suspect);
    for n in 2..4 {
        db.publish("q", n).await;
    }
    eventually("the others are claimed", async || db.leased().await == 3).await;
    let given_back = async {
        eventually("the others are given back", async || db.leased().await == 1).await;
        probe.let_end(3);
    };
    tokio::join!(given_back, async { running.stop().await.unwrap() });
    assert!(probe.more().await.is_empty(), "nothing starts after the stop");
    assert_eq!((db.rows().await, db.deliveries().await), (2, 0));
}

/// Publishes a row whose worker died too often: nobody sees it before it is one.
async fn publish_suspect(db: &Db, queue: &str) {
    let publisher = Publisher::new(db.names.clone());
    let owning = |id| AssertSqlSafe(owning(db, id, BESIDE_OTHERS, 3, 2 * HOUR));
    match &db.pool {
        Pool::Postgres(pool) => {
            let mut tx = pool.begin().await.unwrap();
            let id = publisher.publish(&mut tx, queue, &1).await.unwrap().id().unwrap();
            sqlx::query(owning(id)).execute(&mut *tx).await.unwrap();
            tx.commit().await.unwrap();
        }
        Pool::Sqlite(pool) => {
            let mut tx = outbox::sqlite::begin(pool).await.unwrap();
            let id = publisher.publish(&mut tx, queue, &1).await.unwrap().id().unwrap();
            sqlx::query(owning(id)).execute(&mut *tx).await.unwrap();
            tx.commit().await.unwrap();
        }
    }
}

async fn a_stop_gives_back_a_suspect_that_waits_to_be_alone(db: &Db) {
    let (others, busy) = gated("others");
    let (subscriber, probe) = gated("q");
    let subscriber = subscriber.max_deliveries(3).lease_ttl(60 * SECOND);
    let running = db.app().only([others, subscriber]).start().await.unwrap();
    db.publish("others", 2).await;
    busy.start().await;
    publish_suspect(db, "q").await;
    let deliveries = "SELECT max(deliveries_count) FROM outbox";
    eventually("it is claimed", async || db.int(deliveries).await == 4).await;
    let given_back = async {
        eventually("it is given back", async || db.leased().await == 1).await;
        busy.let_end(1);
    };
    tokio::join!(given_back, async { running.stop().await.unwrap() });
    assert!(probe.more().await.is_empty(), "nothing starts after the stop");
    assert_eq!((db.rows().await, db.letters().await), (1, 0));
}

async fn a_stop_gives_back_the_suspects_of_a_batch_that_have_not_started(db: &Db) {
    for n in 1..=3 {
        suspected(db, n).await;
    }
    let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (gated, counted) = (Arc::clone(&gate), Arc::clone(&runs));
    let subscriber = Subscriber::batches("it", "q", 3, move |_: Vec<Context>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let gate = Arc::clone(&gated);
        async move { gate.acquire().await.unwrap().forget() }
    });
    let subscriber = subscriber.max_deliveries(3).max_workers(1).batch_wait(SECOND);
    let running = db.app().only([subscriber]).start().await.unwrap();
    eventually("the first one runs", async || runs.load(Ordering::SeqCst) == 1).await;
    let mut stop = pin!(running.stop());
    begun("stop", stop.as_mut()).await;
    gate.add_permits(3);
    stop.await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1, "nothing starts after the stop");
    assert_eq!((db.rows().await, db.leased().await, db.letters().await), (2, 0, 0));
}

/// Each of them would keep all others from starting until it has given up being alone: for five
/// seconds.
async fn suspects_beside_a_handler_that_runs_on_keep_others_waiting_once(db: &Db) {
    db.publish("long", 0).await;
    for n in 0..6 {
        suspected(db, n).await;
    }
    let ((long, runs_on), (suspects, suspect)) = (gated("long"), free("q"));
    let (others, other) = free("other");
    let suspects = suspects.max_deliveries(3).max_workers(1);
    let begun = Instant::now();
    let running = db.app().only([long, suspects, others]).start().await.unwrap();
    let all_start = async {
        runs_on.start().await;
        for n in 0..10 {
            db.publish("other", n).await;
            other.start().await;
        }
        suspect.starts(6).await;
        begun.elapsed()
    };
    let (took, still) = standing_still(async || db.exec("SELECT 1").await, all_start).await;
    assert!(took < 10 * SECOND + still, "{took:?}, of which the machine stood still for {still:?}");
    runs_on.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
}

/// Given back it would not tell what it has done, and run beside others.
async fn a_stop_leaves_a_guilty_row_condemned(db: &Db) {
    let guilty = db.publish("q", 1).await;
    db.publish("q", 2).await;
    owned(db, guilty, ALONE, 4, 2 * HOUR).await;
    // It is due behind the other one.
    tokio::time::sleep(SECOND / 100).await;
    db.publish("later", 3).await;
    let later = "(SELECT created_at FROM outbox WHERE queue = 'later')";
    db.exec(format!("UPDATE outbox SET next_attempt_at = {later} WHERE id = {guilty}")).await;
    db.exec("DELETE FROM outbox WHERE queue = 'later'").await;
    let (subscriber, probe) = gated("q");
    let running =
        db.app().only([subscriber.max_deliveries(3).max_workers(1)]).start().await.unwrap();
    assert_ne!(probe.start().await.id, guilty);
    eventually("it waits", async || db.leased().await == 2).await;
    let end = async {
        eventually("it is to run alone", async || version(db).await == "8").await;
        probe.let_end(1);
    };
    tokio::join!(end, async { running.stop().await.unwrap() });
    assert_eq!((db.rows().await, db.leased().await, db.deliveries().await), (1, 1, 5));
    // Its token stays what the stop has left.
    let hours = if db.is_postgres() { "interval '2 hours'" } else { "7200000000" };
    db.exec(format!("UPDATE outbox SET acquired_at = acquired_at - {hours}")).await;
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber.max_deliveries(3)]).start().await.unwrap();
    assert_eq!(reason(db).await, "max_deliveries");
    running.stop().await.unwrap();
    assert!(probe.more().await.is_empty(), "it has not run");
}

async fn a_suspect_that_is_acked_first_holds_up_no_other_for_ever(db: &Db) {
    let suspect = suspected(db, 1).await;
    let ((subscriber, probe), (others, other)) = (gated("q"), gated("others"));
    let subscriber = subscriber.ack(AckPolicy::AckFirst).max_deliveries(3);
    let running = db.app().only([subscriber.lease_ttl(10 * SECOND), others]).start().await.unwrap();
    assert_eq!(probe.start().await.id, suspect);
    db.publish("others", 2).await;
    other.start().await;
    probe.let_end(1);
    other.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
}
