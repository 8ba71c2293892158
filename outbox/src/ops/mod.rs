//! Tools for whoever is on call: what is in the tables, and why.
//!
//! An [`Operator`] works on the tables of one database, from any program. The command
//! line (feature `cli`) is built on it.

mod age;
pub(crate) mod begun;
mod bench;
pub mod doctor;
mod document;
mod grants;
pub(crate) mod json;
mod pause;
mod payload;
mod peek;
mod publish;
mod queues;
mod stats;
mod why;

#[cfg(feature = "cli")]
pub(crate) use age::age;
pub use bench::{Bench, Load, Measured};
pub use document::Document;
pub use grants::Roles;
#[cfg(feature = "cli")]
pub(crate) use json::rfc3339;
pub use pause::{Pause, Resumed};
pub use payload::Payload;
pub use peek::{PeekOptions, Peeked};
pub use publish::CancelledTimer;
pub use queues::QueueInfo;
pub(crate) use stats::Counted;
pub use stats::{QueueRates, QueueSample, Rates, Sample, SampleOptions};
#[cfg(feature = "postgres")]
pub(crate) use why::locked;
pub use why::{Answer, Extension, Letter, Session, Sureness, Told, Why, WhyOptions, WhyRow};
pub(crate) use why::{BEFORE, FoundRow, LockedBy, Readers};

use crate::app::App;
use crate::error::{Error, Result};
use crate::schema::Difference;
use crate::store::names::TableNames;

/// The tables of one database, for operators. It is cheap to clone.
///
/// It uses the pool it is given, one statement or transaction at a time, and starts no background
/// loops. While a connection goes back to the pool, the next statement may take a second one.
/// `doctor`, and `why` on SQLite, also open up to three connections of their own.
///
/// If no dead-letter table is configured, the dead-letter table is the one that
/// [`migrate`](crate::migrate) makes, `<table>_dlq`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # #[cfg(feature = "sqlite")] {
/// # let folder = std::env::temp_dir().join(format!("outbox-ops-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let url = format!("sqlite:{}", folder.join("shop.db").display());
/// let pool = outbox::sqlite::connect(&url).await?;     // "sqlite:shop.db"
/// outbox::migrate(&pool).await?;
///
/// let operator = outbox::ops::Operator::sqlite(pool, outbox::TableNames::default());
/// operator.check(false).await?;
/// # std::fs::remove_dir_all(folder).unwrap();
/// # }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Operator {
    pub(crate) desk: Desk,
    names: TableNames,
    /// Nobody named the database: it is the default one.
    pub(crate) assumed: bool,
}

/// The statements of operators, for one database.
#[derive(Debug, Clone)]
pub(crate) enum Desk {
    #[cfg(feature = "postgres")]
    Postgres(crate::store::postgres::PgDesk),
    #[cfg(feature = "sqlite")]
    Sqlite(crate::store::sqlite::SqliteDesk),
}

/// Calls a method that both desks have.
macro_rules! on_desk {
    ($operator:expr, $desk:ident => $call:expr) => {
        match &$operator.desk {
            #[cfg(feature = "postgres")]
            $crate::ops::Desk::Postgres($desk) => $call,
            #[cfg(feature = "sqlite")]
            $crate::ops::Desk::Sqlite($desk) => $call,
        }
    };
}
pub(crate) use on_desk;

impl Operator {
    /// An operator for tables on a PostgreSQL server.
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn postgres(pool: sqlx::PgPool, names: TableNames) -> Self {
        let desk = Desk::Postgres(crate::store::postgres::PgDesk::new(pool, &names));
        Self { desk, names, assumed: false }
    }

    /// An operator for tables in a SQLite file.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn sqlite(pool: sqlx::SqlitePool, names: TableNames) -> Self {
        let desk = Desk::Sqlite(crate::store::sqlite::SqliteDesk::new(pool, &names));
        Self { desk, names, assumed: false }
    }

    /// An operator for the tables that the environment names, by the variables of
    /// [`App::from_env`].
    ///
    /// # Errors
    /// - With every mistake in the environment, at once.
    /// - Outside of a tokio runtime, without which there is no pool.
    pub fn from_env() -> Result<Self> {
        App::from_env().operator()
    }

    /// The names of the tables.
    #[must_use]
    pub fn names(&self) -> &TableNames {
        &self.names
    }

    /// Makes or upgrades the tables, as [`migrate_tables`](crate::schema::migrate_tables).
    ///
    /// # Errors
    /// As [`migrate_tables`](crate::schema::migrate_tables).
    ///
    /// # Cancel safety
    /// As [`migrate_tables`](crate::schema::migrate_tables).
    pub async fn migrate(&self) -> Result<()> {
        on_desk!(self, desk => crate::schema::migrate_tables(desk.pool(), &self.names).await)
    }

    /// The SQL that [`Operator::migrate`] runs.
    #[must_use]
    pub fn migration_sql(&self) -> String {
        crate::schema::sql(self.database(), &self.names)
    }

    /// Compares the tables with what the library needs, as
    /// [`validate_schema`](crate::schema::validate_schema).
    ///
    /// # Errors
    /// As [`validate_schema`](crate::schema::validate_schema).
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn check(&self, autovacuum: bool) -> Result<()> {
        on_desk!(self, desk => {
            crate::schema::validate_schema(desk.pool(), &self.names, autovacuum).await
        })
    }

    /// What [`Operator::check`] finds.
    pub(crate) async fn differences(&self, autovacuum: bool) -> Result<Vec<Difference>> {
        match self.check(autovacuum).await {
            Ok(()) => Ok(Vec::new()),
            Err(Error::Schema(mismatch)) => Ok(mismatch.differences),
            Err(error) => Err(error),
        }
    }

    /// The same operator. It looks at the dead-letter table that a migration makes, even if no app is
    /// to write to it.
    #[cfg(feature = "cli")]
    pub(crate) fn with_letters(&self) -> Self {
        Self { names: self.names.with_letters(), ..self.clone() }
    }

    /// Connects, or says why that fails.
    pub(crate) async fn reach(&self) -> Result<()> {
        on_desk!(self, desk => Ok(desk.reach().await?))
    }

    /// Says which database it is: without `DATABASE_URL`, a file in the current folder.
    pub(crate) fn place(&self) -> String {
        match &self.desk {
            #[cfg(feature = "postgres")]
            Desk::Postgres(desk) => {
                let options = desk.pool().connect_options();
                let database = options.get_database().unwrap_or(options.get_username());
                format!("the database {database} at {}", crate::store::postgres::place(&options))
            }
            #[cfg(feature = "sqlite")]
            Desk::Sqlite(desk) => format!("the file {}", desk.file().display()),
        }
    }

    pub(crate) fn database(&self) -> crate::schema::Database {
        match &self.desk {
            #[cfg(feature = "postgres")]
            Desk::Postgres(_) => crate::schema::Database::Postgres,
            #[cfg(feature = "sqlite")]
            Desk::Sqlite(_) => crate::schema::Database::Sqlite,
        }
    }
}

impl App {
    /// An operator for the app's tables. It does not make a SQLite file that is missing.
    ///
    /// # Errors
    /// - With every mistake in the environment, and every one in building the app, at once.
    /// - Outside of a tokio runtime, if the app has a URL and no pool.
    pub fn operator(&self) -> Result<Operator> {
        self.operator_with(false)
    }

    /// Works as [`App::operator`], but makes a SQLite file that is missing: its tables are about to
    /// be made.
    #[cfg(feature = "cli")]
    pub(crate) fn operator_making_files(&self) -> Result<Operator> {
        self.operator_with(true)
    }

    fn operator_with(&self, make_file: bool) -> Result<Operator> {
        let mistakes = self.mistakes_of_tables();
        if !mistakes.is_empty() {
            return Err(Error::Config(mistakes));
        }
        self.warn_if_assumed();
        let (database, names) = self.tables(make_file);
        let operator = match database {
            #[cfg(feature = "postgres")]
            crate::app::Database::Postgres(pool) => Operator::postgres(pool, names),
            #[cfg(feature = "sqlite")]
            crate::app::Database::Sqlite(pool) => Operator::sqlite(pool, names),
            // A mistake says why.
            _ => return Err(Error::Config(vec!["the app has no database".into()])),
        };
        Ok(Operator { assumed: self.assumed.is_some(), ..operator })
    }
}
