//! Bugs that a system like this one had, each as the promise it broke. The table
//! `traps.md` says for every one which test keeps it, here or elsewhere.

mod claims;
mod clients;
mod plans;
mod table;
mod told;

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
