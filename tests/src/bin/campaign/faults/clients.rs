//! What applies to every session of a role or a database.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tokio::time::{sleep, timeout};

use super::sessions::renew;
use crate::world::{ROLE, World};

async fn set(world: &World, of: &str, setting: &str, to: &str, time: Duration) -> Result<bool> {
    let Ok(_one) = world.settings.try_lock() else { return Ok(false) };
    world.admin_does(format!("ALTER {of} SET {setting} = '{to}'")).await?;
    let _ = renew(world).await;
    sleep(time).await;
    while world.admin_does(format!("ALTER {of} RESET {setting}")).await.is_err() {
        sleep(Duration::from_millis(100)).await;
    }
    let _ = renew(world).await;
    Ok(true)
}

pub(super) async fn statement_timeout(world: &World, _: Rng) -> Result<bool> {
    let of = format!("ROLE {ROLE}");
    set(world, &of, "statement_timeout", "50ms", Duration::from_secs(4)).await
}

pub(super) async fn lock_timeout(world: &World, _: Rng) -> Result<bool> {
    let of = format!("ROLE {ROLE}");
    set(world, &of, "lock_timeout", "20ms", Duration::from_secs(6)).await
}

pub(super) async fn idle_timeout(world: &World, _: Rng) -> Result<bool> {
    let of = format!("ROLE {ROLE}");
    set(world, &of, "idle_session_timeout", "500ms", Duration::from_secs(6)).await
}

pub(super) async fn serializable(world: &World, _: Rng) -> Result<bool> {
    let setting = "default_transaction_isolation";
    set(world, "DATABASE postgres", setting, "serializable", Duration::from_secs(12)).await
}

/// Takes every connection there is, at a moment when all have to be made anew.
pub(super) async fn use_up(world: &World, mut rng: Rng) -> Result<bool> {
    let options: PgConnectOptions = world.url.parse()?;
    let options = options.username(ROLE).application_name("storm");
    renew(world).await?;
    let mut taken = Vec::new();
    let mut full = false;
    while !full && taken.len() < 200 {
        let connect = PgConnection::connect_with(&options);
        match timeout(Duration::from_secs(3), connect).await {
            Ok(Ok(one)) => taken.push(one),
            _ => full = true,
        }
    }
    sleep(Duration::from_millis(rng.u64(1_000..3_000))).await;
    for mut one in taken {
        let _ = one.execute(AssertSqlSafe("SELECT 1".to_owned())).await;
        let _ = one.close().await;
    }
    Ok(full)
}
