//! The program `killed` as a process of its own.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use outbox_tests::db::Db;
use outbox_tests::wait::soon;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

pub const ABORT: i32 = 6;
pub const KILL: i32 = 9;

/// Killed when dropped.
pub struct Worker(Child);

impl Worker {
    /// Starts one that dies at a step, the given time it is reached, or never.
    pub fn start(db: &Db, handler: &str, fatal: Option<(&str, usize)>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_killed"));
        command.args([&db.url, handler]);
        if let Some((step, turn)) = fatal {
            command.args([step, &turn.to_string()]);
        }
        let process = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        Self(process)
    }

    /// Waits until a handler has begun.
    pub async fn begun(&mut self) {
        let out = self.0.stdout.take().unwrap();
        let line = soon("a handler begins", BufReader::new(out).lines().next_line()).await;
        assert_eq!(line.unwrap().as_deref(), Some("begun"));
    }

    pub async fn kill(mut self) {
        self.0.start_kill().unwrap();
        self.died_of(KILL).await;
    }

    /// Waits until it is dead, of this signal and of nothing else.
    pub async fn died_of(self, signal: i32) {
        let status = self.end().await;
        assert_eq!(status.signal(), Some(signal), "{status}");
    }

    /// Asks it to finish.
    pub async fn stop(self) {
        let id = self.0.id().expect("it runs").to_string();
        let kill = Command::new("/bin/sh").args(["-c", &format!("kill -TERM {id}")]).status();
        assert!(kill.await.unwrap().success());
        let status = self.end().await;
        assert_eq!(status.code(), Some(0), "{status}");
    }

    async fn end(mut self) -> ExitStatus {
        soon("the program ends", self.0.wait()).await.unwrap()
    }
}
