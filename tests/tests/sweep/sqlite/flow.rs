//! What the program does, and what there is in the end.

use std::collections::BTreeSet;

use outbox::Outgoing;
use outbox_tests::db::Db;
use sqlx::SqliteConnection;

use super::super::LEASE;
use super::child::Calls;

pub struct Flow {
    pub name: &'static str,
    /// Fewer calls to the operating system, and the flow is not what it was.
    pub floor: Calls,
    /// A count, and what it is after all calls.
    whole: (&'static str, i64),
    /// Each message is handled, and nothing is left of it.
    handled: bool,
}

const fn call(name: &'static str, floor: [usize; 3], whole: (&'static str, i64)) -> Flow {
    let [writes, flushes, locks] = floor;
    Flow { name, floor: Calls { writes, flushes, locks }, whole, handled: false }
}

const fn work(name: &'static str, floor: [usize; 3], whole: (&'static str, i64)) -> Flow {
    Flow { handled: true, ..call(name, floor, whole) }
}

const NONE: (&str, i64) = ("SELECT count(*) FROM outbox", 0);
const RECEIPTS: (&str, i64) =
    ("SELECT count(*) - (SELECT count(*) FROM biz) FROM outbox WHERE queue = 'receipts'", 0);
const LETTERS: (&str, i64) = ("SELECT count(*) - (SELECT count(*) FROM biz) FROM outbox_dlq", 0);
const UNDEALT: (&str, i64) = ("SELECT count(*) FROM outbox_dlq WHERE status <> 'resolved'", 0);
const PUBLISHED: (&str, i64) = ("SELECT count(*) - (SELECT count(*) FROM biz) FROM outbox", 0);
/// All three of a batch, or none.
const BATCHES: (&str, i64) =
    ("SELECT count(*) <> (SELECT count(*) FROM biz) OR count(*) % 3 > 0 FROM outbox", 0);
const TABLES: (&str, i64) = (
    "SELECT count(*) FROM sqlite_master WHERE type = 'table'
     AND name IN ('outbox', 'outbox_dlq', 'outbox_paused')",
    3,
);

/// Each with its writes, flushes and locks to write under.
pub const FLOWS: [Flow; 18] = [
    call("publish", [30, 5, 12], PUBLISHED),
    call("batch", [30, 5, 12], BATCHES),
    call("timer", [19, 5, 12], ("SELECT count(*) FROM outbox", 1)),
    call("cancel", [13, 2, 11], NONE),
    call("replay", [20, 2, 11], UNDEALT),
    call("purge", [13, 2, 11], ("SELECT count(*) FROM outbox_dlq", 0)),
    call("pause", [12, 2, 11], ("SELECT count(*) FROM outbox_paused", 1)),
    call("migrate", [35, 2, 10], TABLES),
    call("start", [52, 10, 20], NONE),
    work("ack", [44, 12, 22], NONE),
    work("batch ack", [30, 8, 19], NONE),
    work("ack and publish", [50, 12, 22], RECEIPTS),
    work("retry", [60, 17, 32], NONE),
    Flow { handled: false, ..work("dead letter", [75, 12, 22], LETTERS) },
    work("snooze", [60, 17, 32], NONE),
    work("drain", [49, 15, 27], NONE),
    work("extend", [50, 14, 26], NONE),
    work("transaction", [55, 12, 22], RECEIPTS),
];

impl Flow {
    /// With one, another writer can have the lock when it ends. But in a lent transaction it
    /// has the lock itself.
    pub fn has_handler(&self) -> bool {
        (self.handled || self.name == "dead letter") && self.name != "transaction"
    }

    /// What there is before it.
    pub async fn prepare(&self, db: &Db) {
        if matches!(self.name, "migrate" | "start") {
            return;
        }
        db.migrate().await;
        db.exec("CREATE TABLE biz (n INTEGER PRIMARY KEY); CREATE TABLE done (n INTEGER)").await;
        match self.name {
            "cancel" => {
                db.send(Outgoing::new("q", &1).timer_id("t").delay(LEASE)).await;
            }
            "replay" | "purge" => {
                db.send_all((1..=3).map(|n| Outgoing::new("q", &n))).await;
                let status = if self.name == "purge" { "resolved" } else { "failed" };
                db.exec(include_str!("bury_all.sql").replace("{status}", status)).await;
            }
            _ => {}
        }
    }

    pub async fn check(&self, connection: &mut SqliteConnection, lines: &[String]) {
        let (sql, whole) = self.whole;
        let mut count = async |sql| -> i64 {
            sqlx::query_scalar(sql).fetch_one(&mut *connection).await.unwrap()
        };
        assert_eq!(count(sql).await, whole, "{sql}: {lines:?}");
        if self.name == "start" {
            let told = |word: &str| -> BTreeSet<_> {
                lines.iter().filter_map(|line| line.strip_prefix(word)).collect()
            };
            assert!(told("ended ").is_subset(&told("handled ")), "{lines:?}");
        }
        let rows = match self.name {
            "replay" => Some(3),
            "dead letter" => Some(0),
            _ => None,
        };
        if let Some(rows) = rows {
            assert_eq!(count("SELECT count(*) FROM outbox").await, rows, "{lines:?}");
        }
        if !self.handled {
            return;
        }
        let left = "SELECT count(*) FROM outbox WHERE queue = 'q'";
        assert_eq!(count(left).await, 0, "{lines:?}");
        let biz: Vec<i64> =
            sqlx::query_scalar("SELECT n FROM biz").fetch_all(&mut *connection).await.unwrap();
        let biz: BTreeSet<i64> = biz.into_iter().collect();
        let handled = lines.iter().filter_map(|line| line.strip_prefix("handled "));
        let handled: BTreeSet<i64> = handled.map(|n| n.parse().unwrap()).collect();
        assert_eq!(handled, biz, "{lines:?}");
        if self.name == "transaction" {
            let done = "SELECT n FROM done ORDER BY n";
            let done: Vec<i64> =
                sqlx::query_scalar(done).fetch_all(&mut *connection).await.unwrap();
            assert_eq!(done, biz.into_iter().collect::<Vec<_>>(), "{lines:?}");
        }
    }
}
