//! The tables: their SQL, their migrations, and what is wrong with them.

use std::fmt;

use serde::Serialize;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::error::{Result, StoreError};
use crate::store::making::statements_on;
use crate::store::names::TableNames;

/// A database that can hold the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Database {
    /// PostgreSQL 13 or newer.
    #[cfg(feature = "postgres")]
    Postgres,
    /// SQLite 3.43 or newer.
    #[cfg(feature = "sqlite")]
    Sqlite,
}

impl Database {
    /// Whether a table can be partitioned.
    #[cfg(feature = "cli")]
    pub(crate) fn has_partitions(self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres => true,
            #[cfg(feature = "sqlite")]
            Self::Sqlite => false,
        }
    }
}

/// Returns the SQL that makes the tables, for use with any migration tool.
///
/// The files it comes from lie in `migrations/`. They are written for the names
/// `outbox` and `outbox_dlq`.
///
/// # Examples
/// ```
/// # #[cfg(feature = "postgres")] {
/// use outbox::schema::{Database, sql};
/// use outbox::TableNames;
///
/// let names = TableNames::new("events")?.in_schema("shop")?;
/// assert!(sql(Database::Postgres, &names).contains(r#"CREATE TABLE IF NOT EXISTS "shop"."events" ("#));
/// # }
/// # Ok::<(), outbox::NameError>(())
/// ```
#[must_use]
pub fn sql(database: Database, names: &TableNames) -> String {
    match database {
        #[cfg(feature = "postgres")]
        Database::Postgres => crate::store::postgres::schema_sql(names),
        #[cfg(feature = "sqlite")]
        Database::Sqlite => crate::store::sqlite::schema_sql(names),
    }
}

/// Runs the migrations that have not run yet. The record identifies a file by the checksum
/// of its text before the names are filled in. So a file stays the same with another
/// dead-letter table, and whether the schema is named or left to the search path.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn migrator(names: &TableNames, migrations: &[&'static str]) -> Migrator {
    let migration = |(number, &file): (i64, &&'static str)| {
        let of = |text| Migration::new(number, "outbox".into(), MigrationType::Simple, text, false);
        let mut migration = of(AssertSqlSafe(names.sql(file)).into_sql_str());
        migration.checksum = of(file.into_sql_str()).checksum;
        migration
    };
    let migrations = (1..).zip(migrations).map(migration).collect();
    let mut migrator = Migrator::with_migrations(migrations);
    migrator.dangerous_set_table_name(names.version_table());
    migrator.set_locking(false);
    // After a rollback the record holds migrations of the later release.
    migrator.set_ignore_missing(true);
    migrator
}

/// For `map_err` on what a [`migrator`] ran. sqlx's own text names another table.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn not_migrated(names: &TableNames) -> impl Fn(MigrateError) -> StoreError {
    const ACTION: &str = "migrate";
    move |error| match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            StoreError::of(ACTION)(error)
        }
        MigrateError::Dirty(number) => {
            let record = names.version_table();
            let why = format!(
                "migration {number} is partially applied; fix it, and remove its row from the \
                 table {record}"
            );
            StoreError::new(ACTION, why, false)
        }
        error => StoreError::new(ACTION, error, false),
    }
}

/// Makes or upgrades the tables that [`TableNames::from_env`] names.
///
/// The call can be repeated, and many processes may make it at once. It keeps a
/// record of its migrations apart from those of your application: in
/// `_<table>_migrations`, by default `_outbox_migrations`. If the dead-letter
/// table is not called `<table>_dlq`, the record is `_<dlq>_migrations`.
///
/// What a later release has made stays as it is, so an app that is rolled back to
/// an earlier release goes on working.
///
/// # Examples
/// ```no_run
/// # async fn prepare(pool: sqlx::PgPool) -> outbox::Result<()> {
/// outbox::migrate(&pool).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// When a variable that [`TableNames::from_env`] reads cannot be used. Otherwise as
/// [`migrate_tables`].
///
/// # Cancel safety
/// As [`migrate_tables`].
pub async fn migrate<P: Pool>(pool: &P) -> Result<()> {
    let names = TableNames::from_env();
    let names = names.map_err(|error| crate::Error::Config(vec![error.to_string()]))?;
    migrate_tables(pool, &names).await
}

/// Makes or upgrades these tables, as [`migrate`] does. A dead-letter table is
/// always made: under the name that `names` has for it, or as `<table>_dlq`.
///
/// # Errors
/// When the database refuses. Also when another transaction keeps a table locked for a minute, or
/// another migration runs that long. On SQLite, when somebody else writes for a minute.
///
/// # Cancel safety
/// A dropped call leaves everything done, or nothing. On PostgreSQL it may also leave the first
/// step alone: an outbox that was there has the indexes and settings that it lacked.
pub async fn migrate_tables<P: Pool>(pool: &P, names: &TableNames) -> Result<()> {
    Ok(pool.migrate(names).await?)
}

/// Compares the tables with what the library needs.
///
/// The call looks at the outbox, the table of paused queues and, if `names` has one, the
/// dead-letter table. It checks:
/// - columns, types, nullability, defaults, indexes and CHECKs, and the encoding of the database;
/// - on PostgreSQL, that the outbox is neither partitioned nor inherited from, that no table of
///   messages or letters is UNLOGGED, and that no row-level security is active for this role;
/// - on PostgreSQL, that a role that may claim may also settle, and write dead letters;
/// - on PostgreSQL, with `autovacuum`, the vacuum settings of the outbox;
/// - on SQLite, that the outbox and the dead-letter table are STRICT and use AUTOINCREMENT.
///
/// Extra indexes pass. So do extra columns that may be NULL or have a default.
///
/// # Errors
/// [`Error::Schema`](crate::Error::Schema) with every difference at once and the SQL that mends
/// it. [`Error::Store`](crate::Error::Store) when the database cannot be asked.
///
/// # Cancel safety
/// The call only reads.
pub async fn validate_schema<P: Pool>(
    pool: &P,
    names: &TableNames,
    autovacuum: bool,
) -> Result<()> {
    let mismatch = pool.validate(names, autovacuum).await?;
    if mismatch.differences.is_empty() { Ok(()) } else { Err(mismatch.into()) }
}

/// Everything that is wrong with the tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaMismatch {
    /// One entry for each difference.
    pub differences: Vec<Difference>,
    /// Claims cannot read a table of paused queues.
    pub(crate) unpausable: bool,
}

/// One thing that is not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// What is wrong, and with which table.
    pub what: String,
    /// The SQL that mends it. Run the SQL of all differences in their order. If
    /// several in a row have the same SQL, run it once.
    pub mend: String,
    /// True when the engine cannot work like this. False when it works, but
    /// slowly or less safely.
    pub fatal: bool,
}

impl SchemaMismatch {
    /// The role may not read the table of pauses. Everything else works.
    #[cfg(feature = "postgres")]
    pub(crate) fn hides_pauses(&mut self, table: &str, role: &str) {
        self.unpausable = true;
        let what = format!("the table {table} may not be read: pauses of queues are not seen");
        self.add(false, what, format!("GRANT SELECT ON {table} TO {role}"));
    }

    /// There is no table of pauses, as beside tables that a Python service made. Everything
    /// else works.
    pub(crate) fn lacks_pauses(&mut self, database: Database, names: &TableNames) {
        self.unpausable = true;
        let table = names.qualified(&names.paused());
        let mend = statements_on(database, names, &table);
        // The SQL that mends a missing outbox makes this one too.
        if self.differences.iter().any(|one| one.mend.ends_with(&mend)) {
            return;
        }
        self.add(
            false,
            format!(
                "the table {table} does not exist: queues cannot be paused, and `stats`, `queues` and `why` need it"
            ),
            mend,
        );
    }

    pub(crate) fn add(&mut self, fatal: bool, what: impl Into<String>, mend: impl Into<String>) {
        let mut mend = mend.into();
        // Comments are for people. The statements of several differences are run one after the other.
        if !mend.starts_with("--") && !mend.trim_end().ends_with(';') {
            mend.push(';');
        }
        self.differences.push(Difference { what: what.into(), mend, fatal });
    }
}

impl std::error::Error for SchemaMismatch {}

impl fmt::Display for SchemaMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tables are not as they have to be:")?;
        lines(&self.differences).try_for_each(|line| write!(f, "\n  - {line}"))
    }
}

/// A text for each. SQL that several in a row share is told once.
pub(crate) fn lines<'a>(
    differences: impl IntoIterator<Item = &'a Difference>,
) -> impl Iterator<Item = String> {
    let mut last = "";
    differences.into_iter().map(move |one| {
        let same = std::mem::replace(&mut last, &one.mend) == one.mend;
        if same { format!("{}; the same SQL mends it", one.what) } else { one.to_string() }
    })
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; mend it with: {}", self.what, self.mend)
    }
}

/// A pool of a database that can hold the tables. Sealed.
pub trait Pool: sealed::Pool {}
impl<P: sealed::Pool> Pool for P {}

pub(crate) mod sealed {
    use std::future::Future;

    use super::SchemaMismatch;
    use crate::error::StoreError;
    use crate::store::names::TableNames;

    pub trait Pool: Sync {
        fn migrate(
            &self,
            names: &TableNames,
        ) -> impl Future<Output = Result<(), StoreError>> + Send;

        fn validate(
            &self,
            names: &TableNames,
            autovacuum: bool,
        ) -> impl Future<Output = Result<SchemaMismatch, StoreError>> + Send;
    }
}

/// A column that both databases must have. Each reads the type of its own.
#[cfg_attr(not(all(feature = "postgres", feature = "sqlite")), allow(dead_code))]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// PostgreSQL's spellings of its type. The first is ours; the others pass too.
    pub(crate) postgres: &'static [&'static str],
    pub(crate) sqlite: &'static str,
    pub(crate) not_null: bool,
    /// Every claim reads it. A row with NULL in it would fail every claim of its queue.
    pub(crate) claimed: bool,
    /// `""` is none. Our inserts leave out the columns that have one, except for times, which
    /// only other writers leave out.
    pub(crate) default: &'static str,
}

/// The default of times.
pub(crate) const NOW: &str = "now()";
/// The default of ids.
pub(crate) const IDENTITY: &str = "identity";

mod columns {
    use super::{Column, IDENTITY, NOW};

    const fn column(
        name: &'static str,
        postgres: &'static [&'static str],
        sqlite: &'static str,
        not_null: bool,
        default: &'static str,
    ) -> Column {
        Column { name, postgres, sqlite, not_null, claimed: false, default }
    }

    /// A column that every claim reads.
    const fn claimed(
        name: &'static str,
        postgres: &'static [&'static str],
        sqlite: &'static str,
        default: &'static str,
    ) -> Column {
        Column { claimed: true, ..column(name, postgres, sqlite, true, default) }
    }

    const BIGINT: &[&str] = &["bigint"];
    const NAME: &[&str] = &["character varying(255)", "text", "character varying"];
    const TIME: &[&str] = &["timestamp with time zone"];
    const TEXT: &[&str] = &["text", "character varying"];

    pub(crate) const OUTBOX: [Column; 13] = [
        column("id", BIGINT, "INTEGER", true, IDENTITY),
        column("queue", NAME, "TEXT", true, ""),
        claimed("payload", &["bytea"], "BLOB", ""),
        column("headers", &["jsonb"], "TEXT", false, ""),
        claimed("attempts_count", BIGINT, "INTEGER", "0"),
        claimed("deliveries_count", BIGINT, "INTEGER", "0"),
        claimed("created_at", TIME, "INTEGER", NOW),
        column("next_attempt_at", TIME, "INTEGER", true, NOW),
        column("first_attempt_at", TIME, "INTEGER", false, ""),
        column("last_attempt_at", TIME, "INTEGER", false, ""),
        column("acquired_at", TIME, "INTEGER", false, ""),
        column("acquired_token", &["uuid"], "BLOB", false, ""),
        column("timer_id", NAME, "TEXT", false, ""),
    ];

    pub(crate) const PAUSED: [Column; 3] = [
        column("queue", NAME, "TEXT", true, ""),
        column("paused_at", TIME, "INTEGER", true, NOW),
        column("note", TEXT, "TEXT", false, ""),
    ];

    pub(crate) const DLQ: [Column; 17] = [
        column("id", BIGINT, "INTEGER", true, IDENTITY),
        column("original_id", BIGINT, "INTEGER", true, ""),
        column("queue", NAME, "TEXT", true, ""),
        column("payload", &["bytea"], "BLOB", true, ""),
        column("headers", &["jsonb"], "TEXT", false, ""),
        column("deliveries_count", BIGINT, "INTEGER", true, ""),
        column("created_at", TIME, "INTEGER", true, ""),
        column("failed_at", TIME, "INTEGER", true, NOW),
        column("failure_reason", &["character varying(64)", "text"], "TEXT", true, ""),
        column("last_exception", TEXT, "TEXT", false, ""),
        column("timer_id", NAME, "TEXT", false, ""),
        column("status", &["character varying(16)", "text"], "TEXT", true, "'failed'"),
        column("resolved_at", TIME, "INTEGER", false, ""),
        column("note", TEXT, "TEXT", false, ""),
        column("error_kind", NAME, "TEXT", false, ""),
        column("fingerprint", &["character varying(64)", "text"], "TEXT", false, ""),
        column("replayed_id", BIGINT, "INTEGER", false, ""),
    ];
}
pub(crate) use columns::{DLQ, OUTBOX, PAUSED};
