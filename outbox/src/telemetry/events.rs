//! The events of REFERENCE: each a structured log line, without a payload, a
//! header value or the text of an error.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::names::{TARGET, event};
use super::stats::Counters;
use crate::message::FailureReason;
use crate::publish::PublishError;

pub(crate) fn fetched(queue: &str, subscriber: &str, count: usize) {
    debug!(target: TARGET, event = event::FETCHED, queue, subscriber, count);
}

/// Of a subscriber whose handlers still run.
pub(crate) fn drain_timeout(queue: &str, subscriber: &str, handlers: usize, limit: Duration) {
    warn!(
        target: TARGET, event = event::DRAIN_TIMEOUT, queue, subscriber, handlers,
        drain_timeout_seconds = limit.as_secs_f64(),
        "handlers still run when the drain's time is over; their messages come back"
    );
}

const LOST: &str = "the lease was over before the result was written; the message runs again";
const UNKNOWN: &str =
    "no answer tells whether the result was written; if it was not, the message runs again";

/// A publish under way.
pub(crate) struct PublishEvent {
    queue: String,
    size_bytes: usize,
    started: Instant,
}

impl PublishEvent {
    pub(crate) fn start(queue: &str, size_bytes: usize) -> Self {
        // A name that is refused for its length is not repeated in full.
        let queue = queue.chars().take(255).collect();
        Self { queue, size_bytes, started: Instant::now() }
    }

    /// Rows written, or the error. The caller's transaction may still roll back.
    pub(crate) fn end(self, result: Result<usize, &PublishError>) {
        let exception_type = result.err().map(PublishError::kind);
        let (status, count) = result.map_or(("error", 0), |count| ("success", count));
        debug!(
            target: TARGET, event = event::PUBLISHED, queue = self.queue, status, count,
            size_bytes = self.size_bytes, duration_seconds = self.started.elapsed().as_secs_f64(),
            exception_type
        );
    }
}

/// A delivery, for its events and the counts of its subscriber.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) id: i64,
    /// Its place among those of the subscriber.
    pub(crate) queue: usize,
    pub(crate) deliveries_count: u64,
    /// When it was dispatched; `None` when it was judged without being run.
    pub(crate) started: Option<Instant>,
    /// How long the run took, once it is over.
    pub(crate) duration: Option<Duration>,
    pub(crate) exception_type: Option<String>,
}

/// What closes a delivery, after the write it reports.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Close {
    Acked,
    Retried {
        next_delay: Duration,
    },
    Terminal {
        reason: FailureReason,
        dead_letter: bool,
    },
    Snoozed {
        next_delay: Duration,
    },
    /// The row belongs to another claim, or the write never landed.
    LeaseLost {
        retry: bool,
        unknown: bool,
    },
    Abandoned,
}

impl Report {
    pub(crate) fn dispatched(&mut self, now: Instant, size_bytes: usize, counters: &Counters) {
        self.started = Some(now);
        counters.dispatched();
        debug!(
            target: TARGET, event = event::DISPATCHED, queue = counters.queue(self.queue),
            subscriber = counters.name(), row_id = self.id,
            deliveries_count = self.deliveries_count, size_bytes
        );
    }

    pub(crate) fn ended(&mut self) {
        self.duration = self.started.map(|started| started.elapsed());
    }

    pub(crate) fn close(&self, how: Close, counters: &Counters) {
        counters.closed(how, self.duration);
        let Self { id: row_id, deliveries_count, .. } = self;
        let (queue, subscriber) = (counters.queue(self.queue), counters.name());
        let duration_seconds = self.duration.map(|duration| duration.as_secs_f64());
        let exception_type = self.exception_type.as_deref();
        match how {
            Close::Acked => debug!(
                target: TARGET, event = event::ACKED, queue, subscriber, row_id, deliveries_count,
                duration_seconds
            ),
            Close::Retried { next_delay } => info!(
                target: TARGET, event = event::NACKED_RETRIED, queue, subscriber, row_id,
                deliveries_count, duration_seconds, exception_type,
                next_delay_seconds = next_delay.as_secs_f64()
            ),
            Close::Snoozed { next_delay } => debug!(
                target: TARGET, event = event::SNOOZED, queue, subscriber, row_id,
                deliveries_count, duration_seconds, next_delay_seconds = next_delay.as_secs_f64()
            ),
            Close::Terminal { reason, dead_letter } => {
                let reason = reason.as_str();
                error!(
                    target: TARGET, event = event::NACKED_TERMINAL, queue, subscriber, row_id,
                    deliveries_count, duration_seconds, exception_type, reason
                );
                if dead_letter {
                    info!(
                        target: TARGET, event = event::DLQ_WRITTEN, queue, subscriber, row_id,
                        deliveries_count, exception_type, failure_reason = reason
                    );
                }
            }
            Close::LeaseLost { retry, unknown } => {
                let why = if unknown { UNKNOWN } else { LOST };
                warn!(
                    target: TARGET, event = event::LEASE_LOST, queue, subscriber, row_id,
                    deliveries_count, duration_seconds, phase = if retry { "retry" } else { "terminal" },
                    unknown, "{why}"
                );
            }
            Close::Abandoned => warn!(
                target: TARGET, event = event::DISPATCH_ABANDONED, queue, subscriber, row_id,
                deliveries_count, duration_seconds
            ),
        }
    }
}
