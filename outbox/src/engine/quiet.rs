//! Running alone.
//!
//! When a process dies, every row it had in hand comes back with an expired
//! lease, the innocent with the guilty. A row that has used up its
//! `max_deliveries` that way is not judged yet: it runs once more with no other
//! handler beside it, under a token that says so. If that lease expires too, the
//! row itself is what kills processes.

use std::time::Duration;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::{Instant, sleep, timeout};

use super::backoff::Backoff;
use crate::store::{Extend, Lease, Store, new_alone_token};

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

/// Continues a lease under a token that says "alone". `None` when the lease is
/// lost, or was over before the database answered.
///
/// A try without an answer is repeated: if it had landed unnoticed, the row would
/// be found guilty later without having been started.
pub(super) async fn mark<S: Store>(store: &S, lease: Lease, deadline: Instant) -> Option<Lease> {
    let token = new_alone_token();
    let marked = Lease { token, ..lease };
    let either = [Extend { lease, token }, Extend { lease: marked, token }];
    let mut backoff = Backoff::of_errors();
    loop {
        match store.extend(&either).await {
            Ok(landed) => return landed.contains(&true).then_some(marked),
            Err(failed) if failed.transient && Instant::now() < deadline => {
                sleep(backoff.next()).await;
            }
            Err(_) => return None,
        }
    }
}
