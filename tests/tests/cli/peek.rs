//! `peek`.

use outbox::Outgoing;
use outbox_tests::db::Db;
use outbox_tests::on_both;

use crate::program::{json, run};

on_both!(
    rows_are_shown_and_nothing_in_them_commands_the_terminal,
    what_is_shown_is_bounded_unless_all_is_asked_for,
    an_empty_queue_is_told_and_a_name_that_none_has_is_refused,
);

async fn rows_are_shown_and_nothing_in_them_commands_the_terminal(db: &Db) {
    db.publish("q", 7).await;
    let hostile = Outgoing::raw("q", "\u{1b}]0;title\u{7}\u{202e}").header("h", "\u{9b}31m");
    db.send(hostile.timer_id("t\u{1b}[0m")).await;
    let text = run(db, &["peek", "q"]).await.good();
    assert!(text.contains("payload (1 bytes): 7\n"), "{text}");
    assert!(text.contains("\\u{1b}]0;title\\u{7}\\u{202e}"), "{text}");
    assert!(text.contains("timer t\\u{1b}[0m") && text.contains("due for "), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    let ran = run(db, &["peek", "q", "--json"]).await;
    let rows = &ran.json()["rows"];
    assert_eq!(rows[0]["payload"], serde_json::json!({"kind": "json", "value": 7}));
    assert_eq!(rows[1]["headers"]["h"], "\u{9b}31m");
    assert!(!ran.out.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{:?}", ran.out);
    assert_eq!(db.leased().await, 0);
    assert_eq!(json(db, &["peek", "q", "-n", "1"]).await["rows"].as_array().unwrap().len(), 1);
}

async fn what_is_shown_is_bounded_unless_all_is_asked_for(db: &Db) {
    db.send(Outgoing::new("q", &"é".repeat(50_000))).await;
    let cut = run(db, &["peek", "q"]).await.good();
    assert!(cut.len() < 3000 && cut.contains("(100002 bytes)") && cut.contains("--full"), "{cut}");
    let full = run(db, &["peek", "q", "--full"]).await.good();
    assert!(full.contains(&"é".repeat(50_000)) && !full.contains("--full"));
    let cut = json(db, &["peek", "q"]).await;
    assert_eq!(
        (&cut["rows"][0]["payload_cut"], &cut["rows"][0]["payload"]["kind"]),
        (&true.into(), &"text".into())
    );
    assert_eq!(json(db, &["peek", "q", "--full"]).await["rows"][0]["payload"]["kind"], "json");
}

async fn an_empty_queue_is_told_and_a_name_that_none_has_is_refused(db: &Db) {
    assert_eq!(run(db, &["peek", "q\u{7}"]).await.good(), "the queue q\\u{7} has no rows\n");
    assert_eq!(json(db, &["peek", "q"]).await["rows"], serde_json::json!([]));
    for args in [&["peek", ""][..], &["peek"], &["peek", "q", "-n", "-1"]] {
        let ran = run(db, args).await;
        assert!(ran.code == 2 && !ran.err.is_empty(), "{ran:?}");
    }
}
