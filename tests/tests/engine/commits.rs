//! The wake comes with the commit, whoever commits and however late.

use std::process::Command;
use std::time::Duration;

use outbox::Publisher;
use outbox_tests::db::{Db, Pool};
use outbox_tests::on_both;
use outbox_tests::probe::Probe;
use tokio::time::{Instant, sleep};

use super::clock::{median, slack};
use super::free;

on_both!(
    a_publish_in_a_long_transaction_wakes_at_its_commit,
    a_rollback_hands_nothing_over_and_the_next_commit_wakes,
    a_commit_through_another_pool_wakes,
);

/// As in `wakes`, with the pause between two looks at a file on top.
const AT_ONCE: Duration = Duration::from_millis(70);

/// Longer than a publish of this process keeps the file under close watch.
const LONG: Duration = Duration::from_millis(200);

async fn a_publish_in_a_long_transaction_wakes_at_its_commit(db: &Db) {
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    let mut took = Vec::new();
    for n in 0..5 {
        let publisher = Publisher::new(db.names.clone());
        let begun = match &db.pool {
            Pool::Postgres(pool) => {
                let mut tx = pool.begin().await.unwrap();
                publisher.publish(&mut tx, "q", &n).await.unwrap();
                sleep(LONG).await;
                assert!(probe.more().await.is_empty(), "it is not committed");
                let begun = Instant::now();
                tx.commit().await.unwrap();
                begun
            }
            Pool::Sqlite(pool) => {
                let mut tx = outbox::sqlite::begin(pool).await.unwrap();
                publisher.publish(&mut tx, "q", &n).await.unwrap();
                sleep(LONG).await;
                assert!(probe.more().await.is_empty(), "it is not committed");
                let begun = Instant::now();
                tx.commit().await.unwrap();
                begun
            }
        };
        let run = probe.start().await;
        assert_eq!(run.n, n);
        took.push(run.at - begun);
        db.drained().await;
    }
    let limit = AT_ONCE + slack(db).await;
    assert!(median(took.clone()) < limit, "{took:?}");
    running.stop().await.unwrap();
}

async fn a_rollback_hands_nothing_over_and_the_next_commit_wakes(db: &Db) {
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    probe.falls_asleep(db, "q").await;
    let publisher = Publisher::new(db.names.clone());
    match &db.pool {
        Pool::Postgres(pool) => {
            let mut tx = pool.begin().await.unwrap();
            publisher.publish(&mut tx, "q", &1).await.unwrap();
            tx.rollback().await.unwrap();
        }
        Pool::Sqlite(pool) => {
            let mut tx = outbox::sqlite::begin(pool).await.unwrap();
            publisher.publish(&mut tx, "q", &1).await.unwrap();
            tx.rollback().await.unwrap();
        }
    }
    db.publish("q", 2).await;
    assert_eq!(probe.start().await.n, 2);
    db.drained().await;
    running.stop().await.unwrap();
}

async fn wakes_by(probe: &Probe, db: &Db, mut publish: impl AsyncFnMut(i64)) {
    probe.falls_asleep(db, "q").await;
    for n in 0..3 {
        publish(n).await;
        assert_eq!(probe.start().await.n, n);
        db.drained().await;
    }
}

async fn a_commit_through_another_pool_wakes(db: &Db) {
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    let publisher = Publisher::new(db.names.clone());
    match &db.pool {
        Pool::Postgres(pool) => {
            let other = sqlx::PgPool::connect_lazy_with((*pool.connect_options()).clone());
            wakes_by(&probe, db, async |n| {
                let mut tx = other.begin().await.unwrap();
                publisher.publish(&mut tx, "q", &n).await.unwrap();
                tx.commit().await.unwrap();
            })
            .await;
            other.close().await;
        }
        Pool::Sqlite(_) => {
            let other = outbox::sqlite::connect(&db.url).await.unwrap();
            wakes_by(&probe, db, async |n| {
                let mut tx = outbox::sqlite::begin(&other).await.unwrap();
                publisher.publish(&mut tx, "q", &n).await.unwrap();
                tx.commit().await.unwrap();
            })
            .await;
            other.close().await;
        }
    }
    running.stop().await.unwrap();
}

/// On PostgreSQL every notification comes from another process already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_another_process_to_the_file_wakes() {
    let db = Db::sqlite().await.unwrap();
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    wakes_by(&probe, &db, async |n| {
        let mut publish = Command::new(env!("CARGO_BIN_EXE_publish_one"));
        publish.args([&db.url, "q", &n.to_string()]);
        assert!(publish.status().unwrap().success());
    })
    .await;
    running.stop().await.unwrap();
    db.close().await;
}
