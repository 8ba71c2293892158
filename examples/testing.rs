//! Testing handlers: the real engine in memory, on a clock that the test moves.
//!
//! `cargo test --example testing` runs the tests; running the example shows one.

use outbox::prelude::*;
use outbox::testing::TestBroker;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
}

/// The mail server's last answer.
#[derive(Clone)]
struct Mailer(Result<(), &'static str>);

#[subscriber("orders", retry = Exponential(initial = "1m", max_attempts = 3))]
async fn confirm(order: Order, State(mailer): State<Mailer>) -> Result<(), String> {
    mailer.0.map_err(|why| format!("order {}: {why}", order.id))
}

#[tokio::main]
async fn main() -> outbox::Result<()> {
    let broker = TestBroker::with([confirm::subscriber()]).state(Mailer(Err("no route")));
    broker.publish("orders", &Order { id: 7 }).await?;
    broker.run_until_idle().await; // through every retry, without waiting

    let start = broker.calls("confirm")[0].at;
    for call in broker.calls("confirm") {
        let after = call.at.duration_since(start).unwrap_or_default();
        println!("attempt {} after {after:?}: {:?}", call.attempts + 1, call.ending);
    }
    let dead = &broker.dlq_rows()[0];
    println!("dead letter: {}: {}", dead.failure_reason, dead.last_exception.as_deref().unwrap());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox::testing::Ending;
    use outbox::{FailureReason, Outgoing};

    use super::*;

    #[tokio::test]
    async fn an_order_is_confirmed_at_once() {
        let broker = TestBroker::new().state(Mailer(Ok(()))); // every handler of the binary
        broker.publish("orders", &Order { id: 7 }).await.unwrap();
        assert_eq!(broker.calls("confirm")[0].ending, Ending::Acked);
        assert!(broker.rows().is_empty());
    }

    #[tokio::test]
    async fn an_order_that_cannot_be_confirmed_is_kept() {
        let broker = TestBroker::new().state(Mailer(Err("no route")));
        broker.publish("orders", &Order { id: 7 }).await.unwrap();
        assert_eq!(broker.calls("confirm")[0].ending, Ending::Retried(Duration::from_secs(60)));
        broker.run_until_idle().await;
        assert_eq!(broker.dlq_rows()[0].failure_reason, FailureReason::RetryTerminal);
    }

    #[tokio::test]
    async fn a_crash_delivers_again() {
        let broker = TestBroker::new().state(Mailer(Ok(())));
        broker.crash_next(1);
        let message = Outgoing::new("orders", &Order { id: 7 }).delay(Duration::from_secs(5));
        broker.publish_with(message).await.unwrap();
        broker.advance(Duration::from_secs(5)).await;
        broker.redeliver().await;
        let deliveries: Vec<_> = broker.calls("confirm").iter().map(|one| one.deliveries).collect();
        assert_eq!(deliveries, [1, 2]);
    }
}
