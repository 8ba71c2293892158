//! Sessions and statements, ended by an administrator.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tokio::time::{Instant, sleep};

use crate::world::{ROLE, World};

/// How long a statement is looked for: most of them are short.
const LOOKS: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(1);

fn some(what: &str, which: &str, share: f64) -> String {
    format!(
        "SELECT {what}(pid) FROM pg_stat_activity
         WHERE usename = '{ROLE}' AND {which} AND random() <= {share}"
    )
}

async fn end(world: &World, share: f64) -> Result<bool> {
    Ok(world.admin_does(some("pg_terminate_backend", "true", share)).await? > 0)
}

/// Ten in a hundred, a third, or all.
pub(super) async fn terminate(world: &World, mut rng: Rng) -> Result<bool> {
    end(world, [0.1, 0.3, 1.0][rng.usize(0..3)]).await
}

/// Those that run just then: a session that is idle does not notice.
pub(super) async fn cancel(world: &World, mut rng: Rng) -> Result<bool> {
    let runs = "state = 'active' AND query NOT ILIKE 'listen%'";
    let sql = some("pg_cancel_backend", runs, [0.3, 1.0][rng.usize(0..2)]);
    let (mut admin, begun) = (world.admin().await?, Instant::now());
    let mut hit = false;
    while !hit && begun.elapsed() < LOOKS {
        hit = admin.execute(AssertSqlSafe(sql.clone())).await?.rows_affected() > 0;
        sleep(PAUSE).await;
    }
    admin.close().await?;
    Ok(hit)
}

/// All of them, so that a setting applies.
pub(super) async fn renew(world: &World) -> Result<()> {
    end(world, 1.0).await.map(drop)
}

#[cfg(test)]
mod tests {
    use outbox_tests::backend::{require, unique};
    use outbox_tests::server::scratch;
    use sqlx::postgres::{PgConnectOptions, PgConnection};

    use super::*;
    use crate::args::Store;

    #[tokio::test]
    async fn a_cancel_strikes_a_statement_and_no_idle_session() {
        if !require("postgres") {
            return;
        }
        let folder = scratch().join(unique("outbox-cancel"));
        std::fs::create_dir_all(&folder).unwrap();
        let world = World::make(Store::Postgres, folder.clone(), 0).await.unwrap();
        let options = world.url.parse::<PgConnectOptions>().unwrap().username(ROLE);
        let mut session = PgConnection::connect_with(&options).await.unwrap();
        session.execute("SELECT 1").await.unwrap();
        assert!(!cancel(&world, Rng::with_seed(0)).await.unwrap(), "nothing runs");
        let sleeps = session.execute("SELECT pg_sleep(60)");
        let (ended, hit) = tokio::join!(sleeps, cancel(&world, Rng::with_seed(0)));
        assert!(hit.unwrap());
        let error = ended.unwrap_err().into_database_error().unwrap();
        assert_eq!(error.code().as_deref(), Some("57014"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
