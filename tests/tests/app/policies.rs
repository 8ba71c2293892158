//! What becomes of rows under `AckFirst`, on real tables; the other policies are tested in
//! `tests/tests/results`.

use outbox::AckPolicy;
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::{gated, with_result};
use outbox_tests::wait::eventually;

use super::*;

on_both!(
    ack_first_deletes_before_the_run_whatever_it_comes_to,
    ack_first_gives_an_unstarted_row_back,
);

async fn ack_first_deletes_before_the_run_whatever_it_comes_to(db: &Db) {
    let (subscriber, probe) = with_result("it", "q", |_| Err("too late".into()));
    let app = db.app().only([subscriber.ack(AckPolicy::AckFirst)]);
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    probe.start().await;
    assert_eq!((probe.running(), db.rows().await), (1, 0), "it runs, and the row is gone");
    probe.let_end(1);
    running.stop().await.unwrap();
    assert_eq!((probe.finished(), probe.more().await.len()), (1, 0));
    assert_eq!((db.rows().await, db.letters().await), (0, 0));
}

async fn ack_first_gives_an_unstarted_row_back(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    for n in 0..3 {
        db.publish("q", n).await;
    }
    let subscriber = subscriber.ack(AckPolicy::AckFirst).max_workers(1);
    let app = db.app().only([subscriber]).drain_timeout(HOUR);
    let running = app.start().await.unwrap();
    probe.start().await;
    eventually("the others wait", async || db.leased().await == 2).await;
    let stop = tokio::spawn(async move { running.stop().await });
    eventually("they are given back", async || db.leased().await == 0).await;
    probe.let_end(1);
    stop.await.unwrap().unwrap();
    assert_eq!((db.rows().await, db.deliveries().await), (2, 0));
}
