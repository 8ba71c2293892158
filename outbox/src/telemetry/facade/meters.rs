//! The counters and histograms of one subscriber.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use super::super::events::{Close, Report};
use super::super::names::metric::{
    ABANDONED, ACKED, DEAD_LETTERS_WRITTEN, DISPATCHED, DRAIN_TIMEOUTS, DURATION, EXCEPTIONS,
    FETCHED, FETCHES, IN_PROCESS, LEASE_EXTENSION_FAILURES, LEASE_LOST, Metric, RECEIVED_SIZE,
    RETRIED, RETRY_DELAY, SNOOZED, TERMINAL, WAIT, WAITED_TOO_LONG,
};
use super::{bounded_kind, counter, describe, gauge, histogram, name_queues, safely};
use crate::message::FailureReason;
use crate::unpoisoned::Locked as _;

pub(in crate::telemetry) struct Meters {
    subscriber: &'static str,
    /// Without rows, with rows.
    fetches: [Counter; 2],
    fetched: Counter,
    waited_too_long: Counter,
    drain_timeouts: Counter,
    queues: Vec<OfQueue>,
}

struct OfQueue {
    name: Arc<str>,
    dispatched: Counter,
    size: Histogram,
    wait: Histogram,
    in_process: Gauge,
    acked: Counter,
    retried: Counter,
    delay: Histogram,
    snoozed: Counter,
    abandoned: Counter,
    lost: [Counter; 2],
    /// In the order of [`REASONS`].
    terminal: [Counter; 4],
    letters: [Counter; 4],
    /// In the order of [`OUTCOMES`].
    durations: [Histogram; 6],
    /// By the kind of the error, from its first occurrence on. There are no more than have a
    /// series.
    exceptions: Mutex<BTreeMap<String, Counter>>,
}

const REASONS: [FailureReason; 4] = [
    FailureReason::RetryTerminal,
    FailureReason::Rejected,
    FailureReason::MaxDeliveries,
    FailureReason::Expired,
];
const OUTCOMES: [&str; 6] = ["acked", "retried", "snoozed", "terminal", "lease_lost", "abandoned"];
pub(in crate::telemetry) const PHASES: [&str; 2] = ["terminal", "retry"];

fn place(reason: FailureReason) -> usize {
    REASONS.iter().position(|one| *one == reason).unwrap_or_default()
}

impl Meters {
    pub(in crate::telemetry) fn of(subscriber: &'static str, queues: &[Arc<str>]) -> Option<Self> {
        let mut meters = None;
        safely(|| {
            describe();
            name_queues(queues.iter().map(|queue| &**queue));
            meters = Some(Self::new(subscriber, queues));
        });
        meters
    }

    fn new(subscriber: &'static str, queues: &[Arc<str>]) -> Self {
        let first = queues.first().map_or("", |queue| &**queue);
        let of_all = |metric| counter(metric, &[("queue", first), ("subscriber", subscriber)]);
        let fetches = ["false", "true"].map(|non_empty| {
            let labels = [("queue", first), ("subscriber", subscriber), ("non_empty", non_empty)];
            counter(&FETCHES, &labels)
        });
        Self {
            subscriber,
            fetches,
            fetched: of_all(&FETCHED),
            waited_too_long: of_all(&WAITED_TOO_LONG),
            drain_timeouts: of_all(&DRAIN_TIMEOUTS),
            queues: queues.iter().map(|queue| OfQueue::new(queue, subscriber)).collect(),
        }
    }

    pub(in crate::telemetry) fn fetched(&self, count: usize) {
        safely(|| {
            self.fetches[usize::from(count > 0)].increment(1);
            self.fetched.increment(count as u64);
        });
    }

    pub(in crate::telemetry) fn waited_too_long(&self) {
        safely(|| self.waited_too_long.increment(1));
    }

    pub(in crate::telemetry) fn drain_timeout(&self) {
        safely(|| self.drain_timeouts.increment(1));
    }

    pub(in crate::telemetry) fn dispatched(
        &self,
        report: &Report,
        wait: Duration,
        size_bytes: usize,
    ) {
        let Some(of) = self.queues.get(report.queue) else { return };
        safely(|| {
            of.dispatched.increment(1);
            of.size.record(size_bytes as f64);
            of.wait.record(wait.as_secs_f64());
            of.in_process.increment(1.0);
        });
    }

    pub(in crate::telemetry) fn failed_after_ack(&self, queue: usize, exception_type: &str) {
        let Some(of) = self.queues.get(queue) else { return };
        safely(|| of.exception(self.subscriber, exception_type));
    }

    pub(in crate::telemetry) fn closed(&self, report: &Report, how: Close) {
        let Some(of) = self.queues.get(report.queue) else { return };
        safely(|| {
            if report.started.is_some() {
                of.in_process.decrement(1.0);
            }
            let outcome = of.count(how);
            if let Some(ran) = report.duration {
                of.durations[outcome].record(ran.as_secs_f64());
            }
            let failed = match how {
                // The handler had acked before it failed.
                Close::Acked => false,
                // An error that puts its message off is no failure. But no other metric tells of a
                // database that begins no transactions.
                Close::Snoozed { .. } => report.put_off,
                _ => true,
            };
            if let Some(kind) = report.exception_type.as_deref().filter(|_| failed) {
                of.exception(self.subscriber, kind);
            }
        });
    }
}

impl OfQueue {
    fn new(name: &Arc<str>, subscriber: &'static str) -> Self {
        let labels = [("queue", &**name), ("subscriber", subscriber)];
        let with = |label, value| [labels[0], labels[1], (label, value)];
        let by_reason = |metric: &Metric| {
            REASONS.map(|reason| counter(metric, &with("reason", reason.as_str())))
        };
        // It is counted elsewhere, where there is no subscriber at hand. It has a value from the
        // start all the same.
        counter(&LEASE_EXTENSION_FAILURES, &labels).increment(0);
        Self {
            name: Arc::clone(name),
            dispatched: counter(&DISPATCHED, &labels),
            size: histogram(&RECEIVED_SIZE, &labels),
            wait: histogram(&WAIT, &labels),
            in_process: gauge(&IN_PROCESS, &labels),
            acked: counter(&ACKED, &labels),
            retried: counter(&RETRIED, &labels),
            delay: histogram(&RETRY_DELAY, &labels),
            snoozed: counter(&SNOOZED, &labels),
            abandoned: counter(&ABANDONED, &labels),
            lost: PHASES.map(|phase| counter(&LEASE_LOST, &with("phase", phase))),
            terminal: by_reason(&TERMINAL),
            letters: by_reason(&DEAD_LETTERS_WRITTEN),
            durations: OUTCOMES.map(|outcome| histogram(&DURATION, &with("outcome", outcome))),
            exceptions: Mutex::default(),
        }
    }

    fn exception(&self, subscriber: &str, kind: &str) {
        let mut known = self.exceptions.locked();
        if let Some(counter) = known.get(kind) {
            return counter.increment(1);
        }
        let kind = bounded_kind(kind);
        let labels = [("queue", &*self.name), ("subscriber", subscriber), ("exception_type", kind)];
        let first = || counter(&EXCEPTIONS, &labels);
        known.entry(kind.to_owned()).or_insert_with(first).increment(1);
    }

    /// Counts an outcome, and returns its place in [`OUTCOMES`].
    fn count(&self, how: Close) -> usize {
        let (counter, outcome) = match how {
            Close::Acked => (&self.acked, 0),
            Close::Retried { next_delay } => {
                self.delay.record(next_delay.as_secs_f64());
                (&self.retried, 1)
            }
            Close::Snoozed { .. } => (&self.snoozed, 2),
            Close::Terminal { reason, dead_letter } => {
                if dead_letter {
                    self.letters[place(reason)].increment(1);
                }
                (&self.terminal[place(reason)], 3)
            }
            Close::LeaseLost { retry, .. } => (&self.lost[usize::from(retry)], 4),
            Close::Abandoned => (&self.abandoned, 5),
        };
        counter.increment(1);
        outcome
    }
}
