//! The life of a claim, from what the audit says of its row.

use std::collections::{BTreeMap, HashMap};

use crate::history::{Change, Op, Run, Side};
use crate::workload::TTL;

/// What a change of a row was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    Insert,
    Claim,
    Renew,
    /// Continued under another token: to run alone, or no longer.
    Mark,
    Retry,
    Release,
    Delete,
    Letter,
    /// Nothing about its lease.
    Other,
}

impl Change {
    pub fn act(&self) -> Act {
        let counted = self.new.deliveries - self.old.deliveries;
        match (self.op, &self.old.token, &self.new.token) {
            (Op::Insert, ..) => Act::Insert,
            (Op::Delete, ..) => Act::Delete,
            (Op::Letter, ..) => Act::Letter,
            (_, _, Some(_)) if counted > 0 => Act::Claim,
            (_, None, Some(_)) => Act::Claim,
            (_, Some(old), Some(new)) if old != new => Act::Mark,
            // At the same time as before, perhaps, by a clock of milliseconds.
            (_, Some(_), Some(_)) => Act::Renew,
            (_, _, None) if self.new.attempts > self.old.attempts => Act::Retry,
            (_, Some(_), None) => Act::Release,
            _ => Act::Other,
        }
    }
}

impl Side {
    /// The version of its token, as hex digits with or without hyphens.
    pub fn says_alone(&self) -> bool {
        let mut digits = self.token.iter().flat_map(|it| it.chars()).filter(|c| *c != '-');
        digits.nth(12) == Some('8')
    }
}

/// How a lease ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By this change of its holder, or of whoever wrote it.
    Written(usize),
    /// Another claim took the row.
    Reclaimed(usize),
    /// It is there to the end.
    Open,
}

/// Places are those in the list of changes.
#[derive(Clone, Debug)]
pub struct Lease {
    pub id: i64,
    pub claim: usize,
    /// Renewals and marks.
    pub kept: Vec<usize>,
    pub end: End,
    /// When it last ran out, had nobody written it.
    pub until: i64,
    pub run: Option<Run>,
    /// To the end.
    pub alone: bool,
}

/// What a handler can know of a claim: `Context::fence`.
pub fn fence(deliveries: i64, leased: i64) -> i64 {
    (deliveries << 42) | (leased / 1000)
}

/// When it was claimed, in microseconds, to the millisecond.
pub fn claimed_at(fence: i64) -> i64 {
    (fence & ((1 << 42) - 1)) * 1000
}

pub fn ttl() -> i64 {
    i64::try_from(TTL.as_micros()).unwrap_or(i64::MAX)
}

impl Lease {
    pub fn all(changes: &[Change], runs: &BTreeMap<(i64, i64), Run>) -> Vec<Self> {
        let mut open: HashMap<i64, Lease> = HashMap::new();
        let mut all = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            let act = change.act();
            match act {
                Act::Claim => {
                    let run = (change.id, fence(change.new.deliveries, change.new.leased));
                    let lease = Lease {
                        id: change.id,
                        claim: at,
                        kept: Vec::new(),
                        end: End::Open,
                        until: change.new.leased + ttl(),
                        run: runs.get(&run).cloned(),
                        alone: false,
                    };
                    if let Some(mut before) = open.insert(change.id, lease) {
                        before.end = End::Reclaimed(at);
                        all.push(before);
                    }
                }
                Act::Renew | Act::Mark => {
                    if let Some(lease) = open.get_mut(&change.id) {
                        lease.kept.push(at);
                        lease.until = change.new.leased + ttl();
                        if act == Act::Mark {
                            lease.alone = change.new.says_alone();
                        }
                    }
                }
                Act::Retry | Act::Release | Act::Delete => {
                    if let Some(mut lease) = open.remove(&change.id) {
                        lease.end = End::Written(at);
                        all.push(lease);
                    }
                }
                Act::Insert | Act::Letter | Act::Other => {}
            }
        }
        all.extend(open.into_values());
        all.sort_by_key(|lease| lease.claim);
        all
    }

    /// The last word of its handler.
    pub fn word(&self) -> Option<(i64, &str)> {
        let (at, word) = self.run.as_ref()?.ended.as_ref()?;
        Some((*at, word))
    }
}
