//! A PostgreSQL of one's own, which may be killed and started again.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// How often another port is tried, and how many are looked at for each.
const TRIES: usize = 5;
const PORTS: usize = 100;

/// Stopped, and its data removed, when dropped.
pub struct Server {
    pub url: String,
    pub folder: PathBuf,
    bin: PathBuf,
    options: String,
    /// The environment of its processes.
    variables: Vec<(&'static str, String)>,
}

impl Server {
    /// With stock settings but for these.
    ///
    /// # Errors
    /// When PostgreSQL is not installed, or does not start.
    pub fn start(settings: &[(&str, &str)]) -> Result<Self> {
        Self::start_with(settings, Vec::new())
    }

    /// As [`start`](Self::start), with these variables in its environment.
    ///
    /// # Errors
    /// As there.
    pub fn start_with(
        settings: &[(&str, &str)],
        variables: Vec<(&'static str, String)>,
    ) -> Result<Self> {
        let bin = bin().context("PostgreSQL is not installed")?;
        let folder = scratch().join(crate::backend::unique("outbox-server"));
        std::fs::create_dir_all(&folder)?;
        let mut own = format!(
            "-c listen_addresses=127.0.0.1 -c unix_socket_directories={}",
            folder.display()
        );
        for (name, value) in settings {
            own.push_str(&format!(" -c {name}={value}"));
        }
        let mut server =
            Self { url: String::new(), folder, bin, options: String::new(), variables };
        run(Command::new("chmod").arg("777").arg(&server.folder))?;
        let mut initdb = server.command("initdb");
        run(initdb.args(["--no-sync", "-U", "postgres", "-A", "trust", "-E", "UTF8"]))?;
        on_a_port(|port| {
            server.url = url(port);
            server.options = format!("-p {port} {own}");
            let started = server.start_again();
            if started.is_err() {
                // It may be about to, all the same.
                let _ = server.kill();
            }
            started
        })?;
        Ok(server)
    }

    /// Starts it after a [`kill`](Self::kill), and waits until it answers.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_again(&self) -> Result<()> {
        let log = self.folder.join("log");
        let mut start = self.command("pg_ctl");
        start.envs(self.variables.iter().map(|(name, value)| (name, value)));
        run(start.args(["-w", "start", "-o", &self.options, "-l"]).arg(log))
    }

    /// Ends it at once. What it had not yet written to its log is lost.
    ///
    /// # Errors
    /// When it was not running.
    pub fn kill(&self) -> Result<()> {
        run(self.command("pg_ctl").args(["-m", "immediate", "-w", "stop"]))
    }

    /// A tablespace of this name, in a folder of the server's.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn tablespace(&self, name: &str) -> Result<String> {
        let folder = self.folder.join(name);
        run(as_server("mkdir".into()).arg(&folder))?;
        Ok(format!("CREATE TABLESPACE {name} LOCATION '{}'", folder.display()))
    }

    /// Starts it after a [`kill`](Self::kill) as one that takes no writes.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_as_standby(&self) -> Result<()> {
        run(as_server("touch".into()).arg(self.folder.join("data/standby.signal")))?;
        self.start_again()
    }

    /// What it has logged.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.join("log"))?)
    }

    /// A standby whose queries this server waits for, by a slot of this name.
    ///
    /// # Errors
    /// When it does not start.
    pub fn standby(&self, slot: &str) -> Result<Standby> {
        self.copy(slot, &["-C", "-S", slot])
    }

    /// A standby whose queries this server waits for while it is connected; `name` is a folder's.
    ///
    /// # Errors
    /// When it does not start.
    pub fn standby_without_a_slot(&self, name: &str) -> Result<Standby> {
        self.copy(name, &[])
    }

    fn copy(&self, name: &str, how: &[&str]) -> Result<Standby> {
        let folder = self.folder.join(name);
        let mut copy = as_server(self.bin.join("pg_basebackup"));
        copy.args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", &self.url]).args(how);
        run(copy.arg("-D").arg(&folder))?;
        let own = format!(
            "-c listen_addresses=127.0.0.1 -c unix_socket_directories={} -c fsync=off \
             -c hot_standby_feedback=on -c wal_receiver_status_interval=1",
            self.folder.display()
        );
        let mut standby = Standby { url: String::new(), program: self.bin.join("pg_ctl"), folder };
        on_a_port(|port| {
            standby.url = url(port);
            let options = format!("-p {port} {own}");
            let mut start = as_server(standby.program.clone());
            start.args(["-w", "start", "-o", &options, "-D"]).arg(&standby.folder);
            let started = run(start.arg("-l").arg(self.folder.join("standby.log")));
            if started.is_err() {
                standby.stop();
            }
            started
        })?;
        Ok(standby)
    }

    /// On its data. A server refuses to run as root.
    fn command(&self, name: &str) -> Command {
        let mut command = as_server(self.bin.join(name));
        command.arg("-D").arg(self.folder.join("data"));
        command
    }
}

/// A copy that follows a server; ended when dropped.
pub struct Standby {
    pub url: String,
    program: PathBuf,
    folder: PathBuf,
}

impl Standby {
    /// Makes it a server of its own, and waits until it takes writes.
    ///
    /// # Errors
    /// When it refuses.
    pub fn promote(&self) -> Result<()> {
        let mut promote = as_server(self.program.clone());
        run(promote.args(["-w", "promote", "-D"]).arg(&self.folder))
    }

    fn stop(&self) {
        let mut stop = as_server(self.program.clone());
        let _ = run(stop.args(["-m", "immediate", "-w", "stop", "-D"]).arg(&self.folder));
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.stop();
    }
}

fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

/// Starts something on a port that is free. Somebody else may take it before it is bound:
/// then it is tried on another.
fn on_a_port(mut start: impl FnMut(u16) -> Result<()>) -> Result<()> {
    let mut tries = 1;
    loop {
        match start(free_port()?) {
            Err(_) if tries < TRIES => tries += 1,
            ended => return ended,
        }
    }
}

/// Not of those that outgoing connections have: there are many, and they come at any time.
pub(crate) fn free_port() -> Result<u16> {
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = std::iter::repeat_with(|| fastrand::u16(20_000..32_000)).take(PORTS);
    ports.find(free).context("no port is free")
}

/// A program of the server, as a user who may run it.
fn as_server(program: PathBuf) -> Command {
    let root = std::fs::metadata("/proc/self")
        .is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if !root {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
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
#[must_use]
pub fn scratch() -> PathBuf {
    let named = std::env::var_os("OUTBOX_TEST_SCRATCH").map(PathBuf::from);
    let memory = || Some(PathBuf::from("/dev/shm")).filter(|folder| folder.is_dir());
    named.or_else(memory).unwrap_or_else(std::env::temp_dir)
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
