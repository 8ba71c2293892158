//! The transactions that the test broker lends. The message, its lease and the timers are not in
//! the database of the transaction, but elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::publish::Prepared;
use crate::store::Lease;
use crate::store::memory::MemoryStore;

/// What a transaction did that its tables do not tell, or do not tell in full.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    /// How many runs end as if their process had died before the commit.
    crashes: Arc<AtomicUsize>,
    rows: MemoryStore,
    /// The rows that its table had before have ids up to this one.
    pub(crate) begun_after: i64,
    published: Vec<Prepared>,
    cancelled: Vec<(String, String)>,
}

impl Elsewhere {
    pub(crate) fn new(crashes: Arc<AtomicUsize>, rows: MemoryStore) -> Self {
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

    /// Keeps the messages as they were published. Their rows in the tables tell neither whether
    /// they were to move a timer, nor when they are due by another clock.
    pub(super) fn publish(&mut self, messages: &[Prepared]) {
        self.published.extend_from_slice(messages);
    }

    /// Takes the message as it was published.
    pub(crate) fn published(&mut self, such: impl Fn(&Prepared) -> bool) -> Option<Prepared> {
        self.published.iter().rposition(such).map(|at| self.published.remove(at))
    }

    /// Cancels a timer once the transaction commits. Returns whether there is one to cancel.
    pub(super) fn cancel(&mut self, queue: &str, timer_id: &str) -> bool {
        let timer = (queue.to_owned(), timer_id.to_owned());
        let waits = !self.cancelled.contains(&timer) && self.rows.waits(queue, timer_id);
        if waits {
            self.cancelled.push(timer);
        }
        waits
    }

    /// Cancels the timers. To be called before the published messages are written: they may have
    /// the same names.
    pub(crate) fn committed(&self) {
        for (queue, timer_id) in &self.cancelled {
            self.rows.cancel(queue, timer_id);
        }
    }
}
