//! Pausing queues, and resuming them. A claim holds the write lock, as a pause does, so no claim
//! from before a pause is under way once the pause has committed.

use sqlx::Row as _;

use super::desk::text;
use super::{SqliteDesk, query};
use crate::error::StoreError;
use crate::ops::Pause;
use crate::store::answers::pause;
use crate::store::sql;

impl SqliteDesk {
    pub(crate) async fn pause(
        &self,
        queues: &[String],
        note: Option<&str>,
    ) -> Result<Vec<Pause>, StoreError> {
        let (sql, failed) = (sql!(self.names, "pause"), StoreError::of("pause"));
        let mut tx = self.writing("pause").await?;
        let before = query(&sql!(self.names, "paused")).fetch_all(&mut *tx).await;
        let before = before.map_err(&failed)?;
        let mut pauses = Vec::with_capacity(queues.len());
        for queue in queues {
            let was_paused = before.iter().any(|row| text(row, 0).is_ok_and(|it| it == *queue));
            let write = query(&sql).bind(queue.clone()).bind(note.map(str::to_owned));
            let row = write.fetch_one(&mut *tx).await;
            pauses.push(row.and_then(|row| pause(&row, was_paused)).map_err(&failed)?);
        }
        tx.commit().await.map_err(failed)?;
        Ok(pauses)
    }

    /// Returns the queues that were paused.
    pub(crate) async fn resume(&self, queues: &[String]) -> Result<Vec<String>, StoreError> {
        let (sql, failed) = (sql!(self.names, "resume"), StoreError::of("resume"));
        let mut tx = self.writing("resume").await?;
        let mut resumed = Vec::new();
        for queue in queues {
            let row = query(&sql).bind(queue.clone()).fetch_optional(&mut *tx).await;
            resumed.extend(row.map_err(&failed)?.map(|row| row.get::<String, _>(0)));
        }
        tx.commit().await.map_err(failed)?;
        Ok(resumed)
    }
}
