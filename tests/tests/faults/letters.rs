//! Dead letters that cannot be written, for as long as nobody mends their table.

use std::time::Duration;

use outbox::AckPolicy;
use outbox::retry::NoRetry;
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::probe::with_result;
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_both};
use tokio::time::{Instant, sleep};

use super::{OFTEN, SECOND, publish};

on_both!(rows_whose_letters_cannot_be_written_fail_once_a_lease_and_spend_no_attempt);

/// Of each kind of failure.
const ROWS: i64 = 4;
const TTL: Duration = SECOND;

async fn rows_whose_letters_cannot_be_written_fail_once_a_lease_and_spend_no_attempt(db: &Db) {
    capture::start();
    let queues = [unique("rejected"), unique("failing"), unique("good")];
    let fails = |_: &_| Err("for good".to_owned());
    let (rejected, first) = with_result("rejected", &queues[0], fails);
    let (failing, second) = with_result("failing", &queues[1], fails);
    let (good, third) = with_result("good", &queues[2], |_| Ok(()));
    let often = |one: outbox::Subscriber| one.lease_ttl(TTL).min_poll(OFTEN).max_poll(OFTEN);
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
        let lines = capture::lines();
        let told = |line: &&capture::Line| {
            line.get("error").is_some_and(|text| text.contains(why))
                && line.get("row_id").is_some_and(|id| ids.iter().any(|it| it == id))
        };
        lines.iter().filter(told).count()
    };
    [&first, &second, &third].iter().for_each(|probe| probe.let_end(10_000));
    sleep(4 * TTL).await;
    eventually("they fail again", async || refused() >= 2 * ids.len()).await;
    publish(db, &queues[2], [1]).await;
    assert_eq!(third.start().await.n, 1, "others go on");
    let (errors, runs) = (refused(), first.finished() + second.finished());
    let leases = begun.elapsed().as_secs_f64() / TTL.as_secs_f64();
    println!("{all} rows, {leases:.1} leases: {errors} errors, {runs} runs");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few")]
    let most = usize::try_from(all).unwrap() * (leases as usize + 1);
    assert!(errors <= most, "{errors} errors, and at most {most}");
    assert!(runs <= most, "{runs} runs, and at most {most}");
    let attempts = "SELECT CAST(coalesce(sum(attempts_count), 0) AS bigint) FROM outbox";
    eventually("the good one is acked", async || db.rows().await == all).await;
    assert_eq!(db.int(attempts).await, 0);
    db.exec("ALTER TABLE outbox_dlq_away RENAME TO outbox_dlq").await;
    db.drained().await;
    assert_eq!(db.letters().await, all);
    running.stop().await.unwrap();
}
