//! What one subscriber was told to look for. Watchers, settlements and claims leave it here for the
//! claimer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::unpoisoned::Locked as _;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// A wake, or the time of the next row, kept until the next claim.
pub(crate) struct Signal {
    state: Mutex<State>,
    /// Makes the claimer look.
    changed: Arc<Notify>,
    /// While this is set nothing is claimed, whatever it was told.
    is_held: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    woken: bool,
    /// It was woken by a row.
    told: bool,
    due: Option<Instant>,
    /// When a known row becomes due.
    row: Option<Instant>,
}

impl Signal {
    pub(super) fn new(changed: &Arc<Notify>) -> Self {
        Self { state: Mutex::default(), changed: Arc::clone(changed), is_held: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// There is a row.
    pub(super) fn wake(&self) {
        self.state().told = true;
        self.look();
    }

    /// There may be rows.
    pub(super) fn look(&self) {
        if !std::mem::replace(&mut self.state().woken, true) {
            self.changed.notify_one();
        }
    }

    /// A row becomes due at this time.
    pub(super) fn due_at(&self, at: Instant) {
        let mut state = self.state();
        state.row = Some(state.row.map_or(at, |known| known.min(at)));
        drop(state);
        self.look_at(at);
    }

    /// There may be rows at this time.
    pub(super) fn look_at(&self, at: Instant) {
        let mut state = self.state();
        if state.due.is_none_or(|known| at < known) {
            state.due = Some(at);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Forgets the wakes and due times that the claim about to be sent will see.
    pub(super) fn clear(&self) {
        *self.state() = State::default();
    }

    /// Whether a row should be there by now.
    pub(super) fn expects(&self, now: Instant) -> bool {
        let state = self.state();
        state.told || state.row.is_some_and(|row| row <= now)
    }

    /// If it was told of a row: when the next row was to come, as far as was known.
    pub(super) fn knew(&self) -> Option<Instant> {
        let state = self.state();
        state.row.filter(|_| state.told)
    }

    /// Has no claim made until one of the threads is free: nobody could run what it took.
    pub(super) fn hold_until_free(&self, threads: &Arc<Semaphore>) {
        if self.is_held.swap(true, Ordering::SeqCst) {
            return;
        }
        let (threads, changed) = (Arc::clone(threads), Arc::clone(&self.changed));
        let is_held = Arc::clone(&self.is_held);
        tokio::spawn(async move {
            drop(threads.acquire_owned().await);
            is_held.store(false, Ordering::SeqCst);
            changed.notify_one();
        });
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }

    /// When to look; now after a wake.
    pub(super) fn at(&self, now: Instant) -> Option<Instant> {
        let state = self.state();
        if state.woken { Some(now) } else { state.due }
    }
}
