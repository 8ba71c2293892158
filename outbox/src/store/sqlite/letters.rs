//! Dead letters for operators: a page of them; replaying them and giving them fingerprints, each
//! batch in one transaction.

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::{SqliteDesk, listen, publish, query};
use crate::dlq::{BATCH_BYTES, Filter, Letter, LetterPosition, Moved, Replay};
use crate::error::StoreError;
use crate::publish::unwritten;
use crate::store::answers::{letter, place};
use crate::store::{Result, sql};

impl SqliteDesk {
    pub(crate) async fn letters(
        &self,
        filter: &Filter,
        after: Option<LetterPosition>,
        limit: i64,
    ) -> Result<Vec<Letter>> {
        let page = self.behind(include_str!("sql/letters_page.sql"), filter, after).bind(limit);
        self.read("list dead letters", page, letter).await
    }

    pub(crate) async fn replay(
        &self,
        filter: &Filter,
        after: Option<LetterPosition>,
        how: &Replay,
        limit: i64,
    ) -> Result<Moved> {
        let mut tx = self.writing("replay").await?;
        let moved = self.replay_some(&mut tx, filter, after, how, limit, BATCH_BYTES).await?;
        tx.commit().await.map_err(StoreError::of("replay"))?;
        Ok(moved)
    }

    /// Replays all of them at once, in the caller's transaction.
    pub(crate) async fn replay_on(
        &self,
        connection: &mut SqliteConnection,
        filter: &Filter,
        how: &Replay,
        limit: i64,
    ) -> Result<Moved> {
        let moved = self.replay_some(connection, filter, None, how, limit, i64::MAX).await;
        moved.map_err(|failed| match failed.source.downcast() {
            Ok(error) => publish::failed("replay")(*error),
            Err(source) => StoreError { source, ..failed },
        })
    }

    /// Letter by letter: nothing else tells which letter a row was made of.
    async fn replay_some(
        &self,
        connection: &mut SqliteConnection,
        filter: &Filter,
        after: Option<LetterPosition>,
        how: &Replay,
        limit: i64,
        most_bytes: i64,
    ) -> Result<Moved> {
        const ACTION: &str = "replay";
        let failed = StoreError::of(ACTION);
        let find = self.behind(include_str!("sql/letters_find.sql"), filter, after).bind(limit);
        let found = find.fetch_all(&mut *connection).await.map_err(&failed)?;
        let insert = sql!(self.names, "letters_insert");
        let link = sql!(self.names, "letters_link");
        let (mut moved, mut bytes) = (Vec::with_capacity(found.len()), 0);
        listen::published();
        for letter in found {
            // Nobody else can write meanwhile, so the transaction must not be long.
            if bytes > most_bytes {
                break;
            }
            let place = place(&letter).map_err(&failed)?;
            bytes += letter.try_get::<i64, _>(2).map_err(&failed)?;
            let insert = query(&insert)
                .bind(place.id)
                .bind(how.queue.clone())
                .bind(how.payload.as_deref().map(<[u8]>::to_vec));
            let row = insert.fetch_optional(&mut *connection).await.map_err(&failed)?;
            let row: Option<i64> = row.map(|row| row.try_get(0)).transpose().map_err(&failed)?;
            if let Some(row) = row {
                let link = query(&link).bind(place.id).bind(row);
                let done = link.execute(&mut *connection).await.map_err(&failed)?;
                if done.rows_affected() == 0 {
                    // The next replay would put the letter back again.
                    let why = "a letter was not closed: a trigger of its table keeps it open";
                    return Err(StoreError::new(ACTION, why, false));
                }
            } else {
                unwritten(letter.try_get(3).map_err(&failed)?, ACTION)?;
            }
            moved.push((place, row));
        }
        Ok(moved)
    }

    pub(crate) async fn fingerprint(&self, marks: &[(LetterPosition, String)]) -> Result<()> {
        let failed = StoreError::of("write fingerprints");
        let text = sql!(self.names, "letters_fingerprint");
        let mut tx = self.writing("write fingerprints").await?;
        for (place, fingerprint) in marks {
            let write = query(&text).bind(place.id).bind(fingerprint.clone());
            write.execute(&mut *tx).await.map_err(&failed)?;
        }
        tx.commit().await.map_err(failed)
    }
}
