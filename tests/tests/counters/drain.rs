//! What a drain costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outbox::ops::Operator;
use outbox::{App, Context, Subscriber, TableNames};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::{eventually, soon};
use outbox_tests::wire::Wire;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Notify;

use super::explain::{Plans, explained};

on_postgres!(
    a_drain_takes_one_statement_for_a_hundred_messages_and_at_most_five_connections,
    claims_of_a_drain_write_no_index,
    a_drain_writes_few_log_records_a_message,
);

const MESSAGES: u32 = 20_000;

/// A handler that does nothing, and tells when it was run `all` times.
fn noop(all: u32) -> (Subscriber, Arc<Notify>) {
    let (count, done) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let told = Arc::clone(&done);
    let subscriber = Subscriber::new("noop", "q", move |_: Context| {
        if count.fetch_add(1, Ordering::Relaxed) + 1 == all {
            told.notify_one();
        }
        async {}
    });
    (subscriber, done)
}

async fn drain(app: App, all: u32) {
    let (subscriber, done) = noop(all);
    let running = app.only([subscriber]).start().await.unwrap();
    soon("all are handled", done.notified()).await;
    running.stop().await.unwrap();
}

async fn fill(db: &Db) {
    let mut connection = db.pg().acquire().await.unwrap();
    let table = db.names.table();
    super::fill(&mut connection, table, "q", MESSAGES).await;
    db.exec(format!("VACUUM ANALYZE {table}")).await;
}

async fn a_drain_takes_one_statement_for_a_hundred_messages_and_at_most_five_connections(db: &Db) {
    fill(db).await;
    let wire = Wire::of(db).await;
    let operator = Operator::postgres(db.pg().clone(), db.names.clone());
    operator.pause(&["q"], None).await.unwrap();
    let (subscriber, done) = noop(MESSAGES);
    let running = super::app(db, &wire).only([subscriber]).start().await.unwrap();
    wire.rests().await;
    wire.begin();
    operator.resume(&["q"]).await.unwrap();
    soon("all are handled", done.notified()).await;
    running.stop().await.unwrap();
    assert_eq!(db.rows().await, 0);
    let counts = wire.counts();
    println!("{} statements, {} connections", counts.statements(), counts.most);
    assert!(counts.statements() <= MESSAGES as usize / 100, "{:#?}", counts.sent);
    assert!(counts.most <= 5, "{} connections", counts.most);
}

async fn claims_of_a_drain_write_no_index(db: &Db) {
    fill(db).await;
    drain(db.app(), MESSAGES).await;
    // Sessions that have ended have told all they know.
    eventually("all are closed", async || db.connections().await == 0).await;
    let of_table = |what: &str| {
        format!("SELECT {what} FROM pg_stat_user_tables WHERE relid = 'outbox'::regclass")
    };
    let updates = db.int(of_table("n_tup_upd")).await;
    let hot = db.int(of_table("n_tup_hot_upd")).await;
    println!("{hot} of {updates} updates are HOT");
    assert!(updates >= i64::from(MESSAGES), "{updates} updates");
    assert!(hot * 100 >= updates * 95, "{hot} of {updates} updates are HOT");
}

async fn a_drain_writes_few_log_records_a_message(db: &Db) {
    let names = TableNames::new("logged").unwrap().with_dlq("logged_dead").unwrap();
    let db = db.named(names);
    db.migrate().await;
    fill(&db).await;
    let plans = Plans::of("logged");
    let options = explained((*db.pg().connect_options()).clone());
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    drain(App::postgres(pool).names(db.names.clone()), MESSAGES).await;
    let mut sum = [0; 3];
    for plan in plans.take() {
        for (sum, one) in sum.iter_mut().zip(plan.wal()) {
            *sum += one;
        }
    }
    let [records, bytes, images] = sum;
    println!("{records} records, {bytes} bytes, {images} images for {MESSAGES} messages");
    let messages = u64::from(MESSAGES);
    assert!(records >= 2 * messages, "an update and a delete are two: {records}");
    assert!(records <= 4 * messages, "{records} records");
    // An image is of a page at most.
    assert!(bytes <= 400 * messages + 8300 * images, "{bytes} bytes, {images} images");
}
