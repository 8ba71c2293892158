//! What others on the server do to the table.

use std::time::Duration;

use outbox::App;
use outbox::ops::doctor::Severity;
use outbox_tests::db::Db;
use outbox_tests::wait::{eventually, soon};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::{by, examine, limits, of, one};

async fn connection(db: &Db) -> PgConnection {
    PgConnection::connect_with(&db.pg().connect_options()).await.unwrap()
}

async fn an_old_snapshot_is_told_with_its_holder(db: &Db) {
    let mut other = connection(db).await;
    let pid: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut other).await.unwrap();
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    let report = of(db).await;
    assert_eq!(by(&report, "snapshots").len(), 0);
    let said = report.checks.iter().find(|check| check.name == "snapshots");
    let said = said.unwrap().said.as_deref().unwrap();
    assert!(said.contains(&format!(" s old, of the session {pid} of role ")), "{said}");
    let mut limits = limits();
    limits.snapshot_age = Duration::ZERO;
    let report = examine(db.app(), limits.clone()).await;
    let found = one(&report, "snapshots", Severity::Warning);
    assert!(found.what.contains(&format!("session {pid} ")), "{found:?}");
    assert!(found.mend.contains(&format!("pg_terminate_backend({pid})")), "{found:?}");

    // One that only writes holds back as much.
    other.execute("ROLLBACK; BEGIN; CREATE TABLE other (); ").await.unwrap();
    let report = examine(db.app(), limits.clone()).await;
    one(&report, "snapshots", Severity::Warning);
    other.execute("ROLLBACK").await.unwrap();
    assert_eq!(by(&examine(db.app(), limits).await, "snapshots").len(), 0);
}

async fn a_full_queue_of_notifications_is_told(db: &Db) {
    let mut limits = limits();
    limits.notify_usage = 0.0;
    let mut other = connection(db).await;
    other.execute("LISTEN held").await.unwrap();
    other.execute("BEGIN; SELECT 1").await.unwrap();
    for _ in 0..3 {
        db.exec("SELECT pg_notify('held', repeat('x', 7900) || random())").await;
    }
    let report = examine(db.app(), limits).await;
    let found = one(&report, "notify", Severity::Warning);
    assert!(found.why.contains("commits that notify fail"), "{found:?}");
    assert_eq!(by(&of(db).await, "notify").len(), 0);
}

async fn dead_rows_that_nobody_clears_are_told(db: &Db) {
    db.exec("ALTER TABLE outbox SET (autovacuum_enabled = off)").await;
    db.publish("orders", 1).await;
    let mut other = connection(db).await;
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    db.exec("UPDATE outbox SET queue = queue || 'x'").await;
    let mut limits = limits();
    limits.dead_rows = 0;
    // The server counts them a little later.
    eventually("dead rows are told", async || {
        let report = examine(db.app(), limits.clone()).await;
        let found = by(&report, "vacuum");
        found
            .iter()
            .any(|one| one.severity == Severity::Warning && one.what.contains("1 dead rows"))
    })
    .await;
    assert_eq!(by(&of(db).await, "vacuum").len(), 0);
    // And that it is off for the table.
    let report = of(db).await;
    assert!(one(&report, "schema", Severity::Warning).what.contains("autovacuum is off"));
}

/// It owns nothing, and does not see what others do.
async fn a_role_of_few_rights_is_told_what_it_cannot(db: &Db) {
    let role = outbox_tests::backend::unique("few");
    db.exec(format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA public TO {role}; \
         GRANT SELECT ON outbox, outbox_dlq TO {role}"
    ))
    .await;
    let options = (*db.pg().connect_options()).clone().username(&role);
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    let app = App::postgres(pool.clone()).names(db.names.clone()).only([]);
    let report = examine(app, limits()).await;
    assert!(one(&report, "vacuum", Severity::Note).what.contains("cannot vacuum"));
    assert!(one(&report, "snapshots", Severity::Note).mend.contains("pg_read_all_stats"));
    pool.close().await;
    db.exec(format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

async fn a_clock_that_is_off_is_told(db: &Db) {
    db.exec(
        "CREATE SCHEMA fast; CREATE FUNCTION fast.clock_timestamp() RETURNS timestamptz \
         LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() + interval '1 hour' $$",
    )
    .await;
    let options = (*db.pg().connect_options()).clone();
    let options = options.options([("search_path", "fast,pg_catalog,public")]);
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    let app = App::postgres(pool).names(db.names.clone()).only([]);
    let report = examine(app, limits()).await;
    let found = one(&report, "clock", Severity::Warning);
    let apart: f64 = found.what.split(' ').find_map(|word| word.parse().ok()).unwrap();
    assert!((3540.0..3660.0).contains(&apart), "{found:?}");
    assert!(found.what.contains("ahead of"), "{found:?}");
    assert_eq!(by(&of(db).await, "clock").len(), 0);
}

async fn a_table_that_is_locked_is_told_and_no_question_waits_for_it_for_ever(db: &Db) {
    let mut other = connection(db).await;
    let pid: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut other).await.unwrap();
    other.execute("BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let report = soon("it ends", of(db)).await;
    let found = one(&report, "locks", Severity::Warning);
    assert!(found.what.contains("the table outbox is locked"), "{found:?}");
    assert!(found.what.contains(&format!("{pid}")), "{found:?}");
    let questions = by(&report, "queues");
    assert!(questions[0].what.contains("lock timeout"), "{questions:?}");
    assert_eq!(by(&report, "snapshots").len(), 0, "{report:#?}");
}

/// As it was before PostgreSQL 15.
async fn a_schema_in_which_everybody_may_make_functions_is_told(db: &Db) {
    db.exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC").await;
    assert_eq!(by(&of(db).await, "path").len(), 0);
    db.exec("GRANT CREATE ON SCHEMA public TO PUBLIC").await;
    let report = of(db).await;
    let found = one(&report, "path", Severity::Warning);
    assert_eq!(found.mend, "REVOKE CREATE ON SCHEMA public FROM PUBLIC");
}

outbox_tests::on_postgres!(
    a_schema_in_which_everybody_may_make_functions_is_told,
    a_table_that_is_locked_is_told_and_no_question_waits_for_it_for_ever,
    an_old_snapshot_is_told_with_its_holder,
    a_full_queue_of_notifications_is_told,
    dead_rows_that_nobody_clears_are_told,
    a_role_of_few_rights_is_told_what_it_cannot,
    a_clock_that_is_off_is_told,
);
