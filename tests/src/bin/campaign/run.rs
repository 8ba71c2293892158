//! The course of a run: calm, faults, quiet, drains, and then the books are opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use sqlx::Connection as _;
use tokio::time::{Instant, sleep};

use crate::args::{Args, Store};
use crate::faults;
use crate::history::History;
use crate::journal::now;
use crate::report::{Rates, Report};
use crate::size;
use crate::workload::TTL;
use crate::world::World;

/// Longer than Z1 allows.
const PATIENCE: Duration = Duration::from_secs(90);

pub async fn run(args: &Args, folder: PathBuf, seed: u64) -> Result<Report> {
    let course = args.course();
    let world = World::make(args.store, folder, seed).await?;
    let begun = now();
    world.fleet.start();
    let looks = tokio::spawn(size::watch(Arc::clone(&world.fleet)));
    // The first seconds are those of connections and plans.
    sleep(course.calm / 6).await;
    let calm = (now(), now() + i64::try_from((course.calm * 5 / 6).as_micros())?);
    sleep(course.calm * 5 / 6).await;

    let shaken = now();
    faults::run(&world, course.long, course.faults, seed).await;
    if world.store == Store::Postgres {
        world.answers().await?;
    }
    let shaken = (shaken, now());
    let quiet = (shaken.1, handled(&world).await?);

    world.fleet.open(&world.fleet.producers);
    sleep(TTL + Duration::from_secs(1)).await;
    let mut rng = Rng::with_seed(seed);
    for _ in 0..course.drains {
        let seat = Arc::clone(world.worker(&mut rng));
        let told = world.fleet.signal(&seat, "TERM").await?;
        let end = Instant::now() + PATIENCE;
        while seat.app() == told && told.is_some() {
            ensure!(Instant::now() < end, "{told:?} does not end");
            sleep(Duration::from_millis(20)).await;
        }
        sleep(Duration::from_secs(1)).await;
    }
    handled(&world).await?;
    world.fleet.close(&world.fleet.workers, "TERM").await?;
    looks.abort();
    if world.store == Store::Sqlite {
        faults::is_sound(&world).await?;
    }
    let history = History::load(&world, quiet).await?;
    let rates = Rates::of(&history, calm, shaken);
    Ok(Report::of(args, seed, &course, &history, rates, now() - begun))
}

/// No more is published; waits until everything is handled, and says when it was.
async fn handled(world: &World) -> Result<i64> {
    world.fleet.close(&world.fleet.producers, "KILL").await?;
    let end = Instant::now() + PATIENCE;
    // Who cannot say by now how many are left has not said that there are none.
    while !matches!(left(world).await, Ok(0)) && Instant::now() < end {
        sleep(Duration::from_millis(100)).await;
    }
    Ok(now())
}

async fn left(world: &World) -> Result<i64> {
    const ROWS: &str = "SELECT count(*) FROM outbox";
    Ok(match world.store {
        Store::Postgres => {
            let mut admin = world.admin().await?;
            let rows = sqlx::query_scalar(ROWS).fetch_one(&mut admin).await?;
            admin.close().await?;
            rows
        }
        Store::Sqlite => {
            let mut file = faults::open(world).await?;
            let rows = sqlx::query_scalar(ROWS).fetch_one(&mut file).await?;
            file.close().await?;
            rows
        }
    })
}
