//! PgBouncer in transaction mode between an app and its server: prepared statements are
//! those of whichever session comes.

use std::collections::BTreeSet;

use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::pooler::Pooler;
use outbox_tests::probe::free;

use super::{OFTEN, SECOND, publish};

on_postgres!(an_app_behind_a_pooler_in_transaction_mode_says_why_it_does_not_start,);

/// None starts by luck: it would run statements that another session prepared.
async fn an_app_behind_a_pooler_in_transaction_mode_says_why_it_does_not_start(db: &Db) {
    let Some(pooler) = Pooler::start(db, "transaction").await else { return };
    let (subscriber, probe) = free("it", "q");
    let subscriber = subscriber.lease_ttl(2 * SECOND).min_poll(OFTEN).max_poll(OFTEN);
    for n in 0..6 {
        publish(db, "q", [n]).await;
        let app = pooler.app(db, 100).only([subscriber.clone()]).drain_timeout(SECOND);
        let error = app.start().await.expect_err("it does not start");
        let why = "go through a pooler in transaction mode: connect to the server itself";
        assert!(error.to_string().contains(why), "{error}");
    }
    let running = db.app().only([subscriber]).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    let handled: BTreeSet<i64> = probe.more().await.iter().map(|run| run.n).collect();
    assert_eq!((handled.len(), db.letters().await), (6, 0));
}
