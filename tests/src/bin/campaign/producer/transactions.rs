//! The transactions of a producer, on either database.

use anyhow::Result;
use outbox::{Outgoing, Publisher};
use sqlx::Transaction;
use sqlx::postgres::PgPool;
use sqlx::sqlite::SqlitePool;

use crate::journal::UNKNOWN;
use crate::workload::{AGAIN_DELAY, Act, Draft, Message};

/// What becomes of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Commit,
    RollBack,
    /// The message is published in a savepoint, which is rolled back.
    Savepoint,
    /// The future is dropped half-way.
    Drop,
}

impl Fate {
    /// How a transaction of this fate is told of that came to no end.
    pub(super) fn without_end(self) -> &'static str {
        match self {
            Self::Drop => "dropped",
            Self::Commit | Self::RollBack | Self::Savepoint => UNKNOWN,
        }
    }
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

pub(super) enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl Pool {
    pub(super) async fn place(&self, draft: &Draft, fate: Fate) -> Result<()> {
        match self {
            Self::Postgres(pool) => postgres::place(pool, draft, fate).await,
            Self::Sqlite(pool) => sqlite::place(pool, draft, fate).await,
        }
    }

    pub(super) async fn again(&self, key: &str) -> Result<()> {
        match self {
            Self::Postgres(pool) => postgres::again(pool, key).await,
            Self::Sqlite(pool) => sqlite::again(pool, key).await,
        }
    }

    pub(super) async fn burst(&self, drafts: &[Draft]) -> Result<()> {
        match self {
            Self::Postgres(pool) => postgres::burst(pool, drafts).await,
            Self::Sqlite(pool) => sqlite::burst(pool, drafts).await,
        }
    }

    pub(super) async fn cancel(&self, key: &str) -> Result<()> {
        match self {
            Self::Postgres(pool) => postgres::cancel(pool, key).await,
            Self::Sqlite(pool) => sqlite::cancel(pool, key).await,
        }
    }
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
                let body = Message { key: format!("again:{key}"), act: Act::Ok, ms: 0 };
                let again = Outgoing::new("timers", &body).header("key", body.key.as_str());
                let again = again.timer_id(key).delay(AGAIN_DELAY);
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

#[cfg(test)]
#[test]
fn what_is_dropped_on_purpose_is_no_commit_without_an_answer() {
    assert_ne!(Fate::Drop.without_end(), UNKNOWN);
    assert_eq!(Fate::Commit.without_end(), UNKNOWN);
}
