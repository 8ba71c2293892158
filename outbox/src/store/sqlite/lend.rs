//! Transactions that are lent to handlers, from the user's pool. What a handler writes, its ack and
//! what it publishes commit together. Nobody else can write while such a transaction is open, not
//! even to extend a lease. So the leases begin anew when it ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::{Executor, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

#[cfg(feature = "testing")]
use super::apart::Apart;
use super::connect::{begin_writing, commit, roll_back};
use super::query;
use crate::error::StoreError;
use crate::extract::{Begun, Ended, Lender, Open, lends};
use crate::publish::sealed::On;
use crate::publish::{Prepared, Publisher, Tally, together};
use crate::store::{Handled, Lease};
use crate::telemetry::{TARGET, warn};
use crate::unpoisoned::Locked as _;

/// Lends transactions. SQLite has one writer at a time. Those who wait for it wait in turn here,
/// and not inside the database, which gives up after a while.
pub struct SqliteLender {
    pub(super) pool: SqlitePool,
    turn: Arc<Semaphore>,
    /// When others could last write between two turns.
    gap: Mutex<Instant>,
    #[cfg(feature = "testing")]
    pub(super) apart: Option<Apart>,
}

/// Whoever waits for the lock of the file looks every tenth of a second.
const GAP: Duration = Duration::from_millis(120);
const GAP_AFTER: Duration = Duration::from_secs(1);

impl SqliteLender {
    pub(crate) fn new(pool: SqlitePool) -> Self {
        let gap = Mutex::new(Instant::now());
        Self {
            pool,
            turn: Arc::new(Semaphore::new(1)),
            gap,
            #[cfg(feature = "testing")]
            apart: None,
        }
    }

    /// Waits for its turn. If turns followed one another without end, nobody else would ever write,
    /// and the leases of those who wait for their turn would run out. So there are gaps.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(turn) = Arc::clone(&self.turn).try_acquire_owned() {
            *self.gap.locked() = Instant::now();
            return Some(turn);
        }
        // The semaphore is never closed.
        let turn = Arc::clone(&self.turn).acquire_owned().await.ok();
        if self.gap.locked().elapsed() > GAP_AFTER {
            sleep(GAP).await;
            *self.gap.locked() = Instant::now();
        }
        turn
    }
}

impl lends::Lends for Sqlite {
    /// A statement that was given up goes on until it has ended, and a rollback waits for it.
    const UNDO_LIMIT: Duration = Duration::from_secs(30);

    fn on(connection: &mut SqliteConnection) -> On<'_> {
        On::Sqlite(connection)
    }

    async fn open(lender: &Lender) -> Result<Open<Self>, StoreError> {
        let lender = lender.get::<SqliteLender>()?;
        #[cfg(feature = "testing")]
        if let Some(apart) = &lender.apart {
            apart.make(&lender.pool).await?;
        }
        let turn = lender.turn().await;
        let tx = begin_writing(&lender.pool).await;
        let mut tx = tx.map_err(StoreError::of("begin"))?;
        tx.execute(BEGUN).await.map_err(StoreError::of("begin"))?;
        #[cfg(feature = "testing")]
        let elsewhere = match &lender.apart {
            Some(apart) => Some(apart.begun(&mut tx).await?),
            None => None,
        };
        Ok(Open {
            tx: Begun::Kept(tx),
            turn,
            pool: Some(lender.pool.clone()),
            #[cfg(feature = "testing")]
            elsewhere,
        })
    }

    async fn settle(
        open: Open<Self>,
        publisher: &Publisher,
        acks: &[Handled<'_>],
        leases: &[Lease],
    ) -> Result<Ended, StoreError> {
        // Its turn ends with the transaction.
        #[cfg(feature = "testing")]
        if let Some(elsewhere) = open.elsewhere {
            return Apart::settle(open.tx, elsewhere, publisher, acks).await;
        }
        let Open { mut tx, turn: _turn, pool, .. } = open;
        let mut tally = Tally::begin();
        let ended = match write(&mut tx, publisher, acks, leases, &mut tally).await {
            Ok(true) => {
                let committed = commit(&mut tx).await.map_err(StoreError::of("commit"));
                committed.map(|()| Ended::Committed)
            }
            undone => {
                drop(roll_back(&mut tx).await);
                undone.map(|_| Ended::LeaseLost)
            }
        };
        // The connection is free again, also for what follows.
        drop(tx);
        match (&ended, pool) {
            (Ok(Ended::Committed), _) => publisher.told(tally),
            // At once: a claim may wait for the lock, to take rows whose leases have run out.
            (_, Some(pool)) => drop(in_another(&pool, publisher, leases).await),
            _ => {}
        }
        ended
    }

    /// This does not check deferred foreign keys: only a commit does.
    async fn try_out(
        open: &mut Open<Self>,
        publisher: &Publisher,
        messages: &[Prepared],
    ) -> Result<(), StoreError> {
        goes_on(&mut open.tx).await?;
        let messages: Vec<_> = messages.iter().collect();
        publisher.insert_returned(&mut open.tx, &messages, &mut Tally::begin()).await
    }

    /// The leases may have run out, because nobody could extend them. They begin anew before
    /// anybody else can write, so that the handler's error can be settled.
    async fn roll_back(
        open: Open<Self>,
        publisher: &Publisher,
        leases: &[Lease],
    ) -> Result<(), StoreError> {
        let failed = StoreError::of;
        #[cfg(feature = "testing")]
        let leases = if open.elsewhere.is_some() { &[] } else { leases };
        let Open { mut tx, turn: _turn, pool, .. } = open;
        if leases.is_empty() {
            return roll_back(&mut tx).await.map_err(failed("roll back"));
        }
        let undone = tx.execute(UNDO).await;
        if let (Err(over), Some(pool)) = (&undone, &pool) {
            warn!(
                target: TARGET, error = %over, row_id = leases.first().map(|one| one.id),
                "a transaction could not be rolled back, because SQLite has ended it by itself or \
                 its connection is gone; its leases begin anew in another transaction"
            );
            drop(roll_back(&mut tx).await);
            drop(tx);
            return in_another(pool, publisher, leases).await;
        }
        undone.map_err(failed("roll back"))?;
        all_anew(&mut tx, publisher, leases).await
    }
}

/// Acks and publishes; `false` when a lease is another's.
async fn write(
    tx: &mut Begun<Sqlite>,
    publisher: &Publisher,
    acks: &[Handled<'_>],
    leases: &[Lease],
    tally: &mut Tally,
) -> Result<bool, StoreError> {
    goes_on(tx).await?;
    for handled in acks {
        let Lease { id, token } = handled.lease;
        let ack = query(&publisher.statements().sqlite.ack).bind(id).bind(token);
        let acked = ack.execute(&mut **tx).await.map_err(StoreError::of("ack"))?;
        if acked.rows_affected() == 0 {
            return Ok(false);
        }
    }
    // After all deletes: a message may have the timer name of a row that is acked.
    for messages in together(acks) {
        publisher.insert_returned(tx, &messages, tally).await?;
    }
    let acked = |one: &Lease| acks.iter().any(|handled| handled.lease == *one);
    begin_anew(tx, publisher, leases.iter().copied().filter(|one| !acked(one))).await?;
    Ok(true)
}

/// How long the pool may take to lend a connection in which leases begin anew.
const ANEW_WITHIN: Duration = Duration::from_secs(5);

async fn in_another(
    pool: &SqlitePool,
    publisher: &Publisher,
    leases: &[Lease],
) -> Result<(), StoreError> {
    let another = async {
        let mut tx = begin_writing(pool).await.map_err(StoreError::of("extend"))?;
        all_anew(&mut tx, publisher, leases).await
    };
    let late = |_| Err(StoreError::new("extend", "no connection in time", true));
    timeout(ANEW_WITHIN, another).await.unwrap_or_else(late)
}

/// Begins these leases anew and commits. Whatever fails, the connection is in no transaction then.
async fn all_anew(
    tx: &mut SqliteConnection,
    publisher: &Publisher,
    leases: &[Lease],
) -> Result<(), StoreError> {
    let begun = begin_anew(tx, publisher, leases.iter().copied()).await;
    if begun.is_err() {
        drop(roll_back(tx).await);
        return begun;
    }
    commit(tx).await.map_err(StoreError::of("extend"))
}

async fn begin_anew(
    tx: &mut SqliteConnection,
    publisher: &Publisher,
    leases: impl Iterator<Item = Lease> + Send,
) -> Result<(), StoreError> {
    for Lease { id, token } in leases {
        let extend = query(&publisher.statements().sqlite.extend).bind(id).bind(token).bind(token);
        extend.execute(&mut *tx).await.map_err(StoreError::of("extend"))?;
    }
    Ok(())
}

/// Marks the beginning of a transaction.
const BEGUN: &str = "SAVEPOINT outbox_begun";
/// Undoes everything since then.
const UNDO: &str = "ROLLBACK TO outbox_begun";

/// Ends the mark, so that what comes next stays.
const KEEP: &str = "RELEASE outbox_begun";

/// Ends the mark, and with that finds out whether the transaction goes on. For some errors, such as
/// a full disk or a conflict under `ON CONFLICT ROLLBACK`, SQLite ends the whole transaction by
/// itself. A handler may keep such an error to itself: then an ack would stand alone, and what the
/// handler did would be undone.
pub(super) async fn goes_on(tx: &mut SqliteConnection) -> Result<(), StoreError> {
    const OVER: &str = "a statement of the handler failed, for which SQLite has rolled back the \
        whole transaction: what came before it is undone";
    let kept = tx.execute(KEEP).await;
    kept.map(drop).map_err(|error| match &error {
        sqlx::Error::Database(refused) if refused.code().is_some_and(|code| code == "1") => {
            StoreError::new("ack", OVER, false)
        }
        _ => StoreError::of("ack")(error),
    })
}

#[cfg(test)]
mod tests {
    use sqlx::AssertSqlSafe;
    use uuid::Uuid;

    use super::*;
    use crate::extract::lends::Lends as _;
    use crate::store::names::TableNames;

    /// Otherwise another claim would take the row before the failure is written, again and again,
    /// and no attempt would be spent.
    #[tokio::test]
    async fn a_lease_begins_anew_after_a_transaction_that_sqlite_has_ended() {
        let (path, lease) = (Uuid::new_v4(), Lease { id: 1, token: Uuid::new_v4() });
        let path = std::env::temp_dir().join(format!("outbox-{path}.db"));
        let pool = crate::sqlite::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        crate::schema::migrate_tables(&pool, &TableNames::default()).await.unwrap();
        let leased = "INSERT INTO outbox (id, queue, payload, acquired_token, acquired_at)
            VALUES (1, 'q', x'37', ?1, 7)";
        sqlx::query(leased).bind(lease.token).execute(&pool).await.unwrap();
        pool.execute("CREATE TABLE once (n UNIQUE ON CONFLICT ROLLBACK)").await.unwrap();
        let lender = Lender::new("SQLite", SqliteLender::new(pool.clone()));
        let since = "SELECT acquired_at FROM outbox";
        for (twice, ended) in [("(8)", false), ("(7), (7)", true)] {
            let mut open = Sqlite::open(&lender).await.unwrap();
            let insert = AssertSqlSafe(format!("INSERT INTO once VALUES {twice}"));
            assert_eq!(open.tx.execute(sqlx::raw_sql(insert)).await.is_err(), ended);
            Sqlite::roll_back(open, &Publisher::default(), &[lease]).await.unwrap();
            let since: i64 = sqlx::query_scalar(since).fetch_one(&pool).await.unwrap();
            assert!(since > 7, "it has ended: {ended}");
            pool.execute("UPDATE outbox SET acquired_at = 7").await.unwrap();
        }
        let left: i64 =
            sqlx::query_scalar("SELECT count(*) FROM once").fetch_one(&pool).await.unwrap();
        assert_eq!(left, 0);
        pool.close().await;
        std::fs::remove_file(path).unwrap();
    }
}
