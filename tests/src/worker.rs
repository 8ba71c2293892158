//! A program of the tests as a process of its own, that is killed, dies or is asked to end.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::wait::soon;

pub const ABORT: i32 = 6;
pub const KILL: i32 = 9;

/// Killed when dropped.
pub struct Worker(Child);

impl Worker {
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn spawn(mut command: Command) -> Self {
        Self(command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap())
    }

    /// Waits until it says that a handler has begun.
    ///
    /// # Panics
    /// When it says something else.
    pub async fn begun(&mut self) {
        let out = self.0.stdout.take().unwrap();
        let line = soon("a handler begins", BufReader::new(out).lines().next_line()).await;
        assert_eq!(line.unwrap().as_deref(), Some("begun"));
    }

    /// # Panics
    /// When it was dead already.
    pub async fn kill(mut self) {
        self.0.start_kill().unwrap();
        self.died_of(KILL).await;
    }

    /// Waits until it is dead, of this signal and of nothing else.
    ///
    /// # Panics
    /// When it ends in another way.
    pub async fn died_of(self, signal: i32) {
        let status = self.end().await;
        assert_eq!(status.signal(), Some(signal), "{status}");
    }

    /// Asks it to finish.
    ///
    /// # Panics
    /// When it does not end well.
    pub async fn stop(self) {
        self.signal("TERM").await;
        let status = self.end().await;
        assert_eq!(status.code(), Some(0), "{status}");
    }

    /// Sends it a signal, named as `kill` names it.
    ///
    /// # Panics
    /// When it has ended.
    pub async fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.id());
        let sent = Command::new("/bin/sh").args(["-c", &kill]).status().await;
        assert!(sent.unwrap().success(), "{kill}");
    }

    /// How it ended, if it has.
    ///
    /// # Panics
    /// When the system cannot tell.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    /// The system's number of it, while it runs.
    ///
    /// # Panics
    /// When it has ended.
    pub fn id(&self) -> u32 {
        self.0.id().expect("it runs")
    }

    async fn end(mut self) -> ExitStatus {
        soon("the program ends", self.0.wait()).await.unwrap()
    }
}
