//! Dead letters for operators: a page of them.

use std::time::SystemTime;

use super::SqliteDesk;
use crate::dlq::{Filter, Letter, LetterPosition};
use crate::error::StoreError;
use crate::message::row::from_micros;
use crate::store::Result;
use crate::store::answers::letter;

impl SqliteDesk {
    pub(crate) async fn clock(&self) -> Result<SystemTime> {
        let now = "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
        let now = sqlx::query_scalar(now).fetch_one(self.pool()).await;
        now.map(from_micros).map_err(StoreError::of("ask for the time"))
    }

    pub(crate) async fn letters(
        &self,
        filter: &Filter,
        after: Option<LetterPosition>,
        limit: i64,
    ) -> Result<Vec<Letter>> {
        let page = self.behind(include_str!("sql/letters_page.sql"), filter, after).bind(limit);
        self.read("list dead letters", page, letter).await
    }
}
