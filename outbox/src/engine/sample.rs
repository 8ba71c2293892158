//! The sampler: looks into the queues at an interval, for gauges. It reads no more than a limited
//! number of rows of each queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::{Reader, Shared};
use crate::store::{Depth, Store};
use crate::subscriber::LONGEST;
use crate::telemetry::{Sinks, TARGET, warn};

/// The most rows of a queue that are read: a gauge need not tell more from a great many.
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
    let (mut failing, mut blind) = (false, false);
    loop {
        ticks.tick().await;
        let depths = match shared.store.depths(&queues, MOST).await {
            Ok(depths) => {
                failing = false;
                depths
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    warn!(target: TARGET, %error, "the gauges of the queues are not updated");
                }
                continue;
            }
        };
        Sinks::depths(&depths);
        let counted = |one: &Depth| one.dead_letters.is_some();
        let lacks = shared.store.keeps_dead_letters() && !depths.iter().all(counted);
        let was = std::mem::replace(&mut blind, lacks);
        if lacks && !was {
            warn!(
                target: TARGET,
                "the gauge of dead letters is not updated: their table cannot be read"
            );
        }
    }
}
