//! `publish` and `cancel-timer`.

use std::process::Stdio;

use outbox::ops::{Document, Operator, Payload, PeekOptions, Peeked};
use outbox_tests::db::{Db, Pool};
use outbox_tests::on_both;
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::program::{command, ended, json, run};

on_both!(
    a_json_document_is_published_as_it_is_written,
    what_is_no_json_is_refused_unless_it_is_raw,
    a_payload_comes_from_a_file_or_from_standard_input,
    a_payload_that_is_too_large_is_called_so_and_an_empty_one_empty,
    headers_and_times_and_timers_are_taken,
    a_timer_that_is_taken_is_told_and_can_be_moved,
    a_timer_is_cancelled_once,
    wrong_arguments_are_refused_and_nothing_is_published,
);

async fn rows(db: &Db) -> Vec<Peeked> {
    let operator = match &db.pool {
        Pool::Postgres(pool) => Operator::postgres(pool.clone(), db.names.clone()),
        Pool::Sqlite(pool) => Operator::sqlite(pool.clone(), db.names.clone()),
    };
    operator.peek("q", &PeekOptions::default()).await.unwrap()
}

fn header(row: &Peeked, name: &str) -> Value {
    row.headers.value()[name].clone()
}

fn document(text: &str) -> Payload {
    Payload::Json(Document::of(text).unwrap())
}

async fn a_json_document_is_published_as_it_is_written(db: &Db) {
    let text = run(db, &["publish", "q", r#"{"id":  7}"#]).await.good();
    let [row] = &rows(db).await[..] else { panic!() };
    assert_eq!(text, format!("published row {} to the queue q\n", row.id));
    assert_eq!((row.payload_bytes, header(row, "content-type")), (10, "application/json".into()));
    assert_eq!(row.payload, document(r#"{"id":7}"#));
    let told = json(db, &["publish", "q", "-5"]).await;
    assert_eq!((&told["published"], &told["queue"]), (&"inserted".into(), &"q".into()));
    assert_eq!(told["id"], rows(db).await[1].id);
}

async fn what_is_no_json_is_refused_unless_it_is_raw(db: &Db) {
    let refused = run(db, &["publish", "q", "hello"]).await;
    assert!(
        refused.err.contains("not a JSON document") && refused.err.contains("--raw"),
        "{refused:?}"
    );
    assert_eq!((refused.code, db.rows().await), (2, 0));
    run(db, &["publish", "q", "hello", "--raw"]).await.good();
    run(db, &["publish", "q", "hello", "--content-type", "text/plain"]).await.good();
    let rows = rows(db).await;
    assert_eq!(rows[0].payload, Payload::Text("hello".into()));
    assert_eq!(
        (header(&rows[0], "content-type"), header(&rows[1], "content-type")),
        (Value::Null, "text/plain".into())
    );
}

async fn a_payload_comes_from_a_file_or_from_standard_input(db: &Db) {
    let file = std::env::temp_dir().join(outbox_tests::backend::unique("payload"));
    let path = file.to_str().unwrap();
    // Neither is what a handler could read.
    for bytes in [&b"{\"name\": \"caf\xe9\"}"[..], &[0xff, 0x00]] {
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(run(db, &["publish", "q", "--file", path]).await.code, 2);
    }
    run(db, &["publish", "q", "--raw", "--file", path]).await.good();
    std::fs::remove_file(&file).unwrap();
    let missing = run(db, &["publish", "q", "--file", path]).await;
    assert!(missing.code == 2 && missing.err.contains("cannot be read"), "{missing:?}");

    let mut program = command(db, &["publish", "q", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = program.stdin.take().unwrap();
    input.write_all(b"[1]").await.unwrap();
    drop(input);
    assert!(program.wait().await.unwrap().success());
    let kept: Vec<_> = rows(db).await.into_iter().map(|row| row.payload).collect();
    assert_eq!(kept, [Payload::Bytes("ff00".into()), document("[1]")]);
}

async fn a_payload_that_is_too_large_is_called_so_and_an_empty_one_empty(db: &Db) {
    let file = std::env::temp_dir().join(outbox_tests::backend::unique("large"));
    let path = file.to_str().unwrap();
    let piped = async |args: &[&str]| {
        let mut program = command(db, args);
        program.stdin(std::fs::File::open(&file).unwrap());
        ended(program).await
    };
    let most = 16 << 20;
    std::fs::write(&file, format!("\"{}\"", "x".repeat(17 << 20))).unwrap();
    for ran in [
        run(db, &["publish", "q", "--file", path]).await,
        run(db, &["publish", "q", "--raw", "--file", path]).await,
        piped(&["publish", "q", "-"]).await,
    ] {
        assert!(ran.err.contains("more than 16777216 bytes"), "{ran:?}");
        assert_eq!((ran.code, ran.err.contains("JSON"), db.rows().await), (2, false, 0));
    }
    // The most that is taken.
    std::fs::write(&file, format!("\"{}\"", "x".repeat(most - 2))).unwrap();
    run(db, &["publish", "q", "--file", path]).await.good();
    std::fs::write(&file, "").unwrap();
    for ran in [
        run(db, &["publish", "q", ""]).await,
        run(db, &["publish", "q", "--file", path]).await,
        piped(&["publish", "q", "-"]).await,
    ] {
        assert!(ran.code == 2 && ran.err.contains("empty") && ran.err.contains("--raw"), "{ran:?}");
    }
    run(db, &["publish", "q", "", "--raw"]).await.good();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(db.rows().await, 2);
}

async fn headers_and_times_and_timers_are_taken(db: &Db) {
    let args = ["publish", "q", "1", "--header", "a=b=c", "--header", "d=", "--delay", "1h"];
    run(db, &[&args[..], &["--expires-in", "2h", "--timer", "t"]].concat()).await.good();
    let [row] = &rows(db).await[..] else { panic!() };
    assert_eq!((header(row, "a"), header(row, "d")), ("b=c".into(), "".into()));
    assert_eq!(
        (header(row, "outbox-expires-in"), row.timer_id.as_deref()),
        ("7200000".into(), Some("t"))
    );
    let wait = row.due_at.duration_since(row.seen_at).unwrap().as_secs();
    assert!((3500..=3600).contains(&wait), "{wait}");
}

async fn a_timer_that_is_taken_is_told_and_can_be_moved(db: &Db) {
    let id = json(db, &["publish", "q", "1", "--timer", "t"]).await["id"].clone();
    assert!(run(db, &["publish", "q", "2", "--timer", "t"]).await.ended(1).contains("--extend"));
    let taken = run(db, &["publish", "q", "2", "--timer", "t", "--json"]).await;
    assert_eq!((taken.code, &taken.json()["published"]), (1, &"duplicate".into()));
    let args = ["publish", "q", "2", "--timer", "t", "--extend", "--delay", "1m"];
    let moved = json(db, &args).await;
    assert_eq!((&moved["published"], &moved["id"]), (&"extended".into(), &id));
    assert_eq!(rows(db).await[0].payload, document("2"));
    // An earlier time moves nothing.
    let earlier = ["publish", "q", "3", "--timer", "t", "--extend"];
    assert!(run(db, &earlier).await.ended(1).contains("is due at that time or later"));
    let kept = run(db, &[&earlier[..], &["--json"]].concat()).await;
    assert_eq!(
        (kept.code, &kept.json()["published"], &kept.json()["id"]),
        (1, &"kept".into(), &id)
    );
    assert_eq!(rows(db).await[0].payload, document("2"));
}

async fn a_timer_is_cancelled_once(db: &Db) {
    run(db, &["publish", "q", "1", "--timer", "t"]).await.good();
    assert!(run(db, &["cancel-timer", "q", "t"]).await.good().contains("is cancelled"));
    assert!(run(db, &["cancel-timer", "q", "t"]).await.ended(1).contains("no row of q"));
    let id = json(db, &["publish", "q", "1", "--timer", "t"]).await["id"].clone();
    let token = if db.is_postgres() { "gen_random_uuid()" } else { "randomblob(16)" };
    db.exec(format!("UPDATE outbox SET acquired_token = {token}, acquired_at = created_at")).await;
    let held = run(db, &["cancel-timer", "q", "t", "--json"]).await;
    assert_eq!((held.code, &held.json()["timer"], &held.json()["id"]), (1, &"leased".into(), &id));
    assert_eq!(run(db, &["cancel-timer", "q", ""]).await.code, 2);
    assert_eq!(run(db, &["cancel-timer", "q"]).await.code, 2);
}

async fn wrong_arguments_are_refused_and_nothing_is_published(db: &Db) {
    for args in [
        &["publish", "q"][..],
        &["publish", "q", "1", "--file", "x"],
        &["publish", "", "1"],
        &["publish", "q", "1", "--header", "novalue"],
        &["publish", "q", "1", "--header", "=v"],
        &["publish", "q", "1", "--delay", "soon"],
        &["publish", "q", "1", "--extend"],
        &["publish", "q", "1", "--header", "content-type=text/plain"],
        &["publish", "q", "1", "--timer", ""],
    ] {
        let ran = run(db, args).await;
        assert!(ran.code == 2 && ran.out.is_empty() && !ran.err.is_empty(), "{args:?}: {ran:?}");
    }
    assert_eq!(db.rows().await, 0);
}
