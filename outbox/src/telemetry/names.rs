//! Every name that leaves the process in logs, traces and metrics: events, spans, their
//! fields, the targets, metrics and their labels.

#[cfg(feature = "metrics")]
pub(super) mod metric;

/// The `tracing` target of all events.
pub(crate) const TARGET: &str = "outbox";
/// That of the spans around handlers, which can so be switched off alone.
pub(crate) const HANDLER: &str = "outbox::handler";
/// That of the spans of publishing.
#[cfg(feature = "otel")]
pub(crate) const PUBLISHER: &str = "outbox::publisher";

/// The span around a run of a handler, also what the conventions of OpenTelemetry
/// for messaging call the operation.
pub(crate) const PROCESS: &str = "process";
/// The span around a publish.
#[cfg(feature = "otel")]
pub(crate) const PUBLISH: &str = "publish";
/// That of a message which is published later, with the ack.
#[cfg(feature = "otel")]
pub(crate) const CREATE: &str = "create";

/// The fields of the span, by the same conventions.
pub(super) mod field {
    pub(in crate::telemetry) const DESTINATION: &str = "messaging.destination.name";
    pub(in crate::telemetry) const MESSAGE_ID: &str = "messaging.message.id";
    /// Of a run over several messages, which have no id in common.
    pub(in crate::telemetry) const BATCH_COUNT: &str = "messaging.batch.message_count";
    /// Which try it is, from 1; the conventions have no name for it.
    pub(in crate::telemetry) const ATTEMPT: &str = "outbox.attempt";
    #[cfg(feature = "otel")]
    pub(in crate::telemetry) const BODY_SIZE: &str = "messaging.message.body.size";
    pub(in crate::telemetry) const SUBSCRIBER: &str = "messaging.consumer.group.name";
    pub(in crate::telemetry) const SYSTEM: &str = "messaging.system";
    pub(in crate::telemetry) const OPERATION: &str = "messaging.operation.name";
    pub(in crate::telemetry) const OPERATION_TYPE: &str = "messaging.operation.type";
    /// The kind of an error, never its text.
    pub(in crate::telemetry) const ERROR: &str = "error.type";
    // What `tracing-opentelemetry` reads.
    pub(in crate::telemetry) const NAME: &str = "otel.name";
    pub(in crate::telemetry) const KIND: &str = "otel.kind";
    pub(in crate::telemetry) const STATUS: &str = "otel.status_code";
}

/// What recorders are told beside the events.
pub(super) mod told {
    pub(in crate::telemetry) const WAITED_TOO_LONG: &str = "waited_too_long";
    pub(in crate::telemetry) const LEASE_EXTENSION_FAILED: &str = "lease_extension_failed";
    pub(in crate::telemetry) const LISTENER: &str = "listener";
}

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
