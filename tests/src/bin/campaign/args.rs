//! What to run, and for how long.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as Group, Parser, Subcommand, ValueEnum};

/// Runs apps and producers as processes of their own, breaks everything around them, and
/// compares what the server saw with what is promised. Fails on a violation, and when
/// something that has to happen did not happen often enough to prove anything.
#[derive(Parser, Clone)]
pub struct Args {
    /// At most eight minutes. The default.
    #[arg(long, conflicts_with_all = ["long", "minutes"])]
    fast: bool,
    /// More than an hour.
    #[arg(long, conflicts_with = "minutes")]
    long: bool,
    /// In all so many minutes. Counts are told, and none is asked for.
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
    /// Of messages and faults; without it one is made up, and told.
    #[arg(long)]
    pub seed: Option<u64>,
    #[arg(long, value_enum, default_value_t = Store::Postgres)]
    pub store: Store,
    /// Only the last line, as JSON.
    #[arg(long)]
    pub json: bool,
    /// Fails unless one of these properties is violated: the library has a bug of
    /// `scripts/planted`.
    #[arg(long, value_name = "ID", value_delimiter = ' ')]
    pub breaks: Vec<String>,
    #[command(subcommand)]
    pub part: Option<Part>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Store {
    Postgres,
    Sqlite,
}

/// What the campaign starts this program for.
#[derive(Subcommand, Clone)]
pub enum Part {
    #[command(hide = true)]
    Worker(Seat),
    #[command(hide = true)]
    Producer(Seat),
}

#[derive(Group, Clone)]
pub struct Seat {
    pub url: String,
    /// Of this process alone: also its application name.
    pub name: String,
    pub folder: PathBuf,
    pub seed: u64,
}

/// How long each part of a run takes, and what it has to reach.
#[derive(Clone, Copy)]
pub struct Course {
    /// Without faults, for a rate to compare with.
    pub calm: Duration,
    pub faults: Duration,
    /// Which doses of faults it has.
    pub long: bool,
    /// Drains while nothing else is wrong.
    pub drains: usize,
    pub goals: Option<Goals>,
}

#[derive(Clone, Copy)]
pub struct Goals {
    pub faults: usize,
    pub messages: usize,
    /// Floors of what has to happen now and then, times this.
    pub floors: usize,
    /// It takes no longer.
    pub seconds: Option<f64>,
}

impl Args {
    /// A file has one writer at a time, and takes less.
    pub fn course(&self) -> Course {
        let seconds = Duration::from_secs;
        if let Some(minutes) = self.minutes {
            let all = minutes * 60;
            return Course {
                calm: seconds(all / 6),
                faults: seconds(all / 2),
                long: false,
                drains: 3,
                goals: None,
            };
        }
        let file = self.store == Store::Sqlite;
        if self.long {
            let messages = if file { 15_000 } else { 100_000 };
            let faults = if file { 1_000 } else { 2_000 };
            let goals = Goals { faults, messages, floors: 10, seconds: None };
            let faults = seconds(64 * 60);
            return Course {
                calm: seconds(60),
                faults,
                long: true,
                drains: 30,
                goals: Some(goals),
            };
        }
        let messages = if file { 2_000 } else { 6_000 };
        let goals = Goals { faults: 110, messages, floors: 1, seconds: Some(480.0) };
        Course {
            calm: seconds(60),
            faults: seconds(270),
            long: false,
            drains: 6,
            goals: Some(goals),
        }
    }
}
