//! Dead letters as a test wants them.

use outbox_tests::db::Db;

/// Open letters of a queue, a second apart, the first the oldest; the payload of letter
/// `n` is `{"id": n }`.
pub async fn plant(db: &Db, queue: &str, count: u32) {
    let (payload, failed, series) = if db.is_postgres() {
        (
            "convert_to('{\"id\": ' || n || ' }', 'UTF8')",
            format!("clock_timestamp() - ({count} - n + 1) * interval '1 second'"),
            format!("generate_series(1, {count}) AS series(n)"),
        )
    } else {
        (
            "CAST('{\"id\": ' || n || ' }' AS BLOB)",
            format!("CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ({count} - n + 1) * 1000000"),
            format!(
                "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) \
                 SELECT n FROM s) AS series"
            ),
        )
    };
    db.exec(format!(
        "INSERT INTO outbox_dlq (original_id, queue, payload, headers, deliveries_count, \
            created_at, failed_at, failure_reason, last_exception, error_kind) \
         SELECT n, '{queue}', {payload}, '{{\"tenant\": \"acme\"}}', 3, {failed}, {failed}, \
            'retry_terminal', 'order ' || n || ' is broken', 'OrderError' FROM {series}"
    ))
    .await;
}

/// The letter of the row with this id.
pub async fn id_of(db: &Db, original: i64) -> i64 {
    db.int(format!("SELECT id FROM outbox_dlq WHERE original_id = {original}")).await
}
