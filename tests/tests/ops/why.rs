//! Why a row waits that is in the table.

use std::time::Duration;

use outbox::Outgoing;
use outbox::ops::{Answer, Why, WhyOptions};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::{free, gated};

use super::{ago, operator};

on_both!(
    a_row_that_is_due_later_says_when,
    a_row_that_waits_for_a_retry_says_since_which_attempt,
    a_row_of_a_paused_queue_says_so,
    a_row_that_is_due_says_how_many_come_before_it,
    a_row_that_was_not_started_in_its_time_says_so,
    all_that_holds_is_told_and_what_decides_comes_first,
    to_ask_changes_nothing,
    a_lease_may_be_watched_for_as_long_as_it_takes,
    every_answer_says_what_it_means_and_what_to_do,
);

pub async fn why(db: &Db, id: i64) -> Why {
    operator(db).why(id, &WhyOptions::default()).await.unwrap()
}

/// A subscriber that sleeps on the queue, and does not get to its rows.
pub async fn read_by_somebody(db: &Db, queue: &'static str) -> outbox::RunningApp {
    let (subscriber, probe) = gated("it", queue);
    let running = db.app().only([subscriber.max_workers(1).fetch_batch(1)]).start().await.unwrap();
    db.publish(queue, -1).await;
    probe.start().await;
    db.publish(queue, -2).await;
    outbox_tests::wait::eventually("it has all it takes", async || db.leased().await == 2).await;
    running
}

async fn a_row_that_is_due_later_says_when(db: &Db) {
    let id = db.send(Outgoing::new("q", &1).delay(Duration::from_secs(300))).await.id().unwrap();
    let why = why(db, id).await;
    let Answer::Scheduled { due_in, attempts: 0, last_attempt_at: None, .. } = &why.answers[0]
    else {
        panic!("{why:?}")
    };
    assert!(*due_in > Duration::from_secs(200) && *due_in <= Duration::from_secs(300));
    assert_eq!(why.row.unwrap().queue, "q");
}

async fn a_row_that_waits_for_a_retry_says_since_which_attempt(db: &Db) {
    let (subscriber, probe) =
        outbox_tests::probe::with_result("it", "q", |_| Err("down".to_owned()));
    let retry = outbox::retry::Constant::new(Duration::from_secs(600));
    let running = db.app().only([subscriber.retry(retry)]).start().await.unwrap();
    let id = db.publish("q", 1).await;
    probe.let_end(1);
    outbox_tests::wait::eventually("it has failed", async || {
        db.int("SELECT count(*) FROM outbox WHERE attempts_count = 1").await == 1
    })
    .await;
    let why = why(db, id).await;
    assert!(
        matches!(why.answers[0], Answer::Scheduled { attempts: 1, last_attempt_at: Some(_), .. }),
        "{why:?}"
    );
    assert!(why.answers[0].told().means.contains("failed 1 times"));
    running.stop().await.unwrap();
}

async fn a_row_of_a_paused_queue_says_so(db: &Db) {
    let running = read_by_somebody(db, "q").await;
    let id = db.publish("q", 1).await;
    operator(db).pause(&["q"], Some("a reason")).await.unwrap();
    let why_paused = why(db, id).await;
    let [Answer::Paused { note, .. }] = &why_paused.answers[..] else { panic!("{why_paused:?}") };
    assert_eq!(note.as_deref(), Some("a reason"));
    operator(db).resume(&["q"]).await.unwrap();
    assert!(matches!(why(db, id).await.answers[..], [Answer::Ready { .. }]));
    drop(running);
}

async fn a_row_that_is_due_says_how_many_come_before_it(db: &Db) {
    let running = read_by_somebody(db, "q").await;
    for n in 0..7 {
        db.publish("q", n).await;
    }
    let id = db.publish("q", 7).await;
    db.publish("q", 8).await;
    let why = why(db, id).await;
    let [Answer::Ready { before, before_bounded, .. }] = why.answers[..] else { panic!("{why:?}") };
    assert_eq!((before, before_bounded), (7, false));
    drop(running);
}

async fn a_row_that_was_not_started_in_its_time_says_so(db: &Db) {
    let late = Outgoing::new("q", &1).expires_in(Duration::from_secs(1000));
    let id = db.send(late).await.id().unwrap();
    assert!(!why(db, id).await.answers.iter().any(|it| matches!(it, Answer::Expired { .. })));
    db.exec(format!("UPDATE outbox SET created_at = {}", ago(db, 2000))).await;
    let why = why(db, id).await;
    assert!(why.answers.iter().any(|it| matches!(it, Answer::Expired { .. })), "{why:?}");
}

async fn all_that_holds_is_told_and_what_decides_comes_first(db: &Db) {
    let id = db.send(Outgoing::new("q", &1).delay(Duration::from_secs(300))).await.id().unwrap();
    operator(db).pause(&["q"], None).await.unwrap();
    let why = why(db, id).await;
    assert!(
        matches!(why.answers[..2], [Answer::Paused { .. }, Answer::Scheduled { .. }]),
        "{why:?}"
    );
    assert!(!why.answers.iter().any(|one| matches!(one, Answer::Ready { .. })), "{why:?}");
}

/// Neither the row nor who may claim it is touched.
async fn to_ask_changes_nothing(db: &Db) {
    let id = db.publish("q", 1).await;
    let row = "SELECT CAST(deliveries_count AS text) || CAST(next_attempt_at AS text) || \
               coalesce(CAST(acquired_at AS text), 'free') FROM outbox";
    let before = db.texts(row).await;
    for _ in 0..3 {
        why(db, id).await;
    }
    assert_eq!(db.texts(row).await, before);
    let (subscriber, probe) = free("it", "q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    assert_eq!(probe.start().await.id, id);
    running.stop().await.unwrap();
}

async fn every_answer_says_what_it_means_and_what_to_do(db: &Db) {
    let id = db.publish("q", 1).await;
    operator(db).pause(&["q"], None).await.unwrap();
    for why in [why(db, id).await, why(db, id + 1000).await] {
        let json = serde_json::to_value(&why).unwrap();
        let answers = json["answers"].as_array().unwrap();
        assert!(!answers.is_empty(), "{json}");
        for answer in answers {
            for key in ["answer", "what", "means", "next"] {
                assert!(answer[key].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
            }
        }
    }
}

async fn a_lease_may_be_watched_for_as_long_as_it_takes(db: &Db) {
    let id = db.publish("q", 1).await;
    super::lease(db, id, 1).await;
    let watching = WhyOptions::default().watching(Duration::MAX);
    let operator = operator(db);
    let asked = tokio::spawn(async move { operator.why(id, &watching).await });
    super::lease(db, id, 0).await;
    let why = outbox_tests::wait::soon("the lease begins anew", async {
        while !asked.is_finished() {
            super::lease(db, id, 0).await;
            tokio::task::yield_now().await;
        }
        asked.await.unwrap().unwrap()
    });
    assert!(matches!(why.await.answers[0], Answer::Leased { .. }));
}
