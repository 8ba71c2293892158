//! Dead letters for operators: a page of them.

use std::time::SystemTime;

use sqlx::Executor as _;

use super::PgDesk;
use super::time::PgTime;
use crate::dlq::{Filter, Letter, LetterPosition};
use crate::error::StoreError;
use crate::store::Result;
use crate::store::answers::letter;

impl PgDesk {
    /// The function is unqualified, so that a test can put another in its place.
    pub(crate) async fn clock(&self) -> Result<SystemTime> {
        let mut tx = self.reading("ask for the time").await?;
        let now = sqlx::query_scalar("SELECT clock_timestamp()").persistent(false);
        let now = now.fetch_one(&mut *tx).await;
        now.map(|PgTime(now)| now).map_err(StoreError::of("ask for the time"))
    }

    pub(crate) async fn letters(
        &self,
        filter: &Filter,
        after: Option<LetterPosition>,
        limit: i64,
    ) -> Result<Vec<Letter>> {
        let failed = StoreError::of("list dead letters");
        let page = self.behind(include_str!("sql/letters_page.sql"), filter, after).bind(limit);
        let mut tx = self.reading("list dead letters").await?;
        if filter.ids.is_some() {
            // They are few, and read by their ids instead of in order.
            tx.execute("SET LOCAL enable_sort = on").await.map_err(&failed)?;
        }
        let rows = page.fetch_all(&mut *tx).await.map_err(&failed)?;
        rows.iter().map(|row| letter(row).map_err(&failed)).collect()
    }
}
