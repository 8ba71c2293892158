//! The fault campaign: real processes, a real server, everything broken at once, and the
//! server's own record of what was done to every row.

mod args;
mod check;
mod faults;
mod fleet;
mod history;
mod journal;
mod lease;
mod net;
mod producer;
mod report;
mod run;
mod size;
mod sometimes;
mod worker;
mod workload;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use args::{Args, Part};
use clap::Parser;
use outbox_tests::backend::unique;
use outbox_tests::server::scratch;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    match start(Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn start(args: Args) -> Result<bool> {
    match args.part.clone() {
        Some(Part::Worker(seat)) => worker::work(seat).await.map(|()| true),
        Some(Part::Producer(seat)) => producer::produce(seat).await.map(|()| true),
        None => {
            let mut terminate = signal(SignalKind::terminate())?;
            // Dropping the campaign ends its processes and its server.
            tokio::select! {
                done = campaign(&args) => done,
                _ = terminate.recv() => bail!("terminated"),
                _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            }
        }
    }
}

/// True when nothing was violated, and nothing missed; or what a bug breaks was.
async fn campaign(args: &Args) -> Result<bool> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(1_000_000..10_000_000));
    eprintln!("seed {seed}");
    let folder = folder()?;
    let report = run::run(args, folder.clone(), seed).await?;
    if !args.json {
        report.print();
    }
    println!("{}", report.json());
    let is_caught = report
        .verdicts
        .iter()
        .any(|it| !it.broken.is_empty() && args.breaks.iter().any(|id| id == it.id));
    let good = match args.breaks[..] {
        [] => report.violations() == 0 && report.missed.is_empty(),
        _ => is_caught,
    };
    if report.violations() == 0 || is_caught {
        std::fs::remove_dir_all(folder)?;
    } else {
        eprintln!("what the processes wrote is in {}", folder.display());
    }
    Ok(good)
}

/// An empty one, for what processes write.
fn folder() -> Result<PathBuf> {
    let folder = scratch().join(unique("outbox-campaign"));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
