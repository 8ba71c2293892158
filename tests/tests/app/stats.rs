//! Counts of an app: kept over its starts, and fed by what no handler returns.

use outbox::retry::NoRetry;
use outbox::{Outgoing, Router, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe;

use super::*;

on_both!(
    counts_go_on_over_a_restart_and_are_kept_for_each_queue,
    a_drain_that_takes_too_long_and_a_row_that_waited_too_long_are_counted,
);

async fn counts_go_on_over_a_restart_and_are_kept_for_each_queue(db: &Db) {
    let failing = Subscriber::new("it", "q", |_| async { Err::<(), _>("no") }).retry(NoRetry);
    let prefixed = |prefix| Router::new().prefix(prefix).include(failing.clone());
    let app = db.app().include(prefixed("a.")).include(prefixed("b."));
    let stats = app.stats();
    for turn in 1..=2 {
        let running = app.start().await.unwrap();
        db.publish("a.q", 7).await;
        db.drained().await;
        running.stop().await.unwrap();
        let counts = stats.subscribers().into_iter().map(|one| (one.queues[0].clone(), one));
        let counts: Vec<_> = counts.map(|(queue, one)| (queue, one.dead_lettered)).collect();
        assert_eq!(counts, [("a.q".to_owned(), turn), ("b.q".to_owned(), 0)]);
    }
}

async fn a_drain_that_takes_too_long_and_a_row_that_waited_too_long_are_counted(db: &Db) {
    let expected = (true, (2, 1, 1), 1);
    db.unless_stalled(TTL / 24, expected, async || waits_too_long(db).await).await;
}

const TTL: Duration = Duration::from_secs(6);

/// Whether what waited too long was given back and claimed before its lease ended, and what was
/// counted.
async fn waits_too_long(db: &Db) -> (bool, (u64, u64, u64), u64) {
    let (subscriber, probe) = probe::gated("it", "q");
    let hour = Duration::from_secs(3600);
    let subscriber = subscriber.max_workers(1).lease_ttl(TTL).min_poll(hour).max_poll(hour);
    let app = db.app().only([subscriber]).drain_timeout(Duration::from_millis(20));
    let stats = app.stats();
    let running = app.start().await.unwrap();
    db.send_all([1, 2].map(|n| Outgoing::new("q", &n))).await;
    let first = probe.start().await;
    // Too little is left to start the other one with.
    tokio::time::sleep_until(first.lease_deadline - TTL / 4).await;
    probe.let_end(1);
    let second = probe.start().await;
    let in_time = second.at < first.lease_deadline;
    running.stop().await.unwrap_err();
    let one = stats.subscribers().remove(0);
    (in_time, (one.dispatched, one.acked, one.abandoned), one.waited_too_long)
}
