//! Wakes: hints that cut a claim loop's sleep short. Losing all of them costs
//! latency, never a message.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::backoff::Backoff;
use super::{Reader, Shared};
use crate::store::{Store, Wake, Wakes};
use crate::telemetry::TARGET;

/// A connection that held this long was a good one: the next loss starts with
/// the shortest wait again.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// What ends the sleep of one claim loop.
#[derive(Default)]
pub(crate) struct Signal {
    /// Keeps one permit, so a wake between a claim and the sleep is not lost.
    woken: Notify,
    /// The due time became earlier; the sleeper looks at it again.
    sooner: Notify,
    due: Mutex<Option<Instant>>,
}

impl Signal {
    pub(super) fn wake(&self) {
        self.woken.notify_one();
    }

    /// A row becomes due then.
    pub(super) fn due_at(&self, at: Instant) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if due.is_none_or(|known| at < known) {
            *due = Some(at);
            self.sooner.notify_one();
        }
    }

    /// Forgets wakes and due times that a claim about to be sent will see.
    pub(super) async fn clear(&self) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.woken.notify_one();
        self.woken.notified().await;
    }

    /// Sleeps until a wake, the next due time, or `latest`. True after a wake.
    pub(super) async fn sleep(&self, latest: Instant) -> bool {
        loop {
            let due = *self.due.lock().unwrap_or_else(PoisonError::into_inner);
            let until = due.map_or(latest, |due| due.min(latest));
            tokio::select! {
                biased;
                () = self.woken.notified() => return true,
                () = self.sooner.notified() => {}
                () = sleep_until(until) => return false,
            }
        }
    }
}

/// Keeps a subscription to wakes for ever and hands the wakes on.
pub(super) async fn watch<S: Store>(shared: Arc<Shared<S>>, readers: Vec<Arc<Reader>>) {
    let mut backoff = Backoff::of_errors();
    let mut down = false;
    loop {
        match shared.store.listen().await {
            Ok(mut wakes) => {
                if std::mem::take(&mut down) {
                    info!(target: TARGET, "wakes arrive again");
                }
                let since = Instant::now();
                // Whatever was published while nobody listened.
                wake(&readers, &Wake::All);
                let lost = loop {
                    match wakes.next().await {
                        Ok(hint) => wake(&readers, &hint),
                        Err(error) => break error,
                    }
                };
                if since.elapsed() >= HEALTHY_AFTER {
                    backoff.reset();
                }
                debug!(target: TARGET, error = %lost, "wakes are lost; subscribing again");
            }
            Err(error) => {
                if !std::mem::replace(&mut down, true) {
                    warn!(target: TARGET, %error, "no wakes arrive; polling finds the messages meanwhile");
                }
            }
        }
        sleep(backoff.next()).await;
    }
}

/// A queue that nobody here reads wakes nobody, whoever named it.
fn wake(readers: &[Arc<Reader>], hint: &Wake) {
    for reader in readers {
        let meant = match hint {
            Wake::All => true,
            Wake::Queue(queue) => reader.subscriber.queues().contains(queue),
        };
        if meant {
            reader.signal.wake();
        }
    }
}
