//! Connections that the server has no room for.

use outbox::App;
use outbox::ops::doctor::{Report, Severity};
use outbox_tests::db::Db;
use sqlx::postgres::PgPoolOptions;

use crate::{by, examine, limits, one};

fn app(db: &Db, connections: u32) -> App {
    let options = (*db.pg().connect_options()).clone();
    let pool = PgPoolOptions::new().max_connections(connections).connect_lazy_with(options);
    App::postgres(pool).names(db.names.clone()).only([])
}

async fn a_pool_larger_than_the_server_is_an_error(db: &Db) {
    let report = examine(app(db, 4), limits()).await;
    assert_eq!(by(&report, "connections").len(), 0, "{report:#?}");
    let report = examine(app(db, 100_000), limits()).await;
    let found = one(&report, "connections", Severity::Error);
    assert!(found.what.contains("100005 connections"), "{found:?}");
}

async fn many_processes_are_counted_together(db: &Db) {
    let mut limits = limits();
    limits.processes = 100;
    let report = examine(app(db, 4), limits).await;
    let found = one(&report, "connections", Severity::Error);
    assert!(found.what.contains("100 process(es) open up to 900 connections"), "{found:?}");
}

/// What a role that may open eight connections is told; with these rights.
async fn as_a_narrow_role(db: &Db, rights: &str) -> Report {
    let role = outbox_tests::backend::unique("narrow");
    db.exec(format!(
        "CREATE ROLE {role} LOGIN {rights} CONNECTION LIMIT 8; \
         GRANT USAGE ON SCHEMA public TO {role}; GRANT SELECT ON outbox, outbox_dlq TO {role}"
    ))
    .await;
    let options = (*db.pg().connect_options()).clone().username(&role);
    let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options);
    let app = App::postgres(pool.clone()).names(db.names.clone()).only([]);
    let report = examine(app, limits()).await;
    pool.close().await;
    db.exec(format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    report
}

async fn the_limit_of_a_role_counts(db: &Db) {
    let report = as_a_narrow_role(db, "NOSUPERUSER").await;
    let found = one(&report, "connections", Severity::Error);
    assert!(found.what.contains("lets this role have 8"), "{found:?}");
}

/// The server lets it have more all the same.
async fn the_limit_of_a_superuser_is_none(db: &Db) {
    let report = as_a_narrow_role(db, "SUPERUSER").await;
    assert_eq!(by(&report, "connections").len(), 0, "{report:#?}");
}

outbox_tests::on_postgres!(
    a_pool_larger_than_the_server_is_an_error,
    many_processes_are_counted_together,
    the_limit_of_a_role_counts,
    the_limit_of_a_superuser_is_none,
);
