//! What single messages cost.

use std::time::{Duration, Instant};

use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::free;
use outbox_tests::wait::eventually;
use outbox_tests::wire::Wire;
use sqlx::postgres::PgPoolOptions;

const HOUR: Duration = Duration::from_secs(3600);

on_postgres!(
    a_message_alone_takes_two_statements,
    a_pool_that_keeps_no_statements_has_the_engine_prepare_none_twice,
    a_pool_that_keeps_no_statements_has_publishers_and_acks_leave_none,
    a_publish_that_failed_keeps_no_later_one_from_being_prepared,
);

/// A claim and an ack.
async fn a_message_alone_takes_two_statements(db: &Db) {
    let wire = Wire::of(db).await;
    let (subscriber, probe) = free("it", "q");
    let subscriber = subscriber.min_poll(HOUR).max_poll(HOUR).lease_ttl(HOUR);
    let running = super::app(db, &wire).only([subscriber]).start().await.unwrap();
    db.publish("q", 0).await;
    probe.start().await;
    db.drained().await;
    let looked = || wire.counts().sent.keys().any(|text| text.contains("virtualtransaction"));
    eventually("it sleeps", async || looked()).await;
    wire.begin();
    let (messages, begun) = (40, Instant::now());
    for n in 1..=messages {
        db.publish("q", n).await;
        assert_eq!(probe.start().await.n, n);
        db.drained().await;
    }
    let (counts, took) = (wire.counts(), begun.elapsed());
    running.stop().await.unwrap();
    println!("{} statements for {messages} messages", counts.statements());
    // Where claims take long, one in twenty of the time goes to looks from the start: ten a
    // second at most, and never one more for each message.
    let looks = usize::try_from(took.as_millis() / 100).unwrap();
    // A sign of life of the listener may come in between, and a look after it.
    let most = (2 * 40 + 4 + looks).min(3 * 40 - 1);
    assert!(counts.statements() <= most, "{most} in {took:?}: {:#?}", counts.sent);
}

/// sqlx would leave each of them on the server, for as long as the connection lives.
async fn a_pool_that_keeps_no_statements_has_publishers_and_acks_leave_none(db: &Db) {
    use outbox::{Context, FromContext as _, HandlerError, Subscriber, Tx};

    const LEFT: &str = "SELECT count(*) FROM pg_prepared_statements";
    let options = (*db.pg().connect_options()).clone().statement_cache_capacity(0);
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let left = async || -> i64 {
        sqlx::query_scalar(LEFT).persistent(false).fetch_one(&pool).await.unwrap()
    };
    let to = |queue: &str, n: i32| outbox::Outgoing::new(queue, &n);
    type Batch<'a> = &'a dyn Fn(i32) -> Vec<outbox::Outgoing>;
    let batches: [Batch<'_>; 4] = [
        &|n| vec![to("q", n)],
        &|n| vec![to("q", n), to("q", n)],
        &|n| vec![to("q", n), to("r", n)],
        &|n| vec![to("r", n).timer_id(format!("{n}")), to("r", n)],
    ];
    for batch in batches {
        let (publisher, before) = (outbox::Publisher::new(db.names.clone()), left().await);
        let mut tx = pool.begin().await.unwrap();
        for n in 0..20 {
            let mut messages = batch(n);
            if messages.len() > 1 {
                publisher.publish_batch(&mut tx, messages).await.unwrap();
            } else {
                publisher.send(&mut tx, messages.remove(0)).await.unwrap();
            }
        }
        tx.rollback().await.unwrap();
        let after = left().await;
        assert!(after <= before + 1, "{after} after publishes, {before} before");
    }
    db.send_all((0..20).map(|n| to("q", n))).await;
    let before = left().await;
    let lent = Subscriber::new("lent", "q", |ctx: Context| async move {
        Tx::<sqlx::Postgres>::from_context(&ctx).await?;
        Ok::<_, HandlerError>(())
    });
    let app = outbox::App::postgres(pool.clone()).names(db.names.clone());
    let running = app.only([lent.max_workers(1)]).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    let after = left().await;
    assert!(after <= before + 2, "{after} after acks, {before} before");
}

/// Such as one before the tables were made.
async fn a_publish_that_failed_keeps_no_later_one_from_being_prepared(db: &Db) {
    let options = (*db.pg().connect_options()).clone();
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let publisher = outbox::Publisher::new(db.names.clone());
    db.exec("ALTER TABLE outbox RENAME TO elsewhere").await;
    let mut tx = pool.begin().await.unwrap();
    assert!(publisher.publish(&mut tx, "q", &1).await.is_err());
    tx.rollback().await.unwrap();
    db.exec("ALTER TABLE elsewhere RENAME TO outbox").await;
    let mut tx = pool.begin().await.unwrap();
    publisher.publish(&mut tx, "q", &1).await.unwrap();
    tx.commit().await.unwrap();
    let prepared = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM pg_prepared_statements");
    assert_eq!(prepared.persistent(false).fetch_one(&pool).await.unwrap(), 1);
}

/// As above.
async fn a_pool_that_keeps_no_statements_has_the_engine_prepare_none_twice(db: &Db) {
    let wire = Wire::of(db).await;
    let options = wire.options.clone().statement_cache_capacity(0);
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    let (subscriber, probe) = free("it", "q");
    let app = outbox::App::postgres(pool).names(db.names.clone()).only([subscriber]);
    let running = app.start().await.unwrap();
    let messages = 50;
    for n in 0..messages {
        db.publish("q", n).await;
        assert_eq!(probe.start().await.n, n);
        db.drained().await;
    }
    let counts = wire.counts();
    running.stop().await.unwrap();
    for statement in ["-- Leases due rows", "-- Deletes handled rows"] {
        let asked = counts.asked.iter().filter(|(text, _)| text.starts_with(statement));
        let asked: usize = asked.map(|(_, count)| count).sum();
        let sent = counts.of(statement);
        assert!(sent >= 50, "{statement}: {:#?}", counts.sent);
        // Each text once on each of four connections, at most.
        assert!(asked - sent < 25, "{statement}: {asked} for {sent}: {:#?}", counts.asked);
    }
}
