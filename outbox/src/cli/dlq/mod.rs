//! `dlq`: the life of a dead letter.

mod dry_run;
mod groups;
mod left;
mod list;
mod mark;
mod partitions;
mod purge;
mod replay;
mod selection;
mod show;
mod shown;

use clap::{Args, Subcommand};

use super::{Context, Done, Trouble};
use crate::dlq::{DeadLetters, Status};

/// Look at dead letters, put them back, close them, delete them.
#[derive(Debug, Args)]
pub(super) struct Dlq {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Groups(groups::Groups),
    List(list::List),
    Show(show::Show),
    Replay(replay::ReplayLetters),
    /// Mark open letters as dealt with.
    Resolve(mark::Mark),
    /// Mark open letters as not worth dealing with.
    Ignore(mark::Mark),
    Purge(purge::Purge),
    Partition(partitions::Cut),
    DropPartitions(partitions::DropMonths),
}

impl Dlq {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        match self.command {
            Command::Groups(command) => command.run(context).await,
            Command::List(command) => command.run(context).await,
            Command::Show(command) => command.run(context).await,
            Command::Replay(command) => command.run(context).await,
            Command::Resolve(command) => command.run(context, Status::Resolved, "resolve").await,
            Command::Ignore(command) => command.run(context, Status::Ignored, "ignore").await,
            Command::Purge(command) => command.run(context).await,
            Command::Partition(command) => command.run(context).await,
            Command::DropPartitions(command) => command.run(context).await,
        }
    }
}
