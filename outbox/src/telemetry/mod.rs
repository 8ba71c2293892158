//! What the process tells: events through `tracing`, with names from one file.

mod events;
mod names;

pub(crate) use events::{Close, PublishEvent, Report, drain_timeout, fetched};
pub(crate) use names::TARGET;
