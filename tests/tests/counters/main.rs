//! What the engine costs, in numbers that do not depend on the machine: statements,
//! connections, index entries, WAL, and the plans of its statements. PostgreSQL only.

mod buffers;
mod drain;
mod explain;
mod idle;
mod operators;
mod paused;
mod plans;
mod shared;
mod trickle;
mod vacuum;
mod work;

use outbox_tests::db::Db;
use outbox_tests::wire::Wire;
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnection, PgPoolOptions};

/// Rows of about 100 bytes as `publish` writes them, due now, in statements of
/// their own transaction.
async fn fill(connection: &mut PgConnection, table: &str, queue: &str, rows: u32) {
    let sql = format!(
        "INSERT INTO {table} (queue, payload, headers, created_at, next_attempt_at)
         SELECT '{queue}', convert_to(repeat('7', 100), 'UTF8'),
             '{{\"content-type\": \"application/json\"}}', clock_timestamp(), clock_timestamp()
         FROM generate_series(1, {rows})"
    );
    sqlx::query(AssertSqlSafe(sql)).execute(connection).await.unwrap();
}

/// An app whose connections go through the wire.
fn app(db: &Db, wire: &Wire) -> outbox::App {
    let pool = PgPoolOptions::new().connect_lazy_with(wire.options.clone());
    outbox::App::postgres(pool).names(db.names.clone()).only([])
}
