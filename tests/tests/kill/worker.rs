//! The program `killed` as a process of its own.

use outbox_tests::db::Db;
pub use outbox_tests::worker::ABORT;
use outbox_tests::worker::Worker;
use tokio::process::Command;

/// Starts one that dies at a step, the given time it is reached, or never.
pub fn start(db: &Db, handler: &str, fatal: Option<(&str, usize)>) -> Worker {
    let mut command = Command::new(env!("CARGO_BIN_EXE_killed"));
    command.args([&db.url, handler]);
    if let Some((step, turn)) = fatal {
        command.args([step, &turn.to_string()]);
    }
    Worker::spawn(command)
}
