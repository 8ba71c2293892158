//! One suite for every store: what one does, all do.
//!
//! A case is an `async fn` over a [`bench::Bench`] and proves the promise it is
//! named after; `cases!` makes one test of it for each store. Time passes by
//! [`bench::Bench::age`]: no test sleeps.

#[macro_use]
mod bench;

mod abandon;
mod ack;
mod ack_publishing;
mod ack_timers;
mod batch;
mod broken_dlq;
mod cancel;
mod claim;
mod claim_bytes;
mod claim_few;
mod claims;
mod concurrent;
mod dead_letter;
mod depth;
mod due;
mod error_text;
mod extend;
mod fencing;
mod headers;
mod infinite;
mod lanes;
mod lease;
mod locked_rows;
mod migrate;
mod migrate_locks;
mod names;
mod names_refused;
mod next_due;
mod notify;
mod payload;
mod pending;
mod publish;
mod refuse;
mod release;
mod renamed;
mod retry;
mod rewritten;
mod timer_batch;
mod timers;
mod validate;
mod validate_anew;
mod validate_columns;
mod validate_postgres;
mod validate_sqlite;
mod wakes;
