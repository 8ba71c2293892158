//! Writes domain rows and messages, each pair in a transaction of its own.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use outbox::{Outgoing, Publisher};
use sqlx::Transaction;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::SqlitePool;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::args::Seat;
use crate::journal::{EVENTS, Journal};
use crate::worker::end_with_parent;
use crate::workload::{Draft, draft, waiting};

/// A transaction begins so often, as long as the database keeps up.
const EVERY: Duration = Duration::from_millis(45);

/// Its own transaction, but for a time that would keep it from going on.
const PATIENCE: Duration = Duration::from_secs(4);

/// Messages of a transaction now and then.
const BURST: usize = 20;

/// What becomes of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Commit,
    RollBack,
    /// The message is published in a savepoint, which is rolled back.
    Savepoint,
    /// The future is dropped half-way.
    Drop,
}

fn outgoing(draft: &Draft) -> Outgoing {
    let Draft { queue, message, bytes, delay, timer } = draft;
    let mut outgoing = match bytes {
        Some(bytes) => Outgoing::raw(*queue, *bytes),
        None => Outgoing::new(*queue, message),
    };
    outgoing = outgoing.header("key", message.key.as_str());
    if let Some(delay) = delay {
        outgoing = outgoing.delay(*delay);
    }
    if *timer { outgoing.timer_id(&message.key) } else { outgoing }
}

enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

/// The same transactions in the words of both databases.
macro_rules! transactions {
    ($module:ident, $database:ty, $pool:ty, $begin:expr, $now:literal) => {
        mod $module {
            use super::*;

            async fn domain(tx: &mut Transaction<'_, $database>, draft: &Draft) -> Result<()> {
                let insert = concat!(
                    "INSERT INTO biz (key, queue, act, delay, called) VALUES ($1, $2, $3, $4, ",
                    $now,
                    ")"
                );
                let delay = draft.delay.unwrap_or_default().as_micros();
                sqlx::query(insert)
                    .bind(&draft.message.key)
                    .bind(draft.queue)
                    .bind(draft.bytes.map_or(format!("{:?}", draft.message.act), |_| "Bad".into()))
                    .bind(i64::try_from(delay)?)
                    .execute(&mut **tx)
                    .await?;
                Ok(())
            }

            pub(super) async fn place(pool: &$pool, draft: &Draft, fate: Fate) -> Result<()> {
                let mut tx = $begin(pool).await?;
                if fate == Fate::Savepoint {
                    sqlx::query("SAVEPOINT before").execute(&mut *tx).await?;
                }
                domain(&mut tx, draft).await?;
                Publisher::default().send(&mut tx, outgoing(draft)).await?;
                match fate {
                    Fate::RollBack => tx.rollback().await?,
                    Fate::Savepoint => {
                        sqlx::query("ROLLBACK TO SAVEPOINT before").execute(&mut *tx).await?;
                        tx.commit().await?;
                    }
                    Fate::Commit | Fate::Drop => tx.commit().await?,
                }
                Ok(())
            }

            /// The timer once more, without a domain row: while it is there, nothing is
            /// written.
            pub(super) async fn again(pool: &$pool, key: &str) -> Result<()> {
                let mut tx = $begin(pool).await?;
                let body = crate::workload::Message {
                    key: format!("again:{key}"),
                    act: crate::workload::Act::Ok,
                    ms: 0,
                };
                let again = Outgoing::new("timers", &body).header("key", body.key.as_str());
                let again = again.timer_id(key).delay(Duration::from_secs(1));
                Publisher::default().send(&mut tx, again).await?;
                Ok(tx.commit().await?)
            }

            /// Many at once, which wait for their workers.
            pub(super) async fn burst(pool: &$pool, drafts: &[Draft]) -> Result<()> {
                let mut tx = $begin(pool).await?;
                for draft in drafts {
                    domain(&mut tx, draft).await?;
                }
                let messages = drafts.iter().map(outgoing);
                Publisher::default().publish_batch(&mut tx, messages).await?;
                Ok(tx.commit().await?)
            }

            pub(super) async fn cancel(pool: &$pool, key: &str) -> Result<()> {
                let mut tx = $begin(pool).await?;
                if Publisher::default().cancel_timer(&mut tx, "timers", key).await? {
                    let cancelled = "INSERT INTO cancelled (key) VALUES ($1)";
                    sqlx::query(cancelled).bind(key).execute(&mut *tx).await?;
                }
                Ok(tx.commit().await?)
            }
        }
    };
}

transactions!(
    postgres,
    sqlx::Postgres,
    PgPool,
    PgPool::begin,
    "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
);
transactions!(
    sqlite,
    sqlx::Sqlite,
    SqlitePool,
    outbox::sqlite::begin,
    "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
);

impl Pool {
    async fn place(&self, draft: &Draft, fate: Fate) -> Result<()> {
        match self {
            Self::Postgres(pool) => postgres::place(pool, draft, fate).await,
            Self::Sqlite(pool) => sqlite::place(pool, draft, fate).await,
        }
    }

    async fn again(&self, key: &str) -> Result<()> {
        match self {
            Self::Postgres(pool) => postgres::again(pool, key).await,
            Self::Sqlite(pool) => sqlite::again(pool, key).await,
        }
    }

    async fn burst(&self, drafts: &[Draft]) -> Result<()> {
        match self {
            Self::Postgres(pool) => postgres::burst(pool, drafts).await,
            Self::Sqlite(pool) => sqlite::burst(pool, drafts).await,
        }
    }

    async fn cancel(&self, key: &str) -> Result<()> {
        match self {
            Self::Postgres(pool) => postgres::cancel(pool, key).await,
            Self::Sqlite(pool) => sqlite::cancel(pool, key).await,
        }
    }
}

pub async fn produce(seat: Seat) -> Result<()> {
    end_with_parent();
    let events = Journal::open(&seat.folder, EVENTS, &seat.name)?;
    let pool = if seat.url.starts_with("postgres") {
        let options: PgConnectOptions = seat.url.parse()?;
        let pool = PgPoolOptions::new().max_connections(2).acquire_timeout(PATIENCE);
        Pool::Postgres(pool.connect_lazy_with(options.application_name(&seat.name)))
    } else {
        Pool::Sqlite(outbox::sqlite::connect(&seat.url).await?)
    };
    let mut rng = Rng::with_seed(seat.seed);
    let mut timers: Vec<String> = Vec::new();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        ticks.tick().await;
        let key = format!("{}:{number}", seat.name);
        let draft = draft(&mut rng, key.clone());
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
            Ok(Err(_)) | Err(_) => events.write(&format!("unknown {key}")),
        }
        if rng.u32(0..60) == 0 {
            let drafts: Vec<_> =
                (0..BURST).map(|at| waiting(&mut rng, format!("{key}+{at}"))).collect();
            if !matches!(timeout(PATIENCE, pool.burst(&drafts)).await, Ok(Ok(()))) {
                events.write(&format!("unknown {key}+0"));
            }
        }
        if rng.u32(0..20) == 0 && !timers.is_empty() {
            let key = timers.swap_remove(rng.usize(0..timers.len()));
            let told = match rng.bool() {
                true => timeout(PATIENCE, pool.cancel(&key)).await,
                false => timeout(PATIENCE, pool.again(&key)).await,
            };
            if !matches!(told, Ok(Ok(()))) {
                events.write(&format!("unknown {key}"));
            }
        }
    }
    Ok(())
}
