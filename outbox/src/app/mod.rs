//! The app: a database, states, subscribers, and how long a drain may take.

mod config;
mod launch;
mod misspelt;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod operated;
mod running;
mod signals;
mod telling;
#[cfg(feature = "postgres")]
mod url;

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::time::Duration;

#[cfg(feature = "testing")]
pub(crate) use launch::problems;
pub use running::RunningApp;

use crate::error::{BoxError, Result};
use crate::extract::{Context, States};
use crate::health::Health;
use crate::publish::Publisher;
use crate::redacted::debug_only;
use crate::store::names::TableNames;
use crate::subscriber::{
    self, ErrorRenderer, HandlerResult, IntoRouter, Layer, Next, Subscriber, debug_chain,
    registered,
};
use crate::telemetry::{Sinks, Stats};

/// Default time a drain waits for running handlers.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) type Hook =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync>;

/// Runs the subscribers of this binary.
///
/// # Examples
/// ```no_run
/// # #[derive(Clone)] struct Mailer;
/// #[tokio::main]
/// async fn main() -> outbox::Result<()> {
///     outbox::App::from_env().state(Mailer).run().await
/// }
/// ```
/// With a pool of your own:
/// ```no_run
/// # async fn main_(pool: sqlx::PgPool) -> outbox::Result<()> {
/// outbox::App::postgres(pool).dlq("outbox_dlq").run().await
/// # }
/// ```
///
/// `run` and `start` report all mistakes that were made while building.
#[derive(Clone)]
pub struct App {
    database: Database,
    /// Set if nobody named the database: one warning says which one it is.
    pub(crate) assumed: Option<Arc<Once>>,
    pub(crate) names: TableNames,
    pub(crate) states: Arc<States>,
    /// `None`: the subscribers that the macro registered.
    only: Option<Vec<Subscriber>>,
    included: Vec<Subscriber>,
    /// Around everything, the outermost first.
    layers: Vec<Layer>,
    drain_timeout: Duration,
    async_settles: bool,
    pub(crate) render: Arc<ErrorRenderer>,
    pub(crate) logs_errors: bool,
    startup: Vec<Hook>,
    shutdown: Vec<Hook>,
    /// What was wrong with the environment or with a builder call.
    pub(crate) mistakes: Vec<String>,
    stats: Stats,
    sinks: Sinks,
    sample_every: Option<Duration>,
    health: Health,
}

#[derive(Clone)]
pub(crate) enum Database {
    /// A mistake says why.
    None,
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgPool),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::SqlitePool),
    /// From a URL. The pool is made at the start, because that needs a runtime.
    #[cfg(feature = "postgres")]
    PostgresUrl(Box<sqlx::postgres::PgConnectOptions>),
    /// From a URL. The file and its tables are made at the start.
    #[cfg(feature = "sqlite")]
    SqliteUrl(Box<sqlx::sqlite::SqliteConnectOptions>),
}

impl App {
    /// An app as the environment describes it.
    ///
    /// `sslmode` in the URL says whether connections need TLS:
    /// - `verify-full`: the server's certificate must be for that host, and from an authority that
    ///   `sslrootcert=FILE` names or that is known. With `tls` the list of Mozilla is compiled in.
    /// - `verify-ca`: as `verify-full`, for any host.
    /// - `require`: connections are encrypted, and no certificate is looked at.
    /// - `prefer`, the default, and `allow`: a server without TLS is accepted. `disable`: never TLS.
    ///
    /// The first three need the feature `tls`, or a feature for TLS of sqlx's own: a program
    /// without it does not connect.
    ///
    /// | variable | meaning | unset |
    /// |---|---|---|
    /// | `DATABASE_URL` | `postgres://…` or `sqlite:…` | the file `outbox.db` here |
    /// | `OUTBOX_TABLE` | outbox table | `outbox` |
    /// | `OUTBOX_SCHEMA` | its schema (PostgreSQL) | the connection's `search_path` |
    /// | `OUTBOX_DLQ_TABLE` | dead-letter table | dead letters are not kept |
    /// | `OUTBOX_NOTIFY` | `always` or `never`: see [`TableNames::always_notify`], [`TableNames::never_notify`] (PostgreSQL) | `asleep` |
    /// | `OUTBOX_PREPARED` | `false`: see [`TableNames::unprepared`] (PostgreSQL) | `true` |
    /// | `OUTBOX_DRAIN_TIMEOUT` | as `15s`: see [`App::drain_timeout`] | 15 s |
    /// | `OUTBOX_ASYNC_SETTLES` | `true`: see [`App::async_settles`] (PostgreSQL) | `false` |
    /// | `OUTBOX_QUEUE_GAUGES` | as `60s`: see `App::queue_gauges` (feature `metrics`) | no gauges of queues |
    ///
    /// The call warns of variables whose names look like these but are not. At the start a
    /// SQLite file gets its tables. On PostgreSQL nothing is created: run
    /// [`migrate`](crate::migrate) first.
    #[must_use]
    pub fn from_env() -> Self {
        misspelt::warn();
        config::from_lookup(crate::store::names::variable)
    }

    fn new(database: Database) -> Self {
        Self {
            database,
            assumed: None,
            names: TableNames::default(),
            states: Arc::new(States::default()),
            only: None,
            included: Vec::new(),
            layers: Vec::new(),
            drain_timeout: DRAIN_TIMEOUT,
            async_settles: false,
            render: Arc::new(debug_chain),
            logs_errors: false,
            startup: Vec::new(),
            shutdown: Vec::new(),
            mistakes: Vec::new(),
            stats: Stats::default(),
            sinks: Sinks::default(),
            sample_every: None,
            health: Health::default(),
        }
    }

    /// An app on the server of this pool. The engine opens at most five connections of its
    /// own, and up to four more while handlers block the runtime. They have the settings that
    /// the pool was given last, so `set_connect_options` can replace a password or token.
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn postgres(pool: sqlx::PgPool) -> Self {
        Self::new(Database::Postgres(pool))
    }

    /// An app on the file of this pool. The engine opens at most three connections of its own,
    /// with the pool's settings, and more to extend leases while handlers block its runtime. Make the pool with [`sqlite::connect`](crate::sqlite::connect),
    /// which turns on the write-ahead log: without the log, a reader blocks all writers.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn sqlite(pool: sqlx::SqlitePool) -> Self {
        Self::new(Database::Sqlite(pool))
    }

    /// Uses these tables. Settings that `names` leaves open stay as the environment or
    /// [`App::dlq`] set them: the dead-letter table, and how publishers notify and prepare.
    #[must_use]
    pub fn names(self, names: TableNames) -> Self {
        let dlq = self.names.dlq().filter(|_| names.dlq().is_none()).map(str::to_owned);
        let app = Self { names: names.publishing_as(&self.names), ..self };
        match dlq {
            Some(table) => app.dlq(table),
            None => app,
        }
    }

    /// Keeps dead letters in this table.
    #[must_use]
    pub fn dlq(mut self, table: impl Into<String>) -> Self {
        match self.names.clone().with_dlq(table) {
            Ok(names) => self.names = names,
            Err(error) => self.mistakes.push(error.to_string()),
        }
        self
    }

    /// Gives handlers a value of type `T`, which they take as
    /// [`State<T>`](crate::State). Of several values of a type the last one counts.
    #[must_use]
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        match Arc::get_mut(&mut self.states) {
            Some(states) => states.insert(value),
            None => self.mistakes.push(format!(
                "`.state({})` came after the app was cloned or started",
                std::any::type_name::<T>()
            )),
        }
        self
    }

    /// Runs these subscribers as well. A registered one that is included, with other
    /// options or in a [`Router`](crate::Router), runs as included only.
    #[must_use]
    pub fn include(mut self, subscribers: impl IntoRouter) -> Self {
        self.included.extend(subscribers.into_router());
        self
    }

    /// Puts a layer around every handler; see [`Next`]. The layer that is added first
    /// is the outermost. Layers of routers are inside the app's, and layers of
    /// subscribers inside both.
    #[must_use]
    pub fn layer<F>(mut self, layer: impl Fn(Context, Next) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = HandlerResult> + Send + 'static,
    {
        self.layers.push(subscriber::layer(layer));
        self
    }

    /// Runs these subscribers instead of the registered ones, beside those that are included.
    #[must_use]
    pub fn only(mut self, subscribers: impl IntoIterator<Item = Subscriber>) -> Self {
        self.only.get_or_insert_default().extend(subscribers);
        self
    }

    /// How long a drain waits for running handlers; 15 s by default.
    #[must_use]
    pub fn drain_timeout(mut self, limit: Duration) -> Self {
        self.drain_timeout = limit;
        self
    }

    /// Writes results without waiting for the server's disk: `synchronous_commit = off`
    /// for acks, retries, dead letters and returned messages. `false` by default. On
    /// SQLite it has no effect.
    ///
    /// When the server crashes, or a standby takes over, the results of the last moments
    /// are undone: of three times its `wal_writer_delay` (0.6 s unless configured). Those
    /// messages are delivered again, at the latest when the lease of their last delivery
    /// ends. An undone attempt does not count. No message is lost: a dead letter is
    /// undone together with the delete of its row, and a returned message together with
    /// the ack that published it. A crash of this process undoes nothing.
    ///
    /// The app still waits for what could not be repeated: a transaction that a handler
    /// took, the ack of `AckFirst`, which comes before the only run, and what a run alone led to.
    #[must_use]
    pub fn async_settles(mut self, on: bool) -> Self {
        self.async_settles = on;
        self
    }

    /// Renders errors for the column `last_exception`. By default it holds their `Debug`
    /// form, in which personal data may be. `None` stores nothing.
    #[must_use]
    pub fn error_renderer(
        mut self,
        render: impl Fn(&(dyn StdError + 'static)) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.render = Arc::new(render);
        self
    }

    /// Runs a hook after the checks and before the first claim. An error stops the start, and
    /// so does a signal to [`App::run`]. Later hooks and shutdown hooks do not run then, and
    /// what earlier hooks did stays. Each start calls it: clone what goes into its future.
    #[must_use]
    pub fn on_startup<F, E>(mut self, hook: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.startup.push(erased(hook));
        self
    }

    /// Runs a hook after the drain.
    #[must_use]
    pub fn on_shutdown<F, E>(mut self, hook: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.shutdown.push(erased(hook));
        self
    }

    /// A publisher to this app's table.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        Publisher::new(self.names.clone()).telling(self.sinks.clone())
    }

    /// The subscribers that would run. Included ones take the place of registered
    /// ones of the same name and origin.
    pub(crate) fn subscribers(&self) -> Vec<Subscriber> {
        let mut all = self.only.clone().unwrap_or_else(registered);
        if self.only.is_none() {
            let identity = |one: &Subscriber| (one.name(), one.origin());
            all.retain(|one| !self.included.iter().any(|other| identity(other) == identity(one)));
        }
        all.extend(self.included.iter().cloned());
        for one in &mut all {
            one.inside(&self.layers);
        }
        all
    }

    /// Starts the app, runs it until SIGINT or SIGTERM, then drains it. A signal during the
    /// start ends the start. A second signal ends the process at once. The library keeps
    /// handling both: once no `run` waits for a signal, because it could not start, has ended
    /// or was dropped, the next one ends the process.
    ///
    /// # Errors
    /// When the app cannot start, a hook fails, or handlers had to be dropped
    /// because the drain timeout passed.
    ///
    /// # Cancel safety
    /// A dropped call does not drain. It drops the handlers that run, and gives claimed rows back
    /// as long as the runtime goes on. No shutdown hook runs that had not begun.
    pub async fn run(self) -> Result<()> {
        let mut signals = signals::Signals::install()?;
        let started = tokio::select! {
            started = self.start() => Some(self.or_gives_up(started)?),
            () = signals.next() => None,
        };
        let Some(running) = started else {
            // A hook may have left a thread behind for which the runtime waits.
            signals.exit_on_second();
            return Ok(());
        };
        signals.next().await;
        crate::telemetry::info!(target: crate::telemetry::TARGET, "draining; a second signal ends at once");
        signals.exit_on_second();
        running.stop().await
    }

    /// Starts the app, runs it until `end` is ready, then drains it. Signals are left to
    /// the caller. `end` is not looked at before the app has started: a start may be dropped.
    ///
    /// # Errors
    /// As [`App::run`].
    ///
    /// # Cancel safety
    /// As [`App::run`]. To stop the app, let `end` become ready instead.
    pub async fn run_until(self, end: impl Future) -> Result<()> {
        let running = self.or_gives_up(self.start().await)?;
        end.await;
        running.stop().await
    }

    /// Starts the loops and returns. It may be called again after
    /// [`RunningApp::stop`].
    ///
    /// # Errors
    /// All reasons against starting, at once.
    ///
    /// # Cancel safety
    /// A dropped call has started no loop. The startup hook that runs is dropped. What earlier
    /// hooks did stays, and so does a SQLite file that was made.
    pub async fn start(&self) -> Result<RunningApp> {
        let started = launch::start(self).await;
        started.inspect_err(|why| self.health.failed(why, true))
    }

    /// Lets probes say of a failed start that nobody tries it again.
    fn or_gives_up<T>(&self, started: Result<T>) -> Result<T> {
        started.inspect_err(|why| self.health.failed(why, false))
    }
}

fn erased<F, E>(hook: impl Fn() -> F + Send + Sync + 'static) -> Hook
where
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<BoxError>,
{
    Arc::new(move || {
        let run = hook();
        Box::pin(async move { run.await.map_err(Into::into) })
    })
}

debug_only!(app: App => names, subscribers = app.subscribers());
