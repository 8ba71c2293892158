//! Transactions that are lent to handlers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::{Executor, Row as _, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::claim::read;
use super::connect::begin_writing;
use super::query;
use crate::error::StoreError;
use crate::extract::{Begun, Elsewhere, Ended, Lender, Open, lends};
use crate::message::{Row, Stored};
use crate::publish::{Due, Prepared, Publisher, Tally};
use crate::store::names::TableNames;
use crate::store::{Handled, Lease};
use crate::telemetry::TARGET;
use crate::unpoisoned::Locked as _;

/// SQLite has one writer at a time: those who wait for it wait in turn, and not
/// inside the database, which gives up after a while.
pub struct SqliteLender {
    pool: SqlitePool,
    turn: Arc<Semaphore>,
    /// When others could last write between two turns.
    gap: Mutex<Instant>,
    elsewhere: Option<Apart>,
}

/// Who waits for the file's lock looks every tenth of a second.
const GAP: Duration = Duration::from_millis(120);
const GAP_AFTER: Duration = Duration::from_secs(1);

/// The test broker's rows live in memory, so what is published in the transaction
/// is taken out of it again.
struct Apart {
    names: TableNames,
    /// Set once its tables are made.
    made: OnceCell<()>,
    /// As every transaction begins.
    elsewhere: Elsewhere,
}

impl SqliteLender {
    pub(crate) fn new(pool: SqlitePool) -> Self {
        let gap = Mutex::new(Instant::now());
        Self { pool, turn: Arc::new(Semaphore::new(1)), gap, elsewhere: None }
    }

    /// Waits for its turn. In a row of turns without an end nobody else would ever write, and
    /// the leases of those who wait for theirs would run out.
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

    #[cfg(feature = "testing")]
    pub(crate) fn elsewhere(pool: SqlitePool, names: TableNames, elsewhere: Elsewhere) -> Self {
        let apart = Apart { names, made: OnceCell::new(), elsewhere };
        Self { elsewhere: Some(apart), ..Self::new(pool) }
    }

    /// What the test's own transactions have published, no longer in its table. `None` if
    /// no connection comes free: the test may hold the only one.
    #[cfg(feature = "testing")]
    pub(crate) async fn published_beside(&self) -> Result<Option<Vec<Prepared>>, StoreError> {
        let Some(Apart { names, elsewhere, .. }) = &self.elsewhere else { return Ok(None) };
        let failed = StoreError::of("take what was published");
        let Ok(free) = timeout(FREE_WITHIN, self.pool.acquire()).await else { return Ok(None) };
        let mut connection = free.map_err(&failed)?;
        match query(&names.sql(ANY)).fetch_optional(&mut *connection).await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Some(Vec::new())),
            // Nothing was published yet.
            Err(sqlx::Error::Database(none)) if none.message().starts_with("no such table") => {
                return Ok(Some(Vec::new()));
            }
            Err(error) => return Err(failed(error)),
        }
        take(&mut connection, names, 0, &mut elsewhere.clone()).await.map(Some)
    }
}

impl lends::Lends for Sqlite {
    /// A statement that was given up goes on until it has ended.
    const UNDO_LIMIT: Duration = Duration::from_secs(30);

    async fn open(lender: &Lender) -> Result<Open<Self>, StoreError> {
        let lender = lender.as_sqlite()?;
        if let Some(Apart { names, made, .. }) = &lender.elsewhere {
            made.get_or_try_init(|| super::schema::migrate(&lender.pool, names)).await?;
        }
        let turn = lender.turn().await;
        let tx = begin_writing(&lender.pool).await;
        let mut tx = tx.map_err(StoreError::of("begin"))?;
        tx.execute(BEGUN).await.map_err(StoreError::of("begin"))?;
        let mut elsewhere = None;
        if let Some(apart) = &lender.elsewhere {
            let last = query(&apart.names.sql(LAST)).fetch_one(&mut *tx).await;
            let last = last.and_then(|row| row.try_get(0)).map_err(StoreError::of("begin"))?;
            elsewhere = Some(apart.elsewhere.clone().after(last));
        }
        Ok(Open { tx: Begun::Kept(tx), turn, pool: Some(lender.pool.clone()), elsewhere })
    }

    async fn settle(
        open: Open<Self>,
        publisher: &Publisher,
        acks: &[Handled<'_>],
        leases: &[Lease],
    ) -> Result<Ended, StoreError> {
        // Its turn ends with the transaction.
        let Open { mut tx, turn: _turn, elsewhere, pool } = open;
        if let Some(mut elsewhere) = elsewhere {
            goes_on(&mut tx).await?;
            if elsewhere.crashes() {
                tx.rollback().await.map_err(StoreError::of("roll back"))?;
                return Ok(Ended::Elsewhere(Vec::new()));
            }
            if acks.iter().any(|handled| !elsewhere.holds(handled.lease)) {
                tx.rollback().await.map_err(StoreError::of("roll back"))?;
                return Ok(Ended::LeaseLost);
            }
            let after = elsewhere.begun_after;
            let messages = take(&mut tx, publisher.names(), after, &mut elsewhere).await?;
            tx.commit().await.map_err(StoreError::of("commit"))?;
            elsewhere.committed();
            return Ok(Ended::Elsewhere(messages));
        }
        let mut tally = Tally::begin();
        let ended = match write(&mut tx, publisher, acks, leases, &mut tally).await {
            Ok(true) => {
                let committed = tx.commit().await.map_err(StoreError::of("commit"));
                committed.map(|()| Ended::Committed)
            }
            undone => {
                drop(tx.rollback().await);
                undone.map(|_| Ended::LeaseLost)
            }
        };
        match (&ended, pool) {
            (Ok(Ended::Committed), _) => publisher.told(tally),
            // At once: a claim may wait for the lock, to take what has run out.
            (_, Some(pool)) => drop(in_another(&pool, publisher, leases).await),
            _ => {}
        }
        ended
    }

    /// Deferred foreign keys are checked by nothing but a commit.
    async fn try_out(
        open: &mut Open<Self>,
        publisher: &Publisher,
        messages: &[Prepared],
    ) -> Result<(), StoreError> {
        goes_on(&mut open.tx).await?;
        publisher.insert(&mut open.tx, messages, &mut Tally::begin()).await
    }

    /// The leases may have run out, since nobody could extend them: they begin anew
    /// before somebody else can write, so that the handler's error can be settled.
    async fn roll_back(
        open: Open<Self>,
        publisher: &Publisher,
        leases: &[Lease],
    ) -> Result<(), StoreError> {
        let Open { mut tx, turn: _turn, elsewhere, pool } = open;
        let failed = StoreError::of;
        if elsewhere.is_some() {
            return tx.rollback().await.map_err(failed("roll back"));
        }
        let undone = tx.execute(UNDO).await;
        if let (Err(over), Some(pool)) = (&undone, &pool) {
            warn!(
                target: TARGET, error = %over, row_id = leases.first().map(|one| one.id),
                "a transaction could not be rolled back, because SQLite has ended it by itself or \
                 its connection is gone; its leases begin anew in another one"
            );
            drop(tx.rollback().await);
            return in_another(pool, publisher, leases).await;
        }
        undone.map_err(failed("roll back"))?;
        begin_anew(&mut tx, publisher, leases.iter().copied()).await?;
        tx.commit().await.map_err(failed("extend"))
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
        let ack = query(publisher.statements().sqlite.ack()).bind(id).bind(token);
        let acked = ack.execute(&mut **tx).await.map_err(StoreError::of("ack"))?;
        if acked.rows_affected() == 0 {
            return Ok(false);
        }
    }
    // After all deletes: a message may have the timer name of a row that is acked.
    for handled in acks {
        publisher.insert(tx, handled.messages, tally).await?;
    }
    let acked = |one: &Lease| acks.iter().any(|handled| handled.lease == *one);
    begin_anew(tx, publisher, leases.iter().copied().filter(|one| !acked(one))).await?;
    Ok(true)
}

/// How long the pool may take to lend a connection for that.
const ANEW_WITHIN: Duration = Duration::from_secs(5);

async fn in_another(
    pool: &SqlitePool,
    publisher: &Publisher,
    leases: &[Lease],
) -> Result<(), StoreError> {
    let another = async {
        let mut tx = begin_writing(pool).await.map_err(StoreError::of("extend"))?;
        begin_anew(&mut tx, publisher, leases.iter().copied()).await?;
        tx.commit().await.map_err(StoreError::of("extend"))
    };
    let late = |_| Err(StoreError::new("extend", "no connection in time", true));
    timeout(ANEW_WITHIN, another).await.unwrap_or_else(late)
}

async fn begin_anew(
    tx: &mut SqliteConnection,
    publisher: &Publisher,
    leases: impl Iterator<Item = Lease> + Send,
) -> Result<(), StoreError> {
    for Lease { id, token } in leases {
        let extend = query(publisher.statements().sqlite.extend()).bind(id).bind(token).bind(token);
        extend.execute(&mut *tx).await.map_err(StoreError::of("extend"))?;
    }
    Ok(())
}

/// Marks the beginning of a transaction.
const BEGUN: &str = "SAVEPOINT outbox_begun";
/// Undoes everything since.
const UNDO: &str = "ROLLBACK TO outbox_begun";

/// Ends the mark, so that what comes next stays.
const KEEP: &str = "RELEASE outbox_begun";

/// For some errors, such as a full disk or a conflict under `ON CONFLICT ROLLBACK`, SQLite ends
/// the whole transaction by itself. A handler may keep such an error to itself: an ack would
/// stand alone, and what the handler did is undone.
async fn goes_on(tx: &mut SqliteConnection) -> Result<(), StoreError> {
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

/// One that was dropped comes back to its pool in a task of its own.
#[cfg(feature = "testing")]
const FREE_WITHIN: Duration = Duration::from_secs(1);

/// Whether there is anything to take.
#[cfg(feature = "testing")]
const ANY: &str = "SELECT 1 FROM \"outbox\" LIMIT 1";
/// The last row that was there before.
const LAST: &str = "SELECT coalesce(max(id), 0) FROM \"outbox\"";

/// What was published behind a row, no longer in its table.
async fn take(
    tx: &mut SqliteConnection,
    names: &TableNames,
    after: i64,
    elsewhere: &mut Elsewhere,
) -> Result<Vec<Prepared>, StoreError> {
    let rows = query(&names.sql(include_str!("sql/take.sql"))).bind(after).fetch_all(tx).await;
    let mut rows: Vec<Row> = rows
        .and_then(|rows| rows.iter().map(read).collect())
        .map_err(StoreError::of("take what was published"))?;
    rows.sort_by_key(|row| row.id);
    // The last first: of a timer that was moved, the message is that which moved it.
    let mut messages: Vec<_> = rows
        .into_iter()
        .rev()
        .map(|row| elsewhere.published(|it| is(&row, it)).unwrap_or_else(|| again(row)))
        .collect();
    messages.reverse();
    Ok(messages)
}

fn is(row: &Row, message: &Prepared) -> bool {
    row.headers.as_ref().is_some_and(|mine| mine.as_bytes() == message.headers.as_bytes())
        && (&row.queue, &row.payload) == (&message.queue, &message.payload)
        && row.timer_id == message.timer_id
}

/// A row of which nothing more is known, as a message.
fn again(row: Row) -> Prepared {
    let wait = row.next_attempt_at.duration_since(row.created_at).unwrap_or_default();
    Prepared {
        queue: row.queue,
        payload: row.payload,
        headers: row
            .headers
            .map_or_else(|| "{}".into(), |headers| String::from(Stored::into_text(headers))),
        due: if wait.is_zero() { Due::Now } else { Due::In(wait) },
        timer_id: row.timer_id,
        extend: false,
    }
}

#[cfg(test)]
mod tests {
    use sqlx::AssertSqlSafe;
    use uuid::Uuid;

    use super::*;
    use crate::extract::lends::Lends as _;

    /// Or another claim would take the row before the failure is written, again and again, and
    /// no attempt would be spent.
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
        let lender = Lender::sqlite(pool.clone());
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
