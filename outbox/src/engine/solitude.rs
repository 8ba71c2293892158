//! The end of running alone, for a row that takes long: others start beside it.
//!
//! The token of such a row says "alone" and would condemn the row for what the others do. So before
//! they start, its lease continues under a token that does not say so.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::store::{Extend, Lease, Store, new_token};

/// At first a row is alone for half of its lease, but no shorter and no longer than these.
const SHORTEST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(30);
/// It is alone for twice as long each time it comes back without a word from its process, up to so
/// many times: a row that kills its process late is found out all the same.
const DOUBLINGS: u64 = 6;
/// Between tries while the database is away.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a drain has for its last reports.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// How long a row runs alone that has come back `again` times since it was first alone.
pub(super) fn lasts(lease_ttl: Duration, again: u64) -> Duration {
    (lease_ttl / 2).clamp(SHORTEST, LONGEST) * (1 << again.min(DOUBLINGS))
}

/// Shared by the run and the task that extends its lease.
pub(super) struct Solitude {
    /// The token under which the lease continues.
    pub(super) token: Uuid,
    phase: AtomicU8,
    ended: CancellationToken,
}

/// The lease is to continue under the other token.
const ENDING: u8 = 1;
/// The run has ended first: its settlement is written under the token that the lease has.
const SETTLING: u8 = 2;

impl Solitude {
    pub(super) fn new() -> Self {
        Self { token: new_token(), phase: AtomicU8::new(0), ended: CancellationToken::new() }
    }

    pub(super) fn is_ending(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == ENDING
    }

    /// Sets the phase. The first one that is set counts; true if it is this one.
    fn becomes(&self, phase: u8) -> bool {
        let before = self.phase.compare_exchange(0, phase, Ordering::SeqCst, Ordering::SeqCst);
        before.is_ok() || before == Err(phase)
    }

    /// Whether the lease keeps its token, because the run has ended before its solitude did.
    pub(super) fn outlasts_the_run(&self) -> bool {
        self.becomes(SETTLING)
    }

    /// Makes the lease continue under the other token, however long that takes. `false` at once if
    /// the run has ended first: then the lease keeps its token.
    pub(super) async fn end(&self, hurry: &Notify) -> bool {
        while self.becomes(ENDING) {
            hurry.notify_one();
            if timeout(AGAIN, self.ended.cancelled()).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Finds out whether the lease has continued under the other token, if the database says so in
    /// time. The task that extends it may still be at it, or may be gone.
    pub(super) async fn look<S: Store>(&self, store: &S, id: i64) {
        let other = Lease { id, token: self.token };
        let looks = async {
            while !self.is_over() {
                // The first statement tells it of a row that nobody has locked, the second of a
                // locked one.
                let extended = store.extend(&[Extend { lease: other, token: self.token }]).await;
                if extended.is_ok_and(|landed| landed == [true])
                    || store.held(&[other]).await.is_ok_and(|held| held == [true])
                {
                    self.has_ended();
                }
                let _ = timeout(LAST_LOOK / 5, self.ended()).await;
            }
        };
        let _ = timeout(LAST_LOOK, looks).await;
    }

    pub(super) fn has_ended(&self) {
        self.ended.cancel();
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Ready when the lease has continued under the other token.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_alone_for_longer_each_time_it_comes_back() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(lasts(second, 0), 5 * second);
        assert_eq!(lasts(20 * second, 0), 10 * second);
        assert_eq!(lasts(60 * minute, 0), 30 * second);
        assert_eq!(lasts(minute, 3), 4 * minute);
        assert_eq!(lasts(minute, 6), 32 * minute);
        assert_eq!(lasts(minute, u64::MAX), 32 * minute);
    }

    #[tokio::test]
    async fn a_run_that_has_ended_keeps_the_token_that_it_is_settled_under() {
        let solitude = Solitude::new();
        assert!(solitude.outlasts_the_run() && solitude.outlasts_the_run());
        assert!(!solitude.end(&Notify::new()).await, "there is no solitude left to end");
        assert!(!solitude.is_ending() && !solitude.is_over());
        let solitude = Solitude::new();
        assert!(solitude.becomes(ENDING) && !solitude.outlasts_the_run() && solitude.is_ending());
    }

    /// Its settlement would be written under a token that is no longer there.
    #[cfg(feature = "testing")]
    #[tokio::test]
    async fn a_lease_that_went_on_under_the_other_token_without_an_answer_is_known_to_have() {
        use std::sync::Arc;

        use tokio::time::Instant;

        use crate::engine::extend::extend;
        use crate::engine::lease::Leases;
        use crate::store::memory::MemoryStore;
        use crate::store::{Claim, Expects, Extend, Lease, Store, new_alone_token};

        let (store, ttl, token) =
            (MemoryStore::new(true), Duration::from_secs(60), new_alone_token());
        let mut tx = store.begin();
        crate::Publisher::default().publish(&mut tx, "q", &1).await.unwrap();
        tx.commit();
        let claim = Claim {
            queues: Arc::from([String::from("q")]),
            limit: 1,
            lease_ttl: ttl,
            token,
            after: None,
            max_deliveries: None,
            expects: Expects::Plenty,
        };
        let row = store.claim(&[claim]).await.unwrap().remove(0).rows.remove(0).row;
        let lease = Lease { id: row.id, token };
        let (leases, context) = (Leases::default(), crate::Context::of_test("{}"));
        let solitude = Arc::new(Solitude::new());
        let within = Some(Arc::clone(&solitude));
        let _holding = leases.hold_in(lease, Instant::now(), ttl, &context, within);
        extend(&leases, &store).await;
        assert_eq!(store.rows()[0].acquired_token, Some(token), "it is alone");
        assert!(solitude.becomes(ENDING));
        store.extend(&[Extend { lease, token: solitude.token }]).await.unwrap();
        extend(&leases, &store).await;
        assert!(solitude.is_over() && !context.delivery().watch.is_lost());
        assert_eq!(store.rows()[0].acquired_token, Some(solitude.token));
        // When nobody is left to extend it.
        let (other, id) = (Solitude::new(), lease.id);
        other.look(&store, id).await;
        assert!(!other.is_over(), "the lease is another's");
        let lease = Lease { token: solitude.token, ..lease };
        store.extend(&[Extend { lease, token: other.token }]).await.unwrap();
        other.look(&store, id).await;
        assert!(other.is_over());
    }
}
