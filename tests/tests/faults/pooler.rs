//! PgBouncer in transaction mode between an app and its server: prepared statements are
//! those of whichever session comes.

use std::collections::BTreeSet;

use outbox::dlq::Filter;
use outbox::ops::{Operator, PeekOptions, SampleOptions, WhyOptions};
use outbox::{Outgoing, Publisher};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::pooler::Pooler;
use outbox_tests::probe::free;
use outbox_tests::wait::soon;
use tokio::time::sleep;

use super::{HOUR, OFTEN, SECOND, publish};

on_postgres!(
    an_app_behind_a_pooler_in_transaction_mode_says_why_it_does_not_start,
    an_app_behind_a_pooler_that_hands_out_sessions_in_turn_does_not_start_either,
    a_service_behind_a_pooler_in_transaction_mode_publishes_and_wakes,
    an_operator_behind_a_pooler_in_transaction_mode_gets_answers,
);

const WHY: &str = "go through a pooler in transaction mode: connect to the server itself";

/// Transactions of each kind of publish at once.
const EACH: i64 = 60;

/// None starts by luck: it would run statements that another session prepared.
async fn an_app_behind_a_pooler_in_transaction_mode_says_why_it_does_not_start(db: &Db) {
    let Some(pooler) = Pooler::start(db, "transaction").await else { return };
    let (subscriber, probe) = free("it", "q");
    let subscriber = subscriber.lease_ttl(2 * SECOND).min_poll(OFTEN).max_poll(OFTEN);
    for n in 0..6 {
        publish(db, "q", [n]).await;
        let app = pooler.app(db, 100).only([subscriber.clone()]).drain_timeout(SECOND);
        let error = app.start().await.expect_err("it does not start");
        assert!(error.to_string().contains(WHY), "{error}");
    }
    let running = db.app().only([subscriber]).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    let handled: BTreeSet<i64> = probe.more().await.iter().map(|run| run.n).collect();
    assert_eq!((handled.len(), db.letters().await), (6, 0));
}

/// Of two sessions a connection that takes turns with another one gets the same each time.
async fn an_app_behind_a_pooler_that_hands_out_sessions_in_turn_does_not_start_either(db: &Db) {
    let Some(pooler) = Pooler::in_turn(db).await else { return };
    let pool = pooler.pool(db, 100);
    let (one, two) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
    one.rollback().await.unwrap();
    two.rollback().await.unwrap();
    pool.close().await;
    for _ in 0..3 {
        let (subscriber, _) = free("it", "q");
        let app = pooler.app(db, 100).only([subscriber]).drain_timeout(SECOND);
        let error = app.start().await.expect_err("it does not start");
        let error = error.to_string();
        // Not by a statement that another session has prepared, which is luck.
        assert!(error.contains(WHY) && !error.contains("OUTBOX_PREPARED"), "{error}");
    }
}

/// On four connections, which share two sessions.
async fn a_service_behind_a_pooler_in_transaction_mode_publishes_and_wakes(db: &Db) {
    let Some(pooler) = Pooler::start(db, "transaction").await else { return };
    let (subscriber, probe) = free("it", "q");
    let subscriber = subscriber.min_poll(HOUR).max_poll(HOUR);
    let running = db.app().only([subscriber]).start().await.unwrap();
    let (pool, publisher) = (pooler.pool(db, 100), Publisher::new(db.names.clone().unprepared()));
    db.exec("CREATE TABLE orders (id bigint PRIMARY KEY)").await;
    let one = |n: i64| {
        let (pool, publisher) = (&pool, &publisher);
        async move {
            let mut tx = pool.begin().await.unwrap();
            let order = sqlx::query("INSERT INTO orders VALUES ($1)").bind(n).persistent(false);
            order.execute(&mut *tx).await.unwrap();
            match n % 3 {
                0 => {
                    publisher.publish(&mut tx, "q", &n).await.unwrap();
                }
                1 => {
                    let batch = [Outgoing::new("q", &n), Outgoing::new("q", &(n + 3 * EACH))];
                    assert_eq!(publisher.publish_batch(&mut tx, batch).await.unwrap().len(), 2);
                }
                _ => {
                    let timer = Outgoing::new("q", &n).timer_id(n.to_string()).delay(HOUR);
                    assert!(publisher.send(&mut tx, timer).await.unwrap().id().is_some());
                    let at_once = Outgoing::new("q", &n).delay(OFTEN);
                    publisher.send(&mut tx, at_once).await.unwrap();
                    assert!(publisher.cancel_timer(&mut tx, "q", &n.to_string()).await.unwrap());
                }
            }
            tx.commit().await.unwrap();
        }
    };
    let some = async |of: i64| {
        for n in (0..3 * EACH).filter(|n| n % 4 == of) {
            one(n).await;
        }
    };
    tokio::join!(some(0), some(1), some(2), some(3));
    db.drained().await;
    let mut handled: Vec<i64> = probe.more().await.iter().map(|run| run.n).collect();
    handled.sort_unstable();
    let twice = (0..EACH).map(|n| 3 * n + 1 + 3 * EACH);
    assert_eq!(handled, (0..3 * EACH).chain(twice).collect::<Vec<_>>());
    // Nobody else looks: each of these is found by its wake.
    for n in 0..10 {
        sleep(OFTEN / 2).await;
        one(3 * (1000 + n)).await;
        assert_eq!(soon("it is woken", probe.start()).await.n, 3 * (1000 + n));
    }
    running.stop().await.unwrap();
}

/// Of a server on which each session has been used by others, and prepared what they left.
async fn an_operator_behind_a_pooler_in_transaction_mode_gets_answers(db: &Db) {
    let Some(pooler) = Pooler::start(db, "transaction").await else { return };
    let names = db.names.clone().unprepared();
    let operator = Operator::postgres(pooler.pool(db, 100), names.clone());
    let (pool, publisher) = (pooler.pool(db, 100), Publisher::new(names));
    let traffic = async {
        loop {
            let mut tx = pool.begin().await.unwrap();
            publisher.publish(&mut tx, "other", &1).await.unwrap();
            tx.commit().await.unwrap();
        }
    };
    publish(db, "q", [1]).await;
    let id = db.int("SELECT max(id) FROM outbox").await;
    let letters = operator.dead_letters();
    let rounds = async |queue: &str| {
        for _ in 0..20 {
            operator.pause(&[queue], None).await.unwrap();
            operator.paused().await.unwrap();
            operator.resume(&[queue]).await.unwrap();
            operator.cancel_timer(queue, "t").await.unwrap();
            operator.sample(&SampleOptions::default().of([queue])).await.unwrap();
            operator.peek("q", &PeekOptions::default()).await.unwrap();
            operator.queues(10).await.unwrap();
            operator.check(true).await.unwrap();
            operator.why(id, &WhyOptions::default()).await.unwrap();
            operator.why(i64::MAX, &WhyOptions::default()).await.unwrap();
            letters.now().await.unwrap();
            letters.list(&Filter::default(), None, 10).await.unwrap();
            letters.partitions().await.unwrap();
        }
    };
    let all = async { tokio::join!(rounds("a"), rounds("b"), rounds("c")) };
    tokio::select! {
        never = traffic => never,
        _ = all => {}
    }
    for _ in 0..20 {
        letters.partition(1).await.unwrap();
    }
}
