//! Whether a simulation has anything left to do.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio::time::{sleep, timeout};

use super::world::World;
use crate::message::Row;
use crate::subscriber::Subscriber;

/// Longer than any wait of the engine between two tries, except for its polls.
const PATIENCE: Duration = Duration::from_secs(600);
/// More statements than any finite test takes.
const MAX_STATEMENTS: usize = 30_000;

/// Longer than a message stays due if its wake was lost.
pub(super) fn patience(subscribers: &[Subscriber]) -> Duration {
    let longest = subscribers.iter().map(|one| one.options.max_poll).max();
    PATIENCE.saturating_add(longest.unwrap_or_default())
}

impl World {
    /// Runs until a time, or until nothing is left to do.
    pub(in crate::testing) async fn run_to(&self, end: Option<SystemTime>) {
        match end {
            Some(end) => sleep(end.duration_since(self.store.now()).unwrap_or_default()).await,
            None => self.idle().await,
        }
    }

    /// Waits until no row is left in a queue that is read, and no handler runs.
    ///
    /// # Panics
    /// If that does not happen.
    async fn idle(&self) {
        let patience = self.patience;
        loop {
            let changed = self.ledger.changed.notified();
            if self.ledger.running() == 0 && !self.store.any(|row| self.queues.contains(&row.queue))
            {
                return;
            }
            let waited = timeout(patience + 2 * self.weather.stall, changed).await.is_err();
            let now = self.store.now();
            let forgotten = |row: &Row| {
                row.acquired_token.is_none()
                    && self.queues.contains(&row.queue)
                    && row.next_attempt_at + patience < now
            };
            assert!(
                !waited || !self.store.any(forgotten),
                "a message has been due for {patience:?}, and nobody claims it"
            );
            let statements = self.statements.load(Ordering::Relaxed);
            assert!(
                statements < MAX_STATEMENTS,
                "handlers snooze, retry, publish or run without end"
            );
        }
    }
}
