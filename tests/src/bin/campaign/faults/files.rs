//! A SQLite file and the processes that share it.

use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, SqliteConnection};
use tokio::time::sleep;

use crate::world::World;

pub async fn open(world: &World) -> Result<SqliteConnection> {
    let options = world.url.parse::<SqliteConnectOptions>()?;
    Ok(options.busy_timeout(Duration::from_secs(20)).connect().await?)
}

/// The file is sound after every kill, whatever was half written.
pub async fn is_sound(world: &World) -> Result<()> {
    let mut file = open(world).await?;
    let told: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut file).await?;
    file.close().await?;
    ensure!(told == "ok", "integrity_check: {told}");
    Ok(())
}

pub(super) async fn kill(world: &World, mut rng: Rng) -> Result<bool> {
    let seat = world.worker(&mut rng);
    let hit = world.fleet.signal(seat, "KILL").await?.is_some();
    if let Err(broken) = is_sound(world).await {
        world.broken(format!("{broken:#}"));
    }
    Ok(hit)
}

/// Somebody writes for longer than others wait.
pub(super) async fn lock(world: &World, mut rng: Rng) -> Result<bool> {
    let mut file = open(world).await?;
    file.execute("BEGIN IMMEDIATE").await?;
    sleep(Duration::from_millis(rng.u64(500..7_000))).await;
    file.execute("ROLLBACK").await?;
    file.close().await?;
    Ok(true)
}

pub(super) async fn rename_letters(world: &World, mut rng: Rng) -> Result<bool> {
    let Ok(_one) = world.settings.try_lock() else { return Ok(false) };
    rename(world, "outbox_dlq", "outbox_dlq_away").await?;
    sleep(Duration::from_millis(rng.u64(1_000..4_000))).await;
    while rename(world, "outbox_dlq_away", "outbox_dlq").await.is_err() {
        sleep(Duration::from_millis(100)).await;
    }
    Ok(true)
}

async fn rename(world: &World, from: &str, to: &str) -> Result<()> {
    let mut file = open(world).await?;
    file.execute(AssertSqlSafe(format!("ALTER TABLE {from} RENAME TO {to}"))).await?;
    Ok(file.close().await?)
}
