//! Which queues there are.

use outbox_tests::db::Db;
use outbox_tests::on_both;

use super::{letter, operator};

on_both!(
    queues_with_rows_letters_or_a_pause_are_listed_once_each,
    no_more_queues_are_listed_than_asked_for,
    a_missing_table_is_named_with_what_makes_it,
);

async fn queues_with_rows_letters_or_a_pause_are_listed_once_each(db: &Db) {
    let operator = operator(db);
    assert_eq!(operator.queues(10).await.unwrap(), []);
    for n in 0..5 {
        db.publish("both", n).await;
        letter(db, "both", n).await;
    }
    db.publish("a", 1).await;
    letter(db, "dead", 7).await;
    letter(db, "resolved", 8).await;
    db.exec("UPDATE outbox_dlq SET status = 'resolved' WHERE queue = 'resolved'").await;
    operator.pause(&["both", "paused"], Some("a note")).await.unwrap();

    let queues = operator.queues(10).await.unwrap();
    let seen: Vec<_> = queues
        .iter()
        .map(|one| {
            let paused = one.paused_at.map(|_| one.note.as_deref());
            (one.queue.as_str(), one.has_rows, one.has_dead_letters, paused)
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("a", true, false, None),
            ("both", true, true, Some(Some("a note"))),
            ("dead", false, true, None),
            ("paused", false, false, Some(Some("a note"))),
        ]
    );
}

async fn no_more_queues_are_listed_than_asked_for(db: &Db) {
    for n in 0..20 {
        db.publish(&format!("q{n:02}"), n).await;
        letter(db, &format!("d{n:02}"), n).await;
    }
    let named = |queues: Vec<outbox::ops::QueueInfo>| {
        queues.into_iter().map(|one| one.queue).collect::<Vec<_>>()
    };
    let operator = operator(db);
    assert_eq!(named(operator.queues(3).await.unwrap()), ["d00", "d01", "d02"]);
    let all = named(operator.queues(100).await.unwrap());
    assert!(all.len() == 40 && all.is_sorted(), "{all:?}");
}

async fn a_missing_table_is_named_with_what_makes_it(db: &Db) {
    db.exec("DROP TABLE outbox_paused").await;
    for told in [
        operator(db).queues(1).await.unwrap_err().to_string(),
        operator(db).pause(&["q"], None).await.unwrap_err().to_string(),
        operator(db).resume(&["q"]).await.unwrap_err().to_string(),
        operator(db).why(1, &Default::default()).await.unwrap_err().to_string(),
    ] {
        assert!(told.contains("outbox_paused") && told.contains("`outbox migrate`"), "{told}");
    }
    db.exec("DROP TABLE outbox_dlq").await;
    let told = operator(db).why(1, &Default::default()).await.unwrap_err().to_string();
    assert!(told.contains("`outbox migrate`"), "{told}");
}
