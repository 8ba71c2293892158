//! Dead letters for operators: a page of them; replaying them and giving them fingerprints, each
//! batch by one statement.

use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Executor as _, Row as _};
use tokio::time::sleep;

use super::sleepers::notified;
use super::time::PgTime;
use super::{PgDesk, once};
use crate::dlq::{BATCH_BYTES, Filter, Letter, LetterPosition, Moved, Replay};
use crate::error::{StoreError, has_code};
use crate::store::answers::{letter, place};
use crate::store::{Result, sql};

/// How often a replay is tried. Somebody who sets the same timers in another order waits for it while
/// it waits for them. The server may end the replay, and nothing of it is done.
const TRIES: usize = 5;
/// By then the other one is through.
const ASIDE: Duration = Duration::from_millis(300);
const FINGERPRINTS: &str = "write fingerprints";

impl PgDesk {
    pub(crate) async fn letters(
        &self,
        filter: &Filter,
        after: Option<LetterPosition>,
        limit: i64,
    ) -> Result<Vec<Letter>> {
        let failed = StoreError::of("list dead letters");
        let page = self.behind(include_str!("sql/letters_page.sql"), filter, after).bind(limit);
        let mut tx = self.reading("list dead letters").await?;
        if filter.ids.is_some() {
            // They are few, and read by their ids instead of in order.
            tx.execute("SET LOCAL enable_sort = on").await.map_err(&failed)?;
        }
        let rows = page.fetch_all(&mut *tx).await.map_err(&failed)?;
        rows.iter().map(|row| letter(row).map_err(&failed)).collect()
    }

    pub(crate) async fn replay(
        &self,
        filter: &Filter,
        after: Option<LetterPosition>,
        how: &Replay,
        limit: i64,
    ) -> Result<Moved> {
        let mut tries = 1;
        loop {
            let mut tx = self.begin("replay").await?;
            let error =
                match self.replay_some(&mut tx, filter, after, how, limit, BATCH_BYTES).await {
                    Ok(moved) => {
                        tx.commit().await.map_err(StoreError::of("replay"))?;
                        return Ok(moved);
                    }
                    Err(error) => error,
                };
            // Whoever tries again at once finds no letter locked by this.
            let _ = tx.rollback().await;
            let deadlock = error.has_code(&["40P01"]);
            if tries == TRIES || !deadlock {
                return Err(error);
            }
            tries += 1;
            sleep(ASIDE.mul_f64(0.5 + fastrand::f64())).await;
        }
    }

    /// Replays as many of them at once as have so many bytes, and one more.
    pub(crate) async fn replay_some(
        &self,
        connection: &mut PgConnection,
        filter: &Filter,
        after: Option<LetterPosition>,
        how: &Replay,
        limit: i64,
        most_bytes: i64,
    ) -> Result<Moved> {
        let failed = StoreError::of("replay");
        let text = include_str!("sql/letters_replay.sql");
        let (channel, locks) = notified(&self.names);
        let replay = self
            .behind(text, filter, after)
            .bind(limit)
            .bind(how.queue.clone())
            .bind(how.payload.as_deref().map(<[u8]>::to_vec))
            .bind(channel)
            .bind(locks.map(|locks| locks.start))
            .bind(most_bytes);
        let rows = replay.fetch_all(connection).await.map_err(&failed)?;
        let moved = |row: &PgRow| Ok((place(row)?, row.try_get(2)?));
        rows.iter().map(|row| moved(row).map_err(&failed)).collect()
    }

    pub(crate) async fn fingerprint(&self, marks: &[(LetterPosition, String)]) -> Result<()> {
        let ids: Vec<i64> = marks.iter().map(|(place, _)| place.id).collect();
        let times: Vec<_> = marks.iter().map(|(place, _)| PgTime(place.failed_at)).collect();
        let fingerprints: Vec<String> = marks.iter().map(|(_, given)| given.clone()).collect();
        let text = sql!(self.names, "letters_fingerprint");
        let write = once(&text).bind(ids).bind(times).bind(fingerprints);
        let mut tx = self.begin(FINGERPRINTS).await?;
        write.execute(&mut *tx).await.map_err(unmarked)?;
        tx.commit().await.map_err(StoreError::of(FINGERPRINTS))
    }
}

fn unmarked(error: sqlx::Error) -> StoreError {
    if has_code(&error, &["55P03"]) {
        let cause = "letters that have no fingerprint yet, or their table, are locked by others";
        return StoreError::explained(FINGERPRINTS, error, Some(cause));
    }
    StoreError::of(FINGERPRINTS)(error)
}
