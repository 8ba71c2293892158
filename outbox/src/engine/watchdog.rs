//! A thread that extends the leases when the lease task cannot: handlers that block every thread of
//! the runtime block that task too. Their leases would run out, and other processes would run the
//! same messages beside them.

use std::sync::{Arc, Weak};
use std::thread::{JoinHandle, Thread, park_timeout};
use std::time::Duration;

use tokio::runtime;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{Reader, Shared, extend, lease};
use crate::store::Store;
use crate::telemetry::{TARGET, warn};

/// Ends the thread when dropped.
pub(super) struct Watchdog {
    thread: Option<Thread>,
    stop: CancellationToken,
    /// Gone with the thread.
    life: Weak<()>,
}

impl Watchdog {
    /// Watches over the leases of a process. If the system refuses a thread, there is only the
    /// lease task.
    pub(super) fn start<S: Store>(
        shared: &Arc<Shared<S>>,
        readers: &[Arc<Reader>],
        shortest: Duration,
        anew: impl Fn() -> S + Send + 'static,
    ) -> Self {
        let stop = CancellationToken::new();
        let (watched, stopped) = (Arc::downgrade(shared), stop.clone());
        let readers: Vec<_> = readers.iter().map(Arc::downgrade).collect();
        // Rows that are acked first have no lease.
        let runs = |reader: &Weak<Reader>| {
            reader.upgrade().is_some_and(|reader| reader.inbox.running() > 0)
        };
        let living = Arc::new(());
        let life = Arc::downgrade(&living);
        let watch = move || {
            // Kept until the thread ends.
            let _: &Arc<()> = &living;
            let beat = lease::beat(shortest);
            // Its connections belong to a runtime of its own: those of the blocked runtime would
            // never hear an answer.
            let mut own: Option<(runtime::Runtime, S)> = None;
            let mut late = false;
            while !stopped.is_cancelled() {
                let moment = beat / 2;
                let (parked, rest) = (Instant::now(), if late { moment } else { beat });
                match &own {
                    // Drives what its connections still have to do. One whose statement failed
                    // goes back to its pool here; if it did not, the next beat would open another.
                    Some((runtime, _)) => {
                        let stopped = async { timeout(rest, stopped.cancelled()).await };
                        let _: Result<(), _> = runtime.block_on(stopped);
                    }
                    None => park_timeout(rest),
                }
                let Some(shared) = watched.upgrade() else { return };
                // The whole process stood still, as a paused container does, and the task may not
                // have had its turn yet. It has one a moment later.
                late = !late && parked.elapsed() >= rest + moment;
                if late {
                    continue;
                }
                if !shared.leases.is_neglected(Instant::now(), 2 * beat) {
                    own = None;
                    continue;
                }
                if own.is_none() {
                    let running = shared.leases.running();
                    if running.is_empty() && !readers.iter().any(runs) {
                        warn!(
                            target: TARGET,
                            "something blocks the runtime, so that nothing else runs, and it is not a \
                             handler; leases are extended from another thread"
                        );
                    } else {
                        warn!(
                            target: TARGET, ?running,
                            "handlers block the runtime, so that nothing else runs: some of the subscribers \
                             that are running; leases are extended from another thread. Use a plain \
                             `fn`, or `spawn_blocking`"
                        );
                    }
                    let started = runtime::Builder::new_current_thread().enable_all().build();
                    own = started.ok().map(|runtime| {
                        let store = runtime.block_on(async { anew() });
                        (runtime, store)
                    });
                }
                if let Some((runtime, store)) = &own {
                    runtime.block_on(extend::extend(&shared.leases, store));
                }
            }
        };
        let thread = std::thread::Builder::new().name("outbox-leases".into()).spawn(watch).ok();
        Self { thread: thread.as_ref().map(JoinHandle::thread).cloned(), stop, life }
    }

    /// Whether its thread lives; `None` if there is none to live.
    pub(super) fn life(&self) -> Option<Weak<()>> {
        self.thread.as_ref().map(|_| Weak::clone(&self.life))
    }

    #[cfg(feature = "testing")]
    pub(super) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}
