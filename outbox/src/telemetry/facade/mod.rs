//! The metrics, for whatever exporter of the `metrics` crate the program has installed.
//!
//! The counters and histograms of a subscriber are looked up once, when it starts. After that,
//! counting is an addition. An exporter that is installed later sees none of them.

mod meters;
mod publish;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Unit, with_recorder};

use super::names::TARGET;
use super::names::metric::{
    BACKLOG, DEAD_LETTERS, DUE, LEASE_EXTENSION_FAILURES, LEASED, LISTENER_UP, METRICS, Metric,
    MetricKind, NOTIFY_QUEUE_USAGE, OLDEST_AGE, RECORDER_DROPPED, RECORDER_PANICS,
};
use crate::store::Depth;
use crate::telemetry::error;
use crate::unpoisoned::Locked as _;

pub(super) use meters::Meters;
pub use publish::name_queues;
pub(super) use publish::published;

/// Replaces labels that would make too many series.
const OTHER: &str = "other";
/// How many kinds of errors have a series of their own.
const KINDS: usize = 50;

const METADATA: Metadata<'static> = Metadata::new(TARGET, Level::INFO, None);

fn key(metric: &Metric, labels: &[(&'static str, &str)]) -> Key {
    debug_assert!(
        labels.iter().map(|(name, _)| *name).eq(metric.labels.iter().copied()),
        "{}: {labels:?}",
        metric.name
    );
    let labels: Vec<_> =
        labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect();
    Key::from_parts(metric.name, labels)
}

fn counter(metric: &Metric, labels: &[(&'static str, &str)]) -> Counter {
    counter_of(&key(metric, labels))
}

fn counter_of(key: &Key) -> Counter {
    with_recorder(|recorder| recorder.register_counter(key, &METADATA))
}

fn gauge(metric: &Metric, labels: &[(&'static str, &str)]) -> Gauge {
    let key = key(metric, labels);
    with_recorder(|recorder| recorder.register_gauge(&key, &METADATA))
}

fn histogram(metric: &Metric, labels: &[(&'static str, &str)]) -> Histogram {
    histogram_of(&key(metric, labels))
}

fn histogram_of(key: &Key) -> Histogram {
    with_recorder(|recorder| recorder.register_histogram(key, &METADATA))
}

/// Calls what the program has installed. Its panics end here.
fn safely(call: impl FnOnce()) {
    static PANICKED: AtomicU64 = AtomicU64::new(0);
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        let panicked = PANICKED.fetch_add(1, Ordering::Relaxed) + 1;
        // The more there are, the less often: it is called for each message.
        if panicked.is_power_of_two() {
            error!(target: TARGET, panicked, "the exporter of metrics panicked");
        }
    }
}

/// Tells the exporter what each metric is.
fn describe() {
    for metric in METRICS {
        let (name, help) = (metric.name.into(), metric.help.into());
        let unit = Unit::from_string(metric.unit);
        with_recorder(|recorder| match metric.kind {
            MetricKind::Counter => recorder.describe_counter(name, unit, help),
            MetricKind::Gauge => recorder.describe_gauge(name, unit, help),
            MetricKind::Histogram => recorder.describe_histogram(name, unit, help),
        });
    }
}

/// The kind of an error as a label. A program may make up kinds without end, so they are limited.
fn bounded_kind(kind: &str) -> &str {
    static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut seen = SEEN.locked();
    if admits(&mut seen, kind) { kind } else { OTHER }
}

fn admits(seen: &mut BTreeSet<String>, kind: &str) -> bool {
    if seen.len() < KINDS && !seen.contains(kind) {
        seen.insert(kind.to_owned());
    }
    seen.contains(kind)
}

/// Gives the metrics that belong to no queue a value from the start.
pub(super) fn process() {
    safely(|| {
        for metric in [RECORDER_DROPPED, RECORDER_PANICS] {
            counter(&metric, &[]).increment(0);
        }
        gauge(&LISTENER_UP, &[]).set(0.0);
    });
}

pub(super) fn listener(up: bool) {
    safely(|| gauge(&LISTENER_UP, &[]).set(f64::from(u8::from(up))));
}

pub(super) fn lease_extension_failed(queue: &str, subscriber: &str, leases: usize) {
    let labels = [("queue", queue), ("subscriber", subscriber)];
    safely(|| counter(&LEASE_EXTENSION_FAILURES, &labels).increment(leases as u64));
}

pub(super) fn dropped_event() {
    safely(|| counter(&RECORDER_DROPPED, &[]).increment(1));
}

pub(super) fn panicked_recorder() {
    safely(|| counter(&RECORDER_PANICS, &[]).increment(1));
}

/// What a sampler found in the tables.
pub(super) fn depths(depths: &[Depth]) {
    safely(|| {
        for depth in depths {
            let set = |metric, value: f64| gauge(metric, &[("queue", &depth.queue)]).set(value);
            set(&BACKLOG, depth.backlog as f64);
            set(&DUE, depth.due as f64);
            set(&LEASED, depth.leased as f64);
            set(&OLDEST_AGE, depth.oldest_age.as_secs_f64());
            if let Some(letters) = depth.dead_letters {
                set(&DEAD_LETTERS, letters as f64);
            }
        }
        if let Some(usage) = depths.iter().find_map(|depth| depth.notify_usage) {
            gauge(&NOTIFY_QUEUE_USAGE, &[]).set(usage);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_errors_make_fifty_series_and_no_more() {
        let kinds: Vec<_> = (0..1000).map(|n| format!("kind {n}")).collect();
        let mut seen = BTreeSet::new();
        assert_eq!(kinds.iter().filter(|kind| admits(&mut seen, kind)).count(), 50);
        assert!(admits(&mut seen, "kind 0") && !admits(&mut seen, "kind 999"));
    }

    #[test]
    fn every_unit_is_one_that_exporters_know_and_every_name_stands_once() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            assert!(Unit::from_string(metric.unit).is_some(), "{}", metric.name);
            let counts = metric.kind == MetricKind::Counter;
            assert_eq!(metric.name.ends_with("_total"), counts, "{}", metric.name);
        }
    }
}
