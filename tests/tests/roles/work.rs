//! Each role can do its work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::dlq::{Filter, Replay};
use outbox::ops::doctor::{Limits, Severity};
use outbox::ops::{Load, Operator};
use outbox::{
    App, Context, HandlerError, Outcome, Outgoing, Publisher, Subscriber, TableNames, TimerConflict,
};
use outbox_tests::db::Db;
use outbox_tests::wait::{PATIENCE, eventually};
use sqlx::postgres::PgPool;

use crate::Granted;

/// How publishing ends, by code of the server.
async fn published(
    pool: &PgPool,
    publisher: &Publisher,
    messages: Vec<Outgoing>,
) -> Option<String> {
    let mut tx = pool.begin().await.unwrap();
    let ended = publisher.publish_batch(&mut tx, messages).await;
    let code = ended.err().map(|error| {
        let error = format!("{error}");
        assert!(error.contains("permission denied"), "{error}");
        error
    });
    if code.is_none() {
        tx.commit().await.unwrap();
    }
    code
}

fn message(queue: &str) -> Outgoing {
    Outgoing::new(queue, &1)
}

async fn a_producer_publishes_in_every_way(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let (pool, publisher) = (granted.producer(), Publisher::new(db.names.clone()));
    let later = || message("b").delay(Duration::from_secs(60));
    for messages in
        [vec![message("a")], vec![message("a"), message("a")], vec![message("a"), later()]]
    {
        assert_eq!(published(&pool, &publisher, messages).await, None);
    }
    let mut tx = pool.begin().await.unwrap();
    publisher.send(&mut tx, message("a").timer_id("t")).await.unwrap();
    tx.commit().await.unwrap();
    // A timer that is there is not moved: that takes more rights.
    for (timer, rows) in [("t", 7), ("u", 9)] {
        let batch = vec![message("b"), message("a").timer_id(timer)];
        assert_eq!(published(&pool, &publisher, batch).await, None);
        assert_eq!(db.rows().await, rows);
    }
    let mut tx = pool.begin().await.unwrap();
    assert!(publisher.cancel_timer(&mut tx, "a", "t").await.is_err());
    drop(tx);
    granted.end(&[&pool]).await;
}

async fn a_producer_of_timers_moves_and_cancels_them_too(db: &Db) {
    let granted = Granted::new(db, &db.names, true).await;
    let (pool, publisher) = (granted.producer(), Publisher::new(db.names.clone()));
    let moved = || message("a").timer_id("t").on_conflict(TimerConflict::Extend);
    for _ in 0..2 {
        assert_eq!(published(&pool, &publisher, vec![moved(), message("b")]).await, None);
    }
    let mut tx = pool.begin().await.unwrap();
    publisher.send(&mut tx, moved()).await.unwrap();
    assert!(publisher.cancel_timer(&mut tx, "a", "t").await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(
        publisher.pending(&mut *pool.acquire().await.unwrap(), "b", 9).await.unwrap().len(),
        2
    );
    granted.end(&[&pool]).await;
}

async fn handled(delivery: Context, snoozed: Arc<AtomicBool>) -> Result<Outcome, HandlerError> {
    let publisher = delivery.publisher();
    match (delivery.decode::<String>()?.as_str(), delivery.deliveries()) {
        ("fail", 1) => Err(HandlerError::new("once", "on purpose")),
        // One that is snoozed has not been delivered.
        ("snooze", _) if !snoozed.swap(true, Ordering::SeqCst) => {
            Ok(Outcome::Snooze(Duration::ZERO))
        }
        ("reject", _) => Ok(Outcome::reject("on purpose")),
        ("publish", _) => {
            publisher.collect(
                Outgoing::new("other", &1).timer_id("t").on_conflict(TimerConflict::Extend),
            )?;
            Ok(Outcome::Ack)
        }
        _ => Ok(Outcome::Ack),
    }
}

/// Claims, extends, acks, retries, snoozes, buries, publishes with the ack.
async fn everything_a_consumer_does(db: &Db, names: &TableNames) {
    let granted = Granted::new(db, names, false).await;
    let pool = granted.consumer();
    let snoozed = Arc::new(AtomicBool::new(false));
    let work = Subscriber::new("work", "work", move |delivery: Context| {
        handled(delivery, Arc::clone(&snoozed))
    });
    let app = App::postgres(pool.clone()).names(names.clone());
    let app = app.only([work.retry(outbox::retry::Constant::new(Duration::from_millis(1)))]);
    let running = app.start().await.unwrap();
    let owner = db.named(names.clone());
    for word in ["ack", "fail", "snooze", "reject", "publish", "publish"] {
        owner.send(Outgoing::new("work", &word)).await;
    }
    let table = names.schema().map_or("outbox".into(), |schema| format!("{schema}.outbox"));
    let left = format!("SELECT count(*) FROM {table} WHERE queue = 'work'");
    eventually("all is handled", async || db.int(left.clone()).await == 0).await;
    running.stop().await.unwrap();
    assert_eq!(db.int(format!("SELECT count(*) FROM {table}_dlq")).await, 1);
    assert_eq!(db.int(format!("SELECT count(*) FROM {table} WHERE queue = 'other'")).await, 1);
    granted.end(&[&pool]).await;
}

async fn a_consumer_handles_and_sees_pauses(db: &Db) {
    everything_a_consumer_does(db, &db.names).await;
}

/// Python's tables take their ids from sequences.
async fn the_grants_are_enough_for_tables_that_python_made(db: &Db) {
    for table in ["outbox", "outbox_dlq"] {
        db.exec(format!(
            "ALTER TABLE {table} ALTER COLUMN id DROP IDENTITY;
             CREATE SEQUENCE {table}_ids OWNED BY {table}.id;
             ALTER TABLE {table} ALTER COLUMN id SET DEFAULT nextval('{table}_ids')"
        ))
        .await;
    }
    everything_a_consumer_does(db, &db.names).await;
    let granted = Granted::new(db, &db.names, false).await;
    let (producer, operator) = (granted.producer(), granted.operator());
    let publisher = Publisher::new(db.names.clone());
    assert_eq!(published(&producer, &publisher, vec![message("a")]).await, None);
    let letters = Operator::postgres(operator.clone(), db.names.clone()).dead_letters();
    let replayed = letters.replay(&Filter::new(), &Replay::new()).await.unwrap();
    assert_eq!(replayed.replayed, 1, "{replayed:?}");
    granted.end(&[&producer, &operator]).await;
}

async fn the_grants_go_with_a_schema_that_is_named(db: &Db) {
    db.exec("CREATE SCHEMA \"sho'p\"").await;
    db.exec("CREATE SCHEMA shop").await;
    let names = db.names.clone().in_schema("shop").unwrap();
    db.named(names.clone()).migrate().await;
    everything_a_consumer_does(db, &names).await;
}

async fn an_operator_examines_and_mends(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.operator();
    let operator = Operator::postgres(pool.clone(), db.names.clone());
    operator.check(true).await.unwrap();
    db.publish("work", 1).await;
    let app = App::postgres(pool.clone()).names(db.names.clone());
    let reader = Subscriber::new("work", "work", async |_: Context| {}).decodes::<i64>();
    let mut limits = Limits::default();
    limits.notification = PATIENCE;
    let report = app.only([reader]).doctor().unwrap().limits(limits).examine().await.unwrap();
    // It sees all, but for the vacuum, which is the owner's.
    let found: Vec<_> = report.findings.iter().map(|one| (one.check, one.severity)).collect();
    assert_eq!(found, [("vacuum", Severity::Note)], "{report:#?}");
    granted.end(&[&pool]).await;
}

async fn a_consumer_measures(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.consumer();
    let mut load = Load::default();
    load.messages = 200;
    let bench = App::postgres(pool.clone()).names(db.names.clone()).bench(load).unwrap();
    bench.run().await.unwrap();
    bench.clean_up().await.unwrap();
    granted.end(&[&pool]).await;
}

outbox_tests::on_postgres!(
    a_producer_publishes_in_every_way,
    a_producer_of_timers_moves_and_cancels_them_too,
    a_consumer_handles_and_sees_pauses,
    the_grants_are_enough_for_tables_that_python_made,
    the_grants_go_with_a_schema_that_is_named,
    an_operator_examines_and_mends,
    a_consumer_measures,
);
