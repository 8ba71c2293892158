//! `testbroker`: messages published to the broker of tests, one after the other, each
//! through its typed handler before `publish` returns. Bar: 100,000 a second. There is
//! no loop by hand to compare it with: without it there is no table at all.

use anyhow::{Result, ensure};
use outbox::testing::TestBroker;

use super::drain::{Count, Expected, Order, noop};
use crate::bench::Bench;
use crate::db::QUEUE;
use crate::meter::{Figures, Meter};
use crate::report::Report;

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let messages = bench.messages(100_000);
    let mut runs = Vec::new();
    for _ in 0..bench.args.rounds {
        let figures = measured(messages).await?;
        eprintln!("  {figures}");
        runs.push(figures);
    }
    runs.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
    let report = Report::of("testbroker", "memory", &runs[runs.len() / 2]);
    let per_second = report.msgs_per_s;
    Ok(vec![report.at_least("msgs_per_s", per_second, 100_000.0)])
}

async fn measured(messages: u64) -> Result<Figures> {
    let count = Count::default();
    let broker = TestBroker::with([noop::subscriber()]);
    let broker = broker.state(count.clone()).state(Expected(messages));
    let meter = Meter::start(None).await?;
    for n in 0..messages {
        broker.publish(QUEUE, &Order::nth(n)).await?;
    }
    let figures = meter.end(messages, None).await?;
    ensure!(count.so_far() == messages && broker.rows().is_empty(), "{QUEUE} is not empty");
    Ok(figures)
}
