//! A process that stands still for longer than its leases, as a paused container does, and
//! goes on as if nothing had been.

use outbox::Outgoing;
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::gated;
use outbox_tests::server::scratch;
use outbox_tests::wait::eventually;
use outbox_tests::worker::Worker;
use tokio::process::Command;
use tokio::time::{Instant, sleep_until};

use super::OFTEN;

on_both!(a_process_that_stood_still_settles_nothing_that_is_anothers_by_then);

/// The lease of `held`, in the program too.
const TTL: std::time::Duration = std::time::Duration::from_secs(6);

/// Whose the rows are.
async fn tokens(db: &Db) -> Vec<String> {
    let token = if db.is_postgres() { "acquired_token::text" } else { "hex(acquired_token)" };
    db.texts(format!("SELECT {token} FROM outbox ORDER BY id")).await
}

/// One of its handlers has succeeded when it goes on, one has failed, and one still runs.
async fn a_process_that_stood_still_settles_nothing_that_is_anothers_by_then(db: &Db) {
    let hows = ["succeeds", "fails", "runs"];
    db.send_all(hows.map(|how| Outgoing::new("held", &how))).await;
    let log = scratch().join(unique("outbox-stopped"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_faulty"));
    command.args([&db.url, "held"]).env("RUST_LOG", "outbox=debug");
    command.stderr(std::fs::File::create(&log).unwrap());
    let mut worker = Worker::spawn(command);
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
