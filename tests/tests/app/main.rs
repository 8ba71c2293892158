//! Real apps on PostgreSQL and SQLite.

mod hooks;
mod launch;
mod ping;

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
