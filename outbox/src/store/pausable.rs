//! Stores whose tables lack the one of paused queues: migrations make it, and older outboxes have
//! none. Claims must work without it, so there are two sets of statements.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::unpoisoned::Locked as _;

/// Between two looks for a table that was missing: it may have been made since, and queues may be
/// paused in it.
const AGAIN: Duration = Duration::from_secs(60);

/// Statements of a store, and the ones that replace them as long as there is no table of paused
/// queues that the store may read.
pub(crate) struct Pausable<S> {
    with: S,
    without: S,
    unpausable: AtomicBool,
    looked: Mutex<Instant>,
}

impl<S> Pausable<S> {
    pub(crate) fn new(with: S, without: S) -> Self {
        let looked = Mutex::new(Instant::now());
        Self { with, without, unpausable: AtomicBool::new(false), looked }
    }

    /// Notes what the last look at the tables has shown.
    pub(crate) fn set(&self, unpausable: bool) {
        *self.looked.locked() = Instant::now();
        self.unpausable.store(unpausable, Ordering::Relaxed);
    }

    /// Whether a claim has to look at the tables first. Of claims that come at the same time only
    /// one has to.
    pub(crate) fn looks_again(&self) -> bool {
        if !self.unpausable.load(Ordering::Relaxed) {
            return false;
        }
        let mut looked = self.looked.locked();
        let due = looked.elapsed() >= AGAIN;
        if due {
            *looked = Instant::now();
        }
        due
    }
}

impl<S> Deref for Pausable<S> {
    type Target = S;

    fn deref(&self) -> &S {
        if self.unpausable.load(Ordering::Relaxed) { &self.without } else { &self.with }
    }
}

/// The text of a statement for tables without one of paused queues. In the statements, whatever
/// reads that table stands on lines of its own.
pub(crate) fn without_pauses(text: &str) -> Cow<'_, str> {
    let kept = |line: &&str| !line.contains("\"outbox_paused\"");
    text.split_inclusive('\n').filter(kept).collect()
}
