//! One message of a batch brings its process down, again and again. It is found out, and
//! the others of its batch are handled.

use outbox::Outgoing;
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::wait::PATIENCE;
use outbox_tests::worker::Worker;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::OFTEN;

on_both!(
    an_abort_dead_letters_no_innocent,
    an_exit_dead_letters_no_innocent,
    a_stack_overflow_dead_letters_no_innocent,
    a_lack_of_memory_dead_letters_no_innocent,
);

async fn an_abort_dead_letters_no_innocent(db: &Db) {
    one_is_guilty(db, "abort").await;
}

async fn an_exit_dead_letters_no_innocent(db: &Db) {
    one_is_guilty(db, "exit").await;
}

async fn a_stack_overflow_dead_letters_no_innocent(db: &Db) {
    one_is_guilty(db, "stack").await;
}

async fn a_lack_of_memory_dead_letters_no_innocent(db: &Db) {
    one_is_guilty(db, "memory").await;
}

/// As the subscriber has it.
const MAX_DELIVERIES: usize = 3;

/// With less memory than the message asks for.
fn faulty(db: &Db) -> Worker {
    let mut command = Command::new("/bin/sh");
    let limited = "ulimit -v 8388608 && ulimit -c 0 && exec \"$0\" \"$@\"";
    command.args(["-c", limited, env!("CARGO_BIN_EXE_faulty"), &db.url, "deadly"]);
    command.stderr(std::process::Stdio::null());
    Worker::spawn(command)
}

async fn one_is_guilty(db: &Db, how: &str) {
    let innocents: Vec<String> = (1..=15).map(|n| format!("innocent {n}")).collect();
    let mut messages: Vec<Outgoing> =
        innocents.iter().map(|text| Outgoing::new("deadly", text)).collect();
    messages.insert(7, Outgoing::new("deadly", &how));
    db.send_all(messages).await;
    let (mut crashes, end) = (0, Instant::now() + 3 * PATIENCE);
    let mut worker = faulty(db);
    while db.rows().await > 0 {
        assert!(Instant::now() < end, "{} rows are left", db.rows().await);
        if let Some(status) = worker.ended() {
            assert!(!status.success(), "{status}");
            crashes += 1;
            // Its leases are over.
            let past = if db.is_postgres() { "acquired_at - interval '1 hour'" } else { "0" };
            let leased = "acquired_token IS NOT NULL";
            db.exec(format!("UPDATE outbox SET acquired_at = {past} WHERE {leased}")).await;
            worker = faulty(db);
        }
        sleep(OFTEN / 5).await;
    }
    worker.stop().await;
    let payload =
        if db.is_postgres() { "convert_from(payload, 'UTF8')" } else { "CAST(payload AS text)" };
    let letters =
        db.texts(format!("SELECT failure_reason || ' ' || {payload} FROM outbox_dlq")).await;
    assert_eq!(letters, [format!("max_deliveries \"{how}\"")]);
    assert!((2..=MAX_DELIVERIES + 1).contains(&crashes), "{crashes} crashes");
}
