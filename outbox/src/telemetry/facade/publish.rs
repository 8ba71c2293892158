//! The metrics of publishing.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, RwLock};
use std::time::Duration;

use metrics::{Counter, Histogram, Key, Label};

use super::super::names::metric::{
    Metric, PUBLISH_DURATION, PUBLISH_EXCEPTIONS, PUBLISH_SIZE, PUBLISHED, PUBLISHES,
};
use super::{OTHER, counter, counter_of, describe, histogram_of, key, safely};
use crate::unpoisoned::Shared as _;

/// Queues by name: those of the subscribers, and those that were named.
static NAMED: LazyLock<RwLock<HashMap<Arc<str>, OfQueue>>> = LazyLock::new(RwLock::default);

#[derive(Clone)]
struct OfQueue {
    messages: Counter,
    /// Errors, successes.
    calls: [Counter; 2],
    duration: Histogram,
    size: Histogram,
}

/// The labels of all other queues. Looking up their metrics allocates nothing.
static OTHERS: [[Label; 2]; 2] = [
    [Label::from_static_parts("queue", OTHER), Label::from_static_parts("status", "error")],
    [Label::from_static_parts("queue", OTHER), Label::from_static_parts("status", "success")],
];

impl OfQueue {
    fn new(queue: &str) -> Self {
        let labels = [("queue", queue)];
        let calls = ["error", "success"];
        let calls = calls.map(|status| key(&PUBLISHES, &[labels[0], ("status", status)]));
        Self::of(|metric| key(metric, &labels), &calls)
    }

    fn other() -> Self {
        let calls = [&OTHERS[0], &OTHERS[1]];
        let calls = calls.map(|labels| Key::from_static_parts(PUBLISHES.name, labels));
        Self::of(|metric| Key::from_static_parts(metric.name, &OTHERS[0][..1]), &calls)
    }

    fn of(key: impl Fn(&Metric) -> Key, calls: &[Key; 2]) -> Self {
        Self {
            messages: counter_of(&key(&PUBLISHED)),
            calls: [counter_of(&calls[0]), counter_of(&calls[1])],
            duration: histogram_of(&key(&PUBLISH_DURATION)),
            size: histogram_of(&key(&PUBLISH_SIZE)),
        }
    }
}

/// Gives these queues series of their own in the metrics of publishing. Call it after the
/// exporter is installed.
///
/// The queues that this process reads have series of their own once the app starts. All others
/// are counted as `other`, so queue names made from data do not make series without end.
///
/// # Examples
/// ```
/// outbox::telemetry::name_queues(["orders", "invoices"]);
/// ```
pub fn name_queues<Q: AsRef<str>>(queues: impl IntoIterator<Item = Q>) {
    safely(|| {
        describe();
        for queue in queues {
            let queue = queue.as_ref();
            let meters = OfQueue::new(queue);
            NAMED.writing().insert(queue.into(), meters);
        }
    });
}

pub(in crate::telemetry) fn published(
    queue: &str,
    count: usize,
    size_bytes: usize,
    duration: Duration,
    exception_type: Option<&str>,
) {
    safely(|| {
        let named = NAMED.reading().get(queue).cloned();
        let name = if named.is_some() { queue } else { OTHER };
        // They are not kept, because an exporter may be installed later.
        let meters = named.unwrap_or_else(OfQueue::other);
        meters.messages.increment(count as u64);
        meters.calls[usize::from(exception_type.is_none())].increment(1);
        meters.duration.record(duration.as_secs_f64());
        meters.size.record(size_bytes as f64);
        if let Some(kind) = exception_type {
            let labels = [("queue", name), ("exception_type", kind)];
            counter(&PUBLISH_EXCEPTIONS, &labels).increment(1);
        }
    });
}
