//! The span around a run: what it says, what is in it, and how it ends.

use std::time::Duration;

use opentelemetry::trace::Status;
use outbox::testing::TestBroker;
use outbox::{AckPolicy, Context, OrVerdict, Outcome, Outgoing, Subscriber, subscriber};

use super::*;

#[tokio::test]
async fn a_line_of_a_handler_is_in_a_span_with_the_queue_and_the_row() {
    let packs = Subscriber::new("packs", "spans: orders", |_| async {
        tracing::info!("packed");
    });
    let broker = TestBroker::with([packs]);
    let (published, here) = request(broker.publish("spans: orders", &7)).await;
    let run = only(here.trace_id(), "process spans: orders");
    assert_eq!(run.events.iter().map(|event| &*event.name).collect::<Vec<_>>(), ["packed"]);
    let says = |name| attribute(&run, name).map(|value| value.to_string());
    let id = published.unwrap().id().unwrap().to_string();
    for (name, value) in [
        ("messaging.system", "outbox"),
        ("messaging.operation.name", "process"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "spans: orders"),
        ("messaging.consumer.group.name", "packs"),
        ("messaging.message.id", &*id),
        ("outbox.attempt", "1"),
        ("target", "outbox::handler"),
    ] {
        assert_eq!(says(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!((says("messaging.batch.message_count"), says("error.type")), (None, None));
    assert_eq!(run.status, Status::Unset);
}

#[subscriber("spans: thread")]
fn thread(n: u64, ctx: Context) {
    tracing::info!("on a thread");
    ctx.publisher().collect(Outgoing::new("spans: next", &n)).unwrap();
}

#[tokio::test]
async fn a_plain_fn_is_in_its_span_on_its_thread() {
    let broker = TestBroker::with([thread::subscriber()]);
    let (published, here) = request(broker.publish("spans: thread", &7)).await;
    published.unwrap();
    let run = only(here.trace_id(), "process spans: thread");
    assert!(run.events.iter().any(|event| event.name == "on a thread"));
    assert_eq!(published_in(&broker.rows()[0]), Some(traceparent(&run.span_context)));
}

#[tokio::test]
async fn a_handler_acked_first_has_its_span() {
    let first = Subscriber::new("first", "spans: first", |_| async {
        tracing::info!("it ran");
        Err::<(), _>("too late")
    });
    let broker = TestBroker::with([first.ack(AckPolicy::AckFirst)]);
    let (published, here) = request(broker.publish("spans: first", &7)).await;
    published.unwrap();
    let run = only(here.trace_id(), "process spans: first");
    assert_eq!(publisher_of(&run), here.span_id());
    assert!(run.events.iter().any(|event| event.name == "it ran"));
    assert_eq!(run.status, Status::error(""));
}

/// The status of the first run of a handler, and the kind of its error.
async fn ending(subscriber: Subscriber, queue: &str) -> (Status, Option<String>) {
    let broker = TestBroker::with([subscriber]);
    let (published, here) = request(broker.publish(queue, &7)).await;
    published.unwrap();
    let run = named(here.trace_id(), &format!("process {queue}")).remove(0);
    let kind = attribute(&run, "error.type").map(|kind| kind.to_string());
    (run.status, kind)
}

#[tokio::test]
async fn a_failed_run_says_so_with_the_kind_of_the_error() {
    let q = "spans: fails";
    let failed = |kind: &str| (Status::error(""), Some(kind.to_owned()));
    let error = Subscriber::new("error", q, |_| async { Err::<(), _>("secret".to_owned()) });
    assert_eq!(ending(error, q).await, failed("String"));
    let panic = Subscriber::new("panic", q, |ctx: Context| async move {
        assert!(ctx.attempts() > 0, "secret");
    });
    assert_eq!(ending(panic, q).await, failed("panic"));
    let slow = Subscriber::new("slow", q, |_| std::future::pending::<()>());
    assert_eq!(ending(slow.timeout(Duration::from_millis(5)), q).await, failed("timeout"));
}

#[tokio::test]
async fn a_message_that_is_put_off_or_rejected_by_a_word_is_no_error_of_the_handler() {
    let q = "spans: later";
    let fine = (Status::Unset, None);
    let hour = Duration::from_secs(3600);
    let word = Subscriber::new("word", q, move |_| async move { Outcome::Snooze(hour) });
    assert_eq!(ending(word, q).await, fine);
    let error = Subscriber::new("error", q, move |_| async move {
        Err::<(), _>(std::io::Error::other("closed")).or_snooze(hour)
    });
    assert_eq!(ending(error, q).await, fine);
    let reject = Subscriber::new("reject", q, |_| async { Outcome::reject("unknown") });
    assert_eq!(ending(reject, q).await, fine);
}
