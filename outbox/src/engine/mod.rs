//! The running half: loops that claim, run and settle. Generic over the store;
//! no SQL, no database in here.
//!
//! A subscriber has one claim loop and `max_workers` workers around an inbox; a
//! process has one settler, one lease task and one watcher for wakes.

mod at_most_once;
mod backoff;
mod claim_loop;
mod drain;
mod guard;
mod handle;
mod inbox;
mod invoke;
mod judge;
mod lease;
mod quiet;
mod settle;
mod transaction;
mod wake;
mod watchdog;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

use crate::extract::States;
use crate::publish::Publisher;
use crate::store::Store;
use crate::subscriber::{ErrorRenderer, Subscriber};
use crate::telemetry::{Counters, Stats, TARGET};

use inbox::Inbox;
#[cfg(feature = "testing")]
pub(crate) use inbox::Job;
pub(crate) use invoke::deliver;
use lease::Leases;
pub(crate) use lease::SoleWriter;
#[cfg(feature = "testing")]
pub(crate) use lease::keep as keep_leases;
use quiet::Quiet;
#[cfg(not(feature = "testing"))]
use settle::Settling;
#[cfg(feature = "testing")]
pub(crate) use settle::{Settlement, Settling, settle};
use wake::Signal;
use watchdog::Watchdog;

/// Settlements that wait to be written; a full channel slows the workers down.
const SETTLE_BACKLOG: usize = 1024;

/// What every delivery of a process shares.
pub(crate) struct Shared<S> {
    pub(crate) store: S,
    pub(crate) render: Arc<ErrorRenderer>,
    pub(crate) publisher: Publisher,
    pub(crate) leases: Leases,
    pub(crate) quiet: Quiet,
    /// Handlers that run now.
    running: AtomicUsize,
    /// Cancelled when the drain's time is over: running handlers are dropped.
    cut_off: CancellationToken,
}

impl<S: Store> Shared<S> {
    pub(crate) fn new(store: S, render: Arc<ErrorRenderer>, publisher: Publisher) -> Self {
        Self {
            store,
            render,
            publisher,
            leases: Leases::default(),
            quiet: Quiet::default(),
            running: AtomicUsize::new(0),
            cut_off: CancellationToken::new(),
        }
    }
}

/// One subscriber with its runtime state.
pub(crate) struct Reader {
    pub(crate) subscriber: Subscriber,
    pub(crate) states: Arc<States>,
    pub(crate) inbox: Inbox,
    pub(crate) signal: Signal,
    /// Places on blocking threads, for a handler that is a plain fn.
    pub(crate) threads: Arc<Semaphore>,
    pub(crate) counters: Arc<Counters>,
}

impl Reader {
    pub(crate) fn new(subscriber: Subscriber, states: &States, counts: &Stats) -> Self {
        let counters = counts.of(&subscriber);
        let states = Arc::new(states.overlaid(&subscriber.states));
        let options = &subscriber.options;
        let runs = options.max_workers.saturating_mul(options.batch.size);
        let rows = options.fetch_batch.max(options.batch.size);
        let inbox = Inbox::new(runs, rows, options.lease_ttl);
        let threads = Arc::new(Semaphore::new(options.max_workers.min(Semaphore::MAX_PERMITS)));
        Self { subscriber, states, inbox, signal: Signal::default(), threads, counters }
    }
}

/// The loops of one process, started.
pub(crate) struct Engine<S> {
    shared: Arc<Shared<S>>,
    readers: Vec<Arc<Reader>>,
    /// Cancelled to stop claiming.
    stop: CancellationToken,
    /// Claim loops and workers: they end by themselves after `stop`.
    subscribers: TaskTracker,
    /// Lease task and watcher: needed until the last handler has ended.
    services: TaskTracker,
    services_stop: CancellationToken,
    /// Dropped when no handler runs any more.
    watchdog: Option<Watchdog>,
    settler: Option<JoinHandle<()>>,
    /// Kept so that a drain can see that the loops live.
    loops: usize,
    drain_timeout: Duration,
}

impl<S: Store> Engine<S> {
    /// Starts all loops. `anew` makes the store once more, with connections of its
    /// own.
    pub(crate) fn start(
        shared: Shared<S>,
        subscribers: Vec<Subscriber>,
        states: &States,
        counts: &Stats,
        drain_timeout: Duration,
        anew: impl Fn() -> S + Send + 'static,
    ) -> Self {
        let shared = Arc::new(shared);
        let stop = CancellationToken::new();
        let services_stop = CancellationToken::new();
        let (tracker, services) = (TaskTracker::new(), TaskTracker::new());
        let (settlements, incoming) = mpsc::channel(SETTLE_BACKLOG);
        let settler = tokio::spawn(settle::run(Arc::clone(&shared), incoming));

        let shortest = subscribers.iter().map(|one| one.options.lease_ttl).min();
        let shortest = shortest.unwrap_or(Duration::from_secs(60));
        let watchdog = Watchdog::start(&shared, shortest, anew);
        let leases = lease::run(Arc::clone(&shared), shortest);
        services.spawn(services_stop.clone().run_until_cancelled_owned(leases));

        let reader = |one| Arc::new(Reader::new(one, states, counts));
        let readers: Vec<Arc<Reader>> = subscribers.into_iter().map(reader).collect();
        let watcher = wake::watch(Arc::clone(&shared), readers.clone());
        services.spawn(stop.clone().run_until_cancelled_owned(watcher));

        for reader in &readers {
            for _ in 0..reader.subscriber.options.max_workers {
                tracker.spawn(work(
                    Arc::clone(&shared),
                    Arc::clone(reader),
                    settlements.clone(),
                    stop.clone(),
                ));
            }
            tracker.spawn(claim_loop::run(
                Arc::clone(&shared),
                Arc::clone(reader),
                settlements.clone(),
                stop.clone(),
            ));
        }
        tracker.close();
        services.close();
        let loops = tracker.len();
        Self {
            shared,
            readers,
            stop,
            subscribers: tracker,
            services,
            services_stop,
            watchdog: Some(watchdog),
            settler: Some(settler),
            loops,
            drain_timeout,
        }
    }

    /// Asks the database for a sign of life, and every loop whether it lives.
    pub(crate) async fn ping(&self) -> crate::Result<()> {
        let alive = self.subscribers.len() + self.services.len();
        let settler = self.settler.as_ref().is_some_and(|task| !task.is_finished());
        if alive < self.loops + 2 || !settler {
            let stopped = "a loop of the engine has ended; see the log";
            return Err(crate::StoreError::new("ping", stopped, false).into());
        }
        Ok(self.shared.store.ping().await?)
    }
}

/// Runs deliveries one after the other until the inbox is closed. After `stop`
/// it starts none: the claim loop may be held up by the database before it closes
/// the inbox.
async fn work<S: Store>(
    shared: Arc<Shared<S>>,
    reader: Arc<Reader>,
    settlements: mpsc::Sender<Settling>,
    stop: CancellationToken,
) {
    use futures_util::FutureExt;
    use std::panic::AssertUnwindSafe;

    let batch = reader.subscriber.options.batch;
    while let Some(jobs) = reader.inbox.next(batch).await {
        let (count, started) = (jobs.len(), Instant::now());
        let run = async {
            if stop.is_cancelled() {
                return jobs.iter().map(|job| Settling::unstarted(&reader, job)).collect();
            }
            deliver(&shared, &reader, jobs).await
        };
        let settled = AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|_| {
            // Only what the user's code does while it is being dropped gets here.
            error!(
                target: TARGET, subscriber = reader.subscriber.name(),
                "dropping a handler panicked; its message comes back when the lease runs out"
            );
            Vec::new()
        });
        let took = started.elapsed();
        for settling in settled {
            // The settler outlives the workers, so this cannot fail.
            drop(settlements.send(settling).await);
        }
        reader.inbox.done(count, took);
    }
}
