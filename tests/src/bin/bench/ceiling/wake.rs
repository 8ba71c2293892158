//! LISTEN, claim and delete, each on its own connection.
//!
//! The best form for single messages: nothing is polled and nothing waited for; each
//! notification is one claim, the row's payload comes back with it, and both
//! statements are prepared. The claim is the engine's own kind, a lease under a token,
//! so that a crash loses nothing, and its commit is not waited for.

use std::time::Instant;

use anyhow::Result;
use serde::de::DeserializeOwned;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, Row as _};
use tokio::sync::oneshot;
use uuid::Uuid;

const CLAIM: &str = "WITH due AS MATERIALIZED (
        SELECT id FROM outbox
        WHERE queue = $1 AND next_attempt_at <= clock_timestamp() AND acquired_token IS NULL
        ORDER BY next_attempt_at, id
        LIMIT 100
        FOR UPDATE SKIP LOCKED
    )
    UPDATE outbox AS o
    SET acquired_token = $2, acquired_at = clock_timestamp(), deliveries_count = o.deliveries_count + 1
    FROM due WHERE o.id = due.id AND o.acquired_token IS NULL
    RETURNING o.id, o.payload, o.headers::text";
const DELETE: &str = "DELETE FROM outbox WHERE id = ANY($1) AND acquired_token = $2";

/// Hands each message to `handle`, with the time at which it was there, until the
/// sender of `stop` is dropped. Says on `ready` when it listens.
pub async fn run<T: DeserializeOwned>(
    options: PgConnectOptions,
    queue: &str,
    mut stop: oneshot::Receiver<()>,
    ready: oneshot::Sender<()>,
    mut handle: impl FnMut(T, Instant),
) -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    let channel = crate::db::names().channel();
    listener.listen(&channel).await?;
    // Publishers wake those who sleep.
    let locks = outbox_tests::backend::sleepers(&channel);
    let asleep = format!("SELECT pg_advisory_lock_shared(lock) FROM ({locks}) AS given");
    listener.execute(AssertSqlSafe(asleep)).await?;
    let mut settling = options.connect().await?;
    let mut claiming = options.connect().await?;
    claiming.execute("SET synchronous_commit = off").await?;
    let _ = ready.send(());
    loop {
        tokio::select! {
            heard = listener.recv() => {
                if heard?.payload() != queue {
                    continue;
                }
            }
            _ = &mut stop => return Ok(()),
        }
        let token = Uuid::new_v4();
        let rows = sqlx::query(CLAIM).bind(queue).bind(token).fetch_all(&mut claiming).await?;
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            let message = serde_json::from_slice(row.try_get(1)?)?;
            std::hint::black_box(row.try_get::<&str, _>(2)?);
            handle(message, Instant::now());
            ids.push(row.try_get::<i64, _>(0)?);
        }
        if !ids.is_empty() {
            sqlx::query(DELETE).bind(ids).bind(token).execute(&mut settling).await?;
        }
    }
}
