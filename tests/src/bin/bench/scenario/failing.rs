//! `drain_retry`: every message fails once and is handled when it comes back.
//! `drain_dlq`: every message is rejected and kept as a dead letter. All settings
//! but the strategy at their defaults. Bar of both: 0.9 of the ceiling.

use std::time::Instant;

use anyhow::{Result, ensure};
use outbox::{Context, Outcome, State, Subscriber, subscriber};
use sqlx::AssertSqlSafe;

use super::drain::{Count, Expected, Order, to_the_end};
use crate::bench::Bench;
use crate::ceiling::failing::{self, Ends};
use crate::db::{Pg, QUEUE};
use crate::meter::{Figures, Meter};
use crate::report::Report;
use crate::rounds;

#[subscriber("bench", retry = Constant("1ms"))]
async fn fails_once(
    _order: Order,
    ctx: Context,
    State(count): State<Count>,
    State(all): State<Expected>,
) -> Result<(), &'static str> {
    if ctx.attempts() == 0 {
        return Err(failing::ERROR);
    }
    count.add(all.0);
    Ok(())
}

#[subscriber("bench")]
async fn rejects(
    _order: Order,
    State(count): State<Count>,
    State(all): State<Expected>,
) -> Outcome {
    count.add(all.0);
    Outcome::reject(failing::ERROR)
}

pub async fn retry(bench: &Bench) -> Result<Vec<Report>> {
    run(bench, "drain_retry", fails_once::subscriber, Ends::AfterOneRetry).await
}

pub async fn dlq(bench: &Bench) -> Result<Vec<Report>> {
    run(bench, "drain_dlq", rejects::subscriber, Ends::Dead).await
}

async fn run(
    bench: &Bench,
    name: &str,
    subscriber: fn() -> Subscriber,
    ends: Ends,
) -> Result<Vec<Report>> {
    let messages = bench.messages(100_000);
    let pg = bench.postgres().await?;
    let dead = if ends == Ends::Dead { messages } else { 0 };
    let ours = || async {
        pg.fill(messages).await?;
        let app = pg.app().only([subscriber()]);
        let figures = to_the_end(app, Some(&pg.pool), messages).await?;
        empty(&pg, dead).await?;
        Ok(figures)
    };
    let theirs = || async {
        let figures = theirs(&pg, ends, messages).await?;
        empty(&pg, dead).await?;
        Ok(figures)
    };
    let both = rounds::against(bench, ours, theirs).await?;
    Ok(vec![both.report(name, "postgres", 0.9)])
}

async fn theirs(pg: &Pg, ends: Ends, messages: u64) -> Result<Figures> {
    pg.fill(messages).await?;
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = Instant::now();
    failing::run(&pg.options, ends, messages).await?;
    meter.end(messages, Some(begun.elapsed())).await
}

/// Nothing waits, and so many are dead.
async fn empty(pg: &Pg, dead: u64) -> Result<()> {
    let kept: i64 = sqlx::query_scalar(AssertSqlSafe("SELECT count(*) FROM outbox_dlq"))
        .fetch_one(&pg.pool)
        .await?;
    ensure!(pg.left().await? == 0, "{QUEUE} is not empty");
    ensure!(kept.cast_unsigned() == dead, "{kept} dead letters instead of {dead}");
    Ok(())
}
