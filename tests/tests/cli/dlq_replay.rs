//! `dlq replay`, also by two processes at once of which one is killed.

use std::time::Duration;

use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::wait::eventually;

use crate::plant::{id_of, plant};
use crate::program::{command, ended, json, run, shop};

on_both!(
    a_replay_tells_what_became_of_each_letter,
    many_letters_are_replayed_only_when_somebody_agrees,
    a_replay_may_change_what_is_put_back,
    a_queue_without_letters_of_which_nothing_is_known_is_doubted,
    arguments_that_make_no_sense_are_refused_before_anybody_is_asked,
    a_canary_keeps_the_others_back,
    a_canary_is_not_sent_into_a_queue_that_is_paused,
    a_trial_shows_what_a_handler_would_do_and_undoes_it,
    ten_thousand_letters_are_replayed_once_by_two_processes_of_which_one_is_killed,
);

async fn a_replay_tells_what_became_of_each_letter(db: &Db) {
    plant(db, "orders", 3).await;
    db.exec("UPDATE outbox_dlq SET timer_id = 't' WHERE original_id = 2").await;
    db.send(outbox::Outgoing::new("orders", &0).timer_id("t")).await;
    let (one, two) = (id_of(db, 1).await, id_of(db, 2).await);
    let ran = run(db, &["dlq", "replay", &one.to_string()]).await;
    let row = db.int("SELECT replayed_id FROM outbox_dlq WHERE original_id = 1").await;
    assert_eq!(ran.good(), format!("1 letter replayed\n  letter {one} is row {row} now\n"));
    let ran = run(db, &["dlq", "replay", &two.to_string(), "4711", "--yes", "--json"]).await;
    assert_eq!(ran.code, 1);
    let told = ran.json();
    assert_eq!((told["replayed"].as_u64(), told["kept"].as_u64()), (Some(0), Some(2)));
    assert_eq!(told["letters"][0]["letter"], two);
    assert!(told["letters"][0]["kept"].as_str().unwrap().contains("timer name"), "{told}");
    assert!(told["letters"][1]["kept"].as_str().unwrap().contains("no such letter"), "{told}");
    let ran = run(db, &["dlq", "replay", "--all", "--yes"]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.out.starts_with("1 letter replayed, 1 kept\n"), "{}", ran.out);
    assert!(ran.out.contains(&format!("letter {two}: a live row")), "{}", ran.out);
}

async fn a_trial_shows_what_a_handler_would_do_and_undoes_it(db: &Db) {
    plant(db, "books", 2).await;
    for (n, amount) in [(1, 5), (2, -5)] {
        let payload = format!("{{\"id\": {n}, \"amount\": {amount}}}");
        let payload = if db.is_postgres() {
            format!("convert_to('{payload}', 'UTF8')")
        } else {
            format!("CAST('{payload}' AS BLOB)")
        };
        db.exec(format!("UPDATE outbox_dlq SET payload = {payload} WHERE original_id = {n}")).await;
    }
    let (good, bad) = (id_of(db, 1).await.to_string(), id_of(db, 2).await.to_string());
    let trial = ["dlq", "replay", "--dry-run", "--yes"];
    let told = ended(shop(db, &[&trial[..], &[&good]].concat())).await.good();
    assert!(told.contains(&format!("letter {good}: handled by `book`")), "{told}");
    assert!(told.contains("receipts"), "{told}");
    let ran = ended(shop(db, &[&trial[..], &[&good, &bad, "--json"]].concat())).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let trials = ran.json()["trials"].clone();
    assert_eq!(trials[0]["outcome"], "acked");
    assert_eq!(trials[0]["published"][0]["queue"], "receipts");
    assert_eq!(
        (&trials[1]["outcome"], &trials[1]["error_kind"]),
        (&"retried".into(), &"Amount".into())
    );
    let untouched = "SELECT count(*) FROM outbox_dlq WHERE status = 'failed'";
    assert_eq!((db.rows().await, db.int(untouched).await), (0, 2));
    // What a replay would not take is not tried, and what was tried before is told.
    db.exec("UPDATE outbox_dlq SET status = 'ignored' WHERE original_id = 2").await;
    let ran = ended(shop(db, &[&trial[..], &[&good, &bad]].concat())).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains(&format!("letter {good}: handled by `book`")), "{ran:?}");
    assert!(ran.err.contains(&format!("letter {bad} would not be replayed: it is ignored")));
    // It is the letter that cannot be tried: nothing is wrong with the program.
    plant(db, "orders", 1).await;
    let plain = db.int("SELECT id FROM outbox_dlq WHERE queue = 'orders'").await.to_string();
    let ran = ended(shop(db, &[&trial[..], &[&plain]].concat())).await;
    let told = format!("error: letter {plain} cannot be tried: the subscriber `confirm`");
    assert!(ran.code == 1 && ran.err.contains(&told), "{ran:?}");
    for words in [&["--queue", "books"][..], &["--limit", "1"], &["--since", "1h"]] {
        assert_eq!(ended(shop(db, &[&trial[..], &[&good], words].concat())).await.code, 2);
    }
}

async fn many_letters_are_replayed_only_when_somebody_agrees(db: &Db) {
    plant(db, "orders", 1234).await;
    let refused = run(db, &["dlq", "replay", "--queue", "orders"]).await;
    assert_eq!((refused.code, db.rows().await), (3, 0));
    assert!(refused.err.contains("replay 1,234 letters of queue orders"), "{}", refused.err);
    let refused = run(db, &["dlq", "replay", "--all", "--limit", "7"]).await;
    assert!(refused.err.contains("replay 7 letters"), "{}", refused.err);
    let told = json(db, &["dlq", "replay", "--queue", "orders", "--yes"]).await;
    assert_eq!((told["replayed"].as_u64(), told["kept"].as_u64()), (Some(1234), Some(0)));
    assert_eq!(
        (told["letters"].as_array().unwrap().len(), &told["listed_all"]),
        (1000, &false.into())
    );
    assert_eq!(db.rows().await, 1234);
}

async fn a_replay_may_change_what_is_put_back(db: &Db) {
    plant(db, "orders", 1).await;
    let one = id_of(db, 1).await.to_string();
    for slip in ["", "{\"id\":2", "@fixed.json"] {
        let refused = run(db, &["dlq", "replay", &one, "--payload", slip]).await;
        assert!(refused.code == 2 && refused.err.contains("not a JSON document"), "{refused:?}");
    }
    assert_eq!(db.rows().await, 0);
    run(db, &["dlq", "replay", &one, "--payload", "{\"id\":2}", "--to-queue", "fixed"])
        .await
        .good();
    let payload =
        if db.is_postgres() { "convert_from(payload, 'UTF8')" } else { "CAST(payload AS TEXT)" };
    let rows = format!("SELECT queue || ' ' || {payload} FROM outbox");
    assert_eq!(db.texts(rows.clone()).await, ["fixed {\"id\":2}"]);
    // Whose own is none, and what is meant all the same.
    let texts = if db.is_postgres() { "convert_to('no', 'UTF8')" } else { "CAST('no' AS BLOB)" };
    db.exec("DELETE FROM outbox").await;
    for (its, raw) in [(Some(texts), None), (None, Some("--raw"))] {
        plant(db, "orders", 1).await;
        if let Some(text) = its {
            db.exec(format!("UPDATE outbox_dlq SET payload = {text} WHERE status = 'failed'"))
                .await;
        }
        let one = db.int("SELECT id FROM outbox_dlq WHERE status = 'failed'").await.to_string();
        let replay = ["dlq", "replay", &one, "--payload", "other"];
        run(db, &[&replay[..], raw.as_slice()].concat()).await.good();
    }
    assert_eq!(db.texts(rows.clone()).await, ["orders other", "orders other"]);
}

/// As `pause` does.
async fn a_queue_without_letters_of_which_nothing_is_known_is_doubted(db: &Db) {
    plant(db, "orders", 1).await;
    let ran = run(db, &["dlq", "replay", "--queue", "ordres", "--yes"]).await;
    let none = "0 letters replayed: no letter of queue ordres is open\n";
    assert_eq!((ran.code, &*ran.out), (0, none), "{ran:?}");
    assert!(ran.err.contains("the queue ordres has no rows") && ran.err.contains("name right?"));
    let ran = run(db, &["dlq", "replay", "--queue", "orders", "--yes"]).await;
    assert!(ran.code == 0 && ran.err.is_empty(), "{ran:?}");
    for (verb, done) in [("replay", "replayed"), ("resolve", "resolved"), ("ignore", "ignored")] {
        let none = format!("0 letters {done}: no letter of problem 4bad is open\n");
        let ran = run(db, &["dlq", verb, "--fingerprint", "4bad", "--yes"]).await;
        assert_eq!((ran.code, &*ran.out, &*ran.err), (0, &*none, ""));
    }
}

async fn arguments_that_make_no_sense_are_refused_before_anybody_is_asked(db: &Db) {
    plant(db, "orders", 2).await;
    for (wrong, told) in [
        (&["--payload", "x"][..], "name one id"),
        (&["--rate", "0"], "a number above 0"),
        (&["--rate", "nan"], "a number above 0"),
        (&["--canary", "0"], "at least one letter"),
        (&["--canary", "1", "--canary-share", "2"], "from 0 to 1"),
        (&["--to-queue", ""], "queue"),
    ] {
        let refused = run(db, &[&["dlq", "replay", "--all"], wrong].concat()).await;
        assert!(refused.code == 2 && refused.err.contains(told), "{wrong:?}: {refused:?}");
    }
    assert_eq!(db.rows().await, 0);
}

/// It would wait, and be taken for a failure.
async fn a_canary_is_not_sent_into_a_queue_that_is_paused(db: &Db) {
    plant(db, "orders", 2).await;
    run(db, &["pause", "orders"]).await.good();
    let canary = ["dlq", "replay", "--queue", "orders", "--canary", "1", "--yes"];
    let refused = run(db, &canary).await;
    assert!(refused.code == 2 && refused.err.contains("orders is paused"), "{refused:?}");
    assert_eq!(db.rows().await, 0);
}

async fn a_canary_keeps_the_others_back(db: &Db) {
    plant(db, "orders", 10).await;
    let args = ["dlq", "replay", "--all", "--yes", "--canary", "2", "--canary-patience", "50ms"];
    let ran = run(db, &[&args[..], &["--json"]].concat()).await;
    assert_eq!(ran.code, 1);
    let told = ran.json();
    assert_eq!((told["replayed"].as_u64(), told["stopped"].as_bool()), (Some(2), Some(true)));
    assert_eq!(told["canary"]["waiting"], 2);
    let text = run(db, &args).await.ended(1);
    assert!(text.contains("2 still in the outbox") && text.contains("stopped there"), "{text}");
    assert!(text.contains("does a consumer of their queue run?"), "{text}");
    assert_eq!(db.rows().await, 4);
}

async fn ten_thousand_letters_are_replayed_once_by_two_processes_of_which_one_is_killed(db: &Db) {
    plant(db, "orders", 10_000).await;
    let args = ["dlq", "replay", "--queue", "orders", "--yes", "--json"];
    // Slow enough to be met half-way.
    let mut doomed = command(db, &[&args[..], &["--rate", "300"]].concat()).spawn().unwrap();
    eventually("it is under way", async || db.rows().await > 0).await;
    let other = command(db, &[&args[..], &["--rate", "1500"]].concat()).output();
    let kill = async {
        eventually("it is well on its way", async || db.rows().await > 1000).await;
        doomed.kill().await.unwrap();
        assert!(db.rows().await < 10_000, "it was killed too late to tell");
    };
    let (output, ()) = tokio::join!(other, kill);
    let output = output.unwrap();
    assert!(output.status.code().is_some());
    // What the dead one held is free once the server has noticed.
    let mut last = run(db, &args).await;
    eventually("all are replayed", async || {
        let open = db.int("SELECT count(*) FROM outbox_dlq WHERE status = 'failed'").await;
        if open > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            last = run(db, &args).await;
        }
        open == 0
    })
    .await;
    assert_eq!(last.code, 0, "{last:?}");
    assert_eq!(db.rows().await, 10_000);
    let once = "SELECT count(DISTINCT original_id) FROM outbox_dlq JOIN outbox \
        ON outbox.id = outbox_dlq.replayed_id WHERE outbox_dlq.status = 'resolved'";
    assert_eq!(db.int(once).await, 10_000, "a letter each, a row each");
}
