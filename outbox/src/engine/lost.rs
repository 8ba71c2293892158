//! Claims whose answer was lost. Whatever they took is given back, because nobody else knows their
//! tokens, and the rows would stay leased.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::backoff::Backoff;
use crate::store::{Claim, Store};
use crate::telemetry::{TARGET, error};

/// How long nobody tries again after a failed try: during an outage every try to claim adds a lost
/// claim.
const REST: Duration = Duration::from_secs(1);
/// How long a claim is asked about once the server has said that nothing came of it. After that
/// nothing will. The lease may last for days, and each try reads the queue.
const LONG: Duration = Duration::from_secs(600);
/// How long a drain waits for the last tries.
pub(super) const LAST_TRY: Duration = Duration::from_secs(2);

/// A claim whose answer never came.
pub(super) struct Lost {
    pub(super) claim: Claim,
    /// The index of the reader that sent it.
    pub(super) reader: usize,
    /// It was sent by then: a lease later, anybody may take its rows.
    pub(super) sent: Instant,
}

impl Lost {
    /// Gives back what it took. True if it gave rows back; `None` when that is not known.
    pub(super) async fn give_back<S: Store>(&self, shared: &Shared<S>) -> Option<bool> {
        match shared.store.abandon(&self.claim).await {
            Ok(rows) => Some(rows > 0),
            Err(failed) => {
                error!(target: TARGET, error = %failed, "a lost claim could not be given back");
                None
            }
        }
    }

    /// Tries again, and returns the reader whose rows came back. The server learns last that its
    /// client is gone: it may still work on the claim, and commit it, after the first try has found
    /// nothing.
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
            // One at a time: each try asks for a connection, and there may be none.
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
