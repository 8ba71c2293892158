//! The built-in strategies in short.
#![deny(warnings)]

use outbox::subscriber;

#[subscriber("q", retry = Exponential(initial = "1s", multiplier = 3, max_delay = "5m", jitter = 0.2))]
async fn exponential(_: u64) {}

#[subscriber("q", retry = Exponential)]
async fn default(_: u64) {}

#[subscriber("q", retry = Linear(step = "1s", initial = "2s", max_attempts = 3, max_total_delay = "1h"))]
async fn linear(_: u64) {}

#[subscriber("q", retry = Constant("5s", jitter = 1f64))]
async fn constant(_: u64) {}

#[subscriber("q", retry = outbox::retry::Constant(delay = "5s"))]
async fn named(_: u64) {}

#[subscriber("q", retry = Delays(["1s", "10s"], jitter = 0.5), timeout = "5s")]
async fn delays(_: u64) {}

// At once, at first or again and again: as the builders take it.
#[subscriber("q", retry = Delays(["0s", "10s"]))]
async fn at_once(_: u64) {}

#[subscriber("q", retry = Linear(initial = "1s", step = "0s"))]
async fn level(_: u64) {}

#[subscriber("q", batch = 10, batch_wait = "0s")]
async fn without_wait(_: Vec<u64>) {}

pub(super) fn main() {}
