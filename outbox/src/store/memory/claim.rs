//! Claims, extensions and the look ahead, in memory. Claims take rows in the order of the
//! databases, and pass by what an open transaction has written.

use std::time::{Duration, SystemTime};

use super::{Stored, Tables, bounded};
use crate::store::{Before, CLAIM_BYTES, Claim, Claimed, Extend, Landed, Position, Taken};

impl Stored {
    /// When the row can be claimed: at its due time, or when its lease runs out.
    fn claimable_at(&self, lease_ttl: Duration) -> SystemTime {
        let free_at = self.row.acquired_at.map(|at| at + bounded(lease_ttl));
        free_at.map_or(self.row.next_attempt_at, |at| at.max(self.row.next_attempt_at))
    }
}

impl Tables {
    pub(super) fn claim(&mut self, claim: &Claim) -> Taken {
        let now = self.now;
        let mut due: Vec<&mut Stored> = self
            .rows
            .values_mut()
            .filter(|stored| stored.locked_by.is_none())
            .filter(|stored| claim.queues.contains(&stored.row.queue))
            .filter(|stored| stored.claimable_at(claim.lease_ttl) <= now)
            .filter(|stored| claim.after.is_none_or(|after| Position::of(&stored.row) > after))
            .collect();
        due.sort_by_key(|stored| Position::of(&stored.row));
        due.truncate(claim.limit);
        let mut bytes = 0;
        let fits = |stored: &&mut Stored| {
            let before = bytes;
            bytes += stored.row.bytes();
            before < CLAIM_BYTES
        };
        let wanted = due.len();
        let rows: Vec<_> = due
            .into_iter()
            .take_while(fits)
            .map(|stored| {
                let before = Before::of(stored.row.acquired_token);
                stored.row.acquired_token = Some(claim.token);
                stored.row.acquired_at = Some(now);
                stored.row.deliveries_count += 1;
                Claimed { row: Box::new(stored.row.clone()), before }
            })
            .collect();
        let looks = claim.limit == 0 || rows.len() < claim.limit;
        let next = match (rows.len() < wanted, looks) {
            (true, _) => Some(Duration::ZERO),
            (false, true) => self.next_due(claim),
            (false, false) => None,
        };
        Taken { rows, at: None, next, crowded: false }
    }

    pub(super) fn extend(&mut self, leases: &[Extend]) -> Landed {
        let now = self.now;
        leases
            .iter()
            .map(|extend| {
                let Some(stored) = self.leased(extend.lease) else { return false };
                stored.row.acquired_token = Some(extend.token);
                stored.row.acquired_at = Some(now);
                true
            })
            .collect()
    }

    pub(super) fn abandon(&mut self, claim: &Claim) -> u64 {
        let mut released = 0;
        for stored in self.rows.values_mut() {
            if stored.row.acquired_token == Some(claim.token) {
                stored.row.acquired_token = None;
                stored.row.acquired_at = None;
                let counted = stored.row.deliveries_count.min(claim.most_deliveries());
                stored.row.deliveries_count = counted.saturating_sub(1);
                released += 1;
            }
        }
        released
    }

    fn next_due(&self, claim: &Claim) -> Option<Duration> {
        self.rows
            .values()
            .filter(|stored| stored.locked_by.is_none() && claim.queues.contains(&stored.row.queue))
            .filter(|Stored { row, .. }| {
                row.acquired_at.is_some() || row.next_attempt_at > self.now
            })
            .map(|stored| stored.claimable_at(claim.lease_ttl))
            .min()
            .map(|at| at.duration_since(self.now).unwrap_or_default())
    }
}
