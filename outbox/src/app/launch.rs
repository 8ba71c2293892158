//! Everything that speaks against starting, and the start.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::{info, warn};

use super::{App, Database, RunningApp};
use crate::engine::{Engine, Settings, Shared};
use crate::error::{Error, Result};
use crate::extract::{Lender, States};
use crate::health::Life;
use crate::store::Store;
use crate::subscriber::{ErrorRenderer, Subscriber};
use crate::telemetry::{Sinks, TARGET};

/// How long a server that starts at the same moment is waited for.
#[cfg(feature = "postgres")]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

pub(super) async fn start(app: &App) -> Result<RunningApp> {
    let subscribers = app.subscribers();
    let mut reasons = app.mistakes.clone();
    let database = app.database.with_pool();
    let states = app.states_on(&database);
    reasons.extend(problems(&subscribers, &states));
    let (names, start) = (app.names.clone(), Start { app, states, subscribers });
    match database {
        #[cfg(feature = "postgres")]
        Database::Postgres(pool) => {
            use crate::store::postgres::{Commits, PgStore};

            let commits = if app.async_settles { Commits::Async } else { Commits::Default };
            let anew = move || PgStore::with_commits(&pool, names.clone(), commits);
            let store = anew();
            if let Err(error) = store.reach(PATIENCE).await {
                return Err(refused(reasons, error));
            }
            start.on(store, anew, reasons).await
        }
        #[cfg(feature = "sqlite")]
        Database::Sqlite(pool) => {
            if matches!(app.database, Database::SqliteUrl(_)) {
                // Before the file is made: a refused start leaves nothing behind.
                if !reasons.is_empty() {
                    return Err(Error::Launch(reasons));
                }
                crate::store::sqlite::open(&pool).await?;
                if names.schema().is_none() {
                    crate::schema::migrate_tables(&pool, &names).await?;
                }
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
        if let Some(lender) = database.lender() {
            states.lend(lender);
        }
        states
    }

    /// The states as handlers have them.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn lending_states(&self) -> States {
        self.states_on(&self.tables(false).0)
    }

    /// What errors are shown by.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn renderer(&self) -> &ErrorRenderer {
        &*self.render
    }
}

impl Database {
    /// With a pool that connects when it is first used, in the place of a URL.
    pub(super) fn with_pool(&self) -> Self {
        match self {
            #[cfg(feature = "postgres")]
            Self::PostgresUrl(options) => {
                Self::Postgres(sqlx::PgPool::connect_lazy_with((**options).clone()))
            }
            #[cfg(feature = "sqlite")]
            Self::SqliteUrl(options) => {
                Self::Sqlite(sqlx::SqlitePool::connect_lazy_with((**options).clone()))
            }
            other => other.clone(),
        }
    }

    /// Where handlers' transactions come from.
    fn lender(&self) -> Option<Lender> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => Some(Lender::Postgres(pool.clone())),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(pool) => Some(Lender::sqlite(pool.clone())),
            _ => None,
        }
    }
}

/// The reasons found so far and a database that fails, or only that.
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
            store.close().await;
            return Err(error);
        }
        let render = Arc::clone(&app.render);
        Sinks::begin();
        app.sinks.serve_process();
        let shared = Shared::new(store, render, app.publisher(), app.sinks.clone());
        let settings = Settings {
            drain_timeout: app.drain_timeout,
            // Nobody could see what they find.
            sample_every: app.sample_every.filter(|_| cfg!(feature = "metrics")),
        };
        let engine = Engine::start(shared, subscribers, &states, &app.stats, settings, Some(anew));
        let life = Life::begin(engine.vitals());
        app.health.begins(&life);
        let (shutdown, sinks) = (app.shutdown.clone(), app.sinks.clone());
        Ok(RunningApp::new(Box::new(engine), life, shutdown, sinks))
    }
}

/// What comes before the first claim.
async fn prepare<S: Store>(
    app: &App,
    store: &S,
    subscribers: &[Subscriber],
    mut reasons: Vec<String>,
) -> Result<()> {
    let found = match store.validate(false).await {
        Ok(found) => found,
        Err(error) => return Err(refused(reasons, error)),
    };
    for difference in found.differences {
        if difference.fatal {
            reasons.push(difference.to_string());
        } else {
            warn!(target: TARGET, "{difference}");
        }
    }
    if !reasons.is_empty() {
        return Err(Error::Launch(reasons));
    }
    announce(subscribers, store.keeps_dead_letters());
    for hook in &app.startup {
        hook().await.map_err(|source| Error::Hook { hook: "startup", source })?;
    }
    Ok(())
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
                     goes to one of them only",
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
    }
    let terminal: Vec<&str> = subscribers
        .iter()
        .filter(|one| one.options.can_fail_terminally())
        .map(Subscriber::name)
        .collect();
    if !dead_letters && !terminal.is_empty() {
        warn!(
            target: TARGET, subscribers = ?terminal,
            "no dead-letter table is configured (`.dlq(..)`, `OUTBOX_DLQ_TABLE`): messages that \
             fail for good are deleted"
        );
    }
}
