//! What a recorder is told, one value an event.

use std::sync::Arc;
use std::time::Duration;

use super::names::{event, told};
use crate::message::FailureReason;

/// What the process tells of its work, as it happens. There is no payload in it, no
/// header value and no text of an error.
///
/// Each delivery has one [`Dispatched`](Self::Dispatched) and then exactly one of
/// `Acked`, `Retried`, `Terminal`, `Snoozed`, `LeaseLost` or `Abandoned`, after the write
/// that it reports has landed. A row whose time or deliveries are used up is `Terminal`
/// without having been dispatched.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A claim was answered, possibly with no rows.
    #[non_exhaustive]
    Fetched {
        /// The first queue of the subscriber.
        queue: Arc<str>,
        /// Its name.
        subscriber: &'static str,
        /// Rows.
        count: usize,
    },
    /// A handler is about to run.
    #[non_exhaustive]
    Dispatched {
        /// Of which row.
        delivery: Delivery,
        /// Bytes of the payload.
        size_bytes: usize,
        /// Since the row was due: until its claim by the database's clock, from there on by
        /// that of this process.
        wait: Duration,
    },
    /// The row is deleted as handled.
    #[non_exhaustive]
    Acked {
        /// Of which row.
        delivery: Delivery,
        /// How long the handler ran.
        duration: Option<Duration>,
    },
    /// The row is due again, an attempt spent.
    #[non_exhaustive]
    Retried {
        /// Of which row.
        delivery: Delivery,
        /// How long the handler ran.
        duration: Option<Duration>,
        /// Until the next attempt.
        next_delay: Duration,
        /// The kind of the error; `None` where there was none.
        exception_type: Option<Arc<str>>,
    },
    /// The row is gone for good.
    #[non_exhaustive]
    Terminal {
        /// Of which row.
        delivery: Delivery,
        /// How long the handler ran; `None` if it did not.
        duration: Option<Duration>,
        /// Why.
        reason: FailureReason,
        /// The kind of the error; `None` where there was none.
        exception_type: Option<Arc<str>>,
    },
    /// With a terminal failure: the dead letter is written.
    #[non_exhaustive]
    DeadLetterWritten {
        /// Of which row.
        delivery: Delivery,
        /// Why.
        reason: FailureReason,
        /// The kind of the error; `None` where there was none.
        exception_type: Option<Arc<str>>,
    },
    /// The row is due again, nothing spent.
    #[non_exhaustive]
    Snoozed {
        /// Of which row.
        delivery: Delivery,
        /// How long the handler ran.
        duration: Option<Duration>,
        /// Until it is due.
        next_delay: Duration,
    },
    /// Another claim owns the row, or its write never landed.
    #[non_exhaustive]
    LeaseLost {
        /// Of which row.
        delivery: Delivery,
        /// How long the handler ran.
        duration: Option<Duration>,
        /// What was to be written: `retry`, of a snooze too, or `terminal`, of an ack too.
        phase: &'static str,
        /// True when an earlier try without an answer may have landed.
        unknown: bool,
    },
    /// The drain's time was over before the handler ended.
    #[non_exhaustive]
    Abandoned {
        /// Of which row.
        delivery: Delivery,
        /// How long the handler ran.
        duration: Option<Duration>,
    },
    /// A claimed row was given back unstarted: less than a third of its lease was left when a
    /// worker had time for it, or for as long as a lease there was no thread for a plain fn.
    #[non_exhaustive]
    WaitedTooLong {
        /// The first queue of the subscriber.
        queue: Arc<str>,
        /// Its name.
        subscriber: &'static str,
    },
    /// Handlers were still running when the drain's time was over.
    #[non_exhaustive]
    DrainTimeout {
        /// The first queue of the subscriber.
        queue: Arc<str>,
        /// Its name.
        subscriber: &'static str,
        /// How many; each message of a batch counts.
        handlers: usize,
        /// How long the drain waited.
        limit: Duration,
    },
    /// Messages were put into a transaction of the caller, which may still roll back; or
    /// those that handlers returned were written with their acks.
    #[non_exhaustive]
    Published {
        /// The queue. Of a batch each queue has an event; one that was refused has a single
        /// event, for the queue of its first message.
        queue: Arc<str>,
        /// Rows that were inserted, or put off if they are named timers.
        count: usize,
        /// Bytes of the payloads.
        size_bytes: usize,
        /// How long it took.
        duration: Duration,
        /// Why no row was written: the name of a variant of
        /// [`PublishError`](crate::PublishError).
        exception_type: Option<&'static str>,
    },
    /// Leases of running handlers could not be extended. Of an attempt for several, each
    /// queue of a subscriber has an event.
    #[non_exhaustive]
    LeaseExtensionFailed {
        /// The queue of the rows.
        queue: Arc<str>,
        /// The name of the subscriber.
        subscriber: &'static str,
        /// How many.
        leases: usize,
    },
    /// Wakes arrive, or do not: then polling finds the messages.
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
    /// The identity of the row.
    pub row_id: i64,
    /// Claims so far, this one included, without those given back unstarted, snoozed or
    /// put off.
    pub deliveries_count: u64,
}

impl Event {
    /// Its name, as it stands in the field `event` of log lines; those of `WaitedTooLong`,
    /// `LeaseExtensionFailed` and `Listener` have no such field.
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

    /// The delivery that it is about, if it is one.
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
