//! Log lines that end nothing. A subscriber of `tracing` may panic: `fmt` does where it can write
//! neither a line nor why it could not, as on a full disk. No loop of the engine is to end by that.
//!
//! These are the macros of `tracing`, for all that the library logs. They have names of their own
//! first, because an attribute of the language is called `warn`.

use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) fn quietly(line: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(line));
}

macro_rules! log_error {
    ($($line:tt)*) => { $crate::telemetry::log::quietly(|| tracing::error!($($line)*)) };
}

macro_rules! log_warn {
    ($($line:tt)*) => { $crate::telemetry::log::quietly(|| tracing::warn!($($line)*)) };
}

macro_rules! log_info {
    ($($line:tt)*) => { $crate::telemetry::log::quietly(|| tracing::info!($($line)*)) };
}

macro_rules! log_debug {
    ($($line:tt)*) => { $crate::telemetry::log::quietly(|| tracing::debug!($($line)*)) };
}

pub(crate) use {log_debug as debug, log_error as error, log_info as info, log_warn as warn};
