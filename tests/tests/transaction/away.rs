//! A database that cannot begin a transaction, or does not commit it, fails no handler: the
//! message comes back, though its handler's first failure would be its last.

use std::sync::Arc;

use outbox::retry::NoRetry;
use outbox::{AckPolicy, App, Next, Stats, Subscriber, SubscriberStats, TableNames};
use outbox_tests::backend::unique;
use outbox_tests::db::{Db, Pool};
use outbox_tests::proxy::Proxy;
use outbox_tests::wait::{PATIENCE, eventually, eventually_within, soon};
use outbox_tests::{capture, on_both, on_postgres};
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteJournalMode, SqlitePoolOptions};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::handlers::{Then, named, subscriber};
use super::*;

on_both!(
    a_transaction_that_finds_no_connection_puts_its_message_off,
    a_timeout_that_is_over_before_the_transaction_begins_puts_its_message_off,
);

on_postgres!(
    an_ack_or_a_commit_that_the_server_undoes_puts_its_message_off,
    a_commit_that_never_arrives_puts_its_message_off,
    a_commit_without_an_answer_keeps_its_worker_for_half_a_minute,
);

outbox_tests::cases!(sqlite in sqlite_only:
    a_file_that_is_busy_at_the_begin_puts_its_message_off,
    a_file_that_is_busy_at_the_commit_puts_its_message_off
);

const MOMENT: Duration = Duration::from_millis(100);

/// Whose every failure is final.
fn strict(db: &Db, then: Then) -> Subscriber {
    strictly(subscriber(db, then))
}

fn strictly(subscriber: Subscriber) -> Subscriber {
    subscriber.retry(NoRetry).ack(AckPolicy::RejectOnError)
}

fn count(stats: &Stats) -> SubscriberStats {
    stats.subscribers().remove(0)
}

/// It is there, and nothing of it is spent.
async fn waits(db: &Db) {
    let spent = "SELECT count(*) FROM outbox WHERE queue = 'q'
        AND (attempts_count > 0 OR deliveries_count > 1)";
    let there = "SELECT count(*) FROM outbox WHERE queue = 'q'";
    assert_eq!((db.int(there).await, db.int(spent).await, db.letters().await), (1, 0, 0));
}

/// It is handled once, and failed never.
async fn is_done_in_the_end(db: &Db, stats: &Stats) {
    eventually("it is done", async || count(stats).acked == 1).await;
    let one = count(stats);
    assert_eq!((one.retried, one.terminal(), one.lease_lost), (0, 0, 0), "{one:?}");
    assert!(one.snoozed > 0, "{one:?}");
    assert_eq!((done(db).await, receipts(db).await, db.rows().await), (1, 1, 1));
    assert_eq!(db.letters().await, 0);
}

/// A pool of one connection, and how long it is waited for.
fn pool_of_one(db: &Db, wait: Duration) -> Pool {
    match &db.pool {
        Pool::Postgres(pool) => {
            let one = PgPoolOptions::new().max_connections(1).acquire_timeout(wait);
            Pool::Postgres(one.connect_lazy_with((*pool.connect_options()).clone()))
        }
        Pool::Sqlite(pool) => {
            let one = SqlitePoolOptions::new().max_connections(1).acquire_timeout(wait);
            Pool::Sqlite(one.connect_lazy_with((*pool.connect_options()).clone()))
        }
    }
}

fn boxed(connection: impl Send + 'static) -> Box<dyn Send> {
    Box::new(connection)
}

/// Its connection, for as long as the value lives.
async fn taken(pool: &Pool) -> Box<dyn Send> {
    // To open it may take longer than the pool waits for it.
    let acquired = async {
        loop {
            let connection = match pool {
                Pool::Postgres(pool) => pool.acquire().await.map(boxed),
                Pool::Sqlite(pool) => pool.acquire().await.map(boxed),
            };
            if let Ok(connection) = connection {
                return connection;
            }
        }
    };
    soon("a connection", acquired).await
}

fn app(db: &Db, pool: &Pool) -> App {
    let app = match pool.clone() {
        Pool::Postgres(pool) => App::postgres(pool),
        Pool::Sqlite(pool) => App::sqlite(pool),
    };
    app.names(db.names.clone())
}

/// Runs it while the pool has no connection, and then while it has.
async fn starved(db: &Db, names: TableNames, subscriber: Subscriber, wait: Duration) {
    let pool = pool_of_one(db, wait);
    let app = app(db, &pool).names(names).only([subscriber]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    let connection = taken(&pool).await;
    db.publish("q", 7).await;
    eventually("it is put off twice", async || count(&stats).snoozed >= 2).await;
    waits(db).await;
    drop(connection);
    is_done_in_the_end(db, &stats).await;
    running.stop().await.unwrap();
}

async fn a_transaction_that_finds_no_connection_puts_its_message_off(db: &Db) {
    with_domain(db).await;
    let rejecting = strict(db, Then::Return);
    starved(db, db.names.clone(), rejecting.clone(), MOMENT).await;
    db.exec("DELETE FROM outbox").await;
    db.exec("DELETE FROM done").await;
    // Without a dead-letter table it would be gone.
    starved(db, TableNames::default(), rejecting, MOMENT).await;
}

async fn a_timeout_that_is_over_before_the_transaction_begins_puts_its_message_off(db: &Db) {
    with_domain(db).await;
    let impatient = strict(db, Then::Return).timeout(3 * SECOND);
    starved(db, db.names.clone(), impatient, 60 * SECOND).await;
}

async fn an_ack_or_a_commit_that_the_server_undoes_puts_its_message_off(db: &Db) {
    with_domain(db).await;
    let at_the_ack = "CREATE TRIGGER fail BEFORE DELETE ON outbox EXECUTE FUNCTION fail()";
    let at_the_commit = "CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON done
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()";
    for (code, trigger, table) in [
        ("40P01", at_the_ack, "outbox"),
        ("57014", at_the_ack, "outbox"),
        ("40001", at_the_commit, "done"),
        ("40P01", at_the_commit, "done"),
    ] {
        db.exec(format!(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE SQLSTATE '{code}'; END $$"
        ))
        .await;
        db.exec(trigger).await;
        let app = db.app().only([strict(db, Then::Return)]);
        let stats = app.stats();
        let running = app.start().await.unwrap();
        db.publish("q", 7).await;
        eventually("it is put off twice", async || count(&stats).snoozed >= 2).await;
        waits(db).await;
        db.exec(format!("DROP TRIGGER fail ON {table}")).await;
        is_done_in_the_end(db, &stats).await;
        running.stop().await.unwrap();
        db.exec("DELETE FROM outbox").await;
        db.exec("DELETE FROM done").await;
    }
}

/// Nobody can know that it did not.
async fn a_commit_that_never_arrives_puts_its_message_off(db: &Db) {
    with_domain(db).await;
    let proxy = Proxy::before(db).await;
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    let app = App::postgres(pool).names(db.names.clone()).only([strict(db, Then::Return)]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    proxy.lose_a_commit();
    db.publish("q", 7).await;
    is_done_in_the_end(db, &stats).await;
    assert!(proxy.has_lost_it());
    running.stop().await.unwrap();
}

/// The server has it still, and its locks. The place of its connection in the pool is free then:
/// the next one has no other.
async fn a_commit_without_an_answer_keeps_its_worker_for_half_a_minute(db: &Db) {
    with_domain(db).await;
    let proxy = Proxy::before(db).await;
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(proxy.options(db));
    let alone = strict(db, Then::Return).max_workers(1).lease_ttl(10 * SECOND);
    let app = App::postgres(pool).names(db.names.clone()).only([alone]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    proxy.freeze_at_commit();
    db.publish("q", 7).await;
    eventually("it runs", async || count(&stats).dispatched == 1).await;
    let begun = Instant::now();
    db.publish("q", 8).await;
    eventually_within(2 * PATIENCE, "the next one is done", async || done(db).await == 1).await;
    let waited = begun.elapsed().as_secs();
    assert!((25..45).contains(&waited), "{waited} s");
    let left = db.int("SELECT count(*) FROM outbox WHERE queue = 'q'").await;
    let spent = count(&stats);
    assert_eq!((left, spent.retried, spent.terminal()), (1, 0, 0), "{spent:?}");
    db.exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND state = 'idle in transaction'",
    )
    .await;
    eventually_within(2 * PATIENCE, "so is the first", async || done(db).await == 2).await;
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
}

/// The same file, for which nobody waits longer than this.
fn opened(db: &Db, mode: SqliteJournalMode, wait: Duration) -> Db {
    let Pool::Sqlite(pool) = &db.pool else { panic!("this is PostgreSQL") };
    let options = (*pool.connect_options()).clone().busy_timeout(wait).journal_mode(mode);
    let mut other = db.named(db.names.clone());
    other.pool = Pool::Sqlite(SqlitePoolOptions::new().connect_lazy_with(options));
    other
}

/// Waits for the warning: what is written for a message waits for the file too.
async fn is_told_of(what: &str, subscriber: &str) {
    let told = |line: &capture::Line| {
        line.says("message", "did not begin or did not commit")
            && line.get("subscriber") == Some(subscriber)
            && line.says("error", what)
            && line.says("error", "database is locked")
    };
    eventually(what, async || capture::count(told) > 0).await;
}

/// The engine may be in its own way once more: whoever begins again is let go.
async fn is_done_though_busy_again(db: &Db, stats: &Stats, begun: &Notify, go: &Notify) {
    let again = async {
        loop {
            begun.notified().await;
            go.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = is_done_in_the_end(db, stats) => {}
        () = again => {}
    }
}

async fn a_file_that_is_busy_at_the_begin_puts_its_message_off(db: &Db) {
    capture::start();
    with_domain(db).await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, waited) = (Arc::clone(&begun), Arc::clone(&go));
    let name: &str = unique("begin").leak();
    let held = strictly(named(name, db, Then::Return)).layer(move |ctx, next: Next| {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        async move {
            begun.notify_one();
            go.notified().await;
            next.run(ctx).await
        }
    });
    let file = opened(db, SqliteJournalMode::Wal, MOMENT);
    let app = file.app().only([held]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    soon("it begins", told.notified()).await;
    let Pool::Sqlite(pool) = &db.pool else { unreachable!() };
    let lock = outbox::sqlite::begin(pool).await.unwrap();
    waited.notify_one();
    is_told_of("begin", name).await;
    lock.rollback().await.unwrap();
    soon("it begins again", told.notified()).await;
    waits(db).await;
    waited.notify_one();
    is_done_though_busy_again(db, &stats, &told, &waited).await;
    running.stop().await.unwrap();
    file.shut().await;
}

/// Without a write-ahead log whoever reads keeps others from committing.
async fn a_file_that_is_busy_at_the_commit_puts_its_message_off(db: &Db) {
    capture::start();
    with_domain(db).await;
    // The mode is the file's, and changed by whoever is alone with it.
    db.shut().await;
    let file = opened(db, SqliteJournalMode::Delete, MOMENT);
    let patient = opened(db, SqliteJournalMode::Delete, 30 * SECOND);
    let (written, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let then = Then::Wait(Arc::clone(&written), Arc::clone(&go));
    let name: &str = unique("commit").leak();
    let app = file.app().only([strictly(named(name, db, then))]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    patient.publish("q", 7).await;
    soon("it has written", written.notified()).await;
    let Pool::Sqlite(pool) = &patient.pool else { unreachable!() };
    let mut reader = pool.begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM done").execute(&mut *reader).await.unwrap();
    go.notify_one();
    is_told_of("commit", name).await;
    reader.rollback().await.unwrap();
    soon("it has written again", written.notified()).await;
    go.notify_one();
    is_done_though_busy_again(&patient, &stats, &written, &go).await;
    running.stop().await.unwrap();
    patient.shut().await;
    file.shut().await;
}
