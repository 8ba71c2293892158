//! The program `from_env` as a process of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::wait::{eventually, soon};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

type Text = Arc<Mutex<String>>;

/// Killed when dropped.
pub struct Program {
    process: Child,
    out: Text,
    log: Text,
    readers: Vec<tokio::task::JoinHandle<()>>,
}

/// How it ended.
pub struct End {
    /// `None` after a signal that nobody caught.
    pub code: Option<i32>,
    pub out: String,
    pub log: String,
}

/// Starts it in this folder, with these variables and no others.
pub fn start(folder: &Path, variables: &[(&str, impl AsRef<OsStr>)]) -> Program {
    let mut process = Command::new(env!("CARGO_BIN_EXE_from_env"))
        .current_dir(folder)
        .env_clear()
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (out, log) = (Text::default(), Text::default());
    let readers = vec![
        collect(process.stdout.take().unwrap(), &out),
        collect(process.stderr.take().unwrap(), &log),
    ];
    Program { process, out, log, readers }
}

/// Starts it on this database, and waits until it reads its queues.
pub async fn on(db: &Db, variables: &[(&str, &str)]) -> Program {
    let mut all = vec![("DATABASE_URL", db.url.as_str()), ("OUTBOX_DLQ_TABLE", "outbox_dlq")];
    all.extend(variables);
    let program = start(&std::env::temp_dir(), &all);
    program.logs("subscribed").await;
    program
}

/// What a start that fails says. It leaves no file behind.
pub async fn refused(variables: &[(&str, impl AsRef<OsStr>)]) -> String {
    let folder = folder();
    let end = start(&folder, variables).end().await;
    std::fs::remove_dir(folder).expect("it made no file");
    assert_eq!(end.code, Some(1), "{}", end.log);
    assert!(end.out.is_empty(), "{}", end.out);
    end.log
}

/// An empty folder.
pub fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(unique("outbox_program"));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn collect(
    from: impl AsyncRead + Unpin + Send + 'static,
    into: &Text,
) -> tokio::task::JoinHandle<()> {
    let into = Arc::clone(into);
    tokio::spawn(async move {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            into.lock().unwrap().push_str(&(line + "\n"));
        }
    })
}

impl Program {
    /// Waits until it has printed this line.
    pub async fn says(&self, line: &str) {
        let said = async || self.out.lock().unwrap().lines().any(|said| said == line);
        eventually(&format!("it says {line:?}"), said).await;
    }

    /// Waits until this is in its log.
    pub async fn logs(&self, text: &str) {
        let logged = async || self.log.lock().unwrap().contains(text);
        eventually(&format!("it logs {text:?}"), logged).await;
    }

    /// Sends `TERM` or `INT`, and waits until it has arrived: two that are pending are one.
    pub async fn signal(&self, name: &str) {
        let id = self.process.id().expect("it runs").to_string();
        let kill = Command::new("/bin/sh").args(["-c", &format!("kill -{name} {id}")]).status();
        assert!(kill.await.unwrap().success());
        let bit = 1_u64 << (if name == "INT" { 2 } else { 15 } - 1);
        eventually("the signal has arrived", async || {
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
            let pending = pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
            pending.is_none_or(|set| set & bit == 0)
        })
        .await;
    }

    /// Waits until it has ended.
    pub async fn end(mut self) -> End {
        let status = soon("the program ends", self.process.wait()).await.unwrap();
        for reader in self.readers {
            reader.await.unwrap();
        }
        let [out, log] =
            [self.out, self.log].map(|text| std::mem::take(&mut *text.lock().unwrap()));
        End { code: status.code(), out, log }
    }
}
