//! What single messages cost.

use std::time::{Duration, Instant};

use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::free;
use outbox_tests::wait::eventually;

use super::wire::Wire;

const HOUR: Duration = Duration::from_secs(3600);

on_postgres!(a_message_alone_takes_two_statements);

/// A claim and an ack.
async fn a_message_alone_takes_two_statements(db: &Db) {
    let wire = Wire::before(db).await;
    let (subscriber, probe) = free("it", "q");
    let subscriber = subscriber.min_poll(HOUR).max_poll(HOUR).lease_ttl(HOUR);
    let running = super::app(db, &wire).only([subscriber]).start().await.unwrap();
    db.publish("q", 0).await;
    probe.start().await;
    db.drained().await;
    let looked = || wire.counts().sent.keys().any(|text| text.contains("virtualtransaction"));
    eventually("it sleeps", async || looked()).await;
    wire.begin();
    let (messages, begun) = (40, Instant::now());
    for n in 1..=messages {
        db.publish("q", n).await;
        assert_eq!(probe.start().await.n, n);
        db.drained().await;
    }
    let (counts, took) = (wire.counts(), begun.elapsed());
    running.stop().await.unwrap();
    println!("{} statements for {messages} messages", counts.statements());
    // Where claims take long, one in twenty of the time goes to looks from the start: ten a
    // second at most, and never one more for each message.
    let looks = usize::try_from(took.as_millis() / 100).unwrap();
    // A sign of life of the listener may come in between, and a look after it.
    let most = (2 * 40 + 4 + looks).min(3 * 40 - 1);
    assert!(counts.statements() <= most, "{most} in {took:?}: {:#?}", counts.sent);
}
