//! When a failed message is tried again: strategies, one of your own, and snoozing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::prelude::*;
use outbox::retry::{FailedAttempt, RetryStrategy};

mod support;

/// 20 ms, 40 ms, 80 ms, … up to 1 s, each ±10 %; the fifth failure is the last.
#[subscriber(
    "mail",
    retry = Exponential(initial = "20ms", max_delay = "1s", jitter = 0.2, max_attempts = 5)
)]
async fn mail(to: String, ctx: Context) -> anyhow::Result<()> {
    let attempt = ctx.attempts() + 1;
    if attempt < 3 {
        anyhow::bail!(tell(format!("mail to {to}: attempt {attempt} fails")));
    }
    println!("mail to {to}: attempt {attempt} succeeds");
    Ok(())
}

/// The listed delays, then the end.
#[subscriber("sms", retry = Delays(["10ms", "20ms"]))]
async fn sms(to: String, ctx: Context) -> Result<(), String> {
    Err(tell(format!("sms to {to}: attempt {} fails", ctx.attempts() + 1)))
}

/// A run that takes longer than `timeout` counts as failed.
#[subscriber("report", timeout = "30ms", retry = OnlyTimeouts)]
async fn report(name: String, ctx: Context) {
    println!("report {name}: attempt {}", ctx.attempts() + 1);
    if ctx.attempts() == 0 {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
}

/// A strategy is a pure function of the history, so it is easy to test.
struct OnlyTimeouts;

impl RetryStrategy for OnlyTimeouts {
    fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
        let timed_out = failed.error.is_some_and(|error| error.kind() == "timeout");
        (timed_out && failed.attempts < 3).then_some(Duration::from_millis(10))
    }
}

static OPEN: AtomicBool = AtomicBool::new(false);

/// Not a failure, only not yet: snoozing spends no attempt and no delivery.
#[subscriber("delivery")]
async fn delivery(street: String, ctx: Context) -> Outcome {
    if !OPEN.swap(true, Ordering::Relaxed) {
        println!("delivery to {street}: the shop is closed");
        return Outcome::Snooze(Duration::from_millis(60));
    }
    println!("delivery to {street}: done, {} attempts spent", ctx.attempts());
    Outcome::Ack
}

fn tell(line: String) -> String {
    println!("{line}");
    line
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let scratch = support::Scratch::new()?;
    let pool = scratch.open().await?;
    let mut tx = outbox::sqlite::begin(&pool).await?;
    for (queue, body) in [("mail", "ann"), ("sms", "bob"), ("report", "May"), ("delivery", "Elm")] {
        outbox::publish(&mut tx, queue, body).await?;
    }
    tx.commit().await?;
    App::sqlite(pool.clone()).run_until(support::no_message_left(&pool)).await?;
    println!("left: {}", support::left(&pool).await?);
    Ok(())
}
