//! The blocking thread of a run, if its handler is a plain fn.

use std::sync::Mutex;
use std::time::Duration;

use crate::unpoisoned::Locked as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// The place of a run on the blocking threads, and how long it waits for a thread.
#[derive(Default)]
pub(crate) struct Thread(Mutex<State>);

#[derive(Default)]
struct State {
    /// Taken by the engine before the run begins, so that waiting for it is not the run's time.
    place: Option<OwnedSemaphorePermit>,
    /// Since when the run is in the runtime's queue for a thread.
    queued: Option<Instant>,
    /// How long the run was in that queue.
    waited: Duration,
}

impl Thread {
    pub(crate) fn reserve(&self, place: OwnedSemaphorePermit) {
        self.0.locked().place = Some(place);
    }

    /// Takes the place, if the run did not take it to its thread.
    pub(crate) fn take_place(&self) -> Option<OwnedSemaphorePermit> {
        self.0.locked().place.take()
    }

    pub(crate) fn queues(&self) {
        self.0.locked().queued = Some(Instant::now());
    }

    pub(crate) fn begins(&self) {
        let mut state = self.0.locked();
        if let Some(since) = state.queued.take() {
            state.waited += since.elapsed();
        }
    }

    /// How long the runtime had no thread for the run.
    pub(crate) fn waited(&self) -> Duration {
        let state = self.0.locked();
        state.waited + state.queued.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
