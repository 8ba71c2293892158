//! Sessions and statements, ended by an administrator.

use anyhow::Result;
use fastrand::Rng;

use crate::world::{ROLE, World};

async fn some(world: &World, what: &str, share: f64) -> Result<bool> {
    let sql = format!(
        "SELECT {what}(pid) FROM pg_stat_activity
         WHERE usename = '{ROLE}' AND random() <= {share}"
    );
    Ok(world.admin_does(sql).await? > 0)
}

/// Ten in a hundred, a third, or all.
pub(super) async fn terminate(world: &World, mut rng: Rng) -> Result<bool> {
    some(world, "pg_terminate_backend", [0.1, 0.3, 1.0][rng.usize(0..3)]).await
}

pub(super) async fn cancel(world: &World, mut rng: Rng) -> Result<bool> {
    some(world, "pg_cancel_backend", [0.3, 1.0][rng.usize(0..2)]).await
}

/// All of them, so that a setting applies.
pub(super) async fn renew(world: &World) -> Result<()> {
    some(world, "pg_terminate_backend", 1.0).await.map(drop)
}
