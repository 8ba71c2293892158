//! The metrics of publishing.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, RwLock};
use std::time::Duration;

use metrics::{Counter, Histogram, Key};

use super::super::names::metric::{
    PUBLISH_DURATION, PUBLISH_EXCEPTIONS, PUBLISH_SIZE, PUBLISHED, PUBLISHES,
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

/// What its metrics are called.
struct Keys {
    messages: Key,
    calls: [Key; 2],
    duration: Key,
    size: Key,
}

impl Keys {
    fn of(queue: &str) -> Self {
        let labels = [("queue", queue)];
        let call = |status| key(&PUBLISHES, &[labels[0], ("status", status)]);
        Self {
            messages: key(&PUBLISHED, &labels),
            calls: [call("error"), call("success")],
            duration: key(&PUBLISH_DURATION, &labels),
            size: key(&PUBLISH_SIZE, &labels),
        }
    }
}

/// Those of all other queues, whose metrics are looked up for each publish.
static OTHERS: LazyLock<Keys> = LazyLock::new(|| Keys::of(OTHER));

impl OfQueue {
    fn of(keys: &Keys) -> Self {
        Self {
            messages: counter_of(&keys.messages),
            calls: [counter_of(&keys.calls[0]), counter_of(&keys.calls[1])],
            duration: histogram_of(&keys.duration),
            size: histogram_of(&keys.size),
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
            let meters = OfQueue::of(&Keys::of(queue));
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
        let meters = named.unwrap_or_else(|| OfQueue::of(&OTHERS));
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
