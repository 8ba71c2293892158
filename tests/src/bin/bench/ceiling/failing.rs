//! The drain's two pairs of connections, where what is claimed comes back once, or
//! becomes a dead letter.
//!
//! The best form for the same reason as there: claims and settlements overlap, and
//! each is one statement for a thousand rows, which all get the same values. All
//! rows of a claim share its token, so a settlement names the token once and joins
//! nothing. One pair, three pairs, claims of 500 or 2,000 are within the noise of this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Executor, Row};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::db::{QUEUE, Stamp};
use crate::scenario::drain::Order;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    AfterOneRetry,
    Dead,
}

/// What both say of a failed message.
pub const ERROR: &str = "no such customer";

const PAIRS: usize = 2;
const BATCH: i64 = 1000;

const CLAIM: &str = "UPDATE outbox AS o
    SET acquired_token = $3, acquired_at = clock_timestamp(), deliveries_count = o.deliveries_count + 1
    WHERE o.ctid = ANY(ARRAY(
        SELECT ctid FROM outbox
        WHERE queue = $1 AND next_attempt_at <= (SELECT clock_timestamp())
          AND acquired_token IS NULL AND next_attempt_at >= $4 AND (xmax = 0 OR $4 = '-infinity')
        ORDER BY next_attempt_at, id
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    )) AND o.acquired_token IS NULL
    RETURNING o.id, o.payload, o.headers::text, o.next_attempt_at, o.attempts_count";
const DELETE: &str = "DELETE FROM outbox WHERE id = ANY($1) AND acquired_token = $2 RETURNING id";
const RETRY: &str = "UPDATE outbox
    SET attempts_count = attempts_count + 1,
        next_attempt_at = clock_timestamp() + interval '1 millisecond',
        first_attempt_at = coalesce(first_attempt_at, clock_timestamp()),
        last_attempt_at = clock_timestamp(), acquired_token = NULL, acquired_at = NULL
    WHERE id = ANY($1) AND acquired_token = $2 RETURNING id";
const BURY: &str = "WITH deleted AS (
        DELETE FROM outbox WHERE id = ANY($1) AND acquired_token = $2
        RETURNING id, queue, payload, headers, deliveries_count, created_at, timer_id
    )
    INSERT INTO outbox_dlq (original_id, queue, payload, headers, deliveries_count, created_at,
        failed_at, failure_reason, last_exception, timer_id)
    SELECT id, queue, payload, headers, deliveries_count, created_at, clock_timestamp(),
        'rejected', $3, timer_id
    FROM deleted RETURNING original_id";

/// The rows of one claim that end alike.
struct Settle {
    sql: &'static str,
    token: Uuid,
    ids: Vec<i64>,
}

pub async fn run(options: &PgConnectOptions, ends: Ends, messages: u64) -> Result<()> {
    let left = Arc::new(AtomicU64::new(messages));
    let pairs = (0..PAIRS).map(|_| tokio::spawn(pair(options.clone(), ends, Arc::clone(&left))));
    for pair in pairs.collect::<Vec<_>>() {
        pair.await??;
    }
    Ok(())
}

async fn pair(options: PgConnectOptions, ends: Ends, left: Arc<AtomicU64>) -> Result<()> {
    let (send, mut receive) = mpsc::channel::<Settle>(1);
    let mut settling = options.connect().await?;
    let gone = Arc::clone(&left);
    let settler = tokio::spawn(async move {
        while let Some(Settle { sql, token, ids }) = receive.recv().await {
            let query = sqlx::query(sql).bind(ids).bind(token);
            let query = if sql == BURY { query.bind(ERROR) } else { query };
            let hit = query.fetch_all(&mut settling).await?.len() as u64;
            if sql != RETRY {
                gone.fetch_sub(hit, Ordering::Relaxed);
            }
        }
        anyhow::Ok(())
    });
    let mut claiming = options.connect().await?;
    claiming.execute("SET synchronous_commit = off").await?;
    let mut floor = Stamp::default();
    while left.load(Ordering::Relaxed) > 0 {
        let token = Uuid::new_v4();
        let (first, again) = claim(&mut claiming, token, &mut floor).await?;
        if first.is_empty() && again.is_empty() {
            // Retries of the other pair may be due before this one's floor.
            floor = Stamp::default();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let of_first = if ends == Ends::Dead { BURY } else { RETRY };
        for (sql, ids) in [(of_first, first), (DELETE, again)] {
            if !ids.is_empty() {
                send.send(Settle { sql, token, ids }).await?;
            }
        }
    }
    drop(send);
    settler.await?
}

/// Those that are claimed for the first time, and those that were tried before.
async fn claim(
    claiming: &mut PgConnection,
    token: Uuid,
    floor: &mut Stamp,
) -> Result<(Vec<i64>, Vec<i64>)> {
    let query = sqlx::query(CLAIM).bind(QUEUE).bind(BATCH).bind(token).bind(*floor);
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for row in query.fetch_all(claiming).await? {
        let order: Order = serde_json::from_slice(row.try_get::<&[u8], _>(1)?)?;
        std::hint::black_box((order, row.try_get::<&str, _>(2)?));
        *floor = (*floor).max(row.try_get(3)?);
        let side = if row.try_get::<i64, _>(4)? == 0 { &mut first } else { &mut again };
        side.push(row.try_get(0)?);
    }
    Ok((first, again))
}
