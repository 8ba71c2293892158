//! Other job queues on PostgreSQL and outbox drain as many rows of about 100 bytes
//! through a handler that does nothing, in turns, each run in a new database of one
//! server. They have the best settings that their documentation names, found by trying
//! them; outbox has its defaults. Bar: outbox is faster than each.
//!
//! Only with the feature `peers`. One of them checks its SQL against `DATABASE_URL`
//! while it is compiled, unless `SQLX_OFFLINE=true` is set.

mod apalis;
mod graphile;

use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgPool, PgPoolOptions};

use crate::bench::Bench;
use crate::db::Pg;
use crate::meter::Figures;
use crate::report::{Report, rounded};
use crate::scenario::drain;
use crate::sessions::ENGINE;

/// A run that takes longer stands still.
const LIMIT: Duration = Duration::from_secs(120);

type Run = for<'a> fn(&'a Pg, u64) -> Pin<Box<dyn Future<Output = Result<Figures>> + 'a>>;

#[rustfmt::skip]
const PEERS: [(&str, Run); 3] = [
    ("peers: outbox", |pg, rows| Box::pin(drain::ours(pg, rows))),
    ("peers: graphile_worker 0.14", |pg, rows| Box::pin(graphile::run(pg, rows))),
    ("peers: apalis-postgres 1.0", |pg, rows| Box::pin(apalis::run(pg, rows))),
];

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let rows = bench.messages(100_000);
    let mut runs: [Vec<Figures>; PEERS.len()] = Default::default();
    for round in 0..bench.args.rounds as usize {
        for turn in 0..PEERS.len() {
            let at = (round + turn) % PEERS.len();
            let (name, run) = PEERS[at];
            let pg = bench.postgres().await?;
            let ran = tokio::time::timeout(LIMIT, run(&pg, rows)).await;
            let figures = ran.with_context(|| format!("{name} stands still"))??;
            eprintln!("  round {round}, {name}: {figures}");
            runs[at].push(figures);
        }
    }
    // Of each round, so that what is noise for one is noise for all.
    let times = |at: usize| {
        let rates = runs[0].iter().zip(&runs[at]);
        let mut times: Vec<_> = rates.map(|(we, it)| we.per_second() / it.per_second()).collect();
        times.sort_by(f64::total_cmp);
        rounded(times[times.len() / 2])
    };
    let times: [f64; PEERS.len()] = std::array::from_fn(times);
    let mut reports = Vec::new();
    for ((name, _), mut runs) in PEERS.into_iter().zip(runs) {
        runs.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
        let middle = &runs[runs.len() / 2];
        // They share a process, and its memory.
        let mut report = Report { rss_mb: None, ..Report::of(name, "postgres", middle) };
        if let Some(server) = middle.server_cpu {
            let each = server.as_secs_f64() * 1e6 / middle.messages as f64;
            report.more.insert("server cpu us/msg", rounded(each));
        }
        reports.push(report);
    }
    for (at, times) in times.into_iter().enumerate().skip(1) {
        let of = format!("times {}", PEERS[at].0.trim_start_matches("peers: "));
        reports[0] = reports[0].clone().at_least(&of, Some(times), 1.0);
    }
    Ok(reports)
}

/// A pool whose connections are counted.
fn pool(pg: &Pg, max: u32) -> PgPool {
    let options = pg.options.clone().application_name(ENGINE);
    PgPoolOptions::new().max_connections(max).connect_lazy_with(options)
}

/// Does now what the server would do in the middle of a measurement.
async fn settle_down(pg: &Pg) -> Result<()> {
    for sql in ["VACUUM ANALYZE", "CHECKPOINT"] {
        sqlx::query(sql).execute(&pg.pool).await?;
    }
    Ok(())
}

/// Waits until no row is left that `open` selects, while the worker runs.
async fn done(pg: &Pg, open: &str, mut ended: impl FnMut() -> bool) -> Result<()> {
    let sql = format!("SELECT NOT EXISTS ({open})");
    while !sqlx::query_scalar::<_, bool>(AssertSqlSafe(sql.clone())).fetch_one(&pg.pool).await? {
        if ended() {
            bail!("it has ended with jobs left");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
