//! How a batch names its rows: by runs of ids that follow each other, share a token, and have the
//! same values to be written. A run can be written as one range of ids: see `batch`.

use std::io::Write as _;

use serde::Serialize;

use super::claim::json;
use crate::store::{Landed, Lease};

/// What a statement writes, in the order of ids.
pub(super) struct Runs<'a, T> {
    /// Places in the batch, run by run.
    places: Vec<usize>,
    /// Where the places of each run begin.
    starts: Vec<usize>,
    /// What is written to the rows of each run.
    heads: Vec<&'a T>,
    /// The lease of the first row of each run.
    leases: Vec<Lease>,
}

/// The most rows of a run: four digits are enough for its length.
pub(super) const LONGEST: usize = 1000;

impl<'a, T: Serialize + PartialEq> Runs<'a, T> {
    /// `longest` is 1 where each row has to tell what became of it.
    pub(super) fn of(batch: &'a [(Lease, T)], longest: usize) -> Self {
        let mut places: Vec<usize> = (0..batch.len()).collect();
        places.sort_by_key(|&place| batch[place].0.id);
        let (mut starts, mut heads, mut leases) = (Vec::new(), Vec::new(), Vec::<Lease>::new());
        let mut last: Option<&(Lease, T)> = None;
        for (at, &place) in places.iter().enumerate() {
            let one = &batch[place];
            let short = starts.last().is_some_and(|start| at - start < longest);
            if !(short && last.is_some_and(|last| goes_on(last, one))) {
                starts.push(at);
                heads.push(&one.1);
                leases.push(one.0);
            }
            last = Some(one);
        }
        Self { places, starts, heads, leases }
    }

    /// How many rows all runs have beside their first ones.
    pub(super) fn saved(&self) -> usize {
        self.places.len() - self.starts.len()
    }

    /// The places of each run.
    fn each(&self) -> impl Iterator<Item = &[usize]> {
        let ends = self.starts.iter().skip(1).copied().chain([self.places.len()]);
        self.starts.iter().zip(ends).map(|(&start, end)| &self.places[start..end])
    }

    /// A JSON array of what is written to each run.
    pub(super) fn heads(&self) -> String {
        json(&self.heads)
    }

    /// Forty bytes for each run: its token, its first id in twenty digits, and in four digits how
    /// many rows follow.
    pub(super) fn names(&self) -> Vec<u8> {
        let mut names = Vec::with_capacity(40 * self.leases.len());
        for (Lease { id, token }, places) in self.leases.iter().zip(self.each()) {
            names.extend_from_slice(token.as_bytes());
            // A write to memory does not fail.
            let _ = write!(names, "{id:020}{:04}", places.len() - 1);
        }
        names
    }

    /// What became of each row of the batch, if the runs in `lost` were not hit whole. `None` if
    /// that leaves open which row of a run was lost.
    pub(super) fn landed(&self, lost: &[usize]) -> Option<Landed> {
        let mut landed = vec![true; self.places.len()];
        let runs: Vec<_> = self.each().collect();
        for &run in lost {
            match runs.get(run) {
                Some(&&[place]) => landed[place] = false,
                Some(_) => return None,
                None => {}
            }
        }
        Some(landed)
    }
}

fn goes_on<T: PartialEq>((last, before): &(Lease, T), (lease, item): &(Lease, T)) -> bool {
    last.id.checked_add(1) == Some(lease.id) && last.token == lease.token && before == item
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn rows_that_follow_each_other_and_are_alike_are_a_run() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let lease = |id, token, what| (Lease { id, token }, what);
        let batch = [
            lease(7, b, 'x'),
            lease(3, a, 'x'),
            lease(1, a, 'x'),
            lease(2, a, 'x'),
            lease(4, a, 'y'),
            lease(5, b, 'y'),
            lease(6, b, 'y'),
            lease(6, a, 'y'),
        ];
        let runs = Runs::of(&batch, LONGEST);
        let each = |runs: &Runs<_>| runs.each().map(<[_]>::to_vec).collect::<Vec<_>>();
        assert_eq!(each(&runs), [vec![2, 3, 1], vec![4], vec![5, 6], vec![7], vec![0]]);
        assert_eq!(runs.heads(), r#"["x","y","y","y","x"]"#);
        let names = runs.names();
        assert_eq!(&names[16..40], b"000000000000000000010002");
        assert_eq!((&names[40..56], names.len()), (&a.as_bytes()[..], 200));
        assert_eq!(runs.landed(&[]), Some(vec![true; 8]));
        let lost = |run| runs.landed(&[run]).map(|landed| landed.iter().position(|&it| !it));
        assert_eq!((lost(1), lost(4), lost(0)), (Some(Some(4)), Some(Some(0)), None));
        assert_eq!(each(&Runs::of(&batch, 1)).len(), 8);
        assert_eq!(each(&Runs::of(&batch, 2))[..2], [vec![2, 3], vec![1]]);
    }

    #[test]
    fn the_ends_of_all_ids_are_named() {
        for id in [i64::MIN, -1, 0, i64::MAX] {
            let token = Uuid::nil();
            let batch = [(Lease { id, token }, ()), (Lease { id: id.wrapping_add(1), token }, ())];
            let runs = Runs::of(&batch, LONGEST);
            assert_eq!(runs.leases.len(), if id == i64::MAX { 2 } else { 1 });
            let named = String::from_utf8(runs.names()[16..36].to_vec()).unwrap();
            assert_eq!(named.parse::<i64>().unwrap(), runs.leases[0].id);
        }
    }
}
