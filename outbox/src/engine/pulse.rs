//! Signs of life that the loops leave behind, for health checks: when a claim last succeeded, and
//! whether wakes arrive. Each reader knows for itself whether its last claim failed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::unpoisoned::Locked as _;

/// What the loops last did.
#[derive(Default)]
pub(crate) struct Pulse {
    last_claim: Mutex<Option<Instant>>,
    listens: AtomicBool,
}

/// What the loops say at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reading {
    /// The time since the last claim that succeeded.
    pub(crate) last_claim_age: Option<Duration>,
    /// The names of the subscribers whose last claim was refused or had no answer.
    pub(crate) refused: Vec<&'static str>,
    pub(crate) listener_up: bool,
}

impl Pulse {
    pub(super) fn claimed(&self, now: Instant) {
        *self.last_claim.locked() = Some(now);
    }

    /// True when that is new.
    pub(super) fn listens(&self, up: bool) -> bool {
        self.listens.swap(up, Ordering::Relaxed) != up
    }

    pub(super) fn read(&self, refused: Vec<&'static str>) -> Reading {
        Reading {
            last_claim_age: self.last_claim.locked().map(|at| at.elapsed()),
            refused,
            listener_up: self.listens.load(Ordering::Relaxed),
        }
    }
}
