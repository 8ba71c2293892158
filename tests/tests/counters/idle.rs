//! What an app costs that has nothing to do.

use std::time::Duration;

use outbox::{App, Outgoing};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::free;
use tokio::time::sleep;

use super::wire::Wire;

on_postgres!(
    an_idle_subscriber_sends_six_statements_a_minute_on_two_connections,
    two_hundred_idle_subscribers_cost_no_more_than_one,
    an_idle_app_that_looks_into_its_queues_every_minute_costs_no_more,
);

const MINUTE: Duration = Duration::from_secs(60);

async fn an_idle_subscriber_sends_six_statements_a_minute_on_two_connections(db: &Db) {
    idle(db, 1, |app| app).await;
}

async fn two_hundred_idle_subscribers_cost_no_more_than_one(db: &Db) {
    idle(db, 200, |app| app).await;
}

async fn an_idle_app_that_looks_into_its_queues_every_minute_costs_no_more(db: &Db) {
    idle(db, 200, |app| app.queue_gauges(MINUTE)).await;
}

async fn idle(db: &Db, subscribers: usize, with: impl FnOnce(App) -> App) {
    let wire = Wire::before(db).await;
    let all: Vec<_> = (0..subscribers).map(|n| free("it", &format!("q{n}"))).collect();
    let handlers = all.iter().map(|(subscriber, _)| subscriber.clone());
    let running = with(super::app(db, &wire).only(handlers)).start().await.unwrap();
    let queue = |n| format!("q{}", n % subscribers);
    db.send_all((0..4000).map(|n| Outgoing::new(queue(n), &n))).await;
    db.drained().await;
    let loaded = wire.counts();
    // The rests between polls grow, and connections that are not needed any more
    // are closed.
    sleep(MINUTE).await;
    wire.begin();
    sleep(MINUTE).await;
    let counts = wire.counts();
    running.stop().await.unwrap();
    println!(
        "{subscribers} idle subscribers: {} statements a minute, {} connections",
        counts.statements(),
        counts.most
    );
    assert!(loaded.most <= 5, "{} connections", loaded.most);
    assert!(counts.statements() <= 6, "{:#?}", counts.sent);
    assert!(counts.most <= 2, "{} connections", counts.most);
}
