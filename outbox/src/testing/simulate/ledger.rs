//! The runs of handlers, for `TestBroker::calls`. The store says what came of each.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use uuid::Uuid;

use super::super::{Call, Ending};
use crate::extract::Context;
use crate::store::Lease;
use crate::store::memory::MemoryStore;
use crate::subscriber::{Layer, layer};
use crate::unpoisoned::Locked as _;

pub(super) struct Ledger {
    calls: Arc<Mutex<Vec<Call>>>,
    leases: Mutex<Leases>,
    running: AtomicUsize,
    /// A handler has ended, or a row has changed.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct Leases {
    /// The place of the call that runs under a lease.
    calls: HashMap<Lease, usize>,
    /// Leases that went on under another token, with the token that their handlers know.
    renamed: HashMap<Lease, Uuid>,
    /// Leases of rows for which a dead letter was sent. If they are given back after all, it was not
    /// written.
    to_be_buried: HashSet<Lease>,
}

impl Ledger {
    pub(super) fn new(calls: Arc<Mutex<Vec<Call>>>) -> Self {
        Self {
            calls,
            leases: Mutex::default(),
            running: AtomicUsize::new(0),
            changed: Notify::new(),
        }
    }

    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// The layer around every handler. It notes the call.
    pub(super) fn layer(self: &Arc<Self>, store: &MemoryStore) -> Layer {
        let (ledger, store) = (Arc::clone(self), store.clone());
        layer(move |context, next| {
            let ledger = Arc::clone(&ledger);
            let at = ledger.begins(&context, &store);
            let running = Running::begin(ledger);
            async move {
                let result = next.run(context).await;
                if let Err(error) = &result {
                    running.0.calls.locked()[at].error_kind = Some(error.kind().to_owned());
                }
                result
            }
        })
    }

    /// Adds a call, and returns its place.
    fn begins(&self, context: &Context, store: &MemoryStore) -> usize {
        let delivery = context.delivery();
        let (row, headers) = (&delivery.row, context.headers().clone());
        let call = Call {
            // Under `AckFirst` the row is gone already.
            ending: if delivery.common.collects() { Ending::Unwritten } else { Ending::Acked },
            ..Call::of(context.subscriber(), row, headers, store.now())
        };
        let lease = Lease { id: row.id, token: row.acquired_token.unwrap_or_default() };
        let mut calls = self.calls.locked();
        self.leases.locked().calls.insert(lease, calls.len());
        calls.push(call);
        calls.len() - 1
    }

    /// A lease goes on under another token. It may have done so before: its call has the first
    /// token.
    pub(super) fn renamed(&self, old: Lease, token: Uuid) {
        if old.token != token {
            let mut leases = self.leases.locked();
            let first = leases.renamed.get(&old).copied().unwrap_or(old.token);
            leases.renamed.insert(Lease { token, ..old }, first);
        }
    }

    /// Notes that dead letters are sent for these rows.
    pub(super) fn to_be_buried(&self, leases: impl Iterator<Item = Lease>) {
        self.leases.locked().to_be_buried.extend(leases);
    }

    pub(super) fn was_to_be_buried(&self, lease: Lease) -> bool {
        self.leases.locked().to_be_buried.contains(&lease)
    }

    /// Notes what was written, for the leases for which the write landed.
    pub(super) fn settled(&self, landed: &[bool], endings: impl Iterator<Item = (Lease, Ending)>) {
        let mut calls = self.calls.locked();
        let mut leases = self.leases.locked();
        for ((lease, ending), _) in endings.zip(landed).filter(|&(_, &hit)| hit) {
            let token = leases.renamed.remove(&lease).unwrap_or(lease.token);
            let at = leases.calls.remove(&Lease { token, ..lease });
            if let Some(call) = at.and_then(|at| calls.get_mut(at)) {
                call.ending = ending;
            }
        }
    }
}

/// A handler that runs until this is dropped.
pub(super) struct Running(Arc<Ledger>);

impl Running {
    pub(super) fn begin(ledger: Arc<Ledger>) -> Self {
        ledger.running.fetch_add(1, Ordering::Relaxed);
        Self(ledger)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the lease of a row that ran alone, and then beside others.
    #[tokio::test]
    async fn a_call_whose_lease_went_on_under_two_other_tokens_is_told_of() {
        let calls = Arc::<Mutex<Vec<Call>>>::default();
        let (ledger, context) = (Ledger::new(Arc::clone(&calls)), Context::of_test("{}"));
        ledger.begins(&context, &MemoryStore::new(true));
        let row = &context.delivery().row;
        let first = Lease { id: row.id, token: row.acquired_token.unwrap_or_default() };
        let [alone, beside] = [1, 2].map(|n| Lease { token: Uuid::from_u128(n), ..first });
        ledger.renamed(first, alone.token);
        ledger.renamed(alone, beside.token);
        ledger.settled(&[true], std::iter::once((beside, Ending::Acked)));
        assert_eq!(calls.lock().unwrap()[0].ending, Ending::Acked);
    }
}
