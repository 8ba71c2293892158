//! A full table and a typed handler that does nothing, all settings at their
//! defaults. Bars: 0.95 of the ceiling, claims 95 % HOT, a statement for a hundred
//! messages at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use outbox::{App, State, subscriber};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPool;
use tokio::sync::Notify;

use crate::bench::Bench;
use crate::ceiling;
use crate::db::{Pg, QUEUE};
use crate::meter::{Figures, Meter};
use crate::report::Report;
use crate::rounds;

/// About a hundred bytes of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    id: u64,
    customer: String,
    note: String,
}

impl Order {
    /// As `Pg::fill` makes them.
    pub fn nth(n: u64) -> Self {
        Self { id: n, customer: format!("c-{}", n % 1000), note: "x".repeat(60) }
    }
}

/// Handled so far, and a word when it is all.
#[derive(Debug, Clone, Default)]
pub struct Count(Arc<(AtomicU64, Notify)>);

impl Count {
    pub fn add(&self, all: u64) {
        if self.0.0.fetch_add(1, Ordering::Relaxed) + 1 == all {
            self.0.1.notify_one();
        }
    }

    pub fn so_far(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }

    pub async fn all(&self) {
        self.0.1.notified().await;
    }
}

#[derive(Debug, Clone)]
pub struct Expected(pub u64);

#[subscriber("bench")]
pub async fn noop(_order: Order, State(count): State<Count>, State(all): State<Expected>) {
    count.add(all.0);
}

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let messages = bench.messages(200_000);
    let pg = bench.postgres().await?;
    let both = rounds::against(bench, || ours(&pg, messages), || theirs(&pg, messages)).await?;
    let report = both.report("drain", "postgres", 0.95);
    let (hot, statements) = (report.hot_ratio, report.statements_per_msg);
    Ok(vec![report.at_least("hot_ratio", hot, 0.95).at_most(
        "statements_per_msg",
        statements,
        0.01,
    )])
}

/// All settings at their defaults.
pub async fn ours(pg: &Pg, messages: u64) -> Result<Figures> {
    pg.fill(messages).await?;
    let figures = to_the_end(pg.app().only([noop::subscriber()]), Some(&pg.pool), messages).await?;
    ensure!(pg.left().await? == 0, "{QUEUE} is not empty");
    Ok(figures)
}

/// Runs an app until its handlers have counted so many messages.
pub async fn to_the_end(app: App, server: Option<&PgPool>, messages: u64) -> Result<Figures> {
    let count = Count::default();
    let app = app.state(count.clone()).state(Expected(messages));
    let meter = Meter::start(server).await?;
    let begun = Instant::now();
    let running = app.start().await?;
    count.all().await;
    running.stop().await?;
    meter.end(messages, Some(begun.elapsed())).await
}

async fn theirs(pg: &Pg, messages: u64) -> Result<Figures> {
    pg.fill(messages).await?;
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = Instant::now();
    let handled = ceiling::drain::run(&pg.options, 2, 1000).await?;
    let figures = meter.end(handled, Some(begun.elapsed())).await?;
    ensure!(pg.left().await? == 0 && handled == messages, "{QUEUE} is not empty");
    Ok(figures)
}
