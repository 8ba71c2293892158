//! A SQLite file for a scenario, and rows to begin with.

use std::path::PathBuf;

use anyhow::Result;
use outbox::App;
use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, Executor};

use crate::db::{QUEUE, names};
use crate::server::scratch;

/// A fresh file with write-ahead log, deleted when dropped.
pub struct File {
    folder: PathBuf,
    pub pool: SqlitePool,
}

impl File {
    pub async fn fresh() -> Result<Self> {
        let folder = scratch().join(outbox_tests::backend::unique("outbox-bench"));
        std::fs::create_dir_all(&folder)?;
        let url = format!("sqlite:{}", folder.join("bench.db").display());
        let pool = outbox::sqlite::connect(&url).await?;
        let file = Self { folder, pool };
        outbox::schema::migrate_tables(&file.pool, &names()).await?;
        Ok(file)
    }

    pub fn app(&self) -> App {
        App::sqlite(self.pool.clone()).names(names())
    }

    /// Rows as `publish` writes them, due now, and nothing else.
    pub async fn fill(&self, rows: u64) -> Result<()> {
        self.pool.execute("DELETE FROM outbox").await?;
        let sql = format!(
            "WITH RECURSIVE each(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM each WHERE n < {rows})
             INSERT INTO outbox (queue, payload, headers)
             SELECT '{QUEUE}', CAST(format(
                 '{{\"id\":%d,\"customer\":\"c-%d\",\"note\":\"%s\"}}', n, n % 1000, printf('%.60c', 'x')) AS BLOB),
                 json_object('content-type', 'application/json',
                     'correlation_id', lower(hex(randomblob(18))), 'outbox-tracking-ids', lower(hex(randomblob(18))))
             FROM each"
        );
        self.pool.execute(AssertSqlSafe(sql)).await?;
        self.pool.execute("PRAGMA wal_checkpoint(TRUNCATE)").await?;
        Ok(())
    }

    pub async fn left(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT count(*) FROM outbox").fetch_one(&self.pool).await?)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
