//! What is fuzzed: plain functions, for a fuzzer and for the tests, which run the corpus.
//! `macros` stands beside them: it needs the modules of the macros.

pub mod errors;
pub mod headers;
pub mod names;
pub mod payload;

use std::cell::OnceCell;
use std::future::Future;

/// On this thread, so that the fuzzer sees every step.
fn run<F: Future>(future: F) -> F::Output {
    thread_local! {
        static RUNTIME: OnceCell<tokio::runtime::Runtime> = const { OnceCell::new() };
    }
    let made = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    RUNTIME.with(|runtime| runtime.get_or_init(made).block_on(future))
}
