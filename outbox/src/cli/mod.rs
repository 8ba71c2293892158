//! The command line: one set of commands, mounted in the user's own program or run as
//! the program `outbox`.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! #[tokio::main]
//! async fn main() -> ExitCode {
//!     outbox::cli::run(outbox::App::from_env()).await
//! }
//! ```
//!
//! Mounted, it knows the handlers of the program: `run` runs them, and what decodes
//! messages can.
//!
#![doc = include_str!("../docs/cli.md")]

mod bench;
mod check;
mod confirm;
mod doctor;
mod migrate;
mod output;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::output::Output;
use crate::app::App;
use crate::error::{BoxError, Error};
use crate::ops::Operator;

/// Transactional messaging on the tables that the environment names: DATABASE_URL,
/// OUTBOX_TABLE, OUTBOX_SCHEMA, OUTBOX_DLQ_TABLE.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    /// Print one JSON document to standard output, and nothing else there.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Migrate(migrate::Migrate),
    Check(check::Check),
    Doctor(doctor::Doctor),
    Bench(bench::Bench),
}

/// How a command ended, if it did what it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    /// Exit code 0.
    Good,
    /// What was found is bad, and was told: exit code 1.
    Bad,
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
enum Trouble {
    /// Exit code 1.
    Failed(BoxError),
    /// Exit code 2, as of arguments that clap refuses.
    #[allow(dead_code)] // until a command needs it
    Usage(String),
    /// Nobody agreed: exit code 3.
    Refused(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

/// What a command works with.
struct Context {
    app: App,
    out: Output,
}

impl Context {
    /// The tables. Fails with every mistake in the environment.
    fn operator(&self) -> Result<Operator, Trouble> {
        Ok(self.app.operator()?)
    }
}

/// Runs the command that the arguments of this process name. The exit code is for
/// `main` to return.
///
/// # Cancel safety
/// A dropped call leaves whole what it has done so far: commands that change many rows
/// do so in statements that each stand for themselves.
pub async fn run(app: App) -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // `--help` is one too. A pipe that is closed does not matter.
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let context = Context { app, out: Output::new(cli.json) };
    let done = match cli.command {
        Command::Run(command) => command.run(&context).await,
        Command::Migrate(command) => command.run(&context).await,
        Command::Check(command) => command.run(&context).await,
        Command::Doctor(command) => command.run(&context).await,
        Command::Bench(command) => command.run(&context).await,
    };
    match done {
        Ok(Done::Good) => ExitCode::SUCCESS,
        Ok(Done::Bad) => ExitCode::from(1),
        Err(trouble) => {
            let (code, text) = match trouble {
                Trouble::Failed(error) => (1, error.to_string()),
                Trouble::Usage(text) => (2, text),
                Trouble::Refused(text) => (3, text),
            };
            context.out.error(&text);
            ExitCode::from(code)
        }
    }
}
