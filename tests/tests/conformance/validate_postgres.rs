//! What can be wrong with a table of PostgreSQL beside its columns: indexes, the
//! CHECK, settings; and tables of other names, schemas and makers.

use std::time::Duration;

use outbox::TableNames;
use outbox::schema::migrate_tables;
use outbox::testing::store::Store;
use tokio::time::timeout;

use super::migrate::PYTHON;
use super::names::every_statement_works;
use super::validate::{differences, empty, expect, fill, mend, mended, quoted};
use crate::bench::{Bench, Postgres, SqlBench};

/// What CREATE INDEX CONCURRENTLY leaves behind when it fails.
async fn an_index_that_is_not_valid(b: Postgres) {
    let breaking = "UPDATE pg_index SET indisvalid = false \
        WHERE indexrelid = 'outbox_due_idx'::regclass";
    mended(&b, breaking, &[("(queue, next_attempt_at, id)", false)]).await;
}

/// No claim could use it: it compares by the column's own.
async fn an_index_of_another_collation(b: Postgres) {
    let breaking = "DROP INDEX outbox_due_idx; CREATE INDEX outbox_due_idx \
        ON outbox (queue COLLATE \"POSIX\", next_attempt_at, id) WHERE next_attempt_at IS NOT NULL";
    mended(&b, breaking, &[("(queue, next_attempt_at, id)", false)]).await;
}

async fn a_server_that_quotes_all_names_has_the_same_tables(b: Postgres) {
    let role: String =
        sqlx::query_scalar("SELECT quote_ident(current_user)").fetch_one(b.pool()).await.unwrap();
    let options = (*b.pool().connect_options()).clone().options([("quote_all_identifiers", "on")]);
    let pool = sqlx::PgPool::connect_with(options).await.unwrap();
    let found = outbox::schema::validate_schema(&pool, b.publisher().names(), true).await;
    found.unwrap_or_else(|found| panic!("as {role}: {found}"));
    pool.close().await;
}

/// A claim finds its rows by their places, and those of two parts have the same ones.
async fn a_table_in_parts_is_refused(b: Postgres) {
    b.execute("CREATE TABLE heir () INHERITS (outbox)").await;
    expect(&b, &[("is cut into partitions or inherited from", true)]).await;
    b.execute("DROP TABLE heir; ALTER TABLE outbox RENAME TO whole").await;
    b.execute("CREATE TABLE outbox (LIKE whole INCLUDING DEFAULTS) PARTITION BY LIST (queue)")
        .await;
    let found = differences(&b, false).await;
    assert!(found.iter().any(|one| one.fatal && one.what.contains("is cut into partitions")));
    b.execute("DROP TABLE outbox; ALTER TABLE whole RENAME TO outbox").await;
    expect(&b, &[]).await;
}

/// Between two statements they are not in the pool, where a health check would wait for one.
async fn tables_are_looked_at_though_all_connections_were_busy(b: Postgres) {
    let store = b.store();
    // One that is back before the next is asked for serves that, too.
    for _ in 0..100 {
        let ping = || store.ping();
        tokio::try_join!(ping(), ping(), ping(), ping()).unwrap();
        if store.connections().open == 4 {
            break;
        }
    }
    assert_eq!(store.connections().open, 4);
    timeout(Duration::from_secs(2), store.validate(false)).await.unwrap().unwrap();
}

async fn a_missing_lease_check(b: Postgres) {
    let before = fill(&b).await;
    let half = "UPDATE outbox SET acquired_at = now() WHERE acquired_token IS NULL";
    assert!(sqlx::raw_sql(half).execute(b.pool()).await.is_err());
    b.execute("ALTER TABLE outbox DROP CONSTRAINT outbox_lease_ck").await;
    b.execute(half).await;
    let found = expect(&b, &[("lacks the CHECK", false)]).await;
    mend(&b, &found).await;
    assert_eq!((b.rows().await, b.letters().await), before);
    assert!(sqlx::raw_sql(half).execute(b.pool()).await.is_err());
}

async fn another_lease_check(b: Postgres) {
    for check in [
        "(acquired_at > '2020-01-01')",
        "((acquired_token IS NULL) = (acquired_at IS NULL)) NOT VALID",
    ] {
        let breaking = format!(
            "ALTER TABLE outbox DROP CONSTRAINT outbox_lease_ck, \
             ADD CONSTRAINT outbox_lease_ck CHECK {check}"
        );
        mended(&b, &breaking, &[("lacks the CHECK", false)]).await;
        empty(&b).await;
    }
}

/// Any word would fit, and be found by nobody who looks for open letters.
async fn a_missing_status_check(b: Postgres) {
    let before = fill(&b).await;
    let other = "UPDATE outbox_dlq SET status = 'closed'";
    for breaking in ["", ", ADD CONSTRAINT outbox_dlq_status_ck CHECK (status <> 'x')"] {
        b.execute(&format!(
            "ALTER TABLE outbox_dlq DROP CONSTRAINT outbox_dlq_status_ck{breaking}"
        ))
        .await;
        b.execute(other).await;
        let found = expect(&b, &[("lacks the CHECK of what a status", false)]).await;
        mend(&b, &found).await;
        assert_eq!((b.rows().await, b.letters().await), before);
        assert!(sqlx::raw_sql(other).execute(b.pool()).await.is_err());
    }
}

async fn a_check_may_have_another_name(b: Postgres) {
    b.execute("ALTER TABLE outbox RENAME CONSTRAINT outbox_lease_ck TO mine").await;
    b.execute("ALTER TABLE outbox_dlq RENAME CONSTRAINT outbox_dlq_status_ck TO mine").await;
    expect(&b, &[]).await;
}

async fn autovacuum_settings_are_looked_at_on_request(b: Postgres) {
    let settings = [
        "autovacuum_vacuum_scale_factor",
        "autovacuum_vacuum_threshold",
        "autovacuum_vacuum_insert_scale_factor",
        "autovacuum_vacuum_insert_threshold",
        "autovacuum_vacuum_cost_delay",
    ];
    b.execute(&format!("ALTER TABLE outbox RESET ({})", settings.join(", "))).await;
    assert_eq!(differences(&b, false).await, []);
    let expected = settings.map(|setting| (setting, false));
    // The first is part of the third's name, so the texts end with them.
    let found = differences(&b, true).await;
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (one, (setting, fatal)) in found.iter().zip(expected) {
        assert!(one.what.ends_with(setting) && one.fatal == fatal, "{one:?}");
    }
    mend(&b, &found).await;
}

async fn a_share_of_the_table_is_no_threshold(b: Postgres) {
    let breaking = "ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.2)";
    mended(&b, breaking, &[("autovacuum_vacuum_scale_factor", false)]).await;
    b.execute("ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.0)").await;
    b.execute("ALTER TABLE outbox SET (autovacuum_vacuum_threshold = 5000)").await;
    expect(&b, &[]).await;
}

async fn autovacuum_may_not_be_off(b: Postgres) {
    for off in ["false", "off", "no", "0", "F", "OFF", "of"] {
        b.execute(&format!("ALTER TABLE outbox SET (autovacuum_enabled = {off})")).await;
        assert_eq!(differences(&b, false).await, []);
        let found = expect(&b, &[("autovacuum is off", false)]).await;
        mend(&b, &found).await;
    }
    b.execute("ALTER TABLE outbox SET (autovacuum_enabled = on)").await;
    expect(&b, &[]).await;
}

/// Its messages have been committed.
async fn a_table_that_a_crash_empties_is_told_of(b: Postgres) {
    for table in ["outbox", "outbox_dlq"] {
        let breaking = format!("ALTER TABLE {table} SET UNLOGGED");
        mended(&b, &breaking, &[("UNLOGGED", false)]).await;
    }
}

async fn tables_in_a_schema_are_mended(b: Postgres) {
    let schema = format!("{} 'odd' \"", b.schema());
    b.execute(&format!("CREATE SCHEMA {}", quoted(&schema))).await;
    let names = TableNames::new("box").unwrap().in_schema(&*schema).unwrap();
    let other = b.on_search_path("\"\"", names.with_dlq("dead").unwrap());
    migrate_tables(other.pool(), other.names()).await.unwrap();
    let breaking = format!(
        "SET search_path = {}; DROP INDEX box_timer_id_uq; DROP INDEX box_due_idx; \
         CREATE INDEX box_due_idx ON box (id); ALTER TABLE box DROP CONSTRAINT box_lease_ck; \
         ALTER TABLE box ALTER COLUMN id DROP IDENTITY; ALTER TABLE dead DROP COLUMN status; \
         SET search_path = ''",
        quoted(&schema)
    );
    let expected = [
        ("(queue, timer_id)", true),
        ("(queue, next_attempt_at, id)", false),
        ("lacks the CHECK that a lease", false),
        ("lacks the CHECK of what a status", false),
        ("id has no default", true),
        ("no column status", true),
        ("(status, failed_at, id)", false),
        ("(queue, failed_at, id) WHERE status = 'failed'", false),
        ("(fingerprint, failed_at, id) WHERE status = 'failed'", false),
    ];
    mended(&other, &breaking, &expected).await;
    other.store().close().await;
    other.pool().close().await;
    b.execute(&format!("DROP SCHEMA {} CASCADE", quoted(&schema))).await;
}

/// Without a migration, by what is told alone; their own indexes stay theirs.
async fn tables_that_python_made_are_mended(b: Postgres) {
    b.execute(PYTHON).await;
    let other = b.with_names(TableNames::new("py").unwrap().with_dlq("py_dlq").unwrap());
    let expected = [
        ("(queue, next_attempt_at, id)", false),
        ("no column status", true),
        ("no column resolved_at", true),
        ("no column note", true),
        ("no column error_kind", true),
        ("no column fingerprint", true),
        ("no column replayed_id", true),
        ("lacks the CHECK of what a status", false),
        ("queues cannot be paused", false),
        ("(status, failed_at, id)", false),
        ("(queue, failed_at, id) WHERE status = 'failed'", false),
        ("(fingerprint, failed_at, id) WHERE status = 'failed'", false),
        ("autovacuum_vacuum_scale_factor", false),
        ("autovacuum_vacuum_threshold", false),
        ("autovacuum_vacuum_insert_scale_factor", false),
        ("autovacuum_vacuum_insert_threshold", false),
        ("autovacuum_vacuum_cost_delay", false),
    ];
    mended_python(&other, &expected).await;
    b.execute("DROP INDEX py_pending_idx; DROP INDEX py_leased_idx").await;
    other.store().close().await;
}

async fn mended_python(other: &Postgres, expected: &[(&str, bool)]) {
    let found = expect(other, expected).await;
    mend(other, &found).await;
    assert_eq!((other.rows().await.len(), other.letters().await.len()), (1, 1));
    empty(other).await;
    every_statement_works(other).await;
}

cases! {
    postgres only, "the settings and schemas are PostgreSQL's":
    an_index_that_is_not_valid,
    a_table_in_parts_is_refused,
    tables_are_looked_at_though_all_connections_were_busy,
    a_missing_lease_check,
    an_index_of_another_collation,
    a_server_that_quotes_all_names_has_the_same_tables,
    a_missing_status_check,
    another_lease_check,
    a_check_may_have_another_name,
    autovacuum_settings_are_looked_at_on_request,
    a_share_of_the_table_is_no_threshold,
    autovacuum_may_not_be_off,
    a_table_that_a_crash_empties_is_told_of,
        tables_in_a_schema_are_mended,
    tables_that_python_made_are_mended,
}
