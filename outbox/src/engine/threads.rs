//! Places on blocking threads for handlers that are plain fns. A subscriber has as many as it has
//! workers.
//!
//! A thread keeps its place until it ends, which may be long after its run was given up. So a
//! worker may find no place. It then waits before its run begins, while no timeout counts.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::Reader;
use crate::extract::{Context, Loan};
use crate::telemetry::{TARGET, warn};

/// What a run needs before it begins: for a plain fn, a thread's place.
pub(super) struct ThreadSlot(Option<OwnedSemaphorePermit>);

/// Takes the place back if the run did not use it.
pub(super) struct ReservedThread(Option<Arc<Loan>>);

/// A place for a run, if there is one now.
pub(super) fn free(reader: &Reader) -> Option<ThreadSlot> {
    if !reader.subscriber.blocks {
        return Some(ThreadSlot(None));
    }
    let thread = Arc::clone(&reader.common.threads).try_acquire_owned();
    thread.ok().map(|thread| ThreadSlot(Some(thread)))
}

/// A place for a run of `rows` rows. `None` if there was none for as long as a lease: another
/// process may have one.
pub(super) async fn place(reader: &Reader, rows: usize) -> Option<ThreadSlot> {
    if !reader.subscriber.blocks {
        return Some(ThreadSlot(None));
    }
    let threads = &reader.common.threads;
    let thread = Arc::clone(threads).acquire_owned();
    let Ok(thread) = timeout(reader.subscriber.options.lease_ttl, thread).await else {
        (0..rows).for_each(|_| reader.teller.waited_too_long());
        warn!(
            target: TARGET, subscriber = reader.subscriber.name(), rows,
            "a claimed message found no thread for as long as a lease and is given back: runs that \
             were given up hold all threads, because their fns have not returned; nothing more is \
             claimed until one of them returns"
        );
        reader.signal.hold_until_free(threads);
        return None;
    };
    Some(ThreadSlot(thread.ok()))
}

impl ThreadSlot {
    /// Puts the place where the run looks for it.
    pub(super) fn lend(self, run: &Context) -> ReservedThread {
        let lend = |thread| {
            let loan = Arc::clone(run.delivery().loan());
            loan.thread.reserve(thread);
            loan
        };
        ReservedThread(self.0.map(lend))
    }
}

impl Drop for ReservedThread {
    fn drop(&mut self) {
        if let Some(loan) = &self.0 {
            drop(loan.thread.take_place());
        }
    }
}
