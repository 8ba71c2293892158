//! A full table and a typed handler that does nothing, all settings at their
//! defaults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use outbox::{State, subscriber};
use serde::Deserialize;
use tokio::sync::Notify;

use crate::Args;
use crate::ceiling;
use crate::db::{Pg, QUEUE};
use crate::meter::{Figures, Meter};
use crate::report::Report;
use crate::rounds;

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "decoded, not used")]
pub struct Order {
    id: i64,
    customer: String,
    note: String,
}

/// Handled so far, and a word when it is all.
#[derive(Clone, Default)]
pub struct Count(Arc<(AtomicU64, Notify)>);

impl Count {
    pub fn add(&self, all: u64) {
        if self.0.0.fetch_add(1, Ordering::Relaxed) + 1 == all {
            self.0.1.notify_one();
        }
    }

    pub async fn all(&self) {
        self.0.1.notified().await;
    }
}

#[derive(Clone)]
pub struct Expected(pub u64);

#[subscriber("bench")]
async fn noop(_order: Order, State(count): State<Count>, State(all): State<Expected>) {
    count.add(all.0);
}

pub async fn run(args: &Args, url: &str) -> Result<Report> {
    let messages = args.messages.unwrap_or(200_000);
    let pg = Pg::fresh(url).await?;
    let both =
        rounds::against(args.rounds, || ours(&pg, messages), || theirs(&pg, messages)).await?;
    Ok(rounds::report("drain", "postgres", both, 0.95))
}

async fn ours(pg: &Pg, messages: u64) -> Result<Figures> {
    if std::env::var("ONLY").is_ok() {
        return theirs(pg, messages).await;
    }
    pg.fill(messages).await?;
    let count = Count::default();
    let app = pg.app().only([noop::subscriber()]).state(count.clone()).state(Expected(messages));
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = std::time::Instant::now();
    let running = app.start().await?;
    count.all().await;
    running.stop().await?;
    let took = begun.elapsed();
    let figures = meter.end(messages, Some(took)).await?;
    ensure!(pg.left().await? == 0, "{QUEUE} is not empty");
    Ok(figures)
}

async fn theirs(pg: &Pg, messages: u64) -> Result<Figures> {
    pg.fill(messages).await?;
    let meter = Meter::start(Some(&pg.pool)).await?;
    let pairs = std::env::var("PAIRS").ok().and_then(|p| p.parse().ok()).unwrap_or(2);
    let batch = std::env::var("BATCH").ok().and_then(|p| p.parse().ok()).unwrap_or(1000);
    let handled = ceiling::drain::run(&pg.options, pairs, batch).await?;
    let figures = meter.end(handled, None).await?;
    ensure!(pg.left().await? == 0 && handled == messages, "{QUEUE} is not empty");
    Ok(figures)
}
