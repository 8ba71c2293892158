//! Pausing queues.

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::desk::text;
use super::{SqliteDesk, query};
use crate::error::StoreError;
use crate::message::row::from_micros;
use crate::ops::Pause;
use crate::ops::failed::failed;
use crate::store::answers::Columns as _;
use crate::store::statements;

statements! {
    struct Sql in "sql" { pause, resume, paused }
}

impl SqliteDesk {
    pub(crate) async fn pause(
        &self,
        queues: &[String],
        note: Option<&str>,
    ) -> Result<Vec<Pause>, StoreError> {
        let sql = Sql::new(&self.names);
        let mut tx = self.writing("pause").await?;
        let before = query(&sql.paused).fetch_all(&mut *tx).await.map_err(failed("pause"))?;
        let mut pauses = Vec::with_capacity(queues.len());
        for queue in queues {
            let was_paused = before.iter().any(|row| text(row, 0).is_ok_and(|it| it == *queue));
            let write = query(&sql.pause).bind(queue.clone()).bind(note.map(str::to_owned));
            let row = write.fetch_one(&mut *tx).await;
            pauses.push(row.and_then(|row| pause(&row, was_paused)).map_err(failed("pause"))?);
        }
        tx.commit().await.map_err(failed("pause"))?;
        Ok(pauses)
    }

    /// Those that were paused.
    pub(crate) async fn resume(&self, queues: &[String]) -> Result<Vec<String>, StoreError> {
        let sql = Sql::new(&self.names);
        let mut tx = self.writing("resume").await?;
        let mut resumed = Vec::new();
        for queue in queues {
            let row = query(&sql.resume).bind(queue.clone()).fetch_optional(&mut *tx).await;
            resumed.extend(row.map_err(failed("resume"))?.map(|row| row.get::<String, _>(0)));
        }
        tx.commit().await.map_err(failed("resume"))?;
        Ok(resumed)
    }

    pub(crate) async fn paused(&self) -> Result<Vec<Pause>, StoreError> {
        let statement = query(&Sql::new(&self.names).paused);
        self.read("list the pauses", statement, |row| pause(row, true)).await
    }
}

fn pause(row: &SqliteRow, was_paused: bool) -> Result<Pause, sqlx::Error> {
    Ok(Pause {
        queue: text(row, 0)?,
        paused_at: from_micros(row.try_get(1)?),
        note: row.maybe(2, text)?,
        was_paused,
    })
}
