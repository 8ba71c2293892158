//! Where a message comes from: the publishes that led to it and the work that
//! it belongs to; and messages that are of no use when they come late.

use std::sync::Mutex;
use std::time::Duration;

use outbox::Outgoing;
use outbox::prelude::*;
use outbox::testing::TestBroker;

/// Names ids by the order in which they were seen: A, B, C.
fn letters(ids: impl IntoIterator<Item = impl ToString>) -> String {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut seen = SEEN.lock().unwrap();
    let mut letter = |id: String| {
        let known = seen.iter().position(|one| *one == id).unwrap_or_else(|| {
            seen.push(id);
            seen.len() - 1
        });
        (b'A'..=b'Z').map(char::from).nth(known).unwrap_or('?')
    };
    ids.into_iter().map(|id| letter(id.to_string())).collect()
}

fn tell(ctx: &Context) {
    let trace = ctx.headers().get("traceparent").and_then(|header| header.get(3..35));
    println!(
        "{}: ids {}, correlation {}, trace {}",
        ctx.queue(),
        letters(ctx.tracking_ids()),
        ctx.correlation_id(),
        trace.unwrap_or("none")
    );
}

/// What a handler publishes inherits all of it, and has one id more.
#[subscriber("orders", publish = "invoices")]
async fn bill(order: i64, ctx: Context, publisher: Publisher) -> anyhow::Result<i64> {
    tell(&ctx);
    let own = Outgoing::new("audit", &order).correlation_id("audit-1"); // but what is given stays
    publisher.collect(own)?;
    Ok(order)
}

#[subscriber(["invoices", "audit"])]
async fn listen(_: i64, ctx: Context) {
    tell(&ctx);
}

#[subscriber("offers", retry = Constant("10s"))]
async fn offer(what: String) -> Result<(), String> {
    Err(format!("nobody answers to {what}"))
}

#[tokio::main]
async fn main() -> outbox::Result<()> {
    let broker = TestBroker::new();
    // Everything published in here shares a first id, as one request does.
    outbox::tracking(async {
        println!("request: ids {}", letters(outbox::tracking_ids()));
        let traced = Outgoing::new("orders", &1)
            .correlation_id("web-7")
            .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        broker.publish_with(traced).await?;
        broker.publish_with(Outgoing::new("audit", &1).correlation_id("web-7")).await
    })
    .await?;
    println!("outside: {} ids", outbox::tracking_ids().len());

    // Tried until it is too late; in time, it would be tried for ever.
    let message = Outgoing::new("offers", "today's price").expires_in(Duration::from_secs(25));
    broker.publish_with(message).await?;
    broker.run_until_idle().await;
    let dead = &broker.dlq_rows()[0];
    println!("offers: {} after {} runs", dead.failure_reason, broker.calls("offer").len());
    Ok(())
}
