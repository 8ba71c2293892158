//! 200 subscribers in one process, one of them busy, against one subscriber. Then
//! both apps idle. Bars: 0.9 of the rate of one; at most five connections loaded and
//! two idle; no more idle statements than one subscriber makes, but for a tenth.

use std::time::Duration;

use anyhow::Result;
use outbox::{App, Router, Subscriber};
use outbox_tests::wire::Wire;
use sqlx::postgres::PgPoolOptions;
use tokio::time::sleep;

use crate::bench::Bench;
use crate::db::{Pg, QUEUE, names};
use crate::load::{counted, drain};
use crate::meter::Figures;
use crate::report::Report;
use crate::rounds;
use crate::tally::Tally;

const SUBSCRIBERS: usize = 200;
/// Connections that are not needed are closed by then, and polls are at their
/// longest.
const CALM: Duration = Duration::from_secs(70);
const IDLE: Duration = Duration::from_secs(120);

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let rows = bench.messages(200_000);
    let pg = bench.postgres().await?;
    let both =
        rounds::against(bench, || busy(&pg, rows, SUBSCRIBERS), || busy(&pg, rows, 1)).await?;
    let (one, all) = tokio::try_join!(idle(&pg, 1), idle(&pg, SUBSCRIBERS))?;
    eprintln!("  idle: statements in two minutes and connections, of 1 {one:?}, of 200 {all:?}");
    let report = both.report("queues", "postgres", 0.9);
    let loaded = report.connections.map(|connections| connections as f64);
    Ok(vec![
        report
            .at_most("connections loaded", loaded, 5.0)
            .at_most("connections idle", Some(all.1 as f64), 2.0)
            .at_most("idle statements", Some(all.0 as f64), (one.0 as f64 * 1.1).ceil()),
    ])
}

/// The first reads `bench`, the others queues on which nothing ever comes.
fn subscribers(count: usize) -> impl Iterator<Item = Subscriber> {
    let other = |n| Router::new().prefix(format!("{n}.")).include(counted::subscriber());
    [counted::subscriber()].into_iter().chain((1..count).flat_map(other))
}

async fn busy(pg: &Pg, rows: u64, count: usize) -> Result<Figures> {
    pg.fill(rows).await?;
    let tally = Tally::default();
    let app = pg.app().only(subscribers(count));
    drain(pg, app, &tally, rows).await
}

/// Statements and connections of an app that has had something to do and has nothing.
async fn idle(pg: &Pg, count: usize) -> Result<(usize, i64)> {
    let wire = Wire::before(&pg.options).await;
    let (name, queue) = (format!("idle-{count}"), format!("of-{count}.{QUEUE}"));
    let options = wire.options.clone().application_name(&name);
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    let (tally, own) = (Tally::default(), Router::new().prefix(format!("of-{count}.")));
    // A queue of its own in front, because both apps run at once.
    let own = own.include(counted::subscriber()).into_iter();
    let app = App::postgres(pool).names(names()).state(tally.clone());
    let running = app.only(own.chain(subscribers(count).skip(1))).start().await?;
    pg.insert(&queue, 10_000, "clock_timestamp()").await?;
    tally.reach(10_000).await;
    sleep(CALM).await;
    let before = wire.counts().statements();
    sleep(IDLE).await;
    let figures = (wire.counts().statements() - before, connections(pg, &name).await?);
    running.stop().await?;
    Ok(figures)
}

async fn connections(pg: &Pg, name: &str) -> Result<i64> {
    let sql = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = $1";
    Ok(sqlx::query_scalar(sql).bind(name).fetch_one(&pg.pool).await?)
}
