//! The drain's pair of connections on a table that is being filled: what is claimed
//! is deleted by the other connection while the next is claimed.
//!
//! The best form: without a NOTIFY nobody says that there is something to claim, so it
//! asks again at once while it gets full claims, and after a millisecond when not, so
//! that under load a claim has many rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Executor, Row};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::drain::{CLAIM, DELETE};
use crate::db::{QUEUE, Stamp};
use crate::scenario::drain::{Count, Order};

const BATCH: i64 = 1000;
/// Publishers commit late, with a time before the floor.
const SWEEP: u32 = 100;

pub async fn run(options: PgConnectOptions, stop: Arc<AtomicBool>, count: Count) -> Result<()> {
    let (send, mut receive) = mpsc::channel::<(Uuid, Vec<i64>)>(1);
    let mut settling = options.connect().await?;
    let settler = tokio::spawn(async move {
        while let Some((token, ids)) = receive.recv().await {
            sqlx::query(DELETE).bind(ids).bind(token).fetch_all(&mut settling).await?;
        }
        anyhow::Ok(())
    });
    let mut claiming = options.connect().await?;
    claiming.execute("SET synchronous_commit = off").await?;
    let (mut floor, mut claims) = (Stamp::default(), 0_u32);
    while !stop.load(Ordering::Relaxed) {
        let token = Uuid::new_v4();
        let from = if claims.is_multiple_of(SWEEP) { Stamp::default() } else { floor };
        let claim = sqlx::query(CLAIM).bind(QUEUE).bind(BATCH).bind(token).bind(from);
        let rows = claim.fetch_all(&mut claiming).await?;
        claims = claims.wrapping_add(1);
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            let order: Order = serde_json::from_slice(row.try_get::<&[u8], _>(1)?)?;
            std::hint::black_box((order, row.try_get::<&str, _>(2)?));
            ids.push(row.try_get(0)?);
            floor = floor.max(row.try_get(3)?);
            count.add(u64::MAX);
        }
        let full = ids.len() == BATCH as usize;
        if !ids.is_empty() {
            send.send((token, ids)).await?;
        }
        if !full {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    drop(send);
    settler.await?
}
