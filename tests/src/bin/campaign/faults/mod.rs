//! What is broken, and how often.

mod clients;
mod deadlocks;
mod files;
mod network;
mod processes;
mod server;
mod sessions;
mod tables;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::args::Store;
use crate::journal::now;
use crate::world::World;
pub use files::{is_sound, open};

/// Faults that may be there at the same time.
const OVERLAP: usize = 4;
/// More of them, and nothing is done in between that they could break.
const EVERY: Duration = Duration::from_millis(700);

/// True when something was hit.
type Inject = for<'a> fn(&'a World, Rng) -> Pin<Box<dyn Future<Output = Result<bool>> + Send + 'a>>;

pub struct Kind {
    name: &'static str,
    /// Of these in a fast run, and in a long one.
    doses: [usize; 2],
    inject: Inject,
}

macro_rules! kinds {
    ($($fast:literal $long:literal $name:literal $inject:path),* $(,)?) => {
        &[$(Kind {
            name: $name,
            doses: [$fast, $long],
            inject: |world, rng| Box::pin($inject(world, rng)),
        }),*]
    };
}

const POSTGRES: &[Kind] = kinds![
    24 580 "worker killed" processes::kill,
    14 320 "worker stopped" processes::stop,
    4 64 "worker's clock a day off" processes::set_clock,
    8 160 "worker drained" processes::drain,
    4 64 "worker told twice" processes::drain_twice,
    6 96 "producer killed" processes::kill_producer,
    18 440 "sessions terminated" sessions::terminate,
    10 200 "statements cancelled" sessions::cancel,
    6 90 "backend killed" server::kill_backend,
    4 70 "server stopped at once" server::stop,
    4 60 "postmaster killed" server::kill_postmaster,
    18 288 "sent late" network::hold,
    5 80 "black hole" network::black_hole,
    4 64 "one-way black hole" network::one_way,
    6 96 "reset" network::reset,
    4 64 "half-closed" network::fin,
    4 64 "slow" network::late,
    3 48 "dripping" network::drip,
    10 160 "answers lost" network::lose_answers,
    3 28 "dead letters renamed" tables::rename_letters,
    3 28 "dead letters denied" tables::deny_letters,
    2 14 "dead letters lack a column" tables::lack_column,
    1 16 "column added" tables::add_column,
    3 48 "table locked" tables::lock,
    8 128 "rows locked" tables::lock_rows,
    2 30 "deadlocks" deadlocks::deadlock,
    2 32 "statement timeout" clients::statement_timeout,
    2 32 "lock timeout" clients::lock_timeout,
    1 16 "idle session timeout" clients::idle_timeout,
    1 16 "serializable" clients::serializable,
    2 32 "connections used up" clients::use_up,
];

const SQLITE: &[Kind] = kinds![
    50 800 "worker killed" files::kill,
    24 384 "worker stopped" processes::stop,
    10 160 "worker drained" processes::drain,
    4 64 "worker told twice" processes::drain_twice,
    10 160 "producer killed" processes::kill_producer,
    12 192 "file locked" files::lock,
    6 96 "dead letters renamed" files::rename_letters,
];

/// Of which a run on PostgreSQL has to have had so many: kinds that do the same together, in
/// a fast run and in a long one.
pub const ASKED: [(&str, &[&str], [usize; 2]); 6] = [
    ("kills of workers", &["worker killed", "worker's clock a day off"], [25, 600]),
    ("stops of workers", &["worker stopped"], [12, 300]),
    ("drains", &["worker drained", "worker told twice"], [10, 200]),
    ("ends by an administrator", &["sessions terminated", "statements cancelled"], [25, 600]),
    ("crashes of the server", &CRASHES, [12, 200]),
    (
        "faults of the dead letters",
        &["dead letters renamed", "dead letters denied", "dead letters lack a column"],
        [6, 60],
    ),
];

/// What undoes commits that nobody waited for.
pub const CRASHES: [&str; 3] = ["backend killed", "server stopped at once", "postmaster killed"];

/// One that finds nothing to hit, or the server away, is tried again, unless that took long.
const TRIES: usize = 5;
const AGAIN: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10);

/// Does all of them, in an order that the seed makes, spread over the time.
pub async fn run(world: &Arc<World>, long: bool, time: Duration, seed: u64) {
    let kinds = if world.store == Store::Postgres { POSTGRES } else { SQLITE };
    let mut rng = Rng::with_seed(seed);
    let of = |kind: &'static Kind| std::iter::repeat_n(kind, kind.doses[usize::from(long)]);
    let mut list: Vec<_> = kinds.iter().flat_map(of).collect();
    rng.shuffle(&mut list);
    list.truncate(usize::try_from(time.as_millis() / EVERY.as_millis()).unwrap_or(usize::MAX));
    let (begun, count) = (Instant::now(), u32::try_from(list.len()).unwrap_or(u32::MAX));
    let places = Arc::new(Semaphore::new(OVERLAP));
    let mut running = JoinSet::new();
    for (number, kind) in (0_u32..).zip(list) {
        sleep_until(begun + time * number / count).await;
        if begun.elapsed() >= time {
            break;
        }
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
        let (world, mut rng) = (Arc::clone(world), rng.fork());
        running.spawn(async move {
            for _ in 0..TRIES {
                let (from, tried) = (now(), Instant::now());
                if let Ok(true) = (kind.inject)(&world, rng.fork()).await {
                    world.note(kind.name, from);
                    break;
                }
                if tried.elapsed() > LONG || begun.elapsed() + AGAIN >= time {
                    break;
                }
                sleep(AGAIN).await;
            }
            drop(place);
        });
        while running.try_join_next().is_some() {}
    }
    while running.join_next().await.is_some() {}
}
