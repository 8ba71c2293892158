//! What is in the queues, for gauges.

use std::time::UNIX_EPOCH;

use super::Tables;
use crate::store::{Depth, Position};

impl Tables {
    pub(super) fn depth(&self, queue: &str, most: usize) -> Depth {
        let free = self.rows.values().filter(|stored| stored.locked_by.is_none());
        let mut rows: Vec<_> =
            free.map(|stored| &stored.row).filter(|row| row.queue == queue).collect();
        rows.sort_by_key(|row| Position::of(row));
        rows.truncate(most);
        let waits =
            |row: &&&crate::Row| row.acquired_token.is_none() && row.next_attempt_at <= self.now;
        // Due since 1970 or before may stand for "always".
        let aged = |row: &&&crate::Row| waits(row) && row.next_attempt_at > UNIX_EPOCH;
        let oldest = rows.iter().find(aged).map(|row| row.next_attempt_at);
        let age = oldest.and_then(|since| self.now.duration_since(since).ok());
        let letters = self.dlq.as_ref().map(|letters| {
            letters.iter().filter(|letter| letter.queue == queue).take(most).count()
        });
        Depth {
            queue: queue.to_owned(),
            backlog: rows.len(),
            due: rows.iter().filter(waits).count(),
            leased: rows.iter().filter(|row| row.acquired_token.is_some()).count(),
            oldest_age: age.unwrap_or_default(),
            dead_letters: letters,
            notify_usage: None,
        }
    }
}
