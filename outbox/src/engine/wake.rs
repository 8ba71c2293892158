//! Wakes: hints that make subscribers look for rows. Losing all of them costs
//! latency, never a message.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::backoff::Backoff;
use super::{Reader, Shared};
use crate::error::StoreError;
use crate::store::{Store, Wake, Wakes};
use crate::telemetry::{TARGET, debug, info, warn};

/// A connection that held this long was a good one: after its loss the waits start over.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// Keeps a subscription to wakes for ever, and passes the wakes on.
pub(super) async fn watch<S: Store>(shared: Arc<Shared<S>>, readers: Vec<Arc<Reader>>) {
    let mut backoff = Backoff::of_errors();
    let mut down = false;
    loop {
        let transient = match subscribe(&shared.store, &readers).await {
            Ok(mut wakes) => {
                shared.listens(true);
                if std::mem::take(&mut down) {
                    info!(target: TARGET, "wakes arrive again");
                }
                let since = Instant::now();
                let lost = heed(&mut wakes, &shared.sleep, &readers).await;
                shared.listens(false);
                if since.elapsed() >= HEALTHY_AFTER {
                    backoff.reset();
                }
                debug!(target: TARGET, error = %lost, "wakes are lost; subscribing again");
                lost.transient
            }
            Err(error) => {
                if !std::mem::replace(&mut down, true) {
                    warn!(target: TARGET, %error, "no wakes arrive; polling finds the messages meanwhile");
                }
                error.transient
            }
        };
        sleep(backoff.after(transient)).await;
    }
}

impl<S> Shared<S> {
    /// Notes whether wakes arrive, and tells it if that is new.
    pub(super) fn listens(&self, up: bool) {
        if self.pulse.listens(up) {
            self.sinks.listener(up);
        }
    }
}

/// Subscribes to wakes, and tells publishers who sleeps.
async fn subscribe<S: Store>(
    store: &S,
    readers: &[Arc<Reader>],
) -> Result<impl Wakes + use<S>, StoreError> {
    let mut wakes = store.listen().await?;
    wakes.sleep_on(&asleep(readers)).await?;
    Ok(wakes)
}

/// Passes wakes on until there is an error.
async fn heed(wakes: &mut impl Wakes, sleep: &Notify, readers: &[Arc<Reader>]) -> StoreError {
    // For whatever was published while nobody listened.
    wake(readers, &Wake::All);
    loop {
        let heard = tokio::select! {
            // First, because it is rare, and many wakes must not keep it waiting.
            biased;
            () = sleep.notified() => wakes.sleep_on(&asleep(readers)).await,
            heard = wakes.next() => heard.map(|hint| wake(readers, &hint)),
        };
        if let Err(error) = heard {
            return error;
        }
    }
}

fn asleep(readers: &[Arc<Reader>]) -> Vec<&str> {
    let asleep = readers.iter().filter(|reader| !reader.sleep.is_awake());
    asleep.flat_map(|reader| reader.subscriber.queues()).map(String::as_str).collect()
}

/// A queue that nobody here reads wakes nobody, whoever named it.
fn wake(readers: &[Arc<Reader>], hint: &Wake) {
    for reader in readers {
        match hint {
            Wake::All => reader.signal.look(),
            Wake::Queue(queue) if reader.subscriber.queues().contains(queue) => {
                reader.signal.wake();
            }
            Wake::Queue(_) => {}
        }
    }
}
