//! What a doctor asks the server: about connections, notifications, snapshots, the vacuum and the
//! stored messages. `ops::doctor` judges the answers.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::postgres::{PgConnection, PgListener, PgPoolOptions, PgRow};
use sqlx::{Connection as _, Row as _};
use tokio::time::timeout;
use uuid::Uuid;

use super::connect::{silent, unreached};
use super::desk::PgDesk;
use super::{CONNECT_LIMIT, Statement, query};
use crate::error::StoreError;
use crate::ops::doctor::postgres::{Connections, Holder, Kind, Snapshots, Vacuum};
use crate::ops::doctor::{Page, StoredMessage};
use crate::store::answers::{Columns as _, kept};
use crate::store::{Result, sql};

fn failed(error: sqlx::Error) -> StoreError {
    StoreError::of("examine")(error)
}

impl PgDesk {
    /// Connects once: a pool would wait longer, and then say only that it waited.
    pub(crate) async fn reach(&self) -> Result<()> {
        self.connect().await.map(drop)
    }

    /// A connection beside the pool's.
    async fn connect(&self) -> Result<PgConnection> {
        let options = self.pool().connect_options();
        match timeout(CONNECT_LIMIT, PgConnection::connect_with(&options)).await {
            Ok(connected) => connected.map_err(|error| unreached(&options, error)),
            Err(_) => Err(silent(&options)),
        }
    }

    /// Asks in a transaction, with an unnamed statement: a pooler in transaction mode keeps these
    /// together.
    pub(super) async fn ask<T>(
        &self,
        statement: Statement,
        row: impl Fn(&PgRow) -> sqlx::Result<T>,
    ) -> Result<Vec<T>> {
        let mut tx = self.begin("examine").await?;
        let rows = statement.persistent(false).fetch_all(&mut *tx).await.map_err(failed)?;
        tx.rollback().await.map_err(failed)?;
        rows.iter().map(row).collect::<sqlx::Result<_>>().map_err(failed)
    }

    async fn ask_one<T>(
        &self,
        statement: Statement,
        row: impl Fn(&PgRow) -> sqlx::Result<T>,
    ) -> Result<T> {
        self.ask(statement, row).await?.pop().ok_or_else(|| failed(sqlx::Error::RowNotFound))
    }

    pub(crate) async fn connections(&self) -> Result<Connections> {
        let read = |row: &PgRow| {
            Ok(Connections {
                allowed: row.try_get(0)?,
                used: row.try_get(1)?,
                limit: row.try_get(2)?,
                pool: self.pool().options().get_max_connections().into(),
            })
        };
        self.ask_one(query(&sql!(self.names, "doctor/connections")), read).await
    }

    pub(crate) async fn open_schemas(&self) -> Result<Vec<String>> {
        self.ask(query(&sql!(self.names, "doctor/open_schemas")), |row| row.try_get(0)).await
    }

    pub(crate) async fn notify_usage(&self) -> Result<f64> {
        let usage = sqlx::query("SELECT pg_notification_queue_usage()");
        self.ask_one(usage, |row| row.try_get(0)).await
    }

    pub(crate) async fn snapshots(&self) -> Result<Snapshots> {
        let (mut holders, mut all_seen) = (Vec::new(), false);
        let read = |row: &PgRow| Ok((holder(row)?, row.flag(5)?));
        for (holder, seen) in self.ask(query(&sql!(self.names, "doctor/snapshots")), read).await? {
            match holder {
                Some(holder) => holders.push(holder),
                None => all_seen = seen,
            }
        }
        Ok(Snapshots { holders, all_seen })
    }

    pub(crate) async fn vacuum(&self) -> Result<Option<Vacuum>> {
        let table = self.names.qualified(self.names.table());
        let read = |row: &PgRow| {
            Ok(Vacuum {
                automatic: row.try_get(0)?,
                counted: row.try_get(1)?,
                may: row.try_get(2)?,
                owner: row.try_get(3)?,
                live: row.try_get(4)?,
                dead: row.try_get(5)?,
            })
        };
        Ok(self.ask(query(&sql!(self.names, "doctor/vacuum")).bind(table), read).await?.pop())
    }

    /// Whether sessions are shared. A server that cannot be asked now is reported elsewhere.
    pub(crate) async fn is_behind_a_pooler(&self, first: PgConnection) -> bool {
        let asked = timeout(CONNECT_LIMIT, self.share_sessions(first)).await;
        matches!(asked, Ok(Ok(true)))
    }

    /// As [`PgDesk::is_behind_a_pooler`], on two new connections.
    pub(crate) async fn shares_sessions(&self) -> Result<bool> {
        self.share_sessions(self.connect().await?).await
    }

    async fn share_sessions(&self, mut first: PgConnection) -> Result<bool> {
        let mut second = self.connect().await?;
        let shared = take_turns(&mut first, &mut second).await?;
        // How they end does not matter.
        let _ = tokio::join!(first.close(), second.close());
        Ok(shared)
    }

    /// Whether a notification arrives, on a channel that nobody else knows.
    pub(crate) async fn hears(&self, within: Duration) -> Result<bool> {
        let options = self.pool().connect_options();
        let own = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(CONNECT_LIMIT)
            .connect_lazy_with((*options).clone());
        let channel = format!("outbox_doctor_{}", Uuid::new_v4().simple());
        let listening = async {
            let mut listener = PgListener::connect_with(&own).await?;
            listener.listen(&channel).await?;
            Ok(listener)
        };
        let mut listener = listening.await.map_err(failed)?;
        self.ask_kept(sqlx::query("SELECT pg_notify($1, '')").bind(channel)).await?;
        let heard = timeout(within, listener.recv()).await;
        drop(listener);
        match heard {
            Ok(heard) => heard.map(|_| true).map_err(failed),
            Err(_) => Ok(false),
        }
    }

    /// As [`PgDesk::ask`], committed.
    async fn ask_kept(&self, statement: Statement) -> Result<()> {
        let mut tx = self.begin("examine").await?;
        statement.persistent(false).execute(&mut *tx).await.map_err(failed)?;
        tx.commit().await.map_err(failed)
    }

    /// The end of a dead-letter table that Python made is not known: `check` says what it lacks.
    pub(super) async fn has_letters(&self) -> Result<bool> {
        let table = self.names.qualified(&self.names.dlq_or_default());
        let there = sqlx::query(
            "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1)
                AND attname = 'status' AND NOT attisdropped)",
        )
        .bind(table);
        self.ask_one(there, |row| row.flag(0)).await
    }

    /// Hands each row of the page over as it comes. True, because its first row was looked up.
    pub(crate) async fn page(
        &self,
        page: Page<'_>,
        mut each: impl FnMut(StoredMessage),
    ) -> Result<bool> {
        let text = if page.letters {
            sql!(self.names, "doctor/letters")
        } else {
            sql!(self.names, "doctor/rows")
        };
        let mut tx = self.begin("examine").await?;
        let statement = query(&text)
            .bind(page.after)
            .bind(page.last)
            .bind(page.queues.to_vec())
            .bind(page.rows)
            .persistent(false);
        let mut rows = statement.fetch(&mut *tx);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            each(kept(&row).map_err(failed)?);
        }
        drop(rows);
        tx.rollback().await.map_err(failed)?;
        Ok(true)
    }
}

/// Whether two connections are answered by whichever server process is free. Without a pooler each
/// session has a process of its own.
///
/// A pooler may hand out the process that was given back last, which the second connection then
/// gets. Or it hands out each in its turn, so that whoever asks twice meets another one. Only much
/// luck with the order in which others come in between would hide a pooler.
async fn take_turns(first: &mut PgConnection, second: &mut PgConnection) -> Result<bool> {
    let one = pid(first).await?;
    if pid(first).await? != one {
        return Ok(true);
    }
    sqlx::raw_sql("BEGIN").execute(&mut *second).await.map_err(failed)?;
    let other = pid(second).await?;
    // Where there is only one process, none is left for the first connection.
    let shared = other == one || pid(first).await? != one;
    sqlx::raw_sql("ROLLBACK").execute(&mut *second).await.map_err(failed)?;
    Ok(shared || pid(second).await? != other)
}

async fn pid(connection: &mut PgConnection) -> Result<i32> {
    let row = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await;
    row.and_then(|row| row.try_get(0)).map_err(failed)
}

/// `None` for the row that only says what this role may see.
fn holder(row: &PgRow) -> sqlx::Result<Option<Holder>> {
    let kind = match row.try_get::<&str, _>(0)? {
        "session" => Kind::Session,
        "prepared" => Kind::Prepared,
        "slot" => Kind::Slot,
        "standby" => Kind::Standby,
        _ => return Ok(None),
    };
    let seconds: Option<f64> = row.try_get(3)?;
    Ok(Some(Holder {
        kind,
        who: row.try_get(1)?,
        name: row.try_get(2)?,
        age: seconds.map(|age| Duration::try_from_secs_f64(age.max(0.0)).unwrap_or_default()),
        transactions: row.try_get(4)?,
        active: row.try_get(5)?,
    }))
}
