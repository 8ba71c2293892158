//! Stopping an engine: claim no more, let handlers finish, settle, and give back the rest. Each
//! step has a limited time, so that a stop ends even if a handler, a claim or the database does
//! not.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::warn;

use super::Engine;
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

impl<S: Store> Engine<S> {
    /// Stops everything, in this order: the claimer (it gives back what is not started), handlers,
    /// settlers, the lease task, connections.
    ///
    /// # Errors
    /// When handlers had to be dropped; their rows are given back.
    pub(crate) async fn drain(&mut self) -> Result<()> {
        self.shared.stop.cancel();
        if timeout(self.drain_timeout, self.subscribers.wait()).await.is_err() {
            // A drain that goes on after being dropped has reported them.
            self.count_running(!self.shared.cut_off.is_cancelled());
            self.shared.cut_off.cancel();
            // Also bounds a claim that still waits for its answer.
            let _ = timeout(LAST_WRITES, self.subscribers.wait()).await;
        }
        // The workers held the only senders, so the settlers end when they have written everything.
        // But a worker whose handler blocks its thread still has a sender. So has a claim without
        // an answer, whose rows may still come.
        let (claimer, results) = (self.claimer.clone(), self.results.clone());
        let blocked = !self.subscribers.is_empty();
        let done = async {
            while !(blocked && claimer.is_finished() && results.iter().all(|one| one.is_done())) {
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
            let why = if results.iter().all(|one| one.is_done()) {
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
        self.services.wait().await;
        self.is_deaf();
        tokio::select! {
            biased;
            () = self.shared.store.close() => {}
            () = sleep(LAST_WRITES) => {}
        }
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

    fn is_deaf(&self) {
        if self.shared.pulse.listens(false) {
            self.shared.sinks.listener(false);
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
        self.is_deaf();
    }
}
