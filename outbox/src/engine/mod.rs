//! The running half of the library: the loops that claim rows, run handlers and settle the results.
//! The engine is generic over the store. It contains no SQL and knows no database.
//!
//! Each subscriber has an inbox and `max_workers` workers. Each process has one claimer, five
//! settlers, one lease task, one watcher of wakes, one thread that watches the lease task, and a
//! sampler if gauges are asked for.
//!
//! A message passes through the engine in these steps:
//!
//! 1. The `claimer` sends a statement that claims rows for every subscriber that wants some. It
//!    puts the claimed rows into the subscribers' inboxes (`inbox`).
//! 2. A worker takes rows from its inbox and admits them (`invoke`). A row whose lease is nearly
//!    over is given back, and an expired one is buried. A row that may have brought its process
//!    down runs apart (`suspect`). The others go on.
//! 3. The worker runs the handler (`handle`, `guard`), and `judge` turns the result into a
//!    `settlement`: ack, retry, dead letter or release. A transaction that was lent to the handler
//!    ends here (`transaction`).
//! 4. The worker puts the delivery with its settlement (`settling`) into the queue of `results` and
//!    takes the next rows.
//! 5. A settler (`settle`) takes a batch from that queue and writes each kind of settlement as one
//!    statement. `write` tries again until the result is known or the leases are over.
//! 6. `closing` reports what became of the delivery, and tells the claimer when the row is due
//!    again.
//!
//! From step 2 to the end of step 3 the lease task (`extend`) keeps the lease of the row alive.
//!
//! | what | where |
//! |---|---|
//! | claim: who looks for rows, when, and how many | `claimer`, `look`, `schedule`, `lanes`, `sweep`, `sleep`, `backoff`, `failures`, `lost` |
//! | wait: rows between a claim and a worker; wakes | `reader`, `inbox`, `signal`, `wake` |
//! | run: from a row to a ruling on it | `invoke`, `run`, `handle`, `guard`, `threads`, `judge`, `transaction`, `at_most_once`, `rehearse` |
//! | run alone: what may have brought its process down | `suspect`, `quiet`, `solitude` |
//! | settle: from a ruling to the database | `settlement`, `settling`, `results`, `settle`, `timers`, `write`, `send`, `later`, `closing` |
//! | hold: leases of what runs | `lease`, `extend`, `watchdog` |
//! | end, and tell | `drain`, `pulse`, `vitals`, `sample` |

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
mod timers;
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

use crate::extract::States;
use crate::publish::Publisher;
use crate::store::Store;
use crate::subscriber::{ErrorRenderer, Few, Subscriber};
use crate::telemetry::{Sinks, Stats, TARGET, error};

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
use results::{Letters, Results, Sender, Ways};
pub(crate) use settlement::Settlement;
pub(crate) use settling::Settling;
pub(crate) use vitals::Vital;
use vitals::{CLAIMS, LEASES, Loops, SAMPLES, SETTLERS, Vitals, WAKES, WORKERS};
use watchdog::Watchdog;

/// How many batches of results are written at the same time, and how many of dead letters.
const WRITES: usize = 2;

/// What all deliveries of a process share.
pub(crate) struct Shared<S> {
    pub(crate) store: S,
    pub(crate) render: Arc<ErrorRenderer>,
    /// Whether the texts of handlers' errors go to the log.
    pub(crate) logs_errors: bool,
    pub(crate) publisher: Publisher,
    pub(crate) leases: Leases,
    pub(crate) quiet: Arc<Quiet>,
    /// Receives the events that do not concern one subscriber alone.
    pub(crate) sinks: Sinks,
    pulse: Arc<Pulse>,
    /// Notified when a subscriber falls asleep or wakes up. The watcher of wakes then tells the
    /// publishers.
    sleep: Arc<Notify>,
    /// Cancelled when the drain begins: from then on nothing is claimed or started.
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
    /// The claimer and the workers. They end by themselves after `stop`.
    workers: TaskTracker,
    /// The lease task, which is needed until the last handler has ended. The watcher of wakes and
    /// the sampler are here too, and end after `stop`.
    services: TaskTracker,
    services_stop: CancellationToken,
    /// Dropped when no handler runs any more, which ends its thread.
    watchdog: Option<Watchdog>,
    settlers: Vec<JoinHandle<()>>,
    /// The claimer's task: rows may still arrive until it has ended.
    claimer: AbortHandle,
    /// The queues of the settlers.
    results: Ways,
    /// Health checks hold a weak reference to it.
    vitals: Arc<Vitals<S>>,
    drain_timeout: Duration,
}

/// The settings of an engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) drain_timeout: Duration,
    /// How often the queues are sampled, if at all.
    pub(crate) sample_every: Option<Duration>,
}

impl<S: Store> Engine<S> {
    /// Starts all loops. `anew` makes a second store, with connections of its own, for the thread
    /// that watches over the leases. Without it the lease task alone extends them.
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
        let results: Ways = [Arc::default(), Arc::new(Results::of_letters()), Arc::default()];
        let sender = Sender::new(&results);
        let mut loops = Loops::default();
        let settler = |of: &Arc<Results>| {
            let letters = (!Arc::ptr_eq(of, &results[1])).then(|| Letters::of(&results));
            tokio::spawn(settle::run(Arc::clone(&shared), Arc::clone(of), letters))
        };
        // An ack that sets a timer may wait for other people's transactions. One settler writes
        // them, so that no more than one connection waits.
        let settlers = (0..WRITES).flat_map(|_| &results[..2]).chain(&results[2..]);
        let settlers: Vec<_> = settlers.map(settler).collect();
        for settler in &settlers {
            loops.add(SETTLERS, settler);
        }

        let shortest = subscribers.iter().map(|one| one.options.lease_ttl).min();
        let shortest = shortest.unwrap_or(Duration::from_secs(60));
        let leases = extend::run(Arc::clone(&shared), shortest);
        let leases = services.spawn(services_stop.clone().run_until_cancelled_owned(leases));
        loops.add(LEASES, &leases);

        let changed = Arc::new(Notify::new());
        let reader = |one| Arc::new(Reader::new(one, &shared, states, counts, &changed));
        let readers: Vec<Arc<Reader>> = subscribers.into_iter().map(reader).collect();
        let watchdog = anew.map(|anew| Watchdog::start(&shared, &readers, shortest, anew));
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
        let claims = claimer::run(Arc::clone(&shared), readers.clone(), changed, sender, stop);
        let claimer = tracker.spawn(claims);
        loops.add(CLAIMS, &claimer);
        tracker.close();
        services.close();
        let vitals = Arc::new(Vitals::of(&shared, &readers, loops, watchdog.as_ref()));
        Self {
            shared,
            readers,
            workers: tracker,
            services,
            services_stop,
            watchdog,
            settlers,
            claimer: claimer.abort_handle(),
            results,
            vitals,
            drain_timeout: settings.drain_timeout,
        }
    }

    /// This token ends the claims when it is cancelled; the rest is for [`Engine::drain`].
    pub(crate) fn claims(&self) -> CancellationToken {
        self.shared.stop.clone()
    }

    /// What health checks look at, for as long as the engine exists.
    pub(crate) fn vitals(&self) -> Weak<dyn Vital> {
        let vitals: Arc<dyn Vital> = Arc::clone(&self.vitals) as _;
        Arc::downgrade(&vitals)
    }
}

/// Lets another thread run the task that was just woken.
///
/// Tokio keeps a woken task for the thread that woke it, and runs it there once the current task
/// waits. No other thread takes it, unless a second woken task displaces it. A handler that blocks
/// its thread never waits, so the woken task would not run. Without a second task no other thread
/// is awake either, to look after sockets and timers.
fn leave_to_others() {
    drop(tokio::spawn(std::future::ready(())));
}

/// A worker yields after this many turns. While more rows are there it waits for nothing, and if
/// its runs take no time, claims and settlements that were answered would have to wait until there
/// are none.
const TURN: u32 = 32;

/// Runs deliveries one after the other until the inbox is closed. After `stop` it starts none, not
/// even of rows that it already has: the database may hold up the claimer before it closes the
/// inbox.
async fn work<S: Store>(shared: Arc<Shared<S>>, reader: Arc<Reader>, results: Sender) {
    use futures_util::FutureExt;
    use std::panic::AssertUnwindSafe;
    use std::pin::pin;

    let batch = reader.subscriber.options.batch;
    let (mut now, mut last) = (Instant::now(), None);
    let mut turn = 0..TURN;
    loop {
        if turn.next().is_none() {
            let _ended = last.as_ref().map(|(rows, _)| reader.inbox.ended(*rows));
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
            // What panics around a handler gets here: its own code while it is being dropped, or a
            // layer of `tracing` when its span is made.
            error!(
                target: TARGET, subscriber = reader.subscriber.name(),
                "a handler panicked while it was being dropped, or something around it did; its \
                 message comes back when the lease runs out"
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
