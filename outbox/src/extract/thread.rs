//! The blocking thread of a run, if its handler is a plain fn.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::unpoisoned::Locked as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// What a run knows of its thread before it has one.
#[derive(Default)]
pub(crate) struct Thread(Mutex<State>);

#[derive(Default)]
struct State {
    /// Taken by the engine, so that the run's time does not begin before.
    place: Option<OwnedSemaphorePermit>,
    /// Since when it is in the runtime's queue for a thread.
    queued: Option<Instant>,
    /// How long it was there.
    waited: Duration,
}

impl Thread {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.locked()
    }

    pub(crate) fn reserve(&self, place: OwnedSemaphorePermit) {
        self.state().place = Some(place);
    }

    /// The place, unless the run went there with it.
    pub(crate) fn take_place(&self) -> Option<OwnedSemaphorePermit> {
        self.state().place.take()
    }

    pub(crate) fn queues(&self) {
        self.state().queued = Some(Instant::now());
    }

    pub(crate) fn begins(&self) {
        let mut state = self.state();
        if let Some(since) = state.queued.take() {
            state.waited += since.elapsed();
        }
    }

    /// Time in which the runtime had no thread for it.
    pub(crate) fn waited(&self) -> Duration {
        let state = self.state();
        state.waited + state.queued.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
