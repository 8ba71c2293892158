//! `dlq list`, `show`, `groups`, `resolve`, `ignore`, `purge`.

use std::process::Stdio;

use outbox::retry::NoRetry;
use outbox::{Context, Outgoing, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::wait::{eventually, soon};
use outbox_tests::{on_both, on_postgres};
use serde_json::Value;

use crate::plant::{id_of, plant};
use crate::program::{agreed, command, ended, json, run, shop};

on_both!(
    letters_are_listed_page_by_page,
    no_letters_where_nobody_keeps_any_is_told,
    a_letter_is_shown_with_its_payload,
    every_digit_and_the_order_of_names_are_shown_as_they_are_stored,
    what_a_payload_holds_cannot_command_the_terminal,
    problems_are_told_before_letters,
    letters_are_resolved_and_ignored,
    a_purge_shows_how_many_and_asks,
    a_purge_deletes_no_more_than_somebody_agreed_to,
    a_letter_that_is_named_twice_is_one,
    a_result_that_cannot_be_written_is_no_success,
    a_log_that_cannot_be_written_ends_no_change,
    an_error_cannot_command_the_terminal,
    a_change_of_everything_has_to_be_said,
    an_unknown_letter_is_an_error,
    a_question_counts_what_will_be_changed,
    a_question_says_which_letters_and_what_becomes_of_them,
    the_log_says_what_was_done_to_whoever_asks_for_it,
);

on_postgres!(a_change_waits_for_no_lock_for_ever_and_says_who_holds_it);

async fn a_change_waits_for_no_lock_for_ever_and_says_who_holds_it(db: &Db) {
    plant(db, "orders", 1).await;
    let mut tx = db.pg().begin().await.unwrap();
    let lock = "LOCK TABLE outbox_dlq, outbox_paused IN EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *tx).await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *tx).await.unwrap();
    let resolve = run(db, &["dlq", "resolve", "--queue", "orders", "--yes"]);
    let pause = run(db, &["pause", "orders"]);
    let (resolve, pause) = soon("both end", async { tokio::join!(resolve, pause) }).await;
    for ran in [resolve, pause] {
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("lock timeout"), "{ran:?}");
        for table in ["outbox_dlq", "outbox_paused"] {
            assert!(ran.err.contains(&format!("the table {table} is locked")), "{ran:?}");
        }
        assert!(ran.err.contains(&pid.to_string()), "{ran:?}");
    }
}

async fn no_letters_where_nobody_keeps_any_is_told(db: &Db) {
    for listed in ["list", "groups"] {
        let mut without = command(db, &["dlq", listed]);
        without.env_remove("OUTBOX_DLQ_TABLE");
        let ran = ended(without).await;
        assert!(ran.code == 0 && ran.err.contains("`OUTBOX_DLQ_TABLE` is not set"), "{ran:?}");
        let ran = run(db, &["dlq", listed]).await;
        assert!(ran.code == 0 && ran.err.is_empty(), "{ran:?}");
    }
}

async fn letters_are_listed_page_by_page(db: &Db) {
    assert_eq!(run(db, &["dlq", "list"]).await.good(), "no letters\n");
    plant(db, "orders", 5).await;
    db.exec("UPDATE outbox_dlq SET status = 'ignored' WHERE original_id = 5").await;
    let text = run(db, &["dlq", "list", "--queue", "orders"]).await.good();
    assert!(text.starts_with("ID") || text.trim_start().starts_with("ID"), "{text}");
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.contains("order 4 is broken") && text.contains("s ago"), "{text}");
    assert!(!text.contains("order 5 is broken"), "{text}");

    let (mut after, mut seen) = (None::<String>, Vec::new());
    loop {
        let mut args = vec!["dlq", "list", "--limit", "2", "--status", "all"];
        if let Some(after) = &after {
            args.extend(["--after", after]);
        }
        let page = json(db, &args).await;
        let letters = page["letters"].as_array().unwrap();
        seen.extend(letters.iter().map(|letter| letter["original_id"].as_i64().unwrap()));
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(seen, [5, 4, 3, 2, 1]);
    let one = json(db, &["dlq", "list", "--limit", "1"]).await["letters"][0].clone();
    assert_eq!(one["queue"], "orders");
    assert_eq!(one["failure_reason"], "retry_terminal");
    assert_eq!(one["status"], "failed");
    assert_eq!(one["resolved_at"], Value::Null);
    let at = one["failed_at"].as_str().unwrap();
    assert!(at.ends_with('Z') && at.len() == "2026-11-22T04:20:43.123456Z".len(), "{at}");
    for (args, found) in [
        (vec!["--since", "1h"], 4),
        (vec!["--until", "1h"], 0),
        (vec!["--error-kind", "OrderError", "--reason", "retry_terminal"], 4),
        (vec!["--queue", "other"], 0),
        (vec!["--fingerprint", "0"], 0),
    ] {
        let list = json(db, &[vec!["dlq", "list"], args.clone()].concat()).await;
        assert_eq!(list["letters"].as_array().unwrap().len(), found, "{args:?}");
    }
    assert_eq!(run(db, &["dlq", "list", "--after", "nonsense"]).await.code, 2);
    assert_eq!(run(db, &["dlq", "list", "--since", "yesterday"]).await.code, 2);
    let named = run(db, &["dlq", "replay", "orders"]).await;
    assert!(named.code == 2 && named.err.contains("a queue is named by `--queue`"), "{named:?}");
}

async fn a_letter_is_shown_with_its_payload(db: &Db) {
    plant(db, "orders", 1).await;
    let id = id_of(db, 1).await.to_string();
    let text = run(db, &["dlq", "show", &id]).await.good();
    for part in [
        "orders",
        "retry_terminal",
        "OrderError",
        "order 1 is broken",
        "tenant: \"acme\"",
        "payload, 10 bytes",
        "\"id\": 1",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let letter = json(db, &["dlq", "show", &id]).await["letter"].clone();
    assert_eq!(letter["headers"]["tenant"], "acme");
    assert_eq!(letter["payload"], serde_json::json!({ "kind": "json", "value": { "id": 1 } }));
    assert_eq!(letter["payload_cut"], false);
    let cut = json(db, &["dlq", "show", &id, "--max-payload", "4"]).await["letter"].clone();
    assert_eq!(
        (cut["payload"]["value"].as_str(), cut["payload_cut"].as_bool()),
        (Some("{\"id"), Some(true))
    );
}

/// Somebody may edit what is shown and replay it.
async fn every_digit_and_the_order_of_names_are_shown_as_they_are_stored(db: &Db) {
    const STORED: &str = r#"{"b":1.10,"a":12345678901234567890123}"#;
    let fails = Subscriber::new("it", "q", |_: Context| async { Err::<(), _>("broken") });
    let running = db.app().only([fails.retry(NoRetry)]).start().await.unwrap();
    db.send(Outgoing::raw("q", STORED)).await;
    db.send(Outgoing::raw("unread", STORED)).await;
    eventually("it is dead", async || db.int("SELECT count(*) FROM outbox_dlq").await == 1).await;
    running.stop().await.unwrap();
    let id = db.int("SELECT id FROM outbox_dlq").await.to_string();
    for args in [vec!["dlq", "show", &id, "--json"], vec!["peek", "unread"]] {
        let shown = run(db, &args).await.good();
        assert!(shown.contains(STORED), "{shown}");
    }
    let shown = run(db, &["dlq", "show", &id]).await.good();
    assert!(shown.contains("\"b\": 1.10,\n    \"a\": 12345678901234567890123\n"), "{shown}");
}

async fn what_a_payload_holds_cannot_command_the_terminal(db: &Db) {
    plant(db, "orders", 2).await;
    let (escape, bytes) =
        if db.is_postgres() { ("'\\x1b5b324a'", "'\\xff00'") } else { ("x'1b5b324a'", "x'ff00'") };
    db.exec(format!("UPDATE outbox_dlq SET payload = {escape} WHERE original_id = 1")).await;
    db.exec(format!("UPDATE outbox_dlq SET payload = {bytes} WHERE original_id = 2")).await;
    let evil =
        if db.is_postgres() { "E'\\x1b[31mred\\x07'" } else { "char(27) || '[31mred' || char(7)" };
    db.exec(format!("UPDATE outbox_dlq SET last_exception = {evil}, queue = {evil}")).await;
    let id = id_of(db, 1).await.to_string();
    for args in [vec!["dlq", "show", &id], vec!["dlq", "list"], vec!["dlq", "groups"]] {
        for json in [false, true] {
            let more = if json { vec!["--json"] } else { vec![] };
            let text = run(db, &[args.clone(), more].concat()).await.good();
            assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
            assert!(text.contains("[31mred"), "{text:?}");
        }
    }
    let other = id_of(db, 2).await.to_string();
    assert!(run(db, &["dlq", "show", &other]).await.good().contains("ff00"));
    let letter = json(db, &["dlq", "show", &other]).await["letter"].clone();
    assert_eq!(letter["payload"], serde_json::json!({ "kind": "bytes", "value": "ff00" }));
}

async fn problems_are_told_before_letters(db: &Db) {
    plant(db, "orders", 1200).await;
    plant(db, "mails", 4).await;
    let text = run(db, &["dlq", "groups"]).await.good();
    assert!(text.starts_with("1,204 letters, 2 problems\n"), "{text}");
    assert!(text.contains("order 1200 is broken"), "{text}");
    let groups = json(db, &["dlq", "groups", "--limit", "1"]).await;
    assert_eq!((groups["letters"].as_u64(), groups["problems"].as_u64()), (Some(1204), Some(2)));
    let first = &groups["groups"][0];
    assert_eq!((first["letters"].as_u64(), first["queue"].as_str()), (Some(1200), Some("orders")));
    assert!(first["first_seen"].as_str() < first["last_seen"].as_str());
    let fingerprint = first["fingerprint"].as_str().unwrap();
    let list = json(db, &["dlq", "list", "--fingerprint", fingerprint, "--limit", "3"]).await;
    assert_eq!(list["letters"].as_array().unwrap().len(), 3);
}

async fn letters_are_resolved_and_ignored(db: &Db) {
    plant(db, "orders", 10).await;
    let one = id_of(db, 1).await.to_string();
    let text = run(db, &["dlq", "resolve", &one, "--note", "by hand"]).await.good();
    assert_eq!(text, "1 letter resolved\n");
    let again = run(db, &["dlq", "resolve", &one]).await;
    let told = format!("0 letters resolved\n  letter {one}: it is resolved already\n");
    assert_eq!((again.code, again.out), (1, told));
    let two = id_of(db, 2).await.to_string();
    assert_eq!(json(db, &["dlq", "resolve", &two]).await["resolved"], 1);
    let refused = run(db, &["dlq", "ignore", "--queue", "orders"]).await;
    assert_eq!(refused.code, 3);
    assert!(refused.err.contains("ignore 8 letters of queue orders"), "{}", refused.err);
    let ignored =
        json(db, &["dlq", "ignore", "--queue", "orders", "--note", "a test", "--yes"]).await;
    assert_eq!(ignored["ignored"], 8);
    let noted = "SELECT count(*) FROM outbox_dlq WHERE status = 'ignored' AND note = 'a test'";
    assert_eq!(db.int(noted).await, 8);
}

async fn a_purge_shows_how_many_and_asks(db: &Db) {
    plant(db, "orders", 1200).await;
    db.exec("UPDATE outbox_dlq SET status = 'resolved' WHERE original_id <= 1100").await;
    let refused = run(db, &["dlq", "purge", "--all"]).await;
    assert_eq!((refused.code, db.letters().await), (3, 1200));
    assert!(refused.err.contains("delete 1,100 letters for good"), "{}", refused.err);
    assert_eq!(json(db, &["dlq", "purge", "--older-than", "1h", "--yes"]).await["purged"], 0);
    let text = run(db, &["dlq", "purge", "--older-than", "0s", "--yes"]).await.good();
    assert_eq!((&*text, db.letters().await), ("1,100 letters deleted\n", 100));
    let refused = run(db, &["dlq", "purge", "--all", "--status", "failed"]).await;
    assert!(refused.err.contains("nobody has dealt with"), "{}", refused.err);
    assert_eq!(
        json(db, &["dlq", "purge", "--all", "--status", "failed", "--yes"]).await["purged"],
        100
    );
}

/// Others close letters while somebody reads the question.
async fn a_purge_deletes_no_more_than_somebody_agreed_to(db: &Db) {
    plant(db, "orders", 20).await;
    db.exec("UPDATE outbox_dlq SET status = 'resolved' WHERE original_id > 15").await;
    let close = db.exec("UPDATE outbox_dlq SET status = 'ignored' WHERE original_id > 10");
    let ran = agreed(db, &["dlq", "purge", "--all"], close).await;
    assert!(ran.out.contains("delete 5 letters for good"), "{ran:?}");
    assert_eq!((ran.code, db.letters().await), (0, 15), "{ran:?}");
}

async fn a_letter_that_is_named_twice_is_one(db: &Db) {
    plant(db, "orders", 1).await;
    let id = id_of(db, 1).await.to_string();
    let text = run(db, &["dlq", "resolve", &id, &id]).await.good();
    assert_eq!(text, "1 letter resolved\n");
    assert_eq!(run(db, &["dlq", "purge", &id, &id, "--yes"]).await.good(), "1 letter deleted\n");
}

async fn a_result_that_cannot_be_written_is_no_success(db: &Db) {
    plant(db, "orders", 1).await;
    for args in [&["dlq", "list", "--json"][..], &["stats"], &["stats", "--watch"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ran = command(db, args).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let ran = ran.wait_with_output().await.unwrap();
        assert_eq!(ran.status.code(), Some(1), "{args:?}: {ran:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains("cannot be written"), "{ran:?}");
    }
}

/// What was done is done, and is said.
async fn a_log_that_cannot_be_written_ends_no_change(db: &Db) {
    plant(db, "orders", 1).await;
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut replay = command(db, &["dlq", "replay", "--queue", "orders", "--yes", "--json"]);
    replay.env("RUST_LOG", "outbox=info").stdout(Stdio::piped()).stderr(full);
    let ran = replay.spawn().unwrap().wait_with_output().await.unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains(r#""replayed":1"#), "{ran:?}");
}

/// A queue may have any name, and errors name it.
async fn an_error_cannot_command_the_terminal(db: &Db) {
    plant(db, "a\u{1b}[2Jb", 1).await;
    let id = id_of(db, 1).await.to_string();
    let refused = ended(shop(db, &["dlq", "replay", &id, "--dry-run", "--yes"])).await;
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("a\\u{1b}[2Jb") && !refused.err.contains('\u{1b}'), "{refused:?}");
}

async fn a_change_of_everything_has_to_be_said(db: &Db) {
    plant(db, "orders", 2).await;
    for verb in ["replay", "resolve", "ignore", "purge"] {
        let refused = run(db, &["dlq", verb, "--yes"]).await;
        assert_eq!(refused.code, 2, "{verb}");
        assert!(refused.err.contains("--all"), "{}", refused.err);
        let both = run(db, &["dlq", verb, "--yes", "--all", "--queue", "orders"]).await;
        assert_eq!(both.code, 2, "{verb}");
    }
    assert_eq!(db.int("SELECT count(*) FROM outbox_dlq WHERE status = 'failed'").await, 2);
}

async fn an_unknown_letter_is_an_error(db: &Db) {
    let unknown = run(db, &["dlq", "show", "4711"]).await;
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("no dead letter 4711"), "{}", unknown.err);
    plant(db, "orders", 1).await;
    let open = id_of(db, 1).await.to_string();
    for id in ["4711", &open] {
        let purge = run(db, &["dlq", "purge", id, "--yes"]).await;
        assert_eq!((purge.code, db.letters().await), (1, 1), "{purge:?}");
        let why = if id == "4711" { "there is no such letter" } else { "it is open" };
        assert_eq!(purge.out, format!("0 letters deleted\n  letter {id}: {why}\n"));
    }
    for verb in ["resolve", "ignore"] {
        let ran = run(db, &["dlq", verb, "4711", "--json"]).await;
        assert_eq!(ran.code, 1, "{ran:?}");
        let kept = serde_json::json!([{ "letter": 4711, "kept": "there is no such letter" }]);
        assert_eq!(ran.json()["letters"], kept);
        let ran = run(db, &["dlq", verb, "4711", &open, "--yes"]).await;
        assert!(ran.code == 1 && ran.out.starts_with("1 letter "), "{ran:?}");
        assert!(ran.out.ends_with("\n  letter 4711: there is no such letter\n"), "{ran:?}");
        db.exec("UPDATE outbox_dlq SET status = 'failed', resolved_at = NULL").await;
    }
    db.exec("DROP TABLE outbox_dlq").await;
    let missing = run(db, &["dlq", "list", "--json"]).await;
    assert!(missing.err.contains("outbox migrate"), "{}", missing.err);
}

/// Those of two letters, of which nobody had asked before.
const FINGERPRINTS: &str =
    "no letter was changed, except that missing fingerprints were written, because nobody agreed";

/// Not letters that fail later, and those of a problem that have no fingerprint yet.
async fn a_question_counts_what_will_be_changed(db: &Db) {
    plant(db, "orders", 3).await;
    let groups = json(db, &["dlq", "groups"]).await;
    let fingerprint = groups["groups"][0]["fingerprint"].as_str().unwrap().to_owned();
    plant(db, "orders", 2).await;
    for verb in ["replay", "resolve", "ignore"] {
        let refused = run(db, &["dlq", verb, "--fingerprint", &fingerprint]).await;
        assert!(refused.err.contains(&format!("{verb} 5 letters")), "{}", refused.err);
        assert!(refused.err.contains(FINGERPRINTS), "{}", refused.err);
    }
    let purge = ["dlq", "purge", "--status", "failed", "--fingerprint", &fingerprint];
    let refused = run(db, &purge).await;
    assert!(refused.err.contains(FINGERPRINTS), "{}", refused.err);
    let later = if db.is_postgres() {
        "now() + interval '1 hour'"
    } else {
        "CAST((unixepoch('subsec') + 3600) * 1000000 AS INTEGER)"
    };
    db.exec(format!("UPDATE outbox_dlq SET failed_at = {later} WHERE original_id = 1")).await;
    for verb in ["replay", "resolve", "ignore"] {
        let refused = run(db, &["dlq", verb, "--all"]).await;
        assert!(refused.err.contains(&format!("{verb} 3 letters")), "{}", refused.err);
        assert!(refused.err.contains("nothing was done, because"), "{}", refused.err);
    }
    let purge = ["dlq", "purge", "--all", "--status", "failed"];
    let refused = run(db, &purge).await;
    assert!(refused.err.contains("delete 3 letters"), "{}", refused.err);
    assert_eq!(json(db, &[&purge[..], &["--yes"]].concat()).await["purged"], 3);
    assert_eq!(db.letters().await, 2);
}

async fn a_question_says_which_letters_and_what_becomes_of_them(db: &Db) {
    plant(db, "orders", 2).await;
    let (one, two) = (id_of(db, 1).await.to_string(), id_of(db, 2).await.to_string());
    let since = "2020-01-02T03:04:05.000000Z";
    let replay = ["dlq", "replay", "--since", since, "--queue", "orders"];
    let refused = run(db, &[&replay[..], &["--to-queue", "ordres"]].concat()).await;
    assert_eq!(refused.code, 3, "{refused:?}");
    let told = format!("2 letters of queue orders, failed since {since} to the queue ordres");
    assert!(refused.err.contains(&told), "{refused:?}");
    assert!(
        refused.err.contains("ordres has no rows") && refused.err.contains("is the name right")
    );
    let until = "2100-01-02T03:04:05.000000Z";
    let refused = run(db, &["dlq", "resolve", &one, &two, "--until", until]).await;
    let told = format!("resolve 2 letters, failed before {until}, of the ids [{one}, {two}]");
    assert!(refused.err.contains(&told), "{refused:?}");
    let refused = run(db, &["dlq", "purge", "--older-than", "0s", "--status", "failed"]).await;
    assert!(refused.err.contains("delete 2 letters, failed before 2"), "{refused:?}");
}

async fn the_log_says_what_was_done_to_whoever_asks_for_it(db: &Db) {
    plant(db, "orders", 2).await;
    let silent = run(db, &["dlq", "resolve", &id_of(db, 1).await.to_string()]).await;
    assert!(silent.code == 0 && silent.err.is_empty(), "{silent:?}");
    let mut resolve = command(db, &["dlq", "resolve", "--queue", "orders", "--json"]);
    resolve.env("RUST_LOG", "outbox=info");
    let ran = ended(resolve).await;
    assert_eq!(ran.json()["resolved"], 1, "{ran:?}");
    assert!(ran.err.contains("dead letters were resolved"), "{ran:?}");
    assert!(ran.err.contains("letters") && ran.err.contains("orders"), "{ran:?}");
}
