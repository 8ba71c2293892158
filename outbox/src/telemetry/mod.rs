//! What the process tells about its work, and to whom.
//!
#![doc = include_str!("../docs/telemetry.md")]

mod event;
mod events;
#[cfg(feature = "metrics")]
mod facade;
pub(crate) mod log;
mod names;
#[cfg(feature = "otel")]
mod otel;
mod publishing;
mod recorder;
mod span;
mod stats;
mod tell;
mod told;
mod trace;

pub use event::{Delivery, Event};
pub(crate) use events::{Close, PublishEvent, Report};
#[cfg(feature = "metrics")]
pub use facade::name_queues;
pub(crate) use log::{debug, error, info, warn};
pub(crate) use names::TARGET;
#[cfg(feature = "metrics")]
pub use names::metric::{METRICS, Metric, MetricKind};
pub(crate) use publishing::PublishSpan;
pub use recorder::Recorder;
pub(crate) use recorder::Sinks;
pub(crate) use span::RunSpan;
pub use stats::{Stats, SubscriberStats};
pub(crate) use tell::Teller;
pub(crate) use trace::Trace;

#[cfg(test)]
mod cost;
