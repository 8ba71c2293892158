//! Two that wait for each other, of which one gives way.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tokio::time::{Instant, sleep, timeout};

use crate::world::World;

const TIME: Duration = Duration::from_secs(20);
/// How long settlements pile up behind what is locked.
const PILE: Duration = Duration::from_millis(150);
/// In which settlements get through.
const PAUSE: Duration = Duration::from_millis(200);
/// More than a round takes, of which each lock is waited for a second at most.
const ROUND: Duration = Duration::from_secs(5);
/// A session tells of its own after ten seconds at most.
const TOLD: Duration = Duration::from_secs(11);

/// Writes rows in the order in which nobody else does, and by turns is in no hurry to find
/// that out, so that the app gives way, and finds it out at once. True if it was ended for that.
pub(super) async fn deadlock(world: &World, _: Rng) -> Result<bool> {
    let before = deadlocks(world).await?;
    let begun = Instant::now();
    for finds_out in ["1min", "10ms"].into_iter().cycle() {
        if begun.elapsed() >= TIME {
            break;
        }
        // One that was ended, or that the server was away for, is not the last.
        let _ = timeout(ROUND, tangle(world, finds_out)).await;
        sleep(PAUSE).await;
    }
    let waited = Instant::now();
    while waited.elapsed() < TOLD {
        if deadlocks(world).await.is_ok_and(|count| count > before) {
            return Ok(true);
        }
        sleep(Duration::from_millis(500)).await;
    }
    Ok(false)
}

async fn deadlocks(world: &World) -> Result<i64> {
    let mut admin = world.admin().await?;
    let sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    let count = sqlx::query_scalar(sql).fetch_one(&mut admin).await?;
    admin.close().await?;
    Ok(count)
}

/// Settlements lock their rows from the lowest id on. The middle of what is leased is kept
/// from them, so that they wait and have low rows, and the high ones too; then the low ones
/// are asked for. When the middle is let go, whoever goes on to a high row closes the ring.
async fn tangle(world: &World, finds_out: &str) -> Result<()> {
    let (mut high, mut middle) = (world.admin().await?, world.admin().await?);
    let leased = "SELECT id FROM outbox WHERE acquired_token IS NOT NULL ORDER BY id";
    let ids: Vec<i64> = sqlx::query_scalar(leased).fetch_all(&mut high).await?;
    if ids.len() >= 3 {
        let third = ids.len() / 3;
        lock(&mut high, &ids[2 * third..], finds_out).await?;
        lock(&mut middle, &ids[third..2 * third], finds_out).await?;
        sleep(PILE).await;
        let low = async {
            for id in ids[..third].iter().rev() {
                let touch = format!("UPDATE outbox SET headers = headers WHERE id = {id}");
                high.execute(AssertSqlSafe(touch)).await?;
            }
            anyhow::Ok(())
        };
        let let_go = async {
            sleep(Duration::from_millis(30)).await;
            middle.execute("ROLLBACK").await?;
            anyhow::Ok(())
        };
        let (ended, _) = tokio::join!(low, let_go);
        ended?;
        high.execute("ROLLBACK").await?;
    } else {
        sleep(PILE).await;
    }
    high.close().await?;
    Ok(middle.close().await?)
}

/// After that long it finds out that it waits in a ring.
async fn lock(admin: &mut PgConnection, ids: &[i64], finds_out: &str) -> Result<()> {
    let begin =
        format!("BEGIN; SET LOCAL deadlock_timeout = '{finds_out}'; SET LOCAL lock_timeout = '1s'");
    admin.execute(AssertSqlSafe(begin)).await?;
    let sql = "SELECT id FROM outbox WHERE id = ANY($1) ORDER BY id DESC FOR UPDATE SKIP LOCKED";
    sqlx::query(sql).bind(ids).execute(admin).await?;
    Ok(())
}
