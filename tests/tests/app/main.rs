//! Real apps on PostgreSQL and SQLite.

mod child;
mod connections;
mod dead_letters;
mod drain;
mod drain_limits;
mod from_env;
mod hooks;
mod launch;
mod mistakes;
mod names;
mod ping;
mod policies;
mod python;
mod signals;
mod stats;
mod workers;

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
