//! What is broken, and how often.

mod clients;
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
use tokio::time::{Instant, sleep_until};

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
    /// Of these in each round.
    dose: usize,
    inject: Inject,
}

macro_rules! kinds {
    ($($dose:literal $name:literal $inject:path),* $(,)?) => {
        &[$(Kind { name: $name, dose: $dose, inject: |world, rng| Box::pin($inject(world, rng)) }),*]
    };
}

const POSTGRES: &[Kind] = kinds![
    18 "worker killed" processes::kill,
    14 "worker stopped" processes::stop,
    4 "worker's clock a day off" processes::set_clock,
    6 "worker drained" processes::drain,
    3 "worker told twice" processes::drain_twice,
    6 "producer killed" processes::kill_producer,
    14 "sessions terminated" sessions::terminate,
    8 "statements cancelled" sessions::cancel,
    4 "backend killed" server::kill_backend,
    3 "server stopped at once" server::stop,
    3 "postmaster killed" server::kill_postmaster,
    18 "sent late" network::hold,
    5 "black hole" network::black_hole,
    4 "one-way black hole" network::one_way,
    6 "reset" network::reset,
    4 "half-closed" network::fin,
    4 "slow" network::late,
    3 "dripping" network::drip,
    10 "answers lost" network::lose_answers,
    2 "dead letters renamed" tables::rename_letters,
    2 "dead letters denied" tables::deny_letters,
    1 "dead letters lack a column" tables::lack_column,
    1 "column added" tables::add_column,
    3 "table locked" tables::lock,
    8 "rows locked" tables::lock_rows,
    2 "deadlocks" tables::deadlock,
    2 "statement timeout" clients::statement_timeout,
    2 "lock timeout" clients::lock_timeout,
    1 "idle session timeout" clients::idle_timeout,
    1 "serializable" clients::serializable,
    2 "connections used up" clients::use_up,
];

const SQLITE: &[Kind] = kinds![
    50 "worker killed" files::kill,
    24 "worker stopped" processes::stop,
    10 "worker drained" processes::drain,
    4 "worker told twice" processes::drain_twice,
    10 "producer killed" processes::kill_producer,
    12 "file locked" files::lock,
    6 "dead letters renamed" files::rename_letters,
];

/// Does all of them, in an order that the seed makes, spread over the time.
pub async fn run(world: &Arc<World>, rounds: usize, time: Duration, seed: u64) {
    let kinds = if world.store == Store::Postgres { POSTGRES } else { SQLITE };
    let mut rng = Rng::with_seed(seed);
    let mut list = Vec::new();
    for _ in 0..rounds {
        let mut round: Vec<_> =
            kinds.iter().flat_map(|kind| std::iter::repeat_n(kind, kind.dose)).collect();
        rng.shuffle(&mut round);
        list.extend(round);
    }
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
        let (world, rng) = (Arc::clone(world), rng.fork());
        running.spawn(async move {
            let from = now();
            // Otherwise there was nothing to hit, or the server was away.
            if let Ok(true) = (kind.inject)(&world, rng).await {
                world.note(kind.name, from);
            }
            drop(place);
        });
        while running.try_join_next().is_some() {}
    }
    while running.join_next().await.is_some() {}
}
