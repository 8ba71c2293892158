//! Why a row is where it is: what the server knows about it, about its locks and about who reads
//! its queue. `ops::why` makes an answer of that.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::sleep;

use super::{PgDesk, once, query, sleepers};
use crate::error::{StoreError, has_code};
use crate::message::row::delay_micros;
use crate::ops::{FoundRow, LockedBy, Readers, Session};
use crate::store::sql;

/// Modes of locks that keep claims from the table.
const TABLE_MODES: &[&str] =
    &["ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"];
/// Modes of locks of all transactions that have used the table.
#[cfg(feature = "cli")]
const ALL_MODES: &[&str] = &[
    "AccessShareLock",
    "RowShareLock",
    "RowExclusiveLock",
    "ShareUpdateExclusiveLock",
    "ShareLock",
    "ShareRowExclusiveLock",
    "ExclusiveLock",
    "AccessExclusiveLock",
];
/// Modes of locks of transactions that have written to the table.
const WRITERS: &[&str] = &["RowExclusiveLock"];
/// Modes of locks of transactions that may have locked a row of the table.
const LOCKERS: &[&str] = &["RowShareLock", "RowExclusiveLock"];
/// Statements of the engine are over by then, so what is still there lasts.
const LASTING: Duration = Duration::from_millis(100);

const ACTION: &str = "ask why";

/// A session, with the name of its transaction.
type Held = (String, Session);

impl PgDesk {
    pub(crate) async fn why_readers(
        &self,
        queue: &str,
        id: i64,
        lease: Duration,
    ) -> Result<Readers, StoreError> {
        let mut tx = self.reading(ACTION).await?;
        let statement = once(&sql!(self.names, "why_readers"))
            .bind(queue.to_owned())
            .bind(sleepers::Locks::of(&self.names).of_queue(queue))
            .bind(id)
            .bind(delay_micros(lease));
        let row = statement.fetch_one(&mut *tx).await.map_err(StoreError::of(ACTION))?;
        let count = |index| row.get::<i64, _>(index).max(0).unsigned_abs();
        Ok(Readers { sleepers: Some(count(0)), leases: count(1) })
    }

    pub(crate) async fn why_locks(&self, found: &FoundRow) -> Result<LockedBy, StoreError> {
        let table = self.why_table_locked().await?;
        let row = self.row_locked(found, table.is_none()).await?;
        Ok(LockedBy { table, row })
    }

    /// Who keeps the table locked, or that of the pauses, which each claim reads too.
    pub(crate) async fn why_table_locked(&self) -> Result<Option<Vec<Session>>, StoreError> {
        match self.locked(self.names.table()).await? {
            None => self.locked_in(&self.names.paused(), &["AccessExclusiveLock"]).await,
            by => Ok(by),
        }
    }

    async fn locked(&self, table: &str) -> Result<Option<Vec<Session>>, StoreError> {
        self.locked_in(table, TABLE_MODES).await
    }

    async fn locked_in(
        &self,
        table: &str,
        modes: &'static [&'static str],
    ) -> Result<Option<Vec<Session>>, StoreError> {
        let by = self.lasting(|| self.sessions(table, modes, true)).await?;
        Ok((!by.is_empty()).then_some(by))
    }

    /// Which of our tables somebody keeps locked, and who.
    pub(crate) async fn locked_tables(&self) -> Result<Vec<(String, Vec<Session>)>, StoreError> {
        let mut locked = Vec::new();
        for table in self.names.tables() {
            if let Some(by) = self.locked(&table).await? {
                locked.push((table, by));
            }
        }
        Ok(locked)
    }

    /// The name of the dead-letter table, and who uses it in transactions that go on: a change of
    /// the table itself waits for these.
    #[cfg(feature = "cli")]
    pub(crate) async fn letters_in_use(&self) -> Result<(String, Vec<Session>), StoreError> {
        let table = self.names.dlq_or_default();
        let by = self.lasting(|| self.sessions(&table, ALL_MODES, false)).await?;
        Ok((table, by))
    }

    /// Transactions that have written to the table and go on, if the row may be one of theirs.
    pub(crate) async fn why_uncommitted(
        &self,
        _: i64,
        given_out: bool,
    ) -> Result<Option<Vec<Session>>, StoreError> {
        if !given_out {
            return Ok(None);
        }
        let table = self.names.table();
        let writers = self.lasting(|| self.sessions(table, WRITERS, false)).await?;
        Ok((!writers.is_empty()).then_some(writers))
    }

    /// Who has locked the row. The row names the transaction that locked it last, as a claim does. If
    /// that one is over, or the name stands for a savepoint or for several, the row is asked for a
    /// lock, and a claim at that moment passes it by. A row that nobody has locked since it was
    /// written is not asked. Nor is any while the table is locked: that might wait for the table.
    async fn row_locked(
        &self,
        found: &FoundRow,
        may_ask: bool,
    ) -> Result<Option<(Vec<Session>, bool)>, StoreError> {
        if found.locker == "0" {
            return Ok(None);
        }
        let by = self.lasting(|| self.holder(&found.locker)).await?;
        if !by.is_empty() {
            return Ok(Some((by, true)));
        }
        if !may_ask
            || self.can_be_locked(found.row.id).await?
            || self.why_row(found.row.id).await?.is_none()
        {
            return Ok(None);
        }
        let table = self.names.table();
        Ok(Some((self.lasting(|| self.sessions(table, LOCKERS, false)).await?, false)))
    }

    /// Whether the row can be locked. Where that cannot be tried, such as on a standby, or while
    /// somebody has just locked the table, it can.
    async fn can_be_locked(&self, id: i64) -> Result<bool, StoreError> {
        let mut tx = self.writing(ACTION).await?;
        let probe = once(&sql!(self.names, "why_probe")).bind(id);
        let locked = probe.fetch_optional(&mut *tx).await;
        tx.rollback().await.map_err(StoreError::of(ACTION))?;
        match locked {
            Ok(row) => Ok(row.is_some()),
            Err(refused) if has_code(&refused, &["25006", "42501", "55P03"]) => Ok(true),
            Err(error) => Err(StoreError::of(ACTION)(error)),
        }
    }

    async fn holder(&self, transaction: &str) -> Result<Vec<Held>, StoreError> {
        let statement = query(&sql!(self.names, "why_holder")).bind(transaction.to_owned());
        self.read(ACTION, statement, session).await
    }

    /// `waiting`: also the sessions that wait for such a lock, and those that they wait for.
    async fn sessions(
        &self,
        table: &str,
        modes: &[&str],
        waiting: bool,
    ) -> Result<Vec<Held>, StoreError> {
        let table = self.names.qualified(table);
        let statement = query(&sql!(self.names, "why_sessions"));
        let modes: Vec<String> = modes.iter().map(|&mode| mode.to_owned()).collect();
        let statement = statement.bind(table).bind(modes).bind(waiting);
        self.read(ACTION, statement, session).await
    }

    /// The sessions that are found both now and a moment later.
    async fn lasting<F>(&self, look: impl Fn() -> F) -> Result<Vec<Session>, StoreError>
    where
        F: Future<Output = Result<Vec<Held>, StoreError>>,
    {
        let first = look().await?;
        if first.is_empty() {
            return Ok(Vec::new());
        }
        sleep(LASTING).await;
        let again = look().await?.into_iter();
        let both = again.filter(|(name, _)| first.iter().any(|(before, _)| before == name));
        Ok(both.map(|(_, session)| session).collect())
    }
}

fn session(row: &PgRow) -> Result<Held, sqlx::Error> {
    let open: Option<i64> = row.try_get(4)?;
    let session = Session {
        pid: row.try_get(0)?,
        application_name: row.try_get(1)?,
        user: row.try_get(2)?,
        state: row.try_get(3)?,
        open_for: open.map(|us| Duration::from_micros(us.max(0).unsigned_abs())),
    };
    Ok((row.try_get(5)?, session))
}
