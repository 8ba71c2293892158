//! Eight publishers at full speed and one consumer, for a minute. Bars: the consumer
//! keeps up (a second's messages wait at the end, at most) or handles 0.9 of what the
//! pairs written by hand do; and after ten seconds table and indexes no longer grow
//! (a tenth, at most).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use outbox::{State, subscriber};
use sqlx::postgres::PgPool;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::task::{JoinHandle, JoinSet};

use super::drain::{Count, Expected, Order};
use super::publish::Way;
use crate::bench::Bench;
use crate::ceiling;
use crate::db::Pg;
use crate::meter::{Figures, Meter};
use crate::report::{Report, rounded};
use crate::rounds;

const PUBLISHERS: u64 = 8;
const SETTLES: usize = 10;

#[subscriber("bench")]
async fn consume(_order: Order, State(count): State<Count>, State(all): State<Expected>) {
    count.add(all.0);
}

/// What a run came to beside its figures.
#[derive(Debug, Clone, Copy)]
struct Ended {
    /// Seconds of publishing that wait.
    behind: f64,
    /// Size of table and indexes, over that of the tenth second.
    grown: f64,
}

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let lasts = Duration::from_secs(bench.args.seconds.unwrap_or(60));
    let pg = bench.postgres().await?;
    let ended = std::sync::Mutex::new(Vec::new());
    let ours = || async {
        let (figures, end) = ours(&pg, lasts).await?;
        eprintln!("    ours {end:?}");
        ended.lock().expect("nobody panics with it").push(end);
        Ok(figures)
    };
    let theirs = || async {
        let (figures, end) = theirs(&pg, lasts).await?;
        eprintln!("    ceiling {end:?}");
        Ok(figures)
    };
    let both = rounds::against(bench, ours, theirs).await?;
    let ended = ended.into_inner()?;
    let behind = middle(ended.iter().map(|end| end.behind));
    let grown = middle(ended.iter().map(|end| end.grown));
    // Who keeps up handles what is published: then the ratio tells of the publishers.
    let report = if behind <= 1.0 {
        let report = both.figures("end_to_end", "postgres");
        report.at_most("seconds_behind", Some(behind), 1.0)
    } else {
        both.report("end_to_end", "postgres", 0.9)
    };
    Ok(vec![report.at_most("size_after_10_s", Some(grown), 1.1)])
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    rounded(values[values.len() / 2])
}

async fn ours(pg: &Pg, lasts: Duration) -> Result<(Figures, Ended)> {
    pg.fill(0).await?;
    let count = Count::default();
    let app = pg.app().only([consume::subscriber()]);
    let running = app.state(count.clone()).state(Expected(u64::MAX)).start().await?;
    let measured = measured(pg, lasts, Way::framework(), || count.so_far()).await;
    running.stop().await?;
    measured
}

async fn theirs(pg: &Pg, lasts: Duration) -> Result<(Figures, Ended)> {
    pg.fill(0).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let count = Count::default();
    let pairs =
        tokio::spawn(ceiling::steady::run(pg.options.clone(), Arc::clone(&stop), count.clone()));
    let measured = measured(pg, lasts, Way::Plain, || count.so_far()).await;
    stop.store(true, Ordering::Relaxed);
    pairs.await??;
    measured
}

async fn measured(
    pg: &Pg,
    lasts: Duration,
    way: Way,
    handled: impl Fn() -> u64,
) -> Result<(Figures, Ended)> {
    let meter = Meter::start(Some(&pg.pool)).await?;
    let until = Instant::now() + lasts;
    let sizes = watch(pg.pool.clone(), until);
    let mut publishing = JoinSet::new();
    for client in 0..PUBLISHERS {
        let (way, options) = (way.clone(), pg.options.clone());
        publishing.spawn(async move {
            let mut connection = options.connect().await?;
            let mut sent = 0;
            while Instant::now() < until {
                way.publish(&mut connection, &Order::nth(sent * PUBLISHERS + client)).await?;
                sent += 1;
            }
            connection.close().await?;
            anyhow::Ok(sent)
        });
    }
    let mut published = 0;
    while let Some(client) = publishing.join_next().await {
        published += client??;
    }
    let handled = handled();
    let figures = meter.end(handled, Some(lasts)).await?;
    let sizes = sizes.await??;
    let settled = sizes[SETTLES.min(sizes.len() - 1)];
    let most = sizes.iter().skip(SETTLES).max().copied().unwrap_or(settled);
    let behind = published.saturating_sub(handled) as f64 * lasts.as_secs_f64() / published as f64;
    Ok((figures, Ended { behind, grown: most as f64 / settled as f64 }))
}

/// The size of the table with its indexes, each second.
fn watch(pool: PgPool, until: Instant) -> JoinHandle<Result<Vec<i64>>> {
    tokio::spawn(async move {
        let mut sizes = Vec::new();
        while Instant::now() < until {
            let sql = "SELECT pg_total_relation_size('outbox')";
            sizes.push(sqlx::query_scalar(sql).fetch_one(&pool).await?);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let mib: Vec<_> = sizes.iter().map(|size| size >> 20).collect();
        eprintln!("    MiB each second: {mib:?}");
        Ok(sizes)
    })
}
