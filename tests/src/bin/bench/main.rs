//! Measures the engine against loops written by hand for the same work: in one
//! process, in turns, a ratio at the end.

mod bench;
mod ceiling;
mod consumer;
mod counters;
mod db;
mod file;
mod load;
mod meter;
mod report;
mod rounds;
mod scenario;
mod server;
mod sessions;
mod table;
mod tally;

use std::process::ExitCode;

use anyhow::{Result, bail};
use bench::Bench;
use clap::Parser;
use report::Line;
use scenario::{Scenario, Store};
use tokio::signal::unix::{SignalKind, signal};

/// Prints a table, and for a single scenario its JSON. Fails when a bar is missed.
#[derive(Parser, Clone)]
pub struct Args {
    /// `all`, or the name of a scenario; an unknown one lists those there are.
    scenario: String,
    /// Only this store's; without it, all stores of `all`, the first of a scenario.
    #[arg(long)]
    store: Option<Store>,
    /// Instead of the scenario's own number.
    #[arg(long)]
    messages: Option<u64>,
    /// Instead of the scenario's own duration, where it has one.
    #[arg(long)]
    seconds: Option<u64>,
    /// Of each: the app and its ceiling. The ratio is the median of the rounds'.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only the JSON.
    #[arg(long)]
    json: bool,
    /// What `processes` starts this program for.
    #[arg(long, hide = true)]
    consume: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all bars are met.
async fn run(args: Args) -> Result<bool> {
    if args.consume {
        consumer::consume().await?;
        return Ok(true);
    }
    let chosen = scenario::chosen(&args)?;
    let bench = Bench::new(args);
    let mut lines = Vec::new();
    let mut terminate = signal(SignalKind::terminate())?;
    // Dropping the bench stops a server of our own.
    tokio::select! {
        () = measure(&bench, chosen, &mut lines) => {}
        _ = terminate.recv() => bail!("terminated"),
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    }
    if !bench.args.json {
        table::print(&lines, &bench.machine().await);
        // A scenario's last line; `all` is a table and no more.
        if bench.args.scenario != "all" {
            lines.iter().for_each(|line| println!("{}", line.json()));
        }
    }
    Ok(lines.iter().all(Line::met))
}

async fn measure(bench: &Bench, chosen: Vec<&Scenario>, lines: &mut Vec<Line>) {
    for scenario in chosen {
        eprintln!("{} on {}", scenario.name, scenario.store);
        for line in scenario.run(bench).await {
            if bench.args.json {
                println!("{}", line.json());
            }
            lines.push(line);
        }
    }
}
