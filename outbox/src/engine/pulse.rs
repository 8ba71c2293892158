//! Signs of life that loops leave behind, for health checks.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What the loops last did.
#[derive(Default)]
pub(crate) struct Pulse {
    claims: Mutex<Claims>,
    listens: AtomicBool,
}

#[derive(Default)]
struct Claims {
    last: Option<Instant>,
    /// Subscribers whose last claim was refused, or had no answer.
    refused: BTreeSet<&'static str>,
}

/// A look at it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reading {
    /// Since the last claim that succeeded.
    pub(crate) last_claim_age: Option<Duration>,
    pub(crate) refused: Vec<&'static str>,
    pub(crate) listener_up: bool,
}

impl Pulse {
    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn claimed(&self, subscriber: &'static str, now: Instant) {
        let mut claims = self.claims();
        claims.last = Some(now);
        claims.refused.remove(subscriber);
    }

    pub(super) fn claim_failed(&self, subscriber: &'static str) {
        self.claims().refused.insert(subscriber);
    }

    /// True when that is new.
    pub(super) fn listens(&self, up: bool) -> bool {
        self.listens.swap(up, Ordering::Relaxed) != up
    }

    pub(super) fn read(&self) -> Reading {
        let claims = self.claims();
        Reading {
            last_claim_age: claims.last.map(|at| at.elapsed()),
            refused: claims.refused.iter().copied().collect(),
            listener_up: self.listens.load(Ordering::Relaxed),
        }
    }
}
