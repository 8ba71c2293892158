//! apalis-postgres with what its README and its examples offer for speed: batches, no
//! second lock for tasks that the fetch has locked, a listener, several workers.
//!
//! The best number of workers and size of batches, 30,000 a second; two workers with
//! batches of 1,000 come to 20,000. A task spawned for each job (`parallelize`) is
//! slower by far, and results have to be kept, or a job is never done.

use std::time::Instant;

use anyhow::Result;
use apalis::prelude::{Data, TaskBuilder, WorkerBuilder, WorkerContext};
use apalis_postgres::{Config, PostgresStorage, queries};

use super::{done, pool, settle_down};
use crate::db::{Pg, QUEUE};
use crate::meter::{Figures, Meter};
use crate::scenario::drain::{Count, Expected, Order};

const WORKERS: usize = 3;

async fn noop(_order: Order, Data(count): Data<Count>, Data(all): Data<Expected>) {
    count.add(all.0);
}

pub async fn run(pg: &Pg, rows: u64) -> Result<Figures> {
    let (pool, count) = (pool(pg, 10), Count::default());
    PostgresStorage::setup(&pool).await?;
    fill(pg, rows).await?;
    settle_down(pg).await?;
    let config = Config::default().queue(QUEUE).batch_size(5000).lock_tasks(false);
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = Instant::now();
    let mut workers = Vec::new();
    for n in 0..WORKERS {
        let context = WorkerContext::new(&format!("worker {n}"));
        let storage =
            PostgresStorage::<Order>::new(&pool).with_config(config.clone()).with_pubsub();
        let worker = WorkerBuilder::new(&context)
            .backend(storage)
            .data(count.clone())
            .data(Expected(rows))
            .build(noop);
        workers.push((context, tokio::spawn(worker.run())));
    }
    count.all().await;
    let left = "SELECT FROM apalis.jobs WHERE status <> 'Done'";
    done(pg, left, || workers.iter().any(|(_, running)| running.is_finished())).await?;
    let took = begun.elapsed();
    for (context, running) in workers {
        context.stop()?;
        running.await??;
    }
    pool.close().await;
    meter.end(rows, Some(took)).await
}

async fn fill(pg: &Pg, rows: u64) -> Result<()> {
    let numbers: Vec<_> = (1..=rows).collect();
    for some in numbers.chunks(5000) {
        let task = |&n| Ok(TaskBuilder::new(serde_json::to_vec(&Order::nth(n))?).build());
        let tasks = some.iter().map(task).collect::<Result<Vec<_>>>()?;
        queries::push_tasks(&mut *pg.pool.acquire().await?, QUEUE, tasks).await?;
    }
    Ok(())
}
