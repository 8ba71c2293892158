//! How every settlement names its rows: by runs of leases.
//!
//! Rows of one claim share its token, and most of them end alike. So a statement gets
//! all ids in one array and, of each run of ids that share all the rest, the rest once,
//! with the places where it begins and ends. Each id costs one walk down its index; a
//! join with a pair for each row costs that and half as much again.

use std::collections::HashSet;
use std::sync::Arc;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Statement, query};
use crate::store::{Landed, Lease};

/// What is to be settled, in the order in which its rows are locked: by token, then by
/// id. Every statement keeps to it, so that no two wait for each other.
pub(super) struct Runs<'a, T> {
    items: &'a [T],
    lease: fn(&T) -> Lease,
    ids: Vec<i64>,
    tokens: Vec<Uuid>,
    /// Places in `ids` as SQL counts them; the last one belongs to the run.
    firsts: Vec<i32>,
    lasts: Vec<i32>,
    /// The first of each run, which speaks for all of it.
    pub(super) heads: Vec<&'a T>,
}

impl<'a, T> Runs<'a, T> {
    /// `alike` says whether the same is to be written for both.
    pub(super) fn of(
        items: &'a [T],
        lease: fn(&T) -> Lease,
        alike: impl Fn(&T, &T) -> bool,
    ) -> Self {
        let mut sorted: Vec<(Lease, &T)> = items.iter().map(|item| (lease(item), item)).collect();
        sorted.sort_by_key(|(lease, _)| (lease.token, lease.id));
        let ids = sorted.iter().map(|(lease, _)| lease.id).collect();
        let (mut tokens, mut heads) = (Vec::new(), Vec::new());
        let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
        let mut place = 0;
        for run in sorted.chunk_by(|(a, one), (b, other)| a.token == b.token && alike(one, other)) {
            let (lease, head) = run[0];
            tokens.push(lease.token);
            heads.push(head);
            firsts.push(place + 1);
            place += i32::try_from(run.len()).unwrap_or(i32::MAX);
            lasts.push(place);
        }
        Self { items, lease, ids, tokens, firsts, lasts, heads }
    }

    /// The statement with its first four parameters: the ids, and of each run the token
    /// and the places of its first and last id.
    pub(super) fn bound(&self, sql: &Arc<str>) -> Statement {
        query(sql).bind(&self.ids).bind(&self.tokens).bind(&self.firsts).bind(&self.lasts)
    }

    /// Which items the statement hit, told by two arrays: ids, and their tokens.
    pub(super) fn landed(&self, row: &PgRow) -> Result<Landed, sqlx::Error> {
        let ids: Vec<i64> = row.try_get::<Option<_>, _>(0)?.unwrap_or_default();
        if ids.len() == self.items.len() {
            return Ok(vec![true; ids.len()]);
        }
        let tokens: Vec<Uuid> = row.try_get::<Option<_>, _>(1)?.unwrap_or_default();
        let pairs = ids.into_iter().zip(tokens);
        let hit: HashSet<_> = pairs.map(|(id, token)| Lease { id, token }).collect();
        Ok(self.items.iter().map(|item| hit.contains(&(self.lease)(item))).collect())
    }
}
