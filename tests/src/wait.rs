//! Waiting for a condition instead of for a time.

use std::fmt::Debug;
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

/// What it comes to, and the longest for which this machine, or whom it pings, stood still
/// meanwhile.
pub async fn standing_still<T>(
    ping: impl AsyncFn(),
    case: impl Future<Output = T>,
) -> (T, Duration) {
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    let mut tick = || {
        longest = longest.max(last.elapsed());
        last = Instant::now();
    };
    let ticks = async {
        loop {
            sleep(Duration::from_millis(5)).await;
            ping().await;
            tick();
        }
    };
    let came = tokio::select! {
        biased;
        came = case => came,
        () = ticks => unreachable!(),
    };
    tick();
    (came, longest)
}

/// Requires of a case what holds where the machine does not stand still for so long. What failed
/// beside such a stall is run again, after `clear`.
///
/// # Panics
/// When it comes to anything else.
pub async fn unless_stalled<T: Debug + PartialEq>(
    stall: Duration,
    expected: T,
    ping: impl AsyncFn(),
    clear: impl AsyncFn(),
    case: impl AsyncFn() -> T,
) {
    let mut tries = 10;
    loop {
        let (came, still) = standing_still(&ping, Box::pin(case())).await;
        if came == expected {
            return;
        }
        tries -= 1;
        let stalled = tries > 0 && still >= stall;
        assert!(stalled, "{came:?}, not {expected:?}; it stood still for {still:?}");
        clear().await;
    }
}
