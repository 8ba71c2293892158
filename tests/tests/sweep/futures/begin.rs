//! A call to sqlx that is dropped while it begins a transaction leaves the session in it:
//! what the caller does next on his pool would stay uncommitted, and he would not know.

use std::time::Duration;

use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use sqlx::Executor;
use sqlx::postgres::PgPoolOptions;

use super::{polled, swept};

on_postgres!(one thread: a_migration_that_is_dropped_leaves_no_connection_of_the_pool_in_its_transaction);

async fn a_migration_that_is_dropped_leaves_no_connection_of_the_pool_in_its_transaction(db: &Db) {
    let options = (*db.pg().connect_options()).clone();
    let one = PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(30));
    let pool = one.connect_with(options).await.unwrap();
    db.exec("CREATE TABLE mine (n bigint)").await;
    let mut dropped = 0;
    for times in 0..12 {
        let migrated = polled(times, outbox::schema::migrate_tables(&pool, &db.names)).await;
        dropped += usize::from(migrated.is_none());
        pool.execute("INSERT INTO mine VALUES (1)").await.unwrap();
        let seen = db.int("SELECT count(*) FROM mine").await;
        assert_eq!(seen, i64::try_from(times).unwrap() + 1, "after {times} polls");
    }
    swept("migrations of a pool of one", dropped);
}
