//! What the process tells: events and spans through `tracing`, with names from
//! one file, and counters.

mod events;
mod names;
#[cfg(feature = "opentelemetry")]
mod otel;
mod span;
mod stats;
mod trace;

pub(crate) use events::{Close, PublishEvent, Report, drain_timeout, fetched};
pub(crate) use names::TARGET;
pub(crate) use span::RunSpan;
pub(crate) use stats::Counters;
pub use stats::{Stats, SubscriberStats};
pub(crate) use trace::Trace;
