//! The processes of a run: each has a seat, and is started again when it ends.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use outbox_tests::clock;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::journal::{OFF_BY, now};
use crate::net::Net;
use crate::size::Sizes;

/// An end of a process.
#[derive(Clone, Debug)]
pub struct Exit {
    pub at: i64,
    pub app: String,
    pub status: ExitStatus,
}

/// What was done to a process from outside.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: i64,
    pub app: String,
    pub signal: &'static str,
}

pub struct Seat {
    /// `worker` or `producer`.
    part: &'static str,
    name: String,
    /// Through which it reaches the server, if there is one.
    pub net: Option<Net>,
    now: Mutex<Option<(u32, String)>>,
    closed: AtomicBool,
    /// Somebody sees to it.
    kept: AtomicBool,
    /// Seconds by which the clock of the next process is off.
    pub off_by: AtomicI64,
}

pub struct Fleet {
    folder: PathBuf,
    url: String,
    seed: u64,
    started: AtomicU64,
    pub workers: Vec<Arc<Seat>>,
    pub producers: Vec<Arc<Seat>>,
    exits: Mutex<Vec<Exit>>,
    signals: Mutex<Vec<Sent>>,
    pub sizes: Mutex<Sizes>,
    keepers: Mutex<Vec<JoinHandle<()>>>,
}

impl Seat {
    pub fn new(part: &'static str, number: usize, net: Option<Net>) -> Arc<Self> {
        let name = format!("{}{number}", &part[..1]);
        let (now, closed, kept, off_by) = Default::default();
        Arc::new(Self { part, name, net, now, closed, kept, off_by })
    }

    /// The process that sits there.
    pub fn app(&self) -> Option<String> {
        self.process().map(|(_, app)| app)
    }

    /// And its number.
    pub fn process(&self) -> Option<(u32, String)> {
        self.now.lock().unwrap().clone()
    }
}

impl Fleet {
    pub fn new(
        folder: PathBuf,
        url: String,
        seed: u64,
        workers: Vec<Arc<Seat>>,
        producers: Vec<Arc<Seat>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            folder,
            url,
            seed,
            started: AtomicU64::new(0),
            workers,
            producers,
            exits: Mutex::default(),
            signals: Mutex::default(),
            sizes: Mutex::default(),
            keepers: Mutex::default(),
        })
    }

    pub fn start(self: &Arc<Self>) {
        self.open(&self.workers);
        self.open(&self.producers);
    }

    pub fn open(self: &Arc<Self>, seats: &[Arc<Seat>]) {
        for seat in seats {
            seat.closed.store(false, Ordering::SeqCst);
            seat.kept.store(true, Ordering::SeqCst);
            let keeper = tokio::spawn(Arc::clone(self).keep(Arc::clone(seat)));
            self.keepers.lock().unwrap().push(keeper);
        }
    }

    /// Starts the process of a seat again and again.
    async fn keep(self: Arc<Self>, seat: Arc<Seat>) {
        while !seat.closed.load(Ordering::SeqCst) {
            match self.one(&seat).await {
                Ok(exit) => self.exits.lock().unwrap().push(exit),
                Err(error) => panic!("a process cannot be started: {error:#}"),
            }
            *seat.now.lock().unwrap() = None;
            sleep(Duration::from_millis(Rng::new().u64(0..500))).await;
        }
        seat.kept.store(false, Ordering::SeqCst);
    }

    async fn one(&self, seat: &Seat) -> Result<Exit> {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let app = format!("{}.{number}", seat.name);
        let url = match &seat.net {
            Some(net) => self.url.replace("127.0.0.1:0", &net.address.to_string()),
            None => self.url.clone(),
        };
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("{}.log", seat.name)))?;
        let off_by = seat.off_by.swap(0, Ordering::SeqCst);
        let clock = if off_by == 0 { None } else { clock::off_by(off_by) };
        let mut child = Command::new(std::env::current_exe()?)
            .envs(clock.iter().map(|_| (OFF_BY, off_by.to_string())))
            .envs(clock.into_iter().flatten())
            .args([seat.part, &url, &app])
            .arg(&self.folder)
            .arg((self.seed.wrapping_add(number)).to_string())
            // Held open: a process ends with the campaign.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().context("it has just been started")?;
        let stdin = child.stdin.take();
        *seat.now.lock().unwrap() = Some((pid, app.clone()));
        let status = child.wait().await?;
        drop(stdin);
        Ok(Exit { at: now(), app, status })
    }

    /// Signals the process of a seat; `None` when there is none.
    pub async fn signal(&self, seat: &Seat, signal: &'static str) -> Result<Option<String>> {
        let Some((pid, app)) = seat.process() else { return Ok(None) };
        self.signals.lock().unwrap().push(Sent { at: now(), app: app.clone(), signal });
        kill(signal, pid).await?;
        Ok(Some(app))
    }

    /// No process is started any more in these seats; those that run are told to finish.
    pub async fn close(&self, seats: &[Arc<Seat>], signal: &'static str) -> Result<()> {
        for seat in seats {
            seat.closed.store(true, Ordering::SeqCst);
            self.signal(seat, "CONT").await?;
            self.signal(seat, signal).await?;
        }
        for seat in seats {
            let mut patience = 300;
            // Not only until it has ended: the next one may be about to start.
            while seat.kept.load(Ordering::SeqCst) {
                patience -= 1;
                ensure!(patience > 0, "{} does not end", seat.name);
                sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    pub fn exits(&self) -> Vec<Exit> {
        self.exits.lock().unwrap().clone()
    }

    pub fn signals(&self) -> Vec<Sent> {
        self.signals.lock().unwrap().clone()
    }
}

/// One that is gone already is left in peace.
pub async fn kill(signal: &str, pid: u32) -> Result<()> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("kill -s {signal} {pid}")]).stderr(Stdio::null()).status().await?;
    Ok(())
}
