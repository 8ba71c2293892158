//! graphile_worker: slots that two local queues feed, and completions that are
//! collected while others are on their way.
//!
//! The best of what its guides name for throughput, 55,000 a second; with the settings
//! of its own benchmark, `benches/perf_test.rs` (500 slots, one queue of 5,000, 5 ms to
//! collect completions), 45,000.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext,
    WorkerOptions,
};

use super::{done, pool, settle_down};
use crate::db::Pg;
use crate::meter::{Figures, Meter};
use crate::scenario::drain::{Count, Expected, Order};

impl TaskHandler for Order {
    const IDENTIFIER: &'static str = "bench";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let (count, all) = (context.get_ext::<Count>(), context.get_ext::<Expected>());
        if let (Some(count), Some(all)) = (count, all) {
            count.add(all.0);
        }
        Ok::<_, String>(())
    }
}

pub async fn run(pg: &Pg, rows: u64) -> Result<Figures> {
    let (pool, count) = (pool(pg, 100), Count::default());
    let worker = WorkerOptions::default()
        .pg_pool(pool.clone())
        .concurrency(24)
        .complete_job_batch_delay(Duration::ZERO)
        .local_queue(LocalQueueConfig::default().with_size(500).with_queue_count(2))
        .add_extension(count.clone())
        .add_extension(Expected(rows))
        .define_job::<Order>()
        .init()
        .await?;
    fill(&worker.create_utils(), rows).await?;
    settle_down(pg).await?;
    let worker = Arc::new(worker);
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = Instant::now();
    let running = tokio::spawn({
        let worker = Arc::clone(&worker);
        async move { worker.run().await }
    });
    count.all().await;
    let left = "SELECT FROM graphile_worker._private_jobs";
    done(pg, left, || running.is_finished()).await?;
    let took = begun.elapsed();
    worker.request_shutdown();
    running.await?.map_err(|error| anyhow!("{error}"))?;
    pool.close().await;
    meter.end(rows, Some(took)).await
}

async fn fill(utils: &graphile_worker::WorkerUtils, rows: u64) -> Result<()> {
    let numbers: Vec<_> = (1..=rows).collect();
    // It answers with all it has added.
    for some in numbers.chunks(5000) {
        let job = |&n| {
            let payload = serde_json::to_value(Order::nth(n))?;
            let identifier = Order::IDENTIFIER.to_owned();
            Ok(RawJobSpec { identifier, payload, spec: JobSpec::default() })
        };
        let jobs = some.iter().map(job).collect::<Result<Vec<_>>>()?;
        utils.add_raw_jobs(&jobs).await?;
    }
    Ok(())
}
