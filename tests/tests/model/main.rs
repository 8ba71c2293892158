//! The stores follow the model: random sequences of steps, after each of which rows,
//! tokens, counters, times and dead letters are those of the model's state. All stores
//! are given the same sequences, so they do the same (B1).
//!
//! `OUTBOX_MODEL_SEED` and `OUTBOX_MODEL_SEQUENCES` make it other sequences, or more.

#[macro_use]
#[path = "../conformance/bench/mod.rs"]
#[allow(dead_code, unused_macros, unused_imports)] // the conformance suite needs more of it
mod bench;
mod compare;
mod machine;
mod operated;
mod sequences;
mod shares;
mod step;
mod system;

use operated::Operated;

#[test]
fn memory_follows_the_model() {
    sequences::follow::<bench::Memory>();
}

#[test]
fn sqlite_follows_the_model() {
    sequences::follow::<bench::Sqlite>();
}

#[test]
fn postgres_follows_the_model() {
    sequences::follow::<bench::Postgres>();
}
