//! What a health check asks of an engine: which loops live, what they last did, and whether the
//! database answers. [`Vital`] hides the type of the store.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use tokio::task::{AbortHandle, JoinHandle};
#[cfg(feature = "testing")]
use tokio_util::sync::CancellationToken;

use super::pulse::Reading;
use super::watchdog::Watchdog;
use super::{Reader, Shared};
use crate::error::StoreError;
use crate::health::Loop;
use crate::store::{Connections, Store};

/// The names of the loops.
pub(super) const CLAIMS: &str = "claims";
pub(super) const WORKERS: &str = "workers";
pub(super) const SETTLERS: &str = "settlers";
pub(super) const LEASES: &str = "leases";
pub(super) const WAKES: &str = "wakes";
pub(super) const SAMPLES: &str = "samples";
const WATCHDOG: &str = "watchdog";

/// The tasks of an engine, by the names of their loops.
#[derive(Default)]
pub(super) struct Loops(Vec<(&'static str, Vec<AbortHandle>)>);

impl Loops {
    pub(super) fn add<T>(&mut self, name: &'static str, task: &JoinHandle<T>) {
        let task = task.abort_handle();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, tasks)) => tasks.push(task),
            None => self.0.push((name, vec![task])),
        }
    }
}

pub(crate) trait Vital: Send + Sync {
    /// The state of every loop.
    fn loops(&self) -> Vec<Loop>;
    /// What keeps the engine from working: a loop that has ended.
    fn ended(&self) -> Option<String> {
        self.loops().iter().find_map(Loop::ended)
    }
    fn pulse(&self) -> Reading;
    fn connections(&self) -> Connections;
    /// Asks the database for a sign of life.
    fn ask(&self) -> BoxFuture<'_, Result<(), StoreError>>;
    /// What is wrong with the tables, so that the app could not start on them.
    fn schema(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>>;
    /// Ends a loop as a panic in it would.
    #[cfg(feature = "testing")]
    fn end_loop(&self, _name: &str) {}
    /// Ends all loops, as the end of the process would: none of them is polled again.
    #[cfg(feature = "testing")]
    fn end_loops(&self) {}
}

pub(super) struct Vitals<S> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) readers: Vec<Arc<Reader>>,
    pub(super) loops: Loops,
    /// Gone with the thread. `None` if there is no watchdog, or the system refused its thread.
    pub(super) watchdog: Option<Weak<()>>,
    #[cfg(feature = "testing")]
    pub(super) stop_watchdog: Option<CancellationToken>,
}

impl<S: Store> Vitals<S> {
    pub(super) fn of(
        shared: &Arc<Shared<S>>,
        readers: &[Arc<Reader>],
        loops: Loops,
        watchdog: Option<&Watchdog>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            readers: readers.to_vec(),
            loops,
            watchdog: watchdog.and_then(Watchdog::life),
            #[cfg(feature = "testing")]
            stop_watchdog: watchdog.map(Watchdog::stop),
        }
    }
}

impl<S: Store> Vital for Vitals<S> {
    fn loops(&self) -> Vec<Loop> {
        let state = |(name, tasks): &(&'static str, Vec<AbortHandle>)| Loop {
            name,
            tasks: tasks.len(),
            alive: tasks.iter().filter(|task| !task.is_finished()).count(),
        };
        let watchdog = self.watchdog.iter().map(|life| Loop {
            name: WATCHDOG,
            tasks: 1,
            alive: life.strong_count().min(1),
        });
        self.loops.0.iter().map(state).chain(watchdog).collect()
    }

    fn pulse(&self) -> Reading {
        let refused = self.readers.iter().filter(|one| one.refused.load(Ordering::Relaxed));
        // Several subscribers may have one name.
        let names: BTreeSet<_> = refused.map(|one| one.subscriber.name()).collect();
        self.shared.pulse.read(names.into_iter().collect())
    }

    fn connections(&self) -> Connections {
        self.shared.store.connections()
    }

    fn ask(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.shared.store.ping())
    }

    fn schema(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        Box::pin(async {
            let found = self.shared.store.validate(false).await?;
            let fatal = found.differences.iter().filter(|one| one.fatal);
            Ok(fatal.map(ToString::to_string).collect())
        })
    }

    #[cfg(feature = "testing")]
    fn end_loop(&self, name: &str) {
        if name == WATCHDOG {
            self.stop_watchdog.iter().for_each(CancellationToken::cancel);
        }
        for (known, tasks) in &self.loops.0 {
            tasks.iter().filter(|_| *known == name).for_each(AbortHandle::abort);
        }
    }

    #[cfg(feature = "testing")]
    fn end_loops(&self) {
        self.loops.0.iter().flat_map(|(_, tasks)| tasks).for_each(AbortHandle::abort);
    }
}
