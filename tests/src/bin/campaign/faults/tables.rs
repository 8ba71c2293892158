//! The tables: missing, denied, locked.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use sqlx::{Connection as _, Executor as _};
use tokio::time::sleep;

use crate::workload::TTL;
use crate::world::{ROLE, World};

/// Breaks something for a while, and mends it whatever happens to the server meanwhile.
pub(super) async fn meanwhile(
    world: &World,
    time: Duration,
    break_it: String,
    mend: String,
) -> Result<bool> {
    let Ok(_one) = world.settings.try_lock() else { return Ok(false) };
    world.admin_does(break_it).await?;
    sleep(time).await;
    while world.admin_does(mend.clone()).await.is_err() {
        sleep(Duration::from_millis(100)).await;
    }
    Ok(true)
}

pub(super) async fn rename_letters(world: &World, mut rng: Rng) -> Result<bool> {
    let time = Duration::from_millis(rng.u64(1_000..4_000));
    let away = "ALTER TABLE outbox_dlq RENAME TO outbox_dlq_away";
    let back = "ALTER TABLE IF EXISTS outbox_dlq_away RENAME TO outbox_dlq";
    meanwhile(world, time, away.into(), back.into()).await
}

pub(super) async fn deny_letters(world: &World, mut rng: Rng) -> Result<bool> {
    let time = Duration::from_millis(rng.u64(1_000..4_000));
    let deny = format!("REVOKE INSERT ON outbox_dlq FROM {ROLE}");
    meanwhile(world, time, deny, format!("GRANT INSERT ON outbox_dlq TO {ROLE}")).await
}

pub(super) async fn lack_column(world: &World, mut rng: Rng) -> Result<bool> {
    let time = Duration::from_millis(rng.u64(1_000..4_000));
    let lack = "ALTER TABLE outbox_dlq RENAME COLUMN note TO note_";
    let back = "DO $$ BEGIN ALTER TABLE outbox_dlq RENAME COLUMN note_ TO note;
        EXCEPTION WHEN undefined_column THEN END $$";
    meanwhile(world, time, lack.into(), back.into()).await
}

/// As a deployment does it under running workers.
pub(super) async fn add_column(world: &World, _: Rng) -> Result<bool> {
    let add = "ALTER TABLE outbox ADD COLUMN spare integer";
    let drop = "ALTER TABLE outbox DROP COLUMN IF EXISTS spare";
    meanwhile(world, Duration::from_secs(2), add.into(), drop.into()).await
}

pub(super) async fn lock(world: &World, mut rng: Rng) -> Result<bool> {
    let mut admin = world.admin().await?;
    admin.execute("BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE").await?;
    sleep(Duration::from_millis(rng.u64(500..3_000))).await;
    admin.execute("ROLLBACK").await?;
    admin.close().await?;
    Ok(true)
}

/// Rows of running handlers, until their leases are over: no claim takes what is locked.
pub(super) async fn lock_rows(world: &World, mut rng: Rng) -> Result<bool> {
    let mut admin = world.admin().await?;
    let lock = "SELECT id FROM outbox WHERE acquired_token IS NOT NULL
        ORDER BY random() LIMIT 40 FOR UPDATE SKIP LOCKED";
    admin.execute("BEGIN").await?;
    let locked = admin.execute(lock).await?.rows_affected();
    sleep(TTL + Duration::from_millis(rng.u64(200..1_500))).await;
    admin.execute("ROLLBACK").await?;
    admin.close().await?;
    Ok(locked > 0)
}
