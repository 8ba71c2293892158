//! The running half: loops that claim, run and settle. Generic over the store;
//! no SQL, no database in here.
//!
//! A subscriber has `max_workers` workers around an inbox; a process has one
//! claimer, five settlers, one lease task, one watcher for wakes, a thread that watches the
//! lease task, and a sampler if gauges are asked for.
//!
//! | what | where |
//! |---|---|
//! | claim: who looks for rows, when, and how many | `claimer`, `look`, `schedule`, `lanes`, `sweep`, `sleep`, `backoff`, `failures`, `lost` |
//! | wait: rows between a claim and a worker; wakes | `inbox`, `signal`, `wake` |
//! | run: from a row to a ruling on it | `invoke`, `handle`, `guard`, `threads`, `judge`, `transaction`, `at_most_once`, `rehearse` |
//! | run alone: what may have brought its process down | `suspect`, `quiet`, `solitude` |
//! | settle: from a ruling to the database | `settlement`, `settling`, `results`, `settle`, `apart`, `write`, `send`, `later`, `closing` |
//! | hold: leases of what runs | `lease`, `extend`, `watchdog` |
//! | end, and tell | `drain`, `pulse`, `vitals`, `sample` |

mod apart;
mod at_most_once;
mod backoff;
mod claimer;
mod closing;
mod drain;
mod extend;
mod failures;
mod guard;
mod handle;
mod inbox;
mod invoke;
mod judge;
mod lanes;
mod later;
mod lease;
mod look;
mod lost;
mod pulse;
mod quiet;
mod reader;
mod rehearse;
mod results;
mod run;
mod sample;
mod schedule;
mod send;
mod settle;
mod settlement;
mod settling;
mod signal;
mod sleep;
mod solitude;
mod suspect;
mod sweep;
mod threads;
mod transaction;
mod vitals;
mod wake;
mod watchdog;
mod write;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

use crate::extract::States;
use crate::publish::Publisher;
use crate::store::Store;
use crate::subscriber::{ErrorRenderer, Few, Subscriber};
use crate::telemetry::{Sinks, Stats, TARGET};

#[cfg(feature = "testing")]
pub(crate) use extend::keep as keep_leases;
#[cfg(feature = "testing")]
pub(crate) use inbox::Job;
pub(crate) use invoke::deliver;
#[cfg(feature = "testing")]
pub(crate) use later::settle;
use lease::Leases;
use pulse::Pulse;
#[cfg(test)]
pub(crate) use pulse::Reading;
use quiet::Quiet;
pub(crate) use reader::Reader;
pub(crate) use rehearse::{Rehearsed, rehearse};
use results::{Results, Sender};
pub(crate) use settlement::Settlement;
pub(crate) use settling::Settling;
#[cfg(test)]
pub(crate) use vitals::LoopState;
pub(crate) use vitals::Vital;
use vitals::{CLAIMS, LEASES, Loops, SAMPLES, SETTLERS, Vitals, WAKES, WORKERS};
use watchdog::Watchdog;

/// Batches of results that are written at once, and of dead letters.
const WRITES: usize = 2;

/// What every delivery of a process shares.
pub(crate) struct Shared<S> {
    pub(crate) store: S,
    pub(crate) render: Arc<ErrorRenderer>,
    /// Whether the texts of errors go to the log.
    pub(crate) logs_errors: bool,
    pub(crate) publisher: Publisher,
    pub(crate) leases: Leases,
    pub(crate) quiet: Arc<Quiet>,
    /// Who is told of what concerns no subscriber alone.
    pub(crate) sinks: Sinks,
    pulse: Arc<Pulse>,
    /// Somebody fell asleep or woke up.
    sleep: Arc<Notify>,
    /// Cancelled when the drain begins: nothing is claimed or started any more.
    stop: CancellationToken,
    /// Cancelled when the drain's time is over: running handlers are dropped.
    cut_off: CancellationToken,
    /// Cancelled when the time of the last writes is over: what is left is not written.
    over: CancellationToken,
}

impl<S: Store> Shared<S> {
    pub(crate) fn new(
        store: S,
        render: Arc<ErrorRenderer>,
        publisher: Publisher,
        sinks: Sinks,
    ) -> Self {
        Self {
            store,
            render,
            logs_errors: false,
            publisher,
            leases: Leases::telling(sinks.clone()),
            quiet: Arc::default(),
            sinks,
            pulse: Arc::default(),
            sleep: Arc::default(),
            stop: CancellationToken::new(),
            cut_off: CancellationToken::new(),
            over: CancellationToken::new(),
        }
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
    settlers: Vec<JoinHandle<()>>,
    /// Rows may come until it has ended.
    claimer: AbortHandle,
    /// What they write.
    results: [Arc<Results>; 3],
    /// Health checks hold it weakly.
    vitals: Arc<Vitals<S>>,
    drain_timeout: Duration,
    /// Handlers that the drain gave up: a drain that goes on when called again still
    /// tells of them.
    dropped: usize,
}

/// The settings of an engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) drain_timeout: Duration,
    /// How often the queues are looked into, if at all.
    pub(crate) sample_every: Option<Duration>,
}

impl<S: Store> Engine<S> {
    /// Starts all loops. `anew` makes the store once more, with connections of its
    /// own, for a thread that looks after leases; `None` leaves that to the lease task.
    pub(crate) fn start(
        shared: Shared<S>,
        subscribers: Vec<Subscriber>,
        states: &States,
        counts: &Stats,
        settings: Settings,
        anew: Option<impl Fn() -> S + Send + 'static>,
    ) -> Self {
        let shared = Arc::new(shared);
        let stop = shared.stop.clone();
        let services_stop = CancellationToken::new();
        let (tracker, services) = (TaskTracker::new(), TaskTracker::new());
        let (results, letters) = (Arc::<Results>::default(), Arc::new(Results::of_letters()));
        let timers = Arc::<Results>::default();
        let sender = Sender::new(&results, &letters, &timers);
        let mut loops = Loops::default();
        let settler =
            |of: &Arc<Results>| tokio::spawn(settle::run(Arc::clone(&shared), Arc::clone(of)));
        let ways = [&results, &letters];
        // What may wait for strangers does so over one connection.
        let settlers = (0..WRITES).flat_map(|_| ways).chain([&timers]);
        let settlers: Vec<_> = settlers.map(settler).collect();
        for settler in &settlers {
            loops.add(SETTLERS, settler);
        }

        let shortest = subscribers.iter().map(|one| one.options.lease_ttl).min();
        let shortest = shortest.unwrap_or(Duration::from_secs(60));
        let watchdog = anew.map(|anew| Watchdog::start(&shared, shortest, anew));
        let leases = extend::run(Arc::clone(&shared), shortest);
        let leases = services.spawn(services_stop.clone().run_until_cancelled_owned(leases));
        loops.add(LEASES, &leases);

        let changed = Arc::new(Notify::new());
        let reader = |one| Arc::new(Reader::new(one, &shared, states, counts, &changed));
        let readers: Vec<Arc<Reader>> = subscribers.into_iter().map(reader).collect();
        let watcher = wake::watch(Arc::clone(&shared), readers.clone());
        loops.add(WAKES, &services.spawn(stop.clone().run_until_cancelled_owned(watcher)));
        if let Some(every) = settings.sample_every {
            let samples = sample::run(Arc::clone(&shared), readers.clone(), every);
            loops.add(SAMPLES, &services.spawn(stop.clone().run_until_cancelled_owned(samples)));
        }

        for reader in &readers {
            for _ in 0..reader.subscriber.options.max_workers {
                let (shared, reader) = (Arc::clone(&shared), Arc::clone(reader));
                let worker = work(shared, reader, sender.clone());
                loops.add(WORKERS, &tracker.spawn(worker));
            }
        }
        let claims =
            claimer::run(Arc::clone(&shared), readers.clone(), changed, sender, stop.clone());
        let claimer = tracker.spawn(claims);
        loops.add(CLAIMS, &claimer);
        tracker.close();
        services.close();
        let vitals = Arc::new(Vitals::of(&shared, loops, watchdog.as_ref()));
        Self {
            shared,
            readers,
            stop,
            subscribers: tracker,
            services,
            services_stop,
            watchdog,
            settlers,
            claimer: claimer.abort_handle(),
            results: [results, letters, timers],
            vitals,
            drain_timeout: settings.drain_timeout,
            dropped: 0,
        }
    }

    /// Cancelled, it ends the claims; the rest is for [`Engine::drain`].
    pub(crate) fn claims(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// What health checks look at, for as long as the engine is there.
    pub(crate) fn vitals(&self) -> Weak<dyn Vital> {
        let vitals: Arc<dyn Vital> = Arc::clone(&self.vitals) as _;
        Arc::downgrade(&vitals)
    }
}

/// Lets another thread have the task that was just woken. Tokio keeps it for this one, which
/// runs it when the task that woke it waits, and none other takes it from there: unless
/// another task comes into its place. A handler that blocks never waits. Nor is another
/// thread awake then to look after sockets and timers, but for a second task.
fn leave_to_others() {
    drop(tokio::spawn(std::future::ready(())));
}

/// A worker whose runs take no time lets others have their turn after so many: while there
/// are more it waits for nothing, and claims and settlements that were answered would wait
/// until there are none.
const TURN: u32 = 32;

/// Runs deliveries one after the other until the inbox is closed. After `stop`
/// it starts none, not even those it has: the claim loop may be held up by the database
/// before it closes the inbox.
async fn work<S: Store>(shared: Arc<Shared<S>>, reader: Arc<Reader>, results: Sender) {
    use futures_util::FutureExt;
    use std::panic::AssertUnwindSafe;
    use std::pin::pin;

    let batch = reader.subscriber.options.batch;
    let (mut now, mut last) = (Instant::now(), None);
    let mut turn = 0..TURN;
    loop {
        if turn.next().is_none() {
            tokio::task::yield_now().await;
            (now, turn) = (Instant::now(), 0..TURN);
        }
        let (mut jobs, wakes) = reader.inbox.turn(last.take(), batch);
        if wakes {
            leave_to_others();
        }
        if jobs.is_none() {
            jobs = reader.inbox.next(batch).await;
            now = Instant::now();
        }
        let Some(jobs) = jobs else { return };
        let (count, started) = (jobs.len(), now);
        let run = pin!(async {
            if shared.stop.is_cancelled() {
                return jobs.iter().map(|job| Settling::of(&reader, job).unstarted()).collect();
            }
            deliver(&shared, &reader, jobs, started, Some(&results)).await
        });
        let settled = AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|_| {
            // Only what the user's code does while it is being dropped gets here.
            error!(
                target: TARGET, subscriber = reader.subscriber.name(),
                "dropping a handler panicked; its message comes back when the lease runs out"
            );
            Few::new()
        });
        let ran = settled.len() < count || settled.iter().any(|one| one.report.started.is_some());
        for settling in settled {
            results.send_while(settling, || reader.inbox.ended(count)).await;
        }
        now = Instant::now();
        last = Some((count, ran.then(|| now - started)));
    }
}

#[cfg(all(test, feature = "testing"))]
pub(crate) mod tests;
