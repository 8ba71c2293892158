//! What the process tells: events through `tracing`, with names from one file, and
//! counters.

mod events;
mod names;
mod stats;

pub(crate) use events::{Close, PublishEvent, Report, drain_timeout, fetched};
pub(crate) use names::TARGET;
pub(crate) use stats::Counters;
pub use stats::{Stats, SubscriberStats};
