//! Steady load at full speed, and from its tenth second on a REPEATABLE READ snapshot
//! that is held for ninety: nothing that was deleted can be cleared away meanwhile.
//! The load follows the handlers, so its rate is what they can do. Bars: the last ten
//! seconds of the snapshot at least 0.9 of the ten before it, and a rate of 0.9 again
//! within five seconds of its end.

use std::time::{Duration, Instant};

use anyhow::Result;
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};
use tokio::time::{interval, sleep};

use crate::bench::Bench;
use crate::counters::Counters;
use crate::db::{Pg, QUEUE, names};
use crate::load::counted;
use crate::meter::Meter;
use crate::report::{Report, rounded};
use crate::tally::Tally;

const WARM: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(10);
const HELD: Duration = Duration::from_secs(90);
const AFTER: usize = 10;
/// Rows that wait at any time: the handlers never wait for the publisher.
const WAITING: u64 = 20_000;
const BATCH: u64 = 1_000;

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let pg = bench.postgres().await?;
    let tally = Tally::default();
    let app = pg.app().only([counted::subscriber()]).state(tally.clone());
    let meter = Meter::start(Some(&pg.pool)).await?;
    let running = app.start().await?;
    let rates = tokio::select! {
        rates = measured(&pg, &tally) => rates?,
        ended = publish(&pg, &tally) => return Err(ended.expect_err("it has no end")),
    };
    running.stop().await?;
    let figures = meter.end(tally.handled(), None).await?;
    let (start, end) = (rates.held[0], rates.held[rates.held.len() - 1]);
    let recovered = rates.after.iter().position(|rate| *rate >= 0.9 * start);
    let ratio = Some(rounded(end / start));
    let report = Report {
        msgs_per_s: Some(end.round()),
        ceiling_per_s: Some(start.round()),
        ratio,
        ..Report::of("held_snapshot", "postgres", &figures)
    };
    let recovered = recovered.map(|second| (second + 1) as f64);
    Ok(vec![report.at_least("ratio", ratio, 0.9).at_most("seconds to recover", recovered, 5.0)])
}

/// Messages a second.
struct Rates {
    /// Of ten seconds each; the first before the snapshot.
    held: Vec<f64>,
    /// Of the seconds after it.
    after: Vec<f64>,
}

async fn measured(pg: &Pg, tally: &Tally) -> Result<Rates> {
    sleep(WARM).await;
    let mut held = vec![rate(pg, tally, WINDOW).await?];
    let mut holder: PgConnection = pg.options.connect().await?;
    holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    holder.execute("SELECT 1").await?;
    let begun = Instant::now();
    while begun.elapsed() + WINDOW / 2 < HELD {
        held.push(rate(pg, tally, WINDOW).await?);
    }
    holder.execute("COMMIT").await?;
    holder.close().await?;
    let mut after = Vec::new();
    for _ in 0..AFTER {
        after.push(rate(pg, tally, Duration::from_secs(1)).await?);
    }
    Ok(Rates { held, after })
}

/// Says what a message cost the server too, because a busy machine slows all down.
async fn rate(pg: &Pg, tally: &Tally, time: Duration) -> Result<f64> {
    let cpu = Counters::read(&pg.pool).await?.cpu;
    let (before, begun) = (tally.handled(), Instant::now());
    sleep(time).await;
    let (handled, took) = (tally.handled() - before, begun.elapsed());
    let spent =
        Counters::read(&pg.pool).await?.cpu.zip(cpu).map(|(now, then)| now.saturating_sub(then));
    let each = spent.filter(|_| handled > 0).map(|spent| spent.as_micros() as f64 / handled as f64);
    let rate = handled as f64 / took.as_secs_f64();
    eprintln!("    {rate:.0} a second, server {each:.1?} us each, publishing included");
    Ok(rate)
}

async fn publish(pg: &Pg, tally: &Tally) -> Result<()> {
    let (mut published, mut ticks) = (0, interval(Duration::from_millis(2)));
    loop {
        if published < tally.handled() + WAITING {
            pg.insert(QUEUE, BATCH, "clock_timestamp()").await?;
            published += BATCH;
            sqlx::query("SELECT pg_notify($1, $2)")
                .bind(names().channel())
                .bind(QUEUE)
                .execute(&pg.pool)
                .await?;
        } else {
            ticks.tick().await;
        }
    }
}
