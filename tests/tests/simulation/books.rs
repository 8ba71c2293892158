//! The tables and the leases as the journal tells them, and what a changed row means.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use outbox::Row;
use outbox::testing::store::{Change, Fault};
use uuid::Uuid;

use crate::handlers::LEASE;
use crate::journal::{Entry, How, What, since_start};

/// What happened to a row.
pub enum Move<'a> {
    Published(&'a Row),
    /// A timer that nobody has, put off.
    Moved,
    Claimed {
        before: &'a Row,
        after: &'a Row,
    },
    /// The lease goes on, perhaps under another token.
    Extended {
        before: &'a Row,
        after: &'a Row,
    },
    Retried {
        before: &'a Row,
        after: &'a Row,
    },
    Released {
        before: &'a Row,
        after: &'a Row,
    },
    Deleted(&'a Row),
    Unknown,
}

impl<'a> Move<'a> {
    pub fn of(change: &'a Change) -> Self {
        let (before, after) = match (&change.before, &change.after) {
            (None, Some(after)) => return Self::Published(after),
            (Some(before), None) => return Self::Deleted(before),
            (Some(before), Some(after)) => (before, after),
            (None, None) => return Self::Unknown,
        };
        let attempts = after.attempts_count.checked_sub(before.attempts_count);
        let claimed = after.deliveries_count == before.deliveries_count + 1;
        match (before.acquired_token, after.acquired_token, attempts) {
            (_, Some(_), Some(0)) if claimed => Self::Claimed { before, after },
            (Some(_), Some(_), Some(0)) if after.deliveries_count == before.deliveries_count => {
                Self::Extended { before, after }
            }
            (Some(_), None, Some(1)) => Self::Retried { before, after },
            (Some(_), None, Some(0)) => Self::Released { before, after },
            (None, None, Some(0)) => Self::Moved,
            _ => Self::Unknown,
        }
    }
}

/// A row and the token of its claim: a lease. Those that go on under another token keep
/// the name that the handler knows.
pub type Name = (i64, Uuid);

/// One claim of one row.
pub struct Lease {
    pub session: u32,
    /// When it began, or was last extended.
    pub since: Duration,
    /// Since when it goes on under a token that says that nothing runs beside it.
    pub alone: Option<Duration>,
    pub started: Option<Duration>,
    /// What its handler came to, and how many failed runs the row had before.
    pub ended: Option<(Duration, How)>,
    pub attempts: u64,
    /// It was given up by a statement of its own.
    pub settled: bool,
}

impl Lease {
    /// From then on another claim may own the row.
    pub fn end(&self) -> Duration {
        self.since + LEASE
    }

    pub fn came_to(&self, how: How) -> bool {
        self.ended.is_some_and(|(_, came)| came == how)
    }

    /// Given back it comes without its letter, which was not written.
    pub fn failed(&self) -> bool {
        [How::Failed, How::Panicked, How::Rejected].iter().any(|how| self.came_to(*how))
    }

    pub fn runs(&self) -> bool {
        self.started.is_some() && self.ended.is_none()
    }
}

#[derive(Default)]
pub struct Books {
    pub rows: BTreeMap<i64, Row>,
    pub leases: HashMap<Name, Lease>,
    renamed: HashMap<Name, Uuid>,
    pub crashed: HashMap<u32, Duration>,
    /// Processes that drain, or have drained.
    pub draining: HashSet<u32>,
    /// When faults met a process.
    pub faults: HashMap<u32, Vec<Duration>>,
    /// When results of a process were refused for good.
    refused: HashMap<u32, Vec<Duration>>,
}

impl Books {
    /// The lease that a row is under.
    pub fn name(&self, id: i64, token: Uuid) -> Name {
        (id, self.renamed.get(&(id, token)).copied().unwrap_or(token))
    }

    pub fn lease(&self, row: &Row) -> Option<&Lease> {
        self.leases.get(&self.name(row.id, row.acquired_token?))
    }

    /// Whether its run counts as a failed one: it failed, or what was to be published with its
    /// ack may have been refused.
    pub fn has_failed(&self, lease: &Lease) -> bool {
        let refused = |since: Duration| {
            let all = self.refused.get(&lease.session).into_iter().flatten();
            all.into_iter().any(|at| *at >= since)
        };
        lease.ended.is_some_and(|(at, how)| match how {
            How::Failed | How::Panicked => true,
            How::Done => refused(at),
            _ => false,
        })
    }

    /// Whether a fault met a process in that time, or it crashed.
    pub fn troubled(&self, session: u32, time: Range<Duration>) -> bool {
        let faults = self.faults.get(&session).into_iter().flatten();
        faults.chain(self.crashed.get(&session)).any(|at| time.contains(at))
    }

    pub fn leases_of(&self, id: i64) -> impl Iterator<Item = &Lease> {
        self.leases.iter().filter(move |((row, _), _)| *row == id).map(|(_, lease)| lease)
    }

    /// Follows the journal by one entry.
    pub fn follow(&mut self, entry: &Entry) {
        match &entry.what {
            What::Written { session, rows, .. } => {
                rows.iter().for_each(|change| self.change(entry.at, *session, change));
            }
            What::Runs { id, token } => {
                if let Some(lease) = self.leases.get_mut(&(*id, *token)) {
                    lease.started = Some(entry.at);
                }
            }
            What::Ends { id, token, how } => {
                if let Some(lease) = self.leases.get_mut(&(*id, *token)) {
                    lease.ended = Some((entry.at, *how));
                }
            }
            What::Fault { session, action, fault } => {
                self.faults.entry(*session).or_default().push(entry.at);
                if (*action, *fault) == ("ack_publishing", Fault::Refused) {
                    self.refused.entry(*session).or_default().push(entry.at);
                }
            }
            What::Crashed { session, .. } => {
                self.crashed.insert(*session, entry.at);
            }
            What::Draining { session } => {
                self.draining.insert(*session);
            }
            _ => {}
        }
    }

    fn change(&mut self, at: Duration, session: u32, change: &Change) {
        match Move::of(change) {
            Move::Claimed { after, .. } => {
                let token = after.acquired_token.unwrap();
                let since = since_start(after.acquired_at.unwrap());
                let lease = Lease {
                    session,
                    since,
                    alone: None,
                    started: None,
                    ended: None,
                    attempts: after.attempts_count,
                    settled: false,
                };
                self.leases.insert((after.id, token), lease);
            }
            Move::Extended { before, after } => {
                let name = self.name(before.id, before.acquired_token.unwrap());
                let token = after.acquired_token.unwrap();
                let renamed = before.acquired_token != Some(token);
                if renamed {
                    self.renamed.insert((before.id, token), name.1);
                }
                if let Some(lease) = self.leases.get_mut(&name) {
                    lease.since = since_start(after.acquired_at.unwrap());
                    // The second time others start beside it.
                    let alone = lease.alone.is_none().then_some(at);
                    lease.alone = if renamed { alone } else { lease.alone };
                }
            }
            Move::Retried { before, .. }
            | Move::Released { before, .. }
            | Move::Deleted(before) => {
                let name = before.acquired_token.map(|token| self.name(before.id, token));
                if let Some(lease) = name.and_then(|name| self.leases.get_mut(&name)) {
                    lease.settled = true;
                    // Nothing of it is left to run out.
                    lease.since = lease.since.min(at.saturating_sub(LEASE));
                }
            }
            Move::Published(_) | Move::Moved | Move::Unknown => {}
        }
        match &change.after {
            Some(row) => self.rows.insert(row.id, row.clone()),
            None => change.before.as_ref().and_then(|row| self.rows.remove(&row.id)),
        };
    }
}
