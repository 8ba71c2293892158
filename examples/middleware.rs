//! Layers: code around the deliveries of every handler, or of one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use outbox::prelude::*;
use outbox::testing::TestBroker;
use outbox::{HandlerError, HandlerResult, Next, Outgoing};

/// Results, and how often each was seen.
#[derive(Clone, Default)]
struct Tally(Arc<Mutex<BTreeMap<String, usize>>>);

/// Sees the delivery before the handler, and what became of it.
async fn log(ctx: Context, next: Next) -> HandlerResult {
    println!("> {} {}", ctx.queue(), String::from_utf8_lossy(ctx.payload()));
    let tally = ctx.state::<Tally>().cloned();
    let result = next.run(ctx).await;
    let word = match &result {
        Ok(outcome) => format!("{outcome:?}"),
        Err(error) => format!("Err, kind {}", error.kind()),
    };
    println!("< {word}");
    if let Some(Tally(tally)) = tally {
        *tally.lock().unwrap().entry(word).or_default() += 1;
    }
    result
}

/// Answers instead of the handler.
async fn only_known_tenants(ctx: Context, next: Next) -> HandlerResult {
    match ctx.headers().get("tenant") {
        Some("blue" | "green") => next.run(ctx).await,
        Some(_) => Ok(Outcome::reject("an unknown tenant")),
        None => Err(HandlerError::new("tenant", "the header is missing")),
    }
}

/// Turns the outcome into another one.
async fn late_is_fine(ctx: Context, next: Next) -> HandlerResult {
    next.run(ctx).await.or_else(|error| match error.error().to_string().as_str() {
        "paid already" => Ok(Outcome::Ack),
        _ => Err(error),
    })
}

#[subscriber("payments", retry = NoRetry)]
async fn pay(amount: i64) -> Result<(), String> {
    println!("  paying {amount}");
    if amount == 13 { Err("paid already".into()) } else { Ok(()) }
}

#[tokio::main]
async fn main() -> outbox::Result<()> {
    let tally = Tally::default();
    // The first layer is the outermost. The layers of a subscriber are inside all of these.
    // An `App` takes layers by `.layer(..)` too.
    let broker = TestBroker::with([pay::subscriber().layer(late_is_fine)])
        .layer(log)
        .layer(only_known_tenants)
        .state(tally.clone());
    for (amount, tenant) in [(7, "blue"), (13, "green"), (8, "grey")] {
        let message = Outgoing::new("payments", &amount).header("tenant", tenant);
        broker.publish_with(message).await?;
    }
    broker.publish("payments", &9).await?;
    broker.publish_with(Outgoing::raw("payments", "x").header("tenant", "blue")).await?;

    println!("{:?}", tally.0.lock().unwrap());
    for dead in broker.dlq_rows() {
        println!("dead: {}", dead.note.or(dead.error_kind).unwrap_or_default());
    }
    Ok(())
}
