//! Work that somebody ends before it is over.

use super::Trouble;

/// Work in batches, until it is over, fails or is interrupted. What is done by then stays done:
/// count it outside of the work, and tell of it.
pub(super) async fn until_interrupted<T>(
    work: impl Future<Output = crate::Result<T>>,
) -> Result<T, Trouble> {
    tokio::select! {
        done = work => Ok(done?),
        () = interrupted() => {
            let told = "interrupted; the batch that was under way may be done too";
            Err(Trouble::Failed(told.into()))
        }
    }
}

/// SIGINT or SIGTERM. Never, where they cannot be watched: they end the process then.
pub(super) async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut terminate) = signal(SignalKind::terminate()) else {
            return std::future::pending().await;
        };
        tokio::select! {
            Ok(()) = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    }
    #[cfg(not(unix))]
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
