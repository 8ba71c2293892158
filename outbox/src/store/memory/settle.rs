//! Settlements in memory. Each one checks id and token, as the statements of the databases do.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Stored, Tables};
use crate::error::StoreError;
use crate::message::{DeadLetter, Row};
use crate::store::{Death, Handled, Inserted, Landed, Lease, Release, Result, Retry};

impl Tables {
    /// The row, if this lease still holds it.
    pub(super) fn leased(&mut self, lease: Lease) -> Option<&mut Stored> {
        self.rows.get_mut(&lease.id).filter(|stored| stored.row.acquired_token == Some(lease.token))
    }

    fn take(&mut self, lease: Lease) -> Option<Row> {
        self.leased(lease)?;
        self.rows.remove(&lease.id).map(|stored| stored.row)
    }

    pub(super) fn ack(&mut self, leases: &[Lease]) -> Landed {
        leases.iter().map(|&lease| self.take(lease).is_some()).collect()
    }

    pub(super) fn ack_publishing(&mut self, acks: &[Handled<'_>]) -> (Landed, Inserted) {
        let mut inserted = BTreeMap::<String, usize>::new();
        let landed: Landed =
            acks.iter().map(|handled| self.take(handled.lease).is_some()).collect();
        // After all deletes: a message may have the timer name of a row that is acked.
        for (handled, _) in acks.iter().zip(&landed).filter(|(_, landed)| **landed) {
            for message in handled.messages {
                let (published, _) = self.insert(message.clone(), None);
                *inserted.entry(message.queue.clone()).or_default() += published.rows();
            }
        }
        (landed, inserted.into_iter().collect())
    }

    pub(super) fn retry(&mut self, retries: &[Retry]) -> Landed {
        let now = self.now;
        retries
            .iter()
            .map(|retry| {
                let due = self.after(retry.delay);
                let Some(Stored { row, .. }) = self.leased(retry.lease) else { return false };
                row.next_attempt_at = due;
                row.attempts_count += 1;
                row.first_attempt_at = row.first_attempt_at.or(Some(now));
                row.last_attempt_at = Some(now);
                row.acquired_token = None;
                row.acquired_at = None;
                true
            })
            .collect()
    }

    pub(super) fn bury(&mut self, deaths: &[Death<'_>]) -> Result<Landed> {
        if self.dlq_broken && self.dlq.is_some() {
            let gone = "the dead-letter table is broken, as the test asked";
            return Err(StoreError::new("dead-letter", gone, false));
        }
        Ok(deaths
            .iter()
            .map(|death| {
                let death = death.owned();
                let Some(row) = self.take(death.lease) else { return false };
                let failed_at = self.now;
                if let Some(letters) = &mut self.dlq {
                    letters.push(DeadLetter {
                        id: letters.last().map_or(1, |letter| letter.id + 1),
                        original_id: row.id,
                        queue: row.queue,
                        payload: row.payload,
                        headers: row.headers,
                        deliveries_count: row.deliveries_count,
                        created_at: row.created_at,
                        failed_at,
                        failure_reason: death.reason,
                        last_exception: death.last_exception.map(Cow::into_owned),
                        timer_id: row.timer_id,
                        error_kind: death.error_kind.map(Cow::into_owned),
                        note: death.note.map(Cow::into_owned),
                        fingerprint: death.fingerprint.map(Cow::into_owned),
                    });
                }
                true
            })
            .collect())
    }

    pub(super) fn release(&mut self, releases: &[Release]) -> Landed {
        releases
            .iter()
            .map(|release| {
                let due = release.due_in.map(|delay| self.after(delay));
                let Some(Stored { row, .. }) = self.leased(release.lease) else { return false };
                row.acquired_token = None;
                row.acquired_at = None;
                let due = due.unwrap_or(row.next_attempt_at);
                row.next_attempt_at = release.not_before().map_or(due, |first| due.max(first));
                row.deliveries_count = row.deliveries_count.saturating_sub(release.uncount);
                true
            })
            .collect()
    }
}
