//! Routers: the same handlers for several regions, with a prefix, states and
//! layers of their own.

use outbox::prelude::*;
use outbox::{HandlerResult, Next, Router};

mod support;

#[derive(Clone)]
struct Region {
    name: &'static str,
    vat: i64,
}

/// The prefix is for the queue that is read. Every region publishes to `invoices`.
#[subscriber("orders", publish = "invoices")]
async fn bill(cents: i64, State(region): State<Region>) -> i64 {
    cents * (100 + region.vat) / 100
}

#[subscriber("refunds")]
async fn refund(cents: i64, State(region): State<Region>, ctx: Context) {
    println!("{}: refund of {cents} from {}", ctx.queue(), region.name);
}

/// Its queue belongs to no region, so it is in no router.
#[subscriber("invoices")]
async fn send(cents: i64, State(region): State<Region>, ctx: Context) {
    println!("{}: {cents} sent from {}", ctx.queue(), region.name);
}

/// Around both regions, and around nothing else.
async fn skip_nothing(ctx: Context, next: Next) -> HandlerResult {
    if ctx.payload() == b"0" {
        println!("{}: nothing to do", ctx.queue());
        return Ok(Outcome::Ack);
    }
    next.run(ctx).await
}

fn shop(prefix: &str, region: Region) -> Router {
    Router::new()
        .prefix(prefix)
        .state(region)
        .include(bill::subscriber())
        .include(refund::subscriber())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let scratch = support::Scratch::new()?;
    let pool = scratch.open().await?;
    let app = App::sqlite(pool.clone())
        .state(Region { name: "headquarters", vat: 0 }) // where no router has its own
        .include(
            Router::new()
                .layer(skip_nothing)
                .include(shop("eu.", Region { name: "Europe", vat: 20 }))
                .include(shop("us.", Region { name: "America", vat: 5 })),
        );
    let mut tx = outbox::sqlite::begin(&pool).await?;
    for (queue, cents) in
        [("eu.orders", 100), ("us.orders", 200), ("us.refunds", 7), ("eu.refunds", 0)]
    {
        outbox::publish(&mut tx, queue, &cents).await?;
    }
    tx.commit().await?;
    app.run_until(support::no_message_left(&pool)).await?;
    println!("left: {}", support::left(&pool).await?);
    Ok(())
}
