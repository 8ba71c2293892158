//! Where a message comes from: the chain of publishes that led to it, the piece of work that it
//! belongs to, and the trace that goes through both.

use std::fmt::Write as _;
use std::future::Future;

use uuid::Uuid;

use crate::extract::Context;
use crate::message::Headers;
use crate::message::headers::{TRACEPARENT, TRACESTATE, TRACKING_IDS, Text, is_inherited};
use crate::telemetry::Trace;

/// How many ids a chain keeps: the first, which names where it began, and the last ones. Only
/// messages that publish each other for ever have a longer chain.
const MAX_IDS: usize = 32;

tokio::task_local! {
    static CURRENT: Source;
}

/// Where the trail comes from. A delivery makes its trail on demand: most handlers publish
/// nothing.
#[derive(Clone)]
enum Source {
    Scope(Box<Trail>),
    Delivery(Context),
}

/// What a message published now inherits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trail {
    ids: Vec<Uuid>,
    correlation_id: Option<String>,
    trace: Option<Trace>,
    /// The `traceparent` of the message that is being handled.
    inbound: Option<String>,
    of_message: bool,
}

/// Runs a future whose publishes share a first tracking id: the id of the request or job for
/// which they are made.
///
/// Every publish has a tracking id of its own. Inside a handler the ids of the message that is
/// being handled come before it. The chain of ids is in the header `outbox-tracking-ids`. A chain
/// of more than 32 ids keeps the first one and the last 31.
///
/// # Examples
/// ```no_run
/// # async fn request(tx: &mut sqlx::PgTransaction<'_>) -> Result<(), outbox::PublishError> {
/// outbox::tracking(async {
///     println!("request {}", outbox::tracking_ids()[0]);
///     outbox::publish(tx, "orders", &7).await?;
///     outbox::publish(tx, "mails", &7).await
/// })
/// .await?;
/// # Ok(()) }
/// ```
/// A task that is spawned inside does not inherit the ids. What a handler
/// [collects](crate::Publisher::collect) inside is published with the ack, and has the ids of the
/// message alone.
///
/// # Cancel safety
/// As cancel safe as the future, which is dropped with the call.
pub async fn tracking<F: Future>(future: F) -> F::Output {
    let mut trail = Trail::current();
    trail.ids.push(Uuid::now_v7());
    CURRENT.scope(Source::Scope(Box::new(trail)), future).await
}

/// The tracking ids that a message published here would have before its own: those of the message
/// that is being handled, and of [`tracking`].
///
/// A run of several messages, as in a handler of batches, has no ids of a message. There the
/// `context` of each item has the ids of its message.
#[must_use]
pub fn tracking_ids() -> Vec<Uuid> {
    Trail::current().ids
}

/// Runs a handler. What it publishes comes from its delivery. The run of a batch has no trail,
/// because each delivery has its own.
pub(crate) fn handling<F: Future>(
    deliveries: &[Context],
    run: F,
) -> impl Future<Output = F::Output> + use<F> {
    let source = match deliveries {
        [one] => Source::Delivery(one.clone()),
        _ => Source::Scope(Box::default()),
    };
    CURRENT.scope(source, run)
}

/// Lets a fn that goes to another thread run as if it were here.
pub(crate) fn carried<T>(run: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let source = CURRENT.try_with(Source::clone);
    move || match source {
        Ok(source) => CURRENT.sync_scope(source, run),
        Err(_) => run(),
    }
}

impl Trail {
    pub(crate) fn current() -> Self {
        let read = |source: &Source| match source {
            Source::Scope(trail) => Trail::clone(trail),
            Source::Delivery(delivery) => delivery.trail().clone(),
        };
        CURRENT.try_with(read).unwrap_or_default()
    }

    /// Whether it is the trail of one message that is being handled, or of a scope inside.
    pub(crate) fn is_of_message(&self) -> bool {
        self.of_message
    }

    /// The trail of a scope in a batch or in a task, as it goes on from one message.
    pub(crate) fn after(self, message: &Self) -> Self {
        let mut trail = message.clone();
        trail.ids.extend(self.ids);
        trail
    }

    /// The trail of a message that is being handled. What its handler publishes is its child.
    pub(crate) fn of(headers: &Headers, correlation_id: String) -> Self {
        let trace = Trace::read(headers).map(Trace::child);
        let inbound = trace.as_ref().and_then(|_| headers.get(TRACEPARENT)).map(str::to_owned);
        let correlation_id = Some(correlation_id).filter(|id| is_inherited(id));
        Self { ids: ids(headers), correlation_id, trace, inbound, of_message: true }
    }

    pub(crate) fn correlation_id(&self) -> Option<&str> {
        self.correlation_id.as_deref()
    }

    /// The place of the message that is being handled, as its headers have it. The parent in
    /// `trace` is no span: it is made up for where there are none.
    pub(crate) fn inbound(&self) -> Option<Trace> {
        self.trace.as_ref()?.before(self.inbound.as_deref()?)
    }

    /// Takes the trace out of headers that were copied from the message that is being handled: a
    /// new message goes on from it with its own.
    pub(crate) fn takes_back(&self, headers: &mut Headers) {
        if self.inbound.is_some() && self.inbound.as_deref() == headers.get(TRACEPARENT) {
            headers.remove(TRACEPARENT);
            headers.remove(TRACESTATE);
        }
    }

    /// Writes the headers of a message with this id, in the trace of the span in which it was
    /// published, if there is one. Headers that it has already are the publisher's own, and stay.
    pub(crate) fn sign(&self, headers: &Headers, text: &mut Text, id: Uuid, span: Option<&Trace>) {
        if headers.value(TRACKING_IDS).is_none() {
            text.push(TRACKING_IDS, &self.chain(id));
        }
        if let Some(trace) = span.or(self.trace.as_ref()) {
            trace.sign(headers, text);
        }
    }

    /// The ids so far and the new one, separated by commas.
    fn chain(&self, new: Uuid) -> String {
        let mut chain = String::with_capacity(37 * (self.ids.len().min(MAX_IDS) + 1));
        let cut = (self.ids.len() + 1).saturating_sub(MAX_IDS);
        for (at, id) in self.ids.iter().enumerate() {
            if at == 0 || at > cut {
                let _ = write!(chain, "{id},");
            }
        }
        let _ = write!(chain, "{new}");
        chain
    }
}

/// The ids in the header. Whatever is no id is left out.
pub(crate) fn ids(headers: &Headers) -> Vec<Uuid> {
    let text = headers.get(TRACKING_IDS).unwrap_or_default();
    text.split(',').take(2 * MAX_IDS).filter_map(|id| id.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::headers::{TRACEPARENT, TRACESTATE};
    use crate::{Outgoing, Publisher};

    fn signed(trail: &Trail) -> Headers {
        let mut text = Text::of(&Headers::new());
        trail.sign(&Headers::new(), &mut text, Uuid::now_v7(), None);
        Headers::from_json(text.end().ok().as_deref().map(str::as_bytes)).unwrap()
    }

    #[test]
    fn a_chain_grows_by_one_id_a_publish_and_keeps_its_first() {
        let mut headers = signed(&Trail::default());
        let first = ids(&headers)[0];
        for length in 2..100 {
            headers = signed(&Trail::of(&headers, "c".into()));
            let chain = ids(&headers);
            assert_eq!(chain.len(), length.min(32));
            assert_eq!(chain[0], first);
            assert!(chain.is_sorted(), "version 7 grows");
        }
    }

    #[test]
    fn a_trace_goes_on_with_a_new_parent() {
        let mut headers = Headers::new();
        let trace = "0af7651916cd43dd8448eb211c80319c";
        headers.insert(TRACEPARENT, format!("00-{trace}-b7ad6b7169203331-01"));
        headers.insert(TRACESTATE, "vendor=1");
        let next = signed(&Trail::of(&headers, "c".into()));
        let parent = next.get(TRACEPARENT).unwrap();
        assert!(parent.starts_with(&format!("00-{trace}-")) && parent.ends_with("-01"));
        assert_ne!(headers.get(TRACEPARENT), next.get(TRACEPARENT));
        assert_eq!(next.get(TRACESTATE), Some("vendor=1"));
        for wrong in ["", "00-x-y-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            headers.insert(TRACEPARENT, wrong);
            assert_eq!(signed(&Trail::of(&headers, "c".into())).get(TRACEPARENT), None);
        }
    }

    #[test]
    fn headers_copied_from_a_message_go_on_in_its_trace_and_a_span_of_its_own_stays() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let parent = format!("00-{trace}-b7ad6b7169203331-01");
        let own = format!("00-{trace}-00f067aa0ba902b7-01");
        let mut headers: Headers =
            [(TRACEPARENT, parent.clone()), (TRACESTATE, "vendor=1".into())].into_iter().collect();
        // Messages of other programs have no chain.
        for chain in [None, Some(Uuid::now_v7())] {
            if let Some(id) = chain {
                headers.insert(TRACKING_IDS, id.to_string());
            }
            let copied = || Outgoing::new("next", &7).headers(&headers);
            let messages = vec![copied(), copied().header(TRACEPARENT, own.as_str())];
            let trail = Trail::of(&headers, "c".into());
            let prepared = Publisher::default().prepare(messages, &trail).unwrap();
            let spans = prepared.iter().map(|one| {
                let headers = Headers::from_json(Some(one.headers.as_bytes())).unwrap();
                assert_eq!(headers.get(TRACESTATE), Some("vendor=1"));
                headers.get(TRACEPARENT).unwrap().to_owned()
            });
            let spans: Vec<_> = spans.collect();
            assert!(spans[0].contains(trace) && spans[0] != parent, "{spans:?}");
            assert_eq!(spans[1], own);
        }
    }
}
