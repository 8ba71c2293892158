//! Dead letters that cannot be written, for as long as nobody mends their table.

use std::time::Duration;

use outbox::retry::NoRetry;
use outbox::{AckPolicy, Outgoing};
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::probe::with_result;
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_both, on_postgres};
use tokio::time::{Instant, sleep};

use super::{HOUR, OFTEN, SECOND, publish};

on_both!(
    rows_whose_letters_cannot_be_written_fail_once_a_lease_and_spend_no_attempt,
    a_row_that_is_condemned_is_not_run_because_its_letter_cannot_be_written,
);
on_postgres!(
    a_table_that_is_locked_for_several_leases_condemns_no_row,
    a_lock_that_is_waited_for_longer_than_a_lease_takes_nothing_from_a_row,
);

/// Of each kind of failure.
const ROWS: i64 = 4;
const TTL: Duration = SECOND;
/// Fewer than there are leases.
const DELIVERIES: u64 = 2;
/// How they ended, once each.
const LETTERS: &str =
    "SELECT failure_reason || ' ' || count(*) FROM outbox_dlq GROUP BY failure_reason ORDER BY 1";

async fn rows_whose_letters_cannot_be_written_fail_once_a_lease_and_spend_no_attempt(db: &Db) {
    capture::start();
    let letters = [format!("rejected {ROWS}"), format!("retry_terminal {ROWS}")].to_vec();
    // They are given back in the last third of a lease; or it runs out, and is a delivery.
    let expected = (Ok(()), Ok(()), 0, true, letters);
    db.unless_stalled(TTL / 4, expected, async || unwritten(db).await).await;
}

/// Whether no more errors were told and no more runs were made than there were leases; attempts;
/// whether there is no delivery more than the one under way; and the letters in the end.
async fn unwritten(db: &Db) -> (Result<(), String>, Result<(), String>, i64, bool, Vec<String>) {
    let queues = [unique("rejected"), unique("failing"), unique("good")];
    let fails = |_: &_| Err("for good".to_owned());
    let (rejected, first) = with_result("rejected", &queues[0], fails);
    let (failing, second) = with_result("failing", &queues[1], fails);
    let (good, third) = with_result("good", &queues[2], |_| Ok(()));
    let often = |one: outbox::Subscriber| {
        one.lease_ttl(TTL).min_poll(OFTEN).max_poll(OFTEN).max_deliveries(DELIVERIES)
    };
    let app = db.app().only([
        often(rejected).ack(AckPolicy::RejectOnError),
        often(failing).retry(NoRetry),
        often(good),
    ]);
    let running = app.start().await.unwrap();
    db.exec("ALTER TABLE outbox_dlq RENAME TO outbox_dlq_away").await;
    let begun = Instant::now();
    for queue in &queues[..2] {
        publish(db, queue, 0..ROWS).await;
    }
    let all = 2 * ROWS;
    let ids = db.texts("SELECT CAST(id AS text) FROM outbox").await;
    // Rows of the same ids fail on the other database meanwhile.
    let why = if db.is_postgres() { "does not exist" } else { "no such table" };
    let refused = || {
        capture::count(|line| {
            line.says("error", why)
                && line.get("row_id").is_some_and(|id| ids.iter().any(|it| it == id))
        })
    };
    [&first, &second, &third].iter().for_each(|probe| probe.let_end(10_000));
    sleep(4 * TTL).await;
    eventually("they fail again", async || refused() >= 2 * ids.len()).await;
    publish(db, &queues[2], [1]).await;
    assert_eq!(third.start().await.n, 1, "others go on");
    let (errors, runs) = (refused(), first.finished() + second.finished());
    let leases = begun.elapsed().as_secs_f64() / TTL.as_secs_f64();
    println!("{all} rows, {leases:.1} leases: {errors} errors, {runs} runs");
    let most = usize::try_from(all).unwrap() * (leases as usize + 1);
    let few = |count: usize, what: &str| {
        if count <= most { Ok(()) } else { Err(format!("{count} {what}, and at most {most}")) }
    };
    let attempts = "SELECT CAST(coalesce(sum(attempts_count), 0) AS bigint) FROM outbox";
    eventually("the good one is acked", async || db.rows().await == all).await;
    let attempts = db.int(attempts).await;
    // Whoever was delivered more often would run alone, and be condemned for that.
    let deliveries = db.int("SELECT max(deliveries_count) FROM outbox").await;
    db.exec("ALTER TABLE outbox_dlq_away RENAME TO outbox_dlq").await;
    db.drained().await;
    let letters = db.texts(LETTERS).await;
    running.stop().await.unwrap();
    (few(errors, "errors"), few(runs, "runs"), attempts, deliveries <= 1, letters)
}

/// Which is waited for, and no refusal.
async fn a_table_that_is_locked_for_several_leases_condemns_no_row(db: &Db) {
    db.exec(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = ''200ms''', \
         current_database()); END $$",
    )
    .await;
    // Many times as long as a look at the table; and too many for each to be looked at in a lease.
    condemns_none(db, 6 * TTL, 40, 2).await;
}

async fn a_lock_that_is_waited_for_longer_than_a_lease_takes_nothing_from_a_row(db: &Db) {
    db.waits_for_locks().await;
    condemns_none(db, 3 * TTL, ROWS, 4).await;
}

/// So many rows fail while somebody has the table of their letters, once a lease.
async fn condemns_none(db: &Db, lease: Duration, rows: i64, leases: i64) {
    let case = async || {
        let queue = unique("failing");
        let (failing, probe) = with_result("failing", &queue, |_| Err("for good".to_owned()));
        probe.let_end(10_000);
        let failing = failing.lease_ttl(lease).min_poll(OFTEN).max_poll(OFTEN);
        let app = db.app().only([failing.retry(NoRetry).max_deliveries(DELIVERIES)]);
        let running = app.start().await.unwrap();
        let mut lock = db.pg().begin().await.unwrap();
        sqlx::query("LOCK TABLE outbox_dlq").execute(&mut *lock).await.unwrap();
        publish(db, &queue, 0..rows).await;
        let runs = usize::try_from(rows * leases).unwrap();
        eventually("they run once a lease", async || probe.finished() >= runs).await;
        let most = db.int("SELECT max(deliveries_count) FROM outbox").await;
        lock.rollback().await.unwrap();
        db.drained().await;
        let letters = db.texts(LETTERS).await;
        running.stop().await.unwrap();
        (most <= 1, letters)
    };
    // They are given back in the last third of a lease; or it runs out, and is a delivery.
    let expected = (true, vec![format!("retry_terminal {rows}")]);
    db.unless_stalled(TTL / 2, expected, case).await;
}

async fn a_row_that_is_condemned_is_not_run_because_its_letter_cannot_be_written(db: &Db) {
    let queue = unique("condemned");
    let (one, probe) = with_result("condemned", &queue, |_| Ok(()));
    probe.let_end(10_000);
    let one = one.lease_ttl(TTL).min_poll(OFTEN).max_poll(OFTEN).max_deliveries(DELIVERIES);
    let running = db.app().only([one]).start().await.unwrap();
    db.exec("ALTER TABLE outbox_dlq RENAME TO outbox_dlq_away").await;
    // Of an id that no row of the test above has, which counts what is said of its own.
    publish(db, "others", 0..20).await;
    db.send(Outgoing::new(&queue, &1).delay(HOUR)).await;
    db.exec("DELETE FROM outbox WHERE queue = 'others'").await;
    // As a row that failed once and then brought its process down.
    let condemned = "attempts_count = 1, deliveries_count = 2, next_attempt_at = created_at";
    db.exec(format!("UPDATE outbox SET {condemned}")).await;
    eventually("it is found guilty again and again", async || db.deliveries().await >= 5).await;
    db.exec("ALTER TABLE outbox_dlq_away RENAME TO outbox_dlq").await;
    db.drained().await;
    assert_eq!(db.texts(LETTERS).await, ["max_deliveries 1"]);
    assert_eq!(probe.finished(), 0);
    running.stop().await.unwrap();
}
