//! Dead letters for operators: what is read of them.

use std::collections::HashMap;
use std::time::SystemTime;

use sqlx::Row as _;

use super::claim::json;
use super::settle::Statement;
use super::{SqliteDesk, query};
use crate::dlq::{Filter, Groups, Letter, LetterPosition, Opened, Status, Unmarked, narrowed};
use crate::error::StoreError;
use crate::message::row::from_micros;
use crate::message::to_micros;
use crate::ops::failed::failed;
use crate::store::answers::{
    self, Columns as _, id_and_status, letter, opened, totals_and_problem, unmarked,
};

type Result<T> = std::result::Result<T, StoreError>;

/// The conditions of a filter, for every statement over one. What is likelier narrows less:
/// without this, SQLite takes any index for a good one where nobody ran ANALYZE.
const WHERE: &str = include_str!("sql/letters_where.sql");

impl SqliteDesk {
    /// A statement over the letters of a filter, whose words are its first parameters.
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
        let page = self.over(include_str!("sql/letters_page.sql"), filter, after.is_some());
        let page = page.bind(time_of(after)).bind(after.map(|after| after.id)).bind(limit);
        self.read("list dead letters", page, letter).await
    }

    pub(crate) async fn open_letter(&self, id: i64) -> Result<Option<Opened>> {
        let open = query(&self.names.sql(include_str!("sql/letters_open.sql"))).bind(id);
        Ok(self.read("open a dead letter", open, opened).await?.pop())
    }

    pub(crate) async fn count_letters(&self, filter: &Filter) -> Result<u64> {
        let count = self.over(include_str!("sql/letters_count.sql"), filter, false);
        let row = count.fetch_one(self.pool()).await;
        let count = row.and_then(|row| row.count(0));
        count.map_err(failed("count dead letters"))
    }

    pub(crate) async fn statuses(&self, filter: &Filter) -> Result<HashMap<i64, Status>> {
        let statuses = self.over(include_str!("sql/letters_status.sql"), filter, false);
        let pairs = self.read("look for dead letters", statuses, id_and_status).await?;
        Ok(pairs.into_iter().collect())
    }

    /// Those of these rows that are in the outbox.
    pub(crate) async fn live(&self, rows: &[i64]) -> Result<Vec<i64>> {
        let live = query(&self.names.sql(include_str!("sql/letters_live.sql"))).bind(json(&rows));
        self.read("look for replayed rows", live, |row| row.number(0)).await
    }

    /// Those of these rows that have become letters.
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

    pub(crate) async fn groups(&self, filter: &Filter, limit: i64) -> Result<Groups> {
        let groups = self.over(include_str!("sql/letters_groups.sql"), filter, false).bind(limit);
        Ok(answers::groups(self.read("group dead letters", groups, totals_and_problem).await?))
    }

    pub(crate) async fn unmarked(
        &self,
        after: Option<LetterPosition>,
        limit: i64,
    ) -> Result<Vec<Unmarked>> {
        let text = include_str!("sql/letters_unmarked.sql");
        let text = narrowed(&self.names, text, "", |_| after.is_some());
        let look = query(&text).bind(time_of(after)).bind(after.map(|after| after.id)).bind(limit);
        self.read("look for letters without a fingerprint", look, unmarked).await
    }
}

pub(super) fn time_of(place: Option<LetterPosition>) -> Option<i64> {
    place.map(|place| to_micros(place.failed_at))
}
