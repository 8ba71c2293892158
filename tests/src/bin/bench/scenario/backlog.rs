//! 5,000,000 waiting rows against 50,000: 50,000 of them are handled, four times a
//! round. Bar: 0.9 of the rate of the small table.

use anyhow::Result;

use crate::bench::Bench;
use crate::db::Pg;
use crate::load::{counted, drain, sum};
use crate::meter::Figures;
use crate::report::Report;
use crate::rounds;
use crate::tally::Tally;

const FEW: u64 = 50_000;
const RUNS: usize = 4;

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let (large, small) = (bench.postgres().await?, bench.postgres().await?);
    large.fill(bench.messages(5_000_000)).await?;
    // What comes out of the large table in all rounds is a fifth of it at most.
    let both = rounds::against(bench, || first(&large, false), || first(&small, true)).await?;
    Ok(vec![both.report("backlog", "postgres", 0.9)])
}

async fn first(pg: &Pg, fill: bool) -> Result<Figures> {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        if fill {
            pg.fill(FEW).await?;
        }
        let app = pg.app().only([counted::subscriber()]);
        runs.push(drain(pg, app, &Tally::default(), FEW).await?);
    }
    sum(runs)
}
