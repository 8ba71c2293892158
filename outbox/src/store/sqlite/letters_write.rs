//! Dead letters for operators: what is written, each batch one transaction.

use sqlx::sqlite::SqliteConnection;
use sqlx::{Row as _, Sqlite, Transaction};

use super::letters::{place, time_of};
use super::settle::Statement;
use super::{SqliteDesk, listen, query};
use crate::dlq::sealed::Moved;
use crate::dlq::{DeadLetters, Filter, Mark, Place, Put, sealed};
use crate::error::StoreError;
use crate::extract::Tx;
use crate::ops::Desk;
use crate::ops::failed::failed;

type Result<T> = std::result::Result<T, StoreError>;

impl SqliteDesk {
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

    /// Letter by letter: a row tells its letter no other way.
    async fn replay_on(
        &self,
        connection: &mut SqliteConnection,
        filter: &Filter,
        after: Option<Place>,
        put: &Put,
        limit: i64,
    ) -> Result<Moved> {
        let failed = failed("replay");
        let find = self.over(include_str!("sql/letters_find.sql"), filter, after.is_some());
        let find = find.bind(time_of(after)).bind(after.map(|after| after.id)).bind(limit);
        let found = find.fetch_all(&mut *connection).await.map_err(&failed)?;
        let insert = self.names.sql(include_str!("sql/letters_insert.sql"));
        let link = self.names.sql(include_str!("sql/letters_link.sql"));
        let mut moved = Vec::with_capacity(found.len());
        listen::published();
        for letter in found {
            let place = place(&letter).map_err(&failed)?;
            let insert = query(&insert)
                .bind(place.id)
                .bind(put.queue.clone())
                .bind(put.payload.as_deref().map(<[u8]>::to_vec));
            let row = insert.fetch_optional(&mut *connection).await.map_err(&failed)?;
            let row: Option<i64> = row.map(|row| row.try_get(0)).transpose().map_err(&failed)?;
            if let Some(row) = row {
                let link = query(&link).bind(place.id).bind(row);
                link.execute(&mut *connection).await.map_err(&failed)?;
            }
            moved.push((place, row));
        }
        Ok(moved)
    }

    pub(crate) async fn mark(&self, filter: &Filter, mark: &Mark, limit: i64) -> Result<u64> {
        let write = self
            .over(include_str!("sql/letters_mark.sql"), filter, false)
            .bind(mark.status.as_str())
            .bind(mark.note.clone())
            .bind(limit);
        self.write("mark dead letters", [write]).await
    }

    pub(crate) async fn purge(&self, filter: &Filter, limit: i64) -> Result<u64> {
        let purge = self.over(include_str!("sql/letters_purge.sql"), filter, false).bind(limit);
        self.write("purge dead letters", [purge]).await
    }

    pub(crate) async fn fingerprint(&self, marks: &[(i64, String)]) -> Result<()> {
        let text = self.names.sql(include_str!("sql/letters_fingerprint.sql"));
        let write =
            |(id, fingerprint): &(i64, String)| query(&text).bind(*id).bind(fingerprint.clone());
        self.write("write fingerprints", marks.iter().map(write)).await.map(drop)
    }

    async fn write(
        &self,
        action: &'static str,
        statements: impl IntoIterator<Item = Statement>,
    ) -> Result<u64> {
        let mut tx = self.begin(action).await?;
        let mut written = 0;
        for statement in statements {
            let done = statement.execute(&mut *tx).await.map_err(failed(action))?;
            written += done.rows_affected();
        }
        tx.commit().await.map_err(failed(action))?;
        Ok(written)
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
                    Desk::Sqlite(desk) => {
                        Some(desk.replay_on(self, filter, None, put, limit).await)
                    }
                    #[cfg(feature = "postgres")]
                    Desk::Postgres(_) => None,
                }
            }
        }
    };
}

replays!(Transaction<'_, Sqlite>);
replays!(Tx<Sqlite>);
