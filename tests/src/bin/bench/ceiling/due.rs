//! Claims what is due, asks when the next row will be, and sleeps until then.
//!
//! The best form for due times: no poll, one claim and one look at the index a moment
//! at which something is due. The clock that decides is the database's.

use std::time::{Duration, Instant};

use anyhow::Result;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Row as _};
use tokio::time::sleep;
use uuid::Uuid;

const CLAIM: &str = "WITH due AS MATERIALIZED (
        SELECT id FROM outbox
        WHERE queue = ANY($1) AND next_attempt_at <= clock_timestamp() AND acquired_token IS NULL
        ORDER BY next_attempt_at, id
        LIMIT 100
        FOR UPDATE SKIP LOCKED
    )
    UPDATE outbox AS o
    SET acquired_token = $2, acquired_at = clock_timestamp(), deliveries_count = o.deliveries_count + 1
    FROM due WHERE o.id = due.id AND o.acquired_token IS NULL
    RETURNING o.id, o.payload, o.headers::text";
const DELETE: &str = "DELETE FROM outbox WHERE id = ANY($1) AND acquired_token = $2";
const NEXT: &str =
    "SELECT (extract(epoch FROM min(next_attempt_at) - clock_timestamp()) * 1000000)::bigint
    FROM unnest($1::text[]) AS wanted(queue)
    CROSS JOIN LATERAL (
        SELECT next_attempt_at FROM outbox AS o
        WHERE o.queue = wanted.queue AND acquired_token IS NULL
        ORDER BY next_attempt_at, id LIMIT 1
    ) AS first";

/// Until the queues are empty. Hands over each row with the time at which it was here.
pub async fn run(
    options: &PgConnectOptions,
    queues: &[&str],
    mut handle: impl FnMut(i64, Instant),
) -> Result<()> {
    let (mut claiming, mut settling) = (options.connect().await?, options.connect().await?);
    loop {
        let token = Uuid::new_v4();
        let rows = sqlx::query(CLAIM).bind(queues).bind(token).fetch_all(&mut claiming).await?;
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            let payload: serde_json::Value = serde_json::from_slice(row.try_get(1)?)?;
            std::hint::black_box((payload, row.try_get::<&str, _>(2)?));
            handle(row.try_get(0)?, Instant::now());
            ids.push(row.try_get::<i64, _>(0)?);
        }
        if !ids.is_empty() {
            sqlx::query(DELETE).bind(ids).bind(token).execute(&mut settling).await?;
        }
        let next: Option<i64> =
            sqlx::query_scalar(NEXT).bind(queues).fetch_one(&mut claiming).await?;
        let Some(next) = next else { return Ok(()) };
        sleep(Duration::from_micros(next.max(0).unsigned_abs())).await;
    }
}
