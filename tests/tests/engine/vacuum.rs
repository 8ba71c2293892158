//! A busy table is vacuumed by those who empty it.

use outbox::App;
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::{on_postgres, probe};
use sqlx::postgres::PgPoolOptions;

on_postgres!(
    a_table_of_which_many_rows_were_handled_is_vacuumed,
    a_role_that_does_not_own_the_table_leaves_it_to_autovacuum,
);

const VACUUMS: &str = "SELECT pg_stat_get_vacuum_count('outbox'::regclass)";

/// Of this database only.
const AUTOVACUUM_OFF: &str = "ALTER TABLE outbox SET (autovacuum_enabled = off)";

async fn many_rows(db: &Db) {
    db.exec(AUTOVACUUM_OFF).await;
    db.exec(
        "INSERT INTO outbox (queue, payload, created_at, next_attempt_at)
         SELECT 'q', '1', clock_timestamp(), clock_timestamp() FROM generate_series(1, 60000)",
    )
    .await;
}

async fn a_table_of_which_many_rows_were_handled_is_vacuumed(db: &Db) {
    many_rows(db).await;
    let (subscriber, _probe) = probe::free("it", "q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    eventually("it is vacuumed", async || db.int(VACUUMS).await == 1).await;
    db.drained().await;
    running.stop().await.unwrap();
}

async fn a_role_that_does_not_own_the_table_leaves_it_to_autovacuum(db: &Db) {
    many_rows(db).await;
    let role = outbox_tests::backend::unique("consumer");
    db.exec(format!("CREATE ROLE {role} LOGIN")).await;
    db.exec(format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")).await;
    let options = (*db.pg().connect_options()).clone().username(&role);
    let (subscriber, _probe) = probe::free("it", "q");
    let app = App::postgres(PgPoolOptions::new().connect_lazy_with(options));
    let running = app.names(db.names.clone()).only([subscriber]).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(db.int(VACUUMS).await, 0);
    db.exec(format!("DROP OWNED BY {role}")).await;
    db.exec(format!("DROP ROLE {role}")).await;
}
