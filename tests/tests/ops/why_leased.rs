//! Why a row waits that some claim holds.

use std::process::Stdio;
use std::time::Duration;

use outbox::Subscriber;
use outbox::ops::{Answer, Extension, Why, WhyOptions};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::gated;
use outbox_tests::wait::soon;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::operator;
use super::why::why;

on_both!(
    a_row_whose_handler_runs_is_leased_until_a_time,
    a_lease_that_is_extended_while_it_is_watched_has_a_process_that_lives,
    a_row_that_is_settled_while_it_is_watched_has_a_process_that_lives,
    a_row_that_is_given_back_while_it_is_watched_is_free,
    a_row_that_another_claim_takes_while_it_is_watched_is_not_extended,
    the_lease_of_a_worker_that_was_killed_is_overdue_and_then_over,
    the_time_of_a_lease_is_that_of_the_programs_own_subscriber,
    half_a_lease_says_so_or_is_none,
);

const SECOND: Duration = Duration::from_secs(1);

fn extension(why: &Why) -> &Extension {
    match &why.answers[0] {
        Answer::Leased { extension, .. } => extension,
        _ => panic!("{why:?}"),
    }
}

async fn a_row_whose_handler_runs_is_leased_until_a_time(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    let id = db.publish("q", 1).await;
    probe.start().await;
    let why = why(db, id).await;
    let Answer::Leased { acquired_at, until, subscriber: None, alone: false, .. } = &why.answers[0]
    else {
        panic!("{why:?}")
    };
    assert_eq!(*until, *acquired_at + Duration::from_secs(60));
    assert!(matches!(extension(&why), Extension::NotYetDue { .. }), "{why:?}");
    assert_eq!(why.answers.len(), 1, "{why:?}");
    probe.let_end(1);
    running.stop().await.unwrap();
}

/// An app whose handler runs, and how to ask about it.
async fn held(
    db: &Db,
    ttl: Duration,
) -> (outbox::RunningApp, outbox_tests::probe::Probe, WhyOptions) {
    let (subscriber, probe): (Subscriber, _) = gated("it", "q");
    let app = db.app().only([subscriber.lease_ttl(ttl)]);
    let options = WhyOptions::default().with_handlers_of(&app);
    (app.start().await.unwrap(), probe, options)
}

async fn a_lease_that_is_extended_while_it_is_watched_has_a_process_that_lives(db: &Db) {
    let (running, probe, options) = held(db, Duration::from_secs(12)).await;
    let id = db.publish("q", 1).await;
    probe.start().await;
    let watching = options.watching(Duration::from_secs(20));
    let why = operator(db).why(id, &watching).await.unwrap();
    assert_eq!(*extension(&why), Extension::Alive);
    probe.let_end(1);
    running.stop().await.unwrap();
}

async fn a_row_that_is_settled_while_it_is_watched_has_a_process_that_lives(db: &Db) {
    let (running, probe, options) = held(db, Duration::from_secs(600)).await;
    let id = db.publish("q", 1).await;
    probe.start().await;
    let (operator, watching) = (operator(db), options.watching(Duration::from_secs(20)));
    let (mut id, mut head) = (id, Duration::from_millis(100));
    let why = loop {
        let asking = operator.why(id, &watching);
        let mut asking = std::pin::pin!(asking);
        outbox_tests::wait::begun("it is watched", asking.as_mut()).await;
        tokio::time::timeout(head, asking.as_mut()).await.unwrap_err();
        probe.let_end(1);
        let why = soon("an answer", asking).await.unwrap();
        // Until the first look at it comes before its end.
        if !matches!(why.answers[0], Answer::Gone { .. }) || head > Duration::from_secs(10) {
            break why;
        }
        head *= 5;
        id = db.publish("q", 1).await;
        probe.start().await;
    };
    assert_eq!(*extension(&why), Extension::Alive);
    running.stop().await.unwrap();
}

/// Why a leased row waits that is changed while it is watched.
async fn changed_while_watched(db: &Db, change: impl AsyncFnOnce(i64)) -> Why {
    let id = db.publish("q", 1).await;
    crate::lease(db, id, 1).await;
    let (operator, watching) = (operator(db), WhyOptions::default().watching(20 * SECOND));
    let asking = operator.why(id, &watching);
    let mut asking = std::pin::pin!(asking);
    tokio::time::timeout(SECOND / 10, asking.as_mut()).await.unwrap_err();
    change(id).await;
    soon("an answer", asking).await.unwrap()
}

async fn a_row_that_is_given_back_while_it_is_watched_is_free(db: &Db) {
    let why = changed_while_watched(db, async |_| {
        db.exec("UPDATE outbox SET acquired_token = NULL, acquired_at = NULL").await;
    })
    .await;
    assert!(!why.answers.is_empty() && why.row.is_some(), "{why:?}");
    assert!(!why.answers.iter().any(|one| matches!(one, Answer::Leased { .. })), "{why:?}");
}

/// The process that had it may be dead: its lease was over.
async fn a_row_that_another_claim_takes_while_it_is_watched_is_not_extended(db: &Db) {
    let why = changed_while_watched(db, async |id| crate::lease(db, id, 0).await).await;
    assert!(matches!(extension(&why), Extension::NotYetDue { .. }), "{why:?}");
}

async fn the_lease_of_a_worker_that_was_killed_is_overdue_and_then_over(db: &Db) {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_from_env"))
        .env_clear()
        .env("DATABASE_URL", &db.url)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let id = db.publish("endless", 1).await;
    let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
    soon("its handler runs", lines.next_line()).await.unwrap().unwrap();
    worker.kill().await.unwrap();

    let older = async |seconds: u32| {
        let shifted = if db.is_postgres() {
            format!("acquired_at - interval '{seconds} seconds'")
        } else {
            format!("acquired_at - {seconds}000000")
        };
        db.exec(format!("UPDATE outbox SET acquired_at = {shifted}")).await;
        why(db, id).await
    };
    let fresh = older(1).await;
    assert!(matches!(extension(&fresh), Extension::NotYetDue { .. }), "{fresh:?}");
    let overdue = older(35).await;
    let Extension::Overdue { since } = extension(&overdue) else { panic!("{overdue:?}") };
    assert!(*since >= Duration::from_secs(5), "{since:?}");
    let over = older(35).await;
    let ran_out = |one: &Answer| matches!(one, Answer::LeaseRanOut { over_for, .. } if over_for.as_secs() >= 10);
    assert!(over.answers.iter().any(ran_out), "{over:?}");
    assert!(!over.answers.iter().any(|one| matches!(one, Answer::Leased { .. })), "{over:?}");
}

async fn the_time_of_a_lease_is_that_of_the_programs_own_subscriber(db: &Db) {
    let id = db.publish("q", 1).await;
    super::lease(db, id, 100).await;
    let answers = why(db, id).await.answers;
    let over = |one: &&Answer| matches!(one, Answer::LeaseRanOut { subscriber: None, .. });
    let told = answers.iter().find(over).unwrap().told();
    assert!(told.means.contains("has a longer `lease_ttl` than the default"), "{told:?}");
    let (subscriber, _) = gated("it", "q");
    let app = db.app().only([subscriber.lease_ttl(Duration::from_secs(600))]);
    let options = WhyOptions::default().with_handlers_of(&app);
    let why = operator(db).why(id, &options).await.unwrap();
    let Answer::Leased { subscriber, lease_ttl, .. } = &why.answers[0] else { panic!("{why:?}") };
    assert_eq!((subscriber.as_deref(), lease_ttl.as_secs()), (Some("it"), 600));
    let told = why.answers[0].told();
    assert!(told.what.contains("subscriber `it`") && !told.means.contains("longer"), "{told:?}");
}

/// As SQL of others writes it where nothing keeps it from that.
async fn half_a_lease_says_so_or_is_none(db: &Db) {
    let id = db.publish("q", 1).await;
    let set = async |set: String| {
        let set = format!("UPDATE outbox SET {set}");
        let set = if db.is_postgres() {
            format!("ALTER TABLE outbox DROP CONSTRAINT IF EXISTS outbox_lease_ck; {set}")
        } else {
            let (off, on) = ("ignore_check_constraints = ON", "ignore_check_constraints = OFF");
            format!("PRAGMA {off}; {set}; PRAGMA {on}")
        };
        db.exec(set).await;
        why(db, id).await
    };
    let token = if db.is_postgres() { "gen_random_uuid()" } else { "randomblob(16)" };
    let found = set(format!("acquired_token = {token}, acquired_at = NULL")).await;
    assert!(matches!(found.answers[0], Answer::HalfLeased { .. }), "{found:?}");
    assert!(!found.answers.iter().any(|one| matches!(one, Answer::Ready { .. })), "{found:?}");
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["answers"][0]["answer"], "half_leased");
    assert!(json["answers"][0]["next"].as_str().unwrap().contains("outbox check"), "{json}");

    let at = super::ago(db, 1);
    let found = set(format!("acquired_token = NULL, acquired_at = {at}")).await;
    let free = |one: &Answer| matches!(one, Answer::Ready { .. } | Answer::NobodyReads { .. });
    assert!(!found.answers.is_empty() && found.answers.iter().all(free), "{found:?}");
}
