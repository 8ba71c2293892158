//! A busy table is vacuumed by those who empty it, where that helps.

use outbox::App;
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::wire::Wire;
use outbox_tests::{on_postgres, probe};
use sqlx::Executor;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

on_postgres!(
    a_table_of_which_many_rows_were_handled_is_vacuumed,
    what_a_snapshot_keeps_is_vacuumed_in_vain_once,
    a_role_that_does_not_own_the_table_leaves_it_to_autovacuum,
    a_vacuum_that_failed_is_not_the_last,
);

/// How the statement begins by which it is looked at.
const LOOK: &str = "SELECT pg_has_role(relowner";

const VACUUMS: &str = "SELECT pg_stat_get_vacuum_count('outbox'::regclass)";

async fn many_rows(db: &Db) {
    db.exec("ALTER TABLE outbox SET (autovacuum_enabled = off)").await;
    db.exec(
        "INSERT INTO outbox (queue, payload, created_at, next_attempt_at)
         SELECT 'q', '1', clock_timestamp(), clock_timestamp() FROM generate_series(1, 60000)",
    )
    .await;
}

fn app(db: &Db, options: PgConnectOptions) -> App {
    let app = App::postgres(PgPoolOptions::new().connect_lazy_with(options));
    app.names(db.names.clone()).only([probe::free("it", "q").0])
}

async fn a_table_of_which_many_rows_were_handled_is_vacuumed(db: &Db) {
    let wire = Wire::of(db).await;
    many_rows(db).await;
    let running = app(db, wire.options.clone()).start().await.unwrap();
    eventually("it is vacuumed", async || db.int(VACUUMS).await == 1).await;
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(wire.counts().of("VACUUM"), 1);
}

/// Each look is one statement, and there are two around a vacuum.
async fn what_a_snapshot_keeps_is_vacuumed_in_vain_once(db: &Db) {
    let wire = Wire::of(db).await;
    many_rows(db).await;
    let mut report = db.pg().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    report.execute("SELECT count(*) FROM outbox").await.unwrap();
    let running = app(db, wire.options.clone()).start().await.unwrap();
    eventually("it is looked at", async || wire.counts().of(LOOK) == 2).await;
    many_rows(db).await;
    eventually("it is looked at again", async || wire.counts().of(LOOK) == 3).await;
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(wire.counts().of("VACUUM"), 1);
    report.rollback().await.unwrap();
}

async fn a_role_that_does_not_own_the_table_leaves_it_to_autovacuum(db: &Db) {
    let wire = Wire::of(db).await;
    many_rows(db).await;
    let role = outbox_tests::backend::unique("consumer");
    db.exec(format!("CREATE ROLE {role} LOGIN")).await;
    db.exec(format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")).await;
    let running = app(db, wire.options.clone().username(&role)).start().await.unwrap();
    eventually("it asks whether it may", async || wire.counts().of(LOOK) == 1).await;
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(wire.counts().of("VACUUM"), 0);
    db.exec(format!("DROP OWNED BY {role}")).await;
    db.exec(format!("DROP ROLE {role}")).await;
}

/// The server ends each: it takes longer than the role's statements may.
async fn a_vacuum_that_failed_is_not_the_last(db: &Db) {
    let wire = Wire::of(db).await;
    many_rows(db).await;
    let slow =
        [("vacuum_cost_delay", "100ms"), ("vacuum_cost_limit", "1"), ("statement_timeout", "1s")];
    let running = app(db, wire.options.clone().options(slow)).start().await.unwrap();
    eventually("it is tried", async || wire.counts().of("VACUUM") == 1).await;
    db.drained().await;
    many_rows(db).await;
    eventually("it is tried again", async || wire.counts().of("VACUUM") == 2).await;
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(db.int(VACUUMS).await, 0);
}
