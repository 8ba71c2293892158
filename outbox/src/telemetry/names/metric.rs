//! Every metric: its name, kind, unit and labels, and what it says.

/// A metric of this crate, as an exporter of the `metrics` crate gets it.
///
/// Its labels have few values:
/// - queues that this process reads, or that were given to
///   [`name_queues`](crate::telemetry::name_queues); all others are `other`
/// - the names of subscribers
/// - words of this crate
/// - the first fifty kinds of errors
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The name, as Prometheus has it.
    pub name: &'static str,
    /// The kind of metric.
    pub kind: MetricKind,
    /// The unit: `seconds`, `bytes` or `count`.
    pub unit: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by their size.
    Histogram,
}

macro_rules! metrics {
    ($($constant:ident: $kind:ident $unit:ident $name:literal [$($label:literal),*] $help:literal)*) => {
        $(pub(in crate::telemetry) const $constant: Metric = Metric {
            name: $name,
            kind: MetricKind::$kind,
            unit: stringify!($unit),
            labels: &[$($label),*],
            help: $help,
        };)*

        /// All metrics of this crate.
        pub const METRICS: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    FETCHES: Counter count "outbox_fetches_total" ["queue", "subscriber", "non_empty"]
        "Claims that were answered, by whether they got rows."
    FETCHED: Counter count "outbox_fetched_messages_total" ["queue", "subscriber"]
        "Rows that claims got."
    DISPATCHED: Counter count "outbox_dispatched_total" ["queue", "subscriber"]
        "Deliveries that were given to a handler."
    RECEIVED_SIZE: Histogram bytes "outbox_received_size_bytes" ["queue", "subscriber"]
        "Payloads of deliveries."
    WAIT: Histogram seconds "outbox_wait_seconds" ["queue", "subscriber"]
        "How long rows had been due when their handlers started."
    IN_PROCESS: Gauge count "outbox_in_process" ["queue", "subscriber"]
        "Deliveries between their dispatch and the write that closes them."
    ACKED: Counter count "outbox_acked_total" ["queue", "subscriber"]
        "Rows deleted as handled."
    RETRIED: Counter count "outbox_retried_total" ["queue", "subscriber"]
        "Rows due again, an attempt spent."
    RETRY_DELAY: Histogram seconds "outbox_retry_delay_seconds" ["queue", "subscriber"]
        "How long the retry strategy puts rows off."
    SNOOZED: Counter count "outbox_snoozed_total" ["queue", "subscriber"]
        "Rows due again, nothing spent."
    TERMINAL: Counter count "outbox_terminal_total" ["queue", "subscriber", "reason"]
        "Rows gone for good."
    DEAD_LETTERS_WRITTEN: Counter count "outbox_dead_letters_written_total" ["queue", "subscriber", "reason"]
        "Dead letters written."
    LEASE_LOST: Counter count "outbox_lease_lost_total" ["queue", "subscriber", "phase"]
        "Results that were not written, or not surely, because the lease was over."
    ABANDONED: Counter count "outbox_dispatch_abandoned_total" ["queue", "subscriber"]
        "Handlers without a result that a drain dropped because its time was over."
    DURATION: Histogram seconds "outbox_process_duration_seconds" ["queue", "subscriber", "outcome"]
        "How long handlers ran, by what became of the delivery."
    EXCEPTIONS: Counter count "outbox_exceptions_total" ["queue", "subscriber", "exception_type"]
        "Errors that failed a message, and transactions that did not begin or commit, by their kind."
    WAITED_TOO_LONG: Counter count "outbox_waited_too_long_total" ["queue", "subscriber"]
        "Claimed rows given back unstarted, because too little of their leases was left or no thread was free."
    DRAIN_TIMEOUTS: Counter count "outbox_drain_timeout_total" ["queue", "subscriber"]
        "Drains whose time was over before every handler had ended."
    LEASE_EXTENSION_FAILURES: Counter count "outbox_lease_extension_failures_total" ["queue", "subscriber"]
        "Leases of running handlers that an attempt did not extend; it is repeated while they last."
    PUBLISHED: Counter count "outbox_published_messages_total" ["queue"]
        "Rows published, counted before the caller's commit."
    PUBLISHES: Counter count "outbox_publishes_total" ["queue", "status"]
        "Calls to publish, by whether they did, and statements that published with acks."
    PUBLISH_DURATION: Histogram seconds "outbox_publish_duration_seconds" ["queue"]
        "How long calls to publish took, failed ones too, and statements that published with acks."
    PUBLISH_SIZE: Histogram bytes "outbox_published_size_bytes" ["queue"]
        "Payloads of a call to publish, of a failed one too, or of a statement that published with acks."
    PUBLISH_EXCEPTIONS: Counter count "outbox_publish_exceptions_total" ["queue", "exception_type"]
        "Calls that could not publish, by the error."
    LISTENER_UP: Gauge count "outbox_listener_up" []
        "1 while wakes arrive, 0 while polling has to find the messages."
    RECORDER_DROPPED: Counter count "outbox_recorder_dropped_total" []
        "Events that recorders were too slow for."
    RECORDER_PANICS: Counter count "outbox_recorder_panics_total" []
        "Events at which a recorder panicked."
    BACKLOG: Gauge count "outbox_backlog" ["queue"]
        "Rows in the table, leased ones too; 10,000 means at least so many."
    DUE: Gauge count "outbox_due" ["queue"]
        "Rows that wait for a handler and are due, among the first 10,000."
    LEASED: Gauge count "outbox_leased" ["queue"]
        "Rows that a process holds, or held until it died, among the first 10,000."
    OLDEST_AGE: Gauge seconds "outbox_oldest_age_seconds" ["queue"]
        "How long the oldest waiting row has been due, among the first 10,000."
    DEAD_LETTERS: Gauge count "outbox_dead_letters" ["queue"]
        "Dead letters that nobody has dealt with; 10,000 means at least so many."
    NOTIFY_QUEUE_USAGE: Gauge count "outbox_notify_queue_usage" []
        "How full the queue of notifications of the PostgreSQL server is, from 0 to 1."
}
