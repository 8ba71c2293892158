//! `why`.

use std::time::Duration;

use outbox::Outgoing;
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::gated;

use crate::plant::{id_of, plant};
use crate::program::{json, run};

on_both!(
    a_row_is_explained_in_one_screen,
    an_id_that_nobody_knows_ends_with_one,
    a_letter_that_was_purged_may_have_been,
    a_lease_is_watched_when_that_is_asked_for,
    what_others_wrote_commands_no_terminal,
    wrong_arguments_are_refused,
);

async fn a_row_is_explained_in_one_screen(db: &Db) {
    let later = Outgoing::new("q", &1).delay(Duration::from_secs(3 * 3600 + 1800)).timer_id("t");
    let id = db.send(later).await.id().unwrap().to_string();
    run(db, &["pause", "q", "--note", "a reason"]).await.good();
    let text = run(db, &["why", &id]).await.good();
    assert!(
        text.starts_with(&format!("row {id} of the queue q, timer t, published at 2")),
        "{text}"
    );
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part:?} in {text}"));
    assert!(place("is paused since 2") < place(": a reason"));
    assert!(
        place("a reason") < place("outbox resume")
            && place("outbox resume") < place("it is due in 3h")
    );
    assert!(text.lines().count() <= 24 && text.contains("  means  ") && text.contains("  do     "));
    let seen = json(db, &["why", &id]).await;
    let answers = seen["answers"].as_array().unwrap();
    assert_eq!(
        (&answers[0]["answer"], &answers[1]["answer"]),
        (&"paused".into(), &"scheduled".into())
    );
    assert!(
        answers[1]["due_in_seconds"].as_f64().unwrap() > 100.0 && answers[0]["next"].is_string()
    );
    assert_eq!((&seen["id"].to_string(), &seen["row"]["timer_id"]), (&id, &"t".into()));
}

async fn a_letter_that_was_purged_may_have_been(db: &Db) {
    // Ids are given out up to that of the row.
    db.publish("q", 1).await;
    plant(db, "q", 1).await;
    db.exec("DELETE FROM outbox").await;
    let letter = id_of(db, 1).await.to_string();
    run(db, &["dlq", "purge", &letter, "--status", "failed", "--yes"]).await.good();
    let told = run(db, &["why", "1"]).await.good();
    assert!(told.contains("was deleted (`dlq purge`"), "{told}");
}

async fn an_id_that_nobody_knows_ends_with_one(db: &Db) {
    let id = db.publish("q", 1).await;
    let ran = run(db, &["why", "1000000"]).await;
    assert!(ran.ended(1).contains(&format!("the last one given out is {id}")));
    for unknown in ["1000000", "0", "-1"] {
        let ran = run(db, &["why", unknown, "--json"]).await;
        assert_eq!((ran.code, &ran.json()["answers"][0]["answer"]), (1, &"never_given_out".into()));
    }
    db.exec("DELETE FROM outbox").await;
    let gone = json(db, &["why", &id.to_string(), "--all-letters"]).await;
    assert_eq!(gone["answers"][0]["answer"], "gone");
    assert!(gone["row"].is_null());
}

async fn a_lease_is_watched_when_that_is_asked_for(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let subscriber = subscriber.lease_ttl(Duration::from_secs(3));
    let running = db.app().only([subscriber]).start().await.unwrap();
    let id = db.publish("q", 1).await.to_string();
    probe.start().await;
    let alive = json(db, &["why", &id, "--watch-lease", "20s"]).await;
    assert_eq!(alive["answers"][0]["answer"], "leased");
    assert_eq!(alive["answers"][0]["extension"]["state"], "alive");
    let once = json(db, &["why", &id]).await;
    assert_eq!(once["answers"][0]["extension"]["state"], "not_yet_due");
    probe.let_end(1);
    running.stop().await.unwrap();
}

async fn what_others_wrote_commands_no_terminal(db: &Db) {
    let id = db.send(Outgoing::new("q\u{1b}[2J", &1).timer_id("\u{9b}0m")).await.id().unwrap();
    run(db, &["pause", "q\u{1b}[2J", "--note", "\u{7}"]).await.good();
    let text = run(db, &["why", &id.to_string()]).await.good();
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    assert!(text.contains("q\\u{1b}[2J"), "{text}");
}

async fn wrong_arguments_are_refused(db: &Db) {
    for args in [
        &["why"][..],
        &["why", "first"],
        &["why", "1", "--watch-lease", "long"],
        &["why", "1", "2"],
    ] {
        let ran = run(db, args).await;
        assert!(ran.code == 2 && ran.out.is_empty() && !ran.err.is_empty(), "{args:?}: {ran:?}");
    }
}
