//! What an app costs that has nothing to do.

use std::time::Duration;

use outbox::Outgoing;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::free;
use tokio::time::{Instant, sleep};

use super::wire::Wire;

on_postgres!(
    an_idle_app_of_two_hundred_subscribers_sends_six_statements_a_minute_on_two_connections
);

const MINUTE: Duration = Duration::from_secs(60);

async fn an_idle_app_of_two_hundred_subscribers_sends_six_statements_a_minute_on_two_connections(
    db: &Db,
) {
    let wire = Wire::before(db).await;
    let all: Vec<_> = (0..200).map(|n| free("it", &format!("q{n}"))).collect();
    let subscribers = all.iter().map(|(subscriber, _)| subscriber.clone());
    let running = super::app(db, &wire).only(subscribers).start().await.unwrap();
    db.send_all((0..4000).map(|n| Outgoing::new(format!("q{}", n % 200), &n))).await;
    db.drained().await;
    assert!(wire.counts().most <= 5, "{} connections", wire.counts().most);
    // The rests between polls grow, and connections that are not needed any more
    // are closed.
    let begun = Instant::now();
    while begun.elapsed() < MINUTE {
        sleep(Duration::from_millis(100)).await;
    }
    wire.begin();
    while begun.elapsed() < 2 * MINUTE {
        sleep(Duration::from_millis(100)).await;
    }
    let counts = wire.counts();
    println!("{} statements a minute, {} connections", counts.statements(), counts.open);
    running.stop().await.unwrap();
    assert!(counts.statements() <= 6, "{:#?}", counts.sent);
    assert!(counts.most <= 2, "{} connections", counts.most);
}
