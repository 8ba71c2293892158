//! What the tools of operators take from an app.

#[cfg(feature = "postgres")]
use std::time::Duration;

use tokio::runtime::Handle;

#[cfg(feature = "postgres")]
use super::launch;
use super::{App, Database};
use crate::health::Health;
use crate::store::names::TableNames;
use crate::subscriber::{ErrorRenderer, Subscriber};
use crate::telemetry::{Sinks, Stats};

/// Why nobody can look at such tables.
#[cfg(feature = "sqlite")]
pub(super) fn schema_on_sqlite(names: &TableNames) -> Option<String> {
    let schema = names.schema()?;
    Some(format!(
        "SQLite has no schema {schema:?}; name none (`OUTBOX_SCHEMA`, `TableNames::in_schema`)"
    ))
}

/// How long an operator waits for a server that may be away.
#[cfg(feature = "postgres")]
const REACHED_WITHIN: Duration = Duration::from_secs(5);

/// Without this check sqlx panics.
const NO_RUNTIME: &str = "there is no tokio runtime here, but the pool that is made from the URL of \
    the database needs one: call this inside a runtime, for example in an `async fn`";

impl App {
    /// Reasons why nobody can look at its tables.
    pub(crate) fn mistakes_of_tables(&self) -> Vec<String> {
        let mut mistakes = self.mistakes.clone();
        let has_url = !self.database.is_given() && !matches!(self.database, Database::None);
        if has_url && Handle::try_current().is_err() {
            mistakes.push(NO_RUNTIME.into());
        }
        #[cfg(feature = "sqlite")]
        if let Database::Sqlite(_) | Database::SqliteUrl(_) = &self.database {
            mistakes.extend(schema_on_sqlite(&self.names));
        }
        mistakes
    }

    /// Tells once that nobody named the database, when it is used.
    pub(crate) fn warn_if_assumed(&self) {
        if let Some(once) = &self.assumed {
            once.call_once(|| {
                crate::telemetry::warn!(
                    target: crate::telemetry::TARGET,
                    "`DATABASE_URL` is not set; using the SQLite file `outbox.db` in the current folder"
                );
            });
        }
    }

    /// Where its tables are, with a pool that connects when it is first used. A pool can be made
    /// only inside a tokio runtime.
    pub(crate) fn tables(&self, make_file: bool) -> (Database, TableNames) {
        #[cfg(not(feature = "sqlite"))]
        let _ = make_file;
        let database = match &self.database {
            // To look only, the file and its journal mode are left as they are.
            #[cfg(feature = "sqlite")]
            Database::SqliteUrl(options) if !make_file => {
                let options = (**options).clone().create_if_missing(false);
                Database::Sqlite(sqlx::SqlitePool::connect_lazy_with(options))
            }
            #[cfg(feature = "postgres")]
            Database::PostgresUrl(options) => {
                let handlers = launch::in_transactions(&self.subscribers());
                let pool = launch::pool(handlers).acquire_timeout(REACHED_WITHIN);
                Database::Postgres(pool.connect_lazy_with((**options).clone()))
            }
            other => other.with_pool(0),
        };
        (database, self.names.clone())
    }

    /// The same tables and settings for one subscriber of the library's own, without the user's
    /// handlers, layers and hooks.
    pub(crate) fn instead(&self, only: Subscriber) -> Self {
        Self {
            only: Some(vec![only]),
            included: Vec::new(),
            layers: Vec::new(),
            startup: Vec::new(),
            shutdown: Vec::new(),
            stats: Stats::default(),
            health: Health::default(),
            sinks: Sinks::default(),
            sample_every: None,
            ..self.clone()
        }
    }

    /// What renders errors.
    pub(crate) fn renderer(&self) -> &ErrorRenderer {
        &*self.render
    }
}

#[cfg(all(test, feature = "postgres", feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::ops::{Load, Operator};

    /// As in a `fn main` that is not async.
    #[test]
    fn without_a_runtime_an_operator_of_a_url_is_refused_and_told_where_to_call_it() {
        let postgres = "postgres://u@h/db".parse().unwrap();
        let file = crate::store::sqlite::options("sqlite:shop.db").unwrap();
        let apps = [
            App::new(Database::PostgresUrl(Box::new(postgres))),
            App::new(Database::SqliteUrl(Box::new(file))),
        ];
        for app in apps {
            let refused = [
                app.operator().map(drop),
                app.doctor().map(drop),
                app.bench(Load::default()).map(drop),
            ];
            for refused in refused {
                let told = refused.unwrap_err().to_string();
                assert!(told.contains("inside a runtime"), "{told}");
            }
        }
        // It is for a file in this folder, unless the tests have a URL.
        let told = Operator::from_env().unwrap_err().to_string();
        assert!(told.contains("inside a runtime"), "{told}");
        let told = App::new(Database::None).operator().unwrap_err().to_string();
        assert!(!told.contains("runtime"), "it needs no pool: {told}");
    }

    #[test]
    fn a_pool_that_is_there_needs_no_runtime() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let pool = runtime.block_on(async { sqlx::PgPool::connect_lazy("postgres://u@h/db") });
        let app = App::postgres(pool.unwrap());
        app.operator().unwrap();
        app.doctor().unwrap();
    }
}
