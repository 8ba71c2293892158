//! What a run costs: processor time, memory, and what the server counted.

use std::time::{Duration, Instant};

use anyhow::Result;
use sqlx::{PgPool, Row};

/// What one run came to.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    pub messages: u64,
    pub took: Duration,
    /// Latencies of single messages, where they are measured.
    pub latencies: Vec<Duration>,
    pub connections: Option<i64>,
    /// Of this process.
    pub cpu: Duration,
    /// Of the server, if it runs on this machine.
    pub server_cpu: Option<Duration>,
    pub rss_mb: f64,
    pub statements: Option<i64>,
    pub wal_bytes: Option<i64>,
    pub hot_ratio: Option<f64>,
}

impl Figures {
    pub fn per_second(&self) -> f64 {
        self.messages as f64 / self.took.as_secs_f64()
    }
}

/// Started before a run.
pub struct Meter<'a> {
    pool: Option<&'a PgPool>,
    server: Server,
    cpu: Duration,
    begun: Instant,
}

/// What the server has counted so far.
#[derive(Default)]
struct Server {
    commits: i64,
    updates: i64,
    hot: i64,
    wal: i64,
    cpu: Option<Duration>,
}

impl<'a> Meter<'a> {
    pub async fn start(pool: Option<&'a PgPool>) -> Result<Self> {
        let server = match pool {
            Some(pool) => Server::read(pool).await?,
            None => Server::default(),
        };
        Ok(Self { pool, server, cpu: cpu(), begun: Instant::now() })
    }

    /// `took`, if the run knows better than the clock when it was over.
    pub async fn end(self, messages: u64, took: Option<Duration>) -> Result<Figures> {
        let took = took.unwrap_or_else(|| self.begun.elapsed());
        let mut figures = Figures {
            messages,
            took,
            cpu: cpu() - self.cpu,
            rss_mb: rss_mb(),
            ..Figures::default()
        };
        if let Some(pool) = self.pool {
            let now = Server::read(pool).await?;
            let updates = now.updates - self.server.updates;
            // One commit is the reading itself.
            figures.statements = Some(now.commits - self.server.commits - 1);
            figures.server_cpu = now.cpu.zip(self.server.cpu).map(|(now, then)| now - then);
            figures.wal_bytes = Some(now.wal - self.server.wal);
            figures.hot_ratio =
                (updates > 0).then(|| (now.hot - self.server.hot) as f64 / updates as f64);
        }
        Ok(figures)
    }
}

impl Server {
    /// Sessions that have ended have told all they know; so the run's
    /// connections are closed before.
    async fn read(pool: &PgPool) -> Result<Self> {
        let sql = "SELECT xact_commit, coalesce(n_tup_upd, 0), coalesce(n_tup_hot_upd, 0),
                (pg_current_wal_lsn() - '0/0')::bigint
            FROM pg_stat_database
            LEFT JOIN pg_stat_user_tables ON relid = to_regclass('outbox')
            WHERE datname = current_database()";
        let row = sqlx::query(sql).fetch_one(pool).await?;
        let cpu = server_cpu(pool).await;
        Ok(Self { commits: row.get(0), updates: row.get(1), hot: row.get(2), wal: row.get(3), cpu })
    }
}

/// Processor time of this process so far.
fn cpu() -> Duration {
    ticks("self", 2).unwrap_or_default()
}

/// Of a process; the first two fields are its own, two more those of its children
/// that have ended.
fn ticks(pid: &str, fields: usize) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may hold anything, utime is the 12th, in ticks of 10 ms.
    let after = stat.rsplit(')').next()?.split_whitespace();
    let ticks: u64 =
        after.skip(11).take(fields).filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(10 * ticks))
}

/// Of the postmaster and all its children.
async fn server_cpu(pool: &PgPool) -> Option<Duration> {
    let folder: String = sqlx::query_scalar("SHOW data_directory").fetch_one(pool).await.ok()?;
    let file = std::fs::read_to_string(format!("{folder}/postmaster.pid")).ok()?;
    let postmaster = file.lines().next()?.trim();
    let children =
        std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).ok()?;
    let live: Duration = children.split_whitespace().filter_map(|pid| ticks(pid, 2)).sum();
    Some(live + ticks(postmaster, 4)?)
}

fn rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 =
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default();
    kib / 1024.0
}
