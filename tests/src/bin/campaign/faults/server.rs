//! The server: a backend killed, so that it restarts all of them, or the whole of it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use outbox_tests::server::Server;
use sqlx::Connection as _;
use tokio::time::sleep;

use crate::fleet::kill;
use crate::world::{ROLE, World};

pub(super) async fn kill_backend(world: &World, _: Rng) -> Result<bool> {
    let Ok(_turn) = world.turn.try_lock() else { return Ok(false) };
    let mut admin = world.admin().await?;
    let sql = "SELECT pid FROM pg_stat_activity WHERE usename = $1 ORDER BY random() LIMIT 1";
    let pid: Option<i32> = sqlx::query_scalar(sql).bind(ROLE).fetch_optional(&mut admin).await?;
    admin.close().await?;
    let Some(pid) = pid else { return Ok(false) };
    kill("KILL", pid.unsigned_abs()).await?;
    // The postmaster has to notice first.
    sleep(Duration::from_millis(50)).await;
    world.answers().await?;
    Ok(true)
}

fn of(world: &World) -> Result<Arc<Server>> {
    world.server.clone().context("there is no server")
}

pub(super) async fn stop(world: &World, mut rng: Rng) -> Result<bool> {
    let Ok(_turn) = world.turn.try_lock() else { return Ok(false) };
    let server = of(world)?;
    tokio::task::spawn_blocking(move || server.kill()).await??;
    start(world, &mut rng).await
}

pub(super) async fn kill_postmaster(world: &World, mut rng: Rng) -> Result<bool> {
    let Ok(_turn) = world.turn.try_lock() else { return Ok(false) };
    let pid = std::fs::read_to_string(of(world)?.folder.join("data/postmaster.pid"))?;
    let pid = pid.lines().next().context("it names the process")?.parse()?;
    kill("KILL", pid).await?;
    start(world, &mut rng).await
}

async fn start(world: &World, rng: &mut Rng) -> Result<bool> {
    sleep(Duration::from_millis(rng.u64(0..1_000))).await;
    // What is left of it may still be there for a moment.
    for _ in 0..50 {
        let server = of(world)?;
        if tokio::task::spawn_blocking(move || server.start_again()).await?.is_ok() {
            break;
        }
        sleep(Duration::from_millis(200)).await;
    }
    world.answers().await?;
    Ok(true)
}
