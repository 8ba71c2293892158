//! Between the headers of messages and the spans of OpenTelemetry.
//!
//! By the conventions for messaging, the span of a run of one message may be the child of the span
//! that published the message. A run of several messages has links instead: a span can be the
//! child of only one span.

use std::str::FromStr;

use opentelemetry::Context as Otel;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::Trace;
use crate::extract::Context;

/// Goes on with the traces of the messages. Call it before the span is entered: afterwards its
/// parent is fixed.
pub(super) fn follow(span: &Span, deliveries: &[Context]) {
    let remote = |delivery: &Context| Trace::read(delivery.headers())?.remote();
    match deliveries {
        [one] => {
            let parent = remote(one).map(|remote| Otel::new().with_remote_span_context(remote));
            // Refused when no tracer wants the span: then there is none to continue.
            let _ = parent.map(|parent| span.set_parent(parent));
        }
        several => several.iter().filter_map(remote).for_each(|remote| span.add_link(remote)),
    }
}

/// Makes a span the child of the current span that was made without `tracing`, unless it is inside
/// a span of `tracing`. Outside of both it goes on from the message that is being handled: spans of
/// runs may be switched off, and a task that a handler starts is in none. Call it before the span is
/// entered.
pub(super) fn begin(span: &Span, inbound: impl FnOnce() -> Option<Trace>) {
    let is_valid = |context: &Otel| context.span().span_context().is_valid();
    if span.is_disabled() || is_valid(&Span::current().context()) {
        return;
    }
    let current = Otel::current();
    let parent = if is_valid(&current) {
        Some(current)
    } else {
        let remote = inbound().and_then(|inbound| inbound.remote());
        remote.map(|remote| Otel::new().with_remote_span_context(remote))
    };
    // Refused when no tracer wants the span: then there is none to continue.
    let _ = parent.map(|parent| span.set_parent(parent));
}

/// The place of this span in its trace, if a tracer has the span. Otherwise the place of the
/// current span, or of the current span that was made without `tracing`.
pub(super) fn place(span: &Span) -> Option<Trace> {
    let of = |context: Otel| Trace::at(context.span().span_context());
    let own = if span.is_disabled() { None } else { of(span.context()) };
    own.or_else(|| of(Span::current().context())).or_else(|| of(Otel::current()))
}

impl Trace {
    fn at(span: &SpanContext) -> Option<Self> {
        span.is_valid().then(|| Self {
            id: span.trace_id().to_string(),
            parent: span.span_id().to_string(),
            flags: format!("{:02x}", span.trace_flags() & TraceFlags::SAMPLED),
            state: Some(span.trace_state().header()).filter(|state| !state.is_empty()),
        })
    }

    fn remote(&self) -> Option<SpanContext> {
        let flags = TraceFlags::new(u8::from_str_radix(&self.flags, 16).ok()?);
        let state = self.state.as_deref().map(TraceState::from_str);
        Some(SpanContext::new(
            TraceId::from_hex(&self.id).ok()?,
            SpanId::from_hex(&self.parent).ok()?,
            flags & TraceFlags::SAMPLED,
            true,
            state.and_then(Result::ok).unwrap_or_default(),
        ))
    }
}
