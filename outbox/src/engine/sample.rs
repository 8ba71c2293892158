//! Looks into the queues now and then, for gauges.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use super::{Reader, Shared};
use crate::store::Store;
use crate::subscriber::LONGEST;
use crate::telemetry::{Sinks, TARGET};

/// Rows of a queue that are read at most: a gauge need not tell more from a great many.
const MOST: usize = 10_000;

/// Samples for ever.
pub(super) async fn run<S: Store>(
    shared: Arc<Shared<S>>,
    readers: Vec<Arc<Reader>>,
    every: Duration,
) {
    let queues: BTreeSet<_> =
        readers.iter().flat_map(|reader| reader.subscriber.queues()).cloned().collect();
    let queues: Vec<_> = queues.into_iter().collect();
    let mut ticks = interval(every.min(LONGEST));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        ticks.tick().await;
        let failed = match shared.store.depths(&queues, MOST).await {
            Ok(depths) => {
                Sinks::depths(&depths);
                None
            }
            Err(failed) => Some(failed),
        };
        let was = std::mem::replace(&mut failing, failed.is_some());
        if let Some(error) = failed.filter(|_| !was) {
            warn!(target: TARGET, %error, "the gauges of the queues stand still");
        }
    }
}
