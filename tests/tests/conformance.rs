//! One suite for every store: what one does, all do.
//!
//! A case is an `async fn` over a [`bench::Bench`] and proves the promise it is
//! named after; `cases!` makes one test of it for each store. Time passes by
//! [`bench::Bench::age`]: no test sleeps.

#[macro_use]
#[path = "conformance/bench/mod.rs"]
mod bench;

#[path = "conformance/abandon.rs"]
mod abandon;
#[path = "conformance/ack.rs"]
mod ack;
#[path = "conformance/ack_publishing.rs"]
mod ack_publishing;
#[path = "conformance/ack_timers.rs"]
mod ack_timers;
#[path = "conformance/batch.rs"]
mod batch;
#[path = "conformance/broken_dlq.rs"]
mod broken_dlq;
#[path = "conformance/cancel.rs"]
mod cancel;
#[path = "conformance/claim.rs"]
mod claim;
#[path = "conformance/claim_bytes.rs"]
mod claim_bytes;
#[path = "conformance/claim_few.rs"]
mod claim_few;
#[path = "conformance/claims.rs"]
mod claims;
#[path = "conformance/concurrent.rs"]
mod concurrent;
#[path = "conformance/dead_letter.rs"]
mod dead_letter;
#[path = "conformance/depth.rs"]
mod depth;
#[path = "conformance/due.rs"]
mod due;
#[path = "conformance/error_text.rs"]
mod error_text;
#[path = "conformance/extend.rs"]
mod extend;
#[path = "conformance/fencing.rs"]
mod fencing;
#[path = "conformance/headers.rs"]
mod headers;
#[path = "conformance/infinite.rs"]
mod infinite;
#[path = "conformance/lanes.rs"]
mod lanes;
#[path = "conformance/lease.rs"]
mod lease;
#[path = "conformance/locked_rows.rs"]
mod locked_rows;
#[path = "conformance/migrate.rs"]
mod migrate;
#[path = "conformance/migrate_locks.rs"]
mod migrate_locks;
#[path = "conformance/names.rs"]
mod names;
#[path = "conformance/names_refused.rs"]
mod names_refused;
#[path = "conformance/next_due.rs"]
mod next_due;
#[path = "conformance/notify.rs"]
mod notify;
#[path = "conformance/payload.rs"]
mod payload;
#[path = "conformance/pending.rs"]
mod pending;
#[path = "conformance/publish.rs"]
mod publish;
#[path = "conformance/refuse.rs"]
mod refuse;
#[path = "conformance/release.rs"]
mod release;
#[path = "conformance/retry.rs"]
mod retry;
#[path = "conformance/rewritten.rs"]
mod rewritten;
#[path = "conformance/timer_batch.rs"]
mod timer_batch;
#[path = "conformance/timers.rs"]
mod timers;
#[path = "conformance/validate.rs"]
mod validate;
#[path = "conformance/validate_anew.rs"]
mod validate_anew;
#[path = "conformance/validate_columns.rs"]
mod validate_columns;
#[path = "conformance/validate_postgres.rs"]
mod validate_postgres;
#[path = "conformance/validate_sqlite.rs"]
mod validate_sqlite;
#[path = "conformance/wakes.rs"]
mod wakes;
