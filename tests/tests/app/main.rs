//! Real apps on PostgreSQL and SQLite.

mod connections;
mod dead_letters;
mod drain;
mod from_env;
mod handling;
mod hooks;
mod launch;
mod leases;
mod names;
mod ping;
mod postgres_only;
mod wakes;
mod workers;

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
