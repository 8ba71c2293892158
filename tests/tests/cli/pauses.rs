//! `pause` and `resume`.

use outbox_tests::db::Db;
use outbox_tests::probe::free;
use outbox_tests::{on_both, on_postgres};

use crate::program::{command, ended, json, run, shop};

on_both!(
    a_queue_is_paused_and_resumed_for_a_running_app,
    a_name_of_which_nothing_is_known_is_doubted,
    of_names_behind_ten_thousand_queues_nothing_is_said,
    all_pauses_are_ended_at_once,
    wrong_arguments_are_refused,
);

on_postgres!(
    a_hint_that_cannot_be_looked_up_fails_no_pause,
    claims_that_cannot_be_looked_for_fail_no_pause,
);

async fn a_queue_is_paused_and_resumed_for_a_running_app(db: &Db) {
    let (subscriber, probe) = free("it", "q");
    let (witness, other) = free("witness", "other");
    let hour = std::time::Duration::from_secs(3600);
    let asleep = |it: outbox::Subscriber| it.min_poll(hour).max_poll(hour);
    let running = db.app().only([asleep(subscriber), asleep(witness)]).start().await.unwrap();
    let text = run(db, &["pause", "q", "--note", "why"]).await.good();
    assert!(text.starts_with("q is paused since 2"), "{text}");
    db.publish("q", 1).await;
    db.publish("other", 1).await;
    other.start().await;
    assert_eq!(probe.more().await.len(), 0);
    let again = json(db, &["pause", "q"]).await;
    let [one] = &again["paused"].as_array().unwrap()[..] else { panic!("{again}") };
    assert_eq!((&one["was_paused"], &one["note"]), (&true.into(), &"why".into()));
    assert_eq!(run(db, &["resume", "q"]).await.good(), "q is resumed\n");
    assert_eq!(probe.start().await.n, 1);
    assert_eq!(run(db, &["resume", "q"]).await.good(), "q was not paused\n");
    assert_eq!(json(db, &["resume", "q"]).await["resumed"][0]["was_paused"], false);
    running.stop().await.unwrap();
}

async fn a_name_of_which_nothing_is_known_is_doubted(db: &Db) {
    db.publish("orders", 1).await;
    let known = run(db, &["pause", "orders"]).await;
    assert!(known.code == 0 && known.err.is_empty(), "{known:?}");
    let unknown = run(db, &["pause", "order\u{7}"]).await;
    assert!(unknown.code == 0 && unknown.err.contains("order\\u{7}"), "{unknown:?}");
    let resumed = run(db, &["resume", "ordre"]).await;
    assert!(resumed.code == 0 && resumed.err.contains("is the name right?"), "{resumed:?}");
    for looks in [
        &["peek", "ordre"][..],
        &["cancel-timer", "ordre", "7"],
        &["dlq", "list", "--queue", "ordre"],
        &["dlq", "groups", "--queue", "ordre"],
    ] {
        let ran = run(db, looks).await;
        assert!(ran.err.contains("is the name right?"), "{ran:?}");
    }
    let known = run(db, &["dlq", "list", "--queue", "orders"]).await;
    assert!(known.code == 0 && known.err.is_empty(), "{known:?}");
    let silent = run(db, &["pause", "ordre", "--json"]).await;
    assert!(silent.err.is_empty() && silent.json()["paused"][0]["queue"] == "ordre", "{silent:?}");
}

/// Only so many queues are looked up.
async fn of_names_behind_ten_thousand_queues_nothing_is_said(db: &Db) {
    let message = |n: u32| outbox::Outgoing::new(format!("a{n:05}"), &n);
    db.send_all((0..10_001).map(message)).await;
    let known = run(db, &["pause", "a10000"]).await;
    assert!(known.code == 0 && known.err.is_empty(), "{known:?}");
    let unknown = run(db, &["pause", "a0999"]).await;
    assert!(unknown.err.contains("is the name right?"), "{unknown:?}");
    // This program has a subscriber of `orders`, and the queue has rows.
    db.publish("orders", 1).await;
    let listed = ended(shop(db, &["queues", "--json"])).await.json();
    let queues = listed["queues"].as_array().unwrap();
    assert!(
        queues.iter().all(|one| one["has_rows"] == true || one["queue"] == "a0999"),
        "{:?}",
        queues.last()
    );
    assert_eq!((listed["more"].as_bool(), queues.len()), (Some(true), 10_000));
}

async fn a_hint_that_cannot_be_looked_up_fails_no_pause(db: &Db) {
    let mut tx = db.pg().begin().await.unwrap();
    sqlx::query("LOCK TABLE outbox_dlq").execute(&mut *tx).await.unwrap();
    let ran = run(db, &["pause", "orders"]).await;
    assert!(ran.code == 0 && ran.out.starts_with("orders is paused"), "{ran:?}");
    assert!(ran.err.contains("cannot tell whether the names are right"), "{ran:?}");
    let silent = run(db, &["pause", "orders", "--json"]).await;
    assert!(silent.code == 0 && silent.err.is_empty(), "{silent:?}");
}

async fn claims_that_cannot_be_looked_for_fail_no_pause(db: &Db) {
    db.exec(
        "CREATE VIEW pg_locks AS
         SELECT * FROM pg_catalog.pg_locks WHERE 1 / (pg_backend_pid() * 0) = 1",
    )
    .await;
    let url = format!("{}?options=-csearch_path%3Dpublic,pg_catalog", db.url);
    let pause = async |args: &[&str]| {
        let mut pause = command(db, args);
        pause.env("DATABASE_URL", &url);
        ended(pause).await
    };
    let ran = pause(&["pause", "orders"]).await;
    assert!(ran.code == 0 && ran.out.starts_with("orders is paused since 2"), "{ran:?}");
    assert!(ran.err.contains("the queues are paused; claims that were under way"), "{ran:?}");
    assert!(ran.err.contains("division by zero"), "{ran:?}");
    let json = pause(&["pause", "orders", "--json"]).await;
    assert_eq!((json.code, &json.json()["paused"][0]["was_paused"]), (0, &true.into()), "{json:?}");
}

async fn all_pauses_are_ended_at_once(db: &Db) {
    assert_eq!(run(db, &["resume", "--all"]).await.good(), "no queue is paused\n");
    run(db, &["pause", "a"]).await.good();
    run(db, &["pause", "b", "--note", "reconciling"]).await.good();
    let refused = run(db, &["resume", "--all"]).await;
    assert_eq!((refused.code, db.int("SELECT count(*) FROM outbox_paused").await), (3, 2));
    assert!(refused.err.contains("the pauses of a, b (reconciling)"), "{refused:?}");
    let told = run(db, &["resume", "--all", "--yes"]).await.good();
    assert_eq!(told, "a is resumed\nb is resumed\n");
    assert_eq!(db.int("SELECT count(*) FROM outbox_paused").await, 0);
}

async fn wrong_arguments_are_refused(db: &Db) {
    for args in
        [&["pause"][..], &["pause", ""], &["resume"], &["resume", "q", "--all"], &["resume", ""]]
    {
        let ran = run(db, args).await;
        assert!(ran.code == 2 && ran.out.is_empty() && !ran.err.is_empty(), "{args:?}: {ran:?}");
    }
    db.exec("DROP TABLE outbox_paused").await;
    for args in [["pause", "q"], ["resume", "q"]] {
        let ran = run(db, &args).await;
        assert!(ran.code == 1 && ran.err.contains("`outbox migrate`"), "{ran:?}");
    }
}
