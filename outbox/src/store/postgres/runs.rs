//! How every settlement names its rows: by their ids, and by runs of leases.
//!
//! Rows of one claim share its token, and most of them end alike. So a statement gets all ids in
//! one array. Ids that follow one another there and share everything else form a run; of each run
//! the statement gets the rest once, with the first of its ids. A row finds its run by
//! `width_bucket`, a search in an array. A join with the runs would copy one for each row, and walk
//! the index anew for each run.
//!
//! So an id belongs to one run. A row may stand in a batch under two leases, one of which must be
//! lost: the second gets a statement of its own.

use std::collections::HashSet;
use std::sync::Arc;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Statement, query};
use crate::store::{Landed, Lease};

/// What one statement settles, in the order of ids. Its rows are locked in that order. Every
/// statement keeps to it, so that no two wait for each other.
pub(super) struct Runs<'a, T> {
    ids: Vec<i64>,
    /// The place of each id in the batch.
    places: Vec<usize>,
    tokens: Vec<Uuid>,
    firsts: Vec<i64>,
    /// The first item of each run, which speaks for all of it.
    pub(super) heads: Vec<&'a T>,
}

impl<'a, T> Runs<'a, T> {
    /// The runs of each statement. There is one statement, unless a row stands in the batch twice.
    /// `alike` says whether the same is to be written for both items.
    pub(super) fn of(
        batch: &'a [T],
        lease: fn(&T) -> Lease,
        alike: impl Fn(&T, &T) -> bool,
    ) -> Vec<Self> {
        let mut left: Vec<_> = batch.iter().map(lease).zip(0..).collect();
        left.sort_by_key(|(lease, _)| lease.id);
        let mut all = Vec::new();
        while !left.is_empty() {
            let mut runs = Self::with_capacity(left.len());
            left.retain(|&(lease, place)| {
                let twice = runs.ids.last() == Some(&lease.id);
                if !twice {
                    runs.add(lease, place, &batch[place], &alike);
                }
                twice
            });
            all.push(runs);
        }
        all
    }

    fn with_capacity(rows: usize) -> Self {
        let (ids, places) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        Self { ids, places, tokens: Vec::new(), firsts: Vec::new(), heads: Vec::new() }
    }

    fn add(&mut self, lease: Lease, place: usize, item: &'a T, alike: impl Fn(&T, &T) -> bool) {
        let last = self.heads.last().zip(self.tokens.last());
        if !last.is_some_and(|(head, token)| *token == lease.token && alike(head, item)) {
            self.tokens.push(lease.token);
            self.firsts.push(lease.id);
            self.heads.push(item);
        }
        self.ids.push(lease.id);
        self.places.push(place);
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The statement with its first three parameters: the ids, and of each run the token
    /// and the first id.
    pub(super) fn bound(&self, sql: &Arc<str>) -> Statement {
        query(sql).bind(&self.ids).bind(&self.tokens).bind(&self.firsts)
    }

    /// Notes which rows the statement hit: its answer has their ids.
    pub(super) fn note(&self, row: &PgRow, landed: &mut Landed) -> Result<(), sqlx::Error> {
        let ids: Vec<i64> = row.try_get::<Option<_>, _>(0)?.unwrap_or_default();
        let all = ids.len() == self.ids.len();
        let hit: HashSet<_> = if all { HashSet::new() } else { ids.into_iter().collect() };
        for (id, &place) in self.ids.iter().zip(&self.places) {
            landed[place] = all || hit.contains(id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stands_once_in_a_statement_and_alike_ones_are_a_run() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let lease = |(id, token, _): &(i64, Uuid, char)| Lease { id: *id, token: *token };
        let alike = |one: &(_, _, char), other: &(_, _, char)| one.2 == other.2;
        let batch = [(7, a, 'x'), (3, b, 'x'), (1, a, 'x'), (2, a, 'x'), (3, a, 'x'), (8, a, 'y')];
        let all = Runs::of(&batch, lease, alike);
        let [first, second] = &all[..] else { panic!("{} statements", all.len()) };
        assert_eq!(
            (&first.ids[..], &first.places[..]),
            (&[1, 2, 3, 7, 8][..], &[2, 3, 1, 0, 5][..])
        );
        assert_eq!((&first.firsts[..], &first.tokens[..]), (&[1, 3, 7, 8][..], &[a, b, a, a][..]));
        assert_eq!((&second.ids[..], &second.places[..]), (&[3][..], &[4][..]));
        assert!(Runs::of(&[], lease, alike).is_empty());
    }
}
