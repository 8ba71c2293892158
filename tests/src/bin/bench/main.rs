//! Measures the engine against loops written by hand for the same work: in one
//! process, in turns, a ratio at the end.

mod ceiling;
mod db;
mod meter;
mod report;
mod rounds;
mod scenario;
mod server;

use clap::Parser;

/// Prints one line of JSON a scenario; `all` prints a table.
#[derive(Parser, Clone)]
pub struct Args {
    /// `all`, or the name of a scenario.
    scenario: String,
    #[arg(long, default_value = "postgres")]
    store: String,
    /// Instead of the scenario's own number.
    #[arg(long)]
    messages: Option<u64>,
    /// Of each: the app and its ceiling.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only the JSON.
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let server = server::Server::of_environment_or_own().await?;
    let reports = scenario::run(&args, &server.url).await?;
    report::print(&reports, args.json);
    Ok(())
}
