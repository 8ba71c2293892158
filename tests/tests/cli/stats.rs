//! `stats` and `queues`.

use std::process::Stdio;

use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::wait::{eventually, soon};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::program::{command, json, run};

on_both!(
    what_is_in_the_tables_is_shown_queue_by_queue,
    counts_that_stop_at_the_bound_have_a_plus,
    rates_are_shown_over_the_time_asked_for,
    a_watch_prints_a_line_a_sample_and_ends_well_on_an_interrupt,
    a_watch_ends_when_nobody_reads_it,
    queues_are_listed_with_what_is_known_of_them,
    wrong_arguments_are_refused,
);

async fn what_is_in_the_tables_is_shown_queue_by_queue(db: &Db) {
    assert!(run(db, &["stats"]).await.good().contains("the tables are empty"));
    assert_eq!(json(db, &["stats"]).await["queues"], serde_json::json!([]));
    db.publish("orders", 1).await;
    db.publish("orders", 2).await;
    db.publish("mails\u{1b}[2J", 3).await;
    run(db, &["pause", "orders"]).await.good();
    let text = run(db, &["stats"]).await.good();
    assert!(text.contains("QUEUE") && text.contains("mails\\u{1b}[2J"), "{text}");
    let orders = text.lines().find(|line| line.contains("orders")).unwrap();
    let cells: Vec<_> = orders.split_whitespace().collect();
    assert_eq!((&cells[..5], cells.last()), (&["orders", "2", "2", "0", "0"][..], Some(&"paused")));
    let seen = json(db, &["stats", "orders"]).await;
    let [one] = &seen["queues"].as_array().unwrap()[..] else { panic!("{seen}") };
    assert_eq!(
        (&one["waiting"], &one["leased"], &one["dead_letters"]),
        (&2.into(), &0.into(), &0.into())
    );
    assert!(one["oldest_seconds"].as_f64().unwrap() > 0.0 && seen["rates"].is_null(), "{seen}");
    assert!(one["paused_at"].as_str().unwrap().ends_with('Z'), "{seen}");
}

async fn counts_that_stop_at_the_bound_have_a_plus(db: &Db) {
    for n in 0..4 {
        db.publish("q", n).await;
    }
    assert!(run(db, &["stats", "--bound", "3"]).await.good().contains("3+"));
    assert_eq!(json(db, &["stats", "--bound", "3"]).await["queues"][0]["bounded"], true);
    assert_eq!(json(db, &["stats", "--exact"]).await["queues"][0]["waiting"], 4);
}

async fn rates_are_shown_over_the_time_asked_for(db: &Db) {
    db.publish("q", 1).await;
    let text = run(db, &["stats", "--over", "100ms"]).await.good();
    let (_, over) = text.split_once("published 0.0/s, ended 0.0/s, over ").expect(&text);
    assert!(
        humantime::parse_duration(over.trim()).unwrap() >= std::time::Duration::from_millis(100),
        "{text}"
    );
    let rates = &json(db, &["stats", "--over", "100ms"]).await["rates"];
    assert!(rates["over_seconds"].as_f64().unwrap() >= 0.1, "{rates}");
    assert_eq!(rates["queues"][0]["growth_per_second"], 0.0);
}

async fn a_watch_prints_a_line_a_sample_and_ends_well_on_an_interrupt(db: &Db) {
    db.publish("q", 1).await;
    let args = ["stats", "--watch", "--interval", "50ms", "--json"];
    let mut program = command(db, &args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut next = async || -> Value {
        let line = soon("a sample", lines.next_line()).await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    };
    assert!(next().await["rates"].is_null());
    db.publish("q", 2).await;
    eventually("both are counted", async || next().await["queues"][0]["waiting"] == 2).await;
    assert!(next().await["rates"]["over_seconds"].as_f64().unwrap() >= 0.05);
    let id = program.id().unwrap().to_string();
    let interrupt = format!("kill -INT {id}");
    let kill = Command::new("/bin/sh").args(["-c", &interrupt]).status();
    assert!(kill.await.unwrap().success());
    let ended = async { while lines.next_line().await.unwrap().is_some() {} };
    soon("the end", ended).await;
    assert_eq!(soon("it ends", program.wait()).await.unwrap().code(), Some(0));
}

async fn a_watch_ends_when_nobody_reads_it(db: &Db) {
    let args = ["stats", "--watch", "--interval", "10ms"];
    let mut program = command(db, &args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    soon("a sample", lines.next_line()).await.unwrap().unwrap();
    drop(lines);
    assert_eq!(soon("it ends", program.wait()).await.unwrap().code(), Some(0));
}

async fn queues_are_listed_with_what_is_known_of_them(db: &Db) {
    assert!(run(db, &["queues"]).await.good().contains("the tables are empty"));
    db.publish("orders", 1).await;
    run(db, &["pause", "mails", "--note", "down\u{7}"]).await.good();
    let text = run(db, &["queues"]).await.good();
    let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(line("orders").contains("yes"), "{text}");
    assert!(line("mails").contains("since 2") && line("mails").contains("down\\u{7}"), "{text}");
    let seen = json(db, &["queues"]).await;
    assert_eq!(seen["queues"][0]["queue"], "mails");
    assert_eq!(seen["queues"][0]["note"], "down\u{7}");
    assert_eq!((&seen["queues"][1]["has_rows"], &seen["more"]), (&true.into(), &false.into()));
}

async fn wrong_arguments_are_refused(db: &Db) {
    for args in [
        &["stats", "--bound", "many"][..],
        &["stats", "--exact", "--bound", "3"],
        &["stats", "--interval", "1s"],
        &["stats", "--watch", "--over", "1s"],
        &["stats", "--watch", "--interval", "soon"],
        &["stats", "--watch", "--interval", "0s"],
        &["queues", "orders"],
    ] {
        let ran = run(db, args).await;
        assert!(ran.code == 2 && !ran.err.is_empty(), "{ran:?}");
    }
    db.exec("DROP TABLE outbox").await;
    let ran = run(db, &["stats", "--json"]).await;
    let told: Value = serde_json::from_str(&ran.err).unwrap();
    assert!(told["error"].as_str().unwrap().contains("`outbox migrate`"), "{told}");
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
}
