//! Handlers of 5 ms, 64 at a time: the engine must always have the next message at
//! hand. Bars: 0.95 of what 64 places can do, and of the loop written by hand.
//!
//! A sleep of 5 ms takes longer, by the timer's grain and by what else runs, so what
//! the places can do is 64 a mean run of the handler, as this very run measured it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use outbox::{State, subscriber};

use super::drain::{Count, Expected, Order, to_the_end};
use crate::bench::Bench;
use crate::ceiling;
use crate::db::{Pg, QUEUE};
use crate::meter::{Figures, Meter};
use crate::report::{Report, rounded};
use crate::rounds;

pub const WORKERS: usize = 64;

/// Sleeps, and says how long it took.
#[derive(Clone, Default)]
pub struct Work(Arc<AtomicU64>);

impl Work {
    pub async fn run(&self) {
        let begun = Instant::now();
        tokio::time::sleep(Duration::from_millis(5)).await;
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }

    fn seconds(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 1e9
    }
}

#[subscriber("bench", max_workers = 64)]
async fn slow(
    _order: Order,
    State(work): State<Work>,
    State(count): State<Count>,
    State(all): State<Expected>,
) {
    work.run().await;
    count.add(all.0);
}

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let messages = bench.messages(50_000);
    let pg = bench.postgres().await?;
    // Share of the places' time that they worked, a round.
    let shares = std::sync::Mutex::new(Vec::new());
    let ours = || async {
        let (figures, worked) = ours(&pg, messages).await?;
        let share = worked / (WORKERS as f64 * figures.took.as_secs_f64());
        eprintln!("    {:.2} ms a run, {share:.3} of the time", 1e3 * worked / messages as f64);
        shares.lock().expect("nobody panics with it").push(share);
        Ok(figures)
    };
    let both = rounds::against(bench, ours, || theirs(&pg, messages)).await?;
    let mut shares = shares.into_inner()?;
    shares.sort_by(f64::total_cmp);
    let share = rounded(shares[shares.len() / 2]);
    let report = both.report("drain_slow", "postgres", 0.95);
    Ok(vec![report.at_least("of_64_workers", Some(share), 0.95)])
}

async fn ours(pg: &Pg, messages: u64) -> Result<(Figures, f64)> {
    pg.fill(messages).await?;
    let work = Work::default();
    let app = pg.app().only([slow::subscriber()]).state(work.clone());
    let figures = to_the_end(app, Some(&pg.pool), messages).await?;
    ensure!(pg.left().await? == 0, "{QUEUE} is not empty");
    Ok((figures, work.seconds()))
}

async fn theirs(pg: &Pg, messages: u64) -> Result<Figures> {
    pg.fill(messages).await?;
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = Instant::now();
    ceiling::slow::run(&pg.options, messages, Work::default()).await?;
    let figures = meter.end(messages, Some(begun.elapsed())).await?;
    ensure!(pg.left().await? == 0, "{QUEUE} is not empty");
    Ok(figures)
}
