//! Reading letters: pages of them, one of them, and how many there are.

use std::time::SystemTime;

use super::{Cursor, DeadLetters, Filter, Letter, LetterPosition, Opened, Status};
use crate::error::Result;
use crate::ops::on_desk;

/// One page of letters.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Page {
    /// The letters, the newest first.
    pub letters: Vec<Letter>,
    /// Where the next page begins; `None` on the last page.
    pub next: Option<Cursor>,
}

impl DeadLetters {
    /// Lists the letters of a filter, the newest first, at most `limit` of them, and at least one. `after` is the
    /// [`Page::next`] of the page before; without it, the first page is read.
    ///
    /// Letters that arrive while pages are read belong before the first page, so later pages
    /// do not have them. No letter is on two pages.
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
    /// let mut page = letters.list(&Filter::new(), None, 100).await?;
    /// while let Some(next) = page.next {
    ///     page = letters.list(&Filter::new(), Some(next), 100).await?;
    /// }
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When there is no dead-letter table, or the statement fails.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: u32) -> Result<Page> {
        let after = after.map(|cursor| cursor.0);
        let limit = usize::try_from(limit.max(1)).unwrap_or(usize::MAX);
        let mut letters = Vec::new();
        for part in parts(filter) {
            letters.extend(self.newest(&part, after, limit.saturating_add(1)).await?);
        }
        letters.sort_by_key(|letter| std::cmp::Reverse(place(letter)));
        // A letter that was dealt with between two statements may have been read by both.
        letters.dedup_by(|later, earlier| {
            let same = place(later) == place(earlier);
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        let more = letters.len() > limit;
        letters.truncate(limit);
        let next = letters.last().filter(|_| more).map(|last| Cursor(place(last)));
        Ok(Page { letters, next })
    }

    /// The letters that failed last. The filter has a status, a queue or ids: see [`parts`].
    pub(super) async fn newest(
        &self,
        filter: &Filter,
        after: Option<LetterPosition>,
        limit: usize,
    ) -> Result<Vec<Letter>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Ok(on_desk!(self.operator, desk => desk.letters(filter, after, limit).await)?)
    }

    /// Reads one letter with its payload and headers; `None` if no letter has this id.
    ///
    /// # Errors
    /// When there is no dead-letter table, or the statement fails.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn show(&self, id: i64) -> Result<Option<Opened>> {
        Ok(on_desk!(self.operator, desk => desk.open_letter(id).await)?)
    }

    /// Counts the letters of a filter. On a large table this takes time.
    ///
    /// # Errors
    /// When there is no dead-letter table, or the statement fails.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn count(&self, filter: &Filter) -> Result<u64> {
        Ok(on_desk!(self.operator, desk => desk.count_letters(filter).await)?)
    }

    /// The time by the database's clock, for [`Filter::since`] and [`Filter::until`].
    ///
    /// # Errors
    /// When the database does not answer.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn now(&self) -> Result<SystemTime> {
        Ok(on_desk!(self.operator, desk => desk.clock().await)?)
    }

    /// Whether a row of the queue has this timer name.
    pub(super) async fn has_timer(&self, queue: &str, timer_id: &str) -> Result<bool> {
        Ok(on_desk!(self.operator, desk => desk.has_timer(queue, timer_id).await)?)
    }
}

pub(super) fn place(letter: &Letter) -> LetterPosition {
    LetterPosition { failed_at: letter.failed_at, id: letter.id }
}

/// Splits a filter so that an index serves each part: no index spans all statuses.
fn parts(filter: &Filter) -> Vec<Filter> {
    if filter.status.is_some() || filter.queue.is_some() || filter.ids.is_some() {
        return vec![filter.clone()];
    }
    Status::ALL.map(|status| filter.clone().status(status)).to_vec()
}
