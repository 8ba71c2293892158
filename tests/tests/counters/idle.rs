//! What an app costs that has nothing to do.

use std::time::Duration;

use outbox::{App, Outgoing};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::free;
use tokio::time::sleep;

use super::paused::a_paused_queue_full_of_due_rows_costs_nothing;
use super::wire::Wire;

on_postgres!(idle_apps_cost_six_statements_a_minute_on_two_connections);

const MINUTE: Duration = Duration::from_secs(60);

/// Each has a database of its own, and all wait at the same time.
async fn idle_apps_cost_six_statements_a_minute_on_two_connections(one: &Db) {
    let (many, looking, paused) = tokio::join!(Db::postgres(), Db::postgres(), Db::postgres());
    let dbs = [many, looking, paused].map(|db| db.expect("there was one"));
    let [many, looking, paused] = &dbs;
    tokio::join!(
        idle(one, 1, |app| app),
        idle(many, 200, |app| app),
        idle(looking, 200, |app| app.queue_gauges(MINUTE)),
        a_paused_queue_full_of_due_rows_costs_nothing(paused),
    );
    for db in dbs {
        db.close().await;
    }
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
