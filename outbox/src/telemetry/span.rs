//! The span around a run of a handler.

use std::fmt;

use tracing::field::Empty;
use tracing::{Level, Span, span};

use super::names::{HANDLER, PROCESS, field};
use crate::extract::Context;
use crate::subscriber::{HandlerError, HandlerResult, Verdict};

/// The `error.type` of a run that was dropped before its end: its lease is lost, or the drain's
/// time is over.
const CANCELLED: &str = "cancelled";

/// The span of a run, from before the handler is called until it has ended or is dropped.
pub(crate) struct RunSpan {
    span: Span,
    ended: bool,
}

impl RunSpan {
    pub(crate) fn start(deliveries: &[Context]) -> Self {
        let span = of(deliveries);
        #[cfg(feature = "otel")]
        if !span.is_disabled() {
            super::otel::follow(&span, deliveries);
        }
        Self { span, ended: false }
    }

    /// The span in which the handler runs.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Ends the span. `results` is `None` if the run was cut off.
    pub(crate) fn end(mut self, results: Option<&[HandlerResult]>) {
        let Some(results) = results else { return };
        self.ended = true;
        if !self.span.is_disabled()
            && let Some(error) = results.iter().find_map(failure)
        {
            self.failed(error.kind());
        }
    }

    fn failed(&self, kind: &str) {
        self.span.record(field::STATUS, "ERROR");
        self.span.record(field::ERROR, kind);
    }
}

impl Drop for RunSpan {
    fn drop(&mut self) {
        if !self.ended {
            self.failed(CANCELLED);
        }
    }
}

/// The error of a result that is a failure. Putting a message off is none.
fn failure(result: &HandlerResult) -> Option<&HandlerError> {
    let error = result.as_ref().err()?;
    (!matches!(error.verdict, Some(Verdict::Snooze(_)))).then_some(error)
}

/// Makes the span. It formats no value: the arguments of the macro are always evaluated, and in
/// most processes no `tracing` subscriber wants them.
fn of(deliveries: &[Context]) -> Span {
    let [first, others @ ..] = deliveries else { return Span::none() };
    let alone = others.is_empty();
    let queue = || others.iter().all(|one| one.queue() == first.queue()).then(|| first.queue());
    span!(
        target: HANDLER,
        // No parent on a `TestBroker` either, which runs handlers in the task that publishes.
        parent: None,
        Level::INFO,
        PROCESS,
        { field::DESTINATION } = queue(),
        { field::MESSAGE_ID } = alone.then(|| tracing::field::display(first.id())),
        // OpenTelemetry has no unsigned numbers: it would turn one into a text.
        { field::BATCH_COUNT } = (!alone).then(|| deliveries.len().try_into().unwrap_or(i64::MAX)),
        { field::ATTEMPT } = alone.then(|| attempt(first)),
        { field::SUBSCRIBER } = first.subscriber(),
        { field::SYSTEM } = "outbox",
        { field::OPERATION } = PROCESS,
        { field::OPERATION_TYPE } = PROCESS,
        { field::NAME } = tracing::field::display(Name(PROCESS, queue())),
        { field::KIND } = "consumer",
        { field::STATUS } = Empty,
        { field::ERROR } = Empty,
    )
}

fn attempt(delivery: &Context) -> i64 {
    i64::try_from(delivery.attempts()).unwrap_or(i64::MAX).saturating_add(1)
}

/// The name of the span by the conventions, with the queue if there is one.
pub(super) struct Name<'a>(pub(super) &'static str, pub(super) Option<&'a str>);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        self.1.map_or(Ok(()), |queue| write!(f, " {queue}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_listens_no_span_is_made_and_no_header_read() {
        let delivery = || Context::of_test(r#"{"traceparent": "garbage"}"#);
        let deliveries = [delivery(), delivery()];
        let run = RunSpan::start(&deliveries);
        assert!(run.span().is_disabled());
        run.end(Some(&[]));
        assert!(deliveries.iter().all(|one| one.delivery().headers.get().is_none()));
    }
}
