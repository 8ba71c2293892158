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
/// Nor does a publish, or the ack of a `Tx`, on its own connections: sqlx would close none of them.
async fn a_pool_that_keeps_no_statements_has_publishers_and_acks_leave_none(db: &Db) {
    use outbox::{Context, FromContext as _, HandlerError, Subscriber, Tx};

    const LEFT: &str = "SELECT count(*) FROM pg_prepared_statements";
    let options = (*db.pg().connect_options()).clone().statement_cache_capacity(0);
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let publisher = outbox::Publisher::new(db.names.clone());
    let mut tx = pool.begin().await.unwrap();
    for n in 0..20 {
        publisher.publish(&mut tx, "q", &n).await.unwrap();
        let batch = [n, n].map(|n| outbox::Outgoing::new("q", &n));
        publisher.publish_batch(&mut tx, batch).await.unwrap();
    }
    tx.commit().await.unwrap();
    let left = async || -> i64 {
        sqlx::query_scalar(LEFT).persistent(false).fetch_one(&pool).await.unwrap()
    };
    assert!(left().await <= 1, "{} after publishes", left().await);
    let lent = Subscriber::new("lent", "q", |ctx: Context| async move {
        Tx::<sqlx::Postgres>::from_context(&ctx).await?;
        Ok::<_, HandlerError>(())
    });
    let app = outbox::App::postgres(pool.clone()).names(db.names.clone());
    let running = app.only([lent.max_workers(1)]).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    assert!(left().await <= 3, "{} after acks", left().await);
}

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
