//! Sinks of the user's own, which can do no harm.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::names::TARGET;
use super::{Event, Stats};
use crate::telemetry::{error, warn};
use crate::unpoisoned::Shared as _;

/// How many events wait for a recorder at most: a tenth of a second of a busy process.
const WAITING: usize = 16_384;

/// A sink for the events of an app, given to [`App::recorder`](crate::App::recorder).
///
/// A recorder has a thread of its own. It gets one event after the other, in the order in which
/// they were told. It cannot harm a delivery:
/// - While it blocks, up to 16,384 events wait for it. Further events are dropped and counted
///   ([`Stats::recorder_dropped`]).
/// - If it panics, the panic is counted ([`Stats::recorder_panics`]), and it gets the next event.
///
/// A stop of the app waits up to a second for the events that wait, and up to another second for
/// what its hooks published. Once nothing of the app is left, the thread ends and the recorder is
/// dropped.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # #[cfg(feature = "sqlite")] {
/// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
/// # outbox::schema::migrate_tables(&pool, &outbox::TableNames::default()).await?;
/// # let it = outbox::Subscriber::new("confirm", "orders", |_: outbox::Context| async {});
/// # let stop = async {};
/// use outbox::telemetry::Event;
///
/// let audit = |event: &Event| {
///     if let Event::DeadLetterWritten { delivery, reason, .. } = event {
///         println!("row {} of {} is dead: {reason}", delivery.row_id, delivery.queue);
///     }
/// };
/// let app = outbox::App::sqlite(pool).recorder(audit);
/// # let app = app.only([it]);
/// app.run_until(stop).await?;
/// # }
/// # Ok(()) }
/// ```
pub trait Recorder: Send + Sync + 'static {
    /// Takes an event.
    fn record(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync + 'static> Recorder for F {
    fn record(&self, event: &Event) {
        self(event);
    }
}

/// Counts of the events that recorders did not get, or at which they panicked.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub(super) dropped: AtomicU64,
    pub(super) panicked: AtomicU64,
}

/// The recorders of an app, which mostly has none.
#[derive(Clone, Default)]
pub(crate) struct Sinks(Option<Arc<[Sink]>>);

#[derive(Clone)]
struct Sink {
    sender: SyncSender<Item>,
    losses: Arc<Losses>,
}

static PROCESS: RwLock<Sinks> = RwLock::new(Sinks(None));

enum Item {
    Event(Event),
    /// Answered once everything before it is recorded.
    Flush(oneshot::Sender<()>),
}

impl Sinks {
    /// Adds a recorder. Its thread ends once nobody can tell it anything any more.
    pub(crate) fn add(&mut self, recorder: impl Recorder, stats: &Stats) {
        let (sender, items) = sync_channel(WAITING);
        let losses = Arc::clone(stats.losses());
        let of_thread = Arc::clone(&losses);
        let run = move || record(&recorder, &items, &of_thread);
        let started = std::thread::Builder::new().name("outbox-recorder".into()).spawn(run);
        if let Err(error) = started {
            error!(target: TARGET, %error, "a thread for a recorder did not start: it gets no events");
        }
        let others = self.0.iter().flat_map(|all| all.iter().cloned());
        self.0 = Some(others.chain([Sink { sender, losses }]).collect());
    }

    /// Tells every recorder. Without a recorder the event is not even made.
    #[inline]
    pub(super) fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(all) = &self.0 {
            let event = event();
            all.iter().for_each(|sink| sink.tell(event.clone()));
        }
    }

    /// The recorders of the app that was started last, for publishers that belong to no app.
    pub(crate) fn of_process() -> Self {
        PROCESS.reading().clone()
    }

    /// The same recorders, for one run of the app. When this run leaves the process, it does not
    /// take the next run's recorders along.
    pub(crate) fn of_a_run(&self) -> Self {
        Self(self.0.as_deref().map(Arc::from))
    }

    /// An app with these recorders starts.
    pub(crate) fn serve_process(&self) {
        *PROCESS.writing() = self.clone();
    }

    /// The run with these recorders has ended. They no longer hear of messages of other publishers.
    pub(crate) fn leave_process(&self) {
        let mut process = PROCESS.writing();
        let same = |one: &Arc<[Sink]>, other| Arc::ptr_eq(one, other);
        if self.0.as_ref().zip(process.0.as_ref()).is_some_and(|(own, now)| same(own, now)) {
            process.0 = None;
        }
    }

    /// Waits until everything that was told is recorded, up to a limit.
    pub(crate) async fn flush(&self, limit: Duration) {
        let flushes = self.0.iter().flat_map(|all| all.iter()).map(Sink::flush);
        let _ = timeout(limit, futures_util::future::join_all(flushes)).await;
    }
}

impl Sink {
    fn tell(&self, event: Event) {
        if self.sender.try_send(Item::Event(event)).is_err() {
            let dropped = self.losses.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            #[cfg(feature = "metrics")]
            super::facade::dropped_event();
            // The more there are, the less often: a slow sink must not fill the log.
            if dropped.is_power_of_two() {
                warn!(target: TARGET, dropped, "a recorder is too slow: events are dropped");
            }
        }
    }

    async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        let mut item = Item::Flush(done);
        while let Err(TrySendError::Full(back)) = self.sender.try_send(item) {
            item = back;
            sleep(Duration::from_millis(5)).await;
        }
        // It fails if there is no thread: then nothing waits.
        let _ = flushed.await;
    }
}

/// The life of a recorder's thread.
fn record(recorder: &impl Recorder, items: &Receiver<Item>, losses: &Losses) {
    while let Ok(item) = items.recv() {
        let event = match item {
            Item::Event(event) => event,
            Item::Flush(done) => {
                let _ = done.send(());
                continue;
            }
        };
        if catch_unwind(AssertUnwindSafe(|| recorder.record(&event))).is_err() {
            let panicked = losses.panicked.fetch_add(1, Ordering::Relaxed) + 1;
            #[cfg(feature = "metrics")]
            super::facade::panicked_recorder();
            if panicked.is_power_of_two() {
                error!(target: TARGET, panicked, "a recorder panicked");
            }
        }
    }
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} recorders", self.0.as_ref().map_or(0, |all| all.len()))
    }
}
