//! Every name that leaves the process in logs, traces and metrics: events, spans and their fields,
//! targets, metrics and their labels.

#[cfg(feature = "metrics")]
pub(super) mod metric;

/// The `tracing` target of all events.
pub(crate) const TARGET: &str = "outbox";
/// The target of the spans around handlers. So they can be switched off alone.
pub(crate) const HANDLER: &str = "outbox::handler";
/// The target of the spans of publishing.
#[cfg(feature = "otel")]
pub(crate) const PUBLISHER: &str = "outbox::publisher";

/// The span around a run of a handler. The conventions of OpenTelemetry for messaging also call
/// the operation so.
pub(crate) const PROCESS: &str = "process";
/// The span around a publish.
#[cfg(feature = "otel")]
pub(crate) const PUBLISH: &str = "publish";
/// The span of a message that is published later, with the ack.
#[cfg(feature = "otel")]
pub(crate) const CREATE: &str = "create";

/// The fields of spans, by the same conventions.
pub(super) mod field {
    pub(in crate::telemetry) const DESTINATION: &str = "messaging.destination.name";
    pub(in crate::telemetry) const MESSAGE_ID: &str = "messaging.message.id";
    /// For a run of several messages, which have no id in common.
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

/// What recorders are told besides the events.
pub(super) mod told {
    pub(in crate::telemetry) const WAITED_TOO_LONG: &str = "waited_too_long";
    pub(in crate::telemetry) const LEASE_EXTENSION_FAILED: &str = "lease_extension_failed";
    pub(in crate::telemetry) const LISTENER: &str = "listener";
}

/// The events. What each means stands at [`Event`](super::Event).
pub(crate) mod event {
    pub(crate) const FETCHED: &str = "fetched";
    pub(crate) const DISPATCHED: &str = "dispatched";
    pub(crate) const ACKED: &str = "acked";
    pub(crate) const NACKED_RETRIED: &str = "nacked_retried";
    pub(crate) const NACKED_TERMINAL: &str = "nacked_terminal";
    pub(crate) const SNOOZED: &str = "snoozed";
    pub(crate) const LEASE_LOST: &str = "lease_lost";
    pub(crate) const DISPATCH_ABANDONED: &str = "dispatch_abandoned";
    pub(crate) const DLQ_WRITTEN: &str = "dlq_written";
    pub(crate) const DRAIN_TIMEOUT: &str = "drain_timeout";
    pub(crate) const PUBLISHED: &str = "published";
}
