//! A transaction whose message, its lease, and the timers it may meet, lie elsewhere than in its
//! database: those that the test broker lends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::publish::Prepared;
use crate::store::Lease;

/// Rows, wherever they lie.
pub(crate) trait Rows: Send + Sync {
    /// Whether this lease still holds its row.
    fn holds(&self, lease: Lease) -> bool;
    /// Whether there is one that could be cancelled.
    fn waits(&self, queue: &str, timer_id: &str) -> bool;
    fn cancel(&self, queue: &str, timer_id: &str);
}

/// What a transaction did that its tables do not tell, or not whole.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    /// How many runs end as if their process had died before it committed.
    crashes: Arc<AtomicUsize>,
    rows: Arc<dyn Rows>,
    /// What its table had before it has ids up to here.
    pub(crate) begun_after: i64,
    published: Vec<Prepared>,
    cancelled: Vec<(String, String)>,
}

impl Elsewhere {
    pub(crate) fn new(crashes: Arc<AtomicUsize>, rows: Arc<dyn Rows>) -> Self {
        Self { crashes, rows, begun_after: 0, published: Vec::new(), cancelled: Vec::new() }
    }

    pub(crate) fn after(self, id: i64) -> Self {
        Self { begun_after: id, ..self }
    }

    pub(crate) fn crashes(&self) -> bool {
        self.crashes.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn holds(&self, lease: Lease) -> bool {
        self.rows.holds(lease)
    }

    /// A row of the tables does not tell whether it was to move a timer, and when by
    /// another clock it is due.
    pub(super) fn publish(&mut self, messages: &[Prepared]) {
        self.published.extend_from_slice(messages);
    }

    /// The message as it was published, once.
    pub(crate) fn published(&mut self, such: impl Fn(&Prepared) -> bool) -> Option<Prepared> {
        self.published.iter().rposition(such).map(|at| self.published.remove(at))
    }

    /// Whether there was one to cancel, which counts once the transaction commits.
    pub(super) fn cancel(&mut self, queue: &str, timer_id: &str) -> bool {
        let timer = (queue.to_owned(), timer_id.to_owned());
        let waits = !self.cancelled.contains(&timer) && self.rows.waits(queue, timer_id);
        if waits {
            self.cancelled.push(timer);
        }
        waits
    }

    /// Before what was published is written, which may have the same names.
    pub(crate) fn committed(&self) {
        for (queue, timer_id) in &self.cancelled {
            self.rows.cancel(queue, timer_id);
        }
    }
}
