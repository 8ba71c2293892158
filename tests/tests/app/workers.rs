//! How much runs at once, and who runs it.

use std::collections::HashSet;

use outbox_tests::db::Db;
use outbox_tests::probe::{free, gated};
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_both};

on_both!(
    max_workers_is_reached_and_never_passed,
    fetch_batch_bounds_what_is_claimed,
    two_apps_share_a_queue_and_no_row,
    a_slow_queue_does_not_hold_up_a_fast_one,
    fifty_subscribers_run_in_one_app,
);

async fn max_workers_is_reached_and_never_passed(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let running = db.app().only([subscriber.max_workers(3)]).start().await.unwrap();
    for n in 0..20 {
        db.publish("q", n).await;
    }
    probe.starts(3).await;
    eventually("the next wait in memory", async || db.leased().await > 3).await;
    assert_eq!((probe.running(), probe.more().await.len()), (3, 0));
    probe.let_end(20);
    db.drained().await;
    assert_eq!((probe.finished(), probe.most()), (20, 3));
    running.stop().await.unwrap();
}

async fn fetch_batch_bounds_what_is_claimed(db: &Db) {
    capture::start();
    let queue = outbox_tests::backend::unique("q");
    for n in 0..30 {
        db.publish(&queue, n).await;
    }
    let (subscriber, probe) = gated("it", &queue);
    let app = db.app().only([subscriber.max_workers(2).fetch_batch(4)]);
    let running = app.start().await.unwrap();
    probe.starts(2).await;
    eventually("a batch waits in memory", async || db.leased().await == 6).await;
    for left in (0..30).rev() {
        probe.let_end(1);
        eventually("a row is done", async || db.rows().await == left).await;
        assert!(db.leased().await <= 6, "a row for each worker and one batch");
    }
    running.stop().await.unwrap();
    let counts: Vec<usize> = capture::events(&queue)
        .iter()
        .filter(|line| line.event() == Some("fetched"))
        .map(|line| line.get("count").unwrap().parse().unwrap())
        .collect();
    assert_eq!(counts.iter().max(), Some(&4), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 30);
}

async fn two_apps_share_a_queue_and_no_row(db: &Db) {
    let probes = [gated("one", "q"), gated("two", "q")];
    let mut running = Vec::new();
    for (subscriber, _) in &probes {
        let subscriber = subscriber.clone().max_workers(4).fetch_batch(2);
        running.push(db.app().only([subscriber]).start().await.unwrap());
    }
    for n in 0..100 {
        db.publish("q", n).await;
    }
    let mut runs = Vec::new();
    for (_, probe) in &probes {
        runs.push(probe.start().await);
    }
    probes.iter().for_each(|(_, probe)| probe.let_end(100));
    db.drained().await;
    for (_, probe) in &probes {
        runs.extend(probe.more().await);
    }
    let rows: HashSet<i64> = runs.iter().map(|run| run.n).collect();
    assert_eq!((rows.len(), runs.len()), (100, 100), "each row ran once");
    assert!(runs.iter().all(|run| run.deliveries == 1));
    for one in running {
        one.stop().await.unwrap();
    }
}

async fn a_slow_queue_does_not_hold_up_a_fast_one(db: &Db) {
    let (slow, stuck) = gated("slow", "slow");
    let (fast, quick) = free("fast", "fast");
    let running = db.app().only([slow.max_workers(2), fast]).start().await.unwrap();
    for n in 0..50 {
        db.publish("slow", n).await;
    }
    stuck.starts(2).await;
    for n in 0..50 {
        db.publish("fast", n).await;
    }
    quick.starts(50).await;
    eventually("the fast queue is empty", async || db.rows().await == 50).await;
    assert_eq!((stuck.running(), stuck.finished()), (2, 0));
    stuck.let_end(50);
    db.drained().await;
    running.stop().await.unwrap();
}

async fn fifty_subscribers_run_in_one_app(db: &Db) {
    let all: Vec<_> = (0..50).map(|n| free("it", &format!("q{n}"))).collect();
    let subscribers = all.iter().map(|(subscriber, _)| subscriber.clone());
    let running = db.app().only(subscribers).start().await.unwrap();
    for (n, _) in (0..).zip(&all) {
        db.publish(&format!("q{n}"), n).await;
    }
    for (n, (_, probe)) in (0..).zip(&all) {
        assert_eq!(probe.start().await.n, n);
    }
    db.drained().await;
    running.ping().await.unwrap();
    running.stop().await.unwrap();
}
