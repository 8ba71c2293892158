//! Resolves, ignores and purges letters, in batches.

use std::time::Duration;

use super::audit::Audit;
use super::{BATCH, DeadLetters, Filter, Status};
use crate::error::Result;
use crate::ops::on_desk;
use crate::subscriber::{MAX_EXCEPTION_BYTES, storable};

/// What open letters become.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) status: Status,
    /// `None` keeps the note that is there.
    pub(crate) note: Option<String>,
}

impl DeadLetters {
    /// Marks open letters as dealt with, and returns how many. A new note replaces the note that
    /// a letter has.
    ///
    /// A letter that failed later than it is now by the database's clock, which was perhaps set
    /// back, is left alone unless the filter names its id. On PostgreSQL so is a letter that somebody
    /// else has locked. So are letters that fail while it runs, unless that clock is set back
    /// meanwhile.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # #[cfg(feature = "sqlite")] {
    /// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
    /// # let operator = outbox::ops::Operator::sqlite(pool, outbox::TableNames::default());
    /// # operator.migrate().await?;
    /// # let letters = operator.dead_letters();
    /// use outbox::dlq::Filter;
    ///
    /// letters.resolve(&Filter::new().ids([7, 9]), Some("refunded by hand")).await?;
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When a statement fails. The batches before it are done.
    ///
    /// # Cancel safety
    /// A dropped call leaves each batch of 500 letters either marked or as it was.
    pub async fn resolve(&self, filter: &Filter, note: Option<&str>) -> Result<u64> {
        self.mark(filter, Status::Resolved, note, u64::MAX, |_| ()).await
    }

    /// Marks open letters as not worth dealing with, and returns how many. Otherwise it works as
    /// [`resolve`](Self::resolve).
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    ///
    /// # Cancel safety
    /// As [`resolve`](Self::resolve).
    pub async fn ignore(&self, filter: &Filter, note: Option<&str>) -> Result<u64> {
        self.mark(filter, Status::Ignored, note, u64::MAX, |_| ()).await
    }

    /// Marks at most `most` letters, and tells `done` after each batch how many so far.
    pub(crate) async fn mark(
        &self,
        filter: &Filter,
        status: Status,
        note: Option<&str>,
        most: u64,
        done: impl FnMut(u64),
    ) -> Result<u64> {
        let audit = Audit::of(status.as_str(), filter);
        let open = self.open_letters(filter).await?;
        let note = note.map(|note| storable(note, MAX_EXCEPTION_BYTES).into_owned());
        self.write(audit, &[open], Some(&Mark { status, note }), most, done).await
    }

    /// Marks at most `most` letters of these filters, or deletes them, in batches.
    async fn write(
        &self,
        mut audit: Audit<'_>,
        parts: &[Filter],
        mark: Option<&Mark>,
        most: u64,
        mut done: impl FnMut(u64),
    ) -> Result<u64> {
        for part in parts {
            let mut after = None;
            loop {
                let left = i64::try_from(most - audit.letters).unwrap_or(i64::MAX);
                let batch = left.min(i64::from(BATCH));
                if batch == 0 {
                    break;
                }
                let written = on_desk!(self.operator, desk => match mark {
                    Some(mark) => desk.mark(part, after, mark, batch).await,
                    None => desk.purge(part, after, batch).await,
                })?;
                // The next batch begins behind the last letter: none is looked at twice.
                after = written.iter().max().copied();
                if after.is_none() {
                    break;
                }
                audit.letters += written.len() as u64;
                done(audit.letters);
            }
        }
        audit.whole = true;
        Ok(audit.letters)
    }

    /// Deletes letters for good, and returns how many. Of each status, the oldest go first.
    ///
    /// - Without a status in the filter, it deletes resolved and ignored letters, never open
    ///   ones.
    /// - Letters that fail while it runs are left alone, unless the database's clock is set back
    ///   meanwhile: it tells which these are.
    /// - So are letters that failed later than it is now by the database's clock, which was perhaps
    ///   set back, unless the filter names their ids.
    /// - On PostgreSQL, so are letters that somebody else has locked.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # #[cfg(feature = "sqlite")] {
    /// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
    /// # let operator = outbox::ops::Operator::sqlite(pool, outbox::TableNames::default());
    /// # operator.migrate().await?;
    /// # let letters = operator.dead_letters();
    /// use outbox::dlq::Filter;
    /// use std::time::Duration;
    ///
    /// let month_ago = letters.now().await? - Duration::from_secs(30 * 24 * 3600);
    /// letters.purge(&Filter::new().until(month_ago)).await?;
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When a statement fails. The batches before it are deleted.
    ///
    /// # Cancel safety
    /// A dropped call leaves each batch of 500 letters either deleted or as it was.
    pub async fn purge(&self, filter: &Filter) -> Result<u64> {
        self.purge_with(filter, |_| ()).await
    }

    /// Works as [`purge`](Self::purge), and tells `done` after each batch how many letters are
    /// deleted so far.
    ///
    /// # Errors
    /// As [`purge`](Self::purge).
    ///
    /// # Cancel safety
    /// As [`purge`](Self::purge).
    pub async fn purge_with(&self, filter: &Filter, done: impl FnMut(u64)) -> Result<u64> {
        self.purge_most(filter, u64::MAX, done).await
    }

    /// Works as [`purge_with`](Self::purge_with), but deletes at most `most` letters.
    pub(crate) async fn purge_most(
        &self,
        filter: &Filter,
        most: u64,
        done: impl FnMut(u64),
    ) -> Result<u64> {
        let audit = Audit::of("purged", filter);
        self.write(audit, &self.purged(filter).await?, None, most, done).await
    }

    /// Counts the letters that [`purge`](Self::purge) would delete.
    ///
    /// With a fingerprint in the filter it also writes: open letters without a fingerprint get
    /// theirs first, as in [`groups`](Self::groups).
    ///
    /// # Errors
    /// As [`count`](Self::count); with a fingerprint in the filter, also as
    /// [`groups`](Self::groups).
    ///
    /// # Cancel safety
    /// It only reads, except for fingerprints: a dropped call may have written some.
    pub async fn count_purged(&self, filter: &Filter) -> Result<u64> {
        let mut count = 0;
        for part in self.purged(filter).await? {
            count += self.count(&part).await?;
        }
        Ok(count)
    }

    /// What a purge deletes, one filter for each status: an index serves each.
    async fn purged(&self, filter: &Filter) -> Result<Vec<Filter>> {
        Ok(to_purge(&self.named_by_now(filter).await?))
    }

    /// The open letters of a filter that have failed by now.
    pub(crate) async fn open_letters(&self, filter: &Filter) -> Result<Filter> {
        self.named_by_now(&filter.open()).await
    }

    /// The letters of a filter that have failed by now. If it has a fingerprint, the missing ones
    /// are written first.
    async fn named_by_now(&self, filter: &Filter) -> Result<Filter> {
        if filter.fingerprint.is_some() {
            self.fingerprint_all().await?;
        }
        self.failed_by_now(filter).await
    }

    /// The letters of a filter that have failed by now. Letters that fail while the work goes on
    /// are no part of it: it might never end, and nobody has seen or counted them. If the clock is set
    /// back meanwhile, some are. Each batch begins behind the one before, so even then it ends.
    pub(crate) async fn failed_by_now(&self, filter: &Filter) -> Result<Filter> {
        let filter = filter.clone();
        if filter.ids.is_some() {
            return Ok(filter);
        }
        // SQLite's clock counts milliseconds: a letter that failed just now has the same time.
        let now = self.now().await? + Duration::from_micros(1);
        let until = filter.until.map_or(now, |until| until.min(now));
        Ok(filter.until(until))
    }

    /// Counts the letters of these filters that are ahead of the database's clock: a change
    /// leaves them alone. Each filter has a status.
    #[cfg(feature = "cli")]
    pub(crate) async fn ahead(&self, filters: &[Filter]) -> Result<u64> {
        let mut ahead = 0;
        for filter in filters.iter().filter(|filter| filter.ids.is_none()) {
            // In this order: a letter that fails in between is not ahead.
            let newest = self.newest(filter, None, 1).await?;
            let now = self.now().await?;
            if newest.first().is_some_and(|newest| newest.failed_at > now) {
                let since = filter.since.max(Some(now + Duration::from_micros(1)));
                ahead += self.count(&Filter { since, ..filter.clone() }).await?;
            }
        }
        Ok(ahead)
    }
}

/// What a purge of a filter deletes, one filter for each status.
pub(crate) fn to_purge(filter: &Filter) -> Vec<Filter> {
    match filter.status {
        Some(_) => vec![filter.clone()],
        None => [Status::Resolved, Status::Ignored].map(|one| filter.clone().status(one)).to_vec(),
    }
}
