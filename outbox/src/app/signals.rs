//! SIGINT and SIGTERM: the first drains, the second ends the process.

#[cfg(unix)]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(unix)]
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};

#[cfg(unix)]
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// Whether the next one ends the process.
    ends: Arc<AtomicBool>,
}

#[cfg(unix)]
impl Signals {
    /// Before the app starts, so that no signal meets the default action
    /// half-way.
    pub(super) fn install() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(Error::Signals)?,
            terminate: signal(SignalKind::terminate()).map_err(Error::Signals)?,
            ends: Self::ends().map_err(Error::Signals)?,
        })
    }

    /// Ends the process where the signal arrives: a runtime whose threads are all blocked, or
    /// that waits for them at its own end, would not hear of it. Another run begins anew.
    fn ends() -> std::io::Result<Arc<AtomicBool>> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        static ENDS: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);
        let mut known = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            let ends = Arc::<AtomicBool>::default();
            for (signal, status) in [(SIGINT, 130), (SIGTERM, 143)] {
                let ends = Arc::clone(&ends);
                signal_hook::flag::register_conditional_shutdown(signal, status, ends)?;
            }
            *known = Some(ends);
        }
        let ends = known.clone().unwrap_or_default();
        ends.store(false, Ordering::SeqCst);
        Ok(ends)
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// With the exit status that a shell reports for the signal. Leases of what still runs
    /// then end by themselves.
    pub(super) fn exit_on_second(self) {
        self.ends.store(true, Ordering::SeqCst);
    }
}

#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn install() -> Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        // Without a handler for Ctrl-C the process is simply ended by it.
        let _ = tokio::signal::ctrl_c().await.map_err(Error::Signals);
    }

    pub(super) fn exit_on_second(mut self) {
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(130)
        });
    }
}

impl Signals {
    /// Cancel safe: a signal is never missed.
    pub(super) async fn first(&mut self) {
        self.next().await;
        tracing::info!(target: crate::telemetry::TARGET, "draining; a second signal ends at once");
    }
}
