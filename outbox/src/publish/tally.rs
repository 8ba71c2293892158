//! Messages that are written with the ack of the row that they are published for.

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
        Self { begun: PublishEvent::start("", 0), queues: BTreeMap::new() }
    }

    /// A message of which so many rows were written: one, or none if its timer is there.
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

    /// Once it is committed.
    pub(crate) fn tell(self, sinks: &Sinks) {
        for (queue, (rows, bytes)) in self.queues {
            self.begun.of(queue, bytes).end(Ok(rows), sinks);
        }
    }
}
