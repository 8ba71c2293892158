//! Dead letters for operators: what is read of them.

use std::collections::HashMap;
use std::time::SystemTime;

use sqlx::Row as _;

use super::claim::json;
use super::settle::Statement;
use super::{SqliteDesk, query};
use crate::dlq::{Filter, Groups, Letter, Opened, Place, Status, Unmarked, narrowed};
use crate::error::StoreError;
use crate::message::row::from_micros;
use crate::message::to_micros;
use crate::ops::failed::failed;
use crate::store::answers::{Columns as _, id_and_status, letter, opened, problem, unmarked};

type Result<T> = std::result::Result<T, StoreError>;

/// The conditions of a filter, for every statement over one.
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
        after: Option<Place>,
        limit: i64,
    ) -> Result<Vec<Letter>> {
        let failed = failed("list dead letters");
        let page = self.over(include_str!("sql/letters_page.sql"), filter, after.is_some());
        let page = page.bind(time_of(after)).bind(after.map(|after| after.id)).bind(limit);
        let rows = page.fetch_all(self.pool()).await.map_err(&failed)?;
        rows.iter().map(|row| letter(row).map_err(&failed)).collect()
    }

    pub(crate) async fn open_letter(&self, id: i64) -> Result<Option<Opened>> {
        let failed = failed("open a dead letter");
        let open = query(&self.names.sql(include_str!("sql/letters_open.sql"))).bind(id);
        let Some(row) = open.fetch_optional(self.pool()).await.map_err(&failed)? else {
            return Ok(None);
        };
        opened(&row).map(Some).map_err(failed)
    }

    pub(crate) async fn count_letters(&self, filter: &Filter) -> Result<u64> {
        let count = self.over(include_str!("sql/letters_count.sql"), filter, false);
        let row = count.fetch_one(self.pool()).await;
        let count = row.and_then(|row| row.count(0));
        count.map_err(failed("count dead letters"))
    }

    pub(crate) async fn statuses(&self, filter: &Filter) -> Result<HashMap<i64, Status>> {
        let failed = failed("look for dead letters");
        let statuses = self.over(include_str!("sql/letters_status.sql"), filter, false);
        let rows = statuses.fetch_all(self.pool()).await.map_err(&failed)?;
        rows.iter().map(|row| id_and_status(row).map_err(&failed)).collect()
    }

    /// Those of these rows that are in the outbox.
    pub(crate) async fn live(&self, rows: &[i64]) -> Result<Vec<i64>> {
        let live = query(&self.names.sql(include_str!("sql/letters_live.sql"))).bind(json(&rows));
        let rows = live.fetch_all(self.pool()).await;
        let ids = rows.and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect());
        ids.map_err(failed("look for replayed rows"))
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
        let failed = failed("group dead letters");
        let groups = self.over(include_str!("sql/letters_groups.sql"), filter, false).bind(limit);
        let rows = groups.fetch_all(self.pool()).await.map_err(&failed)?;
        let read = || {
            let mut groups = Groups { letters: 0, count: 0, problems: Vec::new() };
            for row in &rows {
                (groups.letters, groups.count) = (row.count(0)?, row.count(1)?);
                groups.problems.extend(problem(row)?);
            }
            Ok(groups)
        };
        read().map_err(failed)
    }

    pub(crate) async fn unmarked(&self, after: Option<Place>, limit: i64) -> Result<Vec<Unmarked>> {
        let failed = failed("look for letters without a fingerprint");
        let text = include_str!("sql/letters_unmarked.sql");
        let text = narrowed(&self.names, text, "", |_| after.is_some());
        let look = query(&text).bind(time_of(after)).bind(after.map(|after| after.id)).bind(limit);
        let rows = look.fetch_all(self.pool()).await.map_err(&failed)?;
        rows.iter().map(|row| unmarked(row).map_err(&failed)).collect()
    }
}

pub(super) fn time_of(place: Option<Place>) -> Option<i64> {
    place.map(|place| to_micros(place.failed_at))
}
