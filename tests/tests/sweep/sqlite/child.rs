//! The program `swept`, with a call to the operating system that fails.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;

use outbox_tests::backend::unique;
use outbox_tests::wait::soon;
use tokio::process::Command;

/// Of the n-th such call of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `SQLITE_FULL`.
    Full(usize),
    /// `SQLITE_IOERR` from a write.
    Write(usize),
    /// `SQLITE_IOERR` from a flush.
    Flush(usize),
    /// `SQLITE_BUSY` from the lock under which somebody writes, and nobody waits for it.
    Lock(usize),
    /// The lock is held by another connection, when the call is made.
    Busy,
    /// And when a handler ends.
    BusyHandler,
}

#[derive(Debug, Clone, Copy)]
pub struct Calls {
    pub writes: usize,
    pub flushes: usize,
    pub locks: usize,
}

/// How it ended.
pub struct Ended {
    /// What it printed.
    pub lines: Vec<String>,
    pub struck: bool,
    pub calls: Calls,
}

impl Calls {
    pub fn min_of(self, other: Self) -> Self {
        Self {
            writes: self.writes.min(other.writes),
            flushes: self.flushes.min(other.flushes),
            locks: self.locks.min(other.locks),
        }
    }
}

impl Fault {
    pub fn all(calls: Calls, handler: bool) -> Vec<Self> {
        let full = (1..=calls.writes).map(Self::Full);
        let write = (1..=calls.writes).map(Self::Write);
        let flush = (1..=calls.flushes).map(Self::Flush);
        let lock = (1..=calls.locks).map(Self::Lock);
        let mut all: Vec<_> = full.chain(write).chain(flush).chain(lock).collect();
        all.push(Self::Busy);
        all.extend(handler.then_some(Self::BusyHandler));
        all
    }

    /// Whether so many calls are too few for it.
    pub fn is_beyond(self, calls: Calls) -> bool {
        match self {
            Self::Full(at) | Self::Write(at) => at > calls.writes,
            Self::Flush(at) => at > calls.flushes,
            Self::Lock(at) => at > calls.locks,
            Self::Busy | Self::BusyHandler => false,
        }
    }

    /// Which call fails and how, or else what the program is told.
    fn told(self) -> Result<(&'static str, usize, &'static str), &'static str> {
        match self {
            Self::Full(at) => Ok(("write", at, "ENOSPC")),
            Self::Write(at) => Ok(("write", at, "EIO")),
            Self::Flush(at) => Ok(("flush", at, "EIO")),
            Self::Lock(at) => Ok(("lock", at, "EAGAIN")),
            Self::Busy => Err("call"),
            Self::BusyHandler => Err("handler"),
        }
    }
}

/// What stands between the program and libc. Whoever links Rust has a compiler for C.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sweep/sqlite/fail.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique("fail.so"));
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(cc.status().unwrap().success(), "{cc:?}");
    library
});

/// Runs it through a flow a few times, numbered from the first.
pub async fn swept(url: &str, flow: &str, first: i64, fault: Option<Fault>) -> Ended {
    let log = std::env::temp_dir().join(unique("swept"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_swept"));
    command.args([url, flow, &first.to_string()]);
    command.env("LD_PRELOAD", &*LIBRARY).env("FAIL_LOG", &log).env("DATABASE_URL", url);
    match fault.map(Fault::told) {
        Some(Ok((call, at, error))) => {
            command.envs([("FAIL_CALL", call), ("FAIL_AT", &at.to_string()), ("FAIL_WITH", error)]);
            command.args((call == "lock").then_some("impatient"));
        }
        Some(Err(busy)) => drop(command.arg(busy)),
        None => {}
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = soon("the program ends", command.output()).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{flow}, {fault:?}: {} {error}", output.status);
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let told = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(log).unwrap();
    let told: Vec<usize> = told.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let [writes, flushes, locks, struck] = told[..] else { panic!("{told:?}") };
    let struck = struck > 0 || lines.iter().any(|line| line == "busy");
    Ended { lines, struck, calls: Calls { writes, flushes, locks } }
}
