//! Panics, wherever they come from, and rejections of parameters.

use outbox::retry::NoRetry;
use outbox::{AckPolicy, BoxError, Context, FromContext, subscriber};

use super::*;

fn exception(broker: &TestBroker) -> (String, String) {
    let letter = only_letter(broker);
    (letter.error_kind.unwrap(), letter.last_exception.unwrap())
}

#[tokio::test]
async fn a_panic_with_a_text_keeps_it() {
    let (broker, _) = first_ending(it(|| -> () { panic!("a str") }).retry(NoRetry)).await;
    assert_eq!(exception(&broker), ("panic".into(), "\"a str\"".into()));
    let (broker, _) = first_ending(it(|| -> () { panic!("a {}", "String") }).retry(NoRetry)).await;
    assert_eq!(exception(&broker), ("panic".into(), "\"a String\"".into()));
}

#[tokio::test]
async fn a_panic_with_anything_else_is_a_failure_too() {
    let panicking = it(|| -> () { std::panic::panic_any(42_u64) });
    let (broker, _) = first_ending(panicking.retry(NoRetry)).await;
    let (kind, text) = exception(&broker);
    assert_eq!(kind, "panic");
    assert!(text.contains("something other than a text"), "{text}");
}

#[tokio::test]
async fn a_panic_before_the_first_await_of_the_handler_is_caught() {
    let subscriber =
        Subscriber::new("it", "q", |_| -> std::future::Ready<()> { panic!("no future") });
    let (broker, _) = first_ending(subscriber.retry(NoRetry)).await;
    assert_eq!(exception(&broker).1, "\"no future\"");
}

#[tokio::test]
async fn a_panic_does_not_keep_the_next_message_from_running() {
    let broker = TestBroker::with([it(|| -> () { panic!("again") }).retry(NoRetry)]);
    for _ in 0..3 {
        broker.publish("q", &7).await.unwrap();
    }
    assert_eq!(broker.dlq_rows().len(), 3);
}

/// Panics, or is rejected, as the message says.
struct Moody;

impl FromContext for Moody {
    type Rejection = BoxError;

    async fn from_context(context: &Context) -> Result<Self, BoxError> {
        match context.headers().get("mood") {
            Some("panic") => panic!("in the extractor"),
            Some("reject") => Err("not today".into()),
            _ => Ok(Moody),
        }
    }
}

#[subscriber("moody", retry = NoRetry)]
async fn moody(_: u64, _: Moody) {}

#[tokio::test]
async fn a_panic_in_an_extractor_is_a_panic_of_the_delivery() {
    let broker = TestBroker::with([moody::subscriber()]);
    let message = outbox::Outgoing::new("moody", &1).header("mood", "panic");
    broker.publish_with(message).await.unwrap();
    assert_eq!(exception(&broker), ("panic".into(), "\"in the extractor\"".into()));
}

#[tokio::test]
async fn a_rejection_is_a_failure_of_kind_extract() {
    let broker = TestBroker::with([moody::subscriber()]);
    let message = outbox::Outgoing::new("moody", &1).header("mood", "reject");
    broker.publish_with(message).await.unwrap();
    assert_eq!(exception(&broker), ("extract".into(), "\"not today\"".into()));
    broker.publish("moody", &1).await.unwrap();
    assert_eq!(broker.calls("moody").last().unwrap().ending, Ending::Acked);
}

/// A handler that panics when it is dropped before its end.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_while_it_is_dropped_still_ends_in_a_retry() {
    let subscriber = Subscriber::new("it", "q", |_| async {
        let _guard = PanicsWhenDropped;
        std::future::pending::<()>().await;
    });
    let (broker, ending) = first_ending(subscriber.timeout(SECOND).retry(NoRetry)).await;
    assert_eq!(ending, Ending::Terminal(outbox::FailureReason::RetryTerminal));
    assert_eq!(exception(&broker).0, "timeout");
}

#[derive(Debug)]
struct Bomb;

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

/// Two of them would end the process.
#[tokio::test(start_paused = true)]
async fn errors_that_panic_while_they_are_dropped_take_no_result_of_their_batch_with_them() {
    for thrown in [false, true] {
        let subscriber = Subscriber::batches("it", "q", 5, move |batch: Vec<Context>| async move {
            if thrown {
                std::panic::panic_any(Bomb);
            }
            let each = batch.iter().map(|one| one.decode::<u8>().unwrap());
            each.map(|n| if n < 3 { Err(Bomb) } else { Ok(()) }).collect::<Vec<_>>()
        });
        let broker = TestBroker::with([subscriber.batch_wait(SECOND).retry(NoRetry)]);
        broker.publish_batch((1..=5).map(|n| outbox::Outgoing::new("q", &n))).await.unwrap();
        let kinds: Vec<_> = broker.dlq_rows().into_iter().map(|it| it.error_kind).collect();
        let kind = |kind: &str| Some(kind.to_owned());
        let wanted = if thrown { vec![kind("panic"); 5] } else { vec![kind("Bomb"); 2] };
        assert_eq!((kinds, broker.rows().len()), (wanted, 0));
    }
}

/// Panics when it is told of a span of a run.
struct Fragile;

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Fragile {
    fn on_new_span(
        &self,
        span: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: tracing_subscriber::layer::Context<'_, S>,
    ) {
        assert_ne!(span.metadata().target(), "outbox::handler", "in a layer of tracing");
    }
}

#[tokio::test]
async fn a_layer_of_tracing_that_panics_at_the_span_of_a_run_fails_its_message() {
    use tracing_subscriber::layer::SubscriberExt as _;
    let _fragile = tracing::subscriber::set_default(tracing_subscriber::registry().with(Fragile));
    for (ack, letters) in [(AckPolicy::NackOnError, 1), (AckPolicy::AckFirst, 0)] {
        let broker = TestBroker::with([it(|| ()).retry(NoRetry).ack(ack)]);
        broker.publish("q", &7).await.unwrap();
        let stats = broker.stats().subscribers().remove(0);
        assert_eq!((stats.dispatched, stats.acked + stats.retry_terminal), (1, 1), "{ack:?}");
        assert_eq!((broker.rows().len(), broker.dlq_rows().len()), (0, letters), "{ack:?}");
    }
}
