//! A large dead-letter table is cut into months. Each month is dropped as a whole.

use std::time::SystemTime;

use serde::Serialize;

use super::DeadLetters;
use crate::error::Result;
use crate::ops::Desk;

/// What the owner of the table does with it, as errors name it.
pub(crate) const CUT: &str = "cut the dead letters into months";
pub(crate) const DROP: &str = "drop months of dead letters";

/// A month of letters, in a table of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partition {
    /// The name of its table.
    pub name: String,
    /// Its letters failed at this time or later; `None` for the table that takes letters of no
    /// month.
    pub from: Option<SystemTime>,
    /// Its letters failed before this time; `None` as for `from`.
    pub until: Option<SystemTime>,
    /// How many letters it has.
    pub letters: u64,
    /// How many of them are open.
    pub open: u64,
}

/// What [`DeadLetters::partition`] did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Partitioned {
    /// Whether the letters were in one table before.
    pub converted: bool,
    /// The names of the months' tables that were made.
    pub made: Vec<String>,
    /// How many letters moved into them.
    pub moved: u64,
}

/// A month that was dropped, or kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Dropped {
    /// The name of its table.
    pub name: String,
    /// How many letters it had.
    pub letters: u64,
    /// How many of them were open.
    pub open: u64,
    /// Whether it was dropped. `false` if it was kept because of its open letters.
    pub dropped: bool,
}

impl Dropped {
    /// For a month that is kept.
    #[cfg(feature = "cli")]
    pub(crate) fn kept(month: &Partition) -> Self {
        let Partition { name, letters, open, .. } = month;
        Self { name: name.clone(), letters: *letters, open: *open, dropped: false }
    }
}

impl DeadLetters {
    /// The months of the table, and how many letters each has; none if it is one table. It counts
    /// the letters: on a large table this takes time.
    ///
    /// # Errors
    /// On PostgreSQL, when there is no dead-letter table, or a statement fails.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn partitions(&self) -> Result<Vec<Partition>> {
        match &self.operator.desk {
            #[cfg(feature = "postgres")]
            Desk::Postgres(desk) => Ok(desk.partitions().await?),
            #[cfg(feature = "sqlite")]
            Desk::Sqlite(_) => Ok(Vec::new()),
        }
    }

    /// Cuts the table into months of UTC. If it is cut already, makes the months that it lacks.
    /// `months_ahead` months, at most 120, are made before they begin. PostgreSQL only.
    ///
    /// - It is one transaction, in which nobody else reads or writes letters: messages that fail
    ///   meanwhile wait in the outbox.
    /// - Letters keep their ids. The table keeps its columns, its privileges and the indexes of
    ///   this library.
    /// - A letter whose month has no table goes to the table `<dlq>_default`. It moves into its
    ///   month when this runs again. For triggers of the table and for publications this is a
    ///   deletion without an insertion: make the months ahead of time.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn cut(letters: outbox::dlq::DeadLetters) -> outbox::Result<()> {
    /// let done = letters.partition(3).await?;
    /// println!("{} letters moved into {:?}", done.moved, done.made);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - On SQLite.
    /// - When something would be left behind with the old table: triggers, rules, row-level
    ///   security, a tablespace, settings of its storage, a replica identity, generated columns,
    ///   identity columns other than the id, indexes of others, extended statistics, a place in a
    ///   publication, foreign keys of it or to it, views, functions and policies of other tables
    ///   that read it, or functions and columns whose type is a letter of it.
    /// - When others keep it locked.
    /// - When a statement fails.
    ///
    /// # Cancel safety
    /// A dropped call leaves everything or nothing.
    pub async fn partition(&self, months_ahead: u32) -> Result<Partitioned> {
        match &self.operator.desk {
            #[cfg(feature = "postgres")]
            Desk::Postgres(desk) => Ok(desk.partition(months_ahead).await?),
            #[cfg(feature = "sqlite")]
            Desk::Sqlite(_) => {
                let _ = months_ahead;
                Err(none_on_sqlite())
            }
        }
    }

    /// Drops the months whose letters all failed before a time, and says how many letters each
    /// had. A month with open letters is kept unless `with_open` is true. PostgreSQL only.
    ///
    /// It is one transaction, in which nobody else reads or writes letters, because it counts
    /// the letters of these months.
    ///
    /// # Errors
    /// - On SQLite.
    /// - When there is no such table, or it was never cut into months.
    /// - When others keep it locked.
    /// - When a statement fails.
    ///
    /// # Cancel safety
    /// A dropped call leaves everything or nothing.
    pub async fn drop_partitions(
        &self,
        before: SystemTime,
        with_open: bool,
    ) -> Result<Vec<Dropped>> {
        self.drop_agreed(before, with_open, None).await
    }

    /// Works as [`drop_partitions`](Self::drop_partitions), but drops only months that were
    /// agreed to.
    pub(crate) async fn drop_agreed(
        &self,
        before: SystemTime,
        with_open: bool,
        agreed: Option<&[&str]>,
    ) -> Result<Vec<Dropped>> {
        match &self.operator.desk {
            #[cfg(feature = "postgres")]
            Desk::Postgres(desk) => {
                let gone = desk.drop_partitions(before, with_open, agreed).await?;
                for month in &gone {
                    crate::telemetry::info!(
                        target: crate::telemetry::TARGET, table = month.name,
                        letters = month.letters, open = month.open, dropped = month.dropped,
                        "a month of dead letters was looked at"
                    );
                }
                Ok(gone)
            }
            #[cfg(feature = "sqlite")]
            Desk::Sqlite(_) => {
                let _ = (before, with_open, agreed);
                Err(none_on_sqlite())
            }
        }
    }
}

#[cfg(feature = "sqlite")]
fn none_on_sqlite() -> crate::Error {
    crate::Error::Config(vec!["SQLite has no partitions: purge old letters instead".into()])
}
