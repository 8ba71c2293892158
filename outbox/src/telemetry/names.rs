//! Every name that leaves the process in logs: events, their fields, the
//! target.

/// The `tracing` target of all events.
pub(crate) const TARGET: &str = "outbox";

/// The events. Each delivery has one `dispatched` and then exactly one of those
/// marked *closes*, sent after the write it reports has landed.
pub(crate) mod event {
    /// A claim was answered, possibly with no rows.
    pub(crate) const FETCHED: &str = "fetched";
    /// A delivery starts: its handler is about to run. A row that was delivered too
    /// often is judged without one.
    pub(crate) const DISPATCHED: &str = "dispatched";
    /// The row is deleted as handled. *Closes.*
    pub(crate) const ACKED: &str = "acked";
    /// The row is due again, an attempt spent. *Closes.*
    pub(crate) const NACKED_RETRIED: &str = "nacked_retried";
    /// The row is gone for good, for a reason. *Closes.*
    pub(crate) const NACKED_TERMINAL: &str = "nacked_terminal";
    /// The row is due again, nothing spent. *Closes.*
    pub(crate) const SNOOZED: &str = "snoozed";
    /// Another claim owns the row, or its write never landed. *Closes.*
    pub(crate) const LEASE_LOST: &str = "lease_lost";
    /// The drain's time was over before the handler ended. *Closes.*
    pub(crate) const DISPATCH_ABANDONED: &str = "dispatch_abandoned";
    /// With a terminal failure: the dead letter is written.
    pub(crate) const DLQ_WRITTEN: &str = "dlq_written";
    /// Handlers were still running when the drain's time was over.
    pub(crate) const DRAIN_TIMEOUT: &str = "drain_timeout";
    /// A message was put into the caller's transaction, which may still roll back.
    pub(crate) const PUBLISHED: &str = "published";
}
