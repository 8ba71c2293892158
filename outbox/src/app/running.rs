//! An app that runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Hook;
use crate::engine::Engine;
use crate::error::{Error, Result, StoreError};
use crate::health::{Health, Life, Phase};
use crate::store::Store;
use crate::telemetry::Sinks;

/// How long `ping` may take.
const PING_LIMIT: Duration = Duration::from_secs(5);
/// How long a stop waits for recorders.
const RECORDERS_LIMIT: Duration = Duration::from_secs(1);

/// The loops of a started app. Dropping it stops without waiting.
pub struct RunningApp {
    /// `None` once stopped.
    engine: Mutex<Option<Box<dyn AnyEngine>>>,
    /// Told by a ping at once, without waiting for the drain.
    life: Arc<Life>,
    shutdown: Vec<Hook>,
    sinks: Sinks,
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
    pub(super) fn new(
        engine: Box<dyn AnyEngine>,
        life: Arc<Life>,
        shutdown: Vec<Hook>,
        sinks: Sinks,
    ) -> Self {
        Self { engine: Mutex::new(Some(engine)), life, shutdown, sinks }
    }

    /// Whether it is alive and ready, for probes.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(&self.life)
    }

    /// The next check of its health looks at the tables.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn forget_schema(&self) {
        self.life.forget_schema();
    }

    /// Ends a loop as a panic in it would.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn end_loop(&self, name: &str) {
        self.life.end_loop(name);
    }

    /// Asks the database for a sign of life and every loop whether it lives;
    /// answers within 5 s.
    ///
    /// # Errors
    /// When the database does not answer, a loop has ended, or the app is
    /// stopped or stopping.
    pub async fn ping(&self) -> Result<()> {
        let stopped = || StoreError::new("ping", "the app is stopped or stopping", false);
        if self.life.phase() != Phase::Running {
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
        if self.life.phase() == Phase::Running {
            self.life.enter(Phase::Stopping);
        }
        let mut slot = self.engine.lock().await;
        let Some(engine) = slot.as_mut() else { return Ok(()) };
        let drained = engine.drain().await;
        // Before the slot is empty: a call that is dropped here goes on when repeated.
        self.sinks.flush(RECORDERS_LIMIT).await;
        *slot = None;
        self.life.enter(Phase::Stopped);
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
