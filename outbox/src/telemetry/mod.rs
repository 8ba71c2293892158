//! What the process tells: events and spans through `tracing`, with names from
//! one file.

mod events;
mod names;
#[cfg(feature = "opentelemetry")]
mod otel;
mod span;
mod trace;

pub(crate) use events::{Close, PublishEvent, Report, drain_timeout, fetched};
pub(crate) use names::TARGET;
pub(crate) use span::RunSpan;
pub(crate) use trace::Trace;
