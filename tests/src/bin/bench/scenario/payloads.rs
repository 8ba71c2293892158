//! A full table of larger and larger messages. No bar: it tells operators how the cost
//! grows, and that what waits in memory does not.

use std::time::Instant;

use anyhow::Result;
use sqlx::Executor as _;

use crate::bench::Bench;
use crate::ceiling;
use crate::db::{Pg, QUEUE};
use crate::load::{counted, drain};
use crate::meter::{Figures, Meter};
use crate::report::Report;
use crate::rounds;
use crate::tally::Tally;

const SIZES: [(&str, usize, u64); 4] = [
    ("payloads/100B", 60, 100_000),
    ("payloads/1kB", 960, 100_000),
    ("payloads/10kB", 9_960, 30_000),
    ("payloads/100kB", 99_960, 3_000),
];

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let pg = bench.postgres().await?;
    // A note of equal letters would shrink to nothing.
    pg.pool.execute("ALTER TABLE outbox ALTER payload SET STORAGE EXTERNAL").await?;
    let mut reports = Vec::new();
    for (name, note, own) in SIZES {
        let rows = bench.messages(own);
        eprintln!("  {name}");
        let both =
            rounds::against(bench, || ours(&pg, rows, note), || theirs(&pg, rows, note)).await?;
        reports.push(both.figures(name, "postgres"));
    }
    Ok(reports)
}

async fn fill(pg: &Pg, rows: u64, note: usize) -> Result<()> {
    pg.empty().await?;
    pg.insert_of(QUEUE, rows, "clock_timestamp()", note).await?;
    pg.settle_down().await
}

async fn ours(pg: &Pg, rows: u64, note: usize) -> Result<Figures> {
    fill(pg, rows, note).await?;
    drain(pg, pg.app().only([counted::subscriber()]), &Tally::default(), rows).await
}

async fn theirs(pg: &Pg, rows: u64, note: usize) -> Result<Figures> {
    fill(pg, rows, note).await?;
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = Instant::now();
    let handled = ceiling::drain::run(&pg.options, 2, 1000).await?;
    meter.end(handled, Some(begun.elapsed())).await
}
