//! What one subscriber was told to look for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// A wake, or the time of the next row, kept until the next claim.
pub(crate) struct Signal {
    state: Mutex<State>,
    /// Makes the claimer look.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    woken: bool,
    due: Option<Instant>,
}

impl Signal {
    pub(super) fn new(changed: &Arc<Notify>) -> Self {
        Self { state: Mutex::default(), changed: Arc::clone(changed) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        if !std::mem::replace(&mut self.state().woken, true) {
            self.changed.notify_one();
        }
    }

    /// A row becomes due then.
    pub(super) fn due_at(&self, at: Instant) {
        let mut state = self.state();
        if state.due.is_none_or(|known| at < known) {
            state.due = Some(at);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Forgets wakes and due times that a claim about to be sent will see.
    pub(super) fn clear(&self) {
        *self.state() = State::default();
    }

    /// When it is due; now after a wake.
    pub(super) fn at(&self, now: Instant) -> Option<Instant> {
        let state = self.state();
        if state.woken { Some(now) } else { state.due }
    }
}
