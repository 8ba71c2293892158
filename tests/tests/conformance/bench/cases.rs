//! Tests out of cases.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;

use super::Bench;

/// Makes one test for each case and store. Cases that only databases can run,
/// or only PostgreSQL, say so with the reason, and the others print it.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod memory { tests!(Memory: $($case),+); }
        mod sqlite { tests!(Sqlite: $($case),+); }
        mod postgres { tests!(Postgres: $($case),+); }
    };
    (databases only, $why:literal: $($case:ident),+ $(,)?) => {
        mod memory { skipped!($why: $($case),+); }
        mod sqlite { tests!(Sqlite: $($case),+); }
        mod postgres { tests!(Postgres: $($case),+); }
    };
    (sqlite only, $why:literal: $($case:ident),+ $(,)?) => {
        mod memory { skipped!($why: $($case),+); }
        mod sqlite { tests!(Sqlite: $($case),+); }
        mod postgres { skipped!($why: $($case),+); }
    };
    (postgres only, $why:literal: $($case:ident),+ $(,)?) => {
        mod memory { skipped!($why: $($case),+); }
        mod sqlite { skipped!($why: $($case),+); }
        mod postgres { tests!(Postgres: $($case),+); }
    };
}

macro_rules! tests {
    ($bench:ident: $($case:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::bench::run::<crate::bench::$bench, _>(super::$case).await;
            }
        )+
    };
}

macro_rules! skipped {
    ($why:literal: $($case:ident),+) => {
        /// One line for all: a skipped case counts as no passed one.
        #[test]
        fn skipped() {
            println!("skipped: {}: {}", $why, [$(stringify!($case)),+].join(", "));
        }
    };
}

/// Runs a case on fresh tables and removes them, whatever became of it.
pub async fn run<B: Bench, F: Future<Output = ()>>(case: fn(B) -> F) {
    let Some(bench) = B::open().await else { return };
    let mut future = pin!(case(bench.clone()));
    let outcome =
        poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
            Err(panic) => Poll::Ready(Err(panic)),
        })
        .await;
    bench.close().await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}
