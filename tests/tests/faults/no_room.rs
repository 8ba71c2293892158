//! No dead letter can be written: there is no room for them, or somebody has their table.

use std::collections::BTreeMap;
use std::time::Duration;

use outbox::RunningApp;
use outbox::retry::NoRetry;
use outbox_tests::backend::{require, unique};
use outbox_tests::capture;
use outbox_tests::db::Db;
use outbox_tests::disk::{Disk, LETTERS};
use outbox_tests::on_postgres;
use outbox_tests::probe::{Probe, free, with_result};
use outbox_tests::wait::eventually;
use tokio::time::Instant;

use super::{OFTEN, publish};

on_postgres!(dead_letters_whose_table_is_locked_hold_up_no_ack);

const ROWS: i64 = 30;
const LEASE: Duration = Duration::from_secs(4);
/// From its publishing to its ack, on a machine that is busy with other things.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A queue of which every message fails for good, and one beside it.
struct Both {
    running: RunningApp,
    failing: String,
    fine: String,
    failed: Probe,
}

impl Both {
    async fn start(db: &Db) -> Self {
        let (failing, fine) = (unique("failing"), unique("fine"));
        let (one, failed) = with_result("failing", &failing, |_| Err("for good".into()));
        let one = one.retry(NoRetry).lease_ttl(LEASE).min_poll(OFTEN).max_poll(OFTEN);
        let (other, _) = free("fine", &fine);
        failed.let_end(10_000);
        let app = db.app().only([one, other.min_poll(OFTEN).max_poll(OFTEN)]);
        Self { running: app.start().await.unwrap(), failing, fine, failed }
    }

    /// Messages of the other queue come and go meanwhile.
    async fn goes_on_beside(&self, db: &Db, time: Duration) {
        let left = format!("SELECT count(*) FROM outbox WHERE queue = '{}'", self.fine);
        let (end, mut took) = (Instant::now() + time, Vec::new());
        for n in 0.. {
            let begun = Instant::now();
            if begun > end && n > ROWS {
                break;
            }
            publish(db, &self.fine, [n]).await;
            // More than settlers there are: none of them is to be held up.
            publish(db, &self.failing, (n < ROWS).then_some(n)).await;
            eventually("it is acked", async || db.int(&left).await == 0).await;
            took.push(begun.elapsed());
        }
        // Were they held up, each would be; the machine may stand still for one.
        took.sort_unstable();
        assert!(took[took.len() / 2] < AT_ONCE, "acks beside it took {took:?}");
    }

    async fn count(&self, db: &Db, what: &str) -> i64 {
        db.int(format!("SELECT {what} FROM outbox WHERE queue = '{}'", self.failing)).await
    }

    /// Each has one dead letter in the end.
    async fn each_has_a_letter(self, db: &Db) {
        eventually("no row is left", async || self.count(db, "count(*)").await == 0).await;
        let letters = format!("FROM outbox_dlq WHERE queue = '{}'", self.failing);
        for count in ["count(*)", "count(DISTINCT original_id)", "count(DISTINCT payload)"] {
            assert_eq!(db.int(format!("SELECT {count} {letters}")).await, ROWS, "{count}");
        }
        self.running.stop().await.unwrap();
    }
}

/// How often each row was complained of, of those behind this one.
fn complaints(behind: i64) -> BTreeMap<i64, usize> {
    let mut rows = BTreeMap::new();
    for line in capture::lines() {
        let full = line.get("error").is_some_and(|error| error.contains("could not extend file"));
        if !full || line.level != tracing::Level::ERROR {
            continue;
        }
        let id = line.get("row_id").map_or(i64::MAX, |id| id.parse().unwrap());
        if id > behind {
            *rows.entry(id).or_default() += 1;
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_without_room_leave_their_rows_and_hold_up_no_ack() {
    if !require("postgres") {
        return;
    }
    capture::start();
    let (disk, server) = Disk::with_server(&[("fsync", "off")]);
    let db = Db::of(&server).await;
    db.exec(server.tablespace(LETTERS).unwrap()).await;
    db.exec(format!("ALTER TABLE outbox_dlq SET TABLESPACE {LETTERS}")).await;
    let refused = || server.log().unwrap().matches("could not extend file").count() as u64;
    let case = async || {
        let before = refused();
        let last = db.int("SELECT nextval(pg_get_serial_sequence('outbox', 'id'))").await;
        let both = Both::start(&db).await;
        disk.fill(LETTERS);
        let begun = Instant::now();
        both.goes_on_beside(&db, LEASE * 3 / 2).await;
        assert_eq!((both.count(&db, "count(*)").await, db.letters().await), (ROWS, 0));
        let attempts = both.count(&db, "sum(attempts_count)::bigint").await;
        assert_eq!(attempts, 0, "what was not written is no attempt");
        let (rows, runs) = (ROWS.unsigned_abs(), || both.failed.finished() as u64);
        eventually("they are delivered again", async || runs() > rows).await;
        eventually("each is complained of", async || complaints(last).len() == 30).await;
        let deliveries = both.count(&db, "max(deliveries_count)").await;
        let (runs, told, tries) = (runs(), complaints(last), refused() - before);
        // A new lease begins when the last one is over, and no sooner. Counted last, so that none
        // of them began later.
        let leases = 1 + begun.elapsed().as_secs() / LEASE.as_secs();
        assert!(runs <= rows * leases, "{runs} runs in {leases} leases");
        assert!(told.values().all(|times| *times as u64 <= leases), "{leases} leases: {told:?}");
        assert!(tries <= 2 * rows * leases, "{tries} tries in {leases} leases");
        disk.make_room(LETTERS);
        both.each_has_a_letter(&db).await;
        deliveries <= 1
    };
    // What was not written is no delivery: it is given back in the last third of its lease.
    db.unless_stalled(LEASE / 4, true, case).await;
    db.close().await;
}

/// As by `VACUUM FULL`, or by a change of the table that waits for a reader.
async fn dead_letters_whose_table_is_locked_hold_up_no_ack(db: &Db) {
    let both = Both::start(db).await;
    let mut lock = db.pg().begin().await.unwrap();
    sqlx::query("LOCK TABLE outbox_dlq IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .unwrap();
    both.goes_on_beside(db, LEASE * 3 / 2).await;
    assert_eq!(both.count(db, "count(*)").await, ROWS);
    assert_eq!(both.count(db, "sum(attempts_count)::bigint").await, 0);
    lock.rollback().await.unwrap();
    both.each_has_a_letter(db).await;
}
