//! 500,000 rows of one transaction, all due at one moment, against as many that each
//! have their own. Bar: 0.9 of the rate of the spread ones.

use anyhow::Result;

use crate::bench::Bench;
use crate::db::Pg;
use crate::load::{counted, drain};
use crate::meter::Figures;
use crate::report::Report;
use crate::rounds;
use crate::tally::Tally;

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let rows = bench.messages(500_000);
    let pg = bench.postgres().await?;
    let both = rounds::against(
        bench,
        || all(&pg, rows, "statement_timestamp()"),
        || all(&pg, rows, "clock_timestamp()"),
    )
    .await?;
    Ok(vec![both.report("published_together", "postgres", 0.9)])
}

async fn all(pg: &Pg, rows: u64, due: &str) -> Result<Figures> {
    pg.empty().await?;
    pg.insert(crate::db::QUEUE, rows, due).await?;
    pg.settle_down().await?;
    drain(pg, pg.app().only([counted::subscriber()]), &Tally::default(), rows).await
}
