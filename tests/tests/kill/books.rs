//! What was given, what is left of it, and what came of it.

use std::collections::HashMap;

use outbox_tests::db::Db;

use super::{REJECTING, RETURNING, traps};

/// The messages are the numbers from 1 to `given`.
pub struct Books<'a> {
    db: &'a Db,
    /// What stands there of a message whose delivery has ended.
    done: Entry,
    given: i64,
}

/// How often a number stands in a place.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Entry {
    waiting: usize,
    published: usize,
    written: usize,
    dead: usize,
}

impl<'a> Books<'a> {
    pub async fn open(db: &'a Db, handler: &str) -> Self {
        db.exec("CREATE TABLE done (n bigint NOT NULL)").await;
        traps::set(db).await;
        let done = match handler {
            REJECTING => Entry { dead: 1, ..Entry::default() },
            RETURNING => Entry { published: 1, ..Entry::default() },
            _ => Entry { published: 1, written: 1, ..Entry::default() },
        };
        Self { db, done, given: 0 }
    }

    /// Ends the leases of the dead, and fills up to `enough` messages that wait.
    pub async fn stock(&mut self, enough: usize) {
        let past = if self.db.is_postgres() { "acquired_at - interval '1 hour'" } else { "0" };
        self.db
            .exec(format!(
                "UPDATE outbox SET acquired_at = {past} WHERE acquired_token IS NOT NULL"
            ))
            .await;
        let missing = enough.saturating_sub(self.waiting().await);
        let first = self.given + 1;
        self.given += i64::try_from(missing).unwrap();
        traps::publish(self.db, first..=self.given).await;
    }

    pub async fn waiting(&self) -> usize {
        let waiting = self.db.int("SELECT count(*) FROM outbox WHERE queue = 'work'").await;
        usize::try_from(waiting).unwrap()
    }

    /// Every message has either happened once, with all that belongs to it, or
    /// not at all, and the file is whole. Returns how many have not.
    pub async fn balance(&self, after: &str) -> usize {
        if !self.db.is_postgres() {
            assert_eq!(self.db.texts("PRAGMA integrity_check").await, ["ok"], "{after}");
        }
        let due = Entry { waiting: 1, ..Entry::default() };
        let entries = self.entries().await;
        let mut waiting = 0;
        for n in 1..=self.given {
            let entry = entries.get(&n).copied().unwrap_or_default();
            assert!(entry == due || entry == self.done, "message {n} after {after}: {entry:?}");
            waiting += entry.waiting;
        }
        assert!(entries.keys().all(|n| (1..=self.given).contains(n)), "{after}");
        waiting
    }

    /// One statement, so that it is of one moment.
    async fn entries(&self) -> HashMap<i64, Entry> {
        let text = if self.db.is_postgres() {
            "convert_from(payload, 'UTF8')"
        } else {
            "CAST(payload AS text)"
        };
        let all = format!(
            "SELECT queue || ' ' || {text} FROM outbox
             UNION ALL SELECT 'done ' || n FROM done
             UNION ALL SELECT 'dead ' || {text} FROM outbox_dlq"
        );
        let mut entries: HashMap<i64, Entry> = HashMap::new();
        for line in self.db.texts(all).await {
            let (place, n) = line.split_once(' ').unwrap();
            let entry = entries.entry(n.parse().unwrap()).or_default();
            match place {
                "work" => entry.waiting += 1,
                "receipts" => entry.published += 1,
                "done" => entry.written += 1,
                _ => entry.dead += 1,
            }
        }
        entries
    }
}
