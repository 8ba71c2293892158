//! What the system and the server have counted so far.

use std::time::Duration;

use anyhow::Result;
use sqlx::{PgPool, Row};

/// Of one database, but for the processor time and the WAL, which are the whole
/// server's.
#[derive(Debug, Default)]
pub struct Counters {
    /// Transactions of all but the bench's own pool; for who has no `BEGIN`, statements.
    pub commits: i64,
    pub updates: i64,
    pub hot: i64,
    pub wal: i64,
    pub cpu: Option<Duration>,
}

impl Counters {
    pub async fn read(pool: &PgPool) -> Result<Self> {
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
pub fn cpu() -> Duration {
    ticks("self", 2).unwrap_or_default()
}

/// Of its children that have ended, and of theirs.
pub fn cpu_of_children() -> Duration {
    ticks("self", 4).unwrap_or_default().saturating_sub(cpu())
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

pub fn rss_mb() -> f64 {
    outbox_tests::process::memory("self", "VmRSS").unwrap_or_default() as f64 / 1024.0
}
