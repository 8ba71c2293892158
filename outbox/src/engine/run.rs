//! One delivery, from its admission to the end of its run. `invoke` makes a [`Run`] of each row
//! that is admitted; `handle` takes it through its handler.

use std::sync::Arc;

use tokio::time::Instant;

use super::invoke::case;
use super::lease::{self, Holding};
use super::settlement::Settlement;
use super::settling::Settling;
use super::solitude::Solitude;
use super::{Reader, Shared};
use crate::extract::{Context, Delivery};
use crate::store::Store;

/// A delivery that may run.
pub(super) struct Run<'a> {
    pub(super) settling: Box<Settling>,
    /// Held from the admission on, so that the lease is extended while the run waits to begin.
    /// `None` after the end of the run.
    pub(super) holding: Option<Holding<'a>>,
    pub(super) context: Context,
    /// Set for a suspect that runs alone.
    pub(super) solitude: Option<Arc<Solitude>>,
}

impl Run<'_> {
    /// Notes that its handler is about to start.
    pub(super) fn dispatched(&mut self, reader: &Reader, now: Instant) {
        let delivery = self.context.delivery();
        let _ = delivery.began.set(now);
        let waited = delivery.row.waited(now - delivery.claimed_at);
        let bytes = delivery.row.payload.len();
        self.settling.report.dispatched(now, waited, bytes, &reader.teller);
    }

    /// The settlement of a run that has waited and may not start any more.
    pub(super) fn kept_back<S>(
        &self,
        shared: &Shared<S>,
        reader: &Reader,
        now: Instant,
    ) -> Option<Settlement> {
        let deadline = self.context.lease_deadline();
        if self.context.delivery().watch.is_lost() || now >= deadline {
            return Some(Settlement::Lost);
        }
        let waited = now + lease::margin(self.settling.lease_ttl()) > deadline;
        if waited {
            reader.teller.waited_too_long();
        }
        if waited || shared.stop.is_cancelled() {
            return Some(Settlement::Release { due_in: None });
        }
        self.expired(shared, reader, now)
    }

    /// The settlement if the message has expired.
    pub(super) fn expired<S>(
        &self,
        shared: &Shared<S>,
        reader: &Reader,
        now: Instant,
    ) -> Option<Settlement> {
        let Delivery { row, claimed_at, .. } = self.context.delivery();
        let expired = row.has_expired(now - *claimed_at);
        expired.then(|| case(shared, reader, row, *claimed_at).expired())
    }

    /// Gives the row back: its handler was not started.
    pub(super) fn given_back(self) -> Box<Settling> {
        self.unstarted(Settlement::Release { due_in: None })
    }

    pub(super) fn unstarted(mut self, settlement: Settlement) -> Box<Settling> {
        self.settling.until(self.context.lease_deadline());
        self.settling.ruled(settlement)
    }

    /// Waits until it is known which token the lease has, if the token was about to change, or is to
    /// change because the settlement `may_wait` for longer than others can wait for their start.
    /// Nobody can change it while the transaction of this run is the only one that can write.
    pub(super) async fn named<S: Store>(&mut self, shared: &Shared<S>, may_wait: bool) {
        let Some(solitude) = &self.solitude else { return };
        if !may_wait && solitude.outlasts_the_run() {
            return;
        }
        if !self.context.delivery().is_sole_writer() {
            tokio::select! {
                biased;
                _ = solitude.end(&shared.leases.hurry) => {}
                () = self.context.delivery().watch.lost() => {}
                // After that, nobody may be left who would change it.
                () = shared.cut_off.cancelled() => {
                    solitude.look(&shared.store, self.settling.lease.id).await;
                }
            }
        }
        if solitude.is_over() {
            self.settling.lease.token = solitude.token;
        }
    }

    /// Notes that its handler has ended, or was given up.
    pub(super) fn end(&mut self) {
        drop(self.context.delivery().end_collection());
        self.settling.report.ended();
    }

    /// Stops extending its lease. That must not be before its transaction has ended, however
    /// slowly.
    pub(super) fn let_go(&mut self) {
        self.settling.until(self.context.lease_deadline());
        self.holding = None;
    }
}
