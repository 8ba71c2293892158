//! Messages for several queues that are written by one statement.

use std::collections::BTreeMap;

use super::Prepared;
use crate::telemetry::{PublishEvent, Sinks};

/// What was written, queue by queue.
pub(crate) struct Tally {
    begun: PublishEvent,
    /// Rows, and bytes of their messages.
    queues: BTreeMap<String, (usize, usize)>,
}

impl Tally {
    /// Before the statement.
    pub(crate) fn begin() -> Self {
        Self::of(PublishEvent::start("", 0))
    }

    pub(super) fn of(begun: PublishEvent) -> Self {
        Self { begun, queues: BTreeMap::new() }
    }

    /// Counts a message and the rows written for it: one, or none if its timer name is taken.
    pub(crate) fn add(&mut self, message: &Prepared, rows: usize) {
        self.rows(&message.queue, rows, message.payload.len());
    }

    pub(crate) fn rows(&mut self, queue: &str, rows: usize, bytes: usize) {
        if let Some((of_queue, size)) = self.queues.get_mut(queue) {
            *of_queue += rows;
            *size += bytes;
        } else {
            self.queues.insert(queue.to_owned(), (rows, bytes));
        }
    }

    /// Called once the rows are committed, or written into a transaction of the caller.
    pub(crate) fn tell(self, sinks: &Sinks) {
        for (queue, (rows, bytes)) in self.queues {
            self.begun.of(queue, bytes).end(Ok(rows), sinks);
        }
    }
}
