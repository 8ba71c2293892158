//! A consumer in a process of its own: this program, started with `--consume`.
//!
//! It says `ready`, begins at the first line it reads, says how many rows it has
//! handled so far, and when its input ends which ones.

use std::process::Stdio;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use outbox::{App, Context, State, subscriber};
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::counters;
use crate::scenario::drain::Order;
use crate::sessions::ENGINE;

// ===== the consumer =====

#[derive(Clone, Default)]
struct Log(Arc<(Mutex<Vec<i64>>, AtomicUsize)>);

impl Log {
    fn ids(&self) -> std::sync::MutexGuard<'_, Vec<i64>> {
        self.0.0.lock().expect("nobody panics with it")
    }
}

#[subscriber("bench")]
async fn logged(_order: Order, context: Context, State(log): State<Log>) {
    log.ids().push(context.id());
    if context.deliveries() > 1 {
        log.0.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// On the database that `DATABASE_URL` names.
pub async fn consume() -> Result<()> {
    let options: PgConnectOptions = std::env::var("DATABASE_URL")?.parse()?;
    let options = options.application_name(ENGINE);
    let log = Log::default();
    let app = App::postgres(PgPoolOptions::new().connect_lazy_with(options))
        .names(crate::db::names())
        .only([logged::subscriber()])
        .state(log.clone());
    let (read, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || std::io::stdin().lines().try_for_each(|line| read.send(line)));
    println!("ready");
    lines.recv().await;
    let running = app.start().await?;
    let (mut ticks, mut told) = (tokio::time::interval(Duration::from_millis(5)), 0);
    loop {
        tokio::select! {
            _ = lines.recv() => break,
            _ = ticks.tick() => {
                let handled = log.ids().len();
                if handled != told {
                    println!("{handled}");
                    told = handled;
                }
            }
        }
    }
    running.stop().await?;
    let ids: Vec<_> = log.ids().iter().map(i64::to_string).collect();
    let (again, cpu) = (log.0.1.load(Ordering::Relaxed), counters::cpu().as_micros());
    let rss_mb = counters::rss_mb() as u64;
    println!("end {again} {cpu} {rss_mb} {}", ids.join(" "));
    Ok(())
}

// ===== the process =====

/// Killed when dropped.
pub struct Consumer {
    child: Child,
    input: ChildStdin,
    handled: Arc<AtomicU64>,
    /// Its last line.
    ended: JoinHandle<Result<String>>,
}

/// What a consumer did.
pub struct Ended {
    pub ids: Vec<i64>,
    /// Of rows that had been claimed before.
    pub redelivered: usize,
    pub cpu: Duration,
    pub rss_mb: f64,
}

impl Consumer {
    pub async fn spawn(options: &PgConnectOptions) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["processes", "--consume"])
            .env("DATABASE_URL", options.to_url_lossy().as_str())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().context("no input")?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?).lines();
        let ready = output.next_line().await?;
        ensure!(ready.as_deref() == Some("ready"), "a consumer did not start");
        let handled = Arc::new(AtomicU64::new(0));
        let ended = tokio::spawn(follow(output, Arc::clone(&handled)));
        Ok(Self { child, input, handled, ended })
    }

    pub async fn begin(&mut self) -> Result<()> {
        Ok(self.input.write_all(b"\n").await?)
    }

    pub fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub async fn end(mut self) -> Result<Ended> {
        drop(self.input);
        let last = self.ended.await??;
        self.child.wait().await?;
        let mut words = last.split_whitespace().skip(1).map(str::parse::<i64>);
        let mut word = || words.next().context("a consumer did not say what it did");
        let (redelivered, cpu, rss_mb) = (word()??, word()??, word()??);
        Ok(Ended {
            redelivered: redelivered.try_into()?,
            cpu: Duration::from_micros(cpu.try_into()?),
            rss_mb: rss_mb as f64,
            ids: words.collect::<Result<_, _>>()?,
        })
    }
}

async fn follow(
    mut output: Lines<BufReader<ChildStdout>>,
    handled: Arc<AtomicU64>,
) -> Result<String> {
    while let Some(line) = output.next_line().await? {
        match line.parse() {
            Ok(count) => handled.store(count, Ordering::Relaxed),
            Err(_) => return Ok(line),
        }
    }
    anyhow::bail!("a consumer has ended by itself")
}
