//! Dead letters for operators: what is read of them. Each statement has only the conditions that
//! its filter needs, so that it can be read by the index which narrows most.

use std::time::SystemTime;

use sqlx::Row as _;

use super::claim::json;
use super::settle::Statement;
use super::{SqliteDesk, query};
use crate::dlq::{Filter, Letter, LetterPosition, Status, narrowed};
use crate::error::StoreError;
use crate::message::row::from_micros;
use crate::message::to_micros;
use crate::ops::failed::failed;
use crate::store::answers::letter;

type Result<T> = std::result::Result<T, StoreError>;

/// The conditions of a filter, for every statement over one. They say how likely they are, because
/// a likely condition narrows less. Without that, SQLite takes any index for a good one where
/// nobody ran ANALYZE.
const WHERE: &str = include_str!("sql/letters_where.sql");

impl SqliteDesk {
    /// A statement over the letters of a filter. The filter's words are its first parameters.
    pub(super) fn over(&self, text: &str, filter: &Filter, after: bool) -> Statement {
        let wants = |word: &str| if word == "after" { after } else { filter.wants(word) };
        query(&narrowed(&self.names, text, WHERE, wants))
            .bind(filter.ids.as_ref().map(json))
            .bind(filter.queue.clone())
            .bind(filter.reason.clone())
            .bind(filter.error_kind.clone())
            .bind(filter.fingerprint.clone())
            .bind(filter.since.map(to_micros))
            .bind(filter.until.map(to_micros))
    }

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

    /// Which of these rows have become letters.
    pub(crate) async fn failed_again(&self, rows: &[i64], since: SystemTime) -> Result<Vec<i64>> {
        let failed = failed("look for letters of replayed rows");
        let text = self.names.sql(include_str!("sql/letters_again.sql"));
        let mut again = Vec::new();
        for status in Status::ALL {
            let look = query(&text).bind(json(&rows)).bind(to_micros(since)).bind(status.as_str());
            for row in look.fetch_all(self.pool()).await.map_err(&failed)? {
                again.push(row.try_get(0).map_err(&failed)?);
            }
        }
        Ok(again)
    }
}
