//! Tables that lack the one of paused queues: migrations make it, an older one has none.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

/// Statements of a store, and those in their place as long as there is no table of paused
/// queues that it may read.
pub(crate) struct Pausable<S> {
    with: S,
    without: S,
    unpausable: AtomicBool,
}

impl<S> Pausable<S> {
    pub(crate) fn new(with: S, without: S) -> Self {
        Self { with, without, unpausable: AtomicBool::new(false) }
    }

    /// What the last look at the tables has shown.
    pub(crate) fn set(&self, unpausable: bool) {
        self.unpausable.store(unpausable, Ordering::Relaxed);
    }
}

impl<S> Deref for Pausable<S> {
    type Target = S;

    fn deref(&self) -> &S {
        if self.unpausable.load(Ordering::Relaxed) { &self.without } else { &self.with }
    }
}

/// The text of a statement for tables without one of paused queues. What reads it stands
/// in lines of its own.
pub(crate) fn without_pauses(text: &str) -> Cow<'_, str> {
    let kept = |line: &&str| !line.contains("\"outbox_paused\"");
    text.split_inclusive('\n').filter(kept).collect()
}
