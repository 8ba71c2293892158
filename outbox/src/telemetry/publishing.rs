//! The span around a publish. The runs of its messages are children of it.

use std::future::Future;

use super::Trace;
use crate::publish::PublishError;
#[cfg(feature = "otel")]
use {
    super::names::{CREATE, PUBLISH, PUBLISHER, field},
    super::{events::cut, otel, span::Name},
    tracing::field::{Empty, display},
    tracing::{Instrument, Level, Span, span},
};

/// A publish under way. Without the feature `otel` there is no span.
pub(crate) struct PublishSpan {
    #[cfg(feature = "otel")]
    span: Span,
}

#[cfg(not(feature = "otel"))]
impl PublishSpan {
    pub(crate) fn of_one(_: &str, _: usize, _: impl FnOnce() -> Option<Trace>) -> Self {
        Self {}
    }

    pub(crate) fn of_batch<'a>(
        _: impl ExactSizeIterator<Item = &'a str>,
        _: impl FnOnce() -> Option<Trace>,
    ) -> Self {
        Self {}
    }

    pub(crate) fn created(_: &str, _: usize, _: impl FnOnce() -> Option<Trace>) -> Option<Trace> {
        None
    }

    #[allow(clippy::unused_self, reason = "the same with and without the feature")]
    pub(crate) fn trace(&self) -> Option<Trace> {
        None
    }

    #[allow(clippy::unused_self, reason = "the same with and without the feature")]
    pub(crate) fn around<F: Future>(&self, insert: F) -> F {
        insert
    }

    #[allow(clippy::unused_self, reason = "the same with and without the feature")]
    pub(crate) fn end(self, _: Result<Option<i64>, &PublishError>) {}
}

/// What the span says about the messages.
#[cfg(feature = "otel")]
#[derive(Clone, Copy)]
struct What<'a> {
    /// `None` for a batch with several queues.
    queue: Option<&'a str>,
    /// Present for one message.
    size: Option<usize>,
    /// Present for a batch.
    count: Option<usize>,
}

/// Makes the span of an operation. `span!` wants a constant as the name.
#[cfg(feature = "otel")]
macro_rules! producer {
    ($operation:ident, $kind:expr, $what:expr) => {{
        let What { queue, size, count } = $what;
        span!(
            target: PUBLISHER,
            Level::INFO,
            $operation,
            { field::DESTINATION } = queue.map(cut),
            { field::MESSAGE_ID } = Empty,
            // OpenTelemetry has no unsigned numbers: it would turn one into a text.
            { field::BATCH_COUNT } = count.map(signed),
            { field::BODY_SIZE } = size.map(signed),
            { field::SYSTEM } = "outbox",
            { field::OPERATION } = $operation,
            { field::OPERATION_TYPE } = $kind,
            { field::NAME } = display(Name($operation, queue.map(cut))),
            { field::KIND } = "producer",
            { field::STATUS } = Empty,
            { field::ERROR } = Empty,
        )
    }};
}

#[cfg(feature = "otel")]
impl PublishSpan {
    /// The span of a message, with the place of the message that is being handled.
    pub(crate) fn of_one(
        queue: &str,
        size: usize,
        inbound: impl FnOnce() -> Option<Trace>,
    ) -> Self {
        Self::publish(What { queue: Some(queue), size: Some(size), count: None }, inbound)
    }

    /// The span of messages for these queues.
    pub(crate) fn of_batch<'a>(
        mut queues: impl ExactSizeIterator<Item = &'a str>,
        inbound: impl FnOnce() -> Option<Trace>,
    ) -> Self {
        let count = Some(queues.len());
        let first = queues.next();
        let queue = first.filter(|first| queues.all(|queue| queue == *first));
        Self::publish(What { queue, size: None, count }, inbound)
    }

    fn publish(what: What<'_>, inbound: impl FnOnce() -> Option<Trace>) -> Self {
        // By the conventions, the type of an operation that publishes is `send`.
        let span = producer!(PUBLISH, "send", what);
        otel::begin(&span, inbound);
        Self { span }
    }

    /// The place in a trace of a message that is published later, with the ack.
    pub(crate) fn created(
        queue: &str,
        size: usize,
        inbound: impl FnOnce() -> Option<Trace>,
    ) -> Option<Trace> {
        let what = What { queue: Some(queue), size: Some(size), count: None };
        let span = producer!(CREATE, CREATE, what);
        otel::begin(&span, inbound);
        otel::place(&span)
    }

    /// The parent of its messages in the trace.
    pub(crate) fn trace(&self) -> Option<Trace> {
        otel::place(&self.span)
    }

    /// Runs a statement in the span.
    pub(crate) fn around<F: Future>(&self, insert: F) -> impl Future<Output = F::Output> {
        insert.instrument(self.span.clone())
    }

    /// Ends the span, with the id of the row if it is a single one.
    pub(crate) fn end(self, result: Result<Option<i64>, &PublishError>) {
        match result {
            Ok(Some(id)) => {
                self.span.record(field::MESSAGE_ID, display(id));
            }
            Ok(None) => {}
            Err(error) => {
                self.span.record(field::STATUS, "ERROR");
                self.span.record(field::ERROR, error.kind());
            }
        }
    }
}

#[cfg(feature = "otel")]
fn signed(number: usize) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
