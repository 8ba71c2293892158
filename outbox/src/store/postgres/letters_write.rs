//! Dead letters for operators: what is written, each batch one statement.

use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row as _, Transaction};

use super::PgDesk;
use super::letters::{once, place, time_of};
use super::sleepers::notified;
use crate::dlq::sealed::Moved;
use crate::dlq::{DeadLetters, Filter, Mark, Place, Put, sealed};
use crate::error::StoreError;
use crate::extract::Tx;
use crate::ops::Desk;
use crate::ops::failed::failed;

type Result<T> = std::result::Result<T, StoreError>;

impl PgDesk {
    pub(crate) async fn replay(
        &self,
        filter: &Filter,
        after: Option<Place>,
        put: &Put,
        limit: i64,
    ) -> Result<Moved> {
        let mut tx = self.begin("replay").await?;
        let moved = self.replay_on(&mut tx, filter, after, put, limit).await?;
        tx.commit().await.map_err(failed("replay"))?;
        Ok(moved)
    }

    async fn replay_on(
        &self,
        connection: &mut PgConnection,
        filter: &Filter,
        after: Option<Place>,
        put: &Put,
        limit: i64,
    ) -> Result<Moved> {
        let failed = failed("replay");
        let text = include_str!("sql/letters_replay.sql");
        let (channel, locks) = notified(&self.names);
        let replay = self
            .over(text, filter, after.is_some())
            .bind(time_of(after))
            .bind(after.map(|after| after.id))
            .bind(limit)
            .bind(put.queue.clone())
            .bind(put.payload.as_deref().map(<[u8]>::to_vec))
            .bind(channel)
            .bind(locks.map(|locks| locks.start));
        let rows = replay.fetch_all(connection).await.map_err(&failed)?;
        let moved = |row: &PgRow| Ok((place(row)?, row.try_get(2)?));
        rows.iter().map(|row| moved(row).map_err(&failed)).collect()
    }

    pub(crate) async fn mark(&self, filter: &Filter, mark: &Mark, limit: i64) -> Result<u64> {
        let write = self
            .over(include_str!("sql/letters_mark.sql"), filter, false)
            .bind(mark.status.as_str())
            .bind(mark.note.clone())
            .bind(limit);
        self.write("mark dead letters", write).await
    }

    pub(crate) async fn purge(&self, filter: &Filter, limit: i64) -> Result<u64> {
        let purge = self.over(include_str!("sql/letters_purge.sql"), filter, false).bind(limit);
        self.write("purge dead letters", purge).await
    }

    pub(crate) async fn fingerprint(&self, marks: &[(i64, String)]) -> Result<()> {
        let (ids, fingerprints): (Vec<i64>, Vec<String>) = marks.iter().cloned().unzip();
        let text = self.names.sql(include_str!("sql/letters_fingerprint.sql"));
        let write = once(&text).bind(ids).bind(fingerprints);
        self.write("write fingerprints", write).await.map(drop)
    }

    async fn write(
        &self,
        action: &'static str,
        statement: Query<'_, Postgres, PgArguments>,
    ) -> Result<u64> {
        let mut tx = self.begin(action).await?;
        let done = statement.execute(&mut *tx).await.map_err(failed(action))?;
        tx.commit().await.map_err(failed(action))?;
        Ok(done.rows_affected())
    }
}

macro_rules! replays {
    ($transaction:ty) => {
        impl sealed::Replays for $transaction {
            async fn replay(
                &mut self,
                letters: &DeadLetters,
                filter: &Filter,
                put: &Put,
                limit: i64,
            ) -> Option<Result<Moved>> {
                match &letters.operator.desk {
                    Desk::Postgres(desk) => {
                        Some(desk.replay_on(self, filter, None, put, limit).await)
                    }
                    #[cfg(feature = "sqlite")]
                    Desk::Sqlite(_) => None,
                }
            }
        }
    };
}

replays!(Transaction<'_, Postgres>);
replays!(Tx<Postgres>);
