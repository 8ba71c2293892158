//! An app that runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Hook;
use crate::engine::Engine;
use crate::error::{Error, Result, StoreError};
use crate::store::Store;

/// How long `ping` may take.
const PING_LIMIT: Duration = Duration::from_secs(5);

/// The loops of a started app. Dropping it stops without waiting.
pub struct RunningApp {
    /// `None` once stopped.
    engine: Mutex<Option<Box<dyn AnyEngine>>>,
    /// Told by a ping at once, without waiting for the drain.
    stopping: AtomicBool,
    shutdown: Vec<Hook>,
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// An engine, whatever its store.
pub(super) trait AnyEngine: Send + Sync {
    fn ping(&self) -> Answer<'_>;
    fn drain(&mut self) -> Answer<'_>;
}

impl<S: Store> AnyEngine for Engine<S> {
    fn ping(&self) -> Answer<'_> {
        Box::pin(self.ping())
    }

    fn drain(&mut self) -> Answer<'_> {
        Box::pin(self.drain())
    }
}

impl RunningApp {
    pub(super) fn new(engine: Box<dyn AnyEngine>, shutdown: Vec<Hook>) -> Self {
        Self { engine: Mutex::new(Some(engine)), stopping: AtomicBool::new(false), shutdown }
    }

    /// Asks the database for a sign of life and every loop whether it lives;
    /// answers within 5 s.
    ///
    /// # Errors
    /// When the database does not answer, a loop has ended, or the app is
    /// stopped or stopping.
    pub async fn ping(&self) -> Result<()> {
        let stopped = || StoreError::new("ping", "the app is stopped or stopping", false);
        if self.stopping.load(Ordering::Relaxed) {
            return Err(stopped().into());
        }
        let ask = async {
            match &*self.engine.lock().await {
                Some(engine) => engine.ping().await,
                None => Err(stopped().into()),
            }
        };
        timeout(PING_LIMIT, ask)
            .await
            .unwrap_or_else(|_| Err(StoreError::new("ping", "no answer within 5 s", true).into()))
    }

    /// Drains: claims no more, lets running handlers finish within the drain
    /// timeout, writes their results, gives unstarted rows back. A second call
    /// does nothing.
    ///
    /// # Errors
    /// When handlers had to be dropped, or a shutdown hook failed.
    ///
    /// # Cancel safety
    /// A dropped call leaves the drain where it is; call it again to go on.
    pub async fn stop(&self) -> Result<()> {
        self.stopping.store(true, Ordering::Relaxed);
        let mut slot = self.engine.lock().await;
        let Some(engine) = slot.as_mut() else { return Ok(()) };
        let drained = engine.drain().await;
        *slot = None;
        for hook in &self.shutdown {
            hook().await.map_err(|source| Error::Hook { hook: "shutdown", source })?;
        }
        drained
    }
}

impl fmt::Debug for RunningApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningApp").finish_non_exhaustive()
    }
}
