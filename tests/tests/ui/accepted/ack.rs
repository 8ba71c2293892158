//! The acknowledgement policies, by name and by path.
#![deny(warnings)]

use outbox::{AckPolicy, subscriber};

#[subscriber("q", ack = RejectOnError)]
async fn reject(_: u64) {}

#[subscriber("q", ack = AckFirst)]
async fn first(_: u64) {}

#[subscriber("q", ack = AckPolicy::Manual)]
async fn manual(_: u64) {}

#[subscriber("q", ack = outbox::AckPolicy::NackOnError)]
async fn nack(_: u64) {}

#[subscriber("q", ack = policy())]
async fn computed(_: u64) {}

fn policy() -> AckPolicy {
    AckPolicy::default()
}

pub(super) fn main() {}
