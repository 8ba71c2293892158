//! Dead letters for operators: what is read of them.
//!
//! The statements are planned each time, for the parameters they have: what is good for one filter
//! is not good for another.

use std::time::SystemTime;

use sqlx::{Executor as _, Row as _};

use super::time::PgTime;
use super::{PgDesk, Statement, once};
use crate::dlq::{Filter, Letter, LetterPosition, Status, narrowed};
use crate::error::StoreError;
use crate::ops::failed::failed;
use crate::store::answers::letter;

type Result<T> = std::result::Result<T, StoreError>;

/// The conditions of a filter, for every statement over one.
const WHERE: &str = include_str!("sql/letters_where.sql");

impl PgDesk {
    /// A statement over the letters of a filter. The filter's words are its first parameters.
    pub(super) fn over(&self, text: &str, filter: &Filter, after: bool) -> Statement {
        let wants = |word: &str| if word == "after" { after } else { filter.wants(word) };
        once(&narrowed(&self.names, text, WHERE, wants))
            .bind(filter.ids.clone())
            .bind(filter.queue.clone())
            .bind(filter.reason.clone())
            .bind(filter.error_kind.clone())
            .bind(filter.fingerprint.clone())
            .bind(filter.since.map(PgTime))
            .bind(filter.until.map(PgTime))
    }

    /// The function is unqualified, so that a test can put another in its place.
    pub(crate) async fn clock(&self) -> Result<SystemTime> {
        let mut tx = self.reading("ask for the time").await?;
        let now = sqlx::query_scalar("SELECT clock_timestamp()").persistent(false);
        let PgTime(now) = now.fetch_one(&mut *tx).await.map_err(failed("ask for the time"))?;
        Ok(now)
    }

    pub(crate) async fn letters(
        &self,
        filter: &Filter,
        after: Option<LetterPosition>,
        limit: i64,
    ) -> Result<Vec<Letter>> {
        let failed = failed("list dead letters");
        let page = self.behind(include_str!("sql/letters_page.sql"), filter, after).bind(limit);
        let mut tx = self.reading("list dead letters").await?;
        if filter.ids.is_some() {
            // They are few, and read by their ids instead of in order.
            tx.execute("SET LOCAL enable_sort = on").await.map_err(&failed)?;
        }
        let rows = page.fetch_all(&mut *tx).await.map_err(&failed)?;
        rows.iter().map(|row| letter(row).map_err(&failed)).collect()
    }

    /// Which of these rows have become letters.
    pub(crate) async fn failed_again(&self, rows: &[i64], since: SystemTime) -> Result<Vec<i64>> {
        let failed = failed("look for letters of replayed rows");
        let text = self.names.sql(include_str!("sql/letters_again.sql"));
        let mut tx = self.reading("look for letters of replayed rows").await?;
        let mut again = Vec::new();
        for status in Status::ALL {
            let look = once(&text).bind(rows.to_vec()).bind(PgTime(since)).bind(status.as_str());
            for row in look.fetch_all(&mut *tx).await.map_err(&failed)? {
                again.push(row.try_get(0).map_err(&failed)?);
            }
        }
        Ok(again)
    }
}
