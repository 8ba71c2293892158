//! Faults at every point of every flow, one after the other: what random faults meet
//! once in a thousand runs is met here each time.

mod futures;
mod postgres;
mod sqlite;

use std::time::Duration;

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(600);
