//! Any headers: refused with a word, or read by the handler as they were published; those
//! of this crate too, with whatever is in them.

use std::sync::{Arc, Mutex};

use outbox::retry::NoRetry;
use outbox::testing::TestBroker;
use outbox::{Context, Error, Headers, Outgoing, Subscriber};
use serde_json::{Map, Value};

/// Read as JSON. What is no object becomes the text of each header that means something.
pub fn target(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let headers = serde_json::from_str::<Map<String, Value>>(&text).unwrap_or_else(|_| {
        let own = [
            "outbox-tracking-ids",
            "outbox-expires-in",
            "outbox-original-id",
            "outbox-replays",
            "outbox-letter",
            "traceparent",
            "tracestate",
            "correlation_id",
        ];
        own.map(|name| (name.to_owned(), text.clone().into())).into_iter().collect()
    });
    let seen = Arc::<Mutex<Option<Headers>>>::default();
    let inner = Arc::clone(&seen);
    let read = move |context: Context| {
        let headers = context.headers();
        let _ = (headers.replays(), headers.original_id(), headers.letter_id());
        drop((context.correlation_id(), context.tracking_ids()));
        *inner.lock().unwrap() = Some(headers.clone());
        std::future::ready(())
    };
    let broker = TestBroker::with([Subscriber::new("reads", "q", read).retry(NoRetry)]);
    let mut message = Outgoing::new("q", &7);
    for (name, value) in &headers {
        message = message.header(name, value.clone());
    }
    match super::run(broker.publish_with(message)) {
        Ok(_) => assert!(broker.rows().is_empty()),
        Err(Error::Publish(_)) => return assert!(broker.rows().is_empty()),
        Err(other) => panic!("{other}"),
    }
    // One that expired has not been run.
    let Some(seen) = seen.lock().unwrap().take() else {
        return assert_eq!(broker.dlq_rows().len(), 1);
    };
    let added =
        ["outbox-tracking-ids", "content-type", "correlation_id", "traceparent", "tracestate"];
    for (name, value) in headers.iter().filter(|(name, _)| !added.contains(&name.as_str())) {
        assert_eq!(seen.value(name), Some(value), "{name}");
    }
}
