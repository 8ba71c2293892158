//! Every option with an expression.
#![deny(warnings)]

use outbox::{AckPolicy, subscriber};
use std::time::Duration;

const QUEUES: [&str; 2] = ["orders", "payments"];
const WORKERS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);

#[subscriber(QUEUES, max_workers = WORKERS, fetch_batch = WORKERS * 2, max_deliveries = limit())]
async fn counts(_: u64) {}

#[subscriber([QUEUES[0], "b"], lease_ttl = PATIENCE * 12, min_poll = PATIENCE, timeout = PATIENCE)]
async fn durations(_: u64) {}

const POLICY: AckPolicy = AckPolicy::RejectOnError;

#[subscriber("policies", ack = POLICY)]
async fn policies(_: u64) {}

const PREFIX: &str = "shop.";

#[subscriber(PREFIX.to_owned() + "orders", publish = PREFIX.to_owned() + "mails")]
async fn sums(id: u64) -> u64 {
    id
}

fn limit() -> u64 {
    AckPolicy::default() as u64 + 5
}

pub(super) fn main() {
    assert_eq!(counts::subscriber().queues(), QUEUES);
    assert_eq!(durations::subscriber().queues(), ["orders", "b"]);
    assert_eq!(sums::subscriber().queues(), ["shop.orders"]);
}
