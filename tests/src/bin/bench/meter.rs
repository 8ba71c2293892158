//! What a run costs: processor time, memory, and what the server counted.

use std::time::{Duration, Instant};

use anyhow::Result;
use sqlx::PgPool;

use crate::counters::{Counters, cpu, rss_mb};
use crate::sessions::{self, Sampler};

/// What one run came to.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    pub messages: u64,
    pub took: Duration,
    /// Latencies of single messages, where they are measured.
    pub latencies: Vec<Duration>,
    /// The most that the engine had at a time.
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

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let each = |total: Duration| total.as_secs_f64() * 1e6 / self.messages as f64;
        write!(f, "{:.0}/s, cpu {:.2} us", self.per_second(), each(self.cpu))?;
        if let Some(server) = self.server_cpu {
            write!(f, ", server {:.2} us", each(server))?;
        }
        if let (Some(statements), Some(wal)) = (self.statements, self.wal_bytes) {
            write!(f, ", {statements} statements, {} B WAL", wal / self.messages.cast_signed())?;
        }
        Ok(())
    }
}

/// Started before a run.
pub struct Meter<'a> {
    postgres: Option<(&'a PgPool, Counters, Sampler)>,
    cpu: Duration,
    begun: Instant,
}

impl<'a> Meter<'a> {
    pub async fn start(pool: Option<&'a PgPool>) -> Result<Self> {
        let postgres = match pool {
            Some(pool) => {
                let sampler = Sampler::start(pool).await?;
                Some((pool, Counters::read(pool).await?, sampler))
            }
            None => None,
        };
        Ok(Self { postgres, cpu: cpu(), begun: Instant::now() })
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
        if let Some((pool, then, sampler)) = self.postgres {
            figures.connections = Some(sampler.most().await?);
            sessions::told_all(pool).await?;
            let now = Counters::read(pool).await?;
            let updates = now.updates - then.updates;
            figures.statements = Some(now.commits - then.commits);
            figures.server_cpu = now.cpu.zip(then.cpu).map(|(now, then)| now.saturating_sub(then));
            figures.wal_bytes = Some(now.wal - then.wal);
            figures.hot_ratio = (updates > 0).then(|| (now.hot - then.hot) as f64 / updates as f64);
        }
        Ok(figures)
    }
}
