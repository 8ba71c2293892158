//! Statements and commits of a transaction that was lent, on which no answer comes.

use outbox::retry::Constant;
use outbox::{App, Context, FromContext, HandlerError, Subscriber, Tx};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::{eventually, soon};
use sqlx::postgres::{PgPool, PgPoolOptions};

use super::handlers::{Then, subscriber};
use super::*;

on_postgres!(
    a_statement_that_hangs_costs_its_handler_its_attempts_and_the_pool_nothing,
    a_transaction_that_was_kept_is_undone_when_it_is_dropped,
    a_savepoint_that_is_given_up_half_way_is_its_handler_s_failure,
    no_more_than_one_ack_goes_by_a_plan_of_when_the_table_was_nearly_empty,
);

fn pool_of_one(options: sqlx::postgres::PgConnectOptions) -> PgPool {
    PgPoolOptions::new().max_connections(1).connect_lazy_with(options)
}

async fn pay(ctx: Context) -> Result<(), HandlerError> {
    let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
    sqlx::query("UPDATE done SET n = n + 1").execute(&mut *tx).await?;
    Ok(())
}

/// The answer to a statement comes before that to a ROLLBACK behind it, so none comes to
/// that either. The lease is shorter than the time for which it is waited for.
async fn a_statement_that_hangs_costs_its_handler_its_attempts_and_the_pool_nothing(db: &Db) {
    with_domain(db).await;
    db.exec("INSERT INTO done VALUES (1)").await;
    let mut blocker = db.pg().begin().await.unwrap();
    sqlx::query("UPDATE done SET n = 5").execute(&mut *blocker).await.unwrap();
    let case = async || {
        let paying = Subscriber::new("pay", "q", pay).requires::<Tx<sqlx::Postgres>>();
        let paying = paying.retry(Constant::new(SECOND / 10).max_attempts(2));
        let paying = paying.timeout(SECOND).lease_ttl(4 * SECOND);
        let pool = pool_of_one((*db.pg().connect_options()).clone());
        let app = App::postgres(pool.clone()).names(db.names.clone()).only([paying]);
        let stats = app.stats();
        let running = app.start().await.unwrap();
        db.publish("q", 7).await;
        eventually("it is dead-lettered", async || stats.subscribers()[0].terminal() == 1).await;
        let one = stats.subscribers().remove(0);
        let letters = db.letters().await;
        let hang = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually("nor has the server a session of it", async || db.int(hang).await == 0).await;
        eventually("the pool has its place back", async || {
            pool.try_acquire().is_some() || pool.size() == 0
        })
        .await;
        running.stop().await.unwrap();
        (one.dispatched, one.retried, one.lease_lost, letters)
    };
    db.unless_stalled(SECOND, (2, 1, 0, 1), case).await;
    blocker.rollback().await.unwrap();
    // Whoever still waits for the row would have it first.
    soon("nobody has the row", db.exec("UPDATE done SET n = n")).await;
    assert_eq!(db.int("SELECT n FROM done").await, 1, "all of it is undone");
}

/// Nobody takes it any more, and the context of its message may live on.
async fn a_transaction_that_was_kept_is_undone_when_it_is_dropped(db: &Db) {
    with_domain(db).await;
    let kept = super::handlers::Kept::default();
    let contexts = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let keeping = std::sync::Arc::clone(&contexts);
    let one = subscriber(db, Then::Keep(kept.clone())).retry(outbox::retry::NoRetry);
    let one = one.layer(move |ctx: Context, next: outbox::Next| {
        keeping.lock().unwrap().push(ctx.clone());
        next.run(ctx)
    });
    let running = db.app().only([one]).start().await.unwrap();
    db.publish("q", 7).await;
    eventually("it has failed", async || db.letters().await == 1).await;
    let open = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction'";
    eventually("it is open", async || db.int(open).await == 1).await;
    kept.lock().unwrap().clear();
    eventually("it is undone", async || db.int(open).await == 0).await;
    assert_eq!(done(db).await, 0);
    assert_eq!(contexts.lock().unwrap().len(), 1);
    running.stop().await.unwrap();
}

async fn begins_in_vain(ctx: Context) -> Result<(), HandlerError> {
    let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
    sqlx::query("INSERT INTO done VALUES (1)").execute(&mut *tx).await?;
    loop {
        tokio::select! {
            biased;
            // It is sent, and mostly not answered yet.
            quick = sqlx::Connection::begin(&mut *tx) => quick?.commit().await?,
            () = std::future::ready(()) => return Ok(()),
        }
    }
}

/// sqlx rolls back the whole transaction then, and goes on without one: an ack would stand alone.
async fn a_savepoint_that_is_given_up_half_way_is_its_handler_s_failure(db: &Db) {
    with_domain(db).await;
    let one = Subscriber::new("book", "q", begins_in_vain).requires::<Tx<sqlx::Postgres>>();
    let running = db.app().only([one.retry(outbox::retry::NoRetry)]).start().await.unwrap();
    db.publish("q", 7).await;
    eventually("it has failed", async || db.letters().await == 1).await;
    running.stop().await.unwrap();
    assert_eq!(db.texts("SELECT error_kind FROM outbox_dlq").await, ["transaction"]);
    assert_eq!(done(db).await, 0);
}

/// Its connection is the user's, with the user's settings. It notices by the time that it takes.
async fn no_more_than_one_ack_goes_by_a_plan_of_when_the_table_was_nearly_empty(db: &Db) {
    const MANY: i64 = 1_000_000;
    with_domain(db).await;
    let paying = Subscriber::new("pay", "q", pay).requires::<Tx<sqlx::Postgres>>();
    let pool = pool_of_one((*db.pg().connect_options()).clone());
    let app = App::postgres(pool.clone()).names(db.names.clone()).only([paying]);
    let stats = app.stats();
    let others = |rows: i64| {
        format!(
            "INSERT INTO outbox (queue, payload) SELECT 'other', '1' FROM generate_series(1, {rows})"
        )
    };
    db.exec(others(20)).await;
    db.exec("ANALYZE outbox").await;
    let running = app.start().await.unwrap();
    for n in 1..=12 {
        if n == 9 {
            db.exec(others(MANY)).await;
        }
        db.publish("q", 7).await;
        eventually("it is handled", async || stats.subscribers()[0].acked == n).await;
    }
    running.stop().await.unwrap();
    pool.close().await;
    let counted = |what| format!("SELECT {what} FROM pg_stat_user_tables WHERE relname = 'outbox'");
    // With the last of the acks comes what its session has read.
    eventually("the acks are counted", async || db.int(counted("n_tup_del")).await >= 12).await;
    let read = db.int(counted("seq_tup_read")).await;
    assert!(read < 2 * MANY, "{read} rows were read one after the other");
}
