//! A condition on the fn holds for what is generated as well.
#![deny(warnings)]
#![allow(clippy::non_minimal_cfg, reason = "the shortest condition that always holds")]

use outbox::subscriber;

#[subscriber("never")]
#[cfg(any())]
async fn confirm(_: Missing) {}

#[subscriber("always")]
#[cfg(all())]
async fn confirm(_: u64) {}

#[cfg(any())]
#[subscriber("never")]
async fn other(_: Missing) {}

pub(super) fn main() {
    assert_eq!(confirm::subscriber().queues(), ["always"]);
}
