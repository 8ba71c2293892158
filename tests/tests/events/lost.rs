//! Deliveries whose result was not written are closed as well, and as nothing
//! better than that.

use std::time::Duration;

use outbox::AckPolicy;
use outbox::retry::{Constant, NoRetry};
use outbox_tests::db::Db;
use outbox_tests::probe::{self, Run};
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_both};

use super::witness::{Row, Witness};
use super::{HOUR, closings, fields, queue, told};

on_both!(
    a_result_on_a_lost_lease,
    a_lease_that_is_lost_under_a_run,
    a_drain_that_takes_too_long,
    a_drain_that_drops_what_was_acked_first,
    a_dead_letter_that_is_refused,
);

async fn steal(db: &Db) {
    let token = if db.is_postgres() { "gen_random_uuid()" } else { "randomblob(16)" };
    db.exec(format!("UPDATE outbox SET acquired_token = {token}")).await;
}

async fn a_result_on_a_lost_lease(db: &Db) {
    type End = fn(&Run) -> Result<(), String>;
    let ends: [(End, bool, &str); 3] = [
        (|_| Ok(()), true, "terminal"),
        (|_| Err("no".into()), true, "retry"),
        (|_| Err("no".into()), false, "terminal"),
    ];
    for (end, retry, phase) in ends {
        let q = queue();
        let saw = Witness::of(db, &q);
        let (subscriber, probe) = probe::with_result("it", &q, end);
        let subscriber =
            if retry { subscriber.retry(Constant::new(HOUR)) } else { subscriber.retry(NoRetry) };
        let running = db.app().only([subscriber]).start().await.unwrap();
        db.publish(&q, 7).await;
        probe.start().await;
        steal(db).await;
        probe.let_end(1);
        eventually("it is closed", async || !closings(&q).is_empty()).await;
        running.stop().await.unwrap();
        fields::check(&q);
        assert_eq!(told(&q), ["dispatched", "lease_lost"]);
        assert_eq!(saw.at("lease_lost"), (Row::Leased, false));
        let lost = closings(&q).remove(0);
        assert_eq!((lost.get("phase"), lost.get("unknown")), (Some(phase), Some("false")));
        db.exec("DELETE FROM outbox").await;
    }
}

async fn a_lease_that_is_lost_under_a_run(db: &Db) {
    let q = queue();
    let (subscriber, probe) = probe::gated("it", &q);
    let subscriber = subscriber.lease_ttl(Duration::from_secs(2));
    let running = db.app().only([subscriber]).start().await.unwrap();
    db.publish(&q, 7).await;
    probe.start().await;
    steal(db).await;
    eventually("it is closed", async || !closings(&q).is_empty()).await;
    assert_eq!(told(&q)[..2], ["dispatched", "lease_lost"]);
    db.exec("DELETE FROM outbox").await;
    running.stop().await.unwrap();
    fields::check(&q);
}

async fn a_drain_that_takes_too_long(db: &Db) {
    let (q, other) = (queue(), queue());
    let saw = Witness::of(db, &q);
    let (subscriber, probe) = probe::gated("slow", &q);
    let (idle, _) = probe::gated("idle", &other);
    let app = db.app().only([subscriber, idle]).drain_timeout(Duration::from_millis(30));
    let running = app.start().await.unwrap();
    db.publish(&q, 7).await;
    probe.start().await;
    running.stop().await.unwrap_err();
    fields::check(&q);
    assert_eq!(told(&q), ["dispatched", "drain_timeout", "dispatch_abandoned"]);
    assert_eq!(saw.at("dispatch_abandoned"), (Row::Free, false));
    let late = capture::events(&q).into_iter().find(|line| line.event() == Some("drain_timeout"));
    let late = late.unwrap();
    assert_eq!((late.get("subscriber"), late.get("handlers")), (Some("slow"), Some("1")));
    assert_eq!(late.get("drain_timeout_seconds"), Some("0.03"));
    assert!(told(&other).is_empty(), "of those that still run only");
}

/// Its message does not come back, and something has to say so.
async fn a_drain_that_drops_what_was_acked_first(db: &Db) {
    let q = queue();
    let (subscriber, probe) = probe::gated("cut off", &q);
    let app = db.app().only([subscriber.ack(AckPolicy::AckFirst)]);
    let running = app.drain_timeout(Duration::from_millis(30)).start().await.unwrap();
    let id = db.publish(&q, 7).await.to_string();
    probe.start().await;
    running.stop().await.unwrap_err();
    assert_eq!(told(&q), ["dispatched", "acked", "drain_timeout"]);
    assert_eq!(db.rows().await, 0);
    let gone = |line: &capture::Line| {
        line.get("subscriber") == Some("cut off")
            && line.get("row_id") == Some(&id)
            && line.get("message").is_some_and(|text| text.contains("it is gone"))
    };
    assert!(capture::lines().iter().any(gone));
}

/// The row comes back after a lease: nothing was settled.
async fn a_dead_letter_that_is_refused(db: &Db) {
    let q = queue();
    let saw = Witness::of(db, &q);
    let (subscriber, probe) = probe::with_result("it", &q, |_| Err("no".into()));
    let running = db.app().only([subscriber.retry(NoRetry)]).start().await.unwrap();
    db.exec("ALTER TABLE outbox_dlq RENAME COLUMN failure_reason TO why").await;
    db.publish(&q, 7).await;
    probe.start().await;
    probe.let_end(1);
    eventually("it is closed", async || !closings(&q).is_empty()).await;
    running.stop().await.unwrap();
    fields::check(&q);
    assert_eq!(told(&q), ["dispatched", "lease_lost"]);
    assert_eq!(saw.at("lease_lost"), (Row::Free, false));
}
