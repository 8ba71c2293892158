//! Changes that end before they are over: what was done by then is told.

use std::process::{Output, Stdio};

use outbox_tests::db::Db;
use outbox_tests::wait::{eventually, soon};
use outbox_tests::{on_both, on_postgres};
use serde_json::Value;
use tokio::process::Command;

use crate::plant::{id_of, plant};
use crate::program::{command, run, shop};

on_both!(
    a_failure_half_way_says_what_was_done,
    what_somebody_else_has_dealt_with_is_not_called_locked,
    what_is_opened_meanwhile_was_not_agreed_to,
    a_canary_of_all_letters_leaves_no_others,
);
on_postgres!(
    an_interruption_says_what_was_done,
    an_interruption_says_what_was_tried,
    a_script_is_told_what_somebody_has_locked,
    what_was_done_is_told_where_the_rest_cannot_be_counted,
);

/// Does this with a letter before it is changed; a purge deletes it.
async fn before_letter_600(db: &Db, postgres: &str, sqlite: &str) {
    if db.is_postgres() {
        db.exec(format!(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF OLD.original_id = 600 THEN {postgres}; END IF; \
             IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$"
        ))
        .await;
        db.exec(
            "CREATE TRIGGER hold BEFORE UPDATE OR DELETE ON outbox_dlq \
             FOR EACH ROW EXECUTE FUNCTION hold()",
        )
        .await;
        return;
    }
    for change in ["UPDATE", "DELETE"] {
        db.exec(format!(
            "CREATE TRIGGER hold_{change} BEFORE {change} ON outbox_dlq \
             WHEN OLD.original_id = 600 BEGIN {sqlite}; END"
        ))
        .await;
    }
}

async fn a_failure_half_way_says_what_was_done(db: &Db) {
    let changes = [
        ("replay", "replayed", &[][..]),
        ("resolve", "resolved", &[]),
        ("ignore", "ignored", &[]),
        ("purge", "purged", &["--status", "failed"]),
    ];
    before_letter_600(db, "RAISE 'no more'", "SELECT RAISE(ABORT, 'no more')").await;
    for (verb, done, more) in changes {
        plant(db, verb, 1200).await;
        plant(db, &format!("{verb} 2"), 1200).await;
        let queue = format!("{verb} 2");
        let ran = run(db, &[&["dlq", verb, "--yes", "--queue", verb], more].concat()).await;
        assert!(ran.code == 1 && ran.err.contains("no more"), "{ran:?}");
        assert!(ran.out.starts_with("500 letters "), "{ran:?}");
        assert!(ran.out.contains("ended early"), "{ran:?}");
        let told = &["dlq", verb, "--yes", "--json", "--queue", &*queue][..];
        let ran = run(db, &[told, more].concat()).await;
        assert!(ran.code == 1 && ran.err.contains("no more"), "{ran:?}");
        assert_eq!((&ran.json()[done], &ran.json()["whole"]), (&500.into(), &false.into()));
        // Of which nothing was done there is only the error.
        let ran = run(db, &[told, more].concat()).await;
        assert!(ran.code == 1 && ran.out.is_empty(), "{ran:?}");
    }
    let open = "SELECT count(*) FROM outbox_dlq WHERE status = 'failed'";
    assert_eq!((db.int(open).await, db.rows().await), (8 * 700, 1000));
}

async fn what_somebody_else_has_dealt_with_is_not_called_locked(db: &Db) {
    let closes = "UPDATE outbox_dlq SET status = 'ignored' \
                  WHERE original_id = 1100 AND queue = OLD.queue AND queue <> 'purge'";
    let deletes = "DELETE FROM outbox_dlq \
                   WHERE original_id = 1100 AND queue = OLD.queue AND queue = 'purge'";
    let both = format!("{closes}; {deletes}");
    before_letter_600(db, &both, &both).await;
    for (verb, done, more) in [
        ("resolve", "resolved", &[][..]),
        ("ignore", "ignored", &[]),
        ("purge", "deleted", &["--status", "failed"]),
    ] {
        plant(db, verb, 1200).await;
        let ran = run(db, &[&["dlq", verb, "--yes", "--queue", verb], more].concat()).await;
        assert_eq!(ran.good().trim(), format!("1,199 letters {done}"));
    }
}

async fn what_is_opened_meanwhile_was_not_agreed_to(db: &Db) {
    let opens = "UPDATE outbox_dlq SET status = 'failed', resolved_at = NULL \
                 WHERE original_id BETWEEN 1101 AND 1150 AND queue = OLD.queue";
    let changes = [("replay", "replayed"), ("resolve", "resolved"), ("ignore", "ignored")];
    for (verb, _) in changes {
        plant(db, verb, 1200).await;
        db.exec(format!(
            "UPDATE outbox_dlq SET status = 'ignored', resolved_at = failed_at \
             WHERE original_id BETWEEN 1101 AND 1150 AND queue = '{verb}'"
        ))
        .await;
    }
    before_letter_600(db, opens, opens).await;
    for (verb, done) in changes {
        let ran = run(db, &["dlq", verb, "--yes", "--json", "--queue", verb]).await;
        assert_eq!((ran.code, &ran.json()[done]), (0, &1150.into()), "{verb}: {ran:?}");
    }
}

async fn a_script_is_told_what_somebody_has_locked(db: &Db) {
    plant(db, "q", 3).await;
    let mut tx = db.pg().begin().await.unwrap();
    let lock = "SELECT id FROM outbox_dlq WHERE original_id = 2 FOR UPDATE";
    sqlx::query(lock).execute(&mut *tx).await.unwrap();
    for (verb, done, how_many) in [("resolve", "resolved", 2), ("purge", "purged", 0)] {
        let more = if verb == "purge" { &["--status", "failed"][..] } else { &[] };
        let ran = run(db, &[&["dlq", verb, "--all", "--yes", "--json"], more].concat()).await;
        let told = ran.json();
        assert_eq!((ran.code, &told[done], &told["locked"]), (1, &how_many.into(), &1.into()));
    }
    tx.rollback().await.unwrap();
}

/// Somebody who holds one letter asks for the whole table while the last batch, which finds none,
/// waits for the test.
async fn what_was_done_is_told_where_the_rest_cannot_be_counted(db: &Db) {
    plant(db, "q", 3).await;
    db.exec("CREATE SEQUENCE batches").await;
    db.exec(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN \
         IF nextval('batches') > 1 THEN PERFORM pg_advisory_xact_lock_shared(0, 7); END IF; \
         RETURN NULL; END $$",
    )
    .await;
    db.exec(
        "CREATE TRIGGER wait AFTER UPDATE ON outbox_dlq FOR EACH STATEMENT EXECUTE FUNCTION wait()",
    )
    .await;
    let waits = |which: &str| {
        format!(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND {which} AND database = \
             (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    };
    let mut held = db.pg().begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(0, 7)").execute(&mut *held).await.unwrap();
    let mut tx = db.pg().begin().await.unwrap();
    let lock = "SELECT id FROM outbox_dlq WHERE original_id = 2 FOR UPDATE";
    sqlx::query(lock).execute(&mut *tx).await.unwrap();
    let resolve = ["dlq", "resolve", "--all", "--yes", "--json"];
    let ran = tokio::spawn(command(db, &resolve).output());
    let last = waits("locktype = 'advisory' AND objid = 7");
    eventually("the last batch waits", async || db.int(&last).await == 1).await;
    let resolved = "SELECT count(*) FROM outbox_dlq WHERE status = 'resolved'";
    assert_eq!(db.int(resolved).await, 2);
    let asked = waits("relation = 'outbox_dlq'::regclass AND mode = 'AccessExclusiveLock'");
    let let_go = async {
        eventually("the table is asked for", async || db.int(&asked).await == 1).await;
        held.rollback().await.unwrap();
    };
    let (locked, ()) = tokio::join!(sqlx::query("LOCK TABLE outbox_dlq").execute(&mut *tx), let_go);
    locked.unwrap();
    let ran = soon("it ends", ran).await.unwrap().unwrap();
    tx.rollback().await.unwrap();
    let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&told["resolved"], &told["whole"]), (&2.into(), &false.into()), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("lock"), "{ran:?}");
    assert_eq!(ran.status.code(), Some(1));
}

/// Sends SIGINT once it hangs in the database; what it leaves behind. No session stays there, which
/// would keep its locks.
async fn interrupted(db: &Db, command: Command) -> Output {
    let sleeps = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let ended = interrupted_when(command, async || db.int(sleeps).await == 1).await;
    eventually("its session is over", async || db.int(sleeps).await == 0).await;
    ended
}

async fn interrupted_when(mut command: Command, hangs: impl AsyncFnMut() -> bool) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("it hangs", hangs).await;
    let id = child.id().expect("it runs").to_string();
    let kill = Command::new("/bin/sh").args(["-c", &format!("kill -INT {id}")]).status();
    assert!(kill.await.unwrap().success());
    let ended = soon("it ends", child.wait_with_output()).await.unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("interrupted"), "{ended:?}");
    ended
}

async fn an_interruption_says_what_was_done(db: &Db) {
    before_letter_600(db, "PERFORM pg_sleep(600)", "").await;
    for (verb, done) in [("replay", "replayed"), ("resolve", "resolved")] {
        plant(db, verb, 1200).await;
        let change = command(db, &["dlq", verb, "--queue", verb, "--yes", "--json"]);
        let ended = interrupted(db, change).await;
        let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!((&told[done], &told["whole"]), (&500.into(), &false.into()), "{ended:?}");
        let same = ["locked", "ahead", "letters"].iter().all(|name| told.get(name).is_some());
        assert!(same, "{ended:?}");
    }
}

/// Nobody handles them.
async fn a_canary_of_all_letters_leaves_no_others(db: &Db) {
    plant(db, "orders", 3).await;
    let args = ["dlq", "replay", "--all", "--yes", "--canary", "3", "--canary-patience", "10m"];
    let replayed = async || db.rows().await == 3;
    let ended = interrupted_when(command(db, &args), replayed).await;
    let told = String::from_utf8(ended.stdout).unwrap();
    assert!(!told.contains("others are left"), "{told}");
}

async fn an_interruption_says_what_was_tried(db: &Db) {
    plant(db, "books", 2).await;
    let payload = "convert_to('{\"id\": ' || original_id || ', \"amount\": 1}', 'UTF8')";
    db.exec(format!("UPDATE outbox_dlq SET payload = {payload}")).await;
    db.exec(
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF NEW.payload = '2' THEN PERFORM pg_sleep(600); END IF; RETURN NEW; END $$",
    )
    .await;
    db.exec("CREATE TRIGGER hold BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION hold()")
        .await;
    let (one, two) = (id_of(db, 1).await.to_string(), id_of(db, 2).await.to_string());
    let trial = ["dlq", "replay", "--dry-run", "--yes", "--json"];
    let ended = interrupted(db, shop(db, &[&trial[..], &[&one, &two]].concat())).await;
    let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(told["trials"].as_array().map(Vec::len), Some(1), "{told}");
    assert_eq!((&told["trials"][0]["outcome"], &told["whole"]), (&"acked".into(), &false.into()));
    // Of none there is only the error.
    let ended = interrupted(db, shop(db, &[&trial[..], &[&two]].concat())).await;
    assert!(ended.stdout.is_empty() && db.rows().await == 0, "{ended:?}");
}
