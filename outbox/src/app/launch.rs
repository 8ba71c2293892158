//! Every reason against starting, and the start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

#[cfg(feature = "sqlite")]
use super::operated::schema_on_sqlite;
use super::running::begin;
use super::{App, Database, RunningApp, misspelt};
use crate::engine::{Engine, Settings, Shared};
use crate::error::{Error, Result};
use crate::extract::{Lender, States};
use crate::health::Life;
use crate::schema::lines;
use crate::store::Store;
use crate::subscriber::{MAX_WORKERS, Subscriber};
use crate::telemetry::{Sinks, TARGET, info, warn};

/// How long a start waits for a server that starts at the same moment, and for a locked table,
/// such as one that a migration has locked.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon the start looks at the tables again meanwhile.
const AGAIN: Duration = Duration::from_millis(200);

/// Behind such a pooler another session may have prepared another statement under the same name.
#[cfg(feature = "postgres")]
const POOLED: &str = "the connections go through a pooler in transaction mode: connect to the \
    server itself, or to a pool in session mode";

pub(super) async fn start(app: &App) -> Result<RunningApp> {
    let subscribers = app.subscribers();
    let mut reasons = app.mistakes.clone();
    let transactions = in_transactions(&subscribers);
    let database = app.database.with_pool(transactions);
    let states = app.states_on(&database);
    reasons.extend(problems(&subscribers, &states));
    if app.database.is_given() {
        misspelt::warn_given(app);
    }
    let (names, start) = (app.names.clone(), Start { app, states, subscribers });
    match database {
        #[cfg(feature = "postgres")]
        Database::Postgres(pool) => {
            use crate::store::postgres::{Commits, PgDesk, PgStore};

            let connections = pool.options().get_max_connections();
            if transactions > connections as usize {
                warn!(
                    target: TARGET, workers = transactions, max_connections = connections,
                    "more workers take `Tx` than the app's pool has connections: those without \
                     one wait for it, and their messages are put off; raise the pool's \
                     `max_connections`, or lower `max_workers`"
                );
            }
            let commits = if app.async_settles { Commits::Async } else { Commits::Default };
            let desk = PgDesk::new(pool.clone(), &names);
            let anew = move || PgStore::with_commits(&pool, names.clone(), commits);
            let store = anew();
            let mut connection = match store.reach(PATIENCE).await {
                Ok(connection) => connection,
                Err(error) => return Err(refused(reasons, error)),
            };
            if let Some(reason) = desk.lies_elsewhere(&mut connection).await {
                reasons.push(reason);
                return Err(Error::Launch(reasons));
            }
            if desk.is_behind_a_pooler(connection).await {
                reasons.push(POOLED.to_owned());
                return Err(Error::Launch(reasons));
            }
            start.on(store, anew, reasons).await
        }
        #[cfg(feature = "sqlite")]
        Database::Sqlite(pool) => {
            app.warn_if_assumed();
            if matches!(app.database, Database::SqliteUrl(_)) {
                // Before the file is made: a refused start leaves nothing behind.
                reasons.extend(schema_on_sqlite(&names));
                if !reasons.is_empty() {
                    return Err(Error::Launch(reasons));
                }
                crate::store::sqlite::open(&pool).await?;
                crate::schema::migrate_tables(&pool, &names).await?;
            }
            let unusable = match crate::store::sqlite::why_private(&pool) {
                None => crate::store::sqlite::why_read_only(&pool, &names).await,
                private => private,
            };
            if let Some(reason) = unusable {
                reasons.push(reason);
                return Err(Error::Launch(reasons));
            }
            let anew = move || crate::store::sqlite::SqliteStore::new(&pool, names.clone());
            start.on(anew(), anew, reasons).await
        }
        // A mistake says why.
        _ => Err(Error::Launch(reasons)),
    }
}

impl App {
    /// The states, with the transactions of this database.
    fn states_on(&self, database: &Database) -> States {
        let mut states = (*self.states).clone();
        match database.lender() {
            Some(lender) => states.lend(lender),
            None => states.deprive(),
        }
        states
    }

    /// The states that handlers get.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn lending_states(&self) -> States {
        self.states_on(&self.tables(false).0)
    }
}

impl Database {
    /// Replaces a URL by a pool that connects when it is first used. The pool has as many
    /// connections as handlers may hold transactions at once.
    pub(super) fn with_pool(&self, transactions: usize) -> Self {
        #[cfg(not(feature = "postgres"))]
        let _ = transactions;
        match self {
            #[cfg(feature = "postgres")]
            Self::PostgresUrl(options) => {
                Self::Postgres(pool(transactions).connect_lazy_with((**options).clone()))
            }
            #[cfg(feature = "sqlite")]
            Self::SqliteUrl(options) => {
                let options = crate::store::sqlite::with_a_log((**options).clone());
                Self::Sqlite(sqlx::SqlitePool::connect_lazy_with(options))
            }
            other => other.clone(),
        }
    }

    /// Whether the program gave its pool, whatever the environment says.
    pub(super) fn is_given(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => true,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => true,
            _ => false,
        }
    }

    pub(super) fn is_sqlite(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => true,
            _ => false,
        }
    }

    /// Where handlers' transactions come from.
    fn lender(&self) -> Option<Lender> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => {
                let lender = crate::store::postgres::PgLender::new(pool.clone());
                Some(Lender::new("PostgreSQL", lender))
            }
            #[cfg(feature = "sqlite")]
            Self::Sqlite(pool) => {
                let lender = crate::store::sqlite::SqliteLender::new(pool.clone());
                Some(Lender::new("SQLite", lender))
            }
            _ => None,
        }
    }
}

/// How long the connections of a start that failed may take to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The error of the database, behind the reasons found so far, if there are any.
fn refused(mut reasons: Vec<String>, error: crate::error::StoreError) -> Error {
    if reasons.is_empty() {
        return error.into();
    }
    reasons.push(error.to_string());
    Error::Launch(reasons)
}

/// A start whose database is known.
struct Start<'a> {
    app: &'a App,
    states: States,
    subscribers: Vec<Subscriber>,
}

impl Start<'_> {
    /// A start that fails leaves no connection behind.
    async fn on<S: Store>(
        self,
        store: S,
        anew: impl Fn() -> S + Send + 'static,
        reasons: Vec<String>,
    ) -> Result<RunningApp> {
        let Self { app, states, subscribers } = self;
        if let Err(error) = prepare(app, &store, &subscribers, reasons).await {
            // A connection that gives no sign of life does not hold this up.
            let _ = timeout(CLOSE_LIMIT, store.close()).await;
            return Err(error);
        }
        let render = Arc::clone(&app.render);
        Sinks::begin();
        let sinks = app.sinks.of_a_run();
        sinks.serve_process();
        let mut shared = Shared::new(store, render, app.publisher(), sinks.clone());
        shared.logs_errors = app.logs_errors;
        let settings = Settings {
            drain_timeout: app.drain_timeout,
            // Without metrics nobody would see the samples.
            sample_every: app.sample_every.filter(|_| cfg!(feature = "metrics")),
        };
        let engine = Engine::start(shared, subscribers, &states, &app.stats, settings, Some(anew));
        let life = Life::begin(engine.vitals());
        app.health.begins(&life);
        Ok(RunningApp::new(engine, life, app.shutdown.clone(), sinks))
    }
}

/// What comes before the first claim.
async fn prepare<S: Store>(
    app: &App,
    store: &S,
    subscribers: &[Subscriber],
    mut reasons: Vec<String>,
) -> Result<()> {
    let give_up = Instant::now() + PATIENCE;
    let found = loop {
        match store.validate(false).await {
            Ok(found) => break found,
            Err(error) if error.transient && reasons.is_empty() && Instant::now() < give_up => {
                sleep(AGAIN).await;
            }
            Err(error) => return Err(refused(reasons, error)),
        }
    };
    let (fatal, others): (Vec<_>, Vec<_>) = found.differences.iter().partition(|one| one.fatal);
    reasons.extend(lines(fatal));
    lines(others).for_each(|line| warn!(target: TARGET, "{line}"));
    if !reasons.is_empty() {
        return Err(Error::Launch(reasons));
    }
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    if let Ok(operator) = app.operator() {
        let (place, names) = (operator.place(), &app.names);
        let table = names.qualified(names.table());
        info!(target: TARGET, table, dead_letters = names.dlq(), "the messages are in {place}");
    }
    announce(subscribers, store.keeps_dead_letters());
    for hook in &app.startup {
        begin(Arc::clone(hook), "startup").await?;
    }
    Ok(())
}

/// A pool with a connection for each of this many handlers with transactions.
#[cfg(feature = "postgres")]
pub(super) fn pool(transactions: usize) -> sqlx::postgres::PgPoolOptions {
    let pool = sqlx::postgres::PgPoolOptions::new();
    let wanted = u32::try_from(transactions).unwrap_or(u32::MAX);
    let most = pool.get_max_connections().max(wanted);
    pool.max_connections(most)
}

/// How many handlers may hold a transaction at once.
pub(super) fn in_transactions(subscribers: &[Subscriber]) -> usize {
    let lent = subscribers.iter().filter(|one| one.takes_transaction());
    // A pool makes room for all its connections at once. More workers are refused.
    lent.fold(0, |sum, one| sum.saturating_add(one.options.max_workers.min(MAX_WORKERS)))
}

/// What is wrong with these subscribers, each on its own and together.
pub(crate) fn problems(subscribers: &[Subscriber], states: &States) -> Vec<String> {
    if subscribers.is_empty() {
        return vec![
            "no subscriber is registered: annotate an async fn with `#[subscriber(..)]`; if the \
             handlers are in a library crate, say `use that_crate as _;` in the program, or the \
             linker leaves them out"
                .into(),
        ];
    }
    let mut reasons = Vec::new();
    let mut readers: HashMap<&str, &Subscriber> = HashMap::new();
    for subscriber in subscribers {
        let who = format!("subscriber `{}` ({})", subscriber.name(), subscriber.origin());
        reasons.extend(subscriber.problems(states).iter().map(|why| format!("{who}: {why}")));
        for queue in subscriber.queues() {
            if let Some(other) = readers.insert(queue, subscriber)
                && !std::ptr::eq(other, subscriber)
            {
                reasons.push(format!(
                    "{who}: the queue `{queue}` already has the subscriber `{}` ({}); a message \
                     goes to one of them only; give each a queue of its own, and publish to both",
                    other.name(),
                    other.origin()
                ));
            }
        }
    }
    reasons
}

fn announce(subscribers: &[Subscriber], dead_letters: bool) {
    for subscriber in subscribers {
        info!(
            target: TARGET, subscriber = subscriber.name(), queues = ?subscriber.queues(),
            origin = %subscriber.origin(), "subscribed"
        );
        if subscriber.options.retries_outlast_deliveries() {
            warn!(
                target: TARGET, subscriber = subscriber.name(), origin = %subscriber.origin(),
                max_deliveries = subscriber.options.max_deliveries,
                "`retry` allows more failed runs than `max_deliveries`: a message that fails so \
                 often ends as `max_deliveries`, without its error; raise `max_deliveries` to the \
                 `max_attempts` of the strategy at least"
            );
        }
    }
    let terminal: Vec<&str> = subscribers
        .iter()
        .filter(|one| one.options.can_fail_terminally())
        .map(Subscriber::name)
        .collect();
    if !dead_letters && !terminal.is_empty() {
        warn!(
            target: TARGET, subscribers = ?terminal,
            "no dead-letter table is configured (by `.dlq(..)`, or for `App::from_env` by \
             `OUTBOX_DLQ_TABLE`): messages that fail for good are deleted"
        );
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;
    use crate::extract::Tx;

    #[tokio::test]
    async fn the_pool_of_a_url_has_a_connection_for_each_handler_with_a_transaction() {
        let options = "postgres://u@h/db".parse().unwrap();
        let database = Database::PostgresUrl(Box::new(options));
        let most = |workers| {
            let plain = Subscriber::new("plain", "a", |_| async {}).max_workers(70);
            let lent = Subscriber::new("lent", "b", |_| async {}).max_workers(workers);
            let lent = lent.requires::<Option<Tx<sqlx::Postgres>>>();
            let app = App::new(database.clone()).only([plain, lent]);
            // What the app has, and what its operators count.
            let pools =
                [database.with_pool(in_transactions(&app.subscribers())), app.tables(false).0];
            let [of_app, counted] = pools.map(|pool| match pool {
                Database::Postgres(pool) => pool.options().get_max_connections(),
                _ => 0,
            });
            assert_eq!(of_app, counted);
            of_app
        };
        assert_eq!((most(1), most(25), most(usize::MAX)), (10, 25, 10_000));
    }
}
