//! The running half on real databases: what wakes it, what it does when the
//! database or a connection fails, who owns a row.

mod away;
mod batches;
mod blocking;
mod clock;
mod commits;
mod ending;
mod endless;
mod lanes;
mod large;
mod late;
mod leases;
mod listener;
mod locked;
mod missed;
mod pauses;
mod poison;
mod refused;
mod settle;
mod sleepers;
mod unknown;
mod wakes;

use std::time::Duration;

use outbox::Subscriber;
use outbox_tests::probe::{self, Probe};

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A subscriber that polls once an hour, and looks after no lease sooner: what it
/// handles, it was woken for.
fn asleep((subscriber, probe): (Subscriber, Probe)) -> (Subscriber, Probe) {
    (subscriber.min_poll(HOUR).max_poll(HOUR).lease_ttl(HOUR), probe)
}

/// Its runs end at once.
fn free(queue: &'static str) -> (Subscriber, Probe) {
    asleep(probe::free(queue, queue))
}

/// Its runs wait for permits.
fn gated(queue: &'static str) -> (Subscriber, Probe) {
    asleep(probe::gated(queue, queue))
}
