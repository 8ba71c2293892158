//! The broker of a test.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::call::Call;
use super::setup::Setup;
use crate::error::Result;
use crate::message::{DeadLetter, Row};
use crate::publish::{Outgoing, Published, Publisher, QueueFor, QueueName};
use crate::redacted::debug_only;
use crate::store::memory::MemoryStore;
use crate::subscriber::Subscriber;
use crate::telemetry::Stats;
use crate::unpoisoned::Locked as _;

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
/// Handlers run in the task that publishes, or lets time pass: they see its task-locals, where in
/// production they see none.
///
/// A `batch_wait` is not waited for: what is due is cut into batches at once. What makes a batch
/// is [`publish_batch`](Self::publish_batch), or several messages that are due at one time.
///
/// A handler's `timeout` runs on tokio's clock: use `#[tokio::test(start_paused = true)]` to have
/// it in virtual time too. Then the time that a handler takes passes on the broker's clock as
/// well; of real time only a timeout does.
///
/// Whether handlers stand crashes, lost leases and a database that fails, a
/// [simulation](Self::simulate) finds out.
///
/// # Cancel safety
/// Of all its methods: a dropped call has published or cancelled what it was to, or nothing. The
/// handler that ran in it is dropped, and its row stays leased as after a crash, until
/// [`redeliver`](Self::redeliver) or its lease is over; so do rows that were claimed with it.
#[derive(Clone)]
pub struct TestBroker {
    pub(super) store: MemoryStore,
    /// Until the first message, states can be added; then the driver is made.
    pub(super) setup: Arc<Mutex<Setup>>,
    pub(super) calls: Arc<Mutex<Vec<Call>>>,
    pub(super) publisher: Publisher,
    pub(super) stats: Stats,
}

impl TestBroker {
    /// Publishes a value and runs whatever is due. A handler's failure is not a
    /// failure of this call; a queue that nobody reads keeps the row.
    ///
    /// Inside a handler it only publishes: the row runs when the handler is done. So it
    /// is in another task while handlers run: whoever runs them goes on with the row.
    ///
    /// # Errors
    /// When the message is refused, or a subscriber lacks something.
    ///
    /// # Panics
    /// As [`run_until_idle`](Self::run_until_idle).
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

    /// Deletes the row of a timer unless a claim holds it.
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

    /// The runs of a subscriber's handler, by the name of its fn, oldest first. Where several
    /// have that name, their calls have different queues.
    ///
    /// # Panics
    /// When the broker has no subscriber of that name.
    #[must_use]
    #[track_caller]
    pub fn calls(&self, subscriber: &str) -> Vec<Call> {
        let names: Vec<_> = self.setup().subscribers.iter().map(Subscriber::name).collect();
        assert!(names.contains(&subscriber), "no subscriber is called `{subscriber}`: {names:?}");
        let calls = self.calls.locked();
        calls.iter().filter(|call| call.subscriber == subscriber).cloned().collect()
    }

    /// What became of the deliveries, as [`App::stats`](crate::App::stats) tells it.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }

    /// The broker's clock. It starts at the beginning of 2026, or at
    /// [`starts_at`](Self::starts_at): a time for [`Outgoing::at`] is to come from here, or
    /// from the handler's [`Context`](crate::Context).
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.store.now()
    }

    /// Moves the clock on and runs everything that becomes due, each at its time. It waits for
    /// handlers that another task runs: one that waits for what comes after this call waits for
    /// ever. So do `run_until_idle` and `redeliver`.
    ///
    /// # Panics
    /// When a subscriber lacks something, as `publish` would say, or as
    /// [`run_until_idle`](Self::run_until_idle).
    pub async fn advance(&self, by: Duration) {
        let end = self.now() + by;
        self.run_to(Some(end)).await;
    }

    /// Runs until nothing is left that becomes due, moving the clock from one
    /// due time to the next.
    ///
    /// # Panics
    /// When a subscriber lacks something, or after 100,000 steps, or 30,000
    /// statements of a simulation: then a handler snoozes, retries or publishes for ever, or
    /// a dead letter is tried again and again while [`break_dlq`](Self::break_dlq) is on.
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
        assert!(!self.is_simulated(), "a simulation has crashes of its own");
        self.setup().crashes.store(deliveries, Ordering::Relaxed);
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

    /// While true, writing a dead letter fails, as with a missing table: the row comes back
    /// after its lease, without an attempt or a delivery spent.
    pub fn break_dlq(&self, broken: bool) {
        self.store.break_dead_letters(broken);
    }
}

debug_only!(broker: TestBroker => rows = broker.rows().len());
