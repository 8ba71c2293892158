//! Real apps on PostgreSQL and SQLite.

mod child;
mod drain;
mod drain_limits;
mod from_env;
mod hooks;
mod launch;
mod ping;
mod signals;

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
