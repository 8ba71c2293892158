//! The broker of a test.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::call::Call;
use super::drive::Driver;
use super::simulate::{Cast, World};
use crate::error::Result;
use crate::extract::{Context, States};
#[cfg(feature = "sqlite")]
use crate::extract::{Elsewhere, Lender};
use crate::message::{DeadLetter, Row};
use crate::publish::{Outgoing, Published, Publisher, QueueFor, QueueName};
use crate::store::memory::MemoryStore;
use crate::subscriber::{self, HandlerResult, Layer, Next, Subscriber, debug_chain, registered};
use crate::telemetry::Stats;

/// An outbox in memory with the real engine and a clock that stands still.
///
/// Handlers run before `publish` returns. What is due later runs when the clock
/// is moved: by [`advance`](Self::advance), or by
/// [`run_until_idle`](Self::run_until_idle) through every retry and timer. No
/// test sleeps. Clones share everything.
///
/// # Examples
/// ```
/// use outbox::testing::TestBroker;
/// use outbox::{FailureReason, Subscriber, Context, retry::Constant};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// let failing = Subscriber::new("confirm", "orders", |_: Context| async { Err::<(), _>("no stock") })
///     .retry(Constant::new(Duration::from_secs(60)).max_attempts(3));
///
/// let broker = TestBroker::with([failing]);
/// broker.publish("orders", &7).await?;
/// assert_eq!(broker.calls("confirm").len(), 1);
///
/// broker.run_until_idle().await;
/// assert_eq!(broker.calls("confirm").len(), 3);
/// assert!(broker.rows().is_empty());
/// assert_eq!(broker.dlq_rows()[0].failure_reason, FailureReason::RetryTerminal);
/// # Ok(()) }
/// ```
///
/// A handler's `timeout` runs on tokio's clock: use
/// `#[tokio::test(start_paused = true)]` to have it in virtual time too.
///
/// Whether handlers stand crashes, lost leases and a database that fails, a
/// [simulation](Self::simulate) finds out.
#[derive(Clone)]
pub struct TestBroker {
    pub(super) store: MemoryStore,
    /// Until the first message, states can be added; then the driver is made.
    pub(super) setup: Arc<Mutex<Setup>>,
    pub(super) calls: Arc<Mutex<Vec<Call>>>,
    pub(super) publisher: Publisher,
    stats: Stats,
}

pub(super) struct Setup {
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) states: States,
    pub(super) layers: Vec<Layer>,
    pub(super) drive: Option<Drive>,
    /// Whose processes run the handlers, if it is simulated.
    pub(super) world: Option<Arc<World>>,
    /// Deliveries whose process dies before the result is written.
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
    /// A broker with every handler that is linked into the test.
    #[must_use]
    pub fn new() -> Self {
        Self::with(registered())
    }

    /// A broker with these subscribers.
    #[must_use]
    pub fn with(subscribers: impl IntoIterator<Item = Subscriber>) -> Self {
        let setup = Setup {
            subscribers: subscribers.into_iter().collect(),
            states: States::default(),
            layers: Vec::new(),
            drive: None,
            world: None,
            crashes: Arc::default(),
        };
        Self {
            store: MemoryStore::new(true),
            setup: Arc::new(Mutex::new(setup)),
            calls: Arc::default(),
            publisher: Publisher::default(),
            stats: Stats::default(),
        }
    }

    /// Gives handlers a value, as [`App::state`](crate::App::state).
    ///
    /// # Panics
    /// After the first message was published.
    #[must_use]
    #[track_caller]
    pub fn state<T: Clone + Send + Sync + 'static>(self, value: T) -> Self {
        let mut setup = self.setup();
        assert!(setup.drive.is_none(), "`.state(..)` comes before the first message");
        setup.states.insert(value);
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
        let mut setup = self.setup();
        assert!(setup.drive.is_none(), "`.layer(..)` comes before the first message");
        setup.layers.push(subscriber::layer(layer));
        drop(setup);
        self
    }

    /// Lends transactions of this SQLite pool to handlers that take
    /// [`Tx<Sqlite>`](crate::Tx). Its outbox tables are made when first needed;
    /// what is published in such a transaction goes to the broker's rows when it
    /// commits. With a database in memory, give the pool one connection.
    ///
    /// The broker's timers are not in that database: whether a name is taken is seen when the
    /// message comes to the broker's rows, and `cancel_timer` in a savepoint finds none of them.
    ///
    /// # Panics
    /// After the first message was published.
    #[cfg(feature = "sqlite")]
    #[must_use]
    #[track_caller]
    pub fn transactions(self, pool: sqlx::SqlitePool) -> Self {
        let mut setup = self.setup();
        assert!(setup.drive.is_none(), "`.transactions(..)` comes before the first message");
        let crashes = Arc::clone(&setup.crashes);
        let elsewhere = Elsewhere::new(crashes, Arc::new(self.store.clone()));
        setup.states.lend(Lender::elsewhere(pool, elsewhere));
        drop(setup);
        self
    }

    /// Deletes what fails for good instead of keeping dead letters.
    #[must_use]
    pub fn without_dlq(self) -> Self {
        self.store.set_dead_letters(false);
        self
    }

    pub(super) fn setup(&self) -> MutexGuard<'_, Setup> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a value and runs whatever is due. A handler's failure is not a
    /// failure of this call; a queue that nobody reads keeps the row.
    ///
    /// Inside a handler it only publishes: the row runs when the handler is done. So it
    /// is in another task while handlers run: whoever runs them goes on with the row.
    ///
    /// # Errors
    /// When the message is refused, or a subscriber lacks something.
    pub async fn publish<B: Serialize + ?Sized>(
        &self,
        queue: impl QueueFor<B>,
        body: &B,
    ) -> Result<Published> {
        self.publish_with(Outgoing::new(queue, body)).await
    }

    /// As [`TestBroker::publish`], with options.
    ///
    /// # Errors
    /// As [`TestBroker::publish`].
    pub async fn publish_with(&self, message: Outgoing) -> Result<Published> {
        let drive = self.drive()?;
        let mut tx = self.store.begin();
        let published = self.publisher.send(&mut tx, message).await?;
        drive.before_commit().await;
        tx.commit();
        self.run_due(&drive).await;
        Ok(published)
    }

    /// Publishes all messages, then runs whatever is due.
    ///
    /// # Errors
    /// As [`TestBroker::publish`]; one refused message refuses the batch.
    pub async fn publish_batch(
        &self,
        messages: impl IntoIterator<Item = Outgoing>,
    ) -> Result<Vec<Published>> {
        let drive = self.drive()?;
        let mut tx = self.store.begin();
        let published = self.publisher.publish_batch(&mut tx, messages).await?;
        drive.before_commit().await;
        tx.commit();
        self.run_due(&drive).await;
        Ok(published)
    }

    /// Deletes the row of a timer unless it is leased.
    ///
    /// # Errors
    /// When a name cannot exist.
    pub async fn cancel_timer(&self, queue: impl QueueName, timer_id: &str) -> Result<bool> {
        let mut tx = self.store.begin();
        let cancelled = self.publisher.cancel_timer(&mut tx, queue, timer_id).await?;
        tx.commit();
        Ok(cancelled)
    }

    /// The rows that wait or are leased, in order of id.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        self.store.rows()
    }

    /// The dead letters, oldest first.
    #[must_use]
    pub fn dlq_rows(&self) -> Vec<DeadLetter> {
        self.store.dead_letters()
    }

    /// The runs of a subscriber's handler, by the name of its fn, oldest first.
    #[must_use]
    pub fn calls(&self, subscriber: &str) -> Vec<Call> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().filter(|call| call.subscriber == subscriber).cloned().collect()
    }

    /// What became of the deliveries, as [`App::stats`](crate::App::stats) tells it.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }

    /// The broker's clock. It starts at the beginning of 2026.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.store.now()
    }

    /// Moves the clock on and runs everything that becomes due, each at its time.
    ///
    /// # Panics
    /// When a subscriber lacks something, as `publish` would say.
    pub async fn advance(&self, by: Duration) {
        let end = self.now() + by;
        self.run_to(Some(end)).await;
    }

    /// Runs until nothing is left that becomes due, moving the clock from one
    /// due time to the next.
    ///
    /// # Panics
    /// When a subscriber lacks something, or after 100,000 steps, or 30,000
    /// statements of a simulation: then a handler snoozes, retries or publishes for ever.
    pub async fn run_until_idle(&self) {
        self.run_to(None).await;
    }

    /// The next `deliveries` runs end as if their process had died before it
    /// wrote the result: the rows stay leased, and a transaction that was lent to
    /// the handler is rolled back.
    ///
    /// # Panics
    /// In a simulation, which has crashes of its own.
    pub fn crash_next(&self, deliveries: usize) {
        let setup = self.setup();
        assert!(setup.world.is_none(), "a simulation has crashes of its own");
        setup.crashes.store(deliveries, Ordering::Relaxed);
    }

    /// Lets every lease run out, as after a crash, and delivers those rows again.
    ///
    /// # Panics
    /// As [`TestBroker::advance`].
    pub async fn redeliver(&self) {
        self.store.expire_leases();
        self.run_to(Some(self.now())).await;
    }

    /// Takes every row that is leased, as another process would that took the
    /// broker's for dead. A handler that runs is cancelled when its lease would have
    /// been extended, which is on tokio's clock; a result that it has by then is not
    /// written. The rows come back as after a crash.
    pub fn lose_leases(&self) {
        self.store.steal_leases();
    }

    /// While true, writing a dead letter fails, as with a missing table.
    pub fn break_dlq(&self, broken: bool) {
        self.store.break_dead_letters(broken);
    }

    /// Has simulated processes run the handlers.
    pub(super) fn simulated(&self, world: &Arc<World>) {
        let mut setup = self.setup();
        assert!(setup.drive.is_none(), "a simulation comes before the first message");
        // A database answers on another thread, and virtual time would not wait for it.
        assert!(setup.states.lender().is_none(), "a simulation lends no transactions");
        setup.world = Some(Arc::clone(world));
    }

    fn drive(&self) -> Result<Drive> {
        let mut setup = self.setup();
        if let Some(drive) = &setup.drive {
            return Ok(drive.clone());
        }
        let reasons = crate::app::problems(&setup.subscribers, &setup.states);
        if !reasons.is_empty() {
            return Err(crate::Error::Launch(reasons));
        }
        let mut subscribers = setup.subscribers.clone();
        for one in &mut subscribers {
            one.inside(&setup.layers);
        }
        let (publisher, stats) = (self.publisher.clone(), self.stats.clone());
        let drive = if let Some(world) = &setup.world {
            world.begin(Cast { subscribers, states: setup.states.clone(), stats, publisher });
            Drive::Loops(Arc::clone(world))
        } else {
            let (store, render) = (self.store.clone(), Arc::new(debug_chain));
            let driver = Driver::new(store, subscribers, &setup.states, &stats, render, publisher);
            Drive::Steps(Arc::new(driver))
        };
        Ok(setup.drive.insert(drive).clone())
    }

    pub(super) fn drive_or_panic(&self) -> Drive {
        self.drive().unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drive {
    /// A transaction of a simulation stays open while others go on.
    async fn before_commit(&self) {
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

impl fmt::Debug for TestBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBroker").field("rows", &self.rows().len()).finish_non_exhaustive()
    }
}
