//! A handler that counts, and a table that is drained with it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use outbox::{App, State, subscriber};

use crate::db::Pg;
use crate::meter::{Figures, Meter};
use crate::scenario::drain::Order;
use crate::tally::Tally;

#[subscriber("bench")]
pub async fn counted(_order: Order, State(tally): State<Tally>) {
    tally.one();
}

/// Starts the app and stops it when so many rows are handled; there may be more. The
/// stop is not part of the time.
pub async fn drain(pg: &Pg, app: App, tally: &Tally, rows: u64) -> Result<Figures> {
    let goal = tally.handled() + rows;
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = Instant::now();
    let running = app.state(tally.clone()).start().await?;
    tally.reach(goal).await;
    let took = begun.elapsed();
    running.stop().await?;
    meter.end(rows, Some(took)).await
}

/// Of short runs, one after the other.
pub fn sum(runs: Vec<Figures>) -> Result<Figures> {
    let more = |a: Figures, b: Figures| Figures {
        messages: a.messages + b.messages,
        took: a.took + b.took,
        cpu: a.cpu + b.cpu,
        server_cpu: a.server_cpu.zip(b.server_cpu).map(|(a, b): (Duration, _)| a + b),
        statements: a.statements.zip(b.statements).map(|(a, b)| a + b),
        wal_bytes: a.wal_bytes.zip(b.wal_bytes).map(|(a, b)| a + b),
        ..b
    };
    runs.into_iter().reduce(more).context("no runs")
}
