//! The server that `DATABASE_URL` names, or one of our own with stock settings.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

/// Stops what it has started.
pub struct Server {
    pub url: String,
    own: Option<Own>,
}

struct Own {
    bin: PathBuf,
    folder: PathBuf,
}

impl Server {
    /// For the head of the table.
    pub fn whose(&self) -> String {
        match &self.own {
            Some(own) => format!("its own with stock settings, data in {}", own.folder.display()),
            None => "that of DATABASE_URL".to_owned(),
        }
    }

    pub async fn version(&self) -> Result<String> {
        let options: PgConnectOptions = self.url.parse()?;
        let mut connection = options.connect().await?;
        let version = sqlx::query_scalar("SHOW server_version").fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(version)
    }

    pub async fn of_environment_or_own() -> Result<Self> {
        match std::env::var("DATABASE_URL") {
            Ok(url) => {
                let server = Self { url, own: None };
                // At once, where a pool would try for half a minute.
                server.version().await.context("the server of DATABASE_URL")?;
                Ok(server)
            }
            Err(_) => Self::start(),
        }
    }

    fn start() -> Result<Self> {
        let bin = bin().context("no PostgreSQL; install it or set DATABASE_URL")?;
        let folder = scratch().join(outbox_tests::backend::unique("outbox-bench"));
        std::fs::create_dir_all(&folder)?;
        let own = Own { bin, folder };
        run(Command::new("chmod").arg("777").arg(&own.folder))?;
        let data = own.folder.join("data");
        run(own
            .command("initdb")
            .arg("-D")
            .arg(&data)
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8"]))?;
        let port = 20_000 + std::process::id() % 20_000;
        let folder = own.folder.display();
        let options =
            format!("-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}");
        run(own
            .command("pg_ctl")
            .arg("-D")
            .arg(&data)
            .arg("-l")
            .arg(own.folder.join("log"))
            .args(["-w", "start", "-o", &options]))?;
        Ok(Self { url: format!("postgres://postgres@127.0.0.1:{port}/postgres"), own: Some(own) })
    }
}

impl Own {
    /// The server refuses to run as root.
    fn command(&self, name: &str) -> Command {
        let program = self.bin.join(name);
        let root = std::fs::metadata("/proc/self")
            .is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
        if root {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            let _ = run(own.command("pg_ctl").arg("-D").arg(own.folder.join("data")).args([
                "-m",
                "immediate",
                "-w",
                "stop",
            ]));
            let _ = std::fs::remove_dir_all(&own.folder);
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.current_dir("/").output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Where databases are made: in memory where that is possible, so that a commit costs
/// what the database does for it and not what the machine's disk happens to need for
/// a flush, which would hide every difference that a ratio is to show.
pub fn scratch() -> PathBuf {
    if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() }
}

/// The newest of Debian's, or the one on PATH.
fn bin() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("OUTBOX_TEST_PG_BIN") {
        return Some(named.into());
    }
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    versions.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    versions
        .into_iter()
        .rev()
        .chain(std::env::split_paths(&path))
        .find(|folder| folder.join("pg_ctl").exists())
}
