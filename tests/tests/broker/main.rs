//! What a handler's author may rely on, shown on the `TestBroker`: the real
//! engine over rows in memory, on a clock that stands still.

mod batch_publish;
mod batch_threads;
mod batches;
mod codecs;
mod collected;
mod dead_letters;
mod delays;
mod deliveries;
mod driving;
mod exceptions;
mod expired;
mod extractors;
mod hostile;
mod layers;
mod of_app;
mod panics;
mod payloads;
mod policies;
mod results;
mod retries;
mod threads;
mod timeouts;
mod tracking;
mod verdicts;

use std::time::Duration;

use outbox::testing::{Ending, TestBroker};
use outbox::{DeadLetter, Outcome, Subscriber};

const SECOND: Duration = Duration::from_secs(1);

/// A subscriber `it` of the queue `q` whose handler returns what `word` makes.
fn it<T, F>(word: F) -> Subscriber
where
    T: outbox::IntoOutcome + Send + 'static,
    F: Fn() -> T + Send + Sync + 'static,
{
    let word = std::sync::Arc::new(word);
    Subscriber::new("it", "q", move |_| {
        let word = std::sync::Arc::clone(&word);
        async move { word() }
    })
}

/// Publishes one message to `q` and returns the broker with how the first run
/// of `it` ended.
async fn first_ending(subscriber: Subscriber) -> (TestBroker, Ending) {
    let broker = TestBroker::with([subscriber]);
    broker.publish("q", &7).await.unwrap();
    let ending = broker.calls("it")[0].ending.clone();
    (broker, ending)
}

fn only_letter(broker: &TestBroker) -> DeadLetter {
    let mut letters = broker.dlq_rows();
    assert_eq!(letters.len(), 1);
    assert!(broker.rows().is_empty(), "a dead letter's row is gone");
    letters.remove(0)
}

/// How often `it` ran.
fn runs(broker: &TestBroker) -> usize {
    broker.calls("it").len()
}

fn failing() -> Result<Outcome, &'static str> {
    Err("no stock")
}
