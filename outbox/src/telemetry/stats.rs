//! Counts of deliveries, for programs to read: the closing events, added up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::events::Close;
use super::recorder::Losses;
use crate::message::FailureReason;
use crate::subscriber::{Origin, Subscriber};
use crate::unpoisoned::Locked as _;

/// The counters of an app. [`App::stats`](crate::App::stats) gives them before it starts. Reading
/// them does not disturb the work. Clones read the same counters.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # #[cfg(feature = "sqlite")] {
/// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
/// # outbox::schema::migrate_tables(&pool, &outbox::TableNames::default()).await?;
/// # async fn serve(_: impl Fn() -> String) {}
/// # let it = outbox::Subscriber::new("confirm", "orders", |_: outbox::Context| async {});
/// # let stop = async {};
/// let app = outbox::App::sqlite(pool);
/// # let app = app.only([it]);
/// let stats = app.stats();
/// tokio::spawn(serve(move || {
///     let lines = stats.subscribers().into_iter();
///     lines.map(|one| format!("{} lost {} leases\n", one.name, one.lease_lost)).collect()
/// }));
/// app.run_until(stop).await?;
/// # }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stats {
    counters: Arc<Mutex<Vec<Arc<Counters>>>>,
    losses: Arc<Losses>,
}

/// What became of the deliveries of one subscriber in this process, since the app was made. Every
/// count only grows.
///
/// A delivery that starts counts as dispatched. Once it is over, it counts as exactly one of
/// acked, retried, snoozed, terminal, lease lost or abandoned. A row whose time or deliveries are
/// used up is terminal without having been dispatched.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberStats {
    /// The subscriber's name.
    pub name: &'static str,
    /// Where its handler is defined.
    pub origin: Origin,
    /// The queues that it reads.
    pub queues: Vec<String>,
    /// Deliveries that were given to the handler.
    pub dispatched: u64,
    /// Rows deleted as handled.
    pub acked: u64,
    /// Rows due again, with an attempt spent.
    pub retried: u64,
    /// Rows due again, with nothing spent.
    pub snoozed: u64,
    /// Rows gone because no retry was left.
    pub retry_terminal: u64,
    /// Rows gone because they were rejected.
    pub rejected: u64,
    /// Rows gone because they were delivered too often.
    pub max_deliveries: u64,
    /// Rows gone because nobody started them in time.
    pub expired: u64,
    /// Rows that are gone for one of the four reasons above, and were kept as dead letters.
    pub dead_lettered: u64,
    /// Results that were not written, or possibly not, because the lease was over.
    pub lease_lost: u64,
    /// Handlers without a result that a drain dropped because its time was over.
    pub abandoned: u64,
    /// Claimed rows that were given back unstarted. Either no worker could start the row before
    /// less than a third of its lease was left, or a plain fn got no thread for as long as a lease.
    pub waited_too_long: u64,
    /// How long handlers ran, all together. A batch counts for each of its messages. A run under
    /// `AckFirst` does not count.
    pub run_time: Duration,
}

impl SubscriberStats {
    /// Rows gone for good, for any reason.
    #[must_use]
    pub fn terminal(&self) -> u64 {
        self.retry_terminal + self.rejected + self.max_deliveries + self.expired
    }
}

impl Stats {
    /// The counts as they are now, one record for each subscriber that was started.
    #[must_use]
    pub fn subscribers(&self) -> Vec<SubscriberStats> {
        let all = self.counters.locked().clone();
        all.iter().map(|one| one.read()).collect()
    }

    /// Events that recorders did not get because they were too slow.
    #[must_use]
    pub fn recorder_dropped(&self) -> u64 {
        self.losses.dropped.load(Ordering::Relaxed)
    }

    /// Events at which a recorder panicked.
    #[must_use]
    pub fn recorder_panics(&self) -> u64 {
        self.losses.panicked.load(Ordering::Relaxed)
    }

    pub(super) fn losses(&self) -> &Arc<Losses> {
        &self.losses
    }

    /// The counters of a subscriber. Counters of an earlier start go on.
    pub(crate) fn of(&self, subscriber: &Subscriber) -> Arc<Counters> {
        let mut all = self.counters.locked();
        if let Some(known) = all.iter().find(|one| one.are_of(subscriber)) {
            return Arc::clone(known);
        }
        let new = Arc::new(Counters::of(subscriber));
        all.push(Arc::clone(&new));
        new
    }
}

/// The counters of one subscriber. They are added to where its deliveries are reported.
#[derive(Debug)]
pub(crate) struct Counters {
    name: &'static str,
    origin: Origin,
    queues: Vec<String>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    dispatched: AtomicU64,
    acked: AtomicU64,
    retried: AtomicU64,
    snoozed: AtomicU64,
    retry_terminal: AtomicU64,
    rejected: AtomicU64,
    max_deliveries: AtomicU64,
    expired: AtomicU64,
    dead_lettered: AtomicU64,
    lease_lost: AtomicU64,
    abandoned: AtomicU64,
    waited_too_long: AtomicU64,
    run_micros: AtomicU64,
}

impl Counters {
    fn of(subscriber: &Subscriber) -> Self {
        Self {
            name: subscriber.name(),
            origin: subscriber.origin(),
            queues: subscriber.queues().to_vec(),
            counts: Counts::default(),
        }
    }

    /// Whether they count for this subscriber. Routers can make several subscribers of one handler,
    /// which differ in their queues.
    fn are_of(&self, subscriber: &Subscriber) -> bool {
        (self.name, self.origin) == (subscriber.name(), subscriber.origin())
            && self.queues == subscriber.queues()
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn dispatched(&self) {
        add(&self.counts.dispatched);
    }

    pub(super) fn waited_too_long(&self) {
        add(&self.counts.waited_too_long);
    }

    pub(super) fn closed(&self, how: Close, ran: Option<Duration>) {
        let ran = u64::try_from(ran.unwrap_or_default().as_micros()).unwrap_or(u64::MAX);
        self.counts.run_micros.fetch_add(ran, Ordering::Relaxed);
        add(match how {
            Close::Acked => &self.counts.acked,
            Close::Retried { .. } => &self.counts.retried,
            Close::Snoozed { .. } => &self.counts.snoozed,
            Close::LeaseLost { .. } => &self.counts.lease_lost,
            Close::Abandoned => &self.counts.abandoned,
            Close::Terminal { reason, dead_letter } => {
                if dead_letter {
                    add(&self.counts.dead_lettered);
                }
                match reason {
                    FailureReason::RetryTerminal => &self.counts.retry_terminal,
                    FailureReason::Rejected => &self.counts.rejected,
                    FailureReason::MaxDeliveries => &self.counts.max_deliveries,
                    FailureReason::Expired => &self.counts.expired,
                }
            }
        });
    }

    fn read(&self) -> SubscriberStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SubscriberStats {
            name: self.name,
            origin: self.origin,
            queues: self.queues.clone(),
            dispatched: count(&self.counts.dispatched),
            acked: count(&self.counts.acked),
            retried: count(&self.counts.retried),
            snoozed: count(&self.counts.snoozed),
            retry_terminal: count(&self.counts.retry_terminal),
            rejected: count(&self.counts.rejected),
            max_deliveries: count(&self.counts.max_deliveries),
            expired: count(&self.counts.expired),
            dead_lettered: count(&self.counts.dead_lettered),
            lease_lost: count(&self.counts.lease_lost),
            abandoned: count(&self.counts.abandoned),
            waited_too_long: count(&self.counts.waited_too_long),
            run_time: Duration::from_micros(count(&self.counts.run_micros)),
        }
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
