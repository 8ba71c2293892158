//! Every future of the library is polled once, twice, …, and dropped. Nothing of it may be
//! left: no session inside a transaction, no half of what it does; and the next call works.

mod app;
mod begin;
mod broker;
mod calls;
mod complete;
mod ground;
mod store;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// More polls than any call takes.
const MOST: usize = 2000;

/// Polls a future so many times, and drops it if it is not over by then.
async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
