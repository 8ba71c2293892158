//! SIGINT and SIGTERM: the first drains, the second ends the process.

use crate::error::{Error, Result};

#[cfg(unix)]
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
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
        })
    }

    /// The exit status that a shell reports for the signal.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
    }
}

#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn install() -> Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> i32 {
        // Without a handler for Ctrl-C the process is simply ended by it.
        let _ = tokio::signal::ctrl_c().await.map_err(Error::Signals);
        130
    }
}

impl Signals {
    /// Cancel safe: a signal is never missed.
    pub(super) async fn first(&mut self) {
        self.next().await;
        tracing::info!(target: crate::telemetry::TARGET, "draining; a second signal ends at once");
    }

    /// Leases of what still runs then end by themselves.
    pub(super) fn exit_on_second(mut self) {
        tokio::spawn(async move { std::process::exit(self.next().await) });
    }
}
