//! What a service writes by hand that inserts its own outbox rows.
//!
//! The best form: one prepared statement with the row's values and nothing to read
//! back; for many rows the arrays of one `INSERT … SELECT FROM unnest`. (COPY is
//! faster, but it is no statement among others of a transaction and keeps its
//! connection from anything else.) The headers are those that every message of the
//! framework has, put together by hand.

use anyhow::Result;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::db::QUEUE;
use crate::scenario::drain::Order;

const INSERT: &str = "INSERT INTO outbox (queue, payload, headers, created_at, next_attempt_at)
    VALUES ($1, $2, $3::jsonb, clock_timestamp(), clock_timestamp())";

const INSERT_MANY: &str =
    "INSERT INTO outbox (queue, payload, headers, created_at, next_attempt_at)
    SELECT $1, payload, headers::jsonb, clock_timestamp(), clock_timestamp()
    FROM unnest($2::bytea[], $3::text[]) AS m(payload, headers)";

pub async fn insert(connection: &mut PgConnection, order: &Order) -> Result<()> {
    let insert = sqlx::query(INSERT).bind(QUEUE).bind(serde_json::to_vec(order)?).bind(headers());
    insert.execute(connection).await?;
    Ok(())
}

pub async fn insert_many(connection: &mut PgConnection, orders: &[Order]) -> Result<()> {
    let payloads = orders.iter().map(serde_json::to_vec).collect::<Result<Vec<_>, _>>()?;
    let headers: Vec<_> = orders.iter().map(|_| headers()).collect();
    sqlx::query(INSERT_MANY).bind(QUEUE).bind(payloads).bind(headers).execute(connection).await?;
    Ok(())
}

pub fn headers() -> String {
    let id = Uuid::now_v7();
    format!(
        r#"{{"content-type":"application/json","correlation_id":"{id}","outbox-tracking-ids":"{id}"}}"#
    )
}
