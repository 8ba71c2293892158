//! Who is connected while a run goes on, and after it.

use std::time::Duration;

use anyhow::Result;
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The application name of the engine's connections.
pub const ENGINE: &str = "engine";

/// Looks again and again how many connections the engine has.
pub struct Sampler {
    stop: oneshot::Sender<()>,
    looking: JoinHandle<Result<i64>>,
}

impl Sampler {
    /// From another database, so that what it reads does not count as the run's.
    pub async fn start(pool: &PgPool) -> Result<Self> {
        let options = pool.connect_options();
        let measured = options.get_database().unwrap_or_default().to_owned();
        let mut connection = options.as_ref().clone().database("postgres").connect().await?;
        let (stop, mut stopped) = oneshot::channel();
        let looking = tokio::spawn(async move {
            let mut most = 0;
            loop {
                most = most.max(connected(&mut connection, &measured).await?);
                // Few looks, that they cost nothing; a pool keeps what it has opened for long.
                let pause = Duration::from_millis(50);
                if tokio::time::timeout(pause, &mut stopped).await.is_ok() {
                    connection.close().await?;
                    return Ok(most);
                }
            }
        });
        Ok(Self { stop, looking })
    }

    pub async fn most(self) -> Result<i64> {
        let _ = self.stop.send(());
        self.looking.await?
    }
}

async fn connected(connection: &mut PgConnection, database: &str) -> Result<i64> {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name = $2";
    Ok(sqlx::query_scalar(sql).bind(database).bind(ENGINE).fetch_one(connection).await?)
}

/// A session tells what it has counted at its end, or once a second; so this
/// waits until all but the pool's own are gone, for two seconds at most.
pub async fn told_all(pool: &PgPool) -> Result<()> {
    let options = pool.connect_options();
    let measured = options.get_database().unwrap_or_default().to_owned();
    let mut connection = options.as_ref().clone().database("postgres").connect().await?;
    for _ in 0..100 {
        let sql = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = $1 AND backend_type = 'client backend'";
        let open: i64 = sqlx::query_scalar(sql).bind(&measured).fetch_one(&mut connection).await?;
        if open <= i64::from(pool.size()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(connection.close().await?)
}
