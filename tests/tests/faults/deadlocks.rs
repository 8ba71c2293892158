//! Somebody who writes rows in the order in which nobody else does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::{Context, FromContext as _, Next, Outgoing, Subscriber, TimerConflict, Tx};
use outbox_tests::capture;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::eventually;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

on_postgres!(
    who_sets_a_timer_that_an_ack_has_is_not_the_one_that_gives_way,
    nor_one_whose_ack_is_that_of_a_transaction,
    who_writes_rows_the_other_way_round_is_never_the_one_that_gives_way_and_no_message_is_lost,
);

const FOR: Duration = Duration::from_secs(12);
const PAUSE: Duration = Duration::from_millis(20);
/// Of the rows that are leased, the youngest first.
const LEASED: &str = "SELECT id FROM outbox WHERE acquired_token IS NOT NULL
    ORDER BY id DESC LIMIT 40";

/// Changes rows, and keeps that; then deletes some, and takes it back.
async fn admin(db: &Db, end: Instant) -> usize {
    let mut admin = PgConnection::connect(&db.url).await.unwrap();
    let mut written = 0;
    while Instant::now() < end {
        for (write, how) in [
            ("UPDATE outbox SET headers = headers WHERE id =", "COMMIT"),
            ("DELETE FROM outbox WHERE id =", "ROLLBACK"),
        ] {
            let ids: Vec<i64> = sqlx::query_scalar(LEASED).fetch_all(&mut admin).await.unwrap();
            admin.execute("BEGIN").await.unwrap();
            for id in ids {
                let done = admin.execute(AssertSqlSafe(format!("{write} {id}"))).await.unwrap();
                written += usize::from(done.rows_affected() == 1);
            }
            admin.execute(how).await.unwrap();
            sleep(PAUSE).await;
        }
    }
    written
}

type Runs = Arc<Mutex<BTreeMap<i64, usize>>>;

fn counting(runs: &Runs) -> Subscriber {
    let runs = Arc::clone(runs);
    let count = move |ctx: Context| {
        let n: i64 = ctx.decode().unwrap();
        *runs.lock().unwrap().entry(n).or_default() += 1;
        sleep(Duration::from_millis(20 + n.unsigned_abs() % 41))
    };
    Subscriber::new("the other way round", "q", count).max_workers(40).fetch_batch(100)
}

async fn who_writes_rows_the_other_way_round_is_never_the_one_that_gives_way_and_no_message_is_lost(
    db: &Db,
) {
    capture::start();
    let name = db.pg().connect_options().get_database().unwrap().to_owned();
    // The app waits for five seconds, and however slow the machine is, the rest is enough.
    db.exec(format!("ALTER DATABASE {name} SET deadlock_timeout = '12s'")).await;
    let runs = Runs::default();
    let running = db.app().only([counting(&runs)]).start().await.unwrap();
    let end = Instant::now() + FOR;
    let produce = async {
        let mut next = 0;
        while Instant::now() < end {
            db.send_all((next..next + 80).map(|n| Outgoing::new("q", &n))).await;
            next += 80;
            sleep(5 * PAUSE).await;
        }
        next
    };
    let (sent, written) = tokio::join!(produce, admin(db, end));
    db.drained().await;
    let gave_way = capture::count(|line| {
        line.get("subscriber") == Some("the other way round")
            && line.says("message", "settling failed; trying again")
            && line.says("error", "lock timeout")
    });
    println!("{sent} messages, {written} writes, the app gave way {gave_way} times");
    assert!(written > 0 && gave_way > 0, "{written} writes, {gave_way} times");
    let runs = std::mem::take(&mut *runs.lock().unwrap());
    assert_eq!(runs.keys().copied().collect::<Vec<_>>(), (0..sent).collect::<Vec<_>>());
    assert!(runs.values().all(|times| *times == 1), "each was handled once: {runs:?}");
    assert_eq!(db.letters().await, 0);
    running.stop().await.unwrap();
}

/// The ack of `t2` sets `t1`, which the user has moved, and who goes on with `t2`.
async fn who_sets_a_timer_that_an_ack_has_is_not_the_one_that_gives_way(db: &Db) {
    gives_way(db, |sets| sets).await;
}

/// Its ack is made on a connection of the user's pool.
async fn nor_one_whose_ack_is_that_of_a_transaction(db: &Db) {
    gives_way(db, |sets| {
        sets.layer(async |ctx: Context, next: Next| {
            let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
            tx.execute("SELECT 1").await?;
            drop(tx);
            next.run(ctx).await
        })
        .requires::<Tx<sqlx::Postgres>>()
    })
    .await;
}

async fn gives_way(db: &Db, with: fn(Subscriber) -> Subscriber) {
    capture::start();
    let timer = |n: i64, name: &str| Outgoing::new("q", &n).timer_id(name);
    let moved = move |delay: u32| {
        let t1 = timer(1, "t1").delay(Duration::from_secs(60) * delay);
        t1.on_conflict(TimerConflict::Extend)
    };
    let goes_on = Arc::<Notify>::default();
    let go = Arc::clone(&goes_on);
    let sets = Subscriber::new("sets", "q", move |ctx: Context| {
        let go = Arc::clone(&go);
        async move {
            go.notified().await;
            // It may run again.
            go.notify_one();
            ctx.publisher().collect(moved(3)).unwrap();
        }
    });
    db.send_all([moved(1), timer(2, "t2")]).await;
    let running = db.app().only([with(sets)]).start().await.unwrap();
    let leased = "SELECT count(*) FROM outbox WHERE acquired_token IS NOT NULL";
    eventually("it runs", async || db.int(leased).await == 1).await;
    let mut user = db.pg().begin().await.unwrap();
    moved(2).publish(&mut user).await.unwrap();
    goes_on.notify_one();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock'";
    let gave_way = || {
        capture::count(|line| {
            line.get("subscriber") == Some("sets")
                && line.says("message", "a transaction did not begin or did not commit")
        })
    };
    let waits = async || db.int(waits).await > 0 || gave_way() > 0;
    eventually("its ack waits for the user, or has", waits).await;
    // Longer than after which the server looks for a deadlock.
    sleep(Duration::from_secs(2)).await;
    timer(3, "t2").publish(&mut user).await.expect("it does not give way");
    user.commit().await.unwrap();
    let left = "SELECT count(*) FROM outbox WHERE timer_id = 't1'";
    eventually("it is acked", async || db.int("SELECT count(*) FROM outbox").await == 1).await;
    assert_eq!(db.int(left).await, 1);
    running.stop().await.unwrap();
}
