//! A table that is vacuumed while it is migrated.

use outbox::schema::{migrate_tables, validate_schema};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::server::Server;
use outbox_tests::wait::{eventually, soon};
use sqlx::postgres::PgPool;

on_postgres!(a_vacuum_that_goes_slowly_keeps_no_migration_waiting_and_that_no_writer);

/// The server ends an autovacuum for whoever has waited for a second.
async fn a_vacuum_that_goes_slowly_keeps_no_migration_waiting_and_that_no_writer(_: &Db) {
    let server = Server::start(&[("fsync", "off"), ("autovacuum_naptime", "1s")]).unwrap();
    let db = Db::of(&server).await;
    db.exec("DROP INDEX outbox_due_idx; DELETE FROM _outbox_migrations").await;
    db.exec(
        "ALTER TABLE outbox SET (autovacuum_vacuum_cost_delay = 50, \
            autovacuum_vacuum_cost_limit = 5)",
    )
    .await;
    db.exec(
        "INSERT INTO outbox (queue, payload) SELECT 'q', convert_to(repeat('x', 200), 'UTF8') \
            FROM generate_series(1, 50000); DELETE FROM outbox",
    )
    .await;
    let vacuums = "SELECT count(*) FROM pg_stat_progress_vacuum \
        WHERE relid = 'outbox'::regclass AND phase = 'scanning heap'";
    eventually("it is vacuumed", async || db.int(vacuums).await > 0).await;
    let (pool, names) = (db.pg().clone(), db.names.clone());
    let migrating = tokio::spawn(async move { migrate_tables(&pool, &names).await });
    let waits = "SELECT count(*) FROM pg_locks \
        WHERE NOT granted AND relation = 'outbox'::regclass";
    eventually("the migration waits", async || db.int(waits).await > 0).await;
    let hasty = (*db.pg().connect_options()).clone().options([("lock_timeout", "500ms")]);
    let hasty = PgPool::connect_with(hasty).await.unwrap();
    let put = "INSERT INTO outbox (queue, payload) VALUES ('q', '')";
    sqlx::query(put).execute(&hasty).await.expect("it is published");
    soon("it is made", migrating).await.unwrap().unwrap();
    hasty.close().await;
    validate_schema(db.pg(), &db.names, true).await.unwrap();
}
