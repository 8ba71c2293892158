//! A large dead-letter table in months, each of which goes as a whole.

use std::time::SystemTime;

use serde::Serialize;

use super::DeadLetters;
use crate::error::Result;
use crate::ops::Desk;

/// What its owner does with the table, as errors name it.
pub(crate) const CUT: &str = "cut the dead letters into months";
pub(crate) const DROP: &str = "drop months of dead letters";

/// A month of letters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partition {
    /// The name of its table.
    pub name: String,
    /// Its letters failed at this time or later; `None` for the table that takes those
    /// of no month.
    pub from: Option<SystemTime>,
    /// Its letters failed before this time.
    pub until: Option<SystemTime>,
    /// How many letters it has.
    pub letters: u64,
    /// How many of them nobody has dealt with.
    pub open: u64,
}

/// What became of a table that was cut into months.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Partitioned {
    /// It was one table before.
    pub converted: bool,
    /// Months that were made.
    pub made: Vec<String>,
    /// Letters that went into them.
    pub moved: u64,
}

/// A month that is gone, or that was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Dropped {
    /// The name of its table.
    pub name: String,
    /// How many letters it had.
    pub letters: u64,
    /// How many of them nobody had dealt with.
    pub open: u64,
    /// False if it was left because of these.
    pub dropped: bool,
}

impl Dropped {
    /// Of a month that stays.
    #[cfg(feature = "cli")]
    pub(crate) fn kept(month: &Partition) -> Self {
        let Partition { name, letters, open, .. } = month;
        Self { name: name.clone(), letters: *letters, open: *open, dropped: false }
    }
}

impl DeadLetters {
    /// The months that the table has, and how many letters each; none if it is one table.
    /// It counts them: on a large table not at once.
    ///
    /// # Errors
    /// When there is no dead-letter table, or a statement fails.
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

    /// Cuts the table into months of UTC, with so many still to come, or makes the months
    /// that it lacks. PostgreSQL only. In one transaction, in which nobody else reads or
    /// writes letters: those that fail meanwhile wait in the outbox. Letters keep their
    /// ids; columns, privileges and our indexes stay. A letter of no month goes to the table
    /// `<dlq>_default`, and from there into its month when this runs again.
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
    /// On SQLite; when the table has triggers, row-level security, generated or identity columns
    /// or indexes of others, is in a publication, or is referred to by foreign keys or views,
    /// which would be left behind; when others keep it locked; when a statement fails.
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

    /// Drops months whose letters all failed before a time, and says how many letters
    /// each had. One with open letters stays unless `with_open`. PostgreSQL only. In one
    /// transaction, in which nobody else reads or writes letters: it counts those of the
    /// months.
    ///
    /// # Errors
    /// On SQLite; when the table was never cut into months; when others keep it locked; when a
    /// statement fails.
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

    /// As [`drop_partitions`](Self::drop_partitions), but none beside those named.
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
                    tracing::info!(
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
