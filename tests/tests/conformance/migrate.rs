//! Making the tables.

use outbox::schema::{Database, migrate_tables, sql, validate_schema};
use outbox::testing::store::Store;
use outbox::{Error, TableNames};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{AssertSqlSafe, Executor as _};

use super::names::{every_statement_works, everything_works};
use crate::bench::{Bench, Postgres, SqlBench, Sqlite, Steps};

async fn migrating_again_keeps_the_rows<B: SqlBench>(b: B) {
    let id = b.put("q").await;
    migrate_tables(b.pool(), b.names()).await.unwrap();
    assert_eq!(b.claim_ids(&["q"], 10).await, [id]);
}

/// How many migrations there are.
fn files() -> i64 {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/postgres");
    std::fs::read_dir(folder).unwrap().count().try_into().unwrap()
}

async fn tables_of_an_earlier_version_are_brought_up_to_date<B: SqlBench>(b: B) {
    let names = TableNames::new("early").unwrap().with_dlq("early_dlq").unwrap();
    let other = b.with_names(names);
    migrate_tables(other.pool(), other.names()).await.unwrap();
    let id = other.put("q").await;
    b.execute("DELETE FROM _early_migrations WHERE version > 1").await;
    migrate_tables(other.pool(), other.names()).await.unwrap();
    assert_eq!(b.number("SELECT max(version) FROM _early_migrations").await, files());
    assert_eq!(other.claim_ids(&["q"], 10).await, [id]);
    other.store().close().await;
}

async fn a_release_that_is_rolled_back_leaves_what_a_later_one_made<B: SqlBench>(b: B) {
    let names = TableNames::new("late").unwrap().with_dlq("late_dlq").unwrap();
    let other = b.with_names(names);
    migrate_tables(other.pool(), other.names()).await.unwrap();
    b.execute(
        "INSERT INTO _late_migrations (version, description, success, checksum, execution_time) \
            SELECT 99, description, success, checksum, 1 FROM _late_migrations WHERE version = 1; \
         ALTER TABLE late ADD COLUMN later INTEGER",
    )
    .await;
    migrate_tables(other.pool(), other.names()).await.unwrap();
    assert_eq!(b.number("SELECT max(version) FROM _late_migrations").await, 99);
    every_statement_works(&other).await;
    other.store().close().await;
}

/// `b` is the attached one.
async fn the_tables_of_an_attached_file_do_not_count(b: Sqlite) {
    let options = b.pool().connect_options();
    let attached = options.get_filename().to_owned();
    let attach = move || format!("ATTACH '{}' AS old", attached.display());
    let own = options.get_filename().with_file_name("own.db");
    let own = (*options).clone().filename(own).create_if_missing(true);
    let pool = SqlitePoolOptions::new()
        .after_connect(move |connection, _| {
            let attach = attach();
            Box::pin(async move {
                connection.execute(AssertSqlSafe(attach)).await?;
                Ok(())
            })
        })
        .connect_with(own)
        .await
        .unwrap();
    let missing = validate_schema(&pool, b.names(), true).await.unwrap_err().to_string();
    assert!(missing.contains("the table outbox does not exist"), "{missing}");
    migrate_tables(&pool, b.names()).await.unwrap();
    validate_schema(&pool, b.names(), true).await.unwrap();
    pool.close().await;
}

async fn many_processes_may_migrate_at_once<B: SqlBench>(b: B) {
    let names = TableNames::new("race").unwrap().with_dlq("race_dlq").unwrap();
    let other = b.with_names(names);
    let migrate = || migrate_tables(other.pool(), other.names());
    let (one, two, three, four) = tokio::join!(migrate(), migrate(), migrate(), migrate());
    for result in [one, two, three, four] {
        result.unwrap();
    }
    assert_eq!(b.number("SELECT count(*) FROM \"_race_migrations\"").await, files());
    every_statement_works(&other).await;
    other.store().close().await;
}

/// Each of the others waits with a snapshot in which the tables are not there yet.
async fn many_processes_may_migrate_at_once_whatever_the_isolation(b: Postgres) {
    for level in ["repeatable read", "serializable"] {
        let names = TableNames::new(level).unwrap().with_dlq(format!("{level}_dlq")).unwrap();
        let other = b.with_settings([("default_transaction_isolation", level)]).with_names(names);
        let migrate = || migrate_tables(other.pool(), other.names());
        let (one, two, three, four) = tokio::join!(migrate(), migrate(), migrate(), migrate());
        for result in [one, two, three, four] {
            result.unwrap();
        }
        let made = format!("SELECT count(*) FROM \"_{level}_migrations\"");
        assert_eq!(b.number(&made).await, files());
        other.store().close().await;
        other.pool().close().await;
    }
}

/// The application has migrations of its own, made by the same tool.
async fn migrations_of_the_application_are_left_alone<B: SqlBench>(b: B) {
    b.execute(
        "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, \
            installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL, \
            checksum TEXT NOT NULL, execution_time BIGINT NOT NULL); \
         INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (1, 'theirs', true, 'x', 1), (20240101, 'theirs', true, 'y', 1)",
    )
    .await;
    let names = TableNames::new("ours").unwrap().with_dlq("ours_dlq").unwrap();
    let other = b.with_names(names);
    everything_works(&other).await;
    let theirs = "SELECT count(*) FROM _sqlx_migrations WHERE success AND description = 'theirs' \
        AND checksum IN ('x', 'y') AND execution_time = 1";
    assert_eq!(b.number(theirs).await, 2);
    assert_eq!(b.number("SELECT count(*) FROM _sqlx_migrations").await, 2);
    assert_eq!(b.number("SELECT count(*) FROM _ours_migrations").await, files());
    other.store().close().await;
}

/// Dead letters are switched on later, or kept under another name.
async fn a_dead_letter_table_may_be_named_later<B: SqlBench>(b: B) {
    let plain = b.with_names(TableNames::new("grown").unwrap());
    migrate_tables(plain.pool(), plain.names()).await.unwrap();
    let names = TableNames::new("grown").unwrap().with_dlq("grown_letters").unwrap();
    let other = b.with_names(names);
    everything_works(&other).await;
    migrate_tables(plain.pool(), plain.names()).await.unwrap();
    other.store().close().await;
}

/// It would take as long as the table is large, and lock everybody out meanwhile.
async fn an_index_of_due_rows_is_not_made_anew(b: Postgres) {
    let made = "SELECT 'outbox_due_idx'::regclass::oid::bigint";
    b.execute("DROP INDEX outbox_due_idx").await;
    let page = include_str!("../../../docs/operations.md");
    let beforehand = page.split("```sql\n").nth(2).unwrap().split("```").next().unwrap();
    b.execute(beforehand).await;
    let first = b.number(made).await;
    // Another record of migrations, and a table to make.
    let names = TableNames::default().with_dlq("letters").unwrap();
    migrate_tables(b.pool(), &names).await.unwrap();
    assert_eq!(b.number("SELECT count(*) FROM _letters_migrations").await, files());
    b.execute("DROP TABLE outbox_paused").await;
    migrate_tables(b.pool(), b.names()).await.unwrap();
    assert_eq!(b.number(made).await, first);
    // One that is not as it has to be.
    b.execute("DROP INDEX outbox_due_idx; CREATE INDEX outbox_due_idx ON outbox (queue)").await;
    b.execute("DROP TABLE outbox_paused; DROP TABLE _outbox_migrations").await;
    migrate_tables(b.pool(), b.names()).await.unwrap();
    validate_schema(b.pool(), b.names(), true).await.unwrap();
    every_statement_works(&b).await;
}

/// With another record of migrations they run again.
async fn settings_that_the_owner_has_changed_stay(b: Postgres) {
    let tuned = "ALTER TABLE outbox SET (fillfactor = 90, autovacuum_vacuum_threshold = 20000)";
    b.execute(tuned).await;
    let names = TableNames::default().with_dlq("letters").unwrap();
    migrate_tables(b.pool(), &names).await.unwrap();
    let kept = "SELECT count(*) FROM pg_class WHERE oid = 'outbox'::regclass
        AND reloptions @> '{fillfactor=90,autovacuum_vacuum_threshold=20000}'";
    assert_eq!(b.number(kept).await, 1);
    // The fillfactor of the first version is not the owner's.
    b.execute("ALTER TABLE outbox SET (fillfactor = 60); DELETE FROM _outbox_migrations").await;
    migrate_tables(b.pool(), b.names()).await.unwrap();
    validate_schema(b.pool(), b.names(), true).await.unwrap();
    let made = "SELECT count(*) FROM pg_class WHERE oid = 'outbox'::regclass
        AND reloptions @> '{fillfactor=45,autovacuum_vacuum_threshold=20000}'";
    assert_eq!(b.number(made).await, 1);
}

/// Python sets none, and leaves them to whoever runs the table.
async fn settings_of_a_table_that_python_made_stay_and_the_others_are_added(b: Postgres) {
    b.execute(PYTHON).await;
    let tuned = "ALTER TABLE py SET
        (autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 5)";
    b.execute(tuned).await;
    let names = TableNames::new("py").unwrap().with_dlq("py_dlq").unwrap();
    migrate_tables(b.pool(), &names).await.unwrap();
    let set = "SELECT count(*) FROM pg_class WHERE oid = 'py'::regclass AND reloptions @> \
        '{autovacuum_vacuum_threshold=50000,autovacuum_vacuum_cost_delay=5,fillfactor=45}'";
    assert_eq!(b.number(set).await, 1);
    validate_schema(b.pool(), &names, true).await.unwrap();
}

/// PostgreSQL makes a table in the first schema of the path, whatever is in the others.
async fn tables_that_the_path_finds_are_not_made_before_them(b: Postgres) {
    let id = b.put("q").await;
    let first = format!("{}_first", b.schema());
    b.execute(&format!("CREATE SCHEMA {first}")).await;
    let path = format!("{first},{}", b.schema());
    let other = b.on_search_path(&path, TableNames::default().with_dlq("outbox_dlq").unwrap());
    b.execute("DELETE FROM _outbox_migrations WHERE version > 1; DROP TABLE outbox_paused").await;
    migrate_tables(other.pool(), other.names()).await.unwrap();
    let in_first = format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{first}'");
    assert_eq!(b.number(&in_first).await, 0);
    assert_eq!(other.claim_ids(&["q"], 10).await, [id]);
    other.store().close().await;
    other.pool().close().await;
    b.execute(&format!("DROP SCHEMA {first} CASCADE")).await;
}

/// Each has its own rows; the dead letters tell their queues apart.
async fn two_outboxes_may_share_their_dead_letters<B: SqlBench>(b: B) {
    for table in ["one", "two"] {
        let names = TableNames::new(table).unwrap().with_dlq("shared").unwrap();
        let other = b.with_names(names);
        migrate_tables(other.pool(), other.names()).await.unwrap();
        validate_schema(other.pool(), other.names(), true).await.unwrap();
        every_statement_works(&other).await;
        b.execute("DELETE FROM shared").await;
        other.store().close().await;
    }
}

/// Whatever the record says: a table that is not there is made.
async fn a_table_that_was_dropped_is_made_again<B: SqlBench>(b: B) {
    for table in ["outbox", "outbox_dlq"] {
        b.execute(&format!("DROP TABLE {table}")).await;
        migrate_tables(b.pool(), b.names()).await.unwrap();
        validate_schema(b.pool(), b.names(), true).await.unwrap();
    }
    every_statement_works(&b).await;
}

async fn by_hand<B: SqlBench>(b: B, database: Database) {
    let names = TableNames::new("by hand").unwrap().with_dlq("by \"hand\" dlq").unwrap();
    let other = b.with_names(names);
    // It can be repeated, too.
    for _ in 0..2 {
        b.execute(&sql(database, other.names())).await;
        validate_schema(other.pool(), other.names(), true).await.unwrap();
    }
    // Whoever ran the SQL by hand may still migrate.
    everything_works(&other).await;
    other.store().close().await;
}

/// The search path does not matter to it.
async fn the_sql_may_name_a_schema(b: Postgres) {
    let schema = format!("{} \"odd\"", b.schema());
    let quoted = format!("\"{}\"", schema.replace('"', "\"\""));
    b.execute(&format!("CREATE SCHEMA {quoted}")).await;
    let names = TableNames::new("a \"box").unwrap().in_schema(schema).unwrap();
    let other = b.on_search_path("\"\"", names.with_dlq("dead").unwrap());
    other.execute(&sql(Database::Postgres, other.names())).await;
    validate_schema(other.pool(), other.names(), true).await.unwrap();
    every_statement_works(&other).await;
    assert!(b.rows().await.is_empty());
    other.store().close().await;
    other.pool().close().await;
    b.execute(&format!("DROP SCHEMA {quoted} CASCADE")).await;
}

async fn the_sql_can_be_run_by_other_tools(b: Postgres) {
    by_hand(b, Database::Postgres).await;
}

async fn the_sql_can_be_run_by_other_tools_on_sqlite(b: Sqlite) {
    by_hand(b, Database::Sqlite).await;
}

async fn a_schema_that_does_not_exist_is_an_error(b: Postgres) {
    let names = TableNames::default().in_schema("no_such_schema").unwrap();
    let error = migrate_tables(b.pool(), &names).await.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    let error = validate_schema(b.pool(), &names, true).await.unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
}

/// The tables that faststream-outbox 0.19 makes.
pub const PYTHON: &str = "
CREATE TABLE py (id BIGSERIAL NOT NULL PRIMARY KEY, queue VARCHAR(255) NOT NULL,
 payload BYTEA NOT NULL, headers JSONB,
 attempts_count BIGINT DEFAULT '0' NOT NULL, deliveries_count BIGINT DEFAULT '0' NOT NULL,
 created_at TIMESTAMPTZ DEFAULT now() NOT NULL, next_attempt_at TIMESTAMPTZ DEFAULT now() NOT NULL,
 first_attempt_at TIMESTAMPTZ, last_attempt_at TIMESTAMPTZ, acquired_at TIMESTAMPTZ,
 acquired_token UUID, timer_id VARCHAR(255),
 CONSTRAINT py_lease_ck CHECK ((acquired_token IS NULL) = (acquired_at IS NULL)));
CREATE INDEX py_pending_idx ON py (queue, next_attempt_at, id) WHERE acquired_token IS NULL;
CREATE INDEX py_leased_idx ON py (queue, next_attempt_at, id) WHERE acquired_token IS NOT NULL;
CREATE UNIQUE INDEX py_timer_id_uq ON py (queue, timer_id) WHERE timer_id IS NOT NULL;
CREATE TABLE py_dlq (id BIGSERIAL NOT NULL PRIMARY KEY, original_id BIGINT NOT NULL,
 queue VARCHAR(255) NOT NULL, payload BYTEA NOT NULL, headers JSONB,
 deliveries_count BIGINT NOT NULL, created_at TIMESTAMPTZ NOT NULL,
 failed_at TIMESTAMPTZ DEFAULT now() NOT NULL, failure_reason VARCHAR(64) NOT NULL,
 last_exception VARCHAR, timer_id VARCHAR(255));
CREATE INDEX py_dlq_queue_failed_idx ON py_dlq (queue, failed_at);
INSERT INTO py (queue, payload, headers) VALUES ('q', '\\x7b7d', '{\"content-type\": \"application/json\"}');
INSERT INTO py_dlq (original_id, queue, payload, deliveries_count, created_at, failure_reason)
 VALUES (7, 'q', '', 1, now(), 'rejected')";

async fn tables_that_python_made_are_adopted(b: Postgres) {
    b.execute(PYTHON).await;
    let names = TableNames::new("py").unwrap().with_dlq("py_dlq").unwrap();
    let other = b.with_names(names);
    migrate_tables(other.pool(), other.names()).await.unwrap();
    validate_schema(other.pool(), other.names(), true).await.unwrap();
    let claimed = other.claim(&["q"], 10).await;
    assert_eq!(&*claimed[0].row.payload, b"{}");
    assert_eq!(claimed[0].row.headers().unwrap().content_type(), Some("application/json"));
    let lease = crate::bench::lease(&claimed[0]);
    assert_eq!(other.store().ack(&[lease]).await.unwrap(), [true]);
    assert_eq!(other.letters().await[0].original_id, 7);
    b.execute("DELETE FROM py_dlq").await;
    every_statement_works(&other).await;
    other.store().close().await;
}

/// Without a migration too, as long as nobody asks for dead letters.
async fn tables_that_python_made_work_as_they_are(b: Postgres) {
    b.execute(PYTHON).await;
    let names = TableNames::new("py").unwrap();
    let other = b.with_names(names.clone());
    let error = validate_schema(other.pool(), &names, false).await.unwrap_err();
    let Error::Schema(mismatch) = error else { panic!("{error}") };
    assert!(mismatch.differences.iter().all(|one| !one.fatal), "{mismatch}");
    // As the app does before its first claim.
    other.store().validate(false).await.unwrap();
    assert_eq!(other.claim(&["q"], 10).await.len(), 1);
    other.store().close().await;
}

/// Python's letters lack what triage needs.
async fn dead_letters_that_python_made_need_a_migration(b: Postgres) {
    b.execute(PYTHON).await;
    let names = TableNames::new("py").unwrap().with_dlq("py_dlq").unwrap();
    let handler = outbox::Subscriber::new("it", "q", |_: outbox::Context| async {});
    let app = || outbox::App::postgres(b.pool().clone()).names(names.clone());
    let refused = app().only([handler.clone()]).start().await.unwrap_err();
    let Error::Launch(reasons) = refused else { panic!("{refused}") };
    let added = "ALTER TABLE \"py_dlq\" ADD COLUMN ";
    assert_eq!(reasons.iter().filter(|one| one.contains(added)).count(), 6, "{reasons:#?}");
    migrate_tables(b.pool(), &names).await.unwrap();
    app().only([handler]).start().await.unwrap().stop().await.unwrap();
}

mod both {
    use super::*;

    cases! {
        databases only, "memory has no tables to make":
        migrating_again_keeps_the_rows,
        tables_of_an_earlier_version_are_brought_up_to_date,
        a_release_that_is_rolled_back_leaves_what_a_later_one_made,
        many_processes_may_migrate_at_once,
        migrations_of_the_application_are_left_alone,
        a_dead_letter_table_may_be_named_later,
        two_outboxes_may_share_their_dead_letters,
        a_table_that_was_dropped_is_made_again,
    }
}

mod on_sqlite {
    use super::*;

    cases! {
        sqlite only, "the SQL and the files are SQLite's":
        the_sql_can_be_run_by_other_tools_on_sqlite,
        the_tables_of_an_attached_file_do_not_count,
    }
}

mod on_postgres {
    use super::*;

    cases! {
        postgres only, "the SQL, the schemas or the Python service are PostgreSQL's":
        many_processes_may_migrate_at_once_whatever_the_isolation,
        the_sql_can_be_run_by_other_tools,
        the_sql_may_name_a_schema,
        a_schema_that_does_not_exist_is_an_error,
        an_index_of_due_rows_is_not_made_anew,
        settings_that_the_owner_has_changed_stay,
        settings_of_a_table_that_python_made_stay_and_the_others_are_added,
        tables_that_the_path_finds_are_not_made_before_them,
        tables_that_python_made_are_adopted,
        tables_that_python_made_work_as_they_are,
        dead_letters_that_python_made_need_a_migration,
    }
}
