//! Sinks of the user's own, kept from doing harm.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tracing::{error, warn};

use super::names::TARGET;
use super::{Event, Stats};
use crate::unpoisoned::Shared as _;

/// Events that wait for a recorder at most: a tenth of a second of a busy process.
const WAITING: usize = 16_384;

/// A sink for the events of an app, given to [`App::recorder`](crate::App::recorder).
///
/// It is called on a thread of its own, with one event after the other, in the order in
/// which they were told. It can harm no delivery: while it blocks, up to 16,384 events
/// wait for it, and what comes then is dropped and counted
/// ([`Stats::recorder_dropped`]); when it panics, that is counted and the next event is
/// handed on ([`Stats::recorder_panics`]). A stop waits up to a second for what waits, and up to
/// another one for what its hooks published. Its thread ends, and it is dropped, once nothing of
/// the app is left.
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

/// What recorders did not get, or choked on.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub(super) dropped: AtomicU64,
    pub(super) panicked: AtomicU64,
}

/// The recorders of an app; mostly none.
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
    /// With one more. Its thread ends when nobody can tell it anything any more.
    pub(crate) fn add(&mut self, recorder: impl Recorder, stats: &Stats) {
        let (sender, items) = sync_channel(WAITING);
        let losses = Arc::clone(stats.losses());
        let of_thread = Arc::clone(&losses);
        let run = move || record(&recorder, &items, &of_thread);
        let started = std::thread::Builder::new().name("outbox-recorder".into()).spawn(run);
        if let Err(error) = started {
            error!(target: TARGET, %error, "no thread for a recorder: it gets no events");
        }
        let others = self.0.iter().flat_map(|all| all.iter().cloned());
        self.0 = Some(others.chain([Sink { sender, losses }]).collect());
    }

    /// Without a recorder the event is not even made.
    #[inline]
    pub(super) fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(all) = &self.0 {
            let event = event();
            all.iter().for_each(|sink| sink.tell(event.clone()));
        }
    }

    /// Those of the app that was started last, for publishers that belong to none.
    pub(crate) fn of_process() -> Self {
        PROCESS.reading().clone()
    }

    /// The same, for one run of the app: it leaves the process for itself, not for the next run.
    pub(crate) fn of_a_run(&self) -> Self {
        Self(self.0.as_deref().map(Arc::from))
    }

    /// An app with these recorders starts.
    pub(crate) fn serve_process(&self) {
        *PROCESS.writing() = self.clone();
    }

    /// The run with these recorders has ended: nobody else's messages are theirs.
    pub(crate) fn leave_process(&self) {
        let mut process = PROCESS.writing();
        let same = |one: &Arc<[Sink]>, other| Arc::ptr_eq(one, other);
        if self.0.as_ref().zip(process.0.as_ref()).is_some_and(|(own, now)| same(own, now)) {
            process.0 = None;
        }
    }

    /// Waits until everything that was told is recorded, but not for ever.
    pub(crate) async fn flush(&self, limit: Duration) {
        let flushes = self.0.iter().flat_map(|all| all.iter()).map(Sink::flush);
        let _ = timeout(limit, futures_util::future::join_all(flushes)).await;
    }
}

impl Sink {
    fn tell(&self, event: Event) {
        if self.sender.try_send(Item::Event(event)).is_err() {
            let dropped = self.losses.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            super::dropped_event();
            // Less often the more there are: a slow sink must not fill the log.
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
        // An error when there is no thread: then nothing waits.
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
            super::panicked_recorder();
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
