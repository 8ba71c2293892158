//! A handler that is a plain fn: it may block, so it runs on a thread for blocking work.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::prelude::*;

mod support;

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static PAIR: Barrier = Barrier::new(2);

/// At most `max_workers` run at once. Each waits for another one. On the only
/// thread of this program's runtime it would wait for ever.
#[subscriber("photos", max_workers = 2)]
fn shrink(photo: &str) {
    MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    PAIR.wait();
    println!("{photo} is small");
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

/// A thread cannot be stopped from outside. A handler that takes long asks whether
/// its result is still wanted.
#[subscriber("films", timeout = "30ms", retry = NoRetry)]
fn encode(film: &str, ctx: Context) -> Result<(), String> {
    for _frame in 0..100_000 {
        std::thread::sleep(Duration::from_millis(1));
        if ctx.cancelled().is_cancelled() {
            println!("{film} is given up");
            return Err("too long".into());
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let scratch = support::Scratch::new()?;
    let pool = scratch.open().await?;
    let mut tx = outbox::sqlite::begin(&pool).await?;
    for photo in ["beach", "dunes", "ferry", "light"] {
        outbox::publish(&mut tx, "photos", photo).await?;
    }
    outbox::publish(&mut tx, "films", "sunset").await?;
    tx.commit().await?;

    let app = App::sqlite(pool.clone()).dlq("outbox_dlq");
    app.run_until(support::no_message_left(&pool)).await?;
    println!("most photos at once: {}", MOST.load(Ordering::SeqCst));
    let dead: Vec<(String, String)> =
        sqlx::query_as("SELECT queue, error_kind FROM outbox_dlq").fetch_all(&pool).await?;
    for (queue, kind) in dead {
        println!("dead: {queue}, {kind}");
    }
    Ok(())
}
