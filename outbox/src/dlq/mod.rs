//! Dead letters: list them, replay them, resolve them, ignore them, purge them.
//!
//! A dead letter (a letter, for short) is `failed`, or open, until somebody deals with it:
//!
//! - [`DeadLetters::replay`] puts its message back into the outbox and marks it `resolved`.
//! - [`DeadLetters::resolve`] marks it `resolved` without a replay.
//! - [`DeadLetters::ignore`] marks it `ignored`.
//! - [`DeadLetters::purge`] deletes letters for good.
#![doc = include_str!("../docs/dlq.md")]

mod act;
mod audit;
mod canary;
mod cursor;
mod dry_run;
mod filter;
mod groups;
mod letter;
mod named;
mod partitions;
mod read;
mod replay;
mod replay_in;
mod statement;

pub use canary::{Canary, CanaryOutcome};
pub use cursor::{Cursor, CursorError};
pub use dry_run::{DryOutcome, DryRun, WouldBe};
pub use filter::Filter;
pub use groups::{Groups, Problem};
pub use letter::{Letter, Opened, Status, StatusError};
pub(crate) use partitions::{CUT, DROP};
pub use partitions::{Dropped, Partition, Partitioned};
pub use read::Page;
pub use replay::{Kept, Replay, ReplayReport, Replayed};
pub use replay_in::ReplayTransaction;

pub(crate) use act::Mark;
#[cfg(feature = "cli")]
pub(crate) use act::to_purge;
#[cfg(feature = "cli")]
pub(crate) use audit::few;
pub(crate) use cursor::LetterPosition;
pub(crate) use groups::Unmarked;
pub(crate) use replay::Moved;
pub(crate) use statement::narrowed;

use crate::ops::Operator;

/// How many letters one statement writes to at most. No statement takes long, and a process
/// that is killed has finished whole batches.
pub(crate) const BATCH: u32 = 500;
/// How many bytes are put back in one transaction, and one letter more.
pub(crate) const BATCH_BYTES: i64 = 8 << 20;

/// The dead letters of one table. [`Operator::dead_letters`] makes it; it is cheap to clone.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # #[cfg(feature = "sqlite")] {
/// # let folder = std::env::temp_dir().join(format!("outbox-dlq-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let url = format!("sqlite:{}", folder.join("shop.db").display());
/// use outbox::dlq::{Filter, Replay};
///
/// let pool = outbox::sqlite::connect(&url).await?;     // "sqlite:shop.db"
/// outbox::migrate(&pool).await?;
/// let operator = outbox::ops::Operator::sqlite(pool, outbox::TableNames::default());
///
/// let letters = operator.dead_letters();
/// for problem in letters.groups(&Filter::new(), 10).await?.problems {
///     println!("{} times: {:?}", problem.letters, problem.sample);
/// }
/// let report = letters.replay(&Filter::new().queue("orders"), &Replay::new()).await?;
/// println!("{} are on their way again", report.replayed);
/// # std::fs::remove_dir_all(folder).unwrap();
/// # }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct DeadLetters {
    pub(crate) operator: Operator,
}

impl Operator {
    /// The dead letters. If no dead-letter table is configured, they are those in
    /// `<table>_dlq`.
    #[must_use]
    pub fn dead_letters(&self) -> DeadLetters {
        DeadLetters { operator: self.clone() }
    }
}
