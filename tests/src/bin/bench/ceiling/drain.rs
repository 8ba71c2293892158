//! Claims of a thousand on one connection, deletes on another, overlapped; two
//! such pairs.
//!
//! The best form found: without the overlap each side waits for the other, more pairs
//! than cores only wait for the processor, and from a thousand rows on what a
//! statement costs by itself no longer shows. Rows that are locked are found again by
//! their places, in an array: a join would copy each row of what it joins, and a CTE keep it.
//! What the other pair is about to claim is passed by without a try to lock it.

use anyhow::Result;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Executor, Row};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::db::QUEUE;
use crate::scenario::drain::Order;

pub const CLAIM: &str = "UPDATE outbox AS o
    SET acquired_token = $3, acquired_at = clock_timestamp(), deliveries_count = o.deliveries_count + 1
    WHERE o.ctid = ANY(ARRAY(
        SELECT ctid FROM outbox
        WHERE queue = $1 AND next_attempt_at <= (SELECT clock_timestamp())
          AND acquired_token IS NULL
          AND next_attempt_at >= $4 AND (xmax = 0 OR $4 = '-infinity')
        ORDER BY next_attempt_at, id
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    )) AND o.acquired_token IS NULL
    RETURNING o.id, o.payload, o.headers::text, o.next_attempt_at";
pub const DELETE: &str =
    "DELETE FROM outbox WHERE id = ANY($1) AND acquired_token = $2 RETURNING id";

pub async fn run(options: &PgConnectOptions, pairs: usize, batch: i64) -> Result<u64> {
    let pairs = (0..pairs).map(|_| tokio::spawn(pair(options.clone(), batch)));
    let mut handled = 0;
    for pair in pairs.collect::<Vec<_>>() {
        handled += pair.await??;
    }
    Ok(handled)
}

async fn pair(options: PgConnectOptions, batch: i64) -> Result<u64> {
    let (send, mut receive) = mpsc::channel::<(Uuid, Vec<i64>)>(1);
    let mut settling = options.connect().await?;
    let settler = tokio::spawn(async move {
        let mut settled = 0;
        while let Some((token, ids)) = receive.recv().await {
            let deleted =
                sqlx::query(DELETE).bind(ids).bind(token).fetch_all(&mut settling).await?;
            settled += deleted.len() as u64;
        }
        anyhow::Ok(settled)
    });
    let mut claiming: PgConnection = options.connect().await?;
    claiming.execute("SET synchronous_commit = off").await?;
    let mut floor = crate::db::Stamp::default();
    loop {
        let token = Uuid::new_v4();
        let rows = sqlx::query(CLAIM)
            .bind(QUEUE)
            .bind(batch)
            .bind(token)
            .bind(floor)
            .fetch_all(&mut claiming)
            .await?;
        if rows.is_empty() {
            break;
        }
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            let order: Order = serde_json::from_slice(row.try_get::<&[u8], _>(1)?)?;
            std::hint::black_box((order, row.try_get::<&str, _>(2)?));
            ids.push(row.try_get(0)?);
            floor = floor.max(row.try_get(3)?);
        }
        send.send((token, ids)).await?;
    }
    drop(send);
    settler.await?
}
