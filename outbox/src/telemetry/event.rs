//! What a recorder is told: one value for each event.

use std::sync::Arc;
use std::time::Duration;

use super::names::{event, told};
use crate::message::FailureReason;

/// What the process tells about its work, as it happens. An event has no payload, no header value
/// and no text of an error.
///
/// Each delivery has one [`Dispatched`](Self::Dispatched). After that it has exactly one of
/// `Acked`, `Retried`, `Terminal`, `Snoozed`, `LeaseLost` or `Abandoned`, told once the write
/// that it reports has landed. A row whose time or deliveries are used up is `Terminal` without
/// having been dispatched.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A claim was answered, possibly with no rows.
    #[non_exhaustive]
    Fetched {
        /// The first queue of the subscriber.
        queue: Arc<str>,
        /// The name of the subscriber.
        subscriber: &'static str,
        /// How many rows it got.
        count: usize,
    },
    /// A handler is about to run.
    #[non_exhaustive]
    Dispatched {
        /// The delivery.
        delivery: Delivery,
        /// Bytes of the payload.
        size_bytes: usize,
        /// How long the row has been due: up to its claim by the database's clock, and from
        /// there on by the clock of this process.
        wait: Duration,
    },
    /// The row is deleted as handled.
    #[non_exhaustive]
    Acked {
        /// The delivery.
        delivery: Delivery,
        /// How long the handler ran.
        duration: Option<Duration>,
    },
    /// The row is due again, with an attempt spent.
    #[non_exhaustive]
    Retried {
        /// The delivery.
        delivery: Delivery,
        /// How long the handler ran.
        duration: Option<Duration>,
        /// How long until the next attempt.
        next_delay: Duration,
        /// The kind of the error; `None` if there was none.
        exception_type: Option<Arc<str>>,
    },
    /// The row is gone for good.
    #[non_exhaustive]
    Terminal {
        /// The delivery.
        delivery: Delivery,
        /// How long the handler ran; `None` if it did not.
        duration: Option<Duration>,
        /// Why it failed for good.
        reason: FailureReason,
        /// The kind of the error; `None` if there was none.
        exception_type: Option<Arc<str>>,
    },
    /// A dead letter is written. Comes with a terminal failure.
    #[non_exhaustive]
    DeadLetterWritten {
        /// The delivery.
        delivery: Delivery,
        /// Why it failed for good.
        reason: FailureReason,
        /// The kind of the error; `None` if there was none.
        exception_type: Option<Arc<str>>,
    },
    /// The row is due again, with nothing spent.
    #[non_exhaustive]
    Snoozed {
        /// The delivery.
        delivery: Delivery,
        /// How long the handler ran.
        duration: Option<Duration>,
        /// How long until the row is due.
        next_delay: Duration,
    },
    /// Another claim owns the row, or its write never landed.
    #[non_exhaustive]
    LeaseLost {
        /// The delivery.
        delivery: Delivery,
        /// How long the handler ran.
        duration: Option<Duration>,
        /// What was to be written: `retry` (also for a snooze) or `terminal` (also for an ack).
        phase: &'static str,
        /// True if an earlier try, which had no answer, may have landed.
        unknown: bool,
    },
    /// The drain's time was over before the handler ended.
    #[non_exhaustive]
    Abandoned {
        /// The delivery.
        delivery: Delivery,
        /// How long the handler ran.
        duration: Option<Duration>,
    },
    /// A claimed row was given back unstarted. Either no worker could start it before less than a
    /// third of its lease was left, or a plain fn got no thread for as long as a lease.
    #[non_exhaustive]
    WaitedTooLong {
        /// The first queue of the subscriber.
        queue: Arc<str>,
        /// The name of the subscriber.
        subscriber: &'static str,
    },
    /// Handlers were still running when the drain's time was over.
    #[non_exhaustive]
    DrainTimeout {
        /// The first queue of the subscriber.
        queue: Arc<str>,
        /// The name of the subscriber.
        subscriber: &'static str,
        /// How many handlers. Each message of a batch counts.
        handlers: usize,
        /// How long the drain waited.
        limit: Duration,
    },
    /// Messages were put into a transaction of the caller, which may still roll back. Or the
    /// messages of handlers were written with their acks.
    #[non_exhaustive]
    Published {
        /// The queue. A batch has an event for each of its queues. A batch that was refused has
        /// one event, for the queue of its first message.
        queue: Arc<str>,
        /// Rows that were inserted, or were moved if they are named timers.
        count: usize,
        /// Bytes of the payloads.
        size_bytes: usize,
        /// How long publishing took.
        duration: Duration,
        /// Why no row was written: the name of a variant of
        /// [`PublishError`](crate::PublishError).
        exception_type: Option<&'static str>,
    },
    /// Leases of running handlers could not be extended. An attempt for several leases has an
    /// event for each queue of a subscriber.
    #[non_exhaustive]
    LeaseExtensionFailed {
        /// The queue of the rows.
        queue: Arc<str>,
        /// The name of the subscriber.
        subscriber: &'static str,
        /// How many leases.
        leases: usize,
    },
    /// Wakes arrive, or no longer do. Without them polling finds the messages.
    #[non_exhaustive]
    Listener {
        /// Whether they arrive.
        up: bool,
    },
}

/// Which delivery an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// The queue of the row.
    pub queue: Arc<str>,
    /// The name of the subscriber.
    pub subscriber: &'static str,
    /// The id of the row.
    pub row_id: i64,
    /// How often the row has been claimed, this claim included. Claims that were given back
    /// unstarted, snoozed or put off do not count.
    pub deliveries_count: u64,
}

impl Event {
    /// The name of the event, as in the field `event` of log lines. The log lines of
    /// `WaitedTooLong`, `LeaseExtensionFailed` and `Listener` have no such field.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fetched { .. } => event::FETCHED,
            Self::Dispatched { .. } => event::DISPATCHED,
            Self::Acked { .. } => event::ACKED,
            Self::Retried { .. } => event::NACKED_RETRIED,
            Self::Terminal { .. } => event::NACKED_TERMINAL,
            Self::DeadLetterWritten { .. } => event::DLQ_WRITTEN,
            Self::Snoozed { .. } => event::SNOOZED,
            Self::LeaseLost { .. } => event::LEASE_LOST,
            Self::Abandoned { .. } => event::DISPATCH_ABANDONED,
            Self::WaitedTooLong { .. } => told::WAITED_TOO_LONG,
            Self::DrainTimeout { .. } => event::DRAIN_TIMEOUT,
            Self::Published { .. } => event::PUBLISHED,
            Self::LeaseExtensionFailed { .. } => told::LEASE_EXTENSION_FAILED,
            Self::Listener { .. } => told::LISTENER,
        }
    }

    /// The delivery that the event is about, if it is about one.
    #[must_use]
    pub fn delivery(&self) -> Option<&Delivery> {
        match self {
            Self::Dispatched { delivery, .. }
            | Self::Acked { delivery, .. }
            | Self::Retried { delivery, .. }
            | Self::Terminal { delivery, .. }
            | Self::DeadLetterWritten { delivery, .. }
            | Self::Snoozed { delivery, .. }
            | Self::LeaseLost { delivery, .. }
            | Self::Abandoned { delivery, .. } => Some(delivery),
            _ => None,
        }
    }
}
