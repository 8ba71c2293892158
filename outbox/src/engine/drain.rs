//! Stopping an engine: claim no more, let handlers finish, settle, and give back the rest. Each
//! step has a limited time, so that a stop ends even if a handler, a claim or the database does
//! not.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tracing::warn;

use super::Engine;
use super::results::are_done;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::telemetry;

/// How long dropped handlers and last writes may take after the drain's time. A handler that blocks
/// its thread cannot be dropped and is left behind.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// How often the drain asks whether they are written.
const LOOK: Duration = Duration::from_millis(10);
/// How long it may take to report each result that was not written.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Of a time that ends later than clocks count.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The steps that have an end of their own.
#[derive(Clone, Copy)]
enum Step {
    Handlers,
    CutOff,
    Results,
    Report,
    Services,
    Close,
}

/// When each step of a drain is to be over, once it has begun. A drain that was dropped goes on
/// with what is left of the time, however often that happens.
#[derive(Default)]
pub(super) struct Ends([Option<Instant>; 6]);

impl Ends {
    fn of(&mut self, step: Step, limit: Duration) -> Instant {
        let now = Instant::now();
        let end = || now.checked_add(limit).unwrap_or(now + FOREVER);
        *self.0[step as usize].get_or_insert_with(end)
    }
}

impl<S: Store> Engine<S> {
    /// Stops everything, in this order: the claimer (it gives back what is not started), handlers,
    /// settlers, the lease task, connections.
    ///
    /// # Errors
    /// When handlers had to be dropped. Their rows are given back, but for those that have a result.
    pub(crate) async fn drain(&mut self) -> Result<()> {
        self.shared.stop.cancel();
        let end = self.ends.of(Step::Handlers, self.drain_timeout);
        if timeout_at(end, self.workers.wait()).await.is_err() {
            // A drain that goes on after being dropped has reported them.
            self.count_running(!self.shared.cut_off.is_cancelled());
            self.shared.cut_off.cancel();
            // Also bounds a claim that still waits for its answer.
            let end = self.ends.of(Step::CutOff, LAST_WRITES);
            let _ = timeout_at(end, self.workers.wait()).await;
        }
        // The workers held the only senders, so the settlers end when they have written everything.
        // But a worker whose handler blocks its thread still has a sender. So has a claim without
        // an answer, whose rows may still come.
        let (claimer, results) = (self.claimer.clone(), self.results.clone());
        let blocked = !self.workers.is_empty();
        let done = async {
            while !(blocked && claimer.is_finished() && are_done(&results)) {
                sleep(LOOK).await;
            }
        };
        let end = self.ends.of(Step::Results, LAST_WRITES);
        let written = async {
            tokio::select! {
                () = self.written() => {}
                () = done => {}
            }
        };
        if timeout_at(end, written).await.is_err() {
            let why = if are_done(&results) {
                "a claim was not answered; if it has taken rows, they come back after their leases"
            } else {
                "results could not be written in time; their messages come back"
            };
            warn!(target: telemetry::TARGET, "{why}");
            self.shared.over.cancel();
            // A settler that still waits for a handler has reported all results that were there.
            let end = self.ends.of(Step::Report, LAST_WORDS);
            let _ = timeout_at(end, self.written()).await;
        }
        self.settlers.drain(..).for_each(|settler| settler.abort());
        // A result that is sent from now on is reported as lost.
        drop(results);
        self.results = Default::default();
        self.watchdog = None;
        self.services_stop.cancel();
        let end = self.ends.of(Step::Services, LAST_WRITES);
        let _ = timeout_at(end, self.services.wait()).await;
        self.shared.listens(false);
        let end = self.ends.of(Step::Close, LAST_WRITES);
        let _ = timeout_at(end, self.shared.store.close()).await;
        match self.dropped {
            0 => Ok(()),
            dropped => Err(Error::DrainTimeout(dropped)),
        }
    }
}

impl<S> Engine<S> {
    fn count_running(&mut self, tell: bool) {
        let mut running = 0;
        for reader in &self.readers {
            let handlers = reader.inbox.running();
            running += handlers;
            if tell && handlers > 0 {
                reader.teller.drain_timeout(handlers, self.drain_timeout);
            }
        }
        self.dropped = self.dropped.max(running);
    }

    /// Waits for the settlers to end. They are taken off one by one, so that a drain which is
    /// dropped can go on when it is called again.
    async fn written(&mut self) {
        while let Some(settler) = self.settlers.last_mut() {
            let _ = settler.await;
            self.settlers.pop();
        }
    }
}

impl<S> Drop for Engine<S> {
    /// An engine that is dropped without a drain claims no more and drops its handlers. The
    /// settlers still give their rows back.
    fn drop(&mut self) {
        self.shared.stop.cancel();
        self.shared.cut_off.cancel();
        self.services_stop.cancel();
        self.shared.listens(false);
    }
}
