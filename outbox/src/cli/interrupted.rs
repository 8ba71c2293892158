//! Work that somebody ends before it is over.

use super::Trouble;

/// Does work in steps until it is over, fails or is interrupted. What is done by then stays done:
/// count it outside of the work, and tell of it.
pub(super) async fn until_interrupted<T>(
    work: impl Future<Output = crate::Result<T>>,
) -> Result<T, Trouble> {
    tokio::select! {
        done = work => Ok(done?),
        () = interrupted() => {
            let told = "interrupted; what was under way may be done too";
            Err(Trouble::Failed(told.into()))
        }
    }
}

/// Waits for SIGINT, for SIGTERM, or until the terminal is closed. Where signals cannot be watched
/// it never returns, and they end the process.
pub(super) async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut terminate) = signal(SignalKind::terminate()) else {
            return std::future::pending().await;
        };
        let hangup = async {
            // Watching SIGHUP would end a process that `nohup` protects from it.
            if let Some(Ok(mut hangup)) = (!ignores_hangup()).then(|| signal(SignalKind::hangup()))
            {
                hangup.recv().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            Ok(()) = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
            () = hangup => {}
        }
    }
    #[cfg(not(unix))]
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Whether SIGHUP is ignored, or nobody knows.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The first bit is that of signal 1.
    ignored.is_none_or(|mask| mask & 1 == 1)
}
