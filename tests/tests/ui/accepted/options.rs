//! Every option with a literal, and literals that macros wrap into groups.
#![deny(warnings, missing_docs)]
#![forbid(unsafe_code)]

use outbox::subscriber;

/// A public handler.
#[subscriber(
    "orders",
    retry = Exponential(initial = "1s", max_attempts = 5),
    max_deliveries = 5,
    max_workers = 2,
    fetch_batch = 100,
    lease_ttl = "1m 30s",
    min_poll = "500ms",
    max_poll = "5m",
    ack = NackOnError,
    timeout = "1h",
)]
pub async fn confirm(_: u64) {}

pub(super) fn main() {
    assert_eq!(confirm::subscriber().queues(), ["orders"]);
    assert_eq!(confirm::subscriber().name(), "confirm");
}
