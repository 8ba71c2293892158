//! What a paused queue costs.

use outbox::Outgoing;
use outbox::ops::Operator;
use outbox_tests::db::Db;
use outbox_tests::probe::free;
use outbox_tests::wire::Wire;

use super::idle::six_statements_a_minute;

pub async fn a_paused_queue_full_of_due_rows_costs_nothing(db: &Db) {
    let wire = Wire::of(db).await;
    let operator = Operator::postgres(db.pg().clone(), db.names.clone());
    operator.pause(&["q"], None).await.unwrap();
    db.send_all((0..1000).map(|n| Outgoing::new("q", &n))).await;
    let (subscriber, probe) = free("it", "q");
    let running = super::app(db, &wire).only([subscriber]).start().await.unwrap();
    let counts = six_statements_a_minute(&wire).await;
    println!("{} statements between two probes", counts.statements());
    assert!(counts.most <= 2, "{} connections", counts.most);
    assert_eq!(probe.more().await.len(), 0);
    operator.resume(&["q"]).await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
}
