//! Places on blocking threads, for handlers that are plain fns: as many as workers.
//!
//! A thread keeps its place until it ends, which may be long after its run was given up.
//! So a worker may find none: it waits before its run begins, when no timeout counts.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tracing::warn;

use super::Reader;
use crate::extract::{Context, Loan};
use crate::telemetry::TARGET;

/// What a run needs before it begins: of a plain fn, a thread's place.
pub(super) struct ThreadSlot(Option<OwnedSemaphorePermit>);

/// Takes it back if the run did not go there.
pub(super) struct ReservedThread(Option<Arc<Loan>>);

/// A place for a run, if there is one now.
pub(super) fn free(reader: &Reader) -> Option<ThreadSlot> {
    if !reader.subscriber.blocks {
        return Some(ThreadSlot(None));
    }
    let thread = Arc::clone(&reader.common.threads).try_acquire_owned();
    thread.ok().map(|thread| ThreadSlot(Some(thread)))
}

/// A place for a run of so many rows; `None` when for as long as a lease there was none, and
/// another process may have one.
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
             were given up hold all of them, because their fns have not returned; no more is claimed \
             until one has"
        );
        reader.signal.hold_until_free(threads);
        return None;
    };
    Some(ThreadSlot(thread.ok()))
}

impl ThreadSlot {
    /// Where the run looks for it.
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
