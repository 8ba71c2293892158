//! Messages that are due later, named ones that exist once, and taking one back.

use std::time::Duration;

use outbox::prelude::*;
use outbox::{Published, TimerConflict};

mod support;

#[subscriber("reminders")]
async fn remind(user: String, ctx: Context) {
    let timer = ctx.timer_id().unwrap_or("no name");
    println!("reminded: {user} ({timer})");
}

/// Runs once the user was quiet for a while: each keystroke moves it on.
#[subscriber("drafts")]
async fn save(text: String) {
    println!("saved: {text}");
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let scratch = support::Scratch::new()?;
    let pool = scratch.open().await?;
    let publisher = Publisher::default();
    let mut tx = outbox::sqlite::begin(&pool).await?;

    // Due later, by the database's clock.
    let soon = Duration::from_millis(100);
    publisher.message("reminders", "ann").delay(soon).publish(&mut tx).await?;

    // A timer name is taken until its message was handled.
    for attempt in 1..=2 {
        let message = publisher.message("reminders", "bob").delay(soon).timer_id("bob-trial");
        match message.publish(&mut tx).await? {
            Published::Duplicate => println!("attempt {attempt}: bob has a reminder already"),
            _ => println!("attempt {attempt}: bob will be reminded"),
        }
    }

    // `Extend` moves the waiting message to a later time, with the new payload.
    for wait in [50, 150] {
        let message = publisher.message("drafts", "dear ann").delay(Duration::from_millis(wait));
        let message = message.timer_id("draft-1").on_conflict(TimerConflict::Extend);
        match message.publish(&mut tx).await? {
            Published::Extended(_) => println!("the draft waits longer"),
            _ => println!("the draft waits"),
        }
    }

    // A message that no claim holds can be taken back, such as one that waits for its time.
    let late = Duration::from_secs(3600);
    publisher.message("reminders", "eve").delay(late).timer_id("eve").publish(&mut tx).await?;
    let cancelled = publisher.cancel_timer(&mut tx, "reminders", "eve").await?;
    println!("eve's reminder is taken back: {cancelled}");
    tx.commit().await?;

    App::sqlite(pool.clone()).run_until(support::no_message_left(&pool)).await?;
    println!("left: {}", support::left(&pool).await?);
    Ok(())
}
