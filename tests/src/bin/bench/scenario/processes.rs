//! 1, 2 and 4 processes consume one queue. Against as many bare loops, to tell what
//! the server allows. Bars: more processes are never slower, five in a hundred being
//! noise, and no row is claimed twice.
//!
//! Each process starts inside the measurement, which costs as much as 7,000 messages: so
//! there are many of these.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::bench::Bench;
use crate::ceiling;
use crate::consumer::Consumer;
use crate::db::Pg;
use crate::meter::{Figures, Meter};
use crate::report::{Report, rounded};

const COUNTS: [usize; 3] = [1, 2, 4];
const NOT_SLOWER: f64 = 0.95;

/// Messages a second, one for each of `COUNTS`.
struct Rates {
    ours: [f64; 3],
    bare: [f64; 3],
}

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let rows = bench.messages(600_000);
    let pg = bench.postgres().await?;
    let mut rates = Vec::new();
    let (mut last, mut twice) = (Vec::new(), 0);
    for round in 0..bench.args.rounds {
        let (mut ours, mut bare) = ([0.0; 3], [0.0; 3]);
        let mut order = [0, 1, 2];
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let (figures, again) = apps(&pg, rows, COUNTS[at]).await?;
            ours[at] = figures.per_second();
            twice += again;
            last.push((at, figures));
            bare[at] = loops(&pg, rows, COUNTS[at]).await?.per_second();
        }
        eprintln!("  round {round}: a second with {COUNTS:?}: ours {ours:.0?}, bare {bare:.0?}");
        rates.push(Rates { ours, bare });
    }
    let median = |of: fn(&Rates) -> f64| {
        let mut all: Vec<_> = rates.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        rounded(all[all.len() / 2])
    };
    let four = last.into_iter().rev().find(|(at, _)| *at == 2).map(|(_, figures)| figures);
    let report = Report {
        msgs_per_s: Some(median(|of| of.ours[2]).round()),
        ceiling_per_s: Some(median(|of| of.bare[2]).round()),
        ratio: Some(median(|of| of.ours[2] / of.bare[2])),
        ..Report::of("processes", "postgres", &four.unwrap_or_default())
    };
    let two = median(|of| of.ours[1] / of.ours[0]);
    let four = median(|of| of.ours[2] / of.ours[1]);
    Ok(vec![
        report
            .at_least("2 against 1", Some(two), NOT_SLOWER)
            .at_least("4 against 2", Some(four), NOT_SLOWER)
            .at_most("rows claimed twice", Some(twice as f64), 0.0),
    ])
}

/// And how many rows were claimed twice.
async fn apps(pg: &Pg, rows: u64, count: usize) -> Result<(Figures, usize)> {
    pg.fill(rows).await?;
    let mut consumers = Vec::new();
    for _ in 0..count {
        consumers.push(Consumer::spawn(&pg.options).await?);
    }
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = Instant::now();
    for consumer in &mut consumers {
        consumer.begin().await?;
    }
    while consumers.iter().map(Consumer::handled).sum::<u64>() < rows {
        ensure!(consumers.iter_mut().all(Consumer::runs), "a consumer has ended");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = begun.elapsed();
    let (mut ids, mut twice, mut cpu, mut rss_mb) = (Vec::new(), 0, Duration::ZERO, 0.0);
    for consumer in consumers {
        let ended = consumer.end().await?;
        cpu += ended.cpu;
        rss_mb += ended.rss_mb;
        ids.extend(ended.ids);
        twice += ended.redelivered;
    }
    // Of all consumers together, their start among it.
    let figures = Figures { cpu, rss_mb, ..meter.end(rows, Some(took)).await? };
    eprintln!("    {count} processes: {figures}");
    ids.sort_unstable();
    let handled = ids.len();
    ids.dedup();
    ensure!(ids.len() as u64 == rows && pg.left().await? == 0, "rows are missing or left");
    Ok((figures, twice.max(handled - ids.len())))
}

async fn loops(pg: &Pg, rows: u64, count: usize) -> Result<Figures> {
    pg.fill(rows).await?;
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = Instant::now();
    let handled = ceiling::drain::run(&pg.options, 2 * count, 1000).await?;
    ensure!(handled == rows, "the loops handled {handled}");
    let figures = meter.end(rows, Some(begun.elapsed())).await?;
    eprintln!("    {count} times two bare pairs: {figures}");
    Ok(figures)
}
