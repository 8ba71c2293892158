//! Writes domain rows and messages, each pair in a transaction of its own.

mod transactions;

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::args::{Seat, Store};
use crate::journal::{EVENTS, Journal, UNKNOWN};
use crate::worker::end_with_parent;
use crate::workload::{draft, waiting};
use transactions::{Fate, Pool};

/// A transaction begins so often, as long as the database keeps up: seldom enough that what
/// faults leave lying is little, on two cores that are not alone. How long a heap takes to
/// be gone says nothing of backoff.
const EVERY: Duration = Duration::from_millis(65);

/// Its own transaction, but for a time that would keep it from going on.
const PATIENCE: Duration = Duration::from_secs(4);

/// Messages of a transaction now and then.
const BURST: usize = 20;

pub async fn produce(seat: Seat) -> Result<()> {
    end_with_parent();
    let events = Journal::open(&seat.folder, EVENTS, &seat.name)?;
    let (store, pool) = if seat.url.starts_with("postgres") {
        let options: PgConnectOptions = seat.url.parse()?;
        let pool = PgPoolOptions::new().max_connections(2).acquire_timeout(PATIENCE);
        let pool = pool.connect_lazy_with(options.application_name(&seat.name));
        (Store::Postgres, Pool::Postgres(pool))
    } else {
        (Store::Sqlite, Pool::Sqlite(outbox::sqlite::connect(&seat.url).await?))
    };
    let mut rng = Rng::with_seed(seat.seed);
    let mut timers: Vec<String> = Vec::new();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        ticks.tick().await;
        let key = format!("{}:{number}", seat.name);
        let draft = draft(&mut rng, key.clone(), store);
        let fate = match rng.u32(0..100) {
            0..2 => Fate::RollBack,
            2..4 => Fate::Savepoint,
            4..5 => Fate::Drop,
            _ => Fate::Commit,
        };
        let limit = match fate {
            Fate::Drop => Duration::from_micros(rng.u64(100..3_000)),
            _ => PATIENCE,
        };
        if matches!(fate, Fate::RollBack | Fate::Savepoint) {
            events.write(&format!("undone {key}"));
        }
        match timeout(limit, pool.place(&draft, fate)).await {
            Ok(Ok(())) if draft.timer && fate == Fate::Commit => timers.push(key.clone()),
            Ok(Ok(())) => {}
            // Whether it has committed is what the domain table says.
            Ok(Err(_)) | Err(_) => events.write(&format!("{} {key}", fate.without_end())),
        }
        if rng.u32(0..60) == 0 {
            let drafts: Vec<_> =
                (0..BURST).map(|at| waiting(&mut rng, format!("{key}+{at}"))).collect();
            if !matches!(timeout(PATIENCE, pool.burst(&drafts)).await, Ok(Ok(()))) {
                events.write(&format!("{UNKNOWN} {key}+0"));
            }
        }
        if rng.u32(0..20) == 0 && !timers.is_empty() {
            let key = timers.swap_remove(rng.usize(0..timers.len()));
            let told = match rng.bool() {
                true => timeout(PATIENCE, pool.cancel(&key)).await,
                false => timeout(PATIENCE, pool.again(&key)).await,
            };
            // The key is that of a transaction which has committed long ago.
            if !matches!(told, Ok(Ok(()))) {
                events.write(&format!("timer {key}"));
            }
        }
    }
    Ok(())
}
