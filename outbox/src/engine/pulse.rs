//! Signs of life that the loops leave behind, for health checks: when a claim last succeeded, whose
//! last claim failed, and whether wakes arrive.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::subscriber::Subscriber;
use crate::unpoisoned::Locked as _;

/// What the loops last did.
#[derive(Default)]
pub(crate) struct Pulse {
    claims: Mutex<Claims>,
    listens: AtomicBool,
}

#[derive(Default)]
struct Claims {
    last: Option<Instant>,
    /// Subscribers whose last claim was refused or had no answer, with their first queues: several
    /// subscribers may have one name.
    refused: BTreeSet<(&'static str, String)>,
}

/// What a [`Pulse`] says at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reading {
    /// The time since the last claim that succeeded.
    pub(crate) last_claim_age: Option<Duration>,
    pub(crate) refused: Vec<&'static str>,
    pub(crate) listener_up: bool,
}

fn named(subscriber: &Subscriber) -> (&'static str, String) {
    (subscriber.name(), subscriber.queues().first().cloned().unwrap_or_default())
}

impl Pulse {
    pub(super) fn claimed(&self, subscriber: &Subscriber, now: Instant) {
        let mut claims = self.claims.locked();
        claims.last = Some(now);
        // There is seldom one, and a key costs an allocation.
        if !claims.refused.is_empty() {
            claims.refused.remove(&named(subscriber));
        }
    }

    pub(super) fn claim_failed(&self, subscriber: &Subscriber) {
        self.claims.locked().refused.insert(named(subscriber));
    }

    /// True when that is new.
    pub(super) fn listens(&self, up: bool) -> bool {
        self.listens.swap(up, Ordering::Relaxed) != up
    }

    pub(super) fn read(&self) -> Reading {
        let claims = self.claims.locked();
        let mut refused: Vec<_> = claims.refused.iter().map(|(name, _)| *name).collect();
        refused.dedup();
        Reading {
            last_claim_age: claims.last.map(|at| at.elapsed()),
            refused,
            listener_up: self.listens.load(Ordering::Relaxed),
        }
    }
}
