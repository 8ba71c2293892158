//! Wakes by watching the file: `PRAGMA data_version` changes when any other
//! connection, of this process or another, has committed. SQLite's commit hook
//! would be quicker, but fires before the commit is visible.

use std::sync::LazyLock;
use std::time::Duration;

use sqlx::Sqlite;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePool;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::error::StoreError;
use crate::store::{Wake, Wakes};

/// How often the file is looked at; a look costs some 20 µs.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often it is looked at for a moment after this process published, when a commit is near.
const LOOK_SOON: Duration = Duration::from_millis(1);
const MOMENT: Duration = Duration::from_millis(100);

/// Counts the publishes of this process, committed or not.
static PUBLISHED: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::Sender::new(0));

/// Notes that a commit of this process is probably near.
pub(super) fn published() {
    PUBLISHED.send_modify(|count| *count = count.wrapping_add(1));
}

/// A connection that watches.
pub struct SqliteWakes {
    connection: PoolConnection<Sqlite>,
    published: watch::Receiver<u64>,
    seen: i64,
}

impl SqliteWakes {
    pub(super) async fn connect(pool: &SqlitePool) -> Result<Self, StoreError> {
        let connection = pool.acquire().await.map_err(StoreError::of("watch the file"))?;
        let mut wakes = Self { connection, published: PUBLISHED.subscribe(), seen: 0 };
        wakes.seen = wakes.version().await?;
        Ok(wakes)
    }

    async fn version(&mut self) -> Result<i64, StoreError> {
        sqlx::query_scalar("PRAGMA data_version")
            .fetch_one(&mut *self.connection)
            .await
            .map_err(StoreError::of("watch the file"))
    }
}

impl Wakes for SqliteWakes {
    async fn next(&mut self) -> Result<Wake, StoreError> {
        let mut soon_until = Instant::now();
        loop {
            if Instant::now() < soon_until {
                sleep(LOOK_SOON).await;
            } else if let Ok(Ok(())) = timeout(LOOK_EVERY, self.published.changed()).await {
                soon_until = Instant::now() + MOMENT;
                continue;
            }
            let version = self.version().await?;
            if version != self.seen {
                self.seen = version;
                return Ok(Wake::All);
            }
        }
    }
}
