//! One connection that claims ahead, 64 workers behind a channel, one connection that
//! deletes whatever is done since its last statement.
//!
//! The best form: no worker ever waits for a statement, since 500 messages are at
//! hand, forty milliseconds of work; and both statements are as cheap as the drain's.

use std::sync::Arc;

use anyhow::Result;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Executor, Row};
use tokio::sync::{Mutex, mpsc};
use uuid::Uuid;

use super::drain::CLAIM;
use crate::db::{QUEUE, Stamp};
use crate::scenario::drain::Order;
use crate::scenario::drain_slow::{WORKERS, Work};

const BATCH: i64 = 500;

/// All rows have the token of this run.
const DELETE: &str = "DELETE FROM outbox WHERE id = ANY($1) AND acquired_token = $2";

pub async fn run(options: &PgConnectOptions, messages: u64, work: Work) -> Result<()> {
    let token = Uuid::new_v4();
    let (claimed, due) = mpsc::channel::<(i64, Vec<u8>)>(500);
    let (done, mut handled) = mpsc::channel::<i64>(1000);
    let due = Arc::new(Mutex::new(due));
    for _ in 0..WORKERS {
        let (due, done, work) = (Arc::clone(&due), done.clone(), work.clone());
        tokio::spawn(async move {
            loop {
                let Some((id, payload)) = due.lock().await.recv().await else { break };
                let order: Order = serde_json::from_slice(&payload)?;
                std::hint::black_box(order);
                work.run().await;
                done.send(id).await?;
            }
            anyhow::Ok(())
        });
    }
    let mut claiming = options.connect().await?;
    claiming.execute("SET synchronous_commit = off").await?;
    let claimer = tokio::spawn(async move {
        let mut floor = Stamp::default();
        loop {
            let claim = sqlx::query(CLAIM).bind(QUEUE).bind(BATCH).bind(token).bind(floor);
            let rows = claim.fetch_all(&mut claiming).await?;
            if rows.is_empty() {
                return anyhow::Ok(());
            }
            for row in rows {
                std::hint::black_box(row.try_get::<&str, _>(2)?);
                floor = floor.max(row.try_get(3)?);
                claimed.send((row.try_get(0)?, row.try_get(1)?)).await?;
            }
        }
    });
    let mut settling = options.connect().await?;
    let (mut left, mut ids) = (messages, Vec::new());
    while left > 0 {
        handled.recv_many(&mut ids, 1000).await;
        let delete = sqlx::query(DELETE).bind(&ids).bind(token);
        left -= delete.execute(&mut settling).await?.rows_affected();
        ids.clear();
    }
    claimer.await?
}
