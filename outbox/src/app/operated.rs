//! What operators' tools take of an app.

#[cfg(feature = "postgres")]
use std::time::Duration;

#[cfg(feature = "postgres")]
use super::launch;
use super::{App, Database};
use crate::health::Health;
use crate::store::names::TableNames;
use crate::subscriber::{ErrorRenderer, Subscriber};
use crate::telemetry::{Sinks, Stats};

/// How long an operator waits for a server that may be away.
#[cfg(feature = "postgres")]
const REACHED_WITHIN: Duration = Duration::from_secs(5);

impl App {
    /// Where its tables are, with a pool that connects when it is first used, and what
    /// was wrong so far.
    pub(crate) fn tables(&self, make_file: bool) -> (Database, TableNames, &[String]) {
        #[cfg(not(feature = "sqlite"))]
        let _ = make_file;
        let database = match &self.database {
            #[cfg(feature = "sqlite")]
            Database::SqliteUrl(options) => {
                let options = (**options).clone();
                // Whoever only looks leaves the file and the mode of its journal as they are.
                let options = if make_file {
                    crate::store::sqlite::with_a_log(options)
                } else {
                    options.create_if_missing(false)
                };
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
        (database, self.names.clone(), &self.mistakes)
    }

    /// The same tables and settings, for one subscriber of the library's own: none of the
    /// user's handlers, layers and hooks.
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

    /// What errors are shown by.
    pub(crate) fn renderer(&self) -> &ErrorRenderer {
        &*self.render
    }
}
