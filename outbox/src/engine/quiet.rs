//! Running alone.
//!
//! When a process dies, every row it had in hand comes back with an expired
//! lease, the innocent with the guilty. A row that has used up its
//! `max_deliveries` that way is not judged yet: it runs once more with no other
//! handler beside it, under a token that says so. If that lease expires too, the
//! row itself is what kills processes.

use std::time::Duration;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::timeout;

/// How long others are kept from starting while a row waits to be alone. When
/// it passes, because some handler runs on, the row runs beside it and nothing
/// is concluded.
const PATIENCE: Duration = Duration::from_secs(5);

/// Every run holds it shared, a run that must be alone holds it whole.
#[derive(Default)]
pub(crate) struct Quiet(RwLock<()>);

impl Quiet {
    pub(super) async fn beside_others(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().await
    }

    pub(super) async fn alone(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        timeout(PATIENCE, self.0.write()).await.ok()
    }
}
