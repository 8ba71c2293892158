//! How many messages were handled so far, and a word when it is enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// A state of the handlers.
#[derive(Clone, Default)]
pub struct Tally(Arc<Inner>);

#[derive(Default)]
struct Inner {
    handled: AtomicU64,
    goal: AtomicU64,
    reached: Notify,
}

impl Tally {
    pub fn one(&self) {
        let handled = self.0.handled.fetch_add(1, Ordering::SeqCst) + 1;
        if handled == self.0.goal.load(Ordering::SeqCst) {
            self.0.reached.notify_one();
        }
    }

    pub fn handled(&self) -> u64 {
        self.0.handled.load(Ordering::SeqCst)
    }

    /// Waits until so many are handled. One waiter at a time.
    pub async fn reach(&self, goal: u64) {
        // The goal is set before the look, and counted before the goal is read: one
        // of the two sees the other.
        self.0.goal.store(goal, Ordering::SeqCst);
        while self.handled() < goal {
            self.0.reached.notified().await;
        }
    }
}
