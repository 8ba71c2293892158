//! Claims whose answer was lost: whatever they took is given back.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::Shared;
use super::backoff::Backoff;
use crate::store::{Claim, Store};
use crate::telemetry::TARGET;

/// After a try that failed nobody makes another for so long: in an outage there is a lost
/// claim more with every try to claim.
const REST: Duration = Duration::from_secs(1);
/// Once the server has said that nothing came of a claim, nothing will after so long: the lease
/// may be one of days, and each try reads the queue.
const LONG: Duration = Duration::from_secs(600);
/// How long a drain waits for the last tries.
pub(super) const LAST_TRY: Duration = Duration::from_secs(2);

/// A claim that nobody heard of again.
pub(super) struct Lost {
    pub(super) claim: Claim,
    /// The number of who sent it.
    pub(super) reader: usize,
    /// Whatever it took is anybody's after a lease.
    pub(super) sent: Instant,
}

impl Lost {
    /// True when there is nothing left to give back; `None` when that is not known.
    pub(super) async fn give_back<S: Store>(&self, shared: &Shared<S>) -> Option<bool> {
        match shared.store.abandon(&self.claim).await {
            Ok(rows) => Some(rows > 0),
            Err(failed) => {
                error!(target: TARGET, error = %failed, "a lost claim could not be given back");
                None
            }
        }
    }

    /// Tries again, and says whose rows came back. The server learns last that its client
    /// is gone: it may still work on the claim, and commit it, when the first try has
    /// found nothing.
    pub(super) async fn keep_trying<S: Store>(
        self,
        shared: &Shared<S>,
        turn: &Mutex<()>,
        stop: &CancellationToken,
    ) -> Option<usize> {
        let mut end = self.sent + self.claim.lease_ttl;
        let (mut backoff, mut failed) = (Backoff::of_errors(), false);
        while Instant::now() < end {
            let stopped = timeout(backoff.after(failed), stop.cancelled()).await.is_ok();
            // One at a time: each asks for a connection, and there may be none.
            let _turn = turn.lock().await;
            let given_back = self.give_back(shared).await;
            if given_back == Some(true) {
                return Some(self.reader);
            }
            if stopped {
                return None;
            }
            failed = given_back.is_none();
            if failed {
                // Within its turn.
                let _ = timeout(REST, stop.cancelled()).await;
            } else {
                end = end.min(Instant::now() + LONG);
            }
        }
        None
    }
}
