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
/// Handlers run before `publish` returns. What is due later runs when the test moves the clock:
/// [`advance`](Self::advance) moves it by a time, and [`run_until_idle`](Self::run_until_idle)
/// through every retry and timer. No test sleeps. Clones share everything.
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
/// # Differences from production
/// - Handlers run in the task that publishes, or that lets time pass. They see its task-locals; in
///   production they see none.
/// - The broker does not wait for a `batch_wait`. It cuts what is due into batches at once. To get
///   a batch, use [`publish_batch`](Self::publish_batch), or have several messages due at one
///   time.
/// - A handler's `timeout` runs on tokio's clock. To have it in virtual time too, use
///   `#[tokio::test(start_paused = true)]`. Then the time that a handler takes also passes on the
///   broker's clock. Of real time, only a timeout passes there. A plain `fn` takes real time: while
///   it runs a paused clock stands still, and one that waits for its timeout never ends.
///
/// A [simulation](Self::simulate) finds out whether handlers stand crashes, lost leases and a
/// database that fails.
///
/// # Cancel safety
/// Of all its methods: a dropped call has published or cancelled everything, or nothing. The
/// handler that ran in it is dropped. Its row stays leased as after a crash, until
/// [`redeliver`](Self::redeliver) is called or the lease is over. So do rows that were claimed
/// with it. Under `AckFirst` a row whose handler has begun is gone. Rows that other calls have left
/// to it run with the next call that publishes, or lets time pass.
#[derive(Clone)]
pub struct TestBroker {
    pub(super) store: MemoryStore,
    /// States can be added until the first message. Then the driver is made.
    pub(super) setup: Arc<Mutex<Setup>>,
    pub(super) calls: Arc<Mutex<Vec<Call>>>,
    pub(super) publisher: Publisher,
    pub(super) stats: Stats,
}

impl TestBroker {
    /// Publishes a value and runs whatever is due. A failure of a handler is not a failure of this
    /// call. A queue that nobody reads keeps the row.
    ///
    /// Inside a handler this only publishes: the row runs when the handler is done. The same holds
    /// in another task while handlers run: whoever runs them goes on with the row.
    ///
    /// # Errors
    /// Fails if the message is refused, or a subscriber lacks something.
    ///
    /// # Panics
    /// After too many steps, as [`run_until_idle`](Self::run_until_idle).
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
    /// As [`TestBroker::publish`]. One refused message refuses the batch.
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

    /// Deletes the row of a timer, unless a claim holds it. Returns whether it did.
    ///
    /// # Errors
    /// Fails if the name of the queue or of the timer cannot exist.
    pub async fn cancel_timer(&self, queue: impl QueueName, timer_id: &str) -> Result<bool> {
        let mut tx = self.store.begin();
        let cancelled = self.publisher.cancel_timer(&mut tx, queue, timer_id).await?;
        tx.commit();
        Ok(cancelled)
    }

    /// The rows that wait or are leased, in the order of their ids.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        self.store.rows()
    }

    /// The dead letters, oldest first.
    #[must_use]
    pub fn dlq_rows(&self) -> Vec<DeadLetter> {
        self.store.dead_letters()
    }

    /// The runs of the handler of a subscriber, oldest first. `subscriber` is the name of its fn.
    /// If several subscribers have that name, tell their calls apart by their queues.
    ///
    /// # Panics
    /// If the broker has no subscriber of that name.
    #[must_use]
    #[track_caller]
    pub fn calls(&self, subscriber: &str) -> Vec<Call> {
        let names: Vec<_> = self.setup().subscribers.iter().map(Subscriber::name).collect();
        assert!(names.contains(&subscriber), "no subscriber is called `{subscriber}`: {names:?}");
        let calls = self.calls.locked();
        calls.iter().filter(|call| call.subscriber == subscriber).cloned().collect()
    }

    /// What became of the deliveries, as in [`App::stats`](crate::App::stats).
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }

    /// The time on the broker's clock. The clock starts at the beginning of 2026, or at
    /// [`starts_at`](Self::starts_at). So take a time for [`Outgoing::at`] from here, or from the
    /// handler's [`Context`](crate::Context).
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.store.now()
    }

    /// Moves the clock on and runs everything that becomes due, each at its time.
    ///
    /// This call waits for handlers that another task runs, and so do `run_until_idle` and
    /// `redeliver`. If such a handler waits for what the test does after the call, both wait for
    /// ever.
    ///
    /// # Panics
    /// As [`run_until_idle`](Self::run_until_idle).
    pub async fn advance(&self, by: Duration) {
        // Later than the clock counts is no limit.
        self.run_to(self.now().checked_add(by)).await;
    }

    /// Runs until nothing is left that becomes due. It moves the clock from one due time to the
    /// next.
    ///
    /// # Panics
    /// - If a subscriber lacks something, as the error of `publish` would say.
    /// - After 100,000 steps, or 30,000 statements of a simulation. Then a handler snoozes, retries
    ///   or publishes for ever, or a dead letter is tried again and again while
    ///   [`break_dlq`](Self::break_dlq) is on.
    pub async fn run_until_idle(&self) {
        self.run_to(None).await;
    }

    /// Ends the next `deliveries` runs as if their process had died before it wrote the result. The
    /// rows stay leased. A transaction that was lent to the handler is rolled back.
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

    /// Takes every leased row away, as another process would that takes the broker's for dead. The
    /// rows come back as after a crash.
    ///
    /// A handler that runs is cancelled when its lease would have been extended, on tokio's clock.
    /// If it has a result before that, the result is not written.
    pub fn lose_leases(&self) {
        self.store.steal_leases();
    }

    /// While `broken` is true, writing a dead letter fails, as with a missing table. The row comes
    /// back after its lease. Neither an attempt nor a delivery is spent.
    pub fn break_dlq(&self, broken: bool) {
        self.store.break_dead_letters(broken);
    }
}

debug_only!(broker: TestBroker => rows = broker.rows().len());
