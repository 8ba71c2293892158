//! Pausing queues, and resuming them. A pause waits up to a second for claims that began before it,
//! so that they do not take rows once it has returned.

use std::time::Duration;

use sqlx::Row as _;
use tokio::time::{Instant, sleep};

use super::sleepers::notified;
use super::{PgDesk, once};
use crate::error::StoreError;
use crate::ops::Pause;
use crate::store::answers::{Columns as _, pause};
use crate::store::sql;
use crate::telemetry::TARGET;

/// How long to wait for claims that began before a pause. They take milliseconds. A backup that
/// reads the table as well takes hours, and claims nothing.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);

impl PgDesk {
    pub(crate) async fn pause(
        &self,
        queues: &[String],
        note: Option<&str>,
    ) -> Result<Vec<Pause>, StoreError> {
        let statement = once(&sql!(self.names, "pause"));
        let statement = statement.bind(queues.to_vec()).bind(note.map(str::to_owned));
        let mut tx = self.writing("pause").await?;
        let rows = statement.fetch_all(&mut *tx).await.map_err(StoreError::of("pause"))?;
        tx.commit().await.map_err(StoreError::of("pause"))?;
        let paused = rows.iter().map(|row| pause(row, row.flag(3)?)).collect::<Result<_, _>>();
        let paused = paused.map_err(StoreError::of("pause"))?;
        // The queues are paused by now.
        if let Err(error) = self.outwait_claims().await {
            crate::telemetry::error!(
                target: TARGET, %error,
                "the queues are paused; claims that were under way could not be looked for, and may \
                 still take rows"
            );
        }
        Ok(paused)
    }

    /// Waits for the claims that do not see a pause which has just been committed.
    async fn outwait_claims(&self) -> Result<(), StoreError> {
        let text = sql!(self.names, "claims_under_way");
        let table = self.names.qualified(&self.names.paused());
        let end = Instant::now() + PATIENCE;
        let mut left: Option<Vec<String>> = None;
        loop {
            let look = once(&text).bind(table.clone()).bind(left);
            let found = self.read("look for claims", look, |row| row.text(0)).await?;
            if found.is_empty() || Instant::now() >= end {
                return Ok(());
            }
            left = Some(found);
            sleep(LOOK).await;
        }
    }

    /// Returns the queues that were paused.
    pub(crate) async fn resume(&self, queues: &[String]) -> Result<Vec<String>, StoreError> {
        let statement = once(&sql!(self.names, "resume"));
        let statement = statement.bind(queues.to_vec()).bind(notified(&self.names).0);
        let mut tx = self.writing("resume").await?;
        let rows = statement.fetch_all(&mut *tx).await.map_err(StoreError::of("resume"))?;
        tx.commit().await.map_err(StoreError::of("resume"))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}
