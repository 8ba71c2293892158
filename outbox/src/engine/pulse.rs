//! Signs of life that loops leave behind, for health checks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What the loops last did.
#[derive(Default)]
pub(crate) struct Pulse {
    claimed: Mutex<Option<Instant>>,
    /// The last claim that was answered was refused.
    claims_fail: AtomicBool,
    listens: AtomicBool,
}

/// A look at it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    /// Since the last claim that succeeded.
    pub(crate) last_claim_age: Option<Duration>,
    pub(crate) claims_fail: bool,
    pub(crate) listener_up: bool,
}

impl Pulse {
    pub(super) fn claimed(&self, now: Instant) {
        *self.claimed.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.claims_fail.store(false, Ordering::Relaxed);
    }

    pub(super) fn claim_failed(&self) {
        self.claims_fail.store(true, Ordering::Relaxed);
    }

    /// True when that is new.
    pub(super) fn listens(&self, up: bool) -> bool {
        self.listens.swap(up, Ordering::Relaxed) != up
    }

    pub(super) fn read(&self) -> Reading {
        let claimed = *self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        Reading {
            last_claim_age: claimed.map(|at| at.elapsed()),
            claims_fail: self.claims_fail.load(Ordering::Relaxed),
            listener_up: self.listens.load(Ordering::Relaxed),
        }
    }
}
