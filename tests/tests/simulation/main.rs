//! The loops of several processes over one table in memory, on virtual time, with a
//! schedule and faults that a seed decides; and the properties of docs/guarantees.md, held
//! against what the tables and the handlers' bodies say of each run.
//!
//! `OUTBOX_SEED=7 cargo test -p outbox-tests --test simulation ten_thousand` runs one
//! seed and prints what happened in it; `OUTBOX_SEED=0..50000` runs others.

mod books;
mod broker;
mod checks;
mod handlers;
mod journal;
mod replay;
mod seeds;
mod sometimes;
mod trace;
mod workload;
