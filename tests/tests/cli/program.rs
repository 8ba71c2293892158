//! Running the program `outbox` as a shell does.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use outbox_tests::db::Db;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The result, of a run that ended well.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// The result of a run that ended with this code.
    #[track_caller]
    pub fn ended(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        self.out
    }

    /// The one JSON document that was printed.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The program, made once a run of the tests with the features that they have: it is another
/// package's, so that cargo does not hand over its path. Whoever sets `OUTBOX_TEST_BUILT` has made
/// it: cargo would wait for whatever else it is making.
fn program() -> &'static PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        if std::env::var_os("OUTBOX_TEST_BUILT").is_none() {
            let made = std::process::Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--workspace", "--bin", "outbox"])
                .status();
            assert!(made.unwrap().success(), "the program was not built");
        }
        let own = std::env::current_exe().unwrap();
        // target/debug/deps/cli-… → target/debug/outbox
        let folder = own.parent().and_then(|deps| deps.parent()).unwrap();
        folder.join(format!("outbox{}", std::env::consts::EXE_SUFFIX))
    })
}

/// The program with these arguments, on this database, with nothing on standard input.
pub fn command(db: &Db, args: &[&str]) -> Command {
    on(db, program(), args)
}

/// The same of the program `shop`, which has handlers.
pub fn shop(db: &Db, args: &[&str]) -> Command {
    on(db, env!("CARGO_BIN_EXE_shop").as_ref(), args)
}

fn on(db: &Db, program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("DATABASE_URL", &db.url)
        .env("OUTBOX_DLQ_TABLE", "outbox_dlq")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs it on a terminal, and agrees to what it asks once this is done.
pub async fn agreed(db: &Db, args: &[&str], meanwhile: impl Future<Output = ()>) -> Ran {
    let given = args.join(" ");
    let line = format!("{} {given}", program().display());
    let mut command = on(db, Path::new("script"), &["-qec", &line, "/dev/null"]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut out = Vec::new();
    while !out.ends_with(b"[y/N] ") {
        let read = from.read_buf(&mut out).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&out));
    }
    meanwhile.await;
    to.write_all(b"y\n").await.unwrap();
    from.read_to_end(&mut out).await.unwrap();
    let code = child.wait().await.unwrap().code().unwrap_or(-1);
    Ran { code, out: String::from_utf8(out).unwrap(), err: String::new() }
}

pub async fn run(db: &Db, args: &[&str]) -> Ran {
    ended(command(db, args)).await
}

/// What a command leaves behind.
pub async fn ended(mut command: Command) -> Ran {
    let output = command.output().await.unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// As [`run`], with `--json`.
pub async fn json(db: &Db, args: &[&str]) -> Value {
    let ran = run(db, &[args, &["--json"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.json()
}
