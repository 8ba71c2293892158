//! What is measured, one file each, and the table of them all.

pub mod backlog;
pub mod build;
pub mod drain;
pub mod drain_slow;
pub mod end_to_end;
pub mod failing;
pub mod held_snapshot;
pub mod in_flight;
pub mod latency;
pub mod payloads;
#[cfg(feature = "peers")]
pub mod peers;
pub mod processes;
pub mod publish;
pub mod publish_batch;
pub mod published_together;
pub mod queues;
pub mod sqlite_drain;
pub mod sqlite_publish;
pub mod testbroker;
pub mod timer;
pub mod trickle;

use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::Args;
use crate::bench::Bench;
use crate::report::{Line, Report};

/// A scenario that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    Postgres,
    Sqlite,
    Memory,
}

pub struct Scenario {
    pub name: &'static str,
    pub store: Store,
    run: Run,
}

type Run = for<'a> fn(&'a Bench) -> Pin<Box<dyn Future<Output = Result<Vec<Report>>> + 'a>>;

/// One line a scenario and store; its fn is `async fn run(&Bench) -> Result<Vec<Report>>`.
#[rustfmt::skip]
const ALL: &[Scenario] = &[
    Scenario { name: "drain", store: Store::Postgres, run: |b| Box::pin(drain::run(b)) },
    Scenario { name: "drain_slow", store: Store::Postgres, run: |b| Box::pin(drain_slow::run(b)) },
    Scenario { name: "drain_retry", store: Store::Postgres, run: |b| Box::pin(failing::retry(b)) },
    Scenario { name: "drain_dlq", store: Store::Postgres, run: |b| Box::pin(failing::dlq(b)) },
    Scenario { name: "publish", store: Store::Postgres, run: |b| Box::pin(publish::run(b)) },
    Scenario { name: "publish_batch", store: Store::Postgres, run: |b| Box::pin(publish_batch::run(b)) },
    Scenario { name: "end_to_end", store: Store::Postgres, run: |b| Box::pin(end_to_end::run(b)) },
    Scenario { name: "latency", store: Store::Postgres, run: |b| Box::pin(latency::run(b)) },
    Scenario { name: "trickle", store: Store::Postgres, run: |b| Box::pin(trickle::run(b)) },
    Scenario { name: "timer", store: Store::Postgres, run: |b| Box::pin(timer::run(b)) },
    Scenario { name: "backlog", store: Store::Postgres, run: |b| Box::pin(backlog::run(b)) },
    Scenario { name: "payloads", store: Store::Postgres, run: |b| Box::pin(payloads::run(b)) },
    Scenario { name: "published_together", store: Store::Postgres, run: |b| Box::pin(published_together::run(b)) },
    Scenario { name: "held_snapshot", store: Store::Postgres, run: |b| Box::pin(held_snapshot::run(b)) },
    Scenario { name: "in_flight", store: Store::Postgres, run: |b| Box::pin(in_flight::run(b)) },
    Scenario { name: "queues", store: Store::Postgres, run: |b| Box::pin(queues::run(b)) },
    Scenario { name: "processes", store: Store::Postgres, run: |b| Box::pin(processes::run(b)) },
    #[cfg(feature = "peers")]
    Scenario { name: "peers", store: Store::Postgres, run: |b| Box::pin(peers::run(b)) },
    Scenario { name: "drain", store: Store::Sqlite, run: |b| Box::pin(sqlite_drain::run(b)) },
    Scenario { name: "publish", store: Store::Sqlite, run: |b| Box::pin(sqlite_publish::run(b)) },
    Scenario { name: "testbroker", store: Store::Memory, run: |b| Box::pin(testbroker::run(b)) },
    Scenario { name: "build", store: Store::Memory, run: |b| Box::pin(build::run(b)) },
];

/// Those that are asked for, `all` or one; of one that several stores have, the first.
pub fn chosen(args: &Args) -> Result<Vec<&'static Scenario>> {
    let of_store = ALL.iter().filter(|one| args.store.is_none_or(|store| one.store == store));
    let chosen: Vec<_> = match args.scenario.as_str() {
        "all" => of_store.collect(),
        name => of_store.filter(|one| one.name == name).take(1).collect(),
    };
    if chosen.is_empty() {
        let there_are: Vec<_> =
            ALL.iter().map(|one| format!("  {} --store {}", one.name, one.store)).collect();
        bail!("there is no such scenario; there are `all` and\n{}", there_are.join("\n"));
    }
    Ok(chosen)
}

impl Scenario {
    /// Its reports, or why there are none; its databases are gone either way.
    pub async fn run(&self, bench: &Bench) -> Vec<Line> {
        let ran = tokio::time::timeout(LIMIT, (self.run)(bench)).await;
        let ran = ran.unwrap_or_else(|_| bail!("not over after {LIMIT:?}"));
        let cleaned = bench.clean().await.context("its databases could not be dropped");
        match ran.and_then(|reports| cleaned.map(|()| reports)) {
            Ok(reports) => reports.into_iter().map(|one| Line::Report(Box::new(one))).collect(),
            Err(error) => vec![Line::Failed {
                scenario: self.name.to_owned(),
                store: self.store.to_string(),
                failed: format!("{error:#}"),
            }],
        }
    }
}

impl std::fmt::Display for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
            Self::Memory => "memory",
        })
    }
}
