//! What is told about each delivery. Each event is a structured log line, without a payload, a
//! header value or the text of an error.

use std::borrow::Cow;
use std::time::Duration;

use tokio::time::Instant;

use super::Teller;
use super::names::{TARGET, event};
use super::recorder::Sinks;
use crate::message::FailureReason;
use crate::publish::{MAX_NAME_CHARS, PublishError};
use crate::telemetry::{debug, error, info, warn};

const LOST: &str = "the lease was over before the result was written, or the result was refused; \
                    the message runs again";
const UNKNOWN: &str =
    "no answer tells whether the result was written; if it was not, the message runs again";

/// A publish under way.
pub(crate) struct PublishEvent {
    queue: String,
    size_bytes: usize,
    started: Instant,
}

/// The name of a queue as it is told: one that is refused because of its length is not repeated in
/// full.
pub(super) fn cut(queue: &str) -> &str {
    // Most have less bytes than others may have characters.
    let longer = || queue.char_indices().nth(MAX_NAME_CHARS);
    if queue.len() <= MAX_NAME_CHARS {
        queue
    } else {
        longer().map_or(queue, |(end, _)| &queue[..end])
    }
}

impl PublishEvent {
    pub(crate) fn start(queue: &str, size_bytes: usize) -> Self {
        Self { queue: cut(queue).to_owned(), size_bytes, started: Instant::now() }
    }

    /// Another publish that began at the same time.
    pub(crate) fn of(&self, queue: String, size_bytes: usize) -> Self {
        Self { queue, size_bytes, started: self.started }
    }

    /// Ends it with the rows that were written, or the error. The caller's transaction may still
    /// roll back.
    pub(crate) fn end(self, result: Result<usize, &PublishError>, sinks: &Sinks) {
        let Self { queue, size_bytes, started } = self;
        let duration = started.elapsed();
        let exception_type = result.err().map(PublishError::kind);
        let (status, count) = result.map_or(("error", 0), |count| ("success", count));
        debug!(
            target: TARGET, event = event::PUBLISHED, queue, status, count,
            size_bytes, duration_seconds = duration.as_secs_f64(), exception_type
        );
        sinks.published(&queue, count, size_bytes, duration, exception_type);
    }
}

/// A delivery, for its events and the counts of its subscriber.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) id: i64,
    /// The place of its queue among the queues of the subscriber.
    pub(crate) queue: usize,
    pub(crate) deliveries_count: u64,
    /// When it was dispatched. `None` if it was judged without a run.
    pub(crate) started: Option<Instant>,
    /// How long the run took, once it is over.
    pub(crate) duration: Option<Duration>,
    pub(crate) exception_type: Option<Cow<'static, str>>,
    /// The database did not begin or did not commit its transaction.
    pub(crate) put_off: bool,
}

/// What closes a delivery, after the write that it reports.
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

impl Close {
    /// What was to be written, if the lease was lost.
    pub(super) fn phase(self) -> &'static str {
        match self {
            Self::LeaseLost { retry: true, .. } => "retry",
            _ => "terminal",
        }
    }
}

impl Report {
    /// The delivery starts. `wait` is how long its row has been due.
    pub(crate) fn dispatched(
        &mut self,
        now: Instant,
        wait: Duration,
        size_bytes: usize,
        teller: &Teller,
    ) {
        self.started = Some(now);
        teller.dispatched(self, wait, size_bytes);
        debug!(
            target: TARGET, event = event::DISPATCHED, queue = teller.queue(self.queue),
            subscriber = teller.name(), row_id = self.id,
            deliveries_count = self.deliveries_count, size_bytes,
            wait_seconds = wait.as_secs_f64()
        );
    }

    pub(crate) fn ended(&mut self) {
        self.duration = self.started.map(|started| started.elapsed());
    }

    pub(crate) fn close(&self, how: Close, teller: &Teller) {
        teller.closed(self, how);
        let Self { id: row_id, deliveries_count, .. } = self;
        let (queue, subscriber) = (teller.queue(self.queue), teller.name());
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
            Close::LeaseLost { unknown, .. } => {
                let why = if unknown { UNKNOWN } else { LOST };
                warn!(
                    target: TARGET, event = event::LEASE_LOST, queue, subscriber, row_id,
                    deliveries_count, duration_seconds, phase = how.phase(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_name_that_is_too_long_the_first_characters_are_told() {
        for (name, told) in [("q", 255), ("q", 256), ("é", 200), ("é", 255), ("é", 300)] {
            let (name, told) = (name.repeat(told), told.min(255));
            assert_eq!(cut(&name).chars().count(), told);
            assert!(name.starts_with(cut(&name)));
        }
    }
}
