//! Who has to be notified. The server handles one commit that notifies at a time, so a publisher
//! notifies only if somebody sleeps. Whoever sleeps holds a lock in shared mode. A publisher that
//! cannot have the lock for itself, for a moment, notifies. The locks belong to the connection that
//! listens, and end with it.

use std::collections::HashSet;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgListener;
use tokio::time::Instant;

use crate::store::names::{Notify, TableNames};

const LOCK: &str = "SELECT pg_advisory_lock_shared(lock) FROM unnest($1::bigint[]) AS given(lock)";
const UNLOCK: &str =
    "SELECT pg_advisory_unlock_shared(lock) FROM unnest($1::bigint[]) AS given(lock)";
/// Transactions that have written to the table and are not over: all of them, or those named. The
/// number of a transaction is never given to another one.
const WRITERS: &str = "SELECT DISTINCT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND relation = $1::regclass AND mode = 'RowExclusiveLock'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (virtualtransaction = ANY($2)) IS NOT FALSE";

/// Between two looks for what was published unnoticed. The time grows with the time since the lock
/// was taken: a message is late by a tenth of the time that its transaction took.
const LOOK_FIRST: Duration = Duration::from_millis(5);
const LOOK_LAST: Duration = Duration::from_secs(20);

/// The time from one look to the next, at this age.
fn until_next_look(age: Duration) -> Duration {
    (age / 10).clamp(LOOK_FIRST, LOOK_LAST)
}

/// The names of the locks of a channel. The queues of a channel share 64 locks, because the server
/// has room for a limited number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Locks {
    /// Without the last six bits, which tell the queue.
    pub(super) start: i64,
}

impl Locks {
    pub(super) fn of(names: &TableNames) -> Self {
        let digest = Sha256::digest(names.channel());
        let first = digest.iter().take(8).fold(0_i64, |all, &byte| all << 8 | i64::from(byte));
        Self { start: first & !63 }
    }

    /// The lock of a queue. Statements that learn of queues from their rows compute the same in
    /// SQL.
    pub(super) fn of_queue(self, queue: &str) -> i64 {
        self.start | i64::from(Sha256::digest(queue)[0] & 63)
    }
}

/// Where a publish notifies, if ever; and the locks, if a publish asks for them.
pub(super) fn notified(names: &TableNames) -> (Option<String>, Option<Locks>) {
    match names.notify() {
        Notify::Asleep => (Some(names.channel()), Some(Locks::of(names))),
        Notify::Always => (Some(names.channel()), None),
        Notify::Never => (None, None),
    }
}

/// The locks that one connection holds.
pub(super) struct Sleepers {
    locks: Locks,
    table: String,
    /// Queues that have sleepers: their locks are held.
    asleep: HashSet<String>,
    unnoticed: Vec<Unnoticed>,
}

/// Transactions that may have asked for the sleepers of a queue before its lock was held, and that
/// are not over.
struct Unnoticed {
    queue: String,
    writers: Vec<String>,
    since: Instant,
    look_at: Instant,
}

impl Sleepers {
    pub(super) fn new(names: &TableNames) -> Self {
        Self {
            locks: Locks::of(names),
            table: names.qualified(names.table()),
            asleep: HashSet::new(),
            unnoticed: Vec::new(),
        }
    }

    /// From now on these queues have sleepers, and no others.
    pub(super) async fn sleep_on(
        &mut self,
        connection: &mut PgListener,
        queues: &[&str],
    ) -> Result<(), sqlx::Error> {
        let wanted: HashSet<_> = queues.iter().map(|one| self.locks.of_queue(one)).collect();
        let held: HashSet<_> = self.asleep.iter().map(|one| self.locks.of_queue(one)).collect();
        let fresh: Vec<i64> = wanted.difference(&held).copied().collect();
        let stale: Vec<i64> = held.difference(&wanted).copied().collect();
        if !fresh.is_empty() {
            // A publisher holds such a lock for less time than a statement takes.
            sqlx::query(LOCK).bind(fresh).execute(&mut *connection).await?;
        }
        // Also queues whose lock another queue has held so far: a publisher that asked before that
        // may have written to this queue.
        let mut new = Vec::new();
        for &queue in queues {
            if !self.asleep.contains(queue) {
                new.push(queue.to_owned());
            }
        }
        if !new.is_empty() {
            let all = self.writers(connection, None).await?;
            let since = Instant::now();
            for queue in new {
                // A queue that falls asleep again and again while one writer lives knows that
                // writer already.
                let known = self.unnoticed.iter().filter(|one| one.queue == queue);
                let known: HashSet<_> = known.flat_map(|one| &one.writers).collect();
                let writers = all.iter().filter(|one| !known.contains(one)).cloned().collect();
                // The first look is at once: some transactions are over by now.
                self.unnoticed.push(Unnoticed { queue, writers, since, look_at: since });
            }
        }
        if !stale.is_empty() {
            sqlx::query(UNLOCK).bind(stale).execute(&mut *connection).await?;
        }
        self.asleep = queues.iter().map(|&queue| queue.to_owned()).collect();
        Ok(())
    }

    async fn writers(
        &self,
        connection: &mut PgListener,
        of: Option<Vec<String>>,
    ) -> Result<Vec<String>, sqlx::Error> {
        sqlx::query_scalar(WRITERS).bind(&self.table).bind(of).fetch_all(connection).await
    }

    /// When to look for what was published unnoticed.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.unnoticed.iter().map(|one| one.look_at).min()
    }

    /// The queues in which there may be unnoticed messages, because some of the transactions are
    /// over.
    ///
    /// # Cancel safety
    /// A dropped call is as if it had not been made.
    pub(super) async fn look(
        &mut self,
        connection: &mut PgListener,
    ) -> Result<Vec<String>, sqlx::Error> {
        let now = Instant::now();
        let due = self.unnoticed.iter().filter(|one| one.look_at <= now);
        let asked: HashSet<String> = due.flat_map(|one| &one.writers).cloned().collect();
        let mut left = HashSet::new();
        if !asked.is_empty() {
            left.extend(self.writers(connection, Some(asked.into_iter().collect())).await?);
        }
        let mut found = Vec::new();
        self.unnoticed.retain_mut(|one| {
            if one.look_at > now {
                return true;
            }
            let (before, first) = (one.writers.len(), one.look_at == one.since);
            one.writers.retain(|writer| left.contains(writer));
            if first || one.writers.len() < before {
                found.push(one.queue.clone());
            }
            one.look_at = Instant::now() + until_next_look(one.since.elapsed());
            !one.writers.is_empty()
        });
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_late_by_a_tenth_of_its_age_and_by_twenty_seconds_at_most() {
        let ages = [1, 5_000, 150_000, 3_600_000].map(Duration::from_millis);
        let waits = ages.map(|age| until_next_look(age).as_millis());
        assert_eq!(waits, [5, 500, 15_000, 20_000]);
    }

    /// Processes of several versions share the locks.
    #[test]
    fn a_lock_keeps_its_name() {
        let locks = Locks::of(&TableNames::default());
        assert_eq!(locks.start, 4_350_698_904_104_646_336);
        assert_eq!(locks.of_queue("orders") - locks.start, 28);
    }
}
