//! The command line: one set of commands, which you mount in your own program or run as the
//! program `outbox`.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! #[tokio::main]
//! async fn main() -> ExitCode {
//!     // What fails for good is deleted unless OUTBOX_DLQ_TABLE names a table for it.
//!     outbox::cli::run(outbox::App::from_env()).await
//! }
//! ```
//!
//! A mounted command line knows the handlers of its program. `run` runs them, and the commands
//! that decode messages use them.
//!
#![doc = include_str!("../docs/cli.md")]

mod bench;
mod cancel_timer;
mod check;
mod confirm;
mod dlq;
mod doctor;
mod explain;
mod interrupted;
mod migrate;
mod output;
mod pause;
mod peek;
mod publish;
mod queues;
mod resume;
mod run;
mod stats;
mod why;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::output::Output;
use crate::app::App;
use crate::dlq::DeadLetters;
use crate::error::{BoxError, Error};
use crate::ops::Operator;
use crate::publish::PublishError;

/// Transactional messaging: look at what waits and what failed, and mend it.
///
/// The environment names the tables: DATABASE_URL (unset: the SQLite file `outbox.db` in the
/// current folder), OUTBOX_TABLE, OUTBOX_SCHEMA, OUTBOX_DLQ_TABLE. A wrong value of another
/// variable of the library fails every command, too.
///
/// Exit codes: 0 done, 1 failed or something bad was found, 2 wrong arguments, 3 nobody
/// agreed.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    /// Print one JSON document to standard output, and nothing else there.
    #[arg(long, global = true, display_order = 900)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Migrate(migrate::Migrate),
    Check(check::Check),
    Stats(stats::Stats),
    Queues(queues::Queues),
    Peek(peek::Peek),
    Publish(publish::Publish),
    CancelTimer(cancel_timer::CancelTimer),
    Pause(pause::Pause),
    Resume(resume::Resume),
    Why(why::Why),
    Doctor(doctor::Doctor),
    Bench(bench::Bench),
    Dlq(Box<dlq::Dlq>),
}

/// How a command ended, if it did what it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    /// Exit code 0.
    Good,
    /// Something bad was found and told: exit code 1.
    Bad,
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
enum Trouble {
    /// Exit code 1.
    Failed(BoxError),
    /// Exit code 2, as for arguments that clap refuses.
    Usage(String),
    /// Nobody agreed: exit code 3.
    Refused(String),
}

impl Trouble {
    /// Fails if arguments are wrong; `wrong` has a sentence for each.
    fn usage(wrong: &[String]) -> Result<(), Self> {
        if wrong.is_empty() { Ok(()) } else { Err(Self::Usage(wrong.join("; "))) }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            // Refused before the first statement: a name, a payload, an option.
            Error::Publish(refused) if !matches!(refused, PublishError::Store(_)) => {
                Self::Usage(refused.to_string())
            }
            error => Self::Failed(error.into()),
        }
    }
}

/// What a command works with.
struct Context {
    app: App,
    out: Output,
}

impl Context {
    /// The tables. This fails with every mistake in the environment.
    fn operator(&self) -> Result<Operator, Trouble> {
        Ok(self.app.operator()?)
    }

    /// The dead letters. This fails as [`operator`](Self::operator) does.
    fn letters(&self) -> Result<DeadLetters, Trouble> {
        Ok(self.operator()?.dead_letters())
    }

    /// The queues that this program reads, each with the name of its subscriber.
    fn subscribed(&self) -> Vec<(String, &'static str)> {
        let all = self.app.subscribers().into_iter();
        all.flat_map(|one| {
            let name = one.name();
            one.queues().iter().map(|queue| (queue.clone(), name)).collect::<Vec<_>>()
        })
        .collect()
    }
}

/// Runs the command that the arguments of this process name. The result is the exit code for
/// `main` to return.
///
/// # Cancel safety
/// What a dropped call has done so far is complete: a command that changes many rows does so in
/// statements that each stand for themselves.
pub async fn run(app: App) -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // `--help` is an error here, too. A pipe that is closed does not matter.
        Err(error) => {
            let asked =
                std::env::args_os().take_while(|one| one != "--").any(|one| one == "--json");
            if error.use_stderr() && asked {
                let text = error.render().to_string();
                let text = text.trim();
                Output::new(true).error(text.strip_prefix("error: ").unwrap_or(text));
            } else {
                let _ = error.print();
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let context = Context { app, out: Output::new(cli.json) };
    let done = match cli.command {
        Command::Run(command) => command.run(&context).await,
        Command::Migrate(command) => command.run(&context).await,
        Command::Check(command) => command.run(&context).await,
        Command::Stats(command) => command.run(&context).await,
        Command::Queues(command) => command.run(&context).await,
        Command::Peek(command) => command.run(&context).await,
        Command::Publish(command) => command.run(&context).await,
        Command::CancelTimer(command) => command.run(&context).await,
        Command::Pause(command) => command.run(&context).await,
        Command::Resume(command) => command.run(&context).await,
        Command::Why(command) => command.run(&context).await,
        Command::Doctor(command) => command.run(&context).await,
        Command::Bench(command) => command.run(&context).await,
        Command::Dlq(command) => command.run(&context).await,
    };
    match done {
        Ok(Done::Good) if output::is_written() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(trouble) => {
            let (code, text) = match trouble {
                Trouble::Failed(error) => (1, explain::explain(&context.app, &error).await),
                Trouble::Usage(text) => (2, text),
                Trouble::Refused(text) => (3, text),
            };
            context.out.error(&text);
            ExitCode::from(code)
        }
    }
}
