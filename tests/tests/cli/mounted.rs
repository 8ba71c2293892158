//! The commands in a program that has handlers: what it knows of its queues.

use outbox_tests::db::Db;
use outbox_tests::on_both;
use serde_json::Value;
use tokio::process::Command;

use crate::program::{self, ended, run};

on_both!(
    a_program_lists_the_queues_that_it_reads,
    a_program_says_whether_it_would_read_the_queue_of_a_row,
    a_program_notes_that_it_does_not_read_a_queue_to_which_it_publishes,
);

async fn shop(db: &Db, args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_shop"))
        .args(args)
        .arg("--json")
        .env_clear()
        .env("DATABASE_URL", &db.url)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn a_program_lists_the_queues_that_it_reads(db: &Db) {
    db.publish("unread", 1).await;
    db.publish("orders", 1).await;
    let seen = shop(db, &["queues"]).await;
    let of = |name: &str| {
        let mut all = seen["queues"].as_array().unwrap().iter();
        all.find(|one| one["queue"] == name).unwrap_or_else(|| panic!("{name}: {seen}")).clone()
    };
    assert!(of("orders")["subscriber"].is_string() && of("orders")["has_rows"] == true);
    assert!(of("unread")["subscriber"].is_null() && of("unread")["has_rows"] == true);
    assert!(of("clicks")["subscriber"].is_string() && of("clicks")["has_rows"] == false);
}

async fn a_program_says_whether_it_would_read_the_queue_of_a_row(db: &Db) {
    for (queue, would) in [("unread", false), ("orders", true)] {
        let id = db.publish(queue, 1).await.to_string();
        let why = shop(db, &["why", &id]).await;
        let mut answers = why["answers"].as_array().unwrap().iter();
        let nobody = answers.find(|one| one["answer"] == "nobody_reads").unwrap();
        assert_eq!(nobody["program_would"], would, "{why}");
    }
}

/// It may be another program's queue, so the message is published all the same.
async fn a_program_notes_that_it_does_not_read_a_queue_to_which_it_publishes(db: &Db) {
    for (queue, known) in [("ordres", false), ("orders", true)] {
        let ran = ended(program::shop(db, &["publish", queue, "1"])).await;
        let noted =
            ran.err.contains(&format!("no subscriber of this program reads the queue {queue}"));
        assert!(ran.code == 0 && noted != known, "{ran:?}");
        // The bare program reads none.
        let ran = run(db, &["publish", queue, "1"]).await;
        assert!(ran.code == 0 && ran.err.is_empty(), "{ran:?}");
    }
    assert_eq!(db.rows().await, 4);
}
