//! Deliveries whose result was not written are closed as well, and as nothing
//! better than that.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use outbox::retry::{Constant, NoRetry};
use outbox::{AckPolicy, Context, Outgoing, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::probe::{self, Run};
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_both};

use tokio::time::timeout;

use super::witness::{Row, Witness};
use super::{HOUR, closings, fields, queue, told};

on_both!(
    a_result_on_a_lost_lease,
    a_lease_that_is_lost_under_a_run,
    a_drain_that_takes_too_long,
    a_drain_whose_handlers_have_ended_and_cannot_hand_over_their_results,
    a_drain_that_goes_on_when_called_again,
    a_drain_that_drops_what_was_acked_first,
    a_word_on_what_was_acked_first,
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

/// They are more than may wait to be written.
async fn a_drain_whose_handlers_have_ended_and_cannot_hand_over_their_results(db: &Db) {
    const ROWS: usize = 8000;
    let (q, other) = (queue(), queue());
    let (ended, probe) = probe::gated("ended", &q);
    let (slow, runs) = probe::gated("slow", &other);
    let app = db.app().only([ended.max_workers(ROWS), slow]).drain_timeout(Duration::from_secs(1));
    let running = Arc::new(app.start().await.unwrap());
    db.publish(&other, 0).await;
    db.send_all((0..ROWS).map(|n| Outgoing::new(&q, &n))).await;
    runs.start().await;
    eventually("all run", async || probe.running() == ROWS).await;
    let lock = db.lock().await;
    probe.let_end(ROWS);
    eventually("all have ended", async || probe.finished() == ROWS).await;
    let stopping = Arc::clone(&running);
    let stop = tokio::spawn(async move { stopping.stop().await });
    eventually("it tells", async || told(&other).contains(&"drain_timeout".to_owned())).await;
    assert!(!told(&q).contains(&"drain_timeout".to_owned()), "of those that still run only");
    lock.release().await;
    let dropped = stop.await.unwrap().unwrap_err().to_string();
    assert!(dropped.contains("timeout passed: 1;"), "{dropped}");
}

async fn a_drain_that_goes_on_when_called_again(db: &Db) {
    let q = queue();
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let stubborn = Subscriber::new("stubborn", q.as_str(), move |_: Context| {
        let blocked = Arc::clone(&blocked);
        async move {
            let _ = blocked.lock().unwrap().recv();
        }
    });
    let app = db.app().only([stubborn]).drain_timeout(Duration::from_millis(30));
    let running = app.start().await.unwrap();
    db.publish(&q, 7).await;
    eventually("it runs", async || told(&q) == ["dispatched"]).await;
    for _ in 0..2 {
        let stop = timeout(Duration::from_millis(300), running.stop()).await;
        assert!(stop.is_err(), "it cannot be over");
    }
    drop(release);
    running.stop().await.unwrap_err();
    assert_eq!(told(&q).iter().filter(|event| *event == "drain_timeout").count(), 1);
}

/// Its message does not come back, and something has to say so.
async fn a_drain_that_drops_what_was_acked_first(db: &Db) {
    let q = queue();
    let name = if db.is_postgres() { "cut off" } else { "cut off in a file" };
    let (subscriber, probe) = probe::gated(name, &q);
    let app = db.app().only([subscriber.ack(AckPolicy::AckFirst)]);
    let running = app.drain_timeout(Duration::from_millis(30)).start().await.unwrap();
    let id = db.publish(&q, 7).await.to_string();
    probe.start().await;
    running.stop().await.unwrap_err();
    assert_eq!(told(&q), ["dispatched", "acked", "drain_timeout"]);
    assert_eq!(db.rows().await, 0);
    let gone = capture::count(|line| {
        line.get("subscriber") == Some(name)
            && line.get("row_id") == Some(&id)
            && line.says("message", "it is gone")
    });
    assert_eq!(gone, 1);
}

/// It changes nothing, and somebody means something by it.
async fn a_word_on_what_was_acked_first(db: &Db) {
    let q = queue();
    let name = if db.is_postgres() { "too late" } else { "too late in a file" };
    let snoozes = Subscriber::new(name, &*q, |_| async { outbox::Outcome::Snooze(HOUR) });
    let running = db.app().only([snoozes.ack(AckPolicy::AckFirst)]).start().await.unwrap();
    let id = db.publish(&q, 7).await.to_string();
    let told = || {
        capture::count(|line| {
            line.get("row_id") == Some(&id)
                && line.get("subscriber") == Some(name)
                && line.says("message", "put off or refused a message that was acked first")
        })
    };
    eventually("it is told", async || told() == 1).await;
    assert_eq!(db.rows().await, 0);
    running.stop().await.unwrap();
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
