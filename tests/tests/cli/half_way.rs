//! Changes that end before they are over: what was done by then is told.

use std::process::Stdio;

use outbox_tests::db::Db;
use outbox_tests::wait::{eventually, soon};
use outbox_tests::{on_both, on_postgres};
use serde_json::Value;
use tokio::process::Command;

use crate::plant::plant;
use crate::program::{command, run};

on_both!(a_failure_half_way_says_what_was_done,);
on_postgres!(an_interruption_says_what_was_done,);

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
        assert!(ran.out.contains("and then it ended"), "{ran:?}");
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

async fn an_interruption_says_what_was_done(db: &Db) {
    before_letter_600(db, "PERFORM pg_sleep(600)", "").await;
    for (verb, done) in [("replay", "replayed"), ("resolve", "resolved")] {
        plant(db, verb, 1200).await;
        let mut child = command(db, &["dlq", verb, "--queue", verb, "--yes", "--json"]);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let asleep = "FROM pg_stat_activity \
            WHERE datname = current_database() AND wait_event = 'PgSleep'";
        let sleeps = format!("SELECT count(*) {asleep}");
        eventually("the second batch hangs", async || db.int(sleeps.clone()).await == 1).await;
        let id = child.id().expect("it runs").to_string();
        let kill = Command::new("/bin/sh").args(["-c", &format!("kill -INT {id}")]).status();
        assert!(kill.await.unwrap().success());
        let ended = soon("it ends", child.wait_with_output()).await.unwrap();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!((&told[done], &told["whole"]), (&500.into(), &false.into()), "{ended:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("interrupted"), "{ended:?}");
        db.exec(format!("SELECT pg_terminate_backend(pid) {asleep}")).await;
        eventually("its session is over", async || db.int(sleeps.clone()).await == 0).await;
    }
}
