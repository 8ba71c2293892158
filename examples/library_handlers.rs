//! Handlers in another crate: naming the crate is what links them.

use outbox::App;
use serde::Serialize;

// Without this line nothing here mentions the crate, the linker leaves it out,
// and its handlers with it. A program whose crates hold no handler at all does
// not start; its error says to add this line.
use outbox_example_library as _;

mod support;

#[derive(Serialize)]
struct User {
    name: &'static str,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let scratch = support::Scratch::new()?;
    let pool = scratch.open().await?;
    let mut tx = outbox::sqlite::begin(&pool).await?;
    outbox::publish(&mut tx, "users", &User { name: "Ann" }).await?;
    tx.commit().await?;

    // The app refuses to start while a handler wants a state that nobody gave.
    let app = App::sqlite(pool.clone());
    println!("{}", app.start().await.unwrap_err());
    let app = app.state(String::from("Welcome"));
    app.run_until(support::no_message_left(&pool)).await?;
    println!("left: {}", support::left(&pool).await?);
    Ok(())
}
