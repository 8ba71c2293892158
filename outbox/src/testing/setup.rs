//! The setup of a broker, up to its first message.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use super::drive::Driver;
use super::simulate::{Cast, World};
use super::{Call, TestBroker};
use crate::app::{App, problems};
use crate::error::Result;
use crate::extract::{Context, States};
#[cfg(feature = "sqlite")]
use crate::extract::{Elsewhere, Lender};
use crate::publish::Publisher;
use crate::store::memory::MemoryStore;
#[cfg(feature = "sqlite")]
use crate::store::sqlite::SqliteLender;
use crate::subscriber::{
    self, ErrorRenderer, HandlerResult, Layer, Next, Subscriber, debug_chain, registered,
};
use crate::telemetry::{Sinks, Stats};
use crate::unpoisoned::Locked as _;

pub(super) struct Setup {
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) states: States,
    /// The states that the test gave. They replace those of routers too.
    fakes: States,
    layers: Vec<Layer>,
    /// True if the test itself named the subscribers, perhaps none. Otherwise having none is a
    /// mistake: they may not be linked.
    may_have_none: bool,
    render: Arc<ErrorRenderer>,
    logs_errors: bool,
    /// The mistakes of the app for which the broker stands in.
    mistakes: Vec<String>,
    pub(super) drive: Option<Drive>,
    /// The world whose processes run the handlers, in a simulation.
    world: Option<Arc<World>>,
    /// How many of the next deliveries end with the death of their process, before the result is
    /// written.
    pub(super) crashes: Arc<AtomicUsize>,
}

/// What runs the handlers.
#[derive(Clone)]
pub(super) enum Drive {
    /// The test's own task, step by step.
    Steps(Arc<Driver>),
    /// The loops of simulated processes.
    Loops(Arc<World>),
}

impl TestBroker {
    /// Makes a broker with every handler that is linked into the test.
    ///
    /// It keeps dead letters. An app keeps them only if it was told to ([`App::dlq`]); a broker
    /// made by [`TestBroker::of`] does what your app does.
    #[must_use]
    pub fn new() -> Self {
        let broker = Self::with(registered());
        broker.setup().may_have_none = false;
        broker
    }

    /// Makes a broker with these subscribers, which keeps dead letters. Without subscribers, as
    /// `with([])`, it shows what the code under test publishes.
    #[must_use]
    pub fn with(subscribers: impl IntoIterator<Item = Subscriber>) -> Self {
        let setup = Setup {
            subscribers: subscribers.into_iter().collect(),
            states: States::default(),
            fakes: States::default(),
            layers: Vec::new(),
            may_have_none: true,
            render: Arc::new(debug_chain),
            logs_errors: false,
            mistakes: Vec::new(),
            drive: None,
            world: None,
            crashes: Arc::default(),
        };
        Self {
            store: MemoryStore::new(true),
            setup: Arc::new(Mutex::new(setup)),
            calls: Arc::<Mutex<Vec<Call>>>::default(),
            publisher: Publisher::default().telling(Sinks::default()),
            stats: Stats::default(),
        }
    }

    /// Makes a broker that takes the place of this app's database.
    ///
    /// The broker has the app's subscribers, routers, layers and states, its table names, its error
    /// renderer, and whether it logs errors. It keeps dead letters if the app does. The app's hooks do not run, and its
    /// recorders get no events. If something is wrong with the app, the first message says so.
    ///
    /// # Examples
    /// A state that is added afterwards takes the place of the app's state:
    ///
    /// ```
    /// # use outbox::{App, State, Subscriber, Context, testing::TestBroker};
    /// # #[derive(Clone)] struct Mailer(&'static str);
    /// # fn app() -> App {
    /// #     let seen = |ctx: Context| async move { assert_eq!(ctx.state::<Mailer>().unwrap().0, "fake") };
    /// #     App::from_env().only([Subscriber::new("it", "orders", seen)]).state(Mailer("real"))
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// let broker = TestBroker::of(&app()).state(Mailer("fake"));
    /// broker.publish("orders", &7).await?;
    /// # assert!(broker.rows().is_empty());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn of(app: &App) -> Self {
        let broker = Self::with(app.subscribers());
        let store = MemoryStore::new(app.names.dlq().is_some());
        let mut setup = broker.setup();
        setup.states = (*app.states).clone();
        setup.render = Arc::clone(&app.render);
        setup.logs_errors = app.logs_errors;
        setup.mistakes.clone_from(&app.mistakes);
        setup.may_have_none = false;
        drop(setup);
        let publisher = Publisher::new(app.names.clone()).telling(Sinks::default());
        Self { store, publisher, ..broker }
    }

    pub(super) fn setup(&self) -> MutexGuard<'_, Setup> {
        self.setup.locked()
    }

    #[track_caller]
    fn before_the_first_message(&self, call: &str) -> MutexGuard<'_, Setup> {
        let setup = self.setup();
        let begun = setup.drive.is_some();
        if begun {
            drop(setup);
            panic!("`.{call}(..)` must come before the first message");
        }
        setup
    }

    /// Gives handlers a value, as [`App::state`](crate::App::state). It replaces any other value of
    /// its type, that of a router included.
    ///
    /// # Panics
    /// After the first message was published.
    #[must_use]
    #[track_caller]
    pub fn state<T: Clone + Send + Sync + 'static>(self, value: T) -> Self {
        let mut setup = self.before_the_first_message("state");
        setup.states.insert(value.clone());
        setup.fakes.insert(value);
        drop(setup);
        self
    }

    /// Puts a layer around every handler, as [`App::layer`](crate::App::layer).
    ///
    /// # Panics
    /// After the first message was published.
    #[must_use]
    #[track_caller]
    pub fn layer<F>(self, layer: impl Fn(Context, Next) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = HandlerResult> + Send + 'static,
    {
        let layer = subscriber::layer(layer);
        self.before_the_first_message("layer").layers.push(layer);
        self
    }

    /// Lends transactions of this SQLite pool to handlers that take [`Tx<Sqlite>`](crate::Tx).
    ///
    /// - The outbox tables are made when a transaction is first lent. A test that publishes there
    ///   before has to call [`outbox::migrate`](crate::migrate) first.
    /// - What is published in a lent transaction goes to the broker's rows when it commits.
    /// - With a database in memory, give the pool one connection.
    /// - Do not pause tokio's clock: it does not wait for the database.
    ///
    /// What the code under test publishes in transactions of its own stays in that table until
    /// [`run_until_idle`](Self::run_until_idle), [`advance`](Self::advance) or
    /// [`redeliver`](Self::redeliver) takes it over. So producers can be tested with their
    /// consumers. A connection of the pool has to become free for that within a second.
    ///
    /// The broker's timers are not in that database:
    /// - Whether a name is taken is only seen when the message comes to the broker's rows.
    /// - `cancel_timer` in a savepoint finds none of the broker's timers.
    /// - A message that is published in a savepoint, or beside the handlers, is known by its row
    ///   alone. It is due as long after its publication as the row says, by the clock of SQLite,
    ///   and moves no timer of the broker.
    ///
    /// # Panics
    /// After the first message was published.
    #[cfg(feature = "sqlite")]
    #[must_use]
    #[track_caller]
    pub fn transactions(self, pool: sqlx::SqlitePool) -> Self {
        let mut setup = self.before_the_first_message("transactions");
        let crashes = Arc::clone(&setup.crashes);
        let elsewhere = Elsewhere::new(crashes, self.store.clone());
        let names = self.publisher.names().clone();
        let lender = SqliteLender::elsewhere(pool, names, elsewhere);
        setup.states.lend(Lender::new("SQLite", lender));
        drop(setup);
        self
    }

    /// Deletes messages that fail for good, instead of keeping them as dead letters.
    #[must_use]
    pub fn without_dlq(self) -> Self {
        self.store.set_dead_letters(false);
        self
    }

    /// Sets the broker's clock, which otherwise starts at the beginning of 2026. It is for handlers
    /// that compare the times of messages with the system's. Without such handlers, prefer a test
    /// that does not depend on the day.
    ///
    /// # Panics
    /// After the first message was published.
    #[must_use]
    #[track_caller]
    pub fn starts_at(self, time: SystemTime) -> Self {
        drop(self.before_the_first_message("starts_at"));
        self.store.set_now(time);
        self
    }

    /// Lets simulated processes run the handlers.
    pub(super) fn simulated(&self, world: &Arc<World>) {
        let mut setup = self.setup();
        assert!(setup.drive.is_none(), "a simulation must come before the first message");
        // A database answers on another thread, and virtual time would not wait for it.
        assert!(setup.states.lender().is_none(), "a simulation lends no transactions");
        setup.world = Some(Arc::clone(world));
    }

    pub(super) fn is_simulated(&self) -> bool {
        self.setup().world.is_some()
    }

    pub(super) fn drive(&self) -> Result<Drive> {
        let mut setup = self.setup();
        if let Some(drive) = &setup.drive {
            return Ok(drive.clone());
        }
        let mut reasons = setup.mistakes.clone();
        if !(setup.subscribers.is_empty() && setup.may_have_none) {
            reasons.extend(problems(&setup.subscribers, &setup.states));
        }
        if !reasons.is_empty() {
            return Err(crate::Error::Launch(reasons));
        }
        let mut subscribers = setup.subscribers.clone();
        for one in &mut subscribers {
            one.inside(&setup.layers);
            one.states = one.states.overlaid(&setup.fakes);
        }
        let cast = Cast {
            subscribers,
            states: setup.states.clone(),
            stats: self.stats.clone(),
            publisher: self.publisher.clone(),
            render: Arc::clone(&setup.render),
            logs_errors: setup.logs_errors,
        };
        let drive = if let Some(world) = &setup.world {
            world.begin(cast);
            Drive::Loops(Arc::clone(world))
        } else {
            Drive::Steps(Arc::new(Driver::new(self.store.clone(), cast)))
        };
        Ok(setup.drive.insert(drive).clone())
    }

    pub(super) fn drive_or_panic(&self) -> Drive {
        self.drive().unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drive {
    /// A transaction of a simulation stays open while others go on.
    pub(super) async fn before_commit(&self) {
        if let Self::Loops(world) = self {
            world.others_first().await;
        }
    }
}

impl Default for TestBroker {
    fn default() -> Self {
        Self::new()
    }
}
