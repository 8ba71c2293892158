//! A handler of up to a hundred messages at once, each with its own outcome.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use outbox::prelude::*;
use outbox::testing::{Ending, TestBroker};
use outbox::{Batch, BatchOutcome, Item, Outgoing};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Click {
    page: String,
    millis: i64,
}

/// Pages and their clicks.
#[derive(Clone, Default)]
struct Statistics(Arc<Mutex<BTreeMap<String, usize>>>);

/// Takes the messages that are there, at most a hundred. With `batch_wait` it waits for more.
#[subscriber("clicks", batch = 100, retry = Constant("1m", max_attempts = 2))]
async fn count(clicks: Batch<Click>, State(statistics): State<Statistics>) -> BatchOutcome {
    println!("a batch of {}", clicks.len());
    let mut outcome = BatchOutcome::default(); // messages that are not named are acked
    let mut pages = statistics.0.lock().unwrap();
    for Item { message: click, context, .. } in &clicks {
        match click.millis {
            ..0 => outcome.set(context, Outcome::reject("before the page was there")),
            0 if context.attempts() == 0 => outcome.set(context, Err::<(), _>("no time")),
            _ => *pages.entry(click.page.clone()).or_default() += 1,
        }
    }
    outcome
}

/// A handler that needs no deliveries takes a `Vec`, and returns one result for all messages.
#[subscriber("pages", batch = 2)]
async fn fetch(pages: Vec<String>) -> Result<(), std::io::Error> {
    println!("pages: {}", pages.join(" and "));
    Ok(())
}

#[tokio::main]
async fn main() -> outbox::Result<()> {
    let statistics = Statistics::default();
    let broker = TestBroker::new().state(statistics.clone());
    let click = |n: i64| {
        let page = if n % 3 == 0 { "/news" } else { "/home" };
        Outgoing::new("clicks", &Click { page: page.into(), millis: n - 1 })
    };
    // A message that does not decode fails alone.
    let clicks = (0..150).map(click).chain([Outgoing::new("clicks", "no click")]);
    broker.publish_batch(clicks).await?;
    let mut endings = BTreeMap::<_, usize>::new();
    for call in broker.calls("count") {
        let ending = match call.ending {
            Ending::Acked => "acked",
            Ending::Retried(_) => "to be tried again",
            _ => "ended for good",
        };
        *endings.entry(ending).or_default() += 1;
    }
    println!("{endings:?}");
    broker.run_until_idle().await;
    println!("{:?}", statistics.0.lock().unwrap());
    for dead in broker.dlq_rows() {
        println!("dead: {}", dead.note.or(dead.error_kind).unwrap_or_default());
    }

    broker.publish_batch(["/a", "/b", "/c"].map(|page| Outgoing::new("pages", page))).await?;
    println!("left: {}", broker.rows().len());
    Ok(())
}
