//! A process that stands still for longer than its leases, as a paused container does, and
//! goes on as if nothing had been.

use std::path::Path;

use outbox::Outgoing;
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::gated;
use outbox_tests::server::scratch;
use outbox_tests::wait::eventually;
use outbox_tests::worker::Worker;
use tokio::process::Command;
use tokio::time::{Instant, sleep, sleep_until};

use super::OFTEN;

on_both!(a_process_that_stood_still_settles_nothing_that_is_anothers_by_then);
outbox_tests::cases!(sqlite in sqlite_only: a_process_that_stood_still_blames_no_handler);

/// The lease of `held`, in the program too.
const TTL: std::time::Duration = std::time::Duration::from_secs(15);

/// Whose the rows are.
async fn tokens(db: &Db) -> Vec<String> {
    let token = if db.is_postgres() { "acquired_token::text" } else { "hex(acquired_token)" };
    db.texts(format!("SELECT {token} FROM outbox ORDER BY id")).await
}

/// Which writes its log there.
fn held(db: &Db, log: &Path) -> Worker {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faulty"));
    command.args([&db.url, "held"]).env("RUST_LOG", "outbox=debug");
    command.stderr(std::fs::File::create(log).unwrap());
    Worker::spawn(command)
}

/// Nor does it extend leases from another thread: its own goes on.
async fn a_process_that_stood_still_blames_no_handler(db: &Db) {
    let log = scratch().join(unique("outbox-stopped"));
    let worker = held(db, &log);
    db.send_all(["succeeds", "runs"].map(|how| Outgoing::new("held", &how))).await;
    eventually("one is handled", async || db.rows().await == 1).await;
    // Between one look of the thread that watches and the next, and for several.
    for part in [8, 3].repeat(2) {
        worker.signal("STOP").await;
        sleep(TTL / part).await;
        worker.signal("CONT").await;
        sleep(TTL / 10).await;
    }
    // One of its handlers has no end.
    worker.kill().await;
    let lines = std::fs::read_to_string(&log).unwrap();
    assert!(lines.contains("acked"), "{lines}");
    assert!(!lines.contains("the runtime"), "{lines}");
    let _ = std::fs::remove_file(log);
}

/// One of its handlers has succeeded when it goes on, one has failed, and one still runs.
async fn a_process_that_stood_still_settles_nothing_that_is_anothers_by_then(db: &Db) {
    let hows = ["succeeds", "fails", "runs"];
    db.send_all(hows.map(|how| Outgoing::new("held", &how))).await;
    let log = scratch().join(unique("outbox-stopped"));
    let mut worker = held(db, &log);
    worker.begun().await;
    let begun = Instant::now();
    worker.signal("STOP").await;
    let old = tokens(db).await;
    let (heir, probe) = gated("heir", "held");
    let heir = heir.lease_ttl(TTL).max_workers(3).min_poll(OFTEN).max_poll(OFTEN);
    let running = db.app().only([heir]).start().await.unwrap();
    for run in probe.starts(3).await {
        assert_eq!(run.deliveries, 2);
        assert!(run.at - begun >= TTL / 2, "its lease was valid");
    }
    let new = tokens(db).await;
    assert!(old.iter().zip(&new).all(|(old, new)| old != new), "all of them are the heir's");
    sleep_until(begun + 2 * TTL).await;
    worker.signal("CONT").await;

    let told = |what: &str| {
        let lines = std::fs::read_to_string(&log).unwrap();
        lines.lines().filter(|line| line.contains(what)).count()
    };
    eventually("it knows that it has lost them", async || {
        told("event=\"lease_lost\"") == hows.len()
    })
    .await;
    assert_eq!(tokens(db).await, new, "they are still the heir's");
    assert_eq!(db.int("SELECT CAST(sum(attempts_count) AS bigint) FROM outbox").await, 0);
    for settled in ["acked", "nacked_retried", "nacked_terminal"] {
        assert_eq!(told(&format!("event=\"{settled}\"")), 0, "{settled}");
    }
    // The heir's own results land; and the other one is as good as before.
    probe.let_end(3);
    db.drained().await;
    running.stop().await.unwrap();
    db.send_all([Outgoing::new("held", &"succeeds")]).await;
    db.drained().await;
    eventually("it knows so", async || told("event=\"acked\"") == 1).await;
    assert_eq!((probe.finished(), probe.dropped(), db.letters().await), (3, 0, 0));
    worker.stop().await;
    assert_eq!(told("event=\"acked\""), 1);
    let _ = std::fs::remove_file(log);
}
