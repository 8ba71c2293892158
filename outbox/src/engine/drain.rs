//! Stopping an engine: claim no more, let handlers finish, settle, and give back the rest. Each
//! step has a limited time, so that a stop ends even if a handler, a claim or the database does
//! not.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Engine;
use super::results::are_done;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::telemetry;
use crate::telemetry::warn;

/// How long dropped handlers and last writes may take after the drain's time. A handler that blocks
/// its thread cannot be dropped and is left behind.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// How often the drain asks whether they are written.
const LOOK: Duration = Duration::from_millis(10);
/// How long it may take to report each result that was not written.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl<S: Store> Engine<S> {
    /// Stops everything, in this order: the claimer (it gives back what is not started), handlers,
    /// settlers, the lease task, connections.
    ///
    /// # Errors
    /// When handlers had to be dropped. Their rows are given back, but for those that have a result.
    ///
    /// # Cancel safety
    /// A second call would not know what the first one gave up, nor when that began. Who may want
    /// to wait again keeps the future.
    pub(crate) async fn drain(&mut self) -> Result<()> {
        self.shared.stop.cancel();
        let mut dropped = 0;
        if timeout(self.drain_timeout, self.workers.wait()).await.is_err() {
            dropped = self.give_up();
            // Also bounds a claim that still waits for its answer.
            let _ = timeout(LAST_WRITES, self.workers.wait()).await;
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
        let written = async {
            tokio::select! {
                () = self.written() => {}
                () = done => {}
            }
        };
        if timeout(LAST_WRITES, written).await.is_err() {
            let why = if are_done(&results) {
                "a claim was not answered; if it has taken rows, they come back after their leases"
            } else {
                "results could not be written in time; their messages come back"
            };
            warn!(target: telemetry::TARGET, "{why}");
            self.shared.over.cancel();
            // A settler that still waits for a handler has reported all results that were there.
            let _ = timeout(LAST_WORDS, self.written()).await;
        }
        self.settlers.drain(..).for_each(|settler| settler.abort());
        // A result that is sent from now on is reported as lost.
        drop(results);
        self.results = Default::default();
        self.watchdog = None;
        self.services_stop.cancel();
        let _ = timeout(LAST_WRITES, self.services.wait()).await;
        self.shared.listens(false);
        let _ = timeout(LAST_WRITES, self.shared.store.close()).await;
        if dropped == 0 { Ok(()) } else { Err(Error::DrainTimeout(dropped)) }
    }
}

impl<S> Engine<S> {
    /// Drops the handlers that run, and reports them. Returns how many.
    fn give_up(&self) -> usize {
        let mut running = 0;
        for reader in &self.readers {
            let handlers = reader.inbox.running();
            running += handlers;
            if handlers > 0 {
                reader.teller.drain_timeout(handlers, self.drain_timeout);
            }
        }
        self.shared.cut_off.cancel();
        running
    }

    /// Waits for the settlers to end. They are taken off one by one, because a drain that has
    /// waited in vain waits for the others once more.
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
