//! A queue is drained while 5,000 rows of another one are leased by handlers that do
//! not return. Against the same app without those rows. Bar: 0.9 of its rate.

use anyhow::{Result, ensure};
use outbox::{State, subscriber};
use tokio::sync::watch;

use crate::bench::Bench;
use crate::db::Pg;
use crate::load::{counted, drain};
use crate::meter::Figures;
use crate::report::Report;
use crate::rounds;
use crate::tally::Tally;

const SLOW: u64 = 5_000;

/// Handlers that have begun, and what they wait for.
#[derive(Clone)]
struct Gate {
    inside: Tally,
    opened: watch::Receiver<bool>,
}

#[subscriber("slow", max_workers = 5000)]
async fn slow(_body: &[u8], State(gate): State<Gate>) {
    let mut opened = gate.opened.clone();
    gate.inside.one();
    // Closed counts as opened.
    let _ = opened.wait_for(|open| *open).await;
}

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let rows = bench.messages(200_000);
    let pg = bench.postgres().await?;
    let both = rounds::against(bench, || beside(&pg, rows, SLOW), || beside(&pg, rows, 0)).await?;
    Ok(vec![both.report("in_flight", "postgres", 0.9)])
}

async fn beside(pg: &Pg, rows: u64, slow_rows: u64) -> Result<Figures> {
    pg.empty().await?;
    pg.insert("slow", slow_rows, "clock_timestamp()").await?;
    pg.insert(crate::db::QUEUE, rows, "clock_timestamp()").await?;
    pg.settle_down().await?;
    let (open, opened) = watch::channel(false);
    let (tally, inside) = (Tally::default(), Tally::default());
    let app = pg
        .app()
        .only([counted::subscriber(), slow::subscriber()])
        .state(Gate { inside: inside.clone(), opened });
    // Opened when the last fast row is handled, so that the app can stop.
    let watched = tally.clone();
    let waiting = tokio::spawn(async move {
        while watched.handled() < rows {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let held = inside.handled();
        let _ = open.send(true);
        held
    });
    let figures = drain(pg, app, &tally, rows).await?;
    let held = waiting.await?;
    ensure!(held == slow_rows, "only {held} rows were in flight");
    ensure!(pg.left().await? == 0, "rows are left");
    Ok(figures)
}
