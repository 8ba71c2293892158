//! Waiting for a condition instead of for a time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Longer than anything here takes on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until the condition holds.
///
/// # Panics
/// When it does not within [`PATIENCE`].
pub async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    eventually_within(PATIENCE, what, holds).await;
}

/// As [`eventually`], for what takes long on a machine that has nothing else to do.
///
/// # Panics
/// When it does not hold in that time.
pub async fn eventually_within(
    patience: Duration,
    what: &str,
    mut holds: impl AsyncFnMut() -> bool,
) {
    let end = Instant::now() + patience;
    while !holds().await {
        assert!(Instant::now() < end, "not within {patience:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Polls a future once that has more to do: its first step is taken.
///
/// # Panics
/// When it ends.
pub async fn begun<F: Future>(what: &str, mut future: Pin<&mut F>) {
    let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending()));
    assert!(polled.await, "it is over already: {what}");
}

/// Waits for a future that has to end.
///
/// # Panics
/// When it does not within [`PATIENCE`].
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}
