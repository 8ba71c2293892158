//! Queues that nobody claims from for a while.

use std::time::Duration;

use outbox_tests::db::Db;
use outbox_tests::probe::{free, gated};
use outbox_tests::wait::{eventually, soon};
use outbox_tests::{on_both, on_postgres};
use tokio::time::{Instant, sleep};

use super::operator;

on_both!(
    a_sleeping_subscriber_finds_the_rows_of_a_resumed_queue_within_a_second,
    what_was_claimed_before_a_pause_is_finished,
    a_pause_is_kept_and_heeded_by_processes_that_start_later,
    pausing_again_keeps_the_time_and_takes_a_new_note,
    only_what_was_paused_is_resumed,
    names_that_no_queue_has_are_refused_and_nothing_is_paused,
);

on_postgres!(
    a_pause_waits_for_the_claims_that_began_before_it,
    a_resume_notifies_of_nothing_where_nothing_is_to_be_notified_of,
);

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

async fn a_sleeping_subscriber_finds_the_rows_of_a_resumed_queue_within_a_second(db: &Db) {
    let operator = operator(db);
    let (subscriber, probe) = free("it", "q");
    let (witness, other) = free("witness", "other");
    let asleep = |it: outbox::Subscriber| it.min_poll(HOUR).max_poll(HOUR).lease_ttl(HOUR);
    let running = db.app().only([asleep(subscriber), asleep(witness)]).start().await.unwrap();
    let mut took = Vec::new();
    for round in 0..5 {
        db.publish("q", round).await;
        assert_eq!(probe.start().await.n, round);
        operator.pause(&["q"], None).await.unwrap();
        db.publish("q", 100 + round).await;
        // Its claims look at both queues, and this one is found.
        db.publish("other", round).await;
        other.start().await;
        assert_eq!(probe.more().await.len(), 0);
        let resumed = Instant::now();
        operator.resume(&["q"]).await.unwrap();
        let run = probe.start().await;
        assert_eq!(run.n, 100 + round);
        took.push(run.at - resumed);
    }
    // Of the five the machine may have slept in two.
    took.sort_unstable();
    assert!(took[2] < SECOND, "after {took:?}");
    running.stop().await.unwrap();
}

async fn what_was_claimed_before_a_pause_is_finished(db: &Db) {
    let operator = operator(db);
    let (subscriber, probe) = gated("it", "q");
    let running = db.app().only([subscriber.max_workers(3)]).start().await.unwrap();
    for n in 0..3 {
        db.publish("q", n).await;
    }
    probe.starts(3).await;
    operator.pause(&["q"], None).await.unwrap();
    db.publish("q", 3).await;
    probe.let_end(100);
    eventually("those that ran are settled", async || db.rows().await == 1).await;
    assert_eq!((probe.finished(), probe.more().await.len(), db.deliveries().await), (3, 0, 0));
    running.stop().await.unwrap();
}

async fn a_pause_is_kept_and_heeded_by_processes_that_start_later(db: &Db) {
    let (first, later) = (operator(db), operator(db));
    first.pause(&["q"], Some("the mail server is down")).await.unwrap();
    db.publish("q", 1).await;
    let (subscriber, probe) = free("it", "q");
    let (witness, other) = free("witness", "other");
    let running = db.app().only([subscriber, witness]).start().await.unwrap();
    db.publish("other", 1).await;
    other.start().await;
    assert_eq!(probe.more().await.len(), 0);
    let [pause] = &later.paused().await.unwrap()[..] else { panic!() };
    assert_eq!(
        (pause.queue.as_str(), pause.note.as_deref()),
        ("q", Some("the mail server is down"))
    );
    later.resume(&["q"]).await.unwrap();
    probe.start().await;
    db.drained().await;
    running.stop().await.unwrap();
}

async fn pausing_again_keeps_the_time_and_takes_a_new_note(db: &Db) {
    let operator = operator(db);
    let first = operator.pause(&["b", "a", "b"], Some("one")).await.unwrap();
    let named: Vec<_> = first.iter().map(|one| (one.queue.as_str(), one.was_paused)).collect();
    assert_eq!(named, [("a", false), ("b", false)]);
    let again = operator.pause(&["a"], None).await.unwrap();
    assert_eq!((again[0].paused_at, again[0].was_paused), (first[0].paused_at, true));
    assert_eq!(again[0].note.as_deref(), Some("one"));
    let noted = operator.pause(&["a"], Some("two")).await.unwrap();
    assert_eq!((noted[0].paused_at, noted[0].note.as_deref()), (first[0].paused_at, Some("two")));
    assert_eq!(operator.paused().await.unwrap().len(), 2);
}

async fn only_what_was_paused_is_resumed(db: &Db) {
    let operator = operator(db);
    operator.pause(&["a", "b"], None).await.unwrap();
    let resumed = operator.resume(&["c", "a"]).await.unwrap();
    let named: Vec<_> = resumed.iter().map(|one| (one.queue.as_str(), one.was_paused)).collect();
    assert_eq!(named, [("a", true), ("c", false)]);
    assert_eq!(operator.paused().await.unwrap()[0].queue, "b");
    assert_eq!(operator.resume(&[]).await.unwrap(), []);
}

async fn names_that_no_queue_has_are_refused_and_nothing_is_paused(db: &Db) {
    let operator = operator(db);
    let long = "q".repeat(256);
    for wrong in ["", "a\0b", &long] {
        assert!(operator.pause(&["good", wrong], None).await.is_err());
        assert!(operator.resume(&["good", wrong]).await.is_err());
    }
    assert!(operator.pause(&["good"], Some("\0")).await.is_err());
    assert_eq!(operator.paused().await.unwrap(), []);
}

/// It waits for them no longer than a second.
async fn a_pause_waits_for_the_claims_that_began_before_it(db: &Db) {
    db.exec(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS
         $$ BEGIN PERFORM pg_advisory_xact_lock_shared(0, 7); RETURN NEW; END $$",
    )
    .await;
    db.exec(
        "CREATE TRIGGER wait BEFORE UPDATE ON outbox FOR EACH ROW
         WHEN (OLD.acquired_token IS NULL) EXECUTE FUNCTION wait()",
    )
    .await;
    let claims = "SELECT count(*) FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 2 AND objid = 7 AND NOT granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let case = async || {
        operator(db).resume(&["q"]).await.unwrap();
        let mut held = db.pg().begin().await.unwrap();
        sqlx::query("SELECT pg_advisory_xact_lock(0, 7)").execute(&mut *held).await.unwrap();
        let running = db.app().only([free("it", "q").0]).start().await.unwrap();
        db.publish("q", 1).await;
        eventually("it is claimed", async || db.int(claims).await == 1).await;
        let operator = operator(db);
        let pause = tokio::spawn(async move { operator.pause(&["q"], None).await });
        let paused = "SELECT count(*) FROM outbox_paused";
        eventually("it is paused", async || db.int(paused).await == 1).await;
        sleep(SECOND / 4).await;
        let waits = !pause.is_finished();
        held.rollback().await.unwrap();
        soon("the pause ends", pause).await.unwrap().unwrap();
        let free = "SELECT count(*) FROM outbox WHERE acquired_token IS NULL";
        let free = db.int(free).await;
        running.stop().await.unwrap();
        (waits, free)
    };
    db.unless_stalled(SECOND / 2, (true, 0), case).await;
}

/// For an hour in which the server's queue of notifications is full.
async fn a_resume_notifies_of_nothing_where_nothing_is_to_be_notified_of(db: &Db) {
    let mut heard = sqlx::postgres::PgListener::connect_with(db.pg()).await.unwrap();
    heard.listen("outbox_outbox").await.unwrap();
    for (names, hears) in [(db.names.clone(), true), (db.names.clone().never_notify(), false)] {
        let operator = outbox::ops::Operator::postgres(db.pg().clone(), names);
        operator.pause(&["q"], None).await.unwrap();
        assert_eq!(operator.resume(&["q"]).await.unwrap().len(), 1);
        // Notifications come in the order of their transactions.
        db.exec("NOTIFY outbox_outbox, 'the last one'").await;
        let mut of_resume = 0;
        while soon("one is heard", heard.recv()).await.unwrap().payload() != "the last one" {
            of_resume += 1;
        }
        assert_eq!(of_resume > 0, hears);
    }
}
